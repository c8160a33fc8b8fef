package transport

import (
	"encoding/json"
	"html"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

const page502 = `<!DOCTYPE html>
<html><head><title>502 Bad Gateway</title><style>body { width: 35em }</style></head>
<body><center><h1>502 Bad Gateway</h1></center><hr><center>nginx&nbsp;&lt;script&gt;</center><script>alert("x")</script></body></html>`

func TestNewStatusError(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		status int
		header http.Header
		body   string
		want   StatusError
	}{
		{
			name: "control plane", status: 503, body: `{"code":503,"message":"no room","error_code":"sandbox_capacity_unavailable"}`,
			want: StatusError{Message: "no room", Code: "sandbox_capacity_unavailable", JSON: true},
		},
		{
			name: "control plane without a word of its own", status: 404, body: `{"code":404,"message":"Sandbox \"x\" doesn't exist"}`,
			want: StatusError{Message: `Sandbox "x" doesn't exist`, JSON: true},
		},
		{name: "envd RPC", status: 401, body: `{"code":"unauthenticated","message":"no"}`, want: StatusError{Code: "unauthenticated", Message: "no", JSON: true}},
		{
			name: "proxy", status: 502, body: `{"sandboxId":"i1","message":"The sandbox is running but port is not open","port":8080,"code":502}`,
			want: StatusError{Message: "The sandbox is running but port is not open", JSON: true, Proxy: true, Port: 8080},
		},
		{name: "interpreter", status: 404, body: `{"detail":"Context 1 not found"}`, want: StatusError{Message: "Context 1 not found", JSON: true}},
		{
			name: "interpreter, validation", status: 422, body: `{"detail":[{"loc":["body"],"msg":"field required"}]}`,
			want: StatusError{Message: `[{"loc":["body"],"msg":"field required"}]`, JSON: true},
		},
		{name: "empty", status: 408, want: StatusError{}},
		{name: "text", status: 504, header: headers("Content-Type", "text/plain"), body: "upstream request\r\ntimeout\n", want: StatusError{Message: "upstream request timeout"}},
		{name: "HTML", status: 502, header: headers("Content-Type", "text/html; charset=utf-8"), body: page502, want: StatusError{Message: "502 Bad Gateway 502 Bad Gateway nginx script"}},
		{name: "HTML without a type", status: 502, body: page502, want: StatusError{Message: "502 Bad Gateway 502 Bad Gateway nginx script"}},
		{name: "an array", status: 500, header: headers("Content-Type", "application/json"), body: `["a"]`, want: StatusError{Message: `["a"]`}},
		{name: "a string", status: 500, header: headers("Content-Type", "application/json"), body: `"a"`, want: StatusError{Message: `"a"`}},
		{name: "null", status: 500, body: `null`, want: StatusError{JSON: true}},
		{name: "broken JSON", status: 500, header: headers("Content-Type", "application/json"), body: `{"message":"a`, want: StatusError{Message: `{"message":"a`}},
		{
			name: "members of other types", status: 404, body: `{"code":"x","message":"Sandbox not here","error_code":7,"port":"8080","sandboxId":3}`,
			want: StatusError{Code: "x", Message: "Sandbox not here", JSON: true},
		},
		{name: "a message that is no string", status: 500, body: `{"message":{"a":1},"code":1}`, want: StatusError{JSON: true}},
		{
			name: "headers", status: 429, header: headers("Retry-After", "7", "X-E2B-Trace-ID", "trace", "X-Request-ID", "request"), body: `{}`,
			want: StatusError{JSON: true, RetryAfter: 7 * time.Second, HasRetry: true, RequestID: "trace"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.want.StatusCode = row.status
			got := NewStatusError(row.status, http.Header{}, row.header, []byte(row.body))
			require.Equal(t, &row.want, got)
			require.NotEmpty(t, got.Error())
			require.Contains(t, got.Error(), got.Message)
		})
	}
}

// TestSecretsSentComeNotBack echoes what the request was let in with, in each
// form in which a server might write it.
func TestSecretsSentComeNotBack(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"e2b_0123456789abcdef", "sk-Abc.123", `a<b>&"c"/d'e`, "tök+en=%2F", `back\slash`} {
		quoted, err := json.Marshal(secret)
		require.NoError(t, err)
		bodies := map[string]string{
			"text":               "bad key " + secret + "!",
			"JSON":               `{"message":"bad key ` + strings.Trim(string(quoted), `"`) + `!"}`,
			"JSON code":          `{"error_code":` + string(quoted) + `,"message":"bad key!"}`,
			"JSON string code":   `{"code":` + string(quoted) + `,"message":"bad key!"}`,
			"JSON with escapes":  `{"message":"bad key ` + escapeAll(secret) + `!"}`,
			"JSON detail":        `{"detail":{"key":` + string(quoted) + `}}`,
			"HTML":               "<html><body>bad key <b>" + html.EscapeString(secret) + "</b>!</body></html>",
			"HTML with entities": "<html><body>bad key <b>" + strings.ReplaceAll(html.EscapeString(secret), "&#34;", "&quot;") + "</b>!</body></html>",
		}
		for kind, body := range bodies {
			for _, name := range []string{HeaderAPIKey, HeaderEnvdToken, HeaderTrafficToken} {
				e := NewStatusError(401, headers(name, secret), headers("X-Request-Id", "r-"+secret), []byte(body))
				for _, s := range []string{e.Message, e.Code, e.RequestID, e.Error()} {
					require.NotContains(t, s, secret, "%s in %s", name, kind)
				}
				require.Contains(t, e.Message+e.Code, redacted, "%s in %s", name, kind)
			}
		}
	}
}

// escapeAll writes s as the longest JSON for it.
func escapeAll(s string) string {
	var b strings.Builder
	for _, r := range s {
		const hex = "0123456789abcdef"
		b.WriteString(`\u`)
		for shift := 12; shift >= 0; shift -= 4 {
			b.WriteByte(hex[r>>shift&15])
		}
	}
	return b.String()
}

func TestProxyAnswers(t *testing.T) {
	t.Parallel()
	read := func(status int, body string) *StatusError {
		return NewStatusError(status, nil, http.Header{}, []byte(body))
	}
	gone := read(502, `{"sandboxId":"i1","message":"The sandbox was not found","code":502}`)
	require.True(t, gone.SandboxGone())
	require.False(t, gone.PortClosed())
	closed := read(502, `{"sandboxId":"i1","message":"The sandbox is running but port is not open","port":1,"code":502}`)
	require.True(t, closed.PortClosed())
	require.False(t, closed.SandboxGone())
	for _, body := range []string{
		`{"message":"The sandbox was not found","code":502}`, // of an application in the sandbox
		`The sandbox was not found`,
		`{"sandboxId":"i1","message":"something else","code":502}`,
	} {
		e := read(502, body)
		require.False(t, e.SandboxGone(), body)
		require.False(t, e.PortClosed(), body)
	}
	require.False(t, read(404, `{"sandboxId":"i1","message":"The sandbox was not found"}`).SandboxGone())
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	require.Empty(t, RequestID(http.Header{}))
	require.Equal(t, "b", RequestID(headers("X-Request-ID", "b")))
	require.Equal(t, "a", RequestID(headers("x-e2b-trace-id", "a", "X-Request-ID", "b")))
	require.LessOrEqual(t, len(RequestID(headers("X-Request-ID", strings.Repeat("x", 10000)))), maxMessage)
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{"0": 0, "1": time.Second, " 30 ": 30 * time.Second, "2147483647": 2147483647 * time.Second} {
		got, ok := RetryAfter(headers("Retry-After", value))
		require.True(t, ok, "%q", value)
		require.Equal(t, want, got, "%q", value)
	}
	for _, junk := range []string{"", "-1", "+1", "1.5", "abc", "0x10", "1s", "Wed, 21 Oct 2026 07:28:00 GMT", "99999999999", "1e3", "1_0"} {
		got, ok := RetryAfter(headers("Retry-After", junk))
		require.False(t, ok, "%q", junk)
		require.Zero(t, got)
	}
	_, ok := RetryAfter(nil)
	require.False(t, ok)
}

func TestClean(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		in     string
		markup bool
		want   string
	}{
		{in: "", want: ""},
		{in: "  a\n\tb\x00c\u2028d  ", want: "a b c d"},
		{in: "a \xff b", want: "a \uFFFD b"},
		{in: "x < y > z", want: "x < y > z"},
		{in: "x &lt;b&gt; y", markup: true, want: "x b y"},
		{in: "<b>a</b><SCRIPT>if (a < b) { }</SCRIPT>c", markup: true, want: "a c"},
		{in: "key e2b_0123456789abcdef and sk_e2b_0123456789abcdef.", want: "key [redacted] and [redacted]."},
		{in: "signature=v1_" + strings.Repeat("aB3", 15) + "&x", want: "signature=[redacted]&x"},
		{in: strings.Repeat("é", 200), want: strings.Repeat("é", 98) + "…" + strings.Repeat("é", 50)},
		{in: "lstat " + strings.Repeat("x", 400) + ": file name too long", want: "lstat " + strings.Repeat("x", 191) + "…" + strings.Repeat("x", 80) + ": file name too long"},
		{in: "\x1b[31mred\x1b[0m", want: "[31mred [0m"},
	} {
		require.Equal(t, row.want, Clean(row.in, row.markup), "%q", row.in)
	}
}

// TestCleanCutsNoSecretInTwo puts a key at every place near where text is cut.
func TestCleanCutsNoSecretInTwo(t *testing.T) {
	t.Parallel()
	const key = "e2b_0123456789abcdef0123456789abcdef01234567"
	for n := maxMessage - 2*len(key); n < maxMessage+len(key); n++ {
		got := Clean(strings.Repeat("x", n)+" "+key+" "+strings.Repeat("y", 100), false)
		require.NotContains(t, got, "e2b_0123")
		require.LessOrEqual(t, len(got), maxMessage)
	}
}

func requireClean(t *testing.T, s string, markup bool) {
	t.Helper()
	require.True(t, utf8.ValidString(s))
	require.LessOrEqual(t, len(s), maxMessage)
	require.NotContains(t, s, "  ")
	require.Equal(t, strings.TrimSpace(s), s)
	require.Less(t, strings.IndexFunc(s, unicode.IsControl), 0)
	if markup {
		require.NotContains(t, s, "<")
		require.NotContains(t, s, ">")
	}
	require.NotRegexp(t, `\be2b_[0-9a-zA-Z]{8,}`, s)
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"", page502, "a\x00b", "e2b_0123456789abcdef", "<<<>>>", "&lt;&lt;b&gt;", strings.Repeat("<a>", 5000), "\xff\xfe", strings.Repeat("é", 4000)} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, s string, markup bool) { requireClean(t, Clean(s, markup), markup) })
}

func FuzzNewStatusError(f *testing.F) {
	for _, s := range []string{
		"", "null", "{}", "[]", `""`, page502, `{"code":404,"message":"a"}`, `{"code":"x","message":1,"error_code":{},"sandboxId":null,"port":1e99}`,
		`{"detail":["sec/ret<1>"],"message":"sec\/ret\u003c1\u003e"}`, `{"message":"` + strings.Repeat(`\n`, 1000) + `"}`, `{"error_code":"a\u0000b\nc"}`, "\xef\xbb\xbf{}",
	} {
		f.Add(s, "application/json", 500)
		f.Add(s, "text/html", 404)
	}
	const secret = "sec/ret<1>"
	f.Fuzz(func(t *testing.T, body, contentType string, status int) {
		e := NewStatusError(status, headers(HeaderAPIKey, secret), headers("Content-Type", contentType, "Retry-After", body), []byte(body))
		require.Equal(t, status, e.StatusCode)
		requireClean(t, e.Message, false)
		requireClean(t, e.Code, false)
		require.NotContains(t, e.Error(), secret)
		require.NotContains(t, e.Code, secret)
		require.Equal(t, e.Proxy && e.StatusCode == http.StatusBadGateway && strings.Contains(e.Message, "port is not open"), e.PortClosed())
	})
}

// A secret that another one begins with must not uncover the rest of that.
func TestSecretsThatBeginAlike(t *testing.T) {
	t.Parallel()
	short, long := "correct", `correct"horse<battery`
	quoted, err := json.Marshal(long)
	require.NoError(t, err)
	for _, secrets := range [][]string{{short, long}, {long, short}} {
		for _, body := range []string{"bad: " + long + "!", `{"message":` + string(quoted) + `}`, "<html>bad: " + html.EscapeString(long) + "!</html>"} {
			e := NewStatusError(400, http.Header{}, http.Header{}, []byte(body), secrets...)
			require.NotContains(t, e.Message, "horse", body)
		}
	}
}
