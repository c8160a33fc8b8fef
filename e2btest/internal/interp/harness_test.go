package interp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// findPython returns the python3 on the PATH, past any script that stands in front
// of it.
var findPython = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	return strings.TrimSpace(string(out)), err
})

// python returns the interpreter that tests use. It skips the test if there is none.
func python(tb testing.TB) string {
	tb.Helper()
	path, err := findPython()
	if err == nil {
		return path
	}
	if os.Getenv("CI") == "true" {
		tb.Fatalf("the tests of kernels need python3: %v", err)
	}
	tb.Skipf("the tests of kernels need python3: %v", err)
	return ""
}

// needNode skips the test if there is no Node.js.
func needNode(tb testing.TB) {
	tb.Helper()
	if nodeJS(tb) == "" {
		tb.Skip("the tests of JavaScript kernels need node")
	}
}

func bash(tb testing.TB) string {
	tb.Helper()
	path, err := exec.LookPath("bash")
	require.NoError(tb, err)
	return path
}

// nodeJS returns the Node.js that tests use, or "" if there is none.
func nodeJS(tb testing.TB) string {
	tb.Helper()
	path, err := exec.LookPath("node")
	if err != nil && os.Getenv("CI") == "true" {
		tb.Fatalf("the tests of JavaScript kernels need node: %v", err)
	}
	return path
}

// service is a Server behind a real listener, since only that one notices clients
// that go away.
type service struct {
	t      testing.TB
	url    string
	dir    string
	server *Server
	client *http.Client
}

func newService(tb testing.TB, change func(*Config)) *service {
	tb.Helper()
	dir, err := filepath.EvalSymlinks(tb.TempDir())
	require.NoError(tb, err)
	cfg := Config{
		Python:    python(tb),
		Node:      nodeJS(tb),
		NodeErr:   "not found",
		Bash:      bash(tb),
		Dir:       dir,
		Environ:   []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LANG=C.UTF-8"},
		KeepAlive: time.Minute,
	}
	if change != nil {
		change(&cfg)
	}
	server := New(cfg)
	web := httptest.NewServer(server)
	transport := &http.Transport{DisableCompression: true}
	tb.Cleanup(func() {
		server.Close()
		transport.CloseIdleConnections()
		web.Close()
	})
	return &service{t: tb, url: web.URL, dir: dir, server: server, client: &http.Client{Transport: transport}}
}

// line is a response line.
type line map[string]any

func (l line) kind() string { s, _ := l["type"].(string); return s }
func (l line) text() string { s, _ := l["text"].(string); return s }

// errCut is how a response without its terminal chunk ends.
var errCut = io.ErrUnexpectedEOF

// response is a response to /execute that is being read.
type response struct {
	t      testing.TB
	body   io.ReadCloser
	r      *bufio.Reader
	cancel context.CancelFunc
}

func (s *service) do(ctx context.Context, method, path string, body any) *http.Response {
	s.t.Helper()
	var r io.Reader
	if text, ok := body.(string); ok {
		r = strings.NewReader(text)
	} else if body != nil {
		data, err := json.Marshal(body)
		require.NoError(s.t, err)
		r = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, r)
	require.NoError(s.t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	require.NoError(s.t, err)
	return resp
}

// call makes a request and returns status and body of the answer.
func (s *service) call(method, path string, body any) (int, string) {
	s.t.Helper()
	resp := s.do(s.t.Context(), method, path, body)
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return resp.StatusCode, string(data)
}

// start sends code for execution. Further members of the request are in more.
func (s *service) start(code string, more ...map[string]any) *response {
	s.t.Helper()
	body := map[string]any{"code": code}
	for _, m := range more {
		maps.Copy(body, m)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	resp := s.do(ctx, http.MethodPost, "/execute", body)
	require.Equal(s.t, http.StatusOK, resp.StatusCode)
	require.NotContains(s.t, resp.Header, "Content-Type")
	return &response{t: s.t, body: resp.Body, r: bufio.NewReader(resp.Body), cancel: cancel}
}

// next returns the next line, or io.EOF, or errCut.
func (r *response) next() (line, error) {
	data, err := r.r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	require.False(r.t, bytes.ContainsFunc(data, func(c rune) bool { return c >= utf8.RuneSelf }), "a response is ASCII")
	var l line
	require.NoError(r.t, json.Unmarshal(data, &l), "%q", data)
	return l, nil
}

// wait reads up to a line of some type and returns it.
func (r *response) wait(kind string) line {
	r.t.Helper()
	for {
		l, err := r.next()
		require.NoError(r.t, err)
		if l.kind() == kind {
			return l
		}
	}
}

// rest reads the rest of the response and closes it.
func (r *response) rest() ([]line, error) {
	defer r.close()
	var lines []line
	for {
		l, err := r.next()
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return lines, nil
		}
		if err != nil {
			return lines, err
		}
		lines = append(lines, l)
	}
}

// close goes away, as a client does whose context is cancelled.
func (r *response) close() {
	r.cancel()
	_ = r.body.Close()
}

// result is what an execution came to.
type result struct {
	count          int
	stdout, stderr string
	results        []line
	errors         []line
	lines          []line
}

// main is the text of the main result.
func (r result) main() string {
	for _, l := range r.results {
		if l["is_main_result"] == true {
			return l.text()
		}
	}
	return ""
}

// run executes code, which must come to a proper end.
func (s *service) run(code string, more ...map[string]any) result {
	s.t.Helper()
	lines, err := s.start(code, more...).rest()
	require.NoError(s.t, err)
	return summary(s.t, lines)
}

func summary(tb testing.TB, lines []line) result {
	tb.Helper()
	require.NotEmpty(tb, lines)
	require.Equal(tb, "end_of_execution", lines[len(lines)-1].kind())
	r := result{lines: lines}
	for _, l := range lines {
		switch l.kind() {
		case "number_of_executions":
			count, ok := l["execution_count"].(float64)
			require.True(tb, ok)
			r.count = int(count)
		case "stdout":
			r.stdout += l.text()
		case "stderr":
			r.stderr += l.text()
		case "result":
			r.results = append(r.results, l)
		case "error":
			r.errors = append(r.errors, l)
		}
	}
	return r
}

// context makes a code context and returns the request member that selects it. Members
// of the request are in more.
func (s *service) context(more ...map[string]any) map[string]any {
	s.t.Helper()
	request := make(map[string]any)
	for _, m := range more {
		maps.Copy(request, m)
	}
	status, body := s.call(http.MethodPost, "/contexts", request)
	require.Equal(s.t, http.StatusOK, status, body)
	var info contextInfo
	require.NoError(s.t, json.Unmarshal([]byte(body), &info))
	return map[string]any{"context_id": info.ID}
}

func decode[T any](tb testing.TB, text string) T {
	tb.Helper()
	var v T
	require.NoError(tb, json.Unmarshal([]byte(text), &v))
	return v
}
