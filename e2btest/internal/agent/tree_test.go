//go:build linux || darwin

package agent

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/agent/proctab"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/spawn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startFamily starts a shell whose child counts, and a shell whose child has
// stopped itself. It returns the pids of both children.
func startFamily(t *testing.T) (counting, stopped int) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("/bin/sh", "-c", `
sh -c 'echo $$ > counting; while :; do :; done' &
sh -c 'echo $$ > stopped; kill -STOP $$' &
wait`)
	cmd.Dir = dir
	require.NoError(t, spawn.Start(cmd))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = spawn.Wait(cmd)
	}()
	t.Cleanup(func() {
		new(tree).kill()
		<-ended
	})
	read := func(name string) (pid int) {
		require.Eventually(t, func() bool {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err == nil {
				pid, err = strconv.Atoi(strings.TrimSpace(string(data)))
			}
			return err == nil
		}, 10*time.Second, time.Millisecond)
		return pid
	}
	counting, stopped = read("counting"), read("stopped")
	require.Eventually(t, func() bool { return proctab.Halted(stopped, false) }, 10*time.Second, time.Millisecond)
	return counting, stopped
}

func TestTree(t *testing.T) {
	spawn.OwnGroups()
	counting, stopped := startFamily(t)
	require.False(t, proctab.Halted(counting, true))

	var tr tree
	require.NoError(t, tr.freeze())
	below, err := tr.processes()
	require.NoError(t, err)
	require.Len(t, below, 3)
	for i, p := range below {
		require.True(t, p.Stopped, "%+v", p)
		require.True(t, i == 0 || p.PID < below[i-1].PID, "the newest is not the first")
	}

	tr.thaw()
	require.Eventually(t, func() bool { return !proctab.Halted(counting, true) }, 10*time.Second, time.Millisecond)
	require.True(t, proctab.Halted(stopped, false), "what had stopped itself was continued")

	tr.kill()
	for _, pid := range []int{counting, stopped} {
		require.Eventually(t, func() bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) }, 10*time.Second, time.Millisecond)
	}
	require.Empty(t, spawn.Groups())
}
