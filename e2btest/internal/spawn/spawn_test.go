//go:build linux || darwin

package spawn

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func exit(code int) *exec.Cmd {
	return exec.Command("/bin/sh", "-c", "exit "+strconv.Itoa(code))
}

func requireExit(t *testing.T, code int, err error) {
	t.Helper()
	if code == 0 {
		require.NoError(t, err)
		return
	}
	status, ok := errors.AsType[*exec.ExitError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, code, status.ExitCode())
}

func TestStartWait(t *testing.T) {
	for _, code := range []int{0, 7} {
		cmd := exit(code)
		require.NoError(t, Start(cmd))
		requireExit(t, code, Wait(cmd))
		_, ok := owned.Load(cmd.Process.Pid)
		require.False(t, ok)
	}
}

func TestStartFails(t *testing.T) {
	cmd := exec.Command("/no/such/program")
	require.Error(t, Start(cmd))
	require.Error(t, Wait(cmd))
}

// A new child may get the pid of one that Wait has just collected, before Wait
// removes its own entry.
func TestWaitKeepsTheEntryOfANewChild(t *testing.T) {
	old, young := exit(0), exit(0)
	require.NoError(t, Start(old))
	pid := old.Process.Pid
	owned.Store(pid, young)
	t.Cleanup(func() { owned.Delete(pid) })
	require.NoError(t, Wait(old))
	got, ok := owned.Load(pid)
	require.True(t, ok)
	require.Same(t, young, got)
}

func TestHold(t *testing.T) {
	release := Hold()
	cmd := exit(3)
	started := make(chan error)
	go func() { started <- Start(cmd) }()
	select {
	case <-started:
		t.Fatal("a process was started")
	case <-time.After(20 * time.Millisecond):
	}
	require.Nil(t, cmd.Process)
	release()
	release() // does nothing
	require.NoError(t, <-started)
	requireExit(t, 3, Wait(cmd))
}

func TestOneThread(t *testing.T) {
	t.Cleanup(func() { starting.Store(nil) })
	_, err := OneThread(func() error { return os.ErrPermission })
	require.ErrorIs(t, err, os.ErrPermission)
	prepared := 0
	stop, err := OneThread(func() error { prepared = unix.Getpid(); return nil })
	require.NoError(t, err)
	require.Equal(t, os.Getpid(), prepared)
	for code := range 3 {
		cmd := exit(code)
		require.NoError(t, Start(cmd))
		requireExit(t, code, Wait(cmd))
	}
	stop()
	stop() // does nothing
	require.ErrorIs(t, Start(exit(0)), ErrStopped)
}

func TestOwnGroups(t *testing.T) {
	OwnGroups()
	t.Cleanup(func() { grouping.Store(false) })

	// The leader ends at once, another member when its input does.
	cmd := exec.Command("/bin/sh", "-c", `cat <&3 >/dev/null & exit 0`)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	cmd.ExtraFiles = append(cmd.ExtraFiles, r)
	require.NoError(t, Start(cmd))
	require.NoError(t, Wait(cmd))
	require.Contains(t, Groups(), cmd.Process.Pid)
	require.NoError(t, w.Close())
	require.Eventually(t, func() bool { return len(Groups()) == 0 }, 10*time.Second, time.Millisecond)

	session := exit(0)
	session.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	require.NoError(t, Start(session))
	require.False(t, session.SysProcAttr.Setpgid, "a session leader cannot move to another group")
	require.NoError(t, Wait(session))
	require.Empty(t, Groups())
}
