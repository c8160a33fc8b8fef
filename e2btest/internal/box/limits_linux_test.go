package box_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/box"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
)

// limited returns a node with limits, and skips the test for those who may not have any.
func limited(t *testing.T, opts box.Options) *box.Node {
	t.Helper()
	defaultMode.shared(t)
	opts.Dir = t.TempDir()
	n, err := box.New(opts)
	for _, why := range []error{
		fs.ErrPermission, unix.EROFS, box.ErrNotMounted,
		fs.ErrNotExist, // the group above does not give the controller on
		unix.EBUSY,     // there is none above that this user sees, as in a container
	} {
		if errors.Is(err, why) {
			t.Skip("this user cannot limit processes on this system: ", err)
		}
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n
}

// sh runs a script in one process, which bash with a profile does not.
func (g *guest) sh(t *testing.T, script string) (output string, code int, err error) {
	t.Helper()
	no := false
	return g.start(t.Context(), "root", &process.StartRequest{
		Process: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", script}}, Stdin: &no,
	})
}

// fill starts sleeps until no process is left.
const fill = `for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do sleep 3600 >/dev/null 2>&1 & echo $i; done`

func TestProcessLimit(t *testing.T) {
	n := limited(t, box.Options{ProcessLimit: 10})
	a, b := start(t, n, "a"), start(t, n, "b")
	for range 2 {
		out, code, err := a.sh(t, fill)
		require.NoError(t, err)
		require.Positive(t, code, "the shell ends when it cannot fork")
		require.Contains(t, out, "\n9\n", "the shell and nine")
		require.NotContains(t, out, "\n10\n")
		// One is free.
		out, code, err = a.sh(t, "echo $$")
		require.NoError(t, err)
		require.Zero(t, code, out)
		require.Equal(t, "b", b.run(t, "echo b"), "another sandbox has its own")

		// Also a full one is paused and goes on.
		require.NoError(t, a.Pause(t.Context(), true))
		require.NoError(t, a.Resume(t.Context(), false))
		_, code, err = a.sh(t, "kill -9 -1")
		require.NoError(t, err)
		require.Zero(t, code)
	}
	// It is the same after a boot.
	require.NoError(t, a.Resume(t.Context(), true))
	out, _, err := a.sh(t, fill)
	require.NoError(t, err)
	require.NotContains(t, out, "\n10\n")
}

func TestNoProcessLeft(t *testing.T) {
	n := limited(t, box.Options{ProcessLimit: 3})
	g := start(t, n, "guest")
	var wg sync.WaitGroup
	wg.Go(func() { _, _, _ = g.sh(t, "sleep 3600 & sleep 3600 & exec sleep 3600") })
	eventually(t, func() bool {
		pids, err := processes(g.Sandbox)
		return err == nil && len(pids) == 4
	}, "the sleeps and the agent")
	_, _, err := g.sh(t, "true")
	require.ErrorContains(t, err, "resource temporarily unavailable")
	require.NoError(t, g.Kill())
	wg.Wait()
}

func TestMemoryLimit(t *testing.T) {
	n := limited(t, box.Options{MemoryLimit: 32 << 20})
	g := start(t, n, "guest")
	const grow = `x=$(head -c %dM /dev/zero | tr '\0' x); echo ${#x}`
	for range 2 {
		out, code, err := g.sh(t, fmt.Sprintf(grow, 4))
		require.NoError(t, err)
		require.Equal(t, "4194304\n0", fmt.Sprint(out, code))
		out, code, err = g.sh(t, fmt.Sprintf(grow, 100))
		require.NoError(t, err)
		require.Negative(t, code, "it was killed: %s", out)
	}
	require.Contains(t, g.fails(t, "user", "head -c 100M /dev/zero >/dev/shm/x"), "No space left on device")
	// Files on a disk do not, though the system keeps them in memory while it can.
	g.run(t, "rm /dev/shm/x; head -c 100M /dev/zero >x && cat x >/dev/null && rm x")
}

// What holds nothing is said so at once.
func TestLimitsNeedIsolation(t *testing.T) {
	_, err := box.New(box.Options{Dir: t.TempDir(), NoIsolation: true, ProcessLimit: 10})
	require.ErrorContains(t, err, "ProcessLimit")
	_, err = box.New(box.Options{Dir: t.TempDir(), NoIsolation: true, MemoryLimit: 1 << 30})
	require.ErrorContains(t, err, "MemoryLimit")
}

// The groups are as many as there are sandboxes, and none is left.
func TestLimitsLeaveNoGroup(t *testing.T) {
	n := limited(t, box.Options{MemoryLimit: 1 << 30, ProcessLimit: 100})
	g := start(t, n, "guest")
	g.run(t, "true")
	dirs := box.LimitGroups(n)
	require.NotEmpty(t, dirs)
	for _, dir := range dirs {
		sandboxes, err := filepath.Glob(filepath.Join(dir, "guest-*"))
		require.NoError(t, err)
		require.Len(t, sandboxes, 1)
	}
	require.NoError(t, g.Kill())
	for _, dir := range dirs {
		sandboxes, err := filepath.Glob(filepath.Join(dir, "guest-*"))
		require.NoError(t, err)
		require.Empty(t, sandboxes)
	}
	require.NoError(t, n.Close())
	for _, dir := range dirs {
		require.NoDirExists(t, dir)
	}
}

// The kernel's own account, where there is one.
func TestLimitsInVersion2(t *testing.T) {
	n := limited(t, box.Options{ProcessLimit: 10})
	g := start(t, n, "guest")
	group, apart := strings.CutSuffix(box.CommandsGroup(g.Sandbox), "/commands")
	if !apart {
		t.Skip("this system limits with version 1")
	}
	agent, err := os.ReadFile(filepath.Join(group, "agent", "cgroup.procs"))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintln(box.PID(g.Sandbox)), string(agent))
}
