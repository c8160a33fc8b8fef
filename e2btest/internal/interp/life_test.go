//go:build unix

package interp

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fifo makes a named pipe. Code that reads it waits until release.
func (s *service) fifo(name string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	require.NoError(s.t, syscall.Mkfifo(path, 0o600))
	return path
}

func (s *service) release(fifo string) {
	s.t.Helper()
	f, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	require.NoError(s.t, err)
	require.NoError(s.t, f.Close())
}

// kernel is the kernel of the i-th context.
func (s *service) kernel(i int) *process {
	s.t.Helper()
	s.server.mu.Lock()
	c := s.server.contexts[i]
	s.server.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.kernel.(*process)
	require.True(s.t, ok, "a kernel is running")
	return k
}

func (s *service) pid(i int) int { return s.kernel(i).cmd.Process.Pid }

func (s *service) contexts() []contextInfo {
	s.t.Helper()
	status, body := s.call(http.MethodGet, "/contexts", nil)
	require.Equal(s.t, http.StatusOK, status)
	return decode[[]contextInfo](s.t, body)
}

func errorNames(r result) []string {
	var names []string
	for _, l := range r.errors {
		name, _ := l["name"].(string)
		names = append(names, name)
	}
	return names
}

func TestParallelContexts(t *testing.T) {
	s := newService(t, nil)
	a, b := s.context(), s.context()
	// Each waits for the other.
	code := `import os, time
open(%q, "w").close()
while not os.path.exists(%q): time.sleep(0.001)
x = %d`
	fileA, fileB := filepath.Join(s.dir, "a"), filepath.Join(s.dir, "b")
	first := s.start(fmt.Sprintf(code, fileA, fileB, 1), a)
	require.Empty(t, s.run(fmt.Sprintf(code, fileB, fileA, 2), b).errors)
	lines, err := first.rest()
	require.NoError(t, err)
	require.Empty(t, summary(t, lines).errors)
	require.Equal(t, "1", s.run("x", a).main())
	require.Equal(t, "2", s.run("x", b).main())
	require.Len(t, s.run("x").errors, 1)
}

func TestQueue(t *testing.T) {
	s := newService(t, func(c *Config) { c.KeepAlive = 20 * time.Millisecond })
	fifo := s.fifo("go")
	first := s.start("print('a', flush=True); open(" + strconv.Quote(fifo) + ").read()")
	first.wait("stdout")
	second := s.start("print('b')") // its headers are there at once
	third := s.start("print('c')")
	dropped := s.start("ran = True")
	dropped.close()
	for range 3 {
		first.wait("keepalive")
	}
	s.release(fifo)
	_, err := first.rest()
	require.NoError(t, err)
	for i, waiting := range []*response{second, third} {
		lines, err := waiting.rest()
		require.NoError(t, err)
		require.Equal(t, "number_of_executions", lines[0].kind(), "no keepalive in the queue")
		r := summary(t, lines)
		require.Equal(t, i+2, r.count)
		require.Equal(t, string("bc"[i])+"\n", r.stdout)
	}
	require.Equal(t, "False", s.run("'ran' in globals()").main())
}

func TestKeepAlive(t *testing.T) {
	s := newService(t, func(c *Config) { c.KeepAlive = 20 * time.Millisecond })
	fifo := s.fifo("go")
	r := s.start("open(" + strconv.Quote(fifo) + ").read(); 1")
	defer r.close()
	l, err := r.next()
	require.NoError(t, err)
	require.Equal(t, "number_of_executions", l.kind())
	for range 3 {
		l, err = r.next()
		require.NoError(t, err)
		require.Equal(t, line{"type": "keepalive"}, l)
	}
	s.release(fifo)
	r.wait("end_of_execution")
	_, err = r.next()
	require.ErrorIs(t, err, io.EOF)
}

func TestCancel(t *testing.T) {
	for _, c := range []struct{ name, code string }{
		{"sleeping", "x += 1; print('on', flush=True)\nimport time; time.sleep(60)"},
		{"computing", "x += 1; print('on', flush=True)\nwhile True: pass"},
		{"in C", "x += 1; print('on', flush=True)\nimport re; re.match('(a+)+b', 'a' * 60)"},
		{"awaiting", "x += 1; print('on', flush=True)\nimport asyncio; await asyncio.sleep(60)"},
		{"computing in a coroutine", "import asyncio; await asyncio.sleep(0); x += 1; print('on', flush=True)\nwhile True: pass"},
		{"printing", "x += 1\nwhile True: print('on')"},
		{"a child", "x += 1; print('on', flush=True)\nimport subprocess; subprocess.run(['sleep', '60'])"},
		{"a command", "x += 1; print('on', flush=True)\n!sleep 60"},
		{"a command of the C library", "x += 1; print('on', flush=True)\nimport os; os.system('sleep 60')"},
		{"a script", "%%bash\necho on; sleep 60"},
		{"own handler", "x += 1; import signal, time; signal.signal(signal.SIGINT, signal.default_int_handler); print('on', flush=True)\ntime.sleep(60)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newService(t, nil)
			s.run("x = 0")
			r := s.start(c.code)
			r.wait("stdout")
			r.close()
			after := s.run("print(x)")
			require.Equal(t, 3, after.count)
			require.Empty(t, after.errors)
			if !strings.HasPrefix(c.code, "%%") {
				require.Equal(t, "1\n", after.stdout)
			}
		})
	}
}

// Cancels at random moments, from before the code begins until after it has ended,
// lose nothing, hang nothing, and never hit the next cell.
func TestManyCancels(t *testing.T) {
	s := newService(t, nil)
	s.run("import time\nn = ended = struck = 0")
	rnd := rand.New(rand.NewPCG(1, 2))
	cancelled := 0
	for i := range 200 {
		wait := []string{"time.sleep(30)", "time.sleep(0.002)", "sum(range(30_000))", "while n: n = n"}[rnd.IntN(4)]
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(6000))*time.Microsecond)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/execute", strings.NewReader(
			`{"code": "n += 1\ntry:\n    `+wait+`\n    ended += 1\nexcept KeyboardInterrupt: struck += 1"}`))
		require.NoError(t, err)
		resp, err := s.client.Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		cancel()
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancelled++
		}
		r := s.run(fmt.Sprintf("seen = %d\ntime.sleep(0.002)\nprint('ok')", i))
		require.Empty(t, r.errors)
		require.Equal(t, "ok\n", r.stdout)
	}
	r := s.run("seen, n, ended, struck")
	t.Logf("cancelled %d; (seen, n, ended, struck) = %s", cancelled, r.main())
	require.True(t, strings.HasPrefix(r.main(), "(199, "))
	require.Positive(t, cancelled)
	require.Less(t, cancelled, 200)
	require.Equal(t, "True", s.run("n >= ended + struck and ended > 0 and struck > 0").main())
}

func TestInterruptIsSwallowed(t *testing.T) {
	s := newService(t, nil)
	fifo := s.fifo("go")
	r := s.start(`import time
try:
    print("on", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    caught = True
open(` + strconv.Quote(fifo) + `).read()
done = True`)
	r.wait("stdout")
	r.close()
	next := s.start("print(caught, done)")
	s.release(fifo)
	lines, err := next.rest()
	require.NoError(t, err)
	require.Equal(t, "True True\n", summary(t, lines).stdout)
}

func TestStrayInterrupts(t *testing.T) {
	s := newService(t, nil)
	require.Equal(t, "1", s.run("x = 1; x").main())
	require.NoError(t, syscall.Kill(s.pid(0), syscall.SIGINT), "between cells: without effect")
	require.Equal(t, "1", s.run("x").main())
	r := s.run("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)")
	require.Equal(t, []string{"KeyboardInterrupt"}, errorNames(r))
	// Not even a handler that code leaves behind changes that.
	require.Empty(t, s.run("_ = signal.signal(signal.SIGINT, signal.SIG_DFL)").errors)
	require.Equal(t, "1", s.run("x").main())
	r = s.run("os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)")
	require.Equal(t, []string{"KeyboardInterrupt"}, errorNames(r))
	require.Equal(t, "1", s.run("x").main())
}

func TestHangAfterCancel(t *testing.T) {
	s := newService(t, func(c *Config) {
		c.HangAfterCancel = true
		c.KeepAlive = 20 * time.Millisecond
	})
	s.run("x = 0; import time")
	for range 3 {
		r := s.start("x += 1; print('on', flush=True); time.sleep(60)")
		r.wait("stdout")
		queued := s.start("x = -1") // it hangs, although its own client has not cancelled
		r.close()
		for range 5 {
			l, err := queued.next()
			require.NoError(t, err)
			require.Equal(t, "keepalive", l.kind())
		}
		queued.close()
	}
	// Five keepalives later the interrupt has been handled.
	require.Equal(t, "3", s.run("x").main())

	// That the cancelled code ends does not help a request that came before.
	fifo := s.fifo("go")
	r := s.start("try: print('on', flush=True); time.sleep(60)\nexcept KeyboardInterrupt: pass\n" +
		"open(" + strconv.Quote(fifo) + ").read(); x = 7")
	r.wait("stdout")
	r.close()
	lost := s.start("1")
	lost.wait("keepalive")
	s.release(fifo)
	for range 5 {
		lost.wait("keepalive")
	}
	status, _ := s.call(http.MethodPost, "/contexts/"+s.contexts()[0].ID+"/restart", nil)
	require.Equal(t, http.StatusOK, status)
	lines, err := lost.rest()
	require.NoError(t, err)
	require.Equal(t, []string{"WebSocketError", "UnexpectedEndOfExecution"}, errorNames(summary(t, lines)))
	require.Equal(t, 1, s.run("1").count)
}

func TestKernelDeath(t *testing.T) {
	s := newService(t, nil)
	for _, code := range []string{
		"x = 1; import os; print('last words', flush=True); os._exit(1)",
		"x = 1; import os, signal; print('last words', flush=True); os.kill(os.getpid(), signal.SIGKILL)",
		"x = 1; import os; print('last words', flush=True); os.close(4); print(); import time; time.sleep(60)",
	} {
		r := s.run(code)
		require.Equal(t, 1, r.count, code)
		require.Equal(t, []line{{
			"type": "error", "name": "ContextRestarting", "value": "Context was restarted", "traceback": "",
		}}, r.errors, code)
		require.Equal(t, "last words\n", r.stdout, code)
	}
	r := s.run("'x' in globals()")
	require.Equal(t, 1, r.count)
	require.Equal(t, "False", r.main())

	r = s.run("import ctypes; ctypes.string_at(0)")
	require.Equal(t, []string{"ContextRestarting"}, errorNames(r))
	require.Contains(t, r.stderr, "Segmentation fault", "what C code says at the end is not lost")

	// It ends with the program that it serves, whatever it does just then.
	busy := s.start("print('on', flush=True)\nwhile True: pass")
	busy.wait("stdout")
	require.NoError(t, s.kernel(0).requests.Close())
	lines, err := busy.rest()
	require.NoError(t, err)
	require.Equal(t, []string{"ContextRestarting"}, errorNames(summary(t, lines)))

	// Nobody is told when it dies between executions.
	for range 5 {
		require.Equal(t, 1, s.run("1").count)
		require.NoError(t, syscall.Kill(s.pid(0), syscall.SIGKILL))
		r = s.run("2")
		require.Empty(t, r.errors)
		require.Equal(t, 1, r.count)
		require.NoError(t, syscall.Kill(s.pid(0), syscall.SIGKILL))
	}
}

// deadKernel was ready once.
type deadKernel struct{ kernel }

func (deadKernel) ready() <-chan struct{}  { return closedChannel }
func (deadKernel) exited() <-chan struct{} { return closedChannel }
func (deadKernel) failure() error          { return errCut }

var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// A kernel that dies as it is asked for has started all the same.
func TestDeathOfAReadyKernel(t *testing.T) {
	c := &codeContext{kernel: deadKernel{}}
	for range 100 {
		k, err := c.ready(t.Context())
		require.NoError(t, err)
		require.Equal(t, deadKernel{}, k)
	}
}

func TestDeathInTheMiddleOfALine(t *testing.T) {
	s := newService(t, nil)
	r := s.start("print('x' * 50_000_000)")
	defer r.close()
	r.wait("number_of_executions")
	_, err := r.r.Discard(chunkSize)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(s.pid(0), syscall.SIGKILL))
	_, err = io.Copy(io.Discard, r.r)
	require.ErrorIs(t, err, errCut)
	require.Equal(t, 1, s.run("1").count)
}

func TestStoppedKernel(t *testing.T) {
	s := newService(t, nil)
	s.run("x = 5")
	pid := s.pid(0)
	r := s.start("import os, time\nprint('on', flush=True); time.sleep(0.01); os.system('echo child'); print(x)")
	r.wait("stdout")
	require.NoError(t, syscall.Kill(-pid, syscall.SIGSTOP))
	require.NoError(t, syscall.Kill(-pid, syscall.SIGCONT))
	lines, err := r.rest()
	require.NoError(t, err)
	require.Empty(t, summary(t, lines).errors)

	// Stopped between executions, and cancelled while it is stopped.
	require.NoError(t, syscall.Kill(-pid, syscall.SIGSTOP))
	r = s.start("time.sleep(60)")
	waiting := s.start("x")
	r.close()
	require.NoError(t, syscall.Kill(-pid, syscall.SIGCONT))
	lines, err = waiting.rest()
	require.NoError(t, err)
	require.Equal(t, "5", summary(t, lines).main())
}

func TestProcessGroup(t *testing.T) {
	s := newService(t, nil)
	require.Equal(t, "True", s.run("import os; os.getpgrp() == os.getpid()").main())
	group, err := syscall.Getpgid(s.pid(0))
	require.NoError(t, err)
	require.NotEqual(t, syscall.Getpgrp(), group)
}

func TestRestartAndDelete(t *testing.T) {
	s := newService(t, nil)
	ctx := s.context()
	id, _ := ctx["context_id"].(string)
	path := "/contexts/" + id
	s.run("x = 1", ctx)
	r := s.start("print('on', flush=True); import time; time.sleep(60)", ctx)
	r.wait("stdout")
	queued := s.start("'x' in globals()", ctx)
	status, body := s.call(http.MethodPost, path+"/restart", nil)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "null", body)
	lines, err := r.rest()
	require.NoError(t, err)
	require.Equal(t, []line{
		{
			"type": "error", "name": "WebSocketError",
			"value": "The connections was lost, rerun the code to get the results", "traceback": "",
		},
		{
			"type": "error", "name": "UnexpectedEndOfExecution",
			"value": "Connection to the execution was closed before the execution was finished", "traceback": "",
		},
		{"type": "end_of_execution"},
	}, lines)
	lines, err = queued.rest()
	require.NoError(t, err)
	require.Equal(t, "False", summary(t, lines).main())
	require.Equal(t, 1, summary(t, lines).count)

	// Deleted: what runs and what waits is told the same.
	r = s.start("print('on', flush=True); import time; time.sleep(60)", ctx)
	r.wait("stdout")
	queued = s.start("1", ctx)
	status, body = s.call(http.MethodDelete, path, nil)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "null", body)
	for _, r := range []*response{r, queued} {
		lines, err = r.rest()
		require.NoError(t, err)
		require.Equal(t, []string{"WebSocketError", "UnexpectedEndOfExecution"}, errorNames(summary(t, lines)))
	}
	for _, c := range []struct{ method, path string }{
		{http.MethodPost, "/execute"}, {http.MethodDelete, path}, {http.MethodPost, path + "/restart"},
	} {
		status, body = s.call(c.method, c.path, map[string]any{"code": "1", "context_id": id})
		require.Equal(t, http.StatusNotFound, status)
		require.Equal(t, "Context "+id+" not found", body)
	}
}

// Whatever a restart meets, each request gets an answer with an end.
func TestRestartsWhileRunning(t *testing.T) {
	s := newService(t, nil)
	ctx := s.context()
	var clients sync.WaitGroup
	for i := range 3 {
		clients.Go(func() {
			for n := range 4 {
				r := s.start("x = 1; x", ctx)
				switch (i + n) % 3 {
				case 0:
					r.close()
					continue
				case 1:
					status, _ := s.call(http.MethodPost, fmt.Sprintf("/contexts/%v/restart", ctx["context_id"]), nil)
					assert.Equal(t, http.StatusOK, status)
				}
				lines, err := r.rest()
				if assert.NoError(t, err) && assert.NotEmpty(t, lines) {
					assert.Equal(t, "end_of_execution", lines[len(lines)-1].kind())
				}
			}
		})
	}
	clients.Wait()
	require.Equal(t, "1", s.run("x = 1; x", ctx).main())
}

func TestCwd(t *testing.T) {
	s := newService(t, nil)
	other, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for _, c := range []struct{ cwd, listed, real string }{
		{"", s.dir, s.dir},
		{other, other, other},
		{"/does/not/exist", "/does/not/exist", s.dir},
	} {
		status, body := s.call(http.MethodPost, "/contexts", map[string]any{"cwd": c.cwd})
		require.Equal(t, http.StatusOK, status)
		info := decode[contextInfo](t, body)
		require.Equal(t, c.listed, info.Cwd)
		selector := map[string]any{"context_id": info.ID}
		require.Equal(t, c.real, s.run("import os; os.getcwd()", selector).main())
		s.call(http.MethodPost, "/contexts/"+info.ID+"/restart", nil)
		require.Equal(t, s.dir, s.run("import os; os.getcwd()", selector).main())
		require.Contains(t, s.contexts(), info)
	}
}

func TestClose(t *testing.T) {
	s := newService(t, nil)
	// A child in the kernel's process group has a pipe open as long as it lives.
	fifo := s.fifo("alive")
	s.run("import subprocess\n_ = subprocess.Popen(['sh', '-c', 'exec sleep 1000 > " + fifo + "'])")
	alive, err := os.Open(fifo)
	require.NoError(t, err)
	defer func() { require.NoError(t, alive.Close()) }()
	pid := s.pid(0)
	running := s.start("print('on', flush=True); import time; time.sleep(60)")
	running.wait("stdout")
	queued := s.start("1")
	stubborn := s.start("import time; print('on', flush=True)\n"+
		"while True:\n    try: time.sleep(60)\n    except BaseException: pass", s.context())
	stubborn.wait("stdout")

	var closing sync.WaitGroup
	for range 2 {
		closing.Go(s.server.Close)
	}
	closing.Wait()
	for _, r := range []*response{running, queued, stubborn} {
		_, err := r.rest()
		require.ErrorIs(t, err, errCut)
	}
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	_, err = io.Copy(io.Discard, alive)
	require.NoError(t, err, "children have ended, too")
	_, err = s.start("1").rest()
	require.ErrorIs(t, err, errCut)
}

func TestPythonThatDoesNotStart(t *testing.T) {
	dir := t.TempDir()
	script, none := filepath.Join(dir, "python3"), filepath.Join(dir, "none")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\necho out of order >&2\nexit 7\n"), 0o700))
	for _, c := range []struct{ path, want string }{
		{script, "Failed to create context: the kernel did not start: exit status 7: out of order"},
		{none, "Failed to create context: fork/exec " + none + ": no such file or directory"},
	} {
		s := newService(t, func(cfg *Config) { cfg.Python = c.path })
		for range 2 {
			status, body := s.call(http.MethodPost, "/execute", map[string]any{"code": "1"})
			require.Equal(t, http.StatusInternalServerError, status)
			require.Equal(t, c.want, body)
		}
	}
}

func TestFilesNamedLikeModules(t *testing.T) {
	s := newService(t, nil)
	for _, name := range []string{"json", "queue", "asyncio", "signal", "mine"} {
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, name+".py"), []byte("x = 1\n"), 0o600))
	}
	require.Equal(t, "1", s.run("import mine; mine.x").main())
}

func TestKernelThatTalksNonsense(t *testing.T) {
	s := newService(t, nil)
	for _, said := range []string{`"nonsense\n"`, `"{}\n"`, `'{"seq": 1, "end": true, "size": 5}\n'`, `"x" * 100_000`} {
		r := s.run("import os, time; os.write(4, (" + said + ").encode()); time.sleep(60)")
		require.Equal(t, []string{"ContextRestarting"}, errorNames(r))
	}
	require.Equal(t, 1, s.run("1").count)
}
