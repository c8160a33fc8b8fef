package e2b_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
)

// newSandbox starts an emulator with one sandbox that can run code.
func newSandbox(t *testing.T, opts *e2b.CreateOptions) (*e2btest.Server, *e2b.Client, *e2b.Sandbox) {
	t.Helper()
	server, client := e2btest.New(t, nil)
	if opts == nil {
		opts = &e2b.CreateOptions{}
	}
	opts.Template = "code-interpreter"
	sbx, err := client.Create(t.Context(), opts)
	require.NoError(t, err)
	return server, client, sbx
}

func runCode(t *testing.T, sbx *e2b.Sandbox, code string) string {
	t.Helper()
	exec, err := sbx.RunCode(t.Context(), code, nil)
	require.NoError(t, err)
	require.Nil(t, exec.Error)
	return exec.Text()
}

func run(t *testing.T, sbx *e2b.Sandbox, cmd string) string {
	t.Helper()
	res, err := sbx.Commands.Run(t.Context(), cmd, nil)
	require.NoError(t, err)
	return string(res.Stdout)
}

// eventually repeats check until it holds or the test's time is over.
func eventually(t *testing.T, check func() bool) {
	t.Helper()
	require.Eventually(t, check, 20*time.Second, 10*time.Millisecond)
}

func TestTurns(t *testing.T) {
	t.Parallel()
	_, client, sbx := newSandbox(t, nil)
	runCode(t, sbx, "x = 41")
	require.NoError(t, sbx.Files.Write(t.Context(), "/data/sales.csv", []byte("a,b\n1,2\n"), nil))
	// A daemon in a session of its own, which no signal to a group reaches.
	proc, err := sbx.Commands.Start(t.Context(), "setsid -f sh -c 'while :; do n=$((n+1)); echo $n >/tmp/n.new; mv /tmp/n.new /tmp/n; done' </dev/null >/dev/null 2>&1; sleep 1000", nil)
	require.NoError(t, err)
	eventually(t, func() bool {
		b, err := sbx.Files.Read(t.Context(), "/tmp/n", nil)
		return err == nil && len(b) > 0
	})
	for turn := range 3 {
		paused, err := sbx.Pause(t.Context(), nil)
		require.NoError(t, err)
		require.True(t, paused)
		if turn == 0 {
			_, err = proc.Wait(t.Context())
			require.ErrorIs(t, err, e2b.ErrSandboxNotRunning)
		}
		paused, err = client.Pause(t.Context(), sbx.ID(), nil)
		require.NoError(t, err)
		require.False(t, paused, "it was paused already")
		running, err := sbx.IsRunning(t.Context())
		require.NoError(t, err)
		require.False(t, running)
		_, err = sbx.Commands.Run(t.Context(), "true", nil)
		require.ErrorIs(t, err, e2b.ErrSandboxNotRunning)
		_, err = sbx.Files.Read(t.Context(), "/data/sales.csv", nil)
		require.ErrorIs(t, err, e2b.ErrSandboxNotRunning)
		_, err = sbx.RunCode(t.Context(), "x", nil)
		require.ErrorIs(t, err, e2b.ErrSandboxNotRunning)
		require.ErrorIs(t, sbx.SetTimeout(t.Context(), time.Hour), e2b.ErrSandboxNotRunning)

		sbx, err = client.Connect(t.Context(), sbx.ID(), nil)
		require.NoError(t, err)
		require.True(t, sbx.Resumed())
		require.Equal(t, fmt.Sprint(42+turn), runCode(t, sbx, "x += 1; x"))
		require.Equal(t, "a,b\n1,2\n", run(t, sbx, "cat /data/sales.csv"))
		list, err := sbx.Commands.List(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, proc.PID(), list[0].PID)
		before := run(t, sbx, "cat /tmp/n")
		eventually(t, func() bool { return run(t, sbx, "cat /tmp/n") != before })
	}
	killed, err := sbx.Kill(t.Context())
	require.NoError(t, err)
	require.True(t, killed)
	killed, err = sbx.Kill(t.Context())
	require.NoError(t, err)
	require.False(t, killed)
	_, err = client.Connect(t.Context(), sbx.ID(), nil)
	require.ErrorIs(t, err, e2b.ErrSandboxNotFound)
}

func TestAutoPause(t *testing.T) {
	t.Parallel()
	server, client := e2btest.New(t, nil)
	sbx, err := client.BetaCreate(t.Context(), &e2b.BetaCreateOptions{
		Template: "code-interpreter", Timeout: time.Minute, AutoPause: true,
	})
	require.NoError(t, err)
	runCode(t, sbx, "state = 'kept'")
	for range 2 {
		server.Advance(45 * time.Second) // the rest is for a slow machine, as real time counts too
		info, err := sbx.Info(t.Context())
		require.NoError(t, err)
		require.Equal(t, e2b.StateRunning, info.State)
		server.Advance(15 * time.Second)
		info, err = sbx.Info(t.Context())
		require.NoError(t, err)
		require.Equal(t, e2b.StatePaused, info.State)
		require.Equal(t, e2b.TimeoutPause, info.OnTimeout)
		require.NoError(t, sbx.Connect(t.Context(), nil), "with the lifetime of the create")
		require.True(t, sbx.Resumed())
		require.Equal(t, "kept", runCode(t, sbx, "state"))
	}
}

func TestTimeoutKills(t *testing.T) {
	t.Parallel()
	server, client, sbx := newSandbox(t, &e2b.CreateOptions{Timeout: time.Minute})
	require.NoError(t, sbx.SetTimeout(t.Context(), 10*time.Second))
	server.Advance(11 * time.Second)
	_, err := client.Info(t.Context(), sbx.ID())
	require.ErrorIs(t, err, e2b.ErrSandboxNotFound)
}

func TestFilesystemOnlyPause(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	runCode(t, sbx, "x = 1")
	require.NoError(t, sbx.Files.Write(t.Context(), "/data/kept", []byte("kept"), nil))
	_, err := sbx.Commands.Start(t.Context(), "sleep 1000", nil)
	require.NoError(t, err)
	_, err = sbx.Pause(t.Context(), &e2b.PauseOptions{DropMemory: true})
	require.NoError(t, err)
	require.NoError(t, sbx.Connect(t.Context(), nil))
	list, err := sbx.Commands.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, list, "processes end")
	require.Equal(t, "kept", run(t, sbx, "cat /data/kept"), "files stay")
	exec, err := sbx.RunCode(t.Context(), "x", nil)
	require.NoError(t, err)
	require.NotNil(t, exec.Error, "variables are gone")
	require.Equal(t, "NameError", exec.Error.Name)
}

func TestReboot(t *testing.T) {
	t.Parallel()
	_, client, sbx := newSandbox(t, nil)
	require.NoError(t, sbx.Files.Write(t.Context(), "kept", []byte("kept"), nil))
	_, err := sbx.Commands.Start(t.Context(), "sleep 1000", nil)
	require.NoError(t, err)
	_, err = sbx.Pause(t.Context(), nil)
	require.NoError(t, err)
	sbx, err = client.Connect(t.Context(), sbx.ID(), &e2b.ConnectOptions{OnResume: e2b.OnResume{Reboot: true}})
	require.NoError(t, err)
	list, err := sbx.Commands.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, list)
	require.Equal(t, "kept", run(t, sbx, "cat kept"))
}

func TestSandboxesAreApart(t *testing.T) {
	t.Parallel()
	server, client, one := newSandbox(t, nil)
	if isolated, why := server.Isolated(); !isolated {
		t.Logf("no namespaces here (%s): nothing to compare", why)
		return
	}
	two, err := client.Create(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, one.Files.Write(t.Context(), "/data/secret", []byte("one"), nil))
	_, err = two.Files.Read(t.Context(), "/data/secret", nil)
	require.ErrorContains(t, err, "/data/secret")
	p, err := one.Commands.Start(t.Context(), "exec -a only-in-one sleep 1000", nil)
	require.NoError(t, err)
	require.Contains(t, run(t, one, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"), "only-in-one")
	require.NotContains(t, run(t, two, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"), "only-in-one")
	killed, err := p.Kill(t.Context())
	require.NoError(t, err)
	require.True(t, killed)
}

// sleeping has a command run for long, and returns how it ended.
func sleeping(t *testing.T, sbx *e2b.Sandbox) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := sbx.Commands.Run(context.WithoutCancel(t.Context()), "sleep 999", nil)
		done <- err
	}()
	eventually(t, func() bool {
		list, err := sbx.Commands.List(t.Context())
		return err == nil && len(list) == 1
	})
	return done
}

func TestKillEndsOwnRun(t *testing.T) { // USERS G14
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	done := sleeping(t, sbx)
	_, err := sbx.Kill(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, <-done, e2b.ErrSandboxNotRunning)
}

func TestForeignKillEndsRun(t *testing.T) { // USERS A19
	t.Parallel()
	_, client, sbx := newSandbox(t, nil)
	done := sleeping(t, sbx)
	_, err := client.Kill(t.Context(), sbx.ID())
	require.NoError(t, err)
	err = <-done
	require.ErrorIs(t, err, e2b.ErrSandboxNotRunning)
	require.NotContains(t, err.Error(), "timeout", "the cause is not known")
}

func TestRunCodeAfterCancel(t *testing.T) {
	t.Parallel()
	_, client, sbx := newSandbox(t, nil)
	runCode(t, sbx, "x = 7")
	for i := range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		out := &notifier{ch: make(chan struct{}, 1)}
		done := make(chan error, 1)
		go func() {
			_, err := sbx.RunCode(ctx, "print('begun', flush=True)\nwhile True: pass", &e2b.CodeOptions{Stdout: out})
			done <- err
		}()
		<-out.ch
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		if i%2 == 1 { // a new handle knows what the old one left
			var err error
			sbx, err = client.Connect(t.Context(), sbx.ID(), nil)
			require.NoError(t, err)
		}
		require.Equal(t, "7", runCode(t, sbx, "x"))
	}
}

func TestRunCodeTimeout(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	runCode(t, sbx, "1") // the kernel starts with the first cell
	exec, err := sbx.RunCode(t.Context(), "print('first', flush=True)\nwhile True: pass", &e2b.CodeOptions{Timeout: 2 * time.Second})
	require.ErrorIs(t, err, e2b.ErrCommandTimeout)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, "first\n", exec.Stdout)
	require.Equal(t, "2", runCode(t, sbx, "1 + 1"))
}

// notifier tells that something was written.
type notifier struct{ ch chan struct{} }

func (n *notifier) Write(p []byte) (int, error) {
	select {
	case n.ch <- struct{}{}:
	default:
	}
	return len(p), nil
}

func TestRunCodeEnv(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, &e2b.CreateOptions{Env: map[string]string{"WIDE": "every"}})
	odd := "it's \"quoted\" \\ back\nslash $HOME ü"
	exec, err := sbx.RunCode(t.Context(), "import os; os.environ['ODD']", &e2b.CodeOptions{Env: map[string]string{"ODD": odd}})
	require.NoError(t, err)
	require.Nil(t, exec.Error)
	exec, err = sbx.RunCode(t.Context(), "print(os.environ['ODD'], end='')", &e2b.CodeOptions{Env: map[string]string{"ODD": odd}})
	require.NoError(t, err)
	require.Equal(t, odd, exec.Stdout)
	require.Equal(t, "every", runCode(t, sbx, "os.environ['WIDE']"))
	require.Equal(t, "False", runCode(t, sbx, "'ODD' in os.environ"))
}

func TestMetadataFoundAgain(t *testing.T) {
	t.Parallel()
	_, client := e2btest.New(t, nil)
	odd := map[string]string{
		"plain": "v", "a&b": "c=d", "e+f": "g%h", "ü/": "\"quotes\" and 'these'", "lines": "one\ntwo", "big": strings.Repeat("x", 100<<10),
	}
	sbx, err := client.Create(t.Context(), &e2b.CreateOptions{Metadata: odd})
	require.NoError(t, err)
	other, err := client.Create(t.Context(), &e2b.CreateOptions{Metadata: map[string]string{"plain": "w"}})
	require.NoError(t, err)
	for key, value := range odd {
		var ids []string
		for info, err := range client.List(t.Context(), &e2b.ListOptions{Metadata: map[string]string{key: value}}) {
			require.NoError(t, err)
			require.Equal(t, odd, info.Metadata)
			ids = append(ids, info.ID)
		}
		require.Equal(t, []string{sbx.ID()}, ids, key)
	}
	require.NotEqual(t, sbx.ID(), other.ID())
}

func TestCommands(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, &e2b.CreateOptions{Env: map[string]string{"WIDE": "every"}})
	res, err := sbx.Commands.Run(t.Context(), `echo "$WIDE $OWN"; pwd; whoami; echo oops >&2; exit 3`, &e2b.RunOptions{
		Dir: "/tmp", User: "root", Env: map[string]string{"OWN": "this"},
	})
	var exit *e2b.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 3, exit.ExitCode)
	require.Equal(t, "oops\n", string(exit.Stderr))
	require.Equal(t, "every this\n/tmp\nroot\n", string(res.Stdout))
	require.Equal(t, "oops\n", string(res.Stderr))

	res, err = sbx.Commands.Run(t.Context(), "cat; echo end", &e2b.RunOptions{Stdin: strings.NewReader("in\n")})
	require.NoError(t, err)
	require.Equal(t, "in\nend\n", string(res.Stdout))

	res, err = sbx.Commands.Run(t.Context(), "echo first; exec sleep 999", &e2b.RunOptions{Timeout: 300 * time.Millisecond})
	require.ErrorIs(t, err, e2b.ErrCommandTimeout)
	require.Equal(t, "first\n", string(res.Stdout))

	_, err = sbx.Commands.Run(t.Context(), "true", &e2b.RunOptions{Dir: "/no/such"})
	require.ErrorIs(t, err, e2b.ErrInvalidArgument)
	_, err = sbx.Commands.Run(t.Context(), "true", &e2b.RunOptions{User: "nobody-here"})
	require.ErrorIs(t, err, e2b.ErrUnauthenticated)

	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	res, err = sbx.Commands.Run(ctx, "echo begun; exec sleep 998", nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, "begun\n", string(res.Stdout))
	eventually(t, func() bool {
		list, err := sbx.Commands.List(t.Context())
		return err == nil && len(list) == 0
	})
}
