package e2b_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	e2b "github.com/seed-09a7379d/e2b-go"
)

// requireDataKinds requires an error that is of exactly the given kinds, or
// matches an error of the test's own, and has no secret and no second line in it.
func requireDataKinds(t testing.TB, err error, want ...error) {
	t.Helper()
	requireKinds(t, err, want...)
	for _, w := range want {
		require.ErrorIs(t, err, w)
	}
	requireNoSecret(t, err, fakeToken)
	requireNoSecret(t, err, fakeAPIKey)
	require.NotContains(t, err.Error(), "\n")
}

// frame is an envelope of a Connect stream.
func frame(flags byte, payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(payload))), payload...)
}

func marshal(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

// dataCalls are the calls into a sandbox, by the plane they go to.
var dataCalls = map[string]func(context.Context, *e2b.Sandbox) error{
	"run": func(ctx context.Context, s *e2b.Sandbox) error {
		_, err := s.Commands.Run(ctx, "true", nil)
		return err
	},
	"start": func(ctx context.Context, s *e2b.Sandbox) error {
		_, err := s.Commands.Start(ctx, "true", nil)
		return err
	},
	"attach": func(ctx context.Context, s *e2b.Sandbox) error {
		_, err := s.Commands.Attach(ctx, 5, nil)
		return err
	},
	"list":   func(ctx context.Context, s *e2b.Sandbox) error { _, err := s.Commands.List(ctx); return err },
	"signal": func(ctx context.Context, s *e2b.Sandbox) error { return s.Commands.Signal(ctx, 5, e2b.SIGTERM) },
	"read":   func(ctx context.Context, s *e2b.Sandbox) error { _, err := s.Files.Read(ctx, "/x", nil); return err },
	"write":  func(ctx context.Context, s *e2b.Sandbox) error { return s.Files.Write(ctx, "/x", []byte("data"), nil) },
	"code":   func(ctx context.Context, s *e2b.Sandbox) error { _, err := s.RunCode(ctx, "1", nil); return err },
	"open": func(ctx context.Context, s *e2b.Sandbox) error {
		r, err := s.Files.Open(ctx, "/x", nil)
		if err != nil {
			return err
		}
		return r.Close()
	},
	"writefrom": func(ctx context.Context, s *e2b.Sandbox) error {
		return s.Files.WriteFrom(ctx, "/x", io.MultiReader(strings.NewReader("data")), nil)
	},
	"atomic": func(ctx context.Context, s *e2b.Sandbox) error {
		return s.Files.Write(ctx, "/x", nil, &e2b.WriteOptions{Atomic: true})
	},
	"writeall": func(ctx context.Context, s *e2b.Sandbox) error {
		err := s.Files.WriteAll(ctx, []e2b.NewFile{{Path: "/x"}}, nil)
		if all, ok := errors.AsType[*e2b.WriteAllError](err); ok {
			return all.Err
		}
		return err
	},
	"copyout": func(ctx context.Context, s *e2b.Sandbox) error {
		dir, err := os.MkdirTemp("", "")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		return s.Files.CopyOut(ctx, "/x", dir, nil)
	},
	"copyin": func(ctx context.Context, s *e2b.Sandbox) error {
		return s.Files.CopyIn(ctx, fstest.MapFS{"f": {}}, "/x", nil)
	},
	"terminal": func(ctx context.Context, s *e2b.Sandbox) error {
		_, err := s.PTY.Start(ctx, nil)
		return err
	},
	"reattach": func(ctx context.Context, s *e2b.Sandbox) error {
		_, err := s.PTY.Attach(ctx, 5)
		return err
	},
	"stream": func(ctx context.Context, s *e2b.Sandbox) error {
		c, err := s.StreamCode(ctx, "1", nil)
		if err != nil {
			return err
		}
		defer c.Close()
		for _, err := range c.Events(ctx) {
			if err != nil {
				return err
			}
		}
		return nil
	},
	"stat":    func(ctx context.Context, s *e2b.Sandbox) error { _, err := s.Files.Stat(ctx, "/x", nil); return err },
	"listdir": func(ctx context.Context, s *e2b.Sandbox) error { _, err := s.Files.List(ctx, "/x", nil); return err },
	"mkdir":   func(ctx context.Context, s *e2b.Sandbox) error { _, err := s.Files.MakeDir(ctx, "/x", nil); return err },
	"rename":  func(ctx context.Context, s *e2b.Sandbox) error { return s.Files.Rename(ctx, "/x", "/y", nil) },
	"remove":  func(ctx context.Context, s *e2b.Sandbox) error { return s.Files.Remove(ctx, "/x", nil) },
}

const (
	streamCalls  = "run start attach terminal reattach copyout"
	processCalls = "list signal"
	entryCalls   = "stat listdir mkdir rename remove"
	unaryCalls   = processCalls + " " + entryCalls
	rpcCalls     = streamCalls + " " + unaryCalls
	uploadCalls  = "write writefrom writeall"
	fileCalls    = "read open " + uploadCalls
	codeCalls    = "code stream"
	allCalls     = rpcCalls + " " + fileCalls + " " + codeCalls
	pathCalls    = fileCalls + " " + entryCalls + " watch copyout" // whose errors name the path

	// cleaningCalls take away what they have left when they fail.
	cleaningCalls = "atomic copyin"
)

// The error table, one row per answer. Each answer is given to each call that can
// get it.
func TestDataErrorTable(t *testing.T) {
	jsonType := http.Header{"Content-Type": {"application/json; charset=utf-8"}}
	textType := http.Header{"Content-Type": {"text/plain; charset=utf-8"}}
	proxy := func(code int, message string) string {
		return fmt.Sprintf(`{"sandboxId":%q,"message":%q,"code":%d}`, fakeID, message, code)
	}
	envd := func(code int, message string) string {
		return fmt.Sprintf(`{"code":%d,"message":%q}`+"\n", code, message)
	}
	rpc := func(code, message string) string { return fmt.Sprintf(`{"code":%q,"message":%q}`, code, message) }
	kinds := func(k ...error) []error { return k }

	for _, row := range []struct {
		name   string
		calls  string
		status int
		header http.Header
		body   string
		want   []error
		check  func(t *testing.T, e *e2b.APIError)
	}{
		{"proxy: sandbox gone", allCalls, 502, jsonType, proxy(502, "The sandbox was not found"), kinds(e2b.ErrSandboxNotRunning), nil},
		{
			"proxy: port closed", allCalls, 502, jsonType,
			`{"sandboxId":"` + fakeID + `","message":"The sandbox is running but port is not open","port":49999,"code":502}`,
			kinds(e2b.ErrPortClosed), nil,
		},
		{
			"C2 nginx page", allCalls, 502,
			http.Header{"Content-Type": {"text/html"}},
			"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><center><h1>502 Bad Gateway</h1></center><hr>" +
				strings.Repeat("<p>upstream</p>", 200) + "</body></html>", kinds(),
			func(t *testing.T, e *e2b.APIError) {
				require.Contains(t, e.Message, "502 Bad Gateway")
				require.LessOrEqual(t, len(e.Message), 300)
				require.NotContains(t, e.Error(), "<")
				require.Contains(t, e.Error(), "status 502")
			},
		},
		{
			"proxy: text", allCalls, 502, textType, "Failed to route request to sandbox", kinds(),
			func(t *testing.T, e *e2b.APIError) { require.Equal(t, "Failed to route request to sandbox", e.Message) },
		},
		{"proxy: no routing header", allCalls, 400, textType, "missing header\n", kinds(e2b.ErrInvalidArgument), nil},
		{
			"token", allCalls, 401, jsonType, envd(401, "unauthorized access, please provide a valid access token or method signing if supported"),
			kinds(e2b.ErrUnauthenticated),
			func(t *testing.T, e *e2b.APIError) { require.Contains(t, e.Message, "valid access token") },
		},
		{
			"token echoed", allCalls, 401, jsonType, envd(401, "bad token "+fakeToken+" and signature v1_TV1X6TfeqozQrFf4rKfIdSPEFX2XOx0StO8oUu6HAR4"),
			kinds(e2b.ErrUnauthenticated),
			func(t *testing.T, e *e2b.APIError) {
				require.Contains(t, e.Message, "bad token [redacted]")
				require.NotContains(t, e.Message, "TV1X6")
			},
		},
		{
			"token echoed in an RPC's error", unaryCalls, 401, jsonType, rpc("unauthenticated", "bad token "+fakeToken),
			kinds(e2b.ErrUnauthenticated), nil,
		},
		{
			"user unknown to REST", fileCalls, 401, jsonType, envd(401, "error looking up user 'x': user: unknown user x"),
			kinds(e2b.ErrUnauthenticated), nil,
		},
		{
			"user unknown to RPC", unaryCalls, 401, jsonType, rpc("unauthenticated", "invalid username: 'x'"), kinds(e2b.ErrUnauthenticated),
			func(t *testing.T, e *e2b.APIError) {
				require.Equal(t, "unauthenticated", e.Code)
				require.Equal(t, "invalid username: 'x'", e.Message)
			},
		},
		{
			"traffic token", allCalls, 403, jsonType,
			proxy(403, "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing"), kinds(e2b.ErrForbidden), nil,
		},
		{"status wins over code", allCalls, 403, jsonType, `{"code":403,"message":"x","error_code":"not_found"}`, kinds(e2b.ErrForbidden), nil},
		{"status wins over an RPC's code on a stream", streamCalls, 403, jsonType, rpc("not_found", "x"), kinds(e2b.ErrForbidden), nil},
		{"old envd: no such method", rpcCalls + " " + fileCalls, 404, textType, "404 page not found\n", kinds(e2b.ErrNotSupported), nil},
		{
			"reserved endpoint", allCalls, 404, jsonType, `{"sandboxId":"` + fakeID + `","message":"not found","code":404,"path":"/init"}`,
			kinds(e2b.ErrNotSupported), nil,
		},
		{"no file", fileCalls, 404, jsonType, envd(404, "path '/x' does not exist"), kinds(fs.ErrNotExist), nil},
		{"no file of an odd name", fileCalls, 404, jsonType, envd(404, "path '/method not allowed' does not exist"), kinds(fs.ErrNotExist), nil},
		{"directory", fileCalls, 400, jsonType, envd(400, "path '/x' is a directory"), kinds(e2b.ErrInvalidArgument), nil},
		{"parent is a file, read", "read open", 500, jsonType, envd(500, "error checking if path exists '/a/x': stat /a/x: not a directory"), kinds(fs.ErrNotExist), nil},
		{"parent is a file, write", uploadCalls, 500, jsonType, envd(500, "error ensuring directories: path is a file: /a"), kinds(fs.ErrNotExist), nil},
		{"permission", fileCalls, 500, jsonType, envd(500, "error opening file: open /sys/x: permission denied"), kinds(fs.ErrPermission), nil},
		{"no permission for the operation", uploadCalls, 500, jsonType, envd(500, "error changing ownership: operation not permitted"), kinds(fs.ErrPermission), nil},
		{"exists", uploadCalls, 500, jsonType, envd(500, "error creating directory: mkdir /a: file exists"), kinds(fs.ErrExist), nil},
		{"disk full while making directories", uploadCalls, 500, jsonType, envd(500, "error creating directory: mkdir /a: no space left on device"), kinds(e2b.ErrNoSpace), nil},
		{"disk full", uploadCalls, 507, jsonType, envd(507, "attempted to write 4 bytes: not enough disk space available"), kinds(e2b.ErrNoSpace), nil},
		{"internal", fileCalls, 500, textType, "seeker can't seek", kinds(), nil},
		{"internal of an RPC", unaryCalls, 500, jsonType, rpc("internal", "boom"), kinds(), nil},
		{"method not allowed", fileCalls, 405, nil, "", kinds(e2b.ErrNotSupported), nil},
		{"content type", rpcCalls, 415, nil, "", kinds(e2b.ErrNotSupported), nil},
		{"conflict", allCalls, 409, jsonType, proxy(409, "The sandbox is still transitioning. Try again in a moment."), kinds(e2b.ErrConflict), nil},
		{
			"E2 too many connections", allCalls, 429, jsonType, proxy(429, "too many concurrent incoming connections (limit: 100)"),
			kinds(e2b.ErrRateLimited, e2b.ErrQuotaExceeded), nil,
		},
		{
			"E2 rate limit", allCalls, 429,
			http.Header{"Content-Type": {"application/json"}, "Retry-After": {"7"}},
			proxy(429, "slow down"),
			kinds(e2b.ErrRateLimited),
			func(t *testing.T, e *e2b.APIError) { require.Equal(t, 7*time.Second, e.RetryAfter) },
		},
		{
			"E2 resource_exhausted of an RPC", unaryCalls, 429, jsonType, rpc("resource_exhausted", "too many processes"),
			kinds(e2b.ErrRateLimited), nil,
		},
		{
			"E2 resource_exhausted on a stream's status", streamCalls, 429,
			http.Header{"Content-Type": {"application/json"}, "Retry-After": {"7"}},
			rpc("resource_exhausted", "too many processes"), kinds(e2b.ErrRateLimited),
			func(t *testing.T, e *e2b.APIError) {
				require.Equal(t, 7*time.Second, e.RetryAfter)
				require.Equal(t, "too many processes", e.Message)
				require.Equal(t, "resource_exhausted", e.Code)
			},
		},
		{"busy", allCalls, 503, textType, "no healthy upstream", kinds(e2b.ErrServiceBusy), nil},
		{"busy RPC", unaryCalls, 503, jsonType, rpc("unavailable", "x"), kinds(e2b.ErrServiceBusy), nil},
		{"gateway timeout", allCalls, 504, textType, "upstream request timeout", kinds(), nil},
		{"no entry", entryCalls, 404, jsonType, rpc("not_found", "file not found: lstat /x: no such file or directory"), kinds(fs.ErrNotExist), nil},
		{"entry: permission", entryCalls, 403, jsonType, rpc("permission_denied", "x"), kinds(fs.ErrPermission), nil},
		{"entry: parent is a file", entryCalls, 500, jsonType, rpc("internal", "error getting file info: lstat /a/x: not a directory"), kinds(fs.ErrNotExist), nil},
		{"entry: name too long", entryCalls, 500, jsonType, rpc("internal", "lstat /"+strings.Repeat("n", 300)+": file name too long"), kinds(e2b.ErrInvalidArgument), nil},
		{"entry: not permitted", "remove", 500, jsonType, rpc("internal", "error removing file or directory: unlinkat /x: operation not permitted"), kinds(fs.ErrPermission), nil},
		{"entry: read-only", "mkdir remove", 500, jsonType, rpc("internal", "mkdir /proc/x: read-only file system"), kinds(fs.ErrPermission), nil},
		{"entry: a name that quotes an error", "stat", 500, jsonType, rpc("internal", "lstat /permission denied: input/output error"), kinds(), nil},
		{"entry: a directory is there", "rename", 500, jsonType, rpc("internal", "error renaming: rename a b: file exists"), kinds(fs.ErrExist), nil},
		{"entry: disk full", "mkdir", 500, jsonType, rpc("internal", "mkdir /x: no space left on device"), kinds(e2b.ErrNoSpace), nil},
		{"entry: name not UTF-8", "listdir", 500, jsonType, rpc("internal", "marshal message: string field contains invalid UTF-8"), kinds(e2b.ErrNotSupported), nil},
		{
			"too many watches", "watch", 500, jsonType, rpc("internal", "error creating watcher: too many open files"),
			kinds(e2b.ErrQuotaExceeded, e2b.ErrRateLimited), nil,
		},
		{"no process", "signal", 404, jsonType, rpc("not_found", "process with pid 5 not found"), kinds(e2b.ErrProcessNotFound), nil},
		{"no such signal", "signal", 501, jsonType, rpc("unimplemented", "invalid signal: 2"), kinds(e2b.ErrNotSupported), nil},
		{"failed precondition", unaryCalls, 400, jsonType, rpc("failed_precondition", "x"), kinds(e2b.ErrInvalidArgument), nil},
		{"RPC's deadline is no deadline of ours", unaryCalls, 504, jsonType, rpc("deadline_exceeded", "x"), kinds(), nil},
		{"RPC's cancel is no cancel of ours", unaryCalls, 499, jsonType, rpc("canceled", "x"), kinds(), nil},
		{"interpreter: no context", codeCalls, 404, textType, "Context None not found", kinds(e2b.ErrNotFound), nil},
		{"interpreter: no route", codeCalls, 404, jsonType, `{"detail":"Not Found"}`, kinds(e2b.ErrNotSupported), nil},
		{
			"interpreter: no kernel", codeCalls, 500, textType,
			`Failed to create context: {"message": "The 'cobol' kernel is not available. Please pick another"}`, kinds(e2b.ErrNotSupported), nil,
		},
		{"interpreter: empty 500", codeCalls, 500, textType, "", kinds(e2b.ErrInterpreter), nil},
		{"interpreter: both", codeCalls, 400, textType, "Only one of context_id or language can be provided", kinds(e2b.ErrInvalidArgument), nil},
		{
			"interpreter: bad body", codeCalls, 422, jsonType, `{"detail":[{"loc":["body","code"],"msg":"Field required","type":"missing"}]}`,
			kinds(e2b.ErrInvalidArgument),
			func(t *testing.T, e *e2b.APIError) { require.Contains(t, e.Message, "Field required") },
		},
	} {
		for name := range strings.FieldsSeq(row.calls) {
			t.Run(row.name+"/"+name, func(t *testing.T) {
				f := newFakeSandbox()
				f.envd = func(w http.ResponseWriter, r *http.Request) {
					drain(r)
					maps.Copy(w.Header(), row.header)
					w.Header().Set("X-Request-Id", "req-1")
					w.WriteHeader(row.status)
					_, _ = w.Write([]byte(row.body))
				}
				f.code = f.envd
				err := dataCalls[name](t.Context(), f.inMemory(t))
				requireDataKinds(t, err, row.want...)
				api, ok := errors.AsType[*e2b.APIError](err)
				require.True(t, ok, "%v", err)
				require.Equal(t, fakeID, api.SandboxID)
				require.NotEmpty(t, api.Op)
				require.Equal(t, 1, api.Attempts)
				if api.StatusCode != 0 {
					require.Equal(t, row.status, api.StatusCode)
					require.Equal(t, "req-1", api.RequestID)
				} else {
					require.NotEmpty(t, api.Code)
				}
				if row.check != nil {
					row.check(t, api)
				}
				require.Len(t, f.requests(""), 1, "one request, no repeat, no question")
				if _, isPath := errors.AsType[*fs.PathError](err); isPath != slices.Contains(strings.Fields(pathCalls), name) {
					t.Errorf("PathError: %v", err)
				}
			})
		}
	}
}

// The errors of a stream's end frame.
func TestDataErrorTableEndOfStream(t *testing.T) {
	for _, row := range []struct {
		code, message string
		want          []error
	}{
		{"invalid_argument", "cwd '/no' does not exist", []error{e2b.ErrInvalidArgument}},
		{"unauthenticated", "invalid username: 'x'", []error{e2b.ErrUnauthenticated}},
		{"permission_denied", "x", []error{e2b.ErrForbidden}},
		{"not_found", "process with pid 5 not found", []error{e2b.ErrProcessNotFound}},
		{"already_exists", "x", []error{fs.ErrExist}},
		{"failed_precondition", "x", []error{e2b.ErrInvalidArgument}},
		{"out_of_range", "x", []error{e2b.ErrInvalidArgument}},
		{"resource_exhausted", "x", []error{e2b.ErrRateLimited}},
		{"unimplemented", "x", []error{e2b.ErrNotSupported}},
		{"unavailable", "x", []error{e2b.ErrServiceBusy}},
		{"aborted", "x", []error{e2b.ErrConflict}},
		{"internal", "x", nil},
		{"unknown", "x", nil},
		{"data_loss", "x", nil},
		{"canceled", "context canceled", nil},
		{"internal", "token " + fakeToken + " is bad\nreally", nil},
	} {
		for name := range strings.FieldsSeq(streamCalls) {
			t.Run(row.code+"/"+name, func(t *testing.T) {
				f := newFakeSandbox()
				f.envd = func(w http.ResponseWriter, r *http.Request) {
					drain(r)
					w.Header().Set("Content-Type", "application/connect+proto")
					_, _ = w.Write(frame(2, fmt.Appendf(nil, `{"error":{"code":%q,"message":%q}}`, row.code, row.message)))
				}
				err := dataCalls[name](t.Context(), f.inMemory(t))
				requireDataKinds(t, err, row.want...)
				api, ok := errors.AsType[*e2b.APIError](err)
				require.True(t, ok, "%v", err)
				require.Equal(t, row.code, api.Code)
				require.Zero(t, api.StatusCode)
				require.NotEmpty(t, api.Message)
				require.Len(t, f.requests(""), 1)
			})
		}
	}
}

// What each call makes of a server that is not there: nothing was sent, so
// nothing has to be asked.
func TestDialError(t *testing.T) {
	for name, call := range dataCalls {
		t.Run(name, func(t *testing.T) {
			f := newFakeSandbox()
			c := f.client(t, "http://127.0.0.1:1", &http.Transport{}) // nothing listens there
			err := call(t.Context(), f.handle(t, c))
			requireDataKinds(t, err)
			require.ErrorContains(t, err, "refused")
		})
	}
}

// A limit of the transport's own must not look like one of the caller's ctx.
func TestForeignDeadlineIsNotTheCallers(t *testing.T) {
	for name, call := range dataCalls {
		t.Run(name, func(t *testing.T) {
			f := newFakeSandbox()
			rt := roundTrip(func(*http.Request) (*http.Response, error) {
				return nil, fmt.Errorf("proxy: %w", context.DeadlineExceeded)
			})
			err := call(t.Context(), f.handle(t, f.client(t, "http://fake.test", rt, func(o *e2b.ClientOptions) { o.MaxRetries = -1 })))
			requireDataKinds(t, err, e2b.ErrStreamInterrupted)
			require.ErrorContains(t, err, "deadline exceeded")
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
