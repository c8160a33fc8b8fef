package e2b_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
)

// What Run sends, field by field.
func TestRunOnTheWire(t *testing.T) {
	var got *process.StartRequest
	f := newFakeSandbox()
	f.start = func(ctx context.Context, r *startRequest, s *startStream) error {
		got = r.Msg
		return send(s, evStart(7), evExit(0))
	}
	sbx := f.inMemory(t)

	_, err := sbx.Commands.Run(t.Context(), "echo hi", nil)
	require.NoError(t, err)
	require.Equal(t, "/bin/bash", got.GetProcess().GetCmd())
	require.Equal(t, []string{"-l", "-c", "echo hi"}, got.GetProcess().GetArgs())
	require.Empty(t, got.GetProcess().GetEnvs())
	require.Nil(t, got.GetProcess().Cwd)
	require.NotNil(t, got.Stdin, "stdin must be sent: a missing field means open")
	require.False(t, got.GetStdin())
	require.Nil(t, got.GetPty())
	own := got.GetTag()
	require.NotEmpty(t, own)

	r := f.requests("/process.Process/Start")[0]
	require.Equal(t, http.MethodPost, r.method)
	require.Equal(t, fakeToken, r.header.Get("X-Access-Token"))
	require.Equal(t, fakeID, r.header.Get("E2b-Sandbox-Id"))
	require.Equal(t, "49983", r.port)
	require.Equal(t, "application/connect+proto", r.header.Get("Content-Type"))
	require.Equal(t, "50", r.header.Get("Keepalive-Ping-Interval"))
	require.Contains(t, r.header.Get("User-Agent"), "e2b-go/"+e2b.Version)
	for _, absent := range []string{"Authorization", "X-Api-Key", "Connect-Timeout-Ms", "Connect-Accept-Encoding", "Connect-Content-Encoding"} {
		require.Empty(t, r.header.Values(absent), absent)
	}
	require.NotContains(t, r.header.Get("Accept-Encoding"), "gzip")

	_, err = sbx.Commands.Run(t.Context(), "true", &e2b.RunOptions{
		Dir: "data", User: "root", Env: map[string]string{"A": "1", "B": "x=y\n"}, Tag: "mine", Timeout: 1500*time.Millisecond + 1,
	})
	require.NoError(t, err)
	require.Equal(t, "data", got.GetProcess().GetCwd())
	require.Equal(t, map[string]string{"A": "1", "B": "x=y\n"}, got.GetProcess().GetEnvs())
	require.Equal(t, "mine", got.GetTag())
	r = f.requests("/process.Process/Start")[1]
	require.Equal(t, "Basic "+base64.StdEncoding.EncodeToString([]byte("root:")), r.header.Get("Authorization"))
	require.Equal(t, "1501", r.header.Get("Connect-Timeout-Ms"), "rounded up")

	_, err = sbx.Commands.Run(t.Context(), "true", nil)
	require.NoError(t, err)
	require.NotEqual(t, own, got.GetTag(), "each start has a tag of its own")
	require.Empty(t, f.requests("/process.Process/Start")[2].header.Values("Authorization"), "a user does not stick")
	require.Empty(t, f.requests("/sandboxes/"+fakeID), "a command needs no control plane")
}

// With ClientOptions.JSON the same exchange is in JSON.
func TestRunJSON(t *testing.T) {
	f := newFakeSandbox()
	f.start = script(evStart(7), evOut("out\xff"), evErr("err"), evExit(3))
	sbx := f.inMemory(t, func(o *e2b.ClientOptions) { o.JSON = true })
	res, err := sbx.Commands.Run(t.Context(), "x", nil)
	exit := requireExit(t, err, 3)
	require.Equal(t, 7, exit.PID)
	require.Equal(t, "out\xff", string(res.Stdout))
	require.Equal(t, "err", string(res.Stderr))
	require.Equal(t, "application/connect+json", f.requests("/process.Process/Start")[0].header.Get("Content-Type"))
}

func requireExit(t testing.TB, err error, code int) *e2b.ExitError {
	t.Helper()
	exit, ok := errors.AsType[*e2b.ExitError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, code, exit.ExitCode)
	return exit
}

// USERS.md G12: a command that fails is an *ExitError, and its result is kept.
func TestG12ExitError(t *testing.T) {
	tests := map[string]struct {
		events []*process.ProcessEvent
		want   e2b.ExitError
		text   string
	}{
		"exit 3":    {[]*process.ProcessEvent{evOut("a\n"), evErr("first\nno such table\n"), evExit(3)}, e2b.ExitError{ExitCode: 3, Reason: "exit status 3", Stderr: []byte("first\nno such table\n")}, "e2b: command (pid 9): exit status 3: no such table"},
		"not found": {[]*process.ProcessEvent{evOut("a\n"), evExit(127)}, e2b.ExitError{ExitCode: 127, Reason: "exit status 127"}, "e2b: command (pid 9): exit status 127"},
		"SIGKILL":   {[]*process.ProcessEvent{evOut("a\n"), evSignal("killed")}, e2b.ExitError{ExitCode: -1, Signal: "killed", Reason: "signal: killed"}, "e2b: command (pid 9): signal: killed"},
		"SIGTERM":   {[]*process.ProcessEvent{evOut("a\n"), evSignal("terminated")}, e2b.ExitError{ExitCode: -1, Signal: "terminated", Reason: "signal: terminated"}, "e2b: command (pid 9): signal: terminated"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFakeSandbox()
			f.start = script(append([]*process.ProcessEvent{evStart(9)}, tt.events...)...)
			res, err := f.inMemory(t).Commands.Run(t.Context(), "x", nil)
			tt.want.PID = 9
			require.Equal(t, &tt.want, requireExit(t, err, tt.want.ExitCode))
			require.Equal(t, tt.text, err.Error())
			require.Equal(t, "a\n", string(res.Stdout))
			require.Equal(t, tt.want.ExitCode, res.ExitCode)
			require.Equal(t, tt.want.Signal, res.Signal)
			require.False(t, res.Incomplete)
			requireDataKinds(t, err)
		})
	}
}

// The standard error that an ExitError shows is its last 4 KiB, however it was
// cut into events and wherever else it went.
func TestExitErrorStderrTail(t *testing.T) {
	var whole bytes.Buffer
	for i := range 2300 {
		whole.WriteString(strings.Repeat(string(rune('a'+i%26)), i%7+1))
	}
	all := whole.Bytes()
	for _, chunk := range []int{1, 7, 1000, 4095, 4096, 4097, len(all)} {
		f := newFakeSandbox()
		f.start = func(_ context.Context, _ *startRequest, s *startStream) error {
			if err := send(s, evStart(1)); err != nil {
				return err
			}
			for c := range slices.Chunk(all, chunk) {
				if err := send(s, evErr(string(c))); err != nil {
					return err
				}
			}
			return send(s, evExit(1))
		}
		sbx := f.inMemory(t)
		options := []*e2b.RunOptions{nil}
		if chunk > 1 {
			options = append(options, &e2b.RunOptions{Stderr: io.Discard}, &e2b.RunOptions{MaxOutput: 10})
		}
		for _, o := range options {
			_, err := sbx.Commands.Run(t.Context(), "x", o)
			require.Equal(t, all[len(all)-4096:], requireExit(t, err, 1).Stderr, "chunks of %d", chunk)
		}
	}
}

// Arguments that are refused before any request.
func TestRunRefuses(t *testing.T) {
	f := newFakeSandbox()
	sbx := f.inMemory(t)
	for name, o := range map[string]e2b.RunOptions{
		"dir":              {Dir: "a\x00b"},
		"dir not UTF-8":    {Dir: "a\xffb"},
		"user colon":       {User: "a:b"},
		"user newline":     {User: "a\nb"},
		"timeout":          {Timeout: -1},
		"timeout too long": {Timeout: 10_000_000_000 * time.Millisecond},
		"max output":       {MaxOutput: -1},
		"env name":         {Env: map[string]string{"": "x"}},
		"env =":            {Env: map[string]string{"a=b": "x"}},
		"env NUL":          {Env: map[string]string{"a": "x\x00"}},
		"env not UTF-8":    {Env: map[string]string{"a": "x\xff"}},
		"tag not UTF-8":    {Tag: "\xff"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := sbx.Commands.Run(t.Context(), "true", &o)
			requireDataKinds(t, err, e2b.ErrInvalidArgument)
			_, err = sbx.Commands.Start(t.Context(), "true", &o)
			requireDataKinds(t, err, e2b.ErrInvalidArgument)
		})
	}
	for _, cmd := range []string{"", "a\x00b", "a\xffb"} {
		_, err := sbx.Commands.Run(t.Context(), cmd, nil)
		requireDataKinds(t, err, e2b.ErrInvalidArgument)
	}
	_, err := sbx.Commands.Start(t.Context(), "cat", &e2b.RunOptions{Stdin: strings.NewReader("x")})
	requireDataKinds(t, err, e2b.ErrInvalidArgument)
	for _, pid := range []int{0, -1} {
		_, err := sbx.Commands.Attach(t.Context(), pid, nil)
		requireDataKinds(t, err, e2b.ErrInvalidArgument)
		requireDataKinds(t, sbx.Commands.Signal(t.Context(), pid, e2b.SIGTERM), e2b.ErrInvalidArgument)
		_, err = sbx.Commands.Kill(t.Context(), pid)
		requireDataKinds(t, err, e2b.ErrInvalidArgument)
	}
	requireDataKinds(t, sbx.Commands.Signal(t.Context(), 5, 2), e2b.ErrInvalidArgument)
	require.Empty(t, f.requests(""))
}

// Closing standard input needs envd 0.5.2; nothing is sent to an older one.
func TestRunStdinVersionGate(t *testing.T) {
	for version, supported := range map[string]bool{
		"0.5.1": false, "0.4.99": false, "0.5.2": true, "0.6.0": true, "1.0.0": true, "": true, "dev": true,
	} {
		f := newFakeSandbox()
		f.start = script(evStart(1), evExit(0))
		f.stdin = func(context.Context, uint32, []byte) error { return nil }
		f.closeStdin = func(context.Context, uint32) error { return nil }
		sbx, err := f.pipe(t).FromRecord(e2b.Record{SandboxID: fakeID, EnvdVersion: version})
		require.NoError(t, err)
		_, err = sbx.Commands.Run(t.Context(), "cat", &e2b.RunOptions{Stdin: strings.NewReader("x")})
		if supported {
			require.NoError(t, err, version)
			continue
		}
		requireDataKinds(t, err, e2b.ErrNotSupported)
		require.ErrorContains(t, err, "0.5.2")
		require.ErrorContains(t, err, version)
		require.Empty(t, f.requests(""), version)
	}
}

// A request that carries input when the command ends is left to end too: net/http
// may break the connection under the next request when one is cancelled just as
// its answer comes.
func TestInputUnderWayIsNotCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		ended, asked := make(chan struct{}), make(chan struct{})
		f.start = func(_ context.Context, _ *startRequest, s *startStream) error {
			if err := send(s, evStart(1)); err != nil {
				return err
			}
			<-asked
			defer close(ended)
			return send(s, evExit(0))
		}
		f.stdin = func(context.Context, uint32, []byte) error { return nil }
		cut := make(chan bool, 1)
		f.closeStdin = func(ctx context.Context, _ uint32) error {
			close(asked)
			<-ended
			select {
			case <-ctx.Done():
				cut <- true
			case <-time.After(100 * time.Millisecond):
				cut <- false
			}
			return nil
		}
		sbx := f.inMemory(t)
		_, err := sbx.Commands.Run(t.Context(), "cat", &e2b.RunOptions{Stdin: strings.NewReader("x")})
		require.NoError(t, err)
		require.False(t, <-cut)
		// One that gets no answer holds up Run for a moment only.
		begin := time.Now()
		asked, ended = make(chan struct{}), make(chan struct{})
		f.closeStdin = func(ctx context.Context, _ uint32) error {
			close(asked)
			<-ctx.Done()
			return ctx.Err()
		}
		_, err = sbx.Commands.Run(t.Context(), "cat", &e2b.RunOptions{Stdin: strings.NewReader("x")})
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(begin))
	})
}

// A deadline of ctx is ours alone: envd would kill the command by it, also a
// command that Start leaves running. That holds for every call.
func TestDeadlineIsNotSent(t *testing.T) {
	f := newFakeSandbox()
	f.start = script(evStart(1), evExit(0))
	f.attach = func(_ context.Context, _ *attachRequest, s *attachStream) error {
		return sendTo(s, evStart(1), evExit(0))
	}
	f.signal = func(context.Context, uint32, process.Signal) error { return nil }
	f.stdin = func(context.Context, uint32, []byte) error { return nil }
	f.closeStdin = func(context.Context, uint32) error { return nil }
	sbx := f.inMemory(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	_, err := sbx.Commands.Run(ctx, "cat", &e2b.RunOptions{Stdin: strings.NewReader("x")})
	require.NoError(t, err)
	p, err := sbx.Commands.Start(ctx, "true", nil)
	require.NoError(t, err)
	_, err = p.Wait(ctx)
	require.NoError(t, err)
	p, err = sbx.Commands.Attach(ctx, 1, nil)
	require.NoError(t, err)
	_, err = p.Wait(ctx)
	require.NoError(t, err)
	_, err = sbx.Commands.List(ctx)
	require.NoError(t, err)
	require.NoError(t, sbx.Commands.Signal(ctx, 1, e2b.SIGTERM))
	require.GreaterOrEqual(t, len(f.requests("")), 5)
	for _, r := range f.requests("") {
		require.Empty(t, r.header.Values("Connect-Timeout-Ms"), r.path)
	}
}

// The deadline that envd keeps is ErrCommandTimeout, not one of ctx, and what was
// written until then is there.
func TestB13CommandTimeout(t *testing.T) {
	f := newFakeSandbox()
	f.start = func(ctx context.Context, _ *startRequest, s *startStream) error {
		if err := send(s, evStart(5), evOut("begin\n")); err != nil {
			return err
		}
		<-ctx.Done() // connect-go's server keeps the limit that the header asks for
		return connect.NewError(connect.CodeDeadlineExceeded, ctx.Err())
	}
	synctest.Test(t, func(t *testing.T) {
		sbx := f.inMemory(t)
		begin := time.Now()
		res, err := sbx.Commands.Run(t.Context(), "sleep 99", &e2b.RunOptions{Timeout: 2 * time.Second})
		require.Equal(t, 2*time.Second, time.Since(begin))
		requireDataKinds(t, err, e2b.ErrCommandTimeout)
		require.Equal(t, "begin\n", string(res.Stdout))
		require.Equal(t, -1, res.ExitCode)
		require.Zero(t, f.infos(), "the answer says it all")

		p, err := sbx.Commands.Start(t.Context(), "sleep 99", &e2b.RunOptions{Timeout: 2 * time.Second})
		require.NoError(t, err)
		_, err = p.Wait(t.Context())
		requireDataKinds(t, err, e2b.ErrCommandTimeout)
	})
}

// When the ctx of Run ends, the command is killed, and Run returns at once with
// what it wrote until then and the identity of ctx's error.
func TestRunKillsWhenContextEnds(t *testing.T) {
	for name, end := range map[string]struct {
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		want error
	}{
		"cancelled": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(3*time.Second, cancel)
			return ctx, cancel
		}, context.Canceled},
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 3*time.Second)
		}, context.DeadlineExceeded},
		"cancelled with another kind's error": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(3*time.Second, func() { cancel(e2b.ErrClosed) })
			return ctx, func() { cancel(nil) }
		}, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeSandbox()
				f.start = runs(evStart(77), evOut("so far\n"), evErr("and here\n"))
				var killed []uint32
				f.signal = func(_ context.Context, pid uint32, sig process.Signal) error {
					require.Equal(t, process.Signal_SIGNAL_SIGKILL, sig)
					killed = append(killed, pid)
					return nil
				}
				sbx := f.inMemory(t)
				ctx, cancel := end.ctx(t.Context())
				defer cancel()
				begin := time.Now()
				res, err := sbx.Commands.Run(ctx, "sleep 999", nil)
				require.Equal(t, 3*time.Second, time.Since(begin))
				requireDataKinds(t, err, end.want)
				require.Equal(t, "so far\n", string(res.Stdout))
				require.Equal(t, "and here\n", string(res.Stderr))
				require.Equal(t, -1, res.ExitCode)
				require.Equal(t, []uint32{77}, killed)
				require.Len(t, f.requests("/process.Process/Start"), 1)
				require.Zero(t, f.infos())
			})
		})
	}
}

// Without a start event the command is found by the tag that was sent with it.
func TestRunKillsByTagWhenStartEventNeverCame(t *testing.T) {
	for name, call := range map[string]func(context.Context, *e2b.Commands) error{
		"Run": func(ctx context.Context, c *e2b.Commands) error {
			res, err := c.Run(ctx, "sleep 999", nil)
			require.Nil(t, res)
			return err
		},
		"Start": func(ctx context.Context, c *e2b.Commands) error {
			p, err := c.Start(ctx, "sleep 999", nil)
			require.Nil(t, p)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeSandbox()
				tag := f.startUnheard()
				f.list = func(context.Context) ([]*process.ProcessInfo, error) {
					other, mine := "other", tag()
					return []*process.ProcessInfo{{Pid: 1}, {Pid: 2, Tag: &other}, {Pid: 3, Tag: &mine}}, nil
				}
				var killed []uint32
				f.signal = func(_ context.Context, pid uint32, _ process.Signal) error {
					killed = append(killed, pid)
					return nil
				}
				sbx := f.inMemory(t)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				begin := time.Now()
				requireDataKinds(t, call(ctx, sbx.Commands), context.DeadlineExceeded)
				require.Equal(t, time.Second, time.Since(begin))
				require.Equal(t, []uint32{3}, killed)
			})
		})
	}
}

// A ctx that has ended already sends nothing: traffic would wake a sandbox.
func TestEndedContextSendsNothing(t *testing.T) {
	f := newFakeSandbox()
	f.start = script(evStart(1), evExit(0))
	sbx := f.inMemory(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := sbx.Commands.Run(ctx, "true", nil)
	requireDataKinds(t, err, context.Canceled)
	_, err = sbx.Commands.Start(ctx, "true", nil)
	requireDataKinds(t, err, context.Canceled)
	_, err = sbx.Commands.Attach(ctx, 1, nil)
	requireDataKinds(t, err, context.Canceled)
	_, err = sbx.Commands.List(ctx)
	requireDataKinds(t, err, context.Canceled)
	requireDataKinds(t, sbx.Commands.Signal(ctx, 1, e2b.SIGKILL), context.Canceled)
	require.Empty(t, f.requests(""))
}

// A sandbox that does not answer the kill, and a writer that does not return,
// keep Run for about a second each.
func TestRunReturnsThoughNothingAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.start = runs(evStart(77), evOut("x"))
		f.signal = func(ctx context.Context, _ uint32, _ process.Signal) error {
			<-ctx.Done()
			return ctx.Err()
		}
		sbx := f.inMemory(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin := time.Now()
		res, err := sbx.Commands.Run(ctx, "x", nil)
		requireDataKinds(t, err, context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(begin), time.Minute+time.Second)
		require.Equal(t, "x", string(res.Stdout))

		release := make(chan struct{})
		stuck := writerFunc(func(p []byte) (int, error) {
			<-release
			return len(p), nil
		})
		begin = time.Now()
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		res, err = sbx.Commands.Run(ctx, "x", &e2b.RunOptions{Stdout: stuck})
		requireDataKinds(t, err, context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(begin), time.Minute+2*time.Second)
		require.NotNil(t, res)
		require.Equal(t, -1, res.ExitCode)
		close(release)
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// USERS.md B14: the limit of the opening is not that of the command.
func TestB14RequestTimeoutBoundsTheOpeningAlone(t *testing.T) {
	oneSecond := func(o *e2b.ClientOptions) { o.RequestTimeout = time.Second }
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.start = func(ctx context.Context, _ *startRequest, s *startStream) error {
			if err := send(s, evStart(1)); err != nil {
				return err
			}
			if !elapse(ctx, 5*time.Second) {
				return ctx.Err()
			}
			return send(s, evOut("late"), evExit(0))
		}
		sbx := f.inMemory(t, oneSecond)
		res, err := sbx.Commands.Run(t.Context(), "sleep 5", nil)
		require.NoError(t, err)
		require.Equal(t, "late", string(res.Stdout))

		// Headers that take 3 s.
		slow := newFakeSandbox()
		slow.start = func(ctx context.Context, _ *startRequest, s *startStream) error {
			if !elapse(ctx, 3*time.Second) {
				return ctx.Err()
			}
			return send(s, evStart(1), evExit(0))
		}
		sbx = slow.inMemory(t, oneSecond)
		begin := time.Now()
		_, err = sbx.Commands.Run(t.Context(), "true", nil)
		require.Less(t, time.Since(begin), 1200*time.Millisecond)
		requireDataKinds(t, err, e2b.ErrRequestTimeout)

		// Where ctx has a deadline, that alone counts.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = sbx.Commands.Run(ctx, "true", nil)
		require.NoError(t, err)
	})
}

// elapse waits on the clock unless ctx ends before.
func elapse(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// USERS.md B13: what four kinds of end look like. Each matches its own kind only.
func TestB13FourKindsOfEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := func(f *fakeSandbox, ctx context.Context, o *e2b.RunOptions) error {
			_, err := f.inMemory(t).Commands.Run(ctx, "x", o)
			return err
		}
		gone := newFakeSandbox()
		gone.setState(e2b.StatePaused)
		requireDataKinds(t, run(gone, t.Context(), nil), e2b.ErrSandboxNotRunning)

		silent := newFakeSandbox()
		silent.start = runs()
		requireDataKinds(t, run(silent, t.Context(), nil), e2b.ErrRequestTimeout)

		limited := newFakeSandbox()
		limited.start = runs(evStart(1))
		requireDataKinds(t, run(limited, t.Context(), &e2b.RunOptions{Timeout: time.Second}), e2b.ErrCommandTimeout)

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		cancelled := newFakeSandbox()
		cancelled.start = runs(evStart(1))
		requireDataKinds(t, run(cancelled, ctx, nil), context.Canceled)
	})
}

// USERS.md G13: output beyond the cap is read and dropped in constant memory.
func TestG13MaxOutput(t *testing.T) {
	const total, limit = 50 << 20, 64 << 10
	f := newFakeSandbox()
	_ = liveBytes() // twice, for what pools hold on to once
	before, most := liveBytes(), int64(0)
	f.envd = bigOutput(total, func() { most = max(most, liveBytes()) })
	res, err := f.onLoopback(t).Commands.Run(t.Context(), "cat big", &e2b.RunOptions{MaxOutput: limit})
	require.NoError(t, err)
	require.Len(t, res.Stdout, limit)
	require.True(t, res.StdoutTruncated)
	require.False(t, res.StderrTruncated)
	require.Zero(t, res.ExitCode)
	require.Positive(t, most)
	require.Less(t, most-before, int64(8<<20), "%d before", before)

	// The boundary itself is no truncation.
	exact := newFakeSandbox()
	exact.start = script(evStart(1), evOut("1234"), evOut("5678"), evErr("123456789"), evExit(0))
	res, err = exact.inMemory(t).Commands.Run(t.Context(), "x", &e2b.RunOptions{MaxOutput: 8})
	require.NoError(t, err)
	require.Equal(t, "12345678", string(res.Stdout))
	require.False(t, res.StdoutTruncated)
	require.Equal(t, "12345678", string(res.Stderr))
	require.True(t, res.StderrTruncated)
}

func liveBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// bigOutput answers Start with so many bytes of standard output, in events as
// envd makes them, without a cost of its own. It calls pause, if that is not nil,
// every 8 MiB.
func bigOutput(total int, pause func()) http.HandlerFunc {
	event := frame(0, marshal(&process.StartResponse{Event: evOut(strings.Repeat("x", 32<<10))}))
	return func(w http.ResponseWriter, r *http.Request) {
		drain(r)
		w.Header().Set("Content-Type", "application/connect+proto")
		_, _ = w.Write(frame(0, marshal(&process.StartResponse{Event: evStart(1)})))
		for n := 0; n < total; n += 32 << 10 {
			if _, err := w.Write(event); err != nil {
				return
			}
			if pause != nil && n%(8<<20) == 0 {
				pause()
			}
		}
		_, _ = w.Write(frame(0, marshal(&process.StartResponse{Event: evExit(0)})))
		_, _ = w.Write(frame(2, []byte("{}")))
	}
}

// Both writers are called from one goroutine, in the order of the wire, and
// nothing is collected then.
func TestWritersInWireOrder(t *testing.T) {
	var events []*process.ProcessEvent
	var want strings.Builder
	events = append(events, evStart(1))
	for i := range 200 {
		if i%3 == 0 {
			events = append(events, evErr("e"))
			want.WriteString("e")
		} else {
			events = append(events, evOut("o"))
			want.WriteString("o")
		}
	}
	f := newFakeSandbox()
	f.start = script(append(events, evExit(0))...)
	var got strings.Builder // not safe for two goroutines: the race detector watches
	out := writerFunc(func(p []byte) (int, error) { return got.Write(p) })
	res, err := f.inMemory(t).Commands.Run(t.Context(), "x", &e2b.RunOptions{Stdout: out, Stderr: out})
	require.NoError(t, err)
	require.Equal(t, want.String(), got.String())
	require.Nil(t, res.Stdout)
	require.Nil(t, res.Stderr)
}

// A writer's error ends the stream and is returned; Run kills the command too.
func TestWriterError(t *testing.T) {
	errFull := errors.New("the disk is full")
	for name, w := range map[string]struct {
		writer io.Writer
		want   error
	}{
		"error": {writerFunc(func([]byte) (int, error) { return 0, errFull }), errFull},
		"short": {writerFunc(func(p []byte) (int, error) { return len(p) - 1, nil }), io.ErrShortWrite},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeSandbox()
			f.start = runs(evStart(4), evErr("on the side"), evOut("out"))
			var killed atomic.Int32
			f.signal = func(_ context.Context, pid uint32, sig process.Signal) error {
				require.Equal(t, process.Signal_SIGNAL_SIGKILL, sig)
				killed.Add(int32(pid))
				return nil
			}
			sbx := f.inMemory(t)
			res, err := sbx.Commands.Run(t.Context(), "x", &e2b.RunOptions{Stdout: w.writer})
			requireDataKinds(t, err, w.want)
			require.Equal(t, "on the side", string(res.Stderr))
			require.Equal(t, int32(4), killed.Load())
			require.Zero(t, f.infos(), "the fault is ours")

			p, err := sbx.Commands.Start(t.Context(), "x", &e2b.RunOptions{Stdout: w.writer})
			require.NoError(t, err)
			_, err = p.Wait(t.Context())
			requireDataKinds(t, err, w.want)
			require.Equal(t, int32(4), killed.Load(), "Start leaves the command to its owner")
		})
	}
}

// Standard input is copied as it comes and closed after its end.
func TestStdin(t *testing.T) {
	f, got := catSandbox()
	sbx := f.inMemory(t)
	all := make([]byte, 300<<10)
	for i := range all {
		all[i] = byte(i * 7)
	}
	for name, r := range map[string]io.Reader{
		"bytes":      bytes.NewReader(all),
		"one byte":   &oneByteReader{strings.NewReader("abc")},
		"empty":      strings.NewReader(""),
		"data + EOF": &dataEOFReader{[]byte("tail")},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := sbx.Commands.Run(t.Context(), "cat", &e2b.RunOptions{Stdin: r})
			require.NoError(t, err)
			require.Equal(t, got(), res.Stdout)
		})
	}
	res, err := sbx.Commands.Run(t.Context(), "cat", &e2b.RunOptions{Stdin: bytes.NewReader(all)})
	require.NoError(t, err)
	require.Equal(t, all, res.Stdout)
}

// catSandbox runs cat: what comes in goes out again. The returned function gives
// what the last command got.
func catSandbox() (*fakeSandbox, func() []byte) {
	f := newFakeSandbox()
	var mu sync.Mutex
	var last []byte
	pipes := map[uint32]chan []byte{}
	var next uint32
	f.start = func(ctx context.Context, r *startRequest, s *startStream) error {
		if !r.Msg.GetStdin() {
			return errors.New("no standard input was asked for")
		}
		in := make(chan []byte)
		mu.Lock()
		next++
		pid := next
		pipes[pid] = in
		last = nil
		mu.Unlock()
		if err := send(s, evStart(pid)); err != nil {
			return err
		}
		for {
			select {
			case p, open := <-in:
				if !open {
					return send(s, evExit(0))
				}
				if err := send(s, evOut(string(p))); err != nil {
					return err
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	find := func(pid uint32) (chan []byte, error) {
		mu.Lock()
		defer mu.Unlock()
		if in := pipes[pid]; in != nil {
			return in, nil
		}
		return nil, noSuchProcess(pid)
	}
	f.stdin = func(ctx context.Context, pid uint32, p []byte) error {
		in, err := find(pid)
		if err != nil {
			return err
		}
		select {
		case in <- slices.Clone(p):
			mu.Lock()
			defer mu.Unlock()
			last = append(last, p...)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	f.closeStdin = func(_ context.Context, pid uint32) error {
		in, err := find(pid)
		if err != nil {
			return err
		}
		mu.Lock()
		delete(pipes, pid)
		mu.Unlock()
		close(in)
		return nil
	}
	return f, func() []byte {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(last)
	}
}

type oneByteReader struct{ r io.Reader }

func (r *oneByteReader) Read(p []byte) (int, error) { return r.r.Read(p[:1]) }

type dataEOFReader struct{ b []byte }

func (r *dataEOFReader) Read(p []byte) (int, error) {
	n := copy(p, r.b)
	r.b = r.b[n:]
	if len(r.b) == 0 {
		return n, io.EOF
	}
	return n, nil
}

// A Read that blocks keeps Run neither from the command's end nor from ctx's.
func TestStdinReaderThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.start = func(ctx context.Context, r *startRequest, s *startStream) error {
			if err := send(s, evStart(1)); err != nil {
				return err
			}
			if elapse(ctx, time.Second) {
				return send(s, evExit(0)) // as head -c0
			}
			return ctx.Err()
		}
		sbx := f.inMemory(t)
		r, w := io.Pipe()
		res, err := sbx.Commands.Run(t.Context(), "head -c0", &e2b.RunOptions{Stdin: r})
		require.NoError(t, err)
		require.Zero(t, res.ExitCode)

		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		begin := time.Now()
		_, err = sbx.Commands.Run(ctx, "sleep 1", &e2b.RunOptions{Stdin: r})
		requireDataKinds(t, err, context.DeadlineExceeded)
		require.Equal(t, 500*time.Millisecond, time.Since(begin))
		require.NoError(t, w.Close()) // lets the readers go
	})
}

// A reader's error kills the command and is returned.
func TestStdinReaderError(t *testing.T) {
	errSource := errors.New("the source broke")
	f, got := catSandbox()
	var killed atomic.Int32
	f.signal = func(_ context.Context, pid uint32, _ process.Signal) error {
		killed.Add(int32(pid))
		return nil
	}
	res, err := f.inMemory(t).Commands.Run(t.Context(), "cat", &e2b.RunOptions{
		Stdin: io.MultiReader(strings.NewReader("half"), &errorReader{errSource}),
	})
	requireDataKinds(t, err, errSource)
	require.Equal(t, "half", string(got()))
	require.NotNil(t, res)
	require.Equal(t, int32(1), killed.Load())
}

type errorReader struct{ err error }

func (r *errorReader) Read([]byte) (int, error) { return 0, r.err }

// A command that closes its input or ends early decides how Run ends, while one
// whose input cannot be reached any more must not wait for it for ever.
func TestStdinThatCannotBeSent(t *testing.T) {
	broken := connect.NewError(connect.CodeInternal, errors.New("error writing to stdin of process '1': write |1: broken pipe"))
	for name, tt := range map[string]struct {
		stdin      func(context.Context, uint32, []byte) error
		closeStdin func(context.Context, uint32) error
	}{
		"ended":             {stdin: func(_ context.Context, pid uint32, _ []byte) error { return noSuchProcess(pid) }},
		"closed its input":  {stdin: func(context.Context, uint32, []byte) error { return broken }},
		"ended at the last": {stdin: func(context.Context, uint32, []byte) error { return nil }, closeStdin: func(_ context.Context, pid uint32) error { return noSuchProcess(pid) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeSandbox()
				f.start = func(ctx context.Context, _ *startRequest, s *startStream) error {
					if err := send(s, evStart(1)); err != nil || !elapse(ctx, time.Second) {
						return err
					}
					return send(s, evExit(3))
				}
				f.stdin, f.closeStdin = tt.stdin, tt.closeStdin
				_, err := f.inMemory(t).Commands.Run(t.Context(), "x", &e2b.RunOptions{Stdin: strings.NewReader("x")})
				requireExit(t, err, 3)
			})
		})
	}
	for name, lost := range map[string]string{"input": "/process.Process/SendInput", "end of input": "/process.Process/CloseStdin"} {
		t.Run("lost "+name, func(t *testing.T) {
			f, _ := catSandbox()
			f.envd = func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == lost {
					drain(r)
					abort(w)
				}
				f.serveProcess(w, r)
			}
			var killed atomic.Int32
			f.signal = func(_ context.Context, pid uint32, _ process.Signal) error {
				killed.Add(int32(pid))
				return nil
			}
			_, err := f.inMemory(t).Commands.Run(t.Context(), "cat", &e2b.RunOptions{Stdin: strings.NewReader("x")})
			requireDataKinds(t, err, e2b.ErrStreamInterrupted)
			require.ErrorContains(t, err, "stdin")
			require.Equal(t, int32(1), killed.Load())
		})
	}
}

func TestListSignalKill(t *testing.T) {
	f := newFakeSandbox()
	dir, tag := "/data", "web"
	f.list = func(context.Context) ([]*process.ProcessInfo, error) {
		return []*process.ProcessInfo{
			{Pid: 5, Tag: &tag, Config: &process.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-l", "-c", "x"}, Envs: map[string]string{"A": "1"}, Cwd: &dir}},
			{Pid: 6},
		}, nil
	}
	var sent []process.Signal
	f.signal = func(_ context.Context, pid uint32, sig process.Signal) error {
		if pid == 404 {
			return noSuchProcess(pid)
		}
		sent = append(sent, sig)
		return nil
	}
	sbx := f.inMemory(t)
	list, err := sbx.Commands.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []e2b.ProcessInfo{
		{PID: 5, Tag: "web", Cmd: "/bin/bash", Args: []string{"-l", "-c", "x"}, Env: map[string]string{"A": "1"}, Dir: "/data"},
		{PID: 6},
	}, list)
	require.NoError(t, sbx.Commands.Signal(t.Context(), 5, e2b.SIGTERM))
	killed, err := sbx.Commands.Kill(t.Context(), 5)
	require.NoError(t, err)
	require.True(t, killed)
	require.Equal(t, []process.Signal{process.Signal_SIGNAL_SIGTERM, process.Signal_SIGNAL_SIGKILL}, sent)

	requireDataKinds(t, sbx.Commands.Signal(t.Context(), 404, e2b.SIGTERM), e2b.ErrProcessNotFound)
	killed, err = sbx.Commands.Kill(t.Context(), 404)
	require.NoError(t, err)
	require.False(t, killed)

	f.setState(e2b.StatePaused)
	killed, err = sbx.Commands.Kill(t.Context(), 5)
	requireDataKinds(t, err, e2b.ErrSandboxNotRunning)
	require.False(t, killed)
}

// USERS.md G2: a connection serves one command after another, and as many at once as there
// are commands.
func TestG2CommandsReuseConnections(t *testing.T) {
	f := newFakeSandbox()
	f.start = script(evStart(1), evOut("hello"), evExit(0))
	sbx := f.onLoopback(t)
	for range 200 {
		_, err := sbx.Commands.Run(t.Context(), "true", nil)
		require.NoError(t, err)
	}
	require.Equal(t, int64(1), f.dials.Load(), "connections for 200 commands in a row")

	// The first hundred wait for each other, so that a connection is there for each;
	// else net/http makes a few too many while it waits for one to come free.
	const many = 100
	var waiting atomic.Int32
	all := make(chan struct{})
	f.start = func(_ context.Context, _ *startRequest, s *startStream) error {
		if waiting.Add(1) == many {
			close(all)
		}
		<-all
		return send(s, evStart(1), evOut("hello"), evExit(0))
	}
	var wg sync.WaitGroup
	for range many {
		wg.Go(func() {
			for range 10 {
				if _, err := sbx.Commands.Run(t.Context(), "true", nil); err != nil {
					t.Error(err)
				}
				<-all
			}
		})
	}
	wg.Wait()
	// On a machine that is very busy an end frame may come too late to be waited for.
	require.LessOrEqual(t, f.dials.Load(), int64(many+20), "connections for 1000 commands, 100 at a time")
}

// Failed starts leave nothing behind in the handle.
func TestFailedStartsDoNotAccumulate(t *testing.T) {
	f := newFakeSandbox()
	f.start = func(context.Context, *startRequest, *startStream) error {
		return connect.NewError(connect.CodeInvalidArgument, errors.New("cwd '/no' does not exist"))
	}
	sbx := f.inMemory(t)
	fail := func(n int) {
		defer f.forget()
		for range n {
			_, err := sbx.Commands.Start(t.Context(), "true", &e2b.RunOptions{Dir: "/no"})
			requireDataKinds(t, err, e2b.ErrInvalidArgument)
			_, err = sbx.Commands.Attach(t.Context(), 5, nil)
			requireDataKinds(t, err, e2b.ErrProcessNotFound)
		}
	}
	fail(20)
	before := liveObjects()
	fail(150)
	grown := liveObjects() - before
	runtime.KeepAlive(sbx)
	require.Less(t, grown, int64(1000))
}

func liveObjects() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapObjects)
}

// BenchmarkRun is a short command, without a process behind it.
func BenchmarkRun(b *testing.B) {
	f := newFakeSandbox()
	f.start = script(evStart(1), evExit(0))
	sbx := f.onLoopback(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := sbx.Commands.Run(b.Context(), "true", nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStdout is 100 MB of output that goes to a writer.
func BenchmarkStdout(b *testing.B) {
	const total = 100 << 20
	f := newFakeSandbox()
	f.envd = bigOutput(total, nil)
	sbx := f.onLoopback(b)
	b.SetBytes(total)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := sbx.Commands.Run(b.Context(), "cat big", &e2b.RunOptions{Stdout: io.Discard}); err != nil {
			b.Fatal(err)
		}
	}
}
