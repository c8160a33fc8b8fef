//go:build linux || darwin

package envd

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/spawn"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/filesystem/filesystemconnect"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process/processconnect"
)

func TestMain(m *testing.M) {
	syscall.Umask(0o022)
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what should happen at once.
const patience = 30 * time.Second

// A world is a server in plain mode, reached over a real connection.
type world struct {
	srv   *Server
	url   string
	http  *http.Client
	root  string
	home  string
	procs processconnect.ProcessClient
	files filesystemconnect.FilesystemClient
}

func newWorld(t testing.TB, edit ...func(*Config)) *world {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	home := filepath.Join(root, "home", "user")
	require.NoError(t, os.MkdirAll(home, 0o755))
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	cfg := Config{
		Root: root,
		Users: []User{
			{Name: "root", Home: filepath.Join(root, "root"), UID: uid, GID: gid},
			{Name: "user", Home: home, UID: uid, GID: gid},
		},
		DefaultUser: "user",
		Path:        "/usr/local/bin:/usr/bin:/bin",
		Start:       spawn.Start,
		Wait:        spawn.Wait,
	}
	for _, e := range edit {
		e(&cfg)
	}
	srv := New(cfg)
	web := httptest.NewServer(srv)
	transport := &http.Transport{DisableCompression: true}
	client := &http.Client{Transport: transport}
	t.Cleanup(func() {
		srv.Close()
		transport.CloseIdleConnections()
		web.Close()
	})
	// Frames are compressed by default, which only takes time here.
	plain := connect.WithAcceptCompression("gzip", nil, nil)
	return &world{
		srv:   srv,
		url:   web.URL,
		http:  client,
		root:  root,
		home:  home,
		procs: processconnect.NewProcessClient(client, web.URL, plain),
		files: filesystemconnect.NewFilesystemClient(client, web.URL, plain),
	}
}

// host makes the server one of the whole system, as in namespaces. The files of
// the test are where they are otherwise.
func host(c *Config) { c.Root = "" }

// withToken makes envd want a token.
func withToken(token string) func(*Config) {
	return func(c *Config) { c.AccessToken = token }
}

// do sends a request and returns the answer with its whole body.
func (w *world) do(t testing.TB, method, path string, body io.Reader, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, w.url+path, body)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := w.http.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res, string(text)
}

// put uploads a file.
func (w *world) put(t testing.TB, path, content string, headers ...string) {
	t.Helper()
	headers = append([]string{"Content-Type", "application/octet-stream"}, headers...)
	res, body := w.do(t, http.MethodPost, "/files?path="+queryEscape(path), strings.NewReader(content), headers...)
	require.Equal(t, http.StatusOK, res.StatusCode, body)
}

// shell is a command for the shell without standard input.
func shell(script string) *process.StartRequest {
	return &process.StartRequest{
		Process: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", script}},
		Stdin:   new(false),
	}
}

// A reading is a stream of process events that is being read.
type reading struct {
	t      testing.TB
	cancel context.CancelFunc
	next   func() bool
	event  func() *process.ProcessEvent
	err    func() error
	pid    uint32
	out    bytes.Buffer // stdout and terminal
	errs   bytes.Buffer // stderr
	alive  int          // keepalives
	end    *process.ProcessEvent_EndEvent
}

// start starts a command and returns after the start event.
func (w *world) start(t testing.TB, msg *process.StartRequest, headers ...string) *reading {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	// The deadline of the test is not to become one of the command.
	ctx = withoutDeadline(ctx)
	req := connect.NewRequest(msg)
	for i := 0; i < len(headers); i += 2 {
		req.Header().Set(headers[i], headers[i+1])
	}
	stream, err := w.procs.Start(ctx, req)
	require.NoError(t, err)
	t.Cleanup(func() { stream.Close() })
	r := &reading{
		t: t, cancel: cancel, next: stream.Receive, err: stream.Err,
		event: func() *process.ProcessEvent { return stream.Msg().GetEvent() },
	}
	require.True(t, r.read(), "no start event: %v", stream.Err())
	require.NotZero(t, r.pid)
	return r
}

// connect subscribes to a command that runs or ran.
func (w *world) connect(t testing.TB, pid uint32) *reading {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	stream, err := w.procs.Connect(withoutDeadline(ctx), connect.NewRequest(&process.ConnectRequest{Process: byPID(pid)}))
	require.NoError(t, err)
	t.Cleanup(func() { stream.Close() })
	r := &reading{
		t: t, cancel: cancel, next: stream.Receive, err: stream.Err,
		event: func() *process.ProcessEvent { return stream.Msg().GetEvent() },
	}
	require.True(t, r.read(), "no start event: %v", stream.Err())
	require.Equal(t, pid, r.pid)
	return r
}

func byPID(pid uint32) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: pid}}
}

func byTag(tag string) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Tag{Tag: tag}}
}

// noDeadline is a context that ends with another one but tells nobody when.
type noDeadline struct{ context.Context }

func (noDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }

func withoutDeadline(ctx context.Context) context.Context { return noDeadline{ctx} }

// read reads one event.
func (r *reading) read() bool {
	if !r.next() {
		return false
	}
	switch ev := r.event().GetEvent().(type) {
	case *process.ProcessEvent_Start:
		r.pid = ev.Start.GetPid()
	case *process.ProcessEvent_Data:
		r.out.Write(ev.Data.GetStdout())
		r.out.Write(ev.Data.GetPty())
		r.errs.Write(ev.Data.GetStderr())
	case *process.ProcessEvent_Keepalive:
		r.alive++
	case *process.ProcessEvent_End:
		r.end = ev.End
	}
	return true
}

// until reads until the output contains text.
func (r *reading) until(text string) {
	r.t.Helper()
	for !strings.Contains(r.out.String(), text) {
		require.True(r.t, r.read(), "stream ended: %v, output %q", r.err(), r.out.String())
	}
}

// rest reads to the end of the stream and returns how it ended.
func (r *reading) rest() error {
	for r.read() {
	}
	return r.err()
}

// finished reads to the end event and the good end of the stream.
func (r *reading) finished() *process.ProcessEvent_EndEvent {
	r.t.Helper()
	require.NoError(r.t, r.rest())
	require.NotNil(r.t, r.end, "no end event")
	return r.end
}

// run runs a shell script to its end.
func (w *world) run(t testing.TB, script string) *reading {
	t.Helper()
	r := w.start(t, shell(script))
	r.finished()
	return r
}

// eventually waits until ok says so.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(patience)
	defer late.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late.C:
			require.FailNow(t, "timeout", "waiting for: %s", what)
		}
	}
}

// alive says whether the process exists and is no zombie that nobody waits for.
func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func (w *world) sendInput(t testing.TB, pid uint32, text string) {
	t.Helper()
	_, err := w.procs.SendInput(t.Context(), connect.NewRequest(&process.SendInputRequest{
		Process: byPID(pid),
		Input:   &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte(text)}},
	}))
	require.NoError(t, err)
}

func (w *world) signal(t testing.TB, pid uint32, sig process.Signal) {
	t.Helper()
	_, err := w.procs.SendSignal(t.Context(), connect.NewRequest(&process.SendSignalRequest{Process: byPID(pid), Signal: sig}))
	require.NoError(t, err)
}

func (w *world) listed(t testing.TB) []uint32 {
	t.Helper()
	res, err := w.procs.List(t.Context(), connect.NewRequest(&process.ListRequest{}))
	require.NoError(t, err)
	var pids []uint32
	for _, p := range res.Msg.GetProcesses() {
		pids = append(pids, p.GetPid())
	}
	return pids
}

func basic(user string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"))
}

// requireCode checks code and message of an RPC error.
func requireCode(t testing.TB, code connect.Code, message string, err error) {
	t.Helper()
	var e *connect.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, code, e.Code(), "%v", err)
	require.Equal(t, message, e.Message())
}

func queryEscape(s string) string { return url.QueryEscape(s) }
