package e2b_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process/processconnect"
)

const (
	fakeID     = "isandbox0000000000001"
	fakeToken  = "0123456789abcdef0123456789abcdef"
	fakeAPIKey = "e2b_00112233445566778899aabbccddeeff00112233"
	fakeEnvd   = "0.6.13"
)

type (
	startRequest  = connect.Request[process.StartRequest]
	startStream   = connect.ServerStream[process.StartResponse]
	attachRequest = connect.Request[process.ConnectRequest]
	attachStream  = connect.ServerStream[process.ConnectResponse]
)

// A fakeSandbox is as much of E2B as the tests of the data plane need: a control
// plane that knows one sandbox and, behind the same address, that sandbox's envd
// and interpreter, told apart by the routing headers as the real proxy does it.
// What they do is up to the functions of the test; a nil one answers as a sandbox
// in which nothing runs.
type fakeSandbox struct {
	processconnect.UnimplementedProcessHandler

	start      func(context.Context, *startRequest, *startStream) error
	attach     func(context.Context, *attachRequest, *attachStream) error
	list       func(context.Context) ([]*process.ProcessInfo, error)
	signal     func(ctx context.Context, pid uint32, sig process.Signal) error
	stdin      func(ctx context.Context, pid uint32, p []byte) error
	closeStdin func(ctx context.Context, pid uint32) error
	files      http.HandlerFunc
	code       http.HandlerFunc // of the interpreter; nil: the port is closed
	envd       http.HandlerFunc // instead of all of the above but code
	info       http.HandlerFunc // instead of the control plane's answer about the sandbox
	version    string           // of envd; "" means fakeEnvd
	tag        atomic.Value     // of the last start that a streamBreak answered

	once sync.Once
	rpc  http.Handler

	mu    sync.Mutex
	state e2b.State // "": the control plane does not know the sandbox
	seen  []seenRequest
	dials atomic.Int64
}

// A seenRequest is a request that arrived, without its body.
type seenRequest struct {
	method, path, query, proto string
	port                       string // "" for the control plane
	header                     http.Header
}

func newFakeSandbox() *fakeSandbox { return &fakeSandbox{state: e2b.StateRunning} }

func (f *fakeSandbox) setState(s e2b.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state = s
}

// requests returns those that arrived with the given path, all for "".
func (f *fakeSandbox) requests(path string) []seenRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []seenRequest
	for _, r := range f.seen {
		if path == "" || r.path == path {
			out = append(out, r)
		}
	}
	return out
}

// forget drops what requests returns.
func (f *fakeSandbox) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = nil
}

func (f *fakeSandbox) infos() int { return len(f.requests("/sandboxes/" + fakeID)) }

func (f *fakeSandbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	port := r.Header.Get("E2b-Sandbox-Port")
	f.mu.Lock()
	f.seen = append(f.seen, seenRequest{r.Method, r.URL.Path, r.URL.RawQuery, r.Proto, port, r.Header.Clone()})
	state := f.state
	f.mu.Unlock()
	switch {
	case port == "" && f.info != nil && r.Method == http.MethodGet:
		f.info(w, r)
	case port == "":
		f.control(w, r)
	case state != e2b.StateRunning:
		proxyError(w, http.StatusBadGateway, "The sandbox was not found")
	case port == "49999" && f.code != nil:
		f.code(w, r)
	case port == "49999":
		writeJSON(w, http.StatusBadGateway, map[string]any{
			"sandboxId": fakeID, "message": "The sandbox is running but port is not open", "port": 49999, "code": 502,
		})
	case f.envd != nil:
		f.envd(w, r)
	case r.URL.Path == "/files" && f.files != nil:
		f.files(w, r)
	default:
		f.serveProcess(w, r)
	}
}

func (f *fakeSandbox) serveProcess(w http.ResponseWriter, r *http.Request) {
	f.once.Do(func() { _, f.rpc = processconnect.NewProcessHandler(f) })
	f.rpc.ServeHTTP(w, r)
}

func (f *fakeSandbox) control(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sandbox := map[string]any{
		"sandboxID": fakeID, "templateID": "base", "envdVersion": f.envdVersion(), "envdAccessToken": fakeToken, "domain": nil,
	}
	const one = "/sandboxes/" + fakeID
	switch route := r.Method + " " + r.URL.Path; {
	case route == "POST /sandboxes":
		writeJSON(w, http.StatusCreated, sandbox)
	case f.state == "":
		writeJSON(w, http.StatusNotFound, map[string]any{"code": 404, "message": `Sandbox "` + fakeID + `" not found`})
	case route == "GET "+one:
		sandbox["state"] = f.state
		writeJSON(w, http.StatusOK, sandbox)
	case route == "POST "+one+"/connect":
		status := http.StatusOK
		if f.state == e2b.StatePaused {
			status = http.StatusCreated
		}
		f.state = e2b.StateRunning
		writeJSON(w, status, sandbox)
	case route == "POST "+one+"/pause":
		f.state = e2b.StatePaused
		w.WriteHeader(http.StatusNoContent)
	case route == "DELETE "+one:
		f.state = ""
		w.WriteHeader(http.StatusNoContent)
	default:
		http.NotFound(w, r)
	}
}

func (f *fakeSandbox) envdVersion() string {
	if f.version == "" {
		return fakeEnvd
	}
	return f.version
}

// Start runs what the test says.
func (f *fakeSandbox) Start(ctx context.Context, r *startRequest, s *startStream) error {
	if f.start == nil {
		return connect.NewError(connect.CodeInternal, errors.New("unexpected Start"))
	}
	return f.start(ctx, r, s)
}

// Connect attaches to what the test says; by default nothing runs.
func (f *fakeSandbox) Connect(ctx context.Context, r *attachRequest, s *attachStream) error {
	if f.attach == nil {
		return noSuchProcess(r.Msg.GetProcess().GetPid())
	}
	return f.attach(ctx, r, s)
}

// List lists what the test says; by default nothing.
func (f *fakeSandbox) List(ctx context.Context, _ *connect.Request[process.ListRequest]) (*connect.Response[process.ListResponse], error) {
	var m process.ListResponse
	if f.list != nil {
		var err error
		if m.Processes, err = f.list(ctx); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(&m), nil
}

// SendSignal does what the test says; by default nothing runs.
func (f *fakeSandbox) SendSignal(ctx context.Context, r *connect.Request[process.SendSignalRequest]) (*connect.Response[process.SendSignalResponse], error) {
	pid := r.Msg.GetProcess().GetPid()
	if f.signal == nil {
		return nil, noSuchProcess(pid)
	}
	if err := f.signal(ctx, pid, r.Msg.GetSignal()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&process.SendSignalResponse{}), nil
}

// SendInput does what the test says; by default nothing runs.
func (f *fakeSandbox) SendInput(ctx context.Context, r *connect.Request[process.SendInputRequest]) (*connect.Response[process.SendInputResponse], error) {
	pid := r.Msg.GetProcess().GetPid()
	if f.stdin == nil {
		return nil, noSuchProcess(pid)
	}
	if err := f.stdin(ctx, pid, r.Msg.GetInput().GetStdin()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&process.SendInputResponse{}), nil
}

// CloseStdin does what the test says; by default nothing runs.
func (f *fakeSandbox) CloseStdin(ctx context.Context, r *connect.Request[process.CloseStdinRequest]) (*connect.Response[process.CloseStdinResponse], error) {
	pid := r.Msg.GetProcess().GetPid()
	if f.closeStdin == nil {
		return nil, noSuchProcess(pid)
	}
	if err := f.closeStdin(ctx, pid); err != nil {
		return nil, err
	}
	return connect.NewResponse(&process.CloseStdinResponse{}), nil
}

func noSuchProcess(pid uint32) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("process with pid %d not found", pid))
}

// The events of a process.

func evStart(pid uint32) *process.ProcessEvent {
	return &process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: pid}}}
}

func evOut(s string) *process.ProcessEvent {
	d := &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte(s)}}
	return &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: d}}
}

func evErr(s string) *process.ProcessEvent {
	d := &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stderr{Stderr: []byte(s)}}
	return &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: d}}
}

func evKeepalive() *process.ProcessEvent {
	return &process.ProcessEvent{Event: &process.ProcessEvent_Keepalive{Keepalive: &process.ProcessEvent_KeepAlive{}}}
}

func evExit(code int32) *process.ProcessEvent {
	e := &process.ProcessEvent_EndEvent{ExitCode: code, Exited: true, Status: fmt.Sprintf("exit status %d", code)}
	return &process.ProcessEvent{Event: &process.ProcessEvent_End{End: e}}
}

func evSignal(name string) *process.ProcessEvent {
	e := &process.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: " + name}
	return &process.ProcessEvent{Event: &process.ProcessEvent_End{End: e}}
}

// send sends events of a command that was started.
func send(s *startStream, events ...*process.ProcessEvent) error {
	for _, e := range events {
		if err := s.Send(&process.StartResponse{Event: e}); err != nil {
			return err
		}
	}
	return nil
}

// sendTo sends events to one that attached.
func sendTo(s *attachStream, events ...*process.ProcessEvent) error {
	for _, e := range events {
		if err := s.Send(&process.ConnectResponse{Event: e}); err != nil {
			return err
		}
	}
	return nil
}

// startUnheard makes f start commands whose start event never comes, and returns what
// tells the tag of the last one.
func (f *fakeSandbox) startUnheard() (tag func() string) {
	var last atomic.Value
	f.start = func(ctx context.Context, r *startRequest, _ *startStream) error {
		last.Store(r.Msg.GetTag())
		<-ctx.Done()
		return ctx.Err()
	}
	return func() string { return fmt.Sprint(last.Load()) }
}

// script is a start that sends events and ends.
func script(events ...*process.ProcessEvent) func(context.Context, *startRequest, *startStream) error {
	return func(_ context.Context, _ *startRequest, s *startStream) error { return send(s, events...) }
}

// runs is a start that sends events and then goes on until its client is gone.
func runs(events ...*process.ProcessEvent) func(context.Context, *startRequest, *startStream) error {
	return func(ctx context.Context, _ *startRequest, s *startStream) error {
		if err := send(s, events...); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

// How a test reaches its fakeSandbox.

// pipe returns a client that reaches f over connections in memory, which work
// under synctest too.
func (f *fakeSandbox) pipe(t testing.TB, set ...func(*e2b.ClientOptions)) *e2b.Client {
	t.Helper()
	ln := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	srv := &http.Server{Handler: f}
	var served sync.WaitGroup
	served.Go(func() { _ = srv.Serve(ln) })
	c := f.client(t, "http://fake.test", &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		f.dials.Add(1)
		return ln.dial(ctx)
	}}, set...)
	t.Cleanup(func() {
		c.CloseIdleConnections()
		_ = srv.Close()
		served.Wait()
	})
	return c
}

// loopback returns a client that reaches f over TCP.
func (f *fakeSandbox) loopback(t testing.TB, set ...func(*e2b.ClientOptions)) *e2b.Client {
	t.Helper()
	srv := httptest.NewUnstartedServer(f)
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			f.dials.Add(1)
		}
	}
	srv.Start()
	c := f.client(t, srv.URL, &http.Transport{}, set...)
	t.Cleanup(func() {
		c.CloseIdleConnections()
		srv.Close()
	})
	return c
}

func (f *fakeSandbox) client(t testing.TB, url string, rt http.RoundTripper, set ...func(*e2b.ClientOptions)) *e2b.Client {
	t.Helper()
	o := e2b.ClientOptions{APIKey: fakeAPIKey, APIURL: url, SandboxURL: url, Transport: rt}
	for _, s := range set {
		s(&o)
	}
	c, err := e2b.NewClient(&o)
	require.NoError(t, err)
	return c
}

// handle returns a handle for the sandbox, without a request.
func (f *fakeSandbox) handle(t testing.TB, c *e2b.Client) *e2b.Sandbox {
	t.Helper()
	s, err := c.FromRecord(e2b.Record{SandboxID: fakeID, EnvdVersion: f.envdVersion(), EnvdAccessToken: e2b.NewToken(fakeToken)})
	require.NoError(t, err)
	return s
}

// inMemory is handle over pipe.
func (f *fakeSandbox) inMemory(t testing.TB, set ...func(*e2b.ClientOptions)) *e2b.Sandbox {
	t.Helper()
	return f.handle(t, f.pipe(t, set...))
}

// onLoopback is handle over loopback.
func (f *fakeSandbox) onLoopback(t testing.TB, set ...func(*e2b.ClientOptions)) *e2b.Sandbox {
	t.Helper()
	return f.handle(t, f.loopback(t, set...))
}

// A pipeListener accepts one end of a net.Pipe per dial.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.done:
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: errors.New("connection refused")}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept returns the other end of the next dial.
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr is there for the interface.
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// Raw answers.

func writeJSON(w http.ResponseWriter, status int, body any) {
	b, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

func proxyError(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, map[string]any{"sandboxId": fakeID, "message": message, "code": status})
}

// abort ends a connection in the middle of an answer.
func abort(w http.ResponseWriter) {
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// reset ends a connection with a TCP RST.
func reset(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// drain reads a request's body to its end, as a server must that wants to
// notice when its client goes away.
func drain(r *http.Request) []byte {
	b, _ := io.ReadAll(r.Body)
	return b
}
