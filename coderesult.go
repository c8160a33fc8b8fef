package e2b

import (
	"encoding/json"
	"strings"

	"github.com/seed-09a7379d/e2b-go/internal/interpreter"
)

// CodeResult is a value that code produced, in all the forms that it has. The
// zero value of a field means that it does not have that form.
type CodeResult struct {
	Text       string // of a string without the quotes around it
	HTML       string
	Markdown   string
	SVG        string // the XML
	LaTeX      string
	JavaScript string

	PNG, JPEG, PDF []byte

	// JSON is the value itself, of a list or a dict. Its keys are strings, and NaN
	// is null.
	JSON json.RawMessage
	// Data is a pandas DataFrame as {"column": [values]}. What is not a finite
	// number is "nan", "inf" or "-inf" there.
	Data json.RawMessage
	// Chart describes a matplotlib figure; ParseChart reads it. It is {} for a
	// figure of which the interpreter can make nothing.
	Chart json.RawMessage

	// Extra are the forms without a field here, by MIME type. A form whose value is
	// not of its kind, as a picture that is not base64, is here too, as it came.
	Extra map[string]json.RawMessage

	Main bool // the value of the last expression, not something displayed
}

func newCodeResult(l *interpreter.Line) CodeResult {
	r := CodeResult{
		Text: l.Text, HTML: l.HTML.Text, Markdown: l.Markdown.Text, SVG: l.SVG.Text, LaTeX: l.LaTeX.Text,
		JavaScript: l.JavaScript.Text, PNG: l.PNG.Bytes, JPEG: l.JPEG.Bytes, PDF: l.PDF.Bytes,
		JSON: notNull(l.JSON), Data: notNull(l.Data), Chart: notNull(l.Chart), Main: l.Main,
	}
	if len(l.Extra) > 0 {
		r.Extra = l.Extra
	}
	for _, f := range []struct {
		mime string
		odd  json.RawMessage
	}{
		{"text/html", l.HTML.Odd},
		{"text/markdown", l.Markdown.Odd},
		{"image/svg+xml", l.SVG.Odd},
		{"text/latex", l.LaTeX.Odd},
		{"application/javascript", l.JavaScript.Odd},
		{"image/png", l.PNG.Odd},
		{"image/jpeg", l.JPEG.Odd},
		{"application/pdf", l.PDF.Odd},
	} {
		if f.odd == nil {
			continue
		}
		if r.Extra == nil {
			r.Extra = make(map[string]json.RawMessage)
		}
		r.Extra[f.mime] = f.odd
	}
	return r
}

func notNull(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// Text returns the value of the last expression as text, "" if there is none.
// Like all methods of an Execution it may be called on nil.
func (e *Execution) Text() string {
	if r := e.main(); r != nil {
		return r.Text
	}
	return ""
}

func (e *Execution) main() *CodeResult {
	if e == nil {
		return nil
	}
	for i := range e.Results {
		if e.Results[i].Main {
			return &e.Results[i]
		}
	}
	return nil
}

// PNG returns the first picture among the results, as a plot is one; nil if there
// is none.
func (e *Execution) PNG() []byte {
	if e == nil {
		return nil
	}
	for i := range e.Results {
		if len(e.Results[i].PNG) > 0 {
			return e.Results[i].PNG
		}
	}
	return nil
}

// JSON stores the value of the last expression in v, as json.Unmarshal does. If
// that has no JSON form, the first displayed value with one is taken. Lists and
// dicts have one.
//
// Errors: ErrNotFound (no result has one), and those of json.Unmarshal.
func (e *Execution) JSON(v any) error {
	const op = "read JSON of execution"
	r := e.main()
	if e != nil && (r == nil || r.JSON == nil) {
		for i := range e.Results {
			if e.Results[i].JSON != nil {
				r = &e.Results[i]
				break
			}
		}
	}
	if r == nil || r.JSON == nil {
		return &opError{op: op, detail: "no result has JSON", errs: []error{ErrNotFound}}
	}
	if err := json.Unmarshal(r.JSON, v); err != nil {
		return &opError{op: op, errs: []error{err}}
	}
	return nil
}

// The values of CodePart.Source.
const (
	SourceStdout = "stdout"
	SourceStderr = "stderr"
	SourceResult = "result"
	SourceError  = "error"
)

// CodePart is a piece of what an execution left, in a form that can be given to a
// model.
type CodePart struct {
	Source   string // SourceStdout, SourceStderr, SourceResult or SourceError
	MIMEType string // "text/plain", "image/png"
	Text     string // of a type that is text
	Data     []byte // of any other, shared with the Execution
}

// Parts returns what the execution left as texts and pictures: standard output,
// standard error, the results in their order, the exceptions. What is empty is
// left out. Of each result it takes the picture if there is one, and one text:
// the plain one, unless that only names an object, as "<Figure size 640x480>", and
// there is a better form. A PDF is taken where there is neither.
//
// The texts may be long: MaxOutput bounds the output, nothing bounds a result.
func (e *Execution) Parts() []CodePart {
	if e == nil {
		return nil
	}
	var out []CodePart
	text := func(source, mime, s string) bool {
		if s != "" {
			out = append(out, CodePart{Source: source, MIMEType: mime, Text: s})
		}
		return s != ""
	}
	data := func(mime string, b []byte) bool {
		if len(b) > 0 {
			out = append(out, CodePart{Source: SourceResult, MIMEType: mime, Data: b})
		}
		return len(b) > 0
	}
	text(SourceStdout, "text/plain", e.Stdout)
	text(SourceStderr, "text/plain", e.Stderr)
	for i := range e.Results {
		r := &e.Results[i]
		named := r.Text == "" || strings.HasPrefix(r.Text, "<") && strings.HasSuffix(r.Text, ">")
		if !named {
			text(SourceResult, "text/plain", r.Text)
		}
		switch {
		case data("image/png", r.PNG), data("image/jpeg", r.JPEG), !named:
		case text(SourceResult, "text/markdown", r.Markdown):
		case text(SourceResult, "text/latex", r.LaTeX):
		case text(SourceResult, "application/json", string(r.JSON)):
		case text(SourceResult, "application/json", string(r.Data)):
		case text(SourceResult, "image/svg+xml", r.SVG):
		case text(SourceResult, "text/html", r.HTML):
		case text(SourceResult, "application/javascript", r.JavaScript):
		case data("application/pdf", r.PDF):
		default:
			text(SourceResult, "text/plain", r.Text)
		}
	}
	for i := range e.Errors {
		text(SourceError, "text/plain", e.Errors[i].report())
	}
	return out
}

// report is the error as a reader of it wants it.
func (e *ExecutionError) report() string {
	switch {
	case e.Name == "" && e.Traceback == "":
		return "exit status " + e.Value // of bash, which says nothing else
	case e.Traceback == "":
		return e.Error()
	case strings.Contains(e.Traceback, e.Value):
		return e.Traceback
	}
	return e.Error() + "\n" + e.Traceback
}
