package spawn

import (
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/agent/proctab"
)

// adoptOrphans makes the test process one that must reap.
func adoptOrphans(t *testing.T) {
	t.Helper()
	require.NoError(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	t.Cleanup(func() {
		require.NoError(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0))
	})
}

func requireNoChildren(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		pids, err := childrenFromTable()
		return err == nil && len(pids) == 0
	}, 10*time.Second, time.Millisecond)
}

func TestReap(t *testing.T) {
	adoptOrphans(t)
	stop := make(chan struct{})
	var reaper sync.WaitGroup
	reaper.Go(func() { Reap(stop) })

	// Each child leaves an orphan, and has a status of its own that nobody may take.
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for worker := range errs {
		wg.Go(func() {
			for i := range 25 {
				code := 1 + (worker*25+i)%100
				cmd := exec.Command("/bin/sh", "-c", fmt.Sprintf("(true & true &) ; true & exit %d", code))
				if err := Start(cmd); err != nil {
					errs[worker] = err
					return
				}
				_ = Wait(cmd)
				if got := cmd.ProcessState.ExitCode(); got != code {
					errs[worker] = fmt.Errorf("exit code %d instead of %d", got, code)
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	requireNoChildren(t)
	close(stop)
	reaper.Wait()
}

// A child that has ended but was not waited for is not reaped.
func TestReapLeavesOwned(t *testing.T) {
	cmd := exit(9)
	require.NoError(t, Start(cmd))
	require.Eventually(t, func() bool {
		table, err := proctab.List()
		require.NoError(t, err)
		return slices.ContainsFunc(table, func(p proctab.Process) bool { return p.PID == cmd.Process.Pid && p.Zombie })
	}, 10*time.Second, time.Millisecond)
	reapOrphans()
	requireExit(t, 9, Wait(cmd))
}

func TestChildren(t *testing.T) {
	cmd := exec.Command("/bin/cat")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, Start(cmd))
	fast, err := children()
	if err == nil { // some kernels keep no such lists
		require.Equal(t, []int{cmd.Process.Pid}, fast)
	}
	slow, err := childrenFromTable()
	require.NoError(t, err)
	require.Equal(t, []int{cmd.Process.Pid}, slow)
	require.NoError(t, stdin.Close())
	require.NoError(t, Wait(cmd))
}
