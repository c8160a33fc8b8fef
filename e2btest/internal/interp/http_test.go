package interp

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// request answers a request that needs no kernel.
func request(s *Server, method, path, contentType, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func newServer(tb testing.TB) *Server {
	tb.Helper()
	s := New(Config{PythonErr: "not found in $PATH", Dir: "/home/user"})
	tb.Cleanup(s.Close)
	return s
}

func TestInvalidRequests(t *testing.T) {
	s := newServer(t)
	for _, c := range []struct{ path, contentType, body, want string }{
		{"/execute", "application/json", "", `[{"type":"missing","loc":["body"],"msg":"Field required","input":null}]`},
		{"/execute", "application/json", "{}", `[{"type":"missing","loc":["body","code"],"msg":"Field required","input":{}}]`},
		{"/execute", "", `{"Code": "1", "x": [ 1 ]}`, `[{"type":"missing","loc":["body","code"],"msg":"Field required","input":{"Code":"1","x":[1]}}]`},
		{"/execute", "application/json", `{"code": 1}`, `[{"type":"string_type","loc":["body","code"],"msg":"Input should be a valid string","input":1}]`},
		{"/execute", "application/json", `{"code": null}`, `[{"type":"string_type","loc":["body","code"],"msg":"Input should be a valid string","input":null}]`},
		{
			"/execute", "application/json", `{"code": "1", "context_id": 2, "language": [], "env_vars": {"A": null, "B": 1, "C": "c"}}`,
			`[{"type":"string_type","loc":["body","context_id"],"msg":"Input should be a valid string","input":2},` +
				`{"type":"string_type","loc":["body","language"],"msg":"Input should be a valid string","input":[]},` +
				`{"type":"string_type","loc":["body","env_vars","A"],"msg":"Input should be a valid string","input":null},` +
				`{"type":"string_type","loc":["body","env_vars","B"],"msg":"Input should be a valid string","input":1}]`,
		},
		{"/execute", "application/json", `{"code": "1", "env_vars": ["A"]}`, `[{"type":"dict_type","loc":["body","env_vars"],"msg":"Input should be a valid dictionary","input":["A"]}]`},
		{"/execute", "application/json", `["é"]`, `[{"type":"model_attributes_type","loc":["body"],"msg":"Input should be a valid dictionary or object to extract fields from","input":["é"]}]`},
		{"/execute", "text/plain", `{"code": "1"}`, `[{"type":"model_attributes_type","loc":["body"],"msg":"Input should be a valid dictionary or object to extract fields from","input":"{\"code\": \"1\"}"}]`},
		{"/execute", "application/json", "{nope", `[{"type":"json_invalid","loc":["body",1],"msg":"JSON decode error","input":{},"ctx":{"error":"Expecting property name enclosed in double quotes"}}]`},
		{"/execute", "application/json", `{"é" 1}`, `[{"type":"json_invalid","loc":["body",5],"msg":"JSON decode error","input":{},"ctx":{"error":"Expecting ':' delimiter"}}]`},
		{"/execute", "application/json", `{"a": 1 "b": 2}`, `[{"type":"json_invalid","loc":["body",8],"msg":"JSON decode error","input":{},"ctx":{"error":"Expecting ',' delimiter"}}]`},
		{"/execute", "application/json", `[1 2]`, `[{"type":"json_invalid","loc":["body",3],"msg":"JSON decode error","input":{},"ctx":{"error":"Expecting ',' delimiter"}}]`},
		{"/execute", "application/json", `{} x`, `[{"type":"json_invalid","loc":["body",3],"msg":"JSON decode error","input":{},"ctx":{"error":"Extra data"}}]`},
		{"/execute", "application/json", `{"a": x}`, `[{"type":"json_invalid","loc":["body",6],"msg":"JSON decode error","input":{},"ctx":{"error":"Expecting value"}}]`},
		{"/execute", "application/json", "{\"a\": \"\n\"}", `[{"type":"json_invalid","loc":["body",7],"msg":"JSON decode error","input":{},"ctx":{"error":"Invalid control character at"}}]`},
		{"/contexts", "application/json", "", `[{"type":"missing","loc":["body"],"msg":"Field required","input":null}]`},
		{"/contexts", "application/vnd.x+json; charset=utf-8", `{"cwd": 1, "language": {}}`, `[{"type":"string_type","loc":["body","language"],"msg":"Input should be a valid string","input":{}},` +
			`{"type":"string_type","loc":["body","cwd"],"msg":"Input should be a valid string","input":1}]`},
	} {
		w := request(s, http.MethodPost, c.path, c.contentType, c.body)
		require.Equal(t, http.StatusUnprocessableEntity, w.Code, c.body)
		require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		require.Equal(t, `{"detail":`+c.want+`}`, w.Body.String(), c.body)
	}
	w := request(s, http.MethodPost, "/execute", "application/json", "\xff")
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Equal(t, `{"detail":"There was an error parsing the body"}`, w.Body.String())
	r := httptest.NewRequest(http.MethodPost, "/execute", strings.NewReader(strings.Repeat(" ", maxBody+1)))
	w = httptest.NewRecorder()
	s.ServeHTTP(w, r)
	require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
}

func TestRoutes(t *testing.T) {
	s := newServer(t)
	for _, c := range []struct {
		method, path string
		status       int
		body         string
		header       string // "Name: value"
	}{
		{http.MethodGet, "/health", http.StatusOK, `"OK"`, "Content-Type: application/json"},
		{http.MethodHead, "/health", http.StatusMethodNotAllowed, `{"detail":"Method Not Allowed"}`, "Allow: GET"},
		{http.MethodGet, "/execute", http.StatusMethodNotAllowed, `{"detail":"Method Not Allowed"}`, "Allow: POST"},
		{http.MethodGet, "/contexts/x", http.StatusMethodNotAllowed, `{"detail":"Method Not Allowed"}`, "Allow: DELETE"},
		{http.MethodPut, "/contexts/x/restart", http.StatusMethodNotAllowed, `{"detail":"Method Not Allowed"}`, "Allow: POST"},
		{http.MethodGet, "/", http.StatusNotFound, `{"detail":"Not Found"}`, "Content-Type: application/json"},
		{http.MethodPost, "/contexts/x/interrupt", http.StatusNotFound, `{"detail":"Not Found"}`, "Content-Type: application/json"},
		{http.MethodPost, "/execute/", http.StatusTemporaryRedirect, "", "Location: /execute"},
		{http.MethodDelete, "/contexts/x/?y=z", http.StatusTemporaryRedirect, "", "Location: /contexts/x?y=z"},
		{http.MethodDelete, "/contexts/x", http.StatusNotFound, "Context x not found", "Content-Type: text/plain; charset=utf-8"},
		{http.MethodDelete, "/contexts/a%2Fb%20c", http.StatusNotFound, "Context a/b c not found", "Content-Type: text/plain; charset=utf-8"},
		{http.MethodPost, "/contexts/x/restart", http.StatusNotFound, "Context x not found", "Content-Type: text/plain; charset=utf-8"},
		{http.MethodGet, "/contexts", http.StatusOK, "[]", "Content-Type: application/json"},
	} {
		w := request(s, c.method, c.path, "", "")
		require.Equal(t, c.status, w.Code, "%s %s", c.method, c.path)
		require.Equal(t, c.body, w.Body.String(), "%s %s", c.method, c.path)
		name, value, _ := strings.Cut(c.header, ": ")
		require.Equal(t, value, w.Header().Get(name), "%s %s", c.method, c.path)
	}
}

func TestBrowsersMayCall(t *testing.T) {
	s := newServer(t)
	r := httptest.NewRequest(http.MethodGet, "/health", nil)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	require.NotContains(t, w.Header(), "Access-Control-Allow-Origin")
	r.Header.Set("Origin", "https://example.com")
	w = httptest.NewRecorder()
	s.ServeHTTP(w, r)
	require.Equal(t, `"OK"`, w.Body.String())
	require.Equal(t, "*", w.Header().Get("Access-Control-Allow-Origin"))
	r = httptest.NewRequest(http.MethodOptions, "/execute", nil)
	r.Header.Set("Origin", "https://example.com")
	r.Header.Set("Access-Control-Request-Method", "POST")
	r.Header.Set("Access-Control-Request-Headers", "content-type")
	w = httptest.NewRecorder()
	s.ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "content-type", w.Header().Get("Access-Control-Allow-Headers"))
}

func TestNoPython(t *testing.T) {
	s := newServer(t)
	const want = "Failed to create context: there is no Python to run the kernel with: "
	for _, body := range []string{`{"code": "1"}`, `{"code": "1", "language": " Python "}`} {
		w := request(s, http.MethodPost, "/execute", "application/json", body)
		require.Equal(t, http.StatusInternalServerError, w.Code)
		require.True(t, strings.HasPrefix(w.Body.String(), want), w.Body.String())
	}
	w := request(s, http.MethodPost, "/contexts", "application/json", "{}")
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.True(t, strings.HasPrefix(w.Body.String(), want), w.Body.String())
	if noKernels == "" {
		require.Equal(t, want+"not found in $PATH", w.Body.String())
	}
}

func TestOtherLanguages(t *testing.T) {
	s := newServer(t)
	for language, kernel := range map[string]string{
		"ts": "typescript", "a'\"é\n": `a'\"\u00e9`,
	} {
		for _, path := range []string{"/execute", "/contexts"} {
			body, err := json.Marshal(map[string]any{"code": "1", "language": language})
			require.NoError(t, err)
			w := request(s, http.MethodPost, path, "application/json", string(body))
			require.Equal(t, http.StatusInternalServerError, w.Code)
			require.Equal(t, `Failed to create context: {"message": "The '`+kernel+`' kernel is not available. Please pick another `+
				`suitable kernel instead, or install that kernel.", "short_message": "`+kernel+` not found"}`, w.Body.String())
		}
	}
}

func TestOutputLine(t *testing.T) {
	text := "a<b>\"\\\n\x00é你😀\xff"
	data := outputLine("stdout", text)
	for _, b := range data {
		require.Less(t, b, byte(0x80))
	}
	l := decode[line](t, string(data))
	require.Equal(t, strings.ToValidUTF8(text, "\ufffd"), l.text())
	stamp, ok := l["timestamp"].(string)
	require.True(t, ok)
	at, err := time.Parse(time.RFC3339Nano, stamp)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), at, time.Minute)
}

func FuzzDecodeRequest(f *testing.F) {
	for _, body := range []string{
		`{"code": "1", "context_id": null, "language": "js", "env_vars": {"A": "b", "": ""}, "cwd": "/"}`,
		`{"code": 1, "env_vars": [], "cwd": {}}`, `[]`, `"x"`, `{"code": "\ud800"`, "", "{\"\\", "\xff", `{"a":{"a":`, "nullx",
	} {
		f.Add("application/json", body)
	}
	f.Add("text/plain; x", "é")
	f.Fuzz(func(t *testing.T, contentType, body string) {
		check := func(problems []invalid) {
			for _, p := range problems {
				require.NotEmpty(t, p.Type)
				require.NotEmpty(t, p.Msg)
				require.Equal(t, "body", p.Loc[0])
			}
			if problems != nil {
				data, err := json.Marshal(detail(problems))
				require.NoError(t, err)
				require.True(t, json.Valid(data))
			}
		}
		req, problems := decodeExecute(contentType, []byte(body))
		check(problems)
		if len(problems) == 0 {
			// What was accepted means the same to encoding/json.
			var want struct {
				Code *string           `json:"code"`
				Env  map[string]string `json:"env_vars"`
			}
			if json.Unmarshal([]byte(body), &want) == nil && want.Code != nil && !strings.Contains(strings.ToLower(body), "\\u") &&
				strings.Count(strings.ToLower(body), "code") == 1 {
				require.Equal(t, *want.Code, req.code)
			}
			require.Equal(t, normalizeLanguage(req.language), req.language)
		}
		_, problems = decodeContext(contentType, []byte(body))
		check(problems)
	})
}

func FuzzDecodeEvent(f *testing.F) {
	for _, text := range []string{
		`{"ready": true}`, `{"seq": 1, "size": 20}`, `{"seq": 2, "end": true, "exit": false}`, `{"seq": 3, "end": true, "exit": true}`,
		`{}`, `{"seq": 1}`, `{"seq": -1, "size": 1}`, `{"size": 1e400}`, `{"ready": true, "end": true}`, "nonsense", "",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := decodeEvent(data)
		if err != nil {
			require.ErrorIs(t, err, errEvent)
			require.Zero(t, e)
			return
		}
		kinds := 0
		for _, is := range []bool{e.Ready, e.End, e.Size > 0} {
			if is {
				kinds++
			}
		}
		require.Equal(t, 1, kinds)
		require.True(t, e.Ready || e.Seq > 0)
		require.GreaterOrEqual(t, e.Size, int64(0))
		require.True(t, e.End || !e.Exit)
		again, err := json.Marshal(e)
		require.NoError(t, err)
		same, err := decodeEvent(again)
		require.NoError(t, err)
		require.Equal(t, e, same)
	})
}
