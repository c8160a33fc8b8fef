package e2b_test

import (
	"bytes"
	"context"
	"errors"
	"io"
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

// The ctx of Start bounds the opening alone.
func TestStartContextEndsAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.start = func(ctx context.Context, _ *startRequest, s *startStream) error {
			if err := send(s, evStart(8)); err != nil || !elapse(ctx, time.Hour) {
				return ctx.Err()
			}
			return send(s, evOut("done"), evExit(0))
		}
		sbx := f.inMemory(t)
		for _, ctx := range []func() (context.Context, context.CancelFunc){
			func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) },
			func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), time.Second) },
		} {
			opening, cancel := ctx()
			var out bytes.Buffer
			p, err := sbx.Commands.Start(opening, "sleep 3600", &e2b.RunOptions{Stdout: &out})
			cancel()
			require.NoError(t, err)
			require.Equal(t, 8, p.PID())
			res, err := p.Wait(t.Context())
			require.NoError(t, err)
			require.Zero(t, res.ExitCode)
			require.Nil(t, res.Stdout)
			require.Equal(t, "done", out.String())
		}
		require.Empty(t, f.requests("/process.Process/SendSignal"))
	})
}

// Wait can give up, be called again and by many, and answers the same each time.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.start = func(ctx context.Context, _ *startRequest, s *startStream) error {
			if err := send(s, evStart(8)); err != nil || !elapse(ctx, time.Minute) {
				return ctx.Err()
			}
			return send(s, evExit(3))
		}
		p, err := f.inMemory(t).Commands.Start(t.Context(), "x", nil)
		require.NoError(t, err)
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			begin := time.Now()
			res, err := p.Wait(ctx)
			cancel()
			require.Nil(t, res)
			require.Equal(t, time.Second, time.Since(begin))
			requireDataKinds(t, err, context.DeadlineExceeded)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = p.Wait(ctx)
		requireDataKinds(t, err, context.Canceled)
		require.Empty(t, f.requests("/process.Process/SendSignal"), "Wait kills nothing")

		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				res, err := p.Wait(t.Context())
				exit, ok := errors.AsType[*e2b.ExitError](err)
				if !ok || exit.ExitCode != 3 || res.ExitCode != 3 {
					t.Errorf("%v", err)
				}
				res.ExitCode = 99 // a copy
			})
		}
		wg.Wait()
		res, err := p.Wait(ctx) // the answer is there, whatever ctx says
		requireExit(t, err, 3)
		require.Equal(t, 3, res.ExitCode)
		require.NoError(t, p.Close())
		_, err = p.Wait(t.Context())
		requireExit(t, err, 3)
	})
}

// Close disconnects and no more; it ends Wait with ErrClosed.
func TestCloseLeavesTheCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		gone := make(chan struct{})
		f.start = func(ctx context.Context, _ *startRequest, s *startStream) error {
			defer close(gone)
			if err := send(s, evStart(8), evOut("x")); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		}
		p, err := f.inMemory(t).Commands.Start(t.Context(), "x", nil)
		require.NoError(t, err)
		waited := make(chan error, 1)
		go func() {
			_, err := p.Wait(t.Context())
			waited <- err
		}()
		synctest.Wait()
		require.NoError(t, p.Close())
		require.NoError(t, p.Close())
		requireDataKinds(t, <-waited, e2b.ErrClosed)
		<-gone // envd sees the end of the stream
		_, err = p.Wait(t.Context())
		requireDataKinds(t, err, e2b.ErrClosed)
		require.NoError(t, p.Close())
		require.Len(t, f.requests(""), 1, "no kill, no question")
	})
}

// Close unblocks also a Process whose stream broke and that is asking why.
func TestCloseWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.start = script(evStart(8)) // no end
		f.attach = func(ctx context.Context, _ *attachRequest, _ *attachStream) error {
			<-ctx.Done()
			return ctx.Err()
		}
		sbx := f.inMemory(t)
		p, err := sbx.Commands.Start(t.Context(), "x", nil)
		require.NoError(t, err)
		synctest.Wait()
		require.Len(t, f.requests("/process.Process/Connect"), 1)
		require.NoError(t, p.Close())
		_, err = p.Wait(t.Context())
		requireDataKinds(t, err, e2b.ErrClosed)

		p, err = sbx.Commands.Start(t.Context(), "x", nil)
		require.NoError(t, err)
		synctest.Wait()
		_, err = sbx.Pause(t.Context(), nil)
		require.NoError(t, err)
		_, err = p.Wait(t.Context())
		requireDataKinds(t, err, e2b.ErrSandboxNotRunning)
	})
}

// USERS.md B16: a command in the background has no deadline, and a handle that is
// closed kills nothing.
func TestB16BackgroundCommandHasNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		var alive atomic.Bool
		f.start = func(_ context.Context, r *startRequest, s *startStream) error {
			alive.Store(true)
			// envd would kill by this header, connected or not.
			if r.Header().Get("Connect-Timeout-Ms") != "" {
				time.AfterFunc(time.Minute, func() { alive.Store(false) })
			}
			if err := send(s, evStart(8)); err != nil {
				return err
			}
			for {
				if err := send(s, evKeepalive()); err != nil {
					return err
				}
				if !elapse(t.Context(), 50*time.Second) {
					return nil
				}
			}
		}
		f.list = func(context.Context) ([]*process.ProcessInfo, error) {
			if !alive.Load() {
				return nil, nil
			}
			return []*process.ProcessInfo{{Pid: 8}}, nil
		}
		f.signal = func(context.Context, uint32, process.Signal) error {
			alive.Store(false)
			return nil
		}
		sbx := f.inMemory(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		p, err := sbx.Commands.Start(ctx, "server", nil)
		require.NoError(t, err)
		require.True(t, elapse(t.Context(), 10*time.Minute))
		require.NoError(t, p.Close())
		require.True(t, elapse(t.Context(), 10*time.Minute))
		list, err := sbx.Commands.List(t.Context())
		require.NoError(t, err)
		require.Equal(t, []e2b.ProcessInfo{{PID: 8}}, list)
	})
}

// USERS.md B17, G4: neither has a command that was attached to.
func TestB17AttachHasNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.attach = func(ctx context.Context, r *attachRequest, s *attachStream) error {
			if r.Msg.GetProcess().GetPid() != 8 {
				return noSuchProcess(r.Msg.GetProcess().GetPid())
			}
			if err := sendTo(s, evStart(8)); err != nil {
				return err
			}
			for range 6 {
				if !elapse(ctx, 100*time.Second) {
					return ctx.Err()
				}
				if err := sendTo(s, evOut("line\n"), evErr("e")); err != nil {
					return err
				}
			}
			return sendTo(s, evExit(4))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var out, errs bytes.Buffer
		sbx := f.inMemory(t)
		p, err := sbx.Commands.Attach(ctx, 8, &e2b.AttachOptions{Stdout: &out, Stderr: &errs})
		require.NoError(t, err)
		require.Equal(t, 8, p.PID())
		begin := time.Now()
		_, err = p.Wait(t.Context())
		require.Equal(t, 10*time.Minute, time.Since(begin))
		requireExit(t, err, 4)
		require.Equal(t, strings.Repeat("line\n", 6), out.String())
		require.Equal(t, "eeeeee", errs.String())
		r := f.requests("/process.Process/Connect")[0]
		require.Empty(t, r.header.Values("Connect-Timeout-Ms"))
		require.Equal(t, "50", r.header.Get("Keepalive-Ping-Interval"))

		_, err = sbx.Commands.Attach(t.Context(), 9, nil)
		requireDataKinds(t, err, e2b.ErrProcessNotFound)
	})
}

// A day of silence, but for keepalives, ends nothing.
func TestNoHiddenDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.start = func(ctx context.Context, _ *startRequest, s *startStream) error {
			if err := send(s, evStart(8)); err != nil {
				return err
			}
			for range 24 * 60 {
				if !elapse(ctx, time.Minute) {
					return ctx.Err()
				}
				if err := send(s, evKeepalive()); err != nil {
					return err
				}
			}
			return send(s, evOut("morning"), evExit(0))
		}
		sbx := f.inMemory(t)
		begin := time.Now()
		res, err := sbx.Commands.Run(t.Context(), "sleep 1d", nil)
		require.NoError(t, err)
		require.Equal(t, "morning", string(res.Stdout))
		require.Equal(t, 24*time.Hour, time.Since(begin))
	})
}

// USERS.md G14: the handle's own pause and kill end its streams at once, before
// they ask anything.
func TestG14OwnPauseAndKillEndStreams(t *testing.T) {
	for name, end := range map[string]func(context.Context, *e2b.Sandbox) (bool, error){
		"Pause":     func(ctx context.Context, s *e2b.Sandbox) (bool, error) { return s.Pause(ctx, nil) },
		"BetaPause": func(ctx context.Context, s *e2b.Sandbox) (bool, error) { return s.BetaPause(ctx) },
		"Kill":      func(ctx context.Context, s *e2b.Sandbox) (bool, error) { return s.Kill(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeSandbox()
				f.start = runs(evStart(8), evOut("so far"))
				f.attach = func(ctx context.Context, _ *attachRequest, s *attachStream) error {
					if err := sendTo(s, evStart(8)); err != nil {
						return err
					}
					<-ctx.Done()
					return ctx.Err()
				}
				sbx := f.inMemory(t)
				ran := make(chan error, 1)
				go func() {
					res, err := sbx.Commands.Run(t.Context(), "sleep 999", &e2b.RunOptions{Stdin: &blockingReader{t.Context()}})
					if string(res.Stdout) != "so far" {
						t.Errorf("output %q", res.Stdout)
					}
					ran <- err
				}()
				p, err := sbx.Commands.Start(t.Context(), "sleep 999", nil)
				require.NoError(t, err)
				attached, err := sbx.Commands.Attach(t.Context(), 8, nil)
				require.NoError(t, err)
				synctest.Wait()

				begin := time.Now()
				ok, err := end(t.Context(), sbx)
				require.NoError(t, err)
				require.True(t, ok)
				requireDataKinds(t, <-ran, e2b.ErrSandboxNotRunning)
				_, err = p.Wait(t.Context())
				requireDataKinds(t, err, e2b.ErrSandboxNotRunning)
				_, err = attached.Wait(t.Context())
				requireDataKinds(t, err, e2b.ErrSandboxNotRunning)
				require.Zero(t, time.Since(begin))

				// Nothing went to the sandbox once it was to be paused: traffic could wake it.
				all := f.requests("")
				last := all[len(all)-1]
				require.Empty(t, last.port, "%s %s", last.method, last.path)
				require.Empty(t, f.requests("/process.Process/SendSignal"))
				require.Zero(t, len(all)-4, "three streams and the one request: %v", all)
			})
		})
	}
}

// blockingReader blocks until its ctx ends.
type blockingReader struct{ ctx context.Context }

func (r *blockingReader) Read([]byte) (int, error) {
	<-r.ctx.Done()
	return 0, io.EOF
}

// A handle is as good as new after a pause and a connect, and streams that begin
// then are not ended by what was before.
func TestHandleAfterPauseAndConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.start = script(evStart(8), evExit(0))
		sbx := f.inMemory(t)
		for range 3 {
			_, err := sbx.Commands.Run(t.Context(), "true", nil)
			require.NoError(t, err)
			paused, err := sbx.Pause(t.Context(), nil)
			require.NoError(t, err)
			require.True(t, paused)
			_, err = sbx.Commands.Run(t.Context(), "true", nil)
			requireDataKinds(t, err, e2b.ErrSandboxNotRunning)
			require.NoError(t, sbx.Connect(t.Context(), nil))
			require.True(t, sbx.Resumed())
		}
	})
}

// USERS.md G7, G12 of Start: Kill and Signal of a Process.
func TestProcessKillAndSignal(t *testing.T) {
	f := newFakeSandbox()
	type sent struct {
		pid uint32
		sig process.Signal
	}
	signals := make(chan sent, 2)
	f.start = func(ctx context.Context, _ *startRequest, s *startStream) error {
		if err := send(s, evStart(8)); err != nil {
			return err
		}
		for {
			select {
			case sig := <-signals:
				if sig != (sent{8, process.Signal_SIGNAL_SIGKILL}) {
					if err := send(s, evOut("TERM ignored")); err != nil {
						return err
					}
					continue
				}
				return send(s, evSignal("killed"))
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	var over atomic.Bool
	f.signal = func(_ context.Context, pid uint32, sig process.Signal) error {
		if over.Load() {
			return noSuchProcess(pid)
		}
		signals <- sent{pid, sig}
		return nil
	}
	var out bytes.Buffer
	p, err := f.inMemory(t).Commands.Start(t.Context(), "x", &e2b.RunOptions{Stdout: &out})
	require.NoError(t, err)
	require.NoError(t, p.Signal(t.Context(), e2b.SIGTERM))
	killed, err := p.Kill(t.Context())
	require.NoError(t, err)
	require.True(t, killed)
	res, err := p.Wait(t.Context())
	exit := requireExit(t, err, -1)
	require.Equal(t, "killed", exit.Signal)
	require.Equal(t, "killed", res.Signal)
	require.Equal(t, "TERM ignored", out.String())

	over.Store(true)
	killed, err = p.Kill(t.Context())
	require.NoError(t, err)
	require.False(t, killed)
	requireDataKinds(t, p.Signal(t.Context(), e2b.SIGTERM), e2b.ErrProcessNotFound)
}

// The output of a terminal, which another program started, is standard output.
func TestAttachToTerminal(t *testing.T) {
	f := newFakeSandbox()
	f.attach = func(_ context.Context, _ *attachRequest, s *attachStream) error {
		d := &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Pty{Pty: []byte("$ ")}}
		return sendTo(s, evStart(8), &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: d}}, evExit(0))
	}
	var out, errs bytes.Buffer
	p, err := f.inMemory(t).Commands.Attach(t.Context(), 8, &e2b.AttachOptions{Stdout: &out, Stderr: &errs})
	require.NoError(t, err)
	_, err = p.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, "$ ", out.String())
	require.Empty(t, errs.String())
}

// USERS.md G17: handles that are closed hold no stream open.
func TestG17ClosedHandlesFreeTheirStreams(t *testing.T) {
	f := newFakeSandbox()
	var open, most atomic.Int64
	f.start = func(ctx context.Context, _ *startRequest, s *startStream) error {
		open.Add(1)
		defer open.Add(-1)
		if err := send(s, evStart(8)); err != nil {
			return err
		}
		most.Store(max(most.Load(), open.Load()))
		<-ctx.Done()
		return ctx.Err()
	}
	synctest.Test(t, func(t *testing.T) {
		sbx := f.inMemory(t)
		for range 100 {
			p, err := sbx.Commands.Start(t.Context(), "x", nil)
			require.NoError(t, err)
			require.NoError(t, p.Close())
			synctest.Wait()
			require.Zero(t, open.Load())
		}
	})
	require.Equal(t, int64(1), most.Load())
}

// A slow end frame keeps a finished command for a second at the most.
func TestEndFrameThatDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.start = runs(evStart(8), evOut("x"), evExit(0)) // and then nothing
		begin := time.Now()
		res, err := f.inMemory(t).Commands.Run(t.Context(), "x", nil)
		require.NoError(t, err)
		require.Equal(t, "x", string(res.Stdout))
		require.LessOrEqual(t, time.Since(begin), time.Second)

		// An error behind the end event takes nothing back.
		f = newFakeSandbox()
		f.start = func(_ context.Context, _ *startRequest, s *startStream) error {
			_ = send(s, evStart(8), evExit(0))
			return connect.NewError(connect.CodeInternal, errors.New("too late"))
		}
		_, err = f.inMemory(t).Commands.Run(t.Context(), "x", nil)
		require.NoError(t, err)
	})
}

// A Wait that is given a ctx ends with it, also while a writer of the caller's holds up
// the end of a closed Process.
func TestWaitOfClosedProcessEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.start = runs(evStart(1), evOut("x"))
		release := make(chan struct{})
		begun := make(chan struct{})
		p, err := f.inMemory(t).Commands.Start(t.Context(), "x", &e2b.RunOptions{Stdout: writerFunc(func(p []byte) (int, error) {
			close(begun)
			<-release
			return len(p), nil
		})})
		require.NoError(t, err)
		<-begun
		require.NoError(t, p.Close())
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		begin := time.Now()
		_, err = p.Wait(ctx)
		requireDataKinds(t, err, e2b.ErrClosed)
		require.LessOrEqual(t, time.Since(begin), time.Millisecond)
		close(release)
	})
}
