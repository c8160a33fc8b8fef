//go:build linux || darwin

package agent

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/agent/proctab"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/spawn"
)

// treeTimeout bounds how long the processes may take to stop or to end. One that
// waits for a broken disk does neither.
const treeTimeout = 5 * time.Second

// processes lists the tree, the newest first as far as pids tell.
func (t *tree) processes() ([]proctab.Process, error) {
	table, err := proctab.List()
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	if t.whole {
		table = slices.DeleteFunc(table, func(p proctab.Process) bool { return p.Zombie || p.PID == self })
	} else {
		table = proctab.Below(table, self, spawn.Groups())
	}
	slices.SortFunc(table, func(a, b proctab.Process) int { return cmp.Compare(b.PID, a.PID) })
	return table, nil
}

// freeze stops all processes and returns when none can run any more. Nothing may
// start meanwhile.
func (t *tree) freeze() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, err := t.processes()
	if err != nil {
		return err
	}
	t.kept = make(map[int]bool)
	for _, p := range before {
		t.kept[p.PID] = p.Stopped
	}
	return t.stop()
}

// requestPatience is how long a process may go on with a request to a disk. It counts as
// stopped then: it cannot do more, and one that waits for a child of vfork, or for a
// broken disk, does not leave the kernel.
const requestPatience = 20 * time.Millisecond

// stop sends each process SIGSTOP until none runs.
func (t *tree) stop() error {
	begin := time.Now()
	signalled := make(map[int]bool)
	var running int
	var stopped []int // the pids of the last look, if none of them ran
	ok := poll(func() (bool, error) {
		if t.whole {
			// All at once, so that none can start another in between.
			_ = unix.Kill(-1, unix.SIGSTOP)
		}
		table, err := t.processes()
		if err != nil {
			return false, err
		}
		impatient := time.Since(begin) > requestPatience
		running = 0
		pids := make([]int, len(table))
		for i, p := range table {
			pids[i] = p.PID
			if proctab.Halted(p.PID, impatient && (t.whole || signalled[p.PID])) {
				continue
			}
			running++
			if !t.whole && unix.Kill(p.PID, unix.SIGSTOP) == nil {
				signalled[p.PID] = true
			}
		}
		if running > 0 {
			stopped = nil
			return false, nil
		}
		// One that stopped during the look may have started another that it did not see.
		again := stopped != nil && slices.Equal(stopped, pids)
		stopped = pids
		return again, nil
	})
	if ok != nil {
		return fmt.Errorf("stop %d processes: %w", running, ok)
	}
	return nil
}

// thaw continues the processes that freeze stopped.
func (t *tree) thaw() {
	t.mu.Lock()
	defer t.mu.Unlock()
	table, err := t.processes()
	if err != nil {
		return
	}
	// Children before their parents: a shell must not see that its job was stopped.
	for _, p := range table {
		if !t.kept[p.PID] {
			_ = unix.Kill(p.PID, unix.SIGCONT)
		}
	}
	t.kept = nil
}

// kill ends all processes and waits for their end.
func (t *tree) kill() {
	t.mu.Lock()
	defer t.mu.Unlock()
	// Stopped ones cannot start others behind our back.
	_ = t.stop()
	_ = poll(func() (bool, error) {
		table, err := t.processes()
		if err != nil {
			return false, err
		}
		for _, p := range table {
			_ = unix.Kill(p.PID, unix.SIGKILL)
		}
		return len(table) == 0, nil
	})
	// Nobody may be there to collect them after us.
	_ = poll(func() (bool, error) {
		table, err := proctab.List()
		return !slices.ContainsFunc(table, func(p proctab.Process) bool { return p.PPID == os.Getpid() }), err
	})
}

// poll calls done until it reports true, in short intervals.
func poll(done func() (bool, error)) error {
	deadline := time.Now().Add(treeTimeout)
	for i := 0; ; i++ {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return unix.ETIMEDOUT
		}
		if i < 10 {
			runtime.Gosched() // most need some microseconds
			continue
		}
		<-time.After(200 * time.Microsecond)
	}
}
