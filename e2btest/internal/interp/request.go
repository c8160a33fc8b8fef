package interp

import (
	"encoding/json"
	"errors"
	"maps"
	"mime"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	languagePython     = "python"
	languageJavaScript = "javascript"
	languageTypeScript = "typescript"
	languageBash       = "bash"
)

// executeRequest is the body of POST /execute.
type executeRequest struct {
	code      string
	contextID string // "" if absent
	language  string // "" if absent, else normalized
	env       map[string]string
}

// contextRequest is the body of POST /contexts.
type contextRequest struct {
	language string // normalized
	cwd      string // "" if absent
}

// invalid is one entry of a 422 response, in the wording of pydantic 2.
type invalid struct {
	Type  string          `json:"type"`
	Loc   []any           `json:"loc"`
	Msg   string          `json:"msg"`
	Input json.RawMessage `json:"input"`
	Ctx   map[string]any  `json:"ctx,omitempty"`
}

func decodeExecute(contentType string, body []byte) (executeRequest, []invalid) {
	f, problems := decodeFields(contentType, body)
	if problems != nil {
		return executeRequest{}, problems
	}
	r := executeRequest{
		code:      f.text("code", true),
		contextID: f.text("context_id", false),
		language:  normalizeLanguage(f.text("language", false)),
		env:       f.texts("env_vars"),
	}
	return r, f.problems
}

func decodeContext(contentType string, body []byte) (contextRequest, []invalid) {
	f, problems := decodeFields(contentType, body)
	if problems != nil {
		return contextRequest{}, problems
	}
	r := contextRequest{
		language: normalizeLanguage(f.text("language", false)),
		cwd:      f.text("cwd", false),
	}
	if r.language == "" {
		r.language = languagePython
	}
	return r, f.problems
}

func normalizeLanguage(language string) string {
	language = strings.ToLower(strings.TrimSpace(language))
	switch language {
	case "js":
		return languageJavaScript
	case "ts":
		return languageTypeScript
	}
	return language
}

// fields are the members of a JSON object. Names match exactly, unlike those of
// a struct that encoding/json decodes into, and unknown ones are ignored.
type fields struct {
	all      json.RawMessage
	members  map[string]json.RawMessage
	problems []invalid
}

func decodeFields(contentType string, body []byte) (*fields, []invalid) {
	if len(body) == 0 {
		return nil, []invalid{missing(json.RawMessage("null"))}
	}
	if !isJSON(contentType) {
		text, err := json.Marshal(string(body))
		if err != nil {
			text = json.RawMessage("null")
		}
		return nil, []invalid{notAnObject(text)}
	}
	f := &fields{}
	if err := json.Unmarshal(body, &f.all); err != nil {
		return nil, []invalid{badJSON(body, err)}
	}
	if f.all[0] != '{' {
		return nil, []invalid{notAnObject(f.all)}
	}
	if err := json.Unmarshal(f.all, &f.members); err != nil {
		return nil, []invalid{badJSON(body, err)}
	}
	return f, nil
}

// isJSON reports whether a body with this Content-Type is read as JSON. One
// without any is.
func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && (kind == "application/json" ||
		strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json"))
}

// text returns a member that is a string; "" if it is absent or null, which a
// required one may not be.
func (f *fields) text(name string, required bool) string {
	raw, ok := f.members[name]
	if !ok {
		if required {
			f.problems = append(f.problems, missing(f.all, name))
		}
		return ""
	}
	if !required && string(raw) == "null" {
		return ""
	}
	return f.value(raw, name)
}

// texts returns a member that is an object of strings; nil if it is absent or null.
func (f *fields) texts(name string) map[string]string {
	raw, ok := f.members[name]
	if !ok || string(raw) == "null" {
		return nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		f.problems = append(f.problems, invalid{
			Type: "dict_type", Loc: location(name), Msg: "Input should be a valid dictionary", Input: raw,
		})
		return nil
	}
	values := make(map[string]string, len(members))
	for _, key := range slices.Sorted(maps.Keys(members)) {
		values[key] = f.value(members[key], name, key)
	}
	return values
}

func (f *fields) value(raw json.RawMessage, path ...string) string {
	var text *string
	if err := json.Unmarshal(raw, &text); err != nil || text == nil {
		f.problems = append(f.problems, invalid{
			Type: "string_type", Loc: location(path...), Msg: "Input should be a valid string", Input: raw,
		})
		return ""
	}
	return *text
}

func missing(input json.RawMessage, path ...string) invalid {
	return invalid{Type: "missing", Loc: location(path...), Msg: "Field required", Input: input}
}

func notAnObject(input json.RawMessage) invalid {
	return invalid{
		Type: "model_attributes_type", Loc: location(),
		Msg: "Input should be a valid dictionary or object to extract fields from", Input: input,
	}
}

func location(path ...string) []any {
	loc := []any{"body"}
	for _, name := range path {
		loc = append(loc, name)
	}
	return loc
}

// badJSON says in the words of Python's json module where body stops being JSON.
func badJSON(body []byte, err error) invalid {
	text, at := err.Error(), len(body)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = min(max(int(syntax.Offset)-1, 0), len(body))
	}
	reason := "Expecting value"
	for _, r := range []struct{ in, out string }{
		{"beginning of object key", "Expecting property name enclosed in double quotes"},
		{"after object key:value", "Expecting ',' delimiter"},
		{"after object key", "Expecting ':' delimiter"},
		{"after array element", "Expecting ',' delimiter"},
		{"after top-level value", "Extra data"},
		{"in string literal", "Invalid control character at"},
		{"in string escape code", `Invalid \escape`},
		{"hexadecimal character escape", `Invalid \uXXXX escape`},
	} {
		if strings.Contains(text, r.in) {
			reason = r.out
			break
		}
	}
	return invalid{
		Type: "json_invalid", Loc: []any{"body", utf8.RuneCount(body[:at])}, Msg: "JSON decode error",
		Input: json.RawMessage("{}"), Ctx: map[string]any{"error": reason},
	}
}
