package proctab

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUsage(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "while :; do :; done", "two words")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	pid := cmd.Process.Pid
	require.Eventually(t, func() bool { return find(t, pid).CPU >= 30*time.Millisecond }, 30*time.Second, time.Millisecond)
	p := find(t, pid)
	require.Equal(t, 1, p.Threads)
	require.Positive(t, p.Resident)
	m := MemoryOf(pid)
	require.Positive(t, m.Anonymous)
	require.LessOrEqual(t, m.Anonymous, p.Resident)
	require.Equal(t, "/bin/sh -c while :; do :; done two words", Command(pid))

	require.Greater(t, find(t, os.Getpid()).Threads, 1)
	require.Zero(t, MemoryOf(-1))
	require.Empty(t, Command(-1))
}
