package e2b_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
)

// A recording is a recorded answer of envd or of the interpreter.
type recording struct {
	status int
	header http.Header
	body   []byte
	whole  bool
}

// readRecording reads a file of testdata, named without its extension.
func readRecording(t testing.TB, name string) recording {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", filepath.FromSlash(name)+".json"))
	require.NoError(t, err)
	var file struct {
		Response struct {
			Status  int               `json:"status"`
			Headers map[string]string `json:"headers"`
			Body    json.RawMessage   `json:"body"`
			Base64  string            `json:"body_base64"`
		} `json:"response"`
		End string `json:"end"`
	}
	require.NoError(t, json.Unmarshal(b, &file))
	r := recording{status: file.Response.Status, header: http.Header{}, whole: file.End == "" || file.End == "complete"}
	for k, v := range file.Response.Headers {
		r.header.Set(k, v)
	}
	var lines []string
	var text string
	switch {
	case file.Response.Base64 != "":
		r.body, err = base64.StdEncoding.DecodeString(file.Response.Base64)
		require.NoError(t, err)
	case json.Unmarshal(file.Response.Body, &lines) == nil:
		r.body = []byte(strings.Join(lines, "\n"))
		if r.status == http.StatusOK && len(lines) > 0 {
			r.body = append(r.body, '\n')
		}
	case json.Unmarshal(file.Response.Body, &text) == nil:
		r.body = []byte(text)
	}
	return r
}

// recordings returns the names of the files of testdata that match a pattern.
func recordings(t testing.TB, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", filepath.FromSlash(pattern)+".json"))
	require.NoError(t, err)
	require.NotEmpty(t, files, pattern)
	for i, f := range files {
		rel, err := filepath.Rel("testdata", f)
		require.NoError(t, err)
		files[i] = strings.TrimSuffix(filepath.ToSlash(rel), ".json")
	}
	return files
}

// A replay answers requests by their path, without a connection, so that answers
// can be cut in thousands of places.
type replay struct {
	answers map[string]func() *http.Response
	paths   []string // of the requests, in order; for one request at a time
}

func (r *replay) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	r.paths = append(r.paths, req.URL.Path)
	answer := r.answers[req.URL.Path]
	if answer == nil {
		return nil, fmt.Errorf("unexpected request of %s", req.URL.Path)
	}
	resp := answer()
	resp.Request = req
	return resp, nil
}

// answer makes an answer whose body ends with end instead of io.EOF if that is
// not nil.
func answer(status int, header http.Header, body []byte, end error) *http.Response {
	if end == nil {
		end = io.EOF
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header.Clone(), ContentLength: -1, Body: &endingBody{bytes.NewReader(body), end},
	}
}

type endingBody struct {
	r   *bytes.Reader
	end error
}

func (b *endingBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err == io.EOF {
		err = b.end
	}
	return n, err
}

func (b *endingBody) Close() error { return nil }

const (
	startPath   = "/process.Process/Start"
	attachPath  = "/process.Process/Connect"
	listPath    = "/process.Process/List"
	infoPath    = "/sandboxes/" + fakeID
	executePath = "/execute"
)

// emptySandbox answers for a sandbox in the given state in which nothing runs.
func emptySandbox(state e2b.State, codec string) *replay {
	none := []byte{}
	if codec == "json" {
		none = []byte("{}")
	}
	stream := http.Header{"Content-Type": {"application/connect+" + codec}}
	return &replay{answers: map[string]func() *http.Response{
		infoPath: func() *http.Response {
			return answer(200, http.Header{"Content-Type": {"application/json"}}, fmt.Appendf(nil, `{"sandboxID":%q,"state":%q}`, fakeID, state), nil)
		},
		listPath: func() *http.Response {
			return answer(200, http.Header{"Content-Type": {"application/" + codec}}, none, nil)
		},
		attachPath: func() *http.Response {
			return answer(200, stream, frame(2, []byte(`{"error":{"code":"not_found","message":"process with pid 1 not found"}}`)), nil)
		},
	}}
}

func (r *replay) handle(t testing.TB, codec string) *e2b.Sandbox {
	t.Helper()
	f := newFakeSandbox()
	return f.handle(t, f.client(t, "http://fake.test", r, func(o *e2b.ClientOptions) { o.JSON = codec == "json" }))
}

// codecOf is the codec of a recorded stream.
func codecOf(name string) string { return name[strings.LastIndexByte(name, '_')+1:] }

// The recorded streams of commands, whole.
func TestRecordedCommands(t *testing.T) {
	timedOut := func(t *testing.T, err error) { requireDataKinds(t, err, e2b.ErrCommandTimeout) }
	refused := func(t *testing.T, err error) { requireDataKinds(t, err, e2b.ErrInvalidArgument) }
	noUser := func(t *testing.T, err error) { requireDataKinds(t, err, e2b.ErrUnauthenticated) }
	exits := func(code int) func(*testing.T, error) {
		return func(t *testing.T, err error) { requireExit(t, err, code) }
	}
	want := map[string]struct {
		result *e2b.Result
		err    func(*testing.T, error)
	}{
		"background_child_proto":    {&e2b.Result{PID: 8281, Stdout: []byte("parent\n")}, nil},
		"bad_cwd_proto":             {nil, refused},
		"bad_timeout_json":          {nil, refused},
		"command_not_found_proto":   {&e2b.Result{PID: 8266, ExitCode: 127, Stderr: []byte("/usr/bin/nice: 'nosuchcmd': No such file or directory\n")}, exits(127)},
		"cwd_is_file_json":          {nil, refused},
		"deadline_proto":            {&e2b.Result{PID: 8269, ExitCode: -1, Stdout: []byte("begin\n")}, timedOut},
		"envs_cwd_user_proto":       {&e2b.Result{PID: 8267, Stdout: []byte("hi /tmp user\n")}, nil},
		"exit0_proto":               {&e2b.Result{PID: 8251}, nil},
		"keepalive_proto":           {&e2b.Result{PID: 8271, Stdout: []byte("done\n")}, nil},
		"pty_proto":                 {&e2b.Result{PID: 8277, ExitCode: 2, Stdout: []byte("30 100\r\n")}, exits(2)},
		"sigkill_proto":             {&e2b.Result{PID: 8262, ExitCode: -1, Signal: "killed"}, exits(-1)},
		"sigterm_json":              {&e2b.Result{PID: 8264, ExitCode: -1, Signal: "terminated"}, exits(-1)},
		"stdout_stderr_exit3_json":  {&e2b.Result{PID: 8258, ExitCode: 3, Stdout: []byte("out\n"), Stderr: []byte("err\n")}, exits(3)},
		"stdout_stderr_exit3_proto": {&e2b.Result{PID: 8252, ExitCode: 3, Stdout: []byte("out\n"), Stderr: []byte("err\n")}, exits(3)},
		"unknown_user_json":         {nil, noUser},
		"unknown_user_proto":        {nil, noUser},
		"utf8_split_proto":          {&e2b.Result{PID: 8274, Stdout: []byte("hé!")}, nil},
	}
	for _, name := range recordings(t, "envd/process_start_*") {
		short := strings.TrimPrefix(name, "envd/process_start_")
		t.Run(short, func(t *testing.T) {
			w, ok := want[short]
			require.True(t, ok, "a recording that this test does not know")
			rec, codec := readRecording(t, name), codecOf(name)
			r := emptySandbox(e2b.StateRunning, codec)
			r.answers[startPath] = func() *http.Response { return answer(rec.status, rec.header, rec.body, nil) }
			res, err := r.handle(t, codec).Commands.Run(t.Context(), "x", nil)
			require.Equal(t, w.result, res)
			if w.err == nil {
				require.NoError(t, err)
			} else {
				w.err(t, err)
			}
			require.Equal(t, []string{startPath}, r.paths)
		})
	}
}

// The recorded streams of attaching.
func TestRecordedAttach(t *testing.T) {
	want := map[string]struct {
		out  string
		code int
		err  error
	}{
		"ended_proto":        {"", 7, nil},
		"killed_proto":       {"", -1, nil},
		"running_proto":      {"tick\n", 7, nil},
		"not_found_proto":    {err: e2b.ErrProcessNotFound},
		"tag_not_found_json": {err: e2b.ErrProcessNotFound},
		"no_selector_json":   {err: e2b.ErrNotSupported},
	}
	for _, name := range recordings(t, "envd/process_connect_*") {
		short := strings.TrimPrefix(name, "envd/process_connect_")
		t.Run(short, func(t *testing.T) {
			w, ok := want[short]
			require.True(t, ok, "a recording that this test does not know")
			rec, codec := readRecording(t, name), codecOf(name)
			r := emptySandbox(e2b.StateRunning, codec)
			r.answers[attachPath] = func() *http.Response { return answer(rec.status, rec.header, rec.body, nil) }
			var out bytes.Buffer
			p, err := r.handle(t, codec).Commands.Attach(t.Context(), 5, &e2b.AttachOptions{Stdout: &out})
			if w.err != nil {
				requireDataKinds(t, err, w.err)
				return
			}
			require.NoError(t, err)
			_, err = p.Wait(t.Context())
			requireExit(t, err, w.code)
			require.Equal(t, w.out, out.String())
			require.Equal(t, []string{attachPath}, r.paths)
		})
	}
}

// The recorded answers of the other calls about processes.
func TestRecordedProcessCalls(t *testing.T) {
	for name, tt := range map[string]struct {
		path string
		call func(context.Context, *e2b.Commands) (any, error)
		want any
		kind error
	}{
		"auth_rpc_401_stream_proto": {startPath, func(ctx context.Context, c *e2b.Commands) (any, error) { return c.Start(ctx, "x", nil) }, nil, e2b.ErrUnauthenticated},
		"process_list_empty_proto":  {listPath, func(ctx context.Context, c *e2b.Commands) (any, error) { return c.List(ctx) }, []e2b.ProcessInfo{}, nil},
		"process_list_proto": {
			listPath, func(ctx context.Context, c *e2b.Commands) (any, error) { return c.List(ctx) },
			[]e2b.ProcessInfo{{PID: 8292, Tag: "cat-1", Cmd: "cat", Env: map[string]string{"K": "V"}, Dir: "/tmp"}},
			nil,
		},
		"process_list_json": {
			listPath, func(ctx context.Context, c *e2b.Commands) (any, error) { return c.List(ctx) },
			[]e2b.ProcessInfo{{PID: 8292, Tag: "cat-1", Cmd: "cat", Env: map[string]string{"K": "V"}, Dir: "/tmp"}},
			nil,
		},
		"process_send_signal_proto":            {"/process.Process/SendSignal", func(ctx context.Context, c *e2b.Commands) (any, error) { return c.Kill(ctx, 5) }, true, nil},
		"process_send_signal_not_found_proto":  {"/process.Process/SendSignal", func(ctx context.Context, c *e2b.Commands) (any, error) { return c.Kill(ctx, 5) }, false, nil},
		"process_send_signal_unspecified_json": {"/process.Process/SendSignal", func(ctx context.Context, c *e2b.Commands) (any, error) { return nil, c.Signal(ctx, 5, e2b.SIGTERM) }, nil, e2b.ErrNotSupported},
	} {
		t.Run(name, func(t *testing.T) {
			rec, codec := readRecording(t, "envd/"+name), codecOf(name)
			r := emptySandbox(e2b.StateRunning, codec)
			r.answers[tt.path] = func() *http.Response { return answer(rec.status, rec.header, rec.body, nil) }
			got, err := tt.call(t.Context(), r.handle(t, codec).Commands)
			if tt.kind != nil {
				requireDataKinds(t, err, tt.kind)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

// A cutStream is what a client may know of a stream of which only so many bytes
// have arrived.
type cutStream struct {
	started, ended bool // the events are there
	closed         bool // the end frame is there
	out, err       string
	code           int32
}

// knownAt reads the first n bytes of a stream with the generated code alone.
func knownAt(t testing.TB, body []byte, n int, codec string) cutStream {
	t.Helper()
	var k cutStream
	for rest := body[:n]; len(rest) >= 5; {
		size := int(binary.BigEndian.Uint32(rest[1:]))
		if len(rest) < 5+size {
			break
		}
		flags, payload := rest[0], rest[5:5+size]
		rest = rest[5+size:]
		if flags&2 != 0 {
			k.closed = true
			continue
		}
		var m process.StartResponse
		var err error
		if codec == "json" {
			err = protojson.Unmarshal(payload, &m)
		} else {
			err = proto.Unmarshal(payload, &m)
		}
		require.NoError(t, err)
		e := m.GetEvent()
		k.started = k.started || e.GetStart() != nil
		k.out += string(e.GetData().GetStdout()) + string(e.GetData().GetPty())
		k.err += string(e.GetData().GetStderr())
		if end := e.GetEnd(); end != nil {
			k.ended, k.code = true, end.GetExitCode()
		}
	}
	return k
}

// Every recorded stream of a command, cut after every byte, with and without an
// error of the connection: no cut is taken for success, none hangs, what arrived
// is there, the command is started once, and the control plane is asked why.
func TestCommandStreamsCutEverywhere(t *testing.T) {
	t.Parallel()
	for _, name := range recordings(t, "envd/process_start_*") {
		rec, codec := readRecording(t, name), codecOf(name)
		t.Run(strings.TrimPrefix(name, "envd/process_start_"), func(t *testing.T) {
			where := 0
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("cut after %d of %d bytes", where, len(rec.body))
				}
			})
			for _, state := range []e2b.State{e2b.StateRunning, e2b.StatePaused} {
				r := emptySandbox(state, codec)
				sbx := r.handle(t, codec)
				for n := range rec.body {
					where = n
					end := []error{io.ErrUnexpectedEOF, nil}[n%2]
					if state == e2b.StatePaused {
						end = []error{io.ErrUnexpectedEOF, nil}[(n+1)%2]
					}
					r.paths = nil
					r.answers[startPath] = func() *http.Response { return answer(200, rec.header, rec.body[:n], end) }
					res, err := sbx.Commands.Run(t.Context(), "x", nil)
					requireCut(t, knownAt(t, rec.body, n, codec), state, r.paths, res, err)
				}
			}
		})
	}
}

// requireCut checks the outcome of Run for a stream that was cut before its end
// frame.
func requireCut(t *testing.T, k cutStream, state e2b.State, paths []string, res *e2b.Result, err error) {
	t.Helper()
	switch {
	case k.ended:
		require.Equal(t, []string{startPath}, paths)
		require.Equal(t, int(k.code), res.ExitCode)
		require.False(t, res.Incomplete)
		if k.code != 0 {
			requireExit(t, err, int(k.code))
		} else {
			require.NoError(t, err)
		}
	case state == e2b.StatePaused:
		require.ErrorIs(t, err, e2b.ErrSandboxNotRunning)
		require.NotErrorIs(t, err, e2b.ErrStreamInterrupted)
		api, ok := errors.AsType[*e2b.APIError](err)
		require.True(t, ok)
		require.Equal(t, e2b.StatePaused, api.State)
		require.Equal(t, []string{startPath, infoPath}, paths)
	default:
		require.ErrorIs(t, err, e2b.ErrStreamInterrupted)
		require.NotErrorIs(t, err, e2b.ErrSandboxNotRunning)
		if k.started {
			require.Equal(t, []string{startPath, infoPath, attachPath}, paths)
		} else {
			require.Equal(t, []string{startPath, infoPath, listPath}, paths)
		}
	}
	require.Equal(t, k.started, res != nil)
	if res != nil {
		require.Equal(t, k.out, string(res.Stdout))
		require.Equal(t, k.err, string(res.Stderr))
		if !k.ended {
			require.Equal(t, -1, res.ExitCode)
			require.True(t, res.Incomplete)
		}
	}
}

// A break is a way in which a stream can end.
type streamBreak struct {
	started bool // after the start event and the output "begin"
	end     func(http.ResponseWriter, *http.Request)
}

// Nothing that can be in the way of a stream is taken for its end.
var streamBreaks = map[string]streamBreak{
	"unexpected EOF":        {true, func(w http.ResponseWriter, _ *http.Request) { abort(w) }},
	"RST":                   {true, func(w http.ResponseWriter, _ *http.Request) { flush(w); reset(w) }},
	"end frame missing":     {true, func(http.ResponseWriter, *http.Request) {}},
	"end frame without end": {true, func(w http.ResponseWriter, _ *http.Request) { write(w, frame(2, []byte("{}"))) }},
	"end frame with an error": {true, func(w http.ResponseWriter, _ *http.Request) {
		write(w, frame(2, []byte(`{"error":{"code":"unavailable","message":"envd stops\nfor a while"}}`)))
	}},
	"end frame garbage": {true, func(w http.ResponseWriter, _ *http.Request) { write(w, frame(2, []byte(`<html>`))) }},
	"garbage event":     {true, func(w http.ResponseWriter, _ *http.Request) { write(w, frame(0, []byte{0xff, 0xff, 0xff})) }},
	"garbage text":      {true, func(w http.ResponseWriter, _ *http.Request) { write(w, []byte("upstream connect error or disconnect")) }},
	"garbage flags":     {true, func(w http.ResponseWriter, _ *http.Request) { write(w, frame(0x40, []byte("x"))) }},
	"compressed":        {true, func(w http.ResponseWriter, _ *http.Request) { write(w, frame(1, []byte("x"))) }},
	"2 GiB prefix":      {true, func(w http.ResponseWriter, _ *http.Request) { write(w, []byte{0, 0x80, 0, 0, 0}); abort(w) }},
	"4 GiB prefix":      {true, func(w http.ResponseWriter, _ *http.Request) { write(w, []byte{0, 0xff, 0xff, 0xff, 0xff}) }},
	"cut in an event": {true, func(w http.ResponseWriter, _ *http.Request) {
		write(w, frame(0, marshal(&process.StartResponse{Event: evOut("half")}))[:9])
		abort(w)
	}},
	"cut in a prefix": {true, func(w http.ResponseWriter, _ *http.Request) { write(w, []byte{0, 0}); abort(w) }},
	"no first event":  {false, func(http.ResponseWriter, *http.Request) {}},
	"empty stream":    {false, func(w http.ResponseWriter, _ *http.Request) { write(w, frame(2, []byte("{}"))) }},
	"cut at first":    {false, func(w http.ResponseWriter, _ *http.Request) { abort(w) }},
	"before headers":  {false, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	"RST at once":     {false, func(w http.ResponseWriter, _ *http.Request) { reset(w) }},
	"another page": {false, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		write(w, []byte("<html>login</html>"))
	}},
	"end before a begin": {false, func(w http.ResponseWriter, _ *http.Request) {
		write(w, frame(0, marshal(&process.StartResponse{Event: evExit(0)})))
	}},
}

func write(w http.ResponseWriter, b []byte) { _, _ = w.Write(b) }

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

// serve is the handler of Start for a break; the rest is that of f.
func (b streamBreak) serve(f *fakeSandbox) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != startPath {
			f.serveProcess(w, r)
			return
		}
		var start process.StartRequest
		if body := drain(r); len(body) > 5 && proto.Unmarshal(body[5:], &start) == nil {
			f.tag.Store(start.GetTag())
		}
		w.Header().Set("Content-Type", "application/connect+proto")
		if b.started {
			write(w, frame(0, marshal(&process.StartResponse{Event: evStart(77)})))
			write(w, frame(0, marshal(&process.StartResponse{Event: evOut("begin\n")})))
		}
		b.end(w, r)
	}
}

// taggedList lists a process with the tag of the last start, besides others.
func (f *fakeSandbox) taggedList(pid uint32) func(context.Context) ([]*process.ProcessInfo, error) {
	return func(context.Context) ([]*process.ProcessInfo, error) {
		tag := fmt.Sprint(f.tag.Load())
		return []*process.ProcessInfo{{Pid: 1}, {Pid: pid, Tag: &tag}}, nil
	}
}

func (f *fakeSandbox) paths() []string {
	var out []string
	for _, r := range f.requests("") {
		out = append(out, r.path)
	}
	return out
}

// A command whose stream breaks while the sandbox runs is attached to once, by
// its PID, and never started again.
func TestBrokenStreamIsAttachedToOnce(t *testing.T) {
	for name, b := range streamBreaks {
		for outcome, after := range map[string]struct {
			events []*process.ProcessEvent
			code   int
			signal string
		}{
			"ends with 0": {[]*process.ProcessEvent{evStart(77), evOut("end\n"), evExit(0)}, 0, ""},
			"fails":       {[]*process.ProcessEvent{evStart(77), evErr("bad\n"), evExit(3)}, 3, ""},
			"killed":      {[]*process.ProcessEvent{evStart(77), evSignal("killed")}, -1, "killed"},
			"breaks too":  {[]*process.ProcessEvent{evStart(77), evOut("more\n")}, -1, ""},
		} {
			t.Run(name+"/"+outcome, func(t *testing.T) {
				f := newFakeSandbox()
				f.envd = b.serve(f)
				f.list = f.taggedList(77)
				f.attach = func(_ context.Context, r *attachRequest, s *attachStream) error {
					if r.Msg.GetProcess().GetPid() != 77 {
						return noSuchProcess(r.Msg.GetProcess().GetPid())
					}
					return sendTo(s, after.events...)
				}
				sbx := f.onLoopback(t)
				_, err := sbx.Commands.List(t.Context()) // so that the connection is not the first
				require.NoError(t, err)
				f.forget()
				res, err := sbx.Commands.Run(t.Context(), "x", nil)
				want := []string{startPath, infoPath, attachPath}
				if !b.started {
					want = []string{startPath, infoPath, listPath, attachPath}
				}
				require.Equal(t, want, f.paths())
				requireDataKinds(t, err, e2b.ErrStreamInterrupted)
				require.NotNil(t, res)
				require.True(t, res.Incomplete)
				require.Equal(t, after.code, res.ExitCode)
				require.Equal(t, after.signal, res.Signal)
				if exit, ok := errors.AsType[*e2b.ExitError](err); ok {
					require.Equal(t, after.code, exit.ExitCode)
					require.Equal(t, 77, exit.PID)
				} else {
					require.True(t, outcome == "ends with 0" || outcome == "breaks too")
				}
				if b.started {
					require.True(t, strings.HasPrefix(string(res.Stdout), "begin\n"), "%q", res.Stdout)
				}
				if outcome == "ends with 0" {
					require.True(t, strings.HasSuffix(string(res.Stdout), "end\n"), "%q", res.Stdout)
				}
			})
		}
	}
}

// Whether the sandbox runs is asked of the control plane, never of envd, and if
// it does not run, envd is left alone.
func TestBrokenStreamOfSandboxThatDoesNotRun(t *testing.T) {
	for name, b := range streamBreaks {
		for _, state := range []e2b.State{e2b.StatePaused, "", "snapshotting"} {
			t.Run(fmt.Sprintf("%s/%q", name, state), func(t *testing.T) {
				f := newFakeSandbox()
				f.envd = b.serve(f)
				start := f.envd
				f.envd = func(w http.ResponseWriter, r *http.Request) {
					f.setState(state)
					start(w, r)
				}
				res, err := f.onLoopback(t).Commands.Run(t.Context(), "x", nil)
				requireDataKinds(t, err, e2b.ErrSandboxNotRunning)
				api, ok := errors.AsType[*e2b.APIError](err)
				require.True(t, ok)
				require.Equal(t, state, api.State)
				require.Equal(t, []string{startPath, infoPath}, f.paths())
				if b.started {
					require.Equal(t, "begin\n", string(res.Stdout))
					require.Equal(t, -1, res.ExitCode)
				} else {
					require.Nil(t, res)
				}
			})
		}
	}
}

// When the control plane does not say, within 5 s, the command is left alone.
func TestBrokenStreamOfSandboxOfUnknownState(t *testing.T) {
	for name, info := range map[string]http.HandlerFunc{
		"silent": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"500": func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, 500, map[string]any{"code": 500, "message": "x"})
		},
	} {
		for _, broken := range []string{"unexpected EOF", "before headers"} {
			t.Run(name+"/"+broken, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFakeSandbox()
					f.envd = streamBreaks[broken].serve(f)
					f.info = info
					begin := time.Now()
					_, err := f.inMemory(t).Commands.Run(t.Context(), "x", nil)
					requireDataKinds(t, err, e2b.ErrStreamInterrupted)
					require.LessOrEqual(t, time.Since(begin), 5*time.Second)
					require.Empty(t, f.requests(attachPath))
					require.Empty(t, f.requests(listPath))
				})
			})
		}
	}
}

// The caller's ctx, Close and the writers keep their say while a broken command
// is attached to.
func TestBrokenStreamWhileAttaching(t *testing.T) {
	broken := func() *fakeSandbox {
		f := newFakeSandbox()
		f.envd = streamBreaks["unexpected EOF"].serve(f)
		f.attach = func(ctx context.Context, _ *attachRequest, s *attachStream) error {
			if err := sendTo(s, evStart(77), evOut("more")); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		}
		return f
	}
	synctest.Test(t, func(t *testing.T) {
		f := broken()
		var killed uint32
		f.signal = func(_ context.Context, pid uint32, _ process.Signal) error {
			killed = pid
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		res, err := f.inMemory(t).Commands.Run(ctx, "x", nil)
		requireDataKinds(t, err, context.DeadlineExceeded)
		require.Equal(t, "begin\nmore", string(res.Stdout))
		require.Equal(t, uint32(77), killed)

		// A Process has no ctx; nor has the request timeout a say once it is attached.
		f = broken()
		p, err := f.inMemory(t).Commands.Start(t.Context(), "x", nil)
		require.NoError(t, err)
		require.True(t, elapse(t.Context(), time.Hour))
		require.NoError(t, p.Close())
		_, err = p.Wait(t.Context())
		requireDataKinds(t, err, e2b.ErrClosed)

		f = broken()
		errFull := errors.New("the disk is full")
		var got bytes.Buffer
		killed = 0
		f.signal = func(_ context.Context, pid uint32, _ process.Signal) error {
			killed = pid
			return nil
		}
		_, err = f.inMemory(t).Commands.Run(t.Context(), "x", &e2b.RunOptions{Stdout: writerFunc(func(p []byte) (int, error) {
			if got.Len() > 0 {
				return 0, errFull
			}
			return got.Write(p)
		})})
		requireDataKinds(t, err, errFull)
		require.Equal(t, uint32(77), killed)
	})
}

// Without a start event the command is looked for once, and the search, too, is
// bounded.
func TestLostStartEventSearchIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.envd = streamBreaks["before headers"].serve(f)
		f.list = func(ctx context.Context) ([]*process.ProcessInfo, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		begin := time.Now()
		_, err := f.inMemory(t, func(o *e2b.ClientOptions) { o.RequestTimeout = 10 * time.Second }).Commands.Run(t.Context(), "x", nil)
		requireDataKinds(t, err, e2b.ErrStreamInterrupted)
		require.LessOrEqual(t, time.Since(begin), 10*time.Second)
		require.Equal(t, []string{startPath, infoPath, listPath}, f.paths())

		// ctx bounds it too.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin = time.Now()
		_, err = f.inMemory(t).Commands.Run(ctx, "x", nil)
		requireDataKinds(t, err, context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(begin), 2*time.Second)
	})
}

// The other calls that break off: what happened is not known.
func TestBrokenUnaryCalls(t *testing.T) {
	for name := range strings.FieldsSeq(unaryCalls + " " + fileCalls + " " + codeCalls) {
		for state, want := range map[e2b.State]error{
			e2b.StateRunning: e2b.ErrStreamInterrupted, e2b.StatePaused: e2b.ErrSandboxNotRunning, "": e2b.ErrSandboxNotRunning,
		} {
			t.Run(fmt.Sprintf("%s/%q", name, state), func(t *testing.T) {
				f := newFakeSandbox()
				f.envd = func(_ http.ResponseWriter, r *http.Request) {
					drain(r)
					f.setState(state)
					panic(http.ErrAbortHandler)
				}
				f.code = f.envd
				err := dataCalls[name](t.Context(), f.inMemory(t))
				requireDataKinds(t, err, want)
				require.Len(t, f.requests(""), 2, "the call and one question")
				require.Equal(t, 1, f.infos())
			})
		}
	}
}

// USERS.md D2: the end of ctx is told as it is by each call, whatever its cause is, as that of
// an errgroup that has failed elsewhere.
func TestContextIdentity(t *testing.T) {
	for name, call := range dataCalls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeSandbox()
				f.envd = func(_ http.ResponseWriter, r *http.Request) {
					drain(r)
					<-r.Context().Done()
				}
				f.code = f.envd
				sbx := f.inMemory(t)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				begin := time.Now()
				requireDataKinds(t, call(ctx, sbx), context.DeadlineExceeded)
				require.LessOrEqual(t, time.Since(begin), 2*time.Second)

				for _, cause := range []error{
					nil, io.EOF, e2b.ErrClosed, e2b.ErrCommandTimeout, connect.NewError(connect.CodeUnavailable, errors.New("x")),
					connect.NewWireError(connect.CodeNotFound, errors.New("x")), connect.NewWireError(connect.CodeAlreadyExists, errors.New("x")),
					&e2b.APIError{StatusCode: 502},
				} {
					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(time.Second, func() { cancel(cause) })
					begin := time.Now()
					requireDataKinds(t, call(ctx, sbx), context.Canceled)
					require.LessOrEqual(t, time.Since(begin), 2*time.Second)
				}

				// A real error of a sibling.
				bad := newFakeSandbox()
				bad.start = script(evStart(1), evOut("x"))
				sibling := bad.inMemory(t)
				_, failed := sibling.Commands.Run(t.Context(), "x", &e2b.RunOptions{Stdout: writerFunc(func([]byte) (int, error) { return 0, io.ErrShortBuffer })})
				require.ErrorIs(t, failed, io.ErrShortBuffer)
				ctx2, cancel2 := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel2(failed) })
				err := call(ctx2, sbx)
				requireDataKinds(t, err, context.Canceled)
				require.NotErrorIs(t, err, io.ErrShortBuffer)
			})
		})
	}
}

// The request timeout, where ctx has no deadline, is not one of ctx.
func TestRequestTimeoutOfEachCall(t *testing.T) {
	for name, call := range dataCalls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeSandbox()
				f.envd = func(_ http.ResponseWriter, r *http.Request) {
					drain(r)
					<-r.Context().Done()
				}
				f.code = f.envd
				begin := time.Now()
				err := call(t.Context(), f.inMemory(t, func(o *e2b.ClientOptions) { o.RequestTimeout = 7 * time.Second }))
				requireDataKinds(t, err, e2b.ErrRequestTimeout)
				require.GreaterOrEqual(t, time.Since(begin), 7*time.Second)
				require.LessOrEqual(t, time.Since(begin), 8*time.Second)
				if !strings.Contains(cleaningCalls, name) {
					require.Zero(t, f.infos())
				}
			})
		})
	}
}

// The handle's own pause ends every call that is under way.
func TestG14OwnPauseEndsEveryCall(t *testing.T) {
	for name, call := range dataCalls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeSandbox()
				f.envd = func(_ http.ResponseWriter, r *http.Request) {
					drain(r)
					<-r.Context().Done()
				}
				f.code = f.envd
				sbx := f.inMemory(t)
				done := make(chan error, 1)
				go func() { done <- call(t.Context(), sbx) }()
				synctest.Wait()
				begin := time.Now()
				_, err := sbx.Pause(t.Context(), nil)
				require.NoError(t, err)
				requireDataKinds(t, <-done, e2b.ErrSandboxNotRunning)
				require.Zero(t, time.Since(begin))
				paths := f.paths()
				require.Len(t, paths, 2, "the call and the pause: %v", paths)
				require.True(t, slices.Contains(paths, infoPath+"/pause"))
			})
		})
	}
}
