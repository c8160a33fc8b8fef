//go:build linux || darwin

package proctab

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func find(t *testing.T, pid int) Process {
	t.Helper()
	table, err := List()
	require.NoError(t, err)
	i := slices.IndexFunc(table, func(p Process) bool { return p.PID == pid })
	require.GreaterOrEqual(t, i, 0, "no process %d", pid)
	return table[i]
}

func TestList(t *testing.T) {
	cmd := exec.Command("/bin/cat")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	pid := cmd.Process.Pid
	p := find(t, pid)
	require.Equal(t, Process{
		PID: pid, PPID: os.Getpid(), PGID: unix.Getpgrp(), Threads: p.Threads, CPU: p.CPU, Resident: p.Resident,
	}, p)

	require.NoError(t, unix.Kill(pid, unix.SIGSTOP))
	require.Eventually(t, func() bool { return Halted(pid, false) }, 10*time.Second, time.Millisecond)
	require.True(t, find(t, pid).Stopped)

	require.NoError(t, unix.Kill(pid, unix.SIGCONT))
	require.False(t, find(t, pid).Stopped)

	require.NoError(t, stdin.Close())
	require.Eventually(t, func() bool { return find(t, pid).Zombie }, 10*time.Second, time.Millisecond)
	require.True(t, Halted(pid, false))
	require.NoError(t, cmd.Wait())
	require.True(t, Halted(pid, false), "it is gone")
}

func TestHaltedNot(t *testing.T) { require.False(t, Halted(os.Getpid(), true)) }

func TestBelow(t *testing.T) {
	table := []Process{
		{PID: 1},
		{PID: 10, PPID: 1, PGID: 10},
		{PID: 11, PPID: 10, PGID: 11},
		{PID: 12, PPID: 11, PGID: 11},
		{PID: 13, PPID: 11, PGID: 11, Zombie: true},
		{PID: 14, PPID: 13, PGID: 11}, // of a zombie whose threads run
		{PID: 20, PPID: 1, PGID: 20},  // an orphan of 10
		{PID: 21, PPID: 20, PGID: 21},
		{PID: 30, PPID: 1, PGID: 30},
	}
	pids := func(ps []Process) (pids []int) {
		for _, p := range ps {
			pids = append(pids, p.PID)
		}
		slices.Sort(pids)
		return pids
	}
	require.Equal(t, []int{11, 12, 14}, pids(Below(table, 10, nil)))
	require.Equal(t, []int{11, 12, 14, 20, 21}, pids(Below(table, 10, []int{11, 20})))
	require.Empty(t, Below(table, 30, nil))
}
