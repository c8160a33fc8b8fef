//go:build linux || darwin

package envd

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/filesystem"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
)

func TestExit(t *testing.T) {
	w := newWorld(t)
	for _, test := range []struct {
		script       string
		code         int32
		exited       bool
		status, fail string
	}{
		{"true", 0, true, "exit status 0", ""},
		{"exit 3", 3, true, "exit status 3", "exit status 3"},
		{"kill -KILL $$", -1, false, "signal: killed", "signal: killed"},
		{"kill -TERM $$", -1, false, "signal: terminated", "signal: terminated"},
		{"/bin/sh -c 'kill -KILL $$'; exit $?", 137, true, "exit status 137", "exit status 137"},
	} {
		end := w.run(t, test.script).end
		require.Equal(t, test.code, end.GetExitCode(), test.script)
		require.Equal(t, test.exited, end.GetExited(), test.script)
		require.Equal(t, test.status, end.GetStatus(), test.script)
		require.Equal(t, test.fail, end.GetError(), test.script)
		require.Equal(t, test.fail != "", end.Error != nil, test.script)
	}
	require.Empty(t, w.listed(t))
}

func TestCommandThatCannotRun(t *testing.T) {
	w := newWorld(t)
	plain := filepath.Join(w.home, "plain")
	require.NoError(t, os.WriteFile(plain, []byte("x"), 0o644))
	for cmd, code := range map[string]int32{"nosuchcmd": 127, "/no/such/file": 127, plain: 126} {
		r := w.start(t, &process.StartRequest{Process: &process.ProcessConfig{Cmd: cmd}})
		require.Equal(t, code, r.finished().GetExitCode(), cmd)
		require.Contains(t, r.errs.String(), cmd)
	}
	// No command at all is one that does not exist.
	require.NotZero(t, w.start(t, &process.StartRequest{}).finished().GetExitCode())
}

func TestStartErrors(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("x", 256<<10)
	file := filepath.Join(w.home, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	config := func(edit func(*process.ProcessConfig)) *process.StartRequest {
		c := &process.ProcessConfig{Cmd: "true"}
		edit(c)
		return &process.StartRequest{Process: c}
	}
	for _, test := range []struct {
		message string
		req     *process.StartRequest
	}{
		{"cwd '" + w.home + "/none' does not exist", config(func(c *process.ProcessConfig) { c.Cwd = new("none") })},
		{"error starting process 'true': fork/exec /bin/sh: not a directory", config(func(c *process.ProcessConfig) { c.Cwd = &file })},
		{"failed to expand path '' for user 'user': cannot expand user-specific home dir", config(func(c *process.ProcessConfig) { c.Cwd = new("~root") })},
		{`path "/etc" is ` + errOutside.Error(), config(func(c *process.ProcessConfig) { c.Cwd = new("/etc") })},
		{"error starting process 'true a\x00b': fork/exec /bin/sh: invalid argument", config(func(c *process.ProcessConfig) { c.Args = []string{"a\x00b"} })},
		{"error starting process 'true': exec: environment variable contains NUL", config(func(c *process.ProcessConfig) { c.Envs = map[string]string{"A": "\x00"} })},
		{"error starting process 'true " + long + "': fork/exec /bin/sh: argument list too long", config(func(c *process.ProcessConfig) { c.Args = []string{long} })},
		{
			"error starting pty with command 'true' in dir '" + file + "' with '80' cols and '24' rows: fork/exec /bin/sh: not a directory",
			&process.StartRequest{Process: &process.ProcessConfig{Cmd: "true", Cwd: &file}, Pty: &process.PTY{Size: &process.PTY_Size{Cols: 80, Rows: 24}}},
		},
	} {
		if runtime.GOOS != "linux" && strings.Contains(test.message, "too long") {
			continue // the limit is Linux's
		}
		stream, err := w.procs.Start(t.Context(), connect.NewRequest(test.req))
		require.NoError(t, err)
		require.False(t, stream.Receive())
		requireCode(t, connect.CodeInvalidArgument, test.message, stream.Err())
		require.NoError(t, stream.Close())
	}
	require.Empty(t, w.listed(t))
}

func TestEnvironment(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Env = map[string]string{"E2B_SANDBOX": "true", "BOTH": "config"} })
	t.Setenv("OF_THE_SERVER", "1")
	r := w.start(t, &process.StartRequest{Process: &process.ProcessConfig{
		Cmd: "env", Envs: map[string]string{"BOTH": "request", "LOGNAME": "other"},
	}})
	r.finished()
	got := make(map[string]string)
	for line := range strings.Lines(r.out.String()) {
		name, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		got[name] = text
	}
	// What the shell of the system adds is not ours.
	maps.DeleteFunc(got, func(name, _ string) bool {
		return slices.Contains([]string{"PWD", "OLDPWD", "SHLVL", "_", "__CF_USER_TEXT_ENCODING"}, name)
	})
	require.Equal(t, map[string]string{
		"PATH": w.srv.cfg.Path, "HOME": w.home, "USER": "user", "LOGNAME": "other",
		"E2B_SANDBOX": "true", "BOTH": "request",
	}, got)
}

func TestWorkingDirectoryAndUser(t *testing.T) {
	other := t.TempDir()
	w := newWorld(t)
	require.NoError(t, os.MkdirAll(filepath.Join(w.root, "root"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(w.home, "a b"), 0o755))
	require.NoError(t, os.Symlink(filepath.Join(w.home, "a b"), filepath.Join(w.home, "inside")))
	require.NoError(t, os.Symlink(other, filepath.Join(w.home, "outside")))
	for cwd, want := range map[string]string{
		"": w.home, "~": w.home, "~/a b": w.home + "/a b", "a b": w.home + "/a b", "inside": w.home + "/a b", w.root: w.root,
	} {
		r := w.start(t, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "pwd", Cwd: &cwd}})
		r.finished()
		require.Equal(t, want+"\n", r.out.String(), cwd)
	}
	stream, err := w.procs.Start(t.Context(), connect.NewRequest(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "pwd", Cwd: new("outside")}}))
	require.NoError(t, err)
	require.False(t, stream.Receive())
	requireCode(t, connect.CodeInvalidArgument, "stat "+w.home+"/outside: "+errOutside.Error(), stream.Err())
	require.NoError(t, stream.Close())

	r := w.start(t, shell("echo $USER $HOME; pwd"), "Authorization", basic("root"))
	r.finished()
	require.Equal(t, "root "+w.root+"/root\n"+w.root+"/root\n", r.out.String())
}

func TestDefaultDirectory(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.DefaultDir = filepath.Join(c.Root, "app") })
	require.NoError(t, os.MkdirAll(filepath.Join(w.root, "app"), 0o755))
	r := w.run(t, "pwd")
	require.Equal(t, w.root+"/app\n", r.out.String())
	// Only the empty path means it: all relative ones are below the home.
	msg := shell("pwd")
	msg.Process.Cwd = new(".")
	r = w.start(t, msg)
	r.finished()
	require.Equal(t, w.home+"\n", r.out.String())
}

func TestCommandsInheritNoFiles(t *testing.T) {
	// Not even what the program that serves was started with.
	null, err := syscall.Open("/dev/null", syscall.O_RDONLY, 0)
	require.NoError(t, err)
	defer syscall.Close(null)
	w := newWorld(t)
	for range 3 {
		w.start(t, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "cat"}})
		w.start(t, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "cat"}, Pty: &process.PTY{}})
	}
	for _, msg := range []*process.StartRequest{
		{Process: &process.ProcessConfig{Cmd: "ls", Args: []string{"/dev/fd"}}},
		{Process: &process.ProcessConfig{Cmd: "ls", Args: []string{"/dev/fd"}}, Pty: &process.PTY{}},
	} {
		r := w.start(t, msg)
		r.finished()
		// The fourth is the directory itself.
		require.Equal(t, []string{"0", "1", "2", "3"}, strings.Fields(r.out.String()))
	}
}

func TestChunks(t *testing.T) {
	w := newWorld(t)
	r := w.start(t, shell("head -c 1000000 /dev/zero"))
	for r.read() {
		require.LessOrEqual(t, len(r.event().GetData().GetStdout()), pipeChunk)
	}
	require.NoError(t, r.err())
	require.Equal(t, 1000000, r.out.Len())
}

func TestRuneInTwoChunks(t *testing.T) {
	w := newWorld(t)
	msg := shell(`printf 'h\303'; read x; printf '\251!'`)
	msg.Stdin = nil
	r := w.start(t, msg)
	r.until("h\xc3")
	require.Equal(t, "h\xc3", r.out.String())
	w.sendInput(t, r.pid, "\n")
	r.finished()
	require.Equal(t, "hé!", r.out.String())
}

func TestDisconnectDoesNotKill(t *testing.T) {
	w := newWorld(t)
	msg := shell("echo on; read x; head -c 8000000 /dev/zero; echo err >&2; read y; exit 5")
	msg.Stdin = new(true)
	r := w.start(t, msg)
	r.until("on\n")
	r.cancel()
	require.Error(t, r.rest())
	s := w.srv
	eventually(t, "no reader", func() bool {
		c, err := s.find(byPID(r.pid))
		return err == nil && !c.out.heard()
	})
	// It does not wait for a reader, and what it printed is lost.
	w.sendInput(t, r.pid, "\n")
	w.sendInput(t, r.pid, "\n")
	eventually(t, "the end", func() bool { return !slices.Contains(w.listed(t), r.pid) })
	again := w.connect(t, r.pid)
	require.Equal(t, int32(5), again.finished().GetExitCode())
	require.Zero(t, again.out.Len())
}

func TestConnect(t *testing.T) {
	w := newWorld(t)
	msg := shell("echo first; read x; echo second; exit 4")
	msg.Stdin, msg.Tag = new(true), new("the tag")
	r := w.start(t, msg)
	r.until("first\n")
	a, b := w.connect(t, r.pid), w.connect(t, r.pid)
	w.sendInput(t, r.pid, "\n")
	for _, one := range []*reading{r, a, b} {
		require.Equal(t, int32(4), one.finished().GetExitCode())
	}
	require.Equal(t, "first\nsecond\n", r.out.String())
	require.Equal(t, "second\n", a.out.String(), "nothing from before")
	require.Equal(t, "second\n", b.out.String())

	// Ended commands are known for a while, and to nobody else.
	require.Equal(t, int32(4), w.connect(t, r.pid).finished().GetExitCode())
	byTag := &process.ConnectRequest{Process: byTag("the tag")}
	stream, err := w.procs.Connect(t.Context(), connect.NewRequest(byTag))
	require.NoError(t, err)
	require.True(t, stream.Receive())
	require.Equal(t, r.pid, stream.Msg().GetEvent().GetStart().GetPid())
	require.True(t, stream.Receive())
	require.Equal(t, "exit status 4", stream.Msg().GetEvent().GetEnd().GetStatus())
	require.False(t, stream.Receive())
	require.NoError(t, stream.Err())
	require.NoError(t, stream.Close())
	require.Empty(t, w.listed(t))
	gone := fmt.Sprintf("process with pid %d not found", r.pid)
	_, err = w.procs.SendSignal(t.Context(), connect.NewRequest(&process.SendSignalRequest{Process: byPID(r.pid), Signal: process.Signal_SIGNAL_SIGKILL}))
	requireCode(t, connect.CodeNotFound, gone, err)
	_, err = w.procs.CloseStdin(t.Context(), connect.NewRequest(&process.CloseStdinRequest{Process: byPID(r.pid)}))
	requireCode(t, connect.CodeNotFound, gone, err)
	_, err = w.procs.Update(t.Context(), connect.NewRequest(&process.UpdateRequest{Process: byPID(r.pid)}))
	requireCode(t, connect.CodeNotFound, gone, err)

	// After that, they are unknown.
	w.srv.mu.Lock()
	w.srv.now = func() time.Time { return time.Now().Add(exitRetention + time.Second) }
	w.srv.mu.Unlock()
	for sel, message := range map[*process.ProcessSelector]string{byPID(r.pid): gone, byTag.Process: "process with tag the tag not found"} {
		stream, err := w.procs.Connect(t.Context(), connect.NewRequest(&process.ConnectRequest{Process: sel}))
		require.NoError(t, err)
		require.False(t, stream.Receive())
		requireCode(t, connect.CodeNotFound, message, stream.Err())
		require.NoError(t, stream.Close())
	}
	w.run(t, "true")
	require.NotContains(t, w.srv.procs.exits, r.pid, "what is too old is forgotten when another one ends")
}

func TestTags(t *testing.T) {
	w := newWorld(t)
	pids := make(map[string]uint32)
	for i := range 6 {
		tag := "t" + strconv.Itoa(i)
		pids[tag] = w.start(t, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "cat"}, Tag: &tag}).pid
		w.start(t, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "cat"}, Tag: &tag})
	}
	w.start(t, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "cat"}})
	for tag, pid := range pids {
		stream, err := w.procs.Connect(t.Context(), connect.NewRequest(&process.ConnectRequest{Process: byTag(tag)}))
		require.NoError(t, err)
		require.True(t, stream.Receive())
		require.Equal(t, pid, stream.Msg().GetEvent().GetStart().GetPid(), "the first with the tag")
		go stream.Close() // it waits for the end of the stream
	}
	require.Len(t, w.listed(t), 13)
	require.IsIncreasing(t, w.listed(t))
}

// unread is a command that prints far more than all buffers take and then makes
// the file.
func unread(file string) *process.StartRequest {
	return shell("head -c 32000000 /dev/zero; : > '" + file + "'; exit 0")
}

func TestStalledReaderStopsTheCommand(t *testing.T) {
	w := newWorld(t)
	done := filepath.Join(w.home, "done")
	r := w.start(t, unread(done))
	c, err := w.srv.find(byPID(r.pid))
	require.NoError(t, err)
	eventually(t, "a full queue", func() bool { return queued(c) == maxQueued })
	require.NoFileExists(t, done)
	require.Zero(t, r.finished().GetExitCode())
	require.Equal(t, 32000000, r.out.Len())
	require.FileExists(t, done)
}

// queued is the length of the longest queue.
func queued(c *command) int {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	n := 0
	for s := range c.out.subs {
		n = max(n, len(s.queue))
	}
	return n
}

func TestStalledReaderThatGoesAway(t *testing.T) {
	w := newWorld(t)
	done := filepath.Join(w.home, "done")
	r := w.start(t, unread(done))
	c, err := w.srv.find(byPID(r.pid))
	require.NoError(t, err)
	eventually(t, "a full queue", func() bool { return queued(c) == maxQueued })
	r.cancel()
	eventually(t, "the command goes on", func() bool { _, err := os.Stat(done); return err == nil })
}

func TestStalledReaderDoesNotStopAnother(t *testing.T) {
	w := newWorld(t)
	msg := unread(filepath.Join(w.home, "done"))
	msg.Process.Args[1] = "read x; " + msg.Process.Args[1]
	msg.Stdin = new(true)
	fast := w.start(t, msg)
	stalled := w.connect(t, fast.pid)
	w.sendInput(t, fast.pid, "\n")
	require.Zero(t, fast.finished().GetExitCode())
	require.Equal(t, 32000000, fast.out.Len())

	requireCode(t, connect.CodeResourceExhausted, errTooSlow.Error(), stalled.rest())
	require.Nil(t, stalled.end)
	require.Less(t, stalled.out.Len(), 32000000)
	require.Greater(t, stalled.out.Len(), maxQueued/2*pipeChunk, "what was queued is not lost")
}

func TestBackgroundChildDelaysEnd(t *testing.T) {
	w := newWorld(t)
	fifo := filepath.Join(w.home, "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	r := w.start(t, shell("cat fifo & echo parent"))
	r.until("parent\n")
	require.Equal(t, []uint32{r.pid}, w.listed(t))
	late, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = late.WriteString("late\n")
	require.NoError(t, err)
	r.until("late\n")
	require.Nil(t, r.end)
	require.NoError(t, late.Close())
	require.Equal(t, "exit status 0", r.finished().GetStatus())

	// With its output elsewhere it delays nothing.
	msg := shell("cat fifo >/dev/null 2>&1 & echo parent; read x")
	msg.Stdin = new(true)
	r = w.start(t, msg)
	r.until("parent\n")
	w.sendInput(t, r.pid, "\n")
	require.Equal(t, "exit status 0", r.finished().GetStatus())
	// Nobody may be left behind, though.
	w.srv.Close()
	eventually(t, "the end of the child", func() bool { return !groupAlive(int(r.pid)) })
}

func TestSignalDoesNotWaitForChildren(t *testing.T) {
	w := newWorld(t)
	fifo := filepath.Join(w.home, "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	for _, test := range []struct {
		sig    process.Signal
		script string
		status string
	}{
		{process.Signal_SIGNAL_SIGKILL, "cat fifo & echo $!; read x", "signal: killed"},
		{process.Signal_SIGNAL_SIGTERM, "cat fifo & echo $!; read x", "signal: terminated"},
		// The parent has ended already; it is the end of the output that is waited for.
		{process.Signal_SIGNAL_SIGTERM, "cat fifo & echo $!; exit 9", "exit status 9"},
	} {
		msg := shell(test.script)
		msg.Stdin = new(true)
		r := w.start(t, msg)
		r.until("\n")
		child, err := strconv.Atoi(strings.TrimSpace(r.out.String()))
		require.NoError(t, err)
		if strings.Contains(test.script, "exit") {
			eventually(t, "a zombie", func() bool { return state(int(r.pid)) == "Z" })
		}
		w.signal(t, r.pid, test.sig)
		require.Equal(t, test.status, r.finished().GetStatus())
		require.True(t, alive(child), "only the one process is signalled")
		t.Cleanup(func() { // after the server was closed
			eventually(t, "the end of the child", func() bool { return !groupAlive(int(r.pid)) })
		})
	}
	w.srv.Close()
}

// state is the letter that ps has for a process.
func state(pid int) string {
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	if err != nil || len(out) == 0 {
		return ""
	}
	return string(out[:1])
}

func TestSignalErrors(t *testing.T) {
	w := newWorld(t)
	r := w.start(t, shell("exec sleep 600"))
	_, err := w.procs.SendSignal(t.Context(), connect.NewRequest(&process.SendSignalRequest{Process: byPID(r.pid), Signal: 2}))
	requireCode(t, connect.CodeUnimplemented, "invalid signal: 2", err)
	_, err = w.procs.SendSignal(t.Context(), connect.NewRequest(&process.SendSignalRequest{Signal: 9}))
	requireCode(t, connect.CodeUnimplemented, "invalid input type *process.ProcessSelector", err)
}

func TestCommandsHaveGroupsOfTheirOwn(t *testing.T) {
	w := newWorld(t)
	other := w.start(t, shell("exec sleep 600"))
	require.Equal(t, "signal: terminated", w.run(t, "kill 0; sleep 600").end.GetStatus())
	require.Equal(t, []uint32{other.pid}, w.listed(t))
}

func TestStdin(t *testing.T) {
	w := newWorld(t)
	r := w.start(t, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "cat"}})
	w.sendInput(t, r.pid, "a\n")
	r.until("a\n")
	stream := w.procs.StreamInput(t.Context())
	require.NoError(t, stream.Send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Start{
		Start: &process.StreamInputRequest_StartEvent{Process: byPID(r.pid)},
	}}))
	for _, text := range []string{"b\n", "c\n"} {
		require.NoError(t, stream.Send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Data{
			Data: &process.StreamInputRequest_DataEvent{Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte(text)}}},
		}}))
		r.until(text) // while the request is open
		require.NoError(t, stream.Send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Keepalive{
			Keepalive: &process.StreamInputRequest_KeepAlive{},
		}}))
	}
	_, err := stream.CloseAndReceive()
	require.NoError(t, err)
	w.sendInput(t, r.pid, "d\n") // the end of the stream was not the end of stdin
	_, err = w.procs.CloseStdin(t.Context(), connect.NewRequest(&process.CloseStdinRequest{Process: byPID(r.pid)}))
	require.NoError(t, err)
	require.Equal(t, "exit status 0", r.finished().GetStatus())
	require.Equal(t, "a\nb\nc\nd\n", r.out.String())
}

func TestStdinErrors(t *testing.T) {
	w := newWorld(t)
	send := func(pid uint32, in *process.ProcessInput) error {
		_, err := w.procs.SendInput(t.Context(), connect.NewRequest(&process.SendInputRequest{Process: byPID(pid), Input: in}))
		return err
	}
	text := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("x")}}
	closeStdin := func(pid uint32) error {
		_, err := w.procs.CloseStdin(t.Context(), connect.NewRequest(&process.CloseStdinRequest{Process: byPID(pid)}))
		return err
	}
	const disabled = "error writing to stdin: stdin not enabled or closed"

	without := w.start(t, shell("exec sleep 600")).pid
	requireCode(t, connect.CodeInternal, disabled, send(without, text))
	require.NoError(t, closeStdin(without))

	deaf := shell("exec sleep 600")
	deaf.Stdin = nil // which means true
	with := w.start(t, deaf).pid
	requireCode(t, connect.CodeUnimplemented, "invalid input type <nil>", send(with, nil))
	require.NoError(t, closeStdin(with))
	require.NoError(t, closeStdin(with))
	requireCode(t, connect.CodeInternal, disabled, send(with, text))

	msg := shell("exec <&-; echo closed; exec sleep 600")
	msg.Stdin = new(true)
	r := w.start(t, msg)
	r.until("closed\n")
	requireCode(t, connect.CodeInternal,
		fmt.Sprintf("error writing to stdin: error writing to stdin of process '%d': write |1: broken pipe", r.pid), send(r.pid, text))

	terminal := w.start(t, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "cat"}, Pty: &process.PTY{}})
	requireCode(t, connect.CodeInternal,
		"error writing to stdin: tty assigned to process — input should be written to the pty, not the stdin", send(terminal.pid, text))

	stream := w.procs.StreamInput(t.Context())
	require.NoError(t, stream.Send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Data{
		Data: &process.StreamInputRequest_DataEvent{Input: text},
	}}))
	_, err := stream.CloseAndReceive()
	requireCode(t, connect.CodeInvalidArgument, "the first message must name the process", err)
	_, err = w.procs.StreamInput(t.Context()).CloseAndReceive()
	require.NoError(t, err, "nothing is fine")
}

// A command that does not read blocks whoever writes to it, but nobody for ever.
func TestStdinOfCommandThatDoesNotRead(t *testing.T) {
	w := newWorld(t)
	msg := shell("exec sleep 600")
	msg.Stdin = new(true)
	r := w.start(t, msg)
	c, err := w.srv.find(byPID(r.pid))
	require.NoError(t, err)
	send := func(ctx context.Context) <-chan error {
		result := make(chan error, 1)
		go func() {
			_, err := w.procs.SendInput(ctx, connect.NewRequest(&process.SendInputRequest{
				Process: byPID(r.pid),
				Input:   &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: make([]byte, 1<<20)}},
			}))
			result <- err
		}()
		return result
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := send(ctx)
	eventually(t, "someone writes", func() bool { return len(c.turn) == 1 })
	cancel()
	require.Equal(t, connect.CodeCanceled, connect.CodeOf(<-first))
	eventually(t, "the server has noticed", func() bool { return len(c.turn) == 0 })

	second := send(t.Context())
	eventually(t, "someone writes", func() bool { return len(c.turn) == 1 })
	third := send(t.Context())
	w.signal(t, r.pid, process.Signal_SIGNAL_SIGKILL)
	require.Equal(t, connect.CodeInternal, connect.CodeOf(<-second))
	<-third // which error it gets depends on who is faster
}

func TestDeadline(t *testing.T) {
	w := newWorld(t)
	// Its reader leaves at once, and another one comes: the deadline stays.
	r := w.start(t, shell("trap '' TERM; echo on; while :; do sleep 0.1; done"), "Connect-Timeout-Ms", "700")
	other := w.connect(t, r.pid)
	r.cancel()
	require.Error(t, r.rest())
	require.Equal(t, "signal: killed", other.finished().GetStatus())
	require.Empty(t, w.listed(t))

	// Who started it gets no end event.
	r = w.start(t, shell("exec sleep 600"), "Connect-Timeout-Ms", "100")
	requireCode(t, connect.CodeDeadlineExceeded, "context deadline exceeded", r.rest())
	require.Nil(t, r.end)

	// Zero is over before it begins.
	req := connect.NewRequest(shell("exec sleep 600"))
	req.Header().Set("Connect-Timeout-Ms", "0")
	stream, err := w.procs.Start(t.Context(), req)
	require.NoError(t, err)
	require.False(t, stream.Receive())
	requireCode(t, connect.CodeDeadlineExceeded, "context deadline exceeded", stream.Err())
	require.NoError(t, stream.Close())
	eventually(t, "all gone", func() bool { return len(w.listed(t)) == 0 })
}

func TestDeadlineOfConnect(t *testing.T) {
	w := newWorld(t)
	r := w.start(t, shell("exec sleep 600"))
	req := connect.NewRequest(&process.ConnectRequest{Process: byPID(r.pid)})
	req.Header().Set("Connect-Timeout-Ms", "50")
	stream, err := w.procs.Connect(t.Context(), req)
	require.NoError(t, err)
	for stream.Receive() {
	}
	requireCode(t, connect.CodeDeadlineExceeded, "context deadline exceeded", stream.Err())
	require.NoError(t, stream.Close())
	require.Equal(t, []uint32{r.pid}, w.listed(t))
}

func TestKeepaliveInterval(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": defaultKeepalive, "x": defaultKeepalive, "1.5": defaultKeepalive, "1": time.Second, "50": 50 * time.Second,
		"0": 0, "-1": 0, "9300000000": 0,
	} {
		got, err := keepalive(map[string][]string{keepaliveHeader: {text}})
		require.Equal(t, want, got, text)
		require.Equal(t, want == 0, connect.CodeOf(err) == connect.CodeInvalidArgument, text)
	}
}

func TestKeepaliveRefused(t *testing.T) {
	w := newWorld(t)
	const message = "Keepalive-Ping-Interval must be a positive number of seconds: 0"
	start := connect.NewRequest(shell("true"))
	start.Header().Set(keepaliveHeader, "0")
	started, err := w.procs.Start(t.Context(), start)
	require.NoError(t, err)
	require.False(t, started.Receive())
	requireCode(t, connect.CodeInvalidArgument, message, started.Err())
	require.NoError(t, started.Close())
	join := connect.NewRequest(&process.ConnectRequest{Process: byPID(1)})
	join.Header().Set(keepaliveHeader, "0")
	joined, err := w.procs.Connect(t.Context(), join)
	require.NoError(t, err)
	require.False(t, joined.Receive())
	requireCode(t, connect.CodeInvalidArgument, message, joined.Err())
	require.NoError(t, joined.Close())
	watch := connect.NewRequest(&filesystem.WatchDirRequest{})
	watch.Header().Set(keepaliveHeader, "0")
	watched, err := w.files.WatchDir(t.Context(), watch)
	require.NoError(t, err)
	require.False(t, watched.Receive())
	requireCode(t, connect.CodeInvalidArgument, message, watched.Err())
	require.NoError(t, watched.Close())
}

func TestTerminal(t *testing.T) {
	w := newWorld(t)
	msg := shell("stty size; read x; stty size; read y")
	msg.Pty = &process.PTY{Size: &process.PTY_Size{Cols: 80, Rows: 24}}
	r := w.start(t, msg)
	r.until("24 80\r\n")
	_, err := w.procs.Update(t.Context(), connect.NewRequest(&process.UpdateRequest{
		Process: byPID(r.pid), Pty: &process.PTY{Size: &process.PTY_Size{Cols: 70000, Rows: 30}},
	}))
	require.NoError(t, err)
	_, err = w.procs.Update(t.Context(), connect.NewRequest(&process.UpdateRequest{Process: byPID(r.pid)}))
	require.NoError(t, err, "nothing to update")
	typed := func(text string) {
		_, err := w.procs.SendInput(t.Context(), connect.NewRequest(&process.SendInputRequest{
			Process: byPID(r.pid),
			Input:   &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte(text)}},
		}))
		require.NoError(t, err)
	}
	typed("go\n")
	r.until("30 4464\r\n")
	typed("\x03") // Ctrl+C
	end := r.finished()
	require.Zero(t, r.errs.Len())
	require.Contains(t, []string{"signal: interrupt", "exit status 130"}, end.GetStatus())
}

// The end of the first process of a terminal is the end of its session.
func TestTerminalSession(t *testing.T) {
	w := newWorld(t)
	msg := shell("sleep 600 & echo child $!; ps -o pgid= -p $$; echo .; read x")
	msg.Pty = &process.PTY{}
	r := w.start(t, msg)
	r.until(".\r\n")
	fields := strings.Fields(r.out.String())
	require.Equal(t, strconv.Itoa(int(r.pid)), fields[2])
	child, err := strconv.Atoi(fields[1])
	require.NoError(t, err)
	w.signal(t, r.pid, process.Signal_SIGNAL_SIGKILL)
	require.Equal(t, "signal: killed", r.finished().GetStatus())
	eventually(t, "the child's end", func() bool { return !alive(child) || state(child) == "Z" })
}

func TestManyCommands(t *testing.T) {
	w := newWorld(t)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			req := connect.NewRequest(shell(fmt.Sprintf("echo out %d; echo err %d >&2; exit %d", i, i, i)))
			stream, err := w.procs.Start(t.Context(), req)
			if err != nil {
				t.Error(err)
				return
			}
			defer stream.Close()
			var out, errs string
			var end *process.ProcessEvent_EndEvent
			for stream.Receive() {
				out += string(stream.Msg().GetEvent().GetData().GetStdout())
				errs += string(stream.Msg().GetEvent().GetData().GetStderr())
				end = stream.Msg().GetEvent().GetEnd()
			}
			if err := stream.Err(); err != nil || out != fmt.Sprintf("out %d\n", i) || errs != fmt.Sprintf("err %d\n", i) || end.GetExitCode() != int32(i) {
				t.Errorf("command %d: %v, %q, %q, %v", i, err, out, errs, end)
			}
		})
	}
	all.Wait()
	require.Empty(t, w.listed(t))
}

// Whatever goes on, Close ends it, and streams do not look as if they had ended
// well.
func TestClose(t *testing.T) {
	w := newWorld(t)
	running := w.start(t, shell("sleep 600 & sleep 600"))
	stalled := w.start(t, shell("cat /dev/zero"))
	terminal := w.start(t, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "cat"}, Pty: &process.PTY{}})
	c, err := w.srv.find(byPID(stalled.pid))
	require.NoError(t, err)
	eventually(t, "a full queue", func() bool { return queued(c) == maxQueued })
	upload, body := io.Pipe()
	t.Cleanup(func() { body.Close() })
	uploaded := make(chan error, 1)
	go func() {
		req, err := http.NewRequest(http.MethodPost, w.url+"/files?path=up", upload)
		if err == nil {
			req.Header.Set("Content-Type", "application/octet-stream")
			var res *http.Response
			if res, err = w.http.Do(req); err == nil {
				res.Body.Close()
				err = fmt.Errorf("status %s", res.Status)
			}
		}
		uploaded <- err
	}()
	eventually(t, "the upload", func() bool { _, err := os.Stat(filepath.Join(w.home, "up")); return err == nil })
	_, err = w.files.CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: "."}))
	require.NoError(t, err)

	w.srv.Close()
	w.srv.Close()
	for _, r := range []*reading{running, stalled, terminal} {
		require.Error(t, r.rest())
		require.Nil(t, r.end)
		require.Contains(t, r.err().Error(), "EOF")
		// Zombies whose parent is gone count, until someone collects them.
		eventually(t, "the end of the group", func() bool { return !groupAlive(int(r.pid)) })
	}
	// A client of net/http does not return while the body can still come.
	require.NoError(t, body.Close())
	require.Error(t, <-uploaded)
	res, text := w.do(t, http.MethodGet, "/health", nil)
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode, text)
}

func TestOlderVersions(t *testing.T) {
	s := New(Config{Version: "0.5.10"})
	defer s.Close()
	for version, want := range map[string]bool{"0.5.9": true, "0.5.10": true, "0.5.11": false, "0.6.0": false, "0.5.10.1": false, "0.4.99": true} {
		require.Equal(t, want, s.since(version), version)
	}
	w := newWorld(t, func(c *Config) { c.Version = "0.5.0" })
	r := w.run(t, "exit 3")
	stream, err := w.procs.Connect(t.Context(), connect.NewRequest(&process.ConnectRequest{Process: byPID(r.pid)}))
	require.NoError(t, err)
	require.False(t, stream.Receive())
	require.Equal(t, connect.CodeNotFound, connect.CodeOf(stream.Err()))
	require.NoError(t, stream.Close())
	for _, path := range []string{"/process.Process/CloseStdin", "/files/compose"} {
		res, body := w.do(t, http.MethodPost, path, strings.NewReader("{}"), "Content-Type", "application/json")
		require.Equal(t, http.StatusNotFound, res.StatusCode)
		require.Equal(t, "404 page not found\n", body)
	}
	res, _ := w.do(t, http.MethodPost, "/files?path=x", strings.NewReader("x"), "Content-Type", "application/octet-stream")
	require.Equal(t, http.StatusBadRequest, res.StatusCode)
}
