//go:build linux || darwin

package box_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/box"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

func TestRun(t *testing.T) {
	forEachMode(t, func(t *testing.T, n *box.Node) {
		t.Setenv("HOST_SECRET", "open sesame")
		g := start(t, n, "a")
		require.Equal(t, "blue true a code-interpreter", g.run(t, `echo $COLOUR $E2B_SANDBOX $E2B_SANDBOX_ID $E2B_TEMPLATE_ID`))
		for _, user := range []string{"user", "root"} {
			require.NotContains(t, g.runAs(t, user, "env"), "open sesame")
		}
		g.run(t, `[ "$PWD" = "$HOME" ] && echo 1,2 >sales.csv`)
		data, err := os.ReadFile(filepath.Join(box.Root(g.Sandbox), "home/user/sales.csv"))
		require.NoError(t, err)
		require.Equal(t, "1,2\n", string(data))
	})
}

func TestAccessToken(t *testing.T) {
	n := plainMode.shared(t)
	g := start(t, n, "a")
	conn, err := g.Dial(t.Context(), node.EnvdPort)
	require.NoError(t, err)
	defer conn.Close()
	require.Equal(t, http.StatusUnauthorized, get(t, conn, "/envs"))
}

// get sends a request and returns the status of the answer.
func get(t *testing.T, conn net.Conn, path string) int {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://sandbox"+path, nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	return resp.StatusCode
}

func TestInterpreterPort(t *testing.T) {
	forEachMode(t, func(t *testing.T, n *box.Node) {
		g := start(t, n, "a")
		conn, err := g.Dial(t.Context(), node.InterpreterPort)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, get(t, conn, "/health"))
	})
}

func TestBaseHasNoInterpreter(t *testing.T) {
	forEachMode(t, func(t *testing.T, n *box.Node) {
		s, err := n.Start(t.Context(), node.Spec{ID: "base", Template: node.BaseTemplate})
		require.NoError(t, err)
		_, err = s.Dial(t.Context(), node.InterpreterPort)
		require.ErrorIs(t, err, node.ErrPortClosed)
		require.NoError(t, s.Kill())
	})
}

func TestPython(t *testing.T) {
	forEachMode(t, func(t *testing.T, n *box.Node) {
		path, err := n.Python()
		if err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatal(err)
			}
			t.Skip("this machine has no python3: ", err)
		}
		g := start(t, n, "a")
		// As a path in every mode; by name where no profile of the host resets PATH.
		require.Equal(t, path, g.run(t, path+` -c 'import sys, json, ssl; print(sys.executable)'`))
		if ok, _ := n.Isolated(); ok {
			require.Equal(t, path, g.run(t, `python3 -c 'import sys; print(sys.executable)'`))
		}
	})
}

func TestFreeze(t *testing.T) {
	forEachMode(t, func(t *testing.T, n *box.Node) {
		g := start(t, n, "a")
		g.startCounter(t)
		for range 2 {
			require.NoError(t, g.Pause(t.Context(), true))
			before := g.count(t)
			require.NoError(t, g.Pause(t.Context(), true), "again")
			_, err := g.Dial(t.Context(), node.EnvdPort)
			require.ErrorIs(t, err, box.ErrNotRunning)
			// Enough work for a counter to get on with it.
			b := start(t, n, "b")
			require.Equal(t, "work", b.run(t, "echo work"))
			require.NoError(t, b.Kill())
			require.Equal(t, before, g.count(t))

			require.NoError(t, g.Resume(t.Context(), false))
			require.NoError(t, g.Resume(t.Context(), false), "again")
			eventually(t, func() bool { return g.count(t) > before }, "it does not count on")
			require.Equal(t, "awake", g.run(t, "echo awake"))
		}
	})
}

// Pause ends connections, as it does on the real proxy.
func TestFreezeEndsConnections(t *testing.T) {
	forEachMode(t, func(t *testing.T, n *box.Node) {
		g := start(t, n, "a")
		sleep := fmt.Sprintf("sleep 1000.%d", os.Getpid()) // without isolation others are seen, too
		ended := make(chan error, 1)
		go func() {
			_, _, err := g.try(t.Context(), "user", "touch started; exec "+sleep)
			ended <- err
		}()
		eventually(t, func() bool {
			_, err := os.Stat(filepath.Join(box.Root(g.Sandbox), "home/user/started"))
			return err == nil
		}, "the command does not start")
		require.NoError(t, g.Pause(t.Context(), true))
		require.Error(t, <-ended)
		require.NoError(t, g.Resume(t.Context(), false))
		require.Equal(t, "1", g.run(t, "ps ax | grep -c '["+sleep[:1]+"]"+sleep[1:]+"'"), "the command has ended")
	})
}

// What the user has stopped stays so.
func TestFreezeKeepsStopped(t *testing.T) {
	forEachMode(t, func(t *testing.T, n *box.Node) {
		g := start(t, n, "a")
		pid := g.run(t, `(exec >/dev/null 2>&1; echo yes >ready; exec sleep 1000) &
while [ ! -s ready ]; do :; done; kill -STOP $!; echo $!`)
		state := func() string { return g.run(t, "ps -o stat= -p "+pid)[:1] }
		eventually(t, func() bool { return state() == "T" }, "it is not stopped")
		require.NoError(t, g.Pause(t.Context(), true))
		require.NoError(t, g.Resume(t.Context(), false))
		require.Equal(t, "T", state())
	})
}

func TestPauseFilesystemOnly(t *testing.T) {
	forEachMode(t, func(t *testing.T, n *box.Node) {
		g := start(t, n, "a")
		g.startCounter(t)
		g.run(t, "echo kept >file; mkdir -p dir; ln -s file dir/link")
		pids, err := processes(g.Sandbox)
		require.NoError(t, err)
		require.Greater(t, len(pids), 1)

		require.NoError(t, g.Pause(t.Context(), false))
		requireGone(t, pids)
		_, err = g.Dial(t.Context(), node.EnvdPort)
		require.ErrorIs(t, err, box.ErrNotRunning)
		require.NoError(t, g.Pause(t.Context(), false), "again")
		require.NoError(t, g.Pause(t.Context(), true), "again")

		require.NoError(t, g.Resume(t.Context(), false))
		require.Equal(t, "kept blue", g.run(t, "echo $(cat file) $COLOUR; rm count"))
		require.Zero(t, g.count(t))
	})
}

func TestReboot(t *testing.T) {
	forEachMode(t, func(t *testing.T, n *box.Node) {
		g := start(t, n, "a")
		g.startCounter(t)
		pids, err := processes(g.Sandbox)
		require.NoError(t, err)
		require.NoError(t, g.Pause(t.Context(), true))
		require.NoError(t, g.Resume(t.Context(), true))
		requireGone(t, pids)
		require.NotEmpty(t, g.run(t, "cat count"))

		// From frozen to off.
		require.NoError(t, g.Pause(t.Context(), true))
		require.NoError(t, g.Pause(t.Context(), false))
		require.NoError(t, g.Resume(t.Context(), false))
		require.NotEmpty(t, g.run(t, "cat count"))
	})
}

func TestKill(t *testing.T) {
	for _, paused := range []bool{false, true} {
		t.Run(fmt.Sprintf("paused=%v", paused), func(t *testing.T) {
			forEachMode(t, func(t *testing.T, n *box.Node) {
				g := start(t, n, "a")
				g.startCounter(t)
				g.run(t, "mkdir -p closed/inner && touch closed/inner/file && chmod 0 closed/inner/file closed/inner closed")
				pids, err := processes(g.Sandbox)
				require.NoError(t, err)
				require.Greater(t, len(pids), 1)
				if paused {
					require.NoError(t, g.Pause(t.Context(), true))
				}
				require.NoError(t, g.Kill())
				requireGone(t, pids)
				require.NoDirExists(t, filepath.Dir(box.Root(g.Sandbox)))

				require.NoError(t, g.Kill(), "again")
				require.ErrorIs(t, g.Pause(t.Context(), true), box.ErrKilled)
				require.ErrorIs(t, g.Resume(t.Context(), false), box.ErrKilled)
				_, err = g.Dial(t.Context(), node.EnvdPort)
				require.ErrorIs(t, err, box.ErrKilled)
			})
		})
	}
}

func TestClose(t *testing.T) {
	forEachFresh(t, func(t *testing.T, n *box.Node) {
		a, b := start(t, n, "a"), start(t, n, "b")
		a.startCounter(t)
		require.NoError(t, b.Pause(t.Context(), true))
		var pids []int
		for _, s := range []node.Sandbox{a.Sandbox, b.Sandbox} {
			p, err := processes(s)
			require.NoError(t, err)
			pids = append(pids, p...)
		}
		require.NoError(t, n.Close())
		requireGone(t, pids)
		require.NoDirExists(t, box.Dir(n))
		_, err := n.Start(t.Context(), spec)
		require.ErrorIs(t, err, box.ErrClosed)
		require.ErrorIs(t, a.Resume(t.Context(), true), box.ErrKilled)
		require.NoError(t, n.Close(), "again")
	})
}

// The end of the owner leaves nothing, however it ends.
func TestOwnerKilled(t *testing.T) {
	jobs := []job{{NoIsolation: true}, {NoIsolation: true, Pause: true}}
	if hasNamespaces {
		jobs = append(jobs, job{}, job{Pause: true}, job{NoCgroup: true, Pause: true})
	}
	for _, j := range jobs {
		t.Run(fmt.Sprintf("isolated=%v,cgroup=%v,paused=%v", !j.NoIsolation, !j.NoCgroup, j.Pause), func(t *testing.T) {
			self, err := os.Executable()
			require.NoError(t, err)
			cmd := exec.CommandContext(t.Context(), self)
			cmd.Env = append(os.Environ(), helperVariable+"=own")
			cmd.Stderr = t.Output()
			in, err := cmd.StdinPipe()
			require.NoError(t, err)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait() // it was killed
			})
			j.Dir = t.TempDir()
			require.NoError(t, json.NewEncoder(in).Encode(j))
			require.NoError(t, json.NewDecoder(out).Decode(&j))
			require.Greater(t, len(j.PIDs), 1)

			require.NoError(t, cmd.Process.Kill())
			require.Error(t, cmd.Wait(), "it was killed")
			requireGone(t, j.PIDs)

			// What is left in files is removed by the next one.
			require.DirExists(t, j.Own)
			other := newNode(t, box.Options{Dir: j.Dir, NoIsolation: true})
			require.NoDirExists(t, j.Own)
			if j.Cgroup != "" {
				newNode(t, box.Options{Dir: j.Dir})
				require.NoDirExists(t, j.Cgroup)
			}
			require.DirExists(t, box.Dir(other))
			newNode(t, box.Options{Dir: j.Dir, NoIsolation: true})
			require.DirExists(t, box.Dir(other), "that of a living owner")
		})
	}
}

func TestConcurrent(t *testing.T) {
	forEachMode(t, func(t *testing.T, n *box.Node) {
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() {
				ctx := t.Context()
				s, err := n.Start(ctx, node.Spec{ID: fmt.Sprint(i)})
				if err != nil {
					errs[i] = err
					return
				}
				g := newGuest(s)
				defer g.disconnect()
				out, _, err := g.try(ctx, "user", "echo $E2B_SANDBOX_ID >id; cat id")
				if err == nil && out != fmt.Sprintln(i) {
					err = fmt.Errorf("output %q", out)
				}
				errs[i] = errors.Join(err, s.Pause(ctx, true), s.Resume(ctx, false))
				errs[i] = errors.Join(errs[i], s.Kill())
			})
		}
		wg.Wait()
		require.NoError(t, errors.Join(errs...))
	})
}

// Close while sandboxes start leaves none of them.
func TestCloseWhileStarting(t *testing.T) {
	forEachFresh(t, func(t *testing.T, n *box.Node) {
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				s, err := n.Start(t.Context(), node.Spec{ID: fmt.Sprint(i)})
				if err == nil {
					_ = s.Pause(t.Context(), true) // it may be killed already
				}
			})
		}
		require.NoError(t, n.Close())
		wg.Wait()
		require.NoDirExists(t, box.Dir(n))
	})
}

func TestTerminal(t *testing.T) {
	forEachMode(t, func(t *testing.T, n *box.Node) {
		g := start(t, n, "a")
		for _, user := range []string{"user", "root"} {
			out, code, err := g.terminal(t.Context(), user, "tty && : >/dev/tty && stty size")
			require.NoError(t, err)
			require.Zero(t, code, out)
			require.Regexp(t, `^/dev/[a-z/]+[0-9]+\r\n24 80\r\n$`, out)
		}
	})
}

func TestForward(t *testing.T) {
	forEachMode(t, func(t *testing.T, n *box.Node) {
		g := start(t, n, "a")
		helper := g.addHelper(t, "echo")
		for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
			var port int
			_, err := fmt.Sscan(g.run(t, helper+" "+address+waitForPort), &port)
			require.NoError(t, err)

			conn, err := g.Dial(t.Context(), port)
			require.NoError(t, err)
			message := strings.Repeat("hello ", 100_000)
			go func() {
				_, _ = io.WriteString(conn, message)
				_ = conn.(interface{ CloseWrite() error }).CloseWrite()
			}()
			got, err := io.ReadAll(conn)
			require.NoError(t, err)
			require.Equal(t, message, string(got))
			require.NoError(t, conn.Close())
		}
		_, err := g.Dial(t.Context(), 1)
		require.ErrorIs(t, err, node.ErrPortClosed)
	})
}

func TestDialContext(t *testing.T) {
	n := plainMode.shared(t)
	g := start(t, n, "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, port := range []int{node.EnvdPort, 1} {
		_, err := g.Dial(ctx, port)
		require.ErrorIs(t, err, context.Canceled)
	}
}

func TestStartErrors(t *testing.T) {
	n := plainMode.shared(t)
	for _, id := range []string{"", "../x", "a/b", "a b", "a.b", strings.Repeat("a", 64)} {
		_, err := n.Start(t.Context(), node.Spec{ID: id})
		require.Error(t, err, "%q", id)
	}
	g := start(t, n, "a")
	_, err := n.Start(t.Context(), node.Spec{ID: "a"})
	require.ErrorIs(t, err, fs.ErrExist)
	require.Equal(t, "here", g.run(t, "echo here"), "the first one was disturbed")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = n.Start(ctx, node.Spec{ID: "b"})
	require.ErrorIs(t, err, context.Canceled)
	require.NoDirExists(t, filepath.Join(box.Dir(n), "b"))
}

func TestSandboxEndsByItself(t *testing.T) {
	forEachMode(t, func(t *testing.T, n *box.Node) {
		g := start(t, n, "a")
		agent, err := os.FindProcess(box.PID(g.Sandbox))
		require.NoError(t, err)
		require.NoError(t, agent.Kill())
		select {
		case <-box.Ended(g.Sandbox):
		case <-time.After(patience):
			t.Fatal("it does not end")
		}
		for _, port := range []int{node.EnvdPort, 80} {
			_, err := g.Dial(t.Context(), port)
			require.ErrorIs(t, err, box.ErrNotRunning)
		}
		require.NoError(t, g.Kill())
	})
}

func TestLongDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 200))
	require.NoError(t, os.Mkdir(dir, 0o755))
	n := newNode(t, box.Options{Dir: dir})
	require.Equal(t, "ok", start(t, n, "a").run(t, "echo ok"))
}

func TestNoDir(t *testing.T) {
	_, err := box.New(box.Options{Dir: filepath.Join(t.TempDir(), "no")})
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func BenchmarkStartKill(b *testing.B) {
	benchmark(b, func(b *testing.B, n *box.Node) {
		for b.Loop() {
			s, err := n.Start(b.Context(), spec)
			require.NoError(b, err)
			require.NoError(b, s.Kill())
		}
	})
}

func BenchmarkPauseResume(b *testing.B) {
	benchmark(b, func(b *testing.B, n *box.Node) {
		g := start(b, n, "a")
		g.startCounter(b)
		for b.Loop() {
			require.NoError(b, g.Pause(b.Context(), true))
			require.NoError(b, g.Resume(b.Context(), false))
		}
	})
}

func benchmark(b *testing.B, run func(b *testing.B, n *box.Node)) {
	for _, m := range modes() {
		b.Run(m.name, func(b *testing.B) { run(b, m.shared(b)) })
	}
}

// Close waits also for the end of a sandbox that is being killed.
func TestCloseDuringKill(t *testing.T) {
	for _, m := range modes() {
		t.Run(m.name, func(t *testing.T) {
			m.shared(t) // or the test ends here, with nothing to close
			n, err := box.New(m.opts)
			require.NoError(t, err)
			spec := spec
			spec.ID = "guest"
			s, err := n.Start(t.Context(), spec)
			require.NoError(t, err)
			ended := box.Ended(s)
			killed := make(chan error, 1)
			go func() { killed <- s.Kill() }()
			for {
				if c, err := s.Dial(t.Context(), 1); errors.Is(err, box.ErrKilled) {
					break
				} else if err == nil {
					c.Close()
				}
			}
			require.NoError(t, n.Close())
			select {
			case <-ended:
			default:
				t.Error("the process lives")
			}
			require.NoError(t, <-killed)
		})
	}
}
