package e2b_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image/jpeg"
	"image/png"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

// expectResult reads a result line without the SDK.
func expectResult(t testing.TB, line []byte) e2b.CodeResult {
	t.Helper()
	var m map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(line, &m))
	str := func(key string) (s string) {
		if m[key] != nil {
			require.NoError(t, json.Unmarshal(m[key], &s))
		}
		return s
	}
	bin := func(key string) []byte {
		if m[key] == nil {
			return nil
		}
		b, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(str(key), "\n", ""))
		require.NoError(t, err)
		return b
	}
	r := e2b.CodeResult{
		Text: str("text"), HTML: str("html"), Markdown: str("markdown"), SVG: str("svg"), LaTeX: str("latex"), JavaScript: str("javascript"),
		PNG: bin("png"), JPEG: bin("jpeg"), PDF: bin("pdf"),
		JSON: m["json"], Data: m["data"], Chart: m["chart"],
		Main: string(m["is_main_result"]) == "true",
	}
	if extra := m["extra"]; extra != nil && string(extra) != "{}" {
		require.NoError(t, json.Unmarshal(extra, &r.Extra))
	}
	return r
}

// recorded runs code whose answer is a recording.
func recorded(t testing.TB, name string) *e2b.Execution {
	t.Helper()
	rec := readRecording(t, "code-interpreter/"+name)
	r := emptySandbox(e2b.StateRunning, "proto")
	r.answers[executePath] = func() *http.Response { return answer(200, rec.header, rec.body, nil) }
	e, err := r.handle(t, "proto").RunCode(t.Context(), "x", nil)
	require.NoError(t, err)
	return e
}

// Every form of a result comes typed, binary ones decoded.
func TestResultForms(t *testing.T) {
	e := recorded(t, "18_display_several")
	shown := func(has func(*e2b.CodeResult) bool) *e2b.CodeResult {
		t.Helper()
		for i := range e.Results {
			if has(&e.Results[i]) {
				return &e.Results[i]
			}
		}
		t.Fatal("no such result")
		return nil
	}
	require.Equal(t, "d1", e.Results[0].Text)
	require.Equal(t, "<b>x</b>", shown(func(r *e2b.CodeResult) bool { return r.HTML != "" }).HTML)
	require.Equal(t, "# m", shown(func(r *e2b.CodeResult) bool { return r.Markdown != "" }).Markdown)
	require.Equal(t, "$x$", shown(func(r *e2b.CodeResult) bool { return r.LaTeX != "" }).LaTeX)
	require.Equal(t, `<svg xmlns="http://www.w3.org/2000/svg"/>`, shown(func(r *e2b.CodeResult) bool { return r.SVG != "" }).SVG)
	require.Contains(t, shown(func(r *e2b.CodeResult) bool { return r.JavaScript != "" }).JavaScript, "1")
	require.JSONEq(t, `{"a": 1}`, string(shown(func(r *e2b.CodeResult) bool { return r.JSON != nil }).JSON))
	raw := shown(func(r *e2b.CodeResult) bool { return r.Extra != nil })
	require.Equal(t, "t", raw.Text)
	require.Equal(t, `"z"`, string(raw.Extra["application/vnd.foo"]))
	require.Equal(t, `"R0lG"`, string(raw.Extra["image/gif"]))
	require.Equal(t, "42", e.Text())

	e = recorded(t, "22_plot_default_size")
	img, err := png.Decode(bytes.NewReader(e.PNG()))
	require.NoError(t, err)
	require.Greater(t, img.Bounds().Dx(), 100)

	e = recorded(t, "37_jpeg_and_pdf")
	_, err = jpeg.Decode(bytes.NewReader(e.Results[0].JPEG))
	require.NoError(t, err)
	require.Equal(t, "%PDF", string(e.Results[1].PDF))

	e = recorded(t, "20_dataframe")
	var columns map[string][]any
	require.NoError(t, json.Unmarshal(e.Results[0].Data, &columns))
	require.Equal(t, map[string][]any{"a": {1.0, 2.0}, "b": {"x", "y"}, "t": {"2024-01-01T00:00:00", "2024-01-02T00:00:00"}}, columns)

	e = recorded(t, "38_custom_mime_extra")
	require.JSONEq(t, `{"q": 1}`, string(e.Results[0].Extra["application/vnd.x+json"]))
}

// What is not of its kind is not lost.
func TestResultOfAnotherKind(t *testing.T) {
	f := newFakeSandbox()
	f.code = lines(
		`{"type":"result","text":"a","png":"no base64","html":["x"],"extra":{"image/gif":"R0lG"},"is_main_result":false}`,
		`{"type":"result","text":null,"pdf":7,"svg":null,"json":null,"data":null,"chart":null,"extra":{},"is_main_result":true}`,
		endLine)
	e, err := f.inMemory(t).RunCode(t.Context(), "x", nil)
	require.NoError(t, err)
	require.Equal(t, []e2b.CodeResult{
		{Text: "a", Extra: map[string]json.RawMessage{
			"image/gif": json.RawMessage(`"R0lG"`), "image/png": json.RawMessage(`"no base64"`), "text/html": json.RawMessage(`["x"]`),
		}},
		{Main: true, Extra: map[string]json.RawMessage{"application/pdf": json.RawMessage("7")}},
	}, e.Results)
	require.Nil(t, e.PNG())
}

// USERS.md K4: the helpers take anything, also nothing.
func TestK4HelpersAreNilSafe(t *testing.T) {
	for _, e := range []*e2b.Execution{nil, {}, {Results: []e2b.CodeResult{{}}}, recorded(t, "08_empty_code")} {
		var v any
		require.Empty(t, e.Text())
		require.Nil(t, e.PNG())
		require.Empty(t, e.Parts())
		requireDataKinds(t, e.JSON(&v), e2b.ErrNotFound)
	}
}

func TestExecutionErr(t *testing.T) {
	require.NoError(t, (*e2b.Execution)(nil).Err())
	require.NoError(t, new(e2b.Execution).Err())
	exception := &e2b.ExecutionError{Name: "ValueError", Value: "x"}
	require.Equal(t, exception, (&e2b.Execution{Error: exception}).Err())
	require.Equal(t, "no exception", (*e2b.ExecutionError)(nil).Error(), "what a nil in an interface says")
}

func TestExecutionJSON(t *testing.T) {
	var list []any
	require.NoError(t, recorded(t, "10_list_value").JSON(&list))
	require.Equal(t, []any{1.0, "two", 3.5}, list)

	e := &e2b.Execution{Results: []e2b.CodeResult{{JSON: json.RawMessage("1")}, {JSON: json.RawMessage("2")}, {JSON: json.RawMessage("3"), Main: true}}}
	var n int
	require.NoError(t, e.JSON(&n))
	require.Equal(t, 3, n, "the last expression's goes first")
	e.Results[2].JSON = nil
	require.NoError(t, e.JSON(&n))
	require.Equal(t, 1, n)
	var s []string
	var odd *json.UnmarshalTypeError
	require.ErrorAs(t, e.JSON(&s), &odd)
}

func TestExecutionParts(t *testing.T) {
	pic, photo := []byte("png"), []byte("jpeg")
	e := &e2b.Execution{
		Stdout: "out\n", Stderr: "err\n",
		Results: []e2b.CodeResult{
			{Text: "<Figure size 30x30>", PNG: pic},
			{Text: "x**2", PNG: pic, LaTeX: "$x^2$"},
			{Text: "<Image>", JPEG: photo},
			{Text: "<Markdown object>", Markdown: "# m"},
			{Text: "<Latex object>", LaTeX: "$x$"},
			{Text: "   a\n0  1", HTML: "<table>", Data: json.RawMessage(`{"a":[1]}`)},
			{Text: "<HTML object>", HTML: "<b>"},
			{Text: "<SVG object>", SVG: "<svg/>"},
			{Text: "<JSON object>", JSON: json.RawMessage(`{"a":1}`)},
			{Text: "<Javascript object>", JavaScript: "1"},
			{PDF: []byte("%PDF")},
			{Text: "<object at 0x1>", Extra: map[string]json.RawMessage{"a/b": nil}},
			{},
			{Text: "42", Main: true},
		},
		Errors: []e2b.ExecutionError{
			{Name: "E", Value: "v", Traceback: "line 1\nE: v"},
			{Name: "E", Value: "v", Traceback: "line 1"},
			{Name: "WebSocketError", Value: "lost"},
			{Value: "2"},
		},
	}
	text := func(source, mime, s string) e2b.CodePart {
		return e2b.CodePart{Source: source, MIMEType: mime, Text: s}
	}
	data := func(mime string, b []byte) e2b.CodePart {
		return e2b.CodePart{Source: e2b.SourceResult, MIMEType: mime, Data: b}
	}
	require.Equal(t, []e2b.CodePart{
		text("stdout", "text/plain", "out\n"),
		text("stderr", "text/plain", "err\n"),
		data("image/png", pic),
		text("result", "text/plain", "x**2"), data("image/png", pic),
		data("image/jpeg", photo),
		text("result", "text/markdown", "# m"),
		text("result", "text/latex", "$x$"),
		text("result", "text/plain", "   a\n0  1"),
		text("result", "text/html", "<b>"),
		text("result", "image/svg+xml", "<svg/>"),
		text("result", "application/json", `{"a":1}`),
		text("result", "application/javascript", "1"),
		data("application/pdf", []byte("%PDF")),
		text("result", "text/plain", "<object at 0x1>"),
		text("result", "text/plain", "42"),
		text("error", "text/plain", "line 1\nE: v"),
		text("error", "text/plain", "E: v\nline 1"),
		text("error", "text/plain", "WebSocketError: lost"),
		text("error", "text/plain", "exit status 2"),
	}, e.Parts())

	parts := recorded(t, "22_plot_default_size").Parts()
	require.Len(t, parts, 2)
	require.Equal(t, "image/png", parts[0].MIMEType)
}

// The forms come out of a running interpreter, too.
func TestRichResults(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	e, err := sbx.RunCode(t.Context(), `
class Rich:
    def __repr__(self): return 'rich'
    def _repr_png_(self): return b'\x89PNG\x00\xff'
    def _repr_pdf_(self): return b'%PDF'
    def _repr_html_(self): return '<b>ü</b>'
    def _repr_markdown_(self): return '# m'
    def _repr_latex_(self): return '$x$'
    def _repr_svg_(self): return '<svg/>'
    def _repr_mimebundle_(self, **k): return {'application/x': {'q': 1}}
Rich()`, nil)
	require.NoError(t, err)
	require.Nil(t, e.Error)
	require.Equal(t, []e2b.CodeResult{{
		Text: "rich", PNG: []byte("\x89PNG\x00\xff"), PDF: []byte("%PDF"), HTML: "<b>ü</b>", Markdown: "# m", LaTeX: "$x$", SVG: "<svg/>",
		Extra: map[string]json.RawMessage{"application/x": json.RawMessage(`{"q": 1}`)}, Main: true,
	}}, e.Results)
	e, err = sbx.RunCode(t.Context(), `{'a': [1, None], 2: 'x'}`, nil)
	require.NoError(t, err)
	var v map[string]any
	require.NoError(t, e.JSON(&v))
	require.Equal(t, map[string]any{"a": []any{1.0, nil}, "2": "x"}, v)
}
