package e2btest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
)

// A bubble ends when its handles are closed, although what they are of goes on.
func TestScriptedHandlesInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := e2btest.New(t, &e2btest.Options{
			Run:  func(ctx context.Context, _ *e2btest.Command) int { <-ctx.Done(); return 1 },
			Code: func(ctx context.Context, _ *e2btest.Code) error { <-ctx.Done(); return ctx.Err() },
		})
		sbx, err := client.Create(t.Context(), &e2b.CreateOptions{Template: "code-interpreter"})
		require.NoError(t, err)
		require.NoError(t, sbx.Files.Write(t.Context(), "big", make([]byte, 1<<20), nil))
		var handles []io.Closer
		opened := func(handle io.Closer, err error) {
			require.NoError(t, err)
			handles = append(handles, handle)
		}
		opened(sbx.Commands.Start(t.Context(), "sleep 1000", nil))
		opened(sbx.PTY.Start(t.Context(), nil))
		opened(sbx.Files.Watch(t.Context(), "/tmp", nil))
		opened(sbx.StreamCode(t.Context(), "while True: pass", nil))
		opened(sbx.Files.Open(t.Context(), "big", nil))
		for _, handle := range handles {
			require.NoError(t, handle.Close())
		}
	})
}

// A day of an agent that parks itself, in no time.
func TestScriptedDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := e2btest.New(t, &e2btest.Options{
			Run: func(_ context.Context, c *e2btest.Command) int {
				fmt.Fprintln(c.Stdout, c.Line())
				return 3
			},
			Code: func(_ context.Context, c *e2btest.Code) error {
				n, _ := c.Vars["n"].(int)
				c.Vars["n"] = n + 1
				return c.Show(e2b.CodeResult{Text: fmt.Sprint(n + 1), Main: true})
			},
		})
		start := time.Now()
		sbx, err := client.Create(t.Context(), &e2b.CreateOptions{Template: "code-interpreter", OnTimeout: e2b.TimeoutPause, Timeout: 10 * time.Minute})
		require.NoError(t, err)
		for turn := 1; turn <= 24; turn++ {
			sbx, err = client.Connect(t.Context(), sbx.ID(), &e2b.ConnectOptions{Timeout: 10 * time.Minute})
			require.NoError(t, err)
			require.Equal(t, turn > 1, sbx.Resumed())
			exec, err := sbx.RunCode(t.Context(), "n += 1", nil)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(turn), exec.Text())
			res, err := sbx.Commands.Run(t.Context(), "make test", nil)
			exit, ok := errors.AsType[*e2b.ExitError](err)
			require.True(t, ok, err)
			require.Equal(t, 3, exit.ExitCode)
			require.Equal(t, "make test\n", string(res.Stdout))
			err = sbx.Files.Write(t.Context(), "notes/today", []byte("x"), nil)
			require.NoError(t, err)
			pass(time.Hour)
		}
		require.GreaterOrEqual(t, time.Since(start), 24*time.Hour)
		require.Equal(t, 4*time.Hour, server.Sandboxes()[0].Billed.Round(time.Minute))
		killed, err := sbx.Kill(t.Context())
		require.NoError(t, err)
		require.True(t, killed)
	})
}

// pass lets the time of a bubble pass, which takes none.
func pass(d time.Duration) { <-time.After(d) }

// scripted starts a scripted server whose commands are functions by their line.
func scripted(t *testing.T, commands map[string]func(context.Context, *e2btest.Command) int) (*e2btest.Server, *e2b.Client) {
	return e2btest.New(t, &e2btest.Options{Run: func(ctx context.Context, c *e2btest.Command) int {
		run, ok := commands[c.Line()]
		if !ok {
			fmt.Fprintf(c.Stderr, "%s: command not found\n", c.Line())
			return 127
		}
		return run(ctx, c)
	}})
}

func createFrom(t *testing.T, client *e2b.Client, template string) *e2b.Sandbox {
	t.Helper()
	sbx, err := client.Create(t.Context(), &e2b.CreateOptions{Template: template, Timeout: 24 * time.Hour, Env: map[string]string{"OF": "sandbox"}})
	require.NoError(t, err)
	return sbx
}

// untilDone is a command that runs until it is told to end.
func untilDone(ctx context.Context, c *e2btest.Command) int {
	fmt.Fprintln(c.Stdout, "up")
	<-ctx.Done()
	if errors.Is(context.Cause(ctx), e2btest.ErrTerminated) {
		fmt.Fprintln(c.Stdout, "down")
		return 7
	}
	return 0
}

func TestScriptedCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := scripted(t, map[string]func(context.Context, *e2btest.Command) int{
			"cat": func(_ context.Context, c *e2btest.Command) int {
				if _, err := io.Copy(c.Stdout, c.Stdin); err != nil {
					return 1
				}
				return 0
			},
			"describe": func(_ context.Context, c *e2btest.Command) int {
				fmt.Fprintln(c.Stdout, c.Args[0], c.Dir, c.User, c.Env["OF"], c.Env["HOME"], c.Tag, c.Terminal, c.SandboxID != "", c.PID > 0)
				fmt.Fprintln(c.Stderr, "to stderr")
				return 3
			},
			"leave": func(context.Context, *e2btest.Command) int { runtime.Goexit(); return 0 },
		})
		sbx := createFrom(t, client, "base")

		big := strings.Repeat("0123456789abcdef", 1<<16)
		res, err := sbx.Commands.Run(t.Context(), "cat", &e2b.RunOptions{Stdin: strings.NewReader(big)})
		require.NoError(t, err)
		require.Equal(t, big, string(res.Stdout))

		_, err = sbx.Files.MakeDir(t.Context(), "sub", nil)
		require.NoError(t, err)
		res, err = sbx.Commands.Run(t.Context(), "describe", &e2b.RunOptions{Dir: "/home/user/sub", Env: map[string]string{"OF": "call"}, User: "root", Tag: "job"})
		exit, ok := errors.AsType[*e2b.ExitError](err)
		require.True(t, ok, err)
		require.Equal(t, 3, exit.ExitCode)
		require.Equal(t, "to stderr\n", string(exit.Stderr))
		require.Equal(t, "/bin/bash /home/user/sub root call /root job false true true\n", string(res.Stdout))

		for line, code := range map[string]int{"missing": 127, "leave": 1} {
			_, err = sbx.Commands.Run(t.Context(), line, nil)
			exit, ok = errors.AsType[*e2b.ExitError](err)
			require.True(t, ok, err)
			require.Equal(t, code, exit.ExitCode, line)
		}
	})
}

func TestScriptedSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := scripted(t, map[string]func(context.Context, *e2btest.Command) int{"serve": untilDone})
		sbx := createFrom(t, client, "base")
		for _, end := range []struct {
			by     func(context.Context, *e2b.Process) error
			code   int
			signal string
			output string
		}{
			{func(ctx context.Context, p *e2b.Process) error { return p.Signal(ctx, e2b.SIGTERM) }, 7, "", "up\ndown\n"},
			{func(ctx context.Context, p *e2b.Process) error { return p.Signal(ctx, e2b.SIGKILL) }, -1, "killed", "up\n"},
		} {
			var out bytes.Buffer
			p, err := sbx.Commands.Start(t.Context(), "serve", &e2b.RunOptions{Stdout: &out})
			require.NoError(t, err)
			list, err := sbx.Commands.List(t.Context())
			require.NoError(t, err)
			require.Len(t, list, 1)
			require.Equal(t, []e2btest.Process{{PID: p.PID(), Command: "/bin/bash -l -c serve"}}, server.Sandboxes()[0].Processes)
			synctest.Wait()
			require.NoError(t, end.by(t.Context(), p))
			_, err = p.Wait(t.Context())
			exit, ok := errors.AsType[*e2b.ExitError](err)
			require.True(t, ok, err)
			require.Equal(t, end.code, exit.ExitCode)
			require.Equal(t, end.signal, exit.Signal)
			require.Equal(t, end.output, out.String())
			require.NoError(t, p.Close())
		}
		_, err := sbx.Commands.Run(t.Context(), "serve", &e2b.RunOptions{Timeout: time.Hour})
		require.ErrorIs(t, err, e2b.ErrCommandTimeout)
	})
}

// A command that runs is there after a pause, and stands still during it as soon as
// it writes.
func TestScriptedPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written atomic.Int64
		_, client := scripted(t, map[string]func(context.Context, *e2btest.Command) int{
			"tick": func(ctx context.Context, c *e2btest.Command) int {
				for {
					select {
					case <-time.After(time.Minute):
					case <-ctx.Done():
						return 0
					}
					if _, err := fmt.Fprintln(c.Stdout, "tick"); err == nil {
						written.Add(1)
					}
				}
			},
		})
		sbx := createFrom(t, client, "base")
		p, err := sbx.Commands.Start(t.Context(), "tick", nil)
		require.NoError(t, err)
		require.NoError(t, p.Close())
		pass(150 * time.Second)
		require.EqualValues(t, 2, written.Load())
		_, err = sbx.Pause(t.Context(), nil)
		require.NoError(t, err)
		pass(24 * time.Hour)
		require.EqualValues(t, 2, written.Load())

		sbx, err = client.Connect(t.Context(), sbx.ID(), &e2b.ConnectOptions{Timeout: time.Hour})
		require.NoError(t, err)
		list, err := sbx.Commands.List(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, p.PID(), list[0].PID)
		pass(150 * time.Second)
		require.Greater(t, written.Load(), int64(3))

		// Without memory it ends, and the files stay.
		require.NoError(t, sbx.Files.Write(t.Context(), "kept", []byte("x"), nil))
		_, err = sbx.Pause(t.Context(), &e2b.PauseOptions{DropMemory: true})
		require.NoError(t, err)
		sbx, err = client.Connect(t.Context(), sbx.ID(), nil)
		require.NoError(t, err)
		list, err = sbx.Commands.List(t.Context())
		require.NoError(t, err)
		require.Empty(t, list)
		kept, err := sbx.Files.Read(t.Context(), "kept", nil)
		require.NoError(t, err)
		require.Equal(t, "x", string(kept))
	})
}

func TestScriptedTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := scripted(t, map[string]func(context.Context, *e2btest.Command) int{
			"shell": func(_ context.Context, c *e2btest.Command) int {
				cols, rows := c.Size()
				fmt.Fprintf(c.Stdout, "%dx%d\n", cols, rows)
				<-c.Resized
				cols, rows = c.Size()
				fmt.Fprintf(c.Stdout, "%dx%d\n", cols, rows)
				line, _ := bufio.NewReader(c.Stdin).ReadString('\n')
				fmt.Fprint(c.Stderr, "got ", line)
				return 0
			},
		})
		sbx := createFrom(t, client, "base")
		term, err := sbx.PTY.Start(t.Context(), &e2b.TerminalOptions{Cmd: "shell", Cols: 80, Rows: 24})
		require.NoError(t, err)
		defer term.Close()
		out := bufio.NewReader(term)
		first, err := out.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "80x24\n", first)
		require.NoError(t, term.Resize(t.Context(), 100, 30))
		_, err = term.Write([]byte("ls\n"))
		require.NoError(t, err)
		rest, err := io.ReadAll(out)
		require.NoError(t, err)
		require.Equal(t, "100x30\ngot ls\n", string(rest))
	})
}

// A command can be a server on a port of its sandbox.
func TestScriptedPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := scripted(t, map[string]func(context.Context, *e2btest.Command) int{
			"serve": func(ctx context.Context, c *e2btest.Command) int {
				l, err := c.Listen(8080)
				if err != nil {
					fmt.Fprintln(c.Stderr, err)
					return 1
				}
				server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					fmt.Fprint(w, "hello from ", r.URL.Path)
				})}
				defer context.AfterFunc(ctx, func() { server.Close() })()
				server.Serve(l)
				return 0
			},
		})
		sbx := createFrom(t, client, "base")
		p, err := sbx.Commands.Start(t.Context(), "serve", nil)
		require.NoError(t, err)
		defer p.Close()
		synctest.Wait()
		web := &http.Client{Transport: sbx.Transport(8080)}
		get := func() (string, error) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, sbx.URL(8080)+"/index", nil)
			require.NoError(t, err)
			res, err := web.Do(req)
			if err != nil {
				return "", err
			}
			defer res.Body.Close()
			if err := sbx.PortError(res); err != nil {
				return "", err
			}
			body, err := io.ReadAll(res.Body)
			return string(body), err
		}
		body, err := get()
		require.NoError(t, err)
		require.Equal(t, "hello from /index", body)

		_, err = sbx.Commands.Run(t.Context(), "serve", nil)
		require.ErrorContains(t, err, "port 8080 is in use")
		require.NoError(t, p.Signal(t.Context(), e2b.SIGKILL))
		_, err = p.Wait(t.Context())
		require.Error(t, err)
		synctest.Wait()
		_, err = get()
		require.ErrorIs(t, err, e2b.ErrPortClosed)
	})
}

func TestScriptedFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := scripted(t, map[string]func(context.Context, *e2btest.Command) int{
			"build": func(_ context.Context, c *e2btest.Command) int {
				src, err := c.ReadFile("/home/user/src/main.go")
				if err == nil {
					err = c.WriteFile("/home/user/out/bin/main", bytes.ToUpper(src))
				}
				if err == nil {
					src, err = c.ReadFile("src/main.go") // from its directory
				}
				if err == nil && (len(src) == 0 || c.WriteFile("/new/", nil) == nil) {
					err = errors.New("a name that is none was taken")
				}
				if err != nil {
					fmt.Fprintln(c.Stderr, err)
					return 1
				}
				return 0
			},
		})
		sbx := createFrom(t, client, "base")
		w, err := sbx.Files.Watch(t.Context(), ".", &e2b.WatchOptions{Recursive: true})
		require.NoError(t, err)
		require.NoError(t, sbx.Files.Write(t.Context(), "src/main.go", []byte("package main"), nil))
		_, err = sbx.Commands.Run(t.Context(), "build", nil)
		require.NoError(t, err)
		var seen []string
		for ev, err := range w.Events(t.Context()) {
			require.NoError(t, err)
			seen = append(seen, ev.Name)
			if ev.Name == "out/bin/main" {
				break
			}
		}
		require.NoError(t, w.Close())
		require.Contains(t, seen, "src")
		require.Contains(t, seen, "src/main.go")

		fsys := sbx.Files.FS(t.Context(), ".")
		require.NoError(t, fstest.TestFS(fsys, "src/main.go", "out/bin/main"))
		info, err := sbx.Files.Stat(t.Context(), "out/bin/main", nil)
		require.NoError(t, err)
		require.Equal(t, "user", info.Owner)

		// What a snapshot and a fork have is their own.
		forks, err := sbx.Fork(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, forks[0].Err)
		fork := forks[0].Sandbox
		require.NoError(t, fork.Files.Write(t.Context(), "src/main.go", []byte("package fork"), nil))
		for of, want := range map[*e2b.Sandbox]string{sbx: "package main", fork: "package fork"} {
			text, err := of.Files.Read(t.Context(), "src/main.go", nil)
			require.NoError(t, err)
			require.Equal(t, want, string(text))
		}
		for name, want := range map[string]error{"src/main.go/x": nil, "nowhere": fs.ErrNotExist} {
			_, err := sbx.Files.Read(t.Context(), name, nil)
			require.Error(t, err, name)
			if want != nil {
				require.ErrorIs(t, err, want)
			}
		}
	})
}

// An old envd is played, and not only named.
func TestOldEnvd(t *testing.T) {
	t.Parallel()
	_, client := e2btest.New(t, &e2btest.Options{EnvdVersion: "0.5.1", Run: func(context.Context, *e2btest.Command) int { return 0 }})
	sbx, err := client.Create(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "0.5.1", sbx.EnvdVersion())
	require.NoError(t, sbx.Files.Write(t.Context(), "file", []byte("as a form"), nil))
	data, err := sbx.Files.Read(t.Context(), "file", nil)
	require.NoError(t, err)
	require.Equal(t, "as a form", string(data))
	_, err = sbx.Commands.Run(t.Context(), "cat", &e2b.RunOptions{Stdin: strings.NewReader("x")})
	require.ErrorIs(t, err, e2b.ErrNotSupported)

	url, err := sbx.UploadURL("raw", nil)
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("x"))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/octet-stream")
	req.URL.Host, req.Host = sbx.Host(49983), ""
	resp, err := (&http.Client{Transport: sbx.Transport(49983)}).Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.GreaterOrEqual(t, resp.StatusCode, 400, "raw bodies came with 0.5.7")
}

func TestScriptedCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := e2btest.New(t, &e2btest.Options{Code: func(ctx context.Context, c *e2btest.Code) error {
			switch c.Text {
			case "fail":
				return &e2b.ExecutionError{Name: "ValueError", Value: "bad", Traceback: "line 1"}
			case "none":
				var none *e2b.ExecutionError
				return none
			case "odd":
				return errors.New("out of luck")
			case "show":
				fmt.Fprint(c.Stdout, "printed")
				fmt.Fprint(c.Stderr, "warned")
				return errors.Join(
					c.Show(e2b.CodeResult{PNG: []byte("\x89PNG\xff"), Extra: map[string]json.RawMessage{"x/y": []byte(`"z"`)}}),
					c.Show(e2b.CodeResult{Text: "ü", JSON: []byte(`{"a":1}`), Main: true}))
			case "wait":
				<-ctx.Done()
				return ctx.Err()
			}
			c.Vars[c.Text] = true
			return c.Show(e2b.CodeResult{Text: fmt.Sprintln(c.Language, c.Env["OF"], len(c.Vars), c.Count), Main: true})
		}})
		sbx := createFrom(t, client, "code-interpreter")
		ctx := t.Context()

		exec, err := sbx.RunCode(ctx, "fail", nil)
		require.NoError(t, err)
		require.Equal(t, &e2b.ExecutionError{Name: "ValueError", Value: "bad", Traceback: "line 1"}, exec.Error)
		exec, err = sbx.RunCode(ctx, "odd", nil)
		require.NoError(t, err)
		require.Equal(t, &e2b.ExecutionError{Name: "Error", Value: "out of luck"}, exec.Error)

		exec, err = sbx.RunCode(ctx, "none", nil)
		require.NoError(t, err)
		require.Nil(t, exec.Error)
		exec, err = sbx.RunCode(ctx, "show", nil)
		require.NoError(t, err)
		require.Nil(t, exec.Error)
		require.Equal(t, "ü", exec.Text())
		require.Equal(t, []byte("\x89PNG\xff"), exec.PNG())
		require.JSONEq(t, `{"a":1}`, string(exec.Results[1].JSON))
		require.JSONEq(t, `"z"`, string(exec.Results[0].Extra["x/y"]))
		require.Equal(t, "printed", exec.Stdout)
		require.Equal(t, "warned", exec.Stderr)

		short, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		_, err = sbx.RunCode(short, "wait", nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		_, err = sbx.RunCode(ctx, "a", nil)
		require.NoError(t, err)
		exec, err = sbx.RunCode(ctx, "b", &e2b.CodeOptions{Env: map[string]string{"OF": "call"}})
		require.NoError(t, err)
		require.Equal(t, "python call 2 7\n", exec.Text())
		own, err := sbx.NewCodeContext(ctx, &e2b.CodeContextOptions{Language: "r"})
		require.NoError(t, err)
		exec, err = sbx.RunCode(ctx, "c", &e2b.CodeOptions{Context: own.ID})
		require.NoError(t, err)
		require.Equal(t, "r sandbox 1 1\n", exec.Text())

		// What variables are is kept with memory, and gone without.
		_, err = sbx.Pause(ctx, nil)
		require.NoError(t, err)
		sbx, err = client.Connect(ctx, sbx.ID(), nil)
		require.NoError(t, err)
		exec, err = sbx.RunCode(ctx, "d", nil)
		require.NoError(t, err)
		require.Equal(t, "python sandbox 3 8\n", exec.Text())
		_, err = sbx.Pause(ctx, &e2b.PauseOptions{DropMemory: true})
		require.NoError(t, err)
		sbx, err = client.Connect(ctx, sbx.ID(), nil)
		require.NoError(t, err)
		exec, err = sbx.RunCode(ctx, "e", nil)
		require.NoError(t, err)
		require.Equal(t, "python sandbox 1 1\n", exec.Text())

		// No function runs commands here, and the base template has no interpreter.
		_, err = sbx.Commands.Run(ctx, "ls", nil)
		require.ErrorContains(t, err, "no function")
		_, err = createFrom(t, client, "base").RunCode(ctx, "a", nil)
		require.ErrorIs(t, err, e2b.ErrPortClosed)
	})
}

// What would stop the time of a bubble: a reader that does not read, two who close or
// advance at the same time.
func TestScriptedTimeGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := e2btest.New(t, &e2btest.Options{
			Run: func(ctx context.Context, c *e2btest.Command) int {
				fmt.Fprintln(c.Stdout, "hello")
				if c.Line() == "wait" {
					<-ctx.Done()
					pass(time.Second)
				}
				return 0
			},
			Faults: []e2btest.Fault{{Node: e2btest.NodePause, DelayBefore: 5 * time.Second}},
		})
		sbx, err := client.Create(t.Context(), &e2b.CreateOptions{OnTimeout: e2b.TimeoutPause, Timeout: time.Hour})
		require.NoError(t, err)
		term, err := sbx.PTY.Start(t.Context(), nil)
		require.NoError(t, err)
		pass(time.Minute) // in which nobody reads
		require.NoError(t, term.Close())
		p, err := sbx.Commands.Start(t.Context(), "wait", nil)
		require.NoError(t, err)
		require.NoError(t, p.Close())

		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { server.Advance(time.Hour) })
		}
		both.Wait()
		for range 2 {
			both.Go(func() {
				if err := server.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
	})
}

// SIGTERM ends a read, and what is written after it is still seen.
func TestScriptedReadEndsWithSIGTERM(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := scripted(t, map[string]func(context.Context, *e2btest.Command) int{
			"read": func(_ context.Context, c *e2btest.Command) int {
				text, err := io.ReadAll(c.Stdin)
				fmt.Fprintln(c.Stdout, string(text), err, c.Stdout == c.Stderr)
				return 9
			},
		})
		sbx := createFrom(t, client, "base")
		var out bytes.Buffer
		p, err := sbx.Commands.Start(t.Context(), "read", &e2b.RunOptions{KeepStdin: true, Stdout: &out})
		require.NoError(t, err)
		_, err = p.Write([]byte("some"))
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, p.Signal(t.Context(), e2b.SIGTERM))
		_, err = p.Wait(t.Context())
		exit, ok := errors.AsType[*e2b.ExitError](err)
		require.True(t, ok, err)
		require.Equal(t, 9, exit.ExitCode)
		require.Equal(t, "some the command got SIGTERM false\n", out.String())
		require.NoError(t, p.Close())
	})
}

// A server with an address is there for any client, and still starts no process.
func TestScriptedWithAddress(t *testing.T) {
	server, client := e2btest.New(t, &e2btest.Options{
		Addr: "127.0.0.1:0",
		Run:  func(_ context.Context, c *e2btest.Command) int { fmt.Fprint(c.Stdout, "ran"); return 0 },
	})
	require.Nil(t, server.ClientOptions().Transport)
	sbx := createFrom(t, client, "base")
	res, err := sbx.Commands.Run(t.Context(), "x", nil)
	require.NoError(t, err)
	require.Equal(t, "ran", string(res.Stdout))
	ok, reason := server.Isolated()
	require.True(t, ok, reason)
	_, err = server.Python()
	require.Error(t, err)
}
