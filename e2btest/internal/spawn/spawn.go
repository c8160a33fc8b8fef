// Package spawn starts child processes in a program that may be pid 1 of its
// namespace, where orphans must be reaped without taking the exit status of a
// child that someone waits for.
package spawn

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
)

// ErrStopped is returned by Start once the thread that starts children has
// stopped.
var ErrStopped = errors.New("spawn: no more processes are started")

// The children of a process are process-wide, and so is what is known of them.
var (
	// mu is held for reading while a child is started and entered into owned, and
	// for writing while orphans are reaped or nothing may start.
	mu    sync.RWMutex
	owned sync.Map // pid (int) → *exec.Cmd: Wait will collect it

	// collected wakes the reaper after Wait: until then it took an orphan that got
	// the pid of a child just collected for that child.
	collected = make(chan struct{}, 1)

	starting atomic.Pointer[thread] // nil: Start works on the caller's thread
	grouping atomic.Bool            // each child leads an own process group
	guarded  atomic.Bool            // no child starts where a link of /proc leads
	// cgroup is the directory of the control group for children; nil: that of this
	// process. The file itself, since Go closes one that nobody has any more.
	cgroup atomic.Pointer[os.File]
)

// Start is cmd.Start for a child that Wait will collect.
func Start(cmd *exec.Cmd) error {
	t := starting.Load()
	if t == nil {
		return start(cmd)
	}
	result := make(chan error, 1)
	select {
	case t.work <- func() { result <- start(cmd) }:
		return <-result
	case <-t.done:
		return ErrStopped
	}
}

func start(cmd *exec.Cmd) error {
	mu.RLock()
	defer mu.RUnlock()
	if grouping.Load() {
		leadGroup(cmd)
	}
	if dir := cgroup.Load(); dir != nil {
		enterCgroup(cmd, int(dir.Fd()))
	}
	if guarded.Load() && cmd.Dir != "" {
		done, err := guardDir(cmd)
		if err != nil {
			return err
		}
		defer done()
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	owned.Store(cmd.Process.Pid, cmd)
	if grouping.Load() {
		enterGroup(cmd.Process.Pid)
	}
	return nil
}

// Wait is cmd.Wait for a child that Start started.
func Wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	if cmd.Process != nil {
		// The pid may be that of a new child already: remove the entry of cmd alone.
		owned.CompareAndDelete(cmd.Process.Pid, cmd)
		if grouping.Load() {
			leaveGroup(cmd.Process.Pid)
		}
	}
	select {
	case collected <- struct{}{}:
	default:
	}
	return err
}

// Hold waits for the calls of Start under way and keeps others from starting
// anything until release is called.
func Hold() (release func()) {
	mu.Lock()
	return sync.OnceFunc(mu.Unlock)
}

type thread struct {
	work chan func()
	done chan struct{}
}

// OneThread makes every Start after it work on one thread, where prepare is run first,
// until stop is called; where prepare fails nothing changes. What a child inherits from a
// thread and not from a process, such as the bounding set of capabilities, is then the
// same for all children.
func OneThread(prepare func() error) (stop func(), err error) {
	t := &thread{work: make(chan func()), done: make(chan struct{})}
	over := make(chan struct{})
	prepared := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: nothing else is to have what prepare has made of it
		defer close(t.done)
		err := prepare()
		prepared <- err
		if err != nil {
			return
		}
		for {
			select {
			case f := <-t.work:
				f()
			case <-over:
				return
			}
		}
	}()
	if err := <-prepared; err != nil {
		<-t.done
		return nil, err
	}
	starting.Store(t)
	return sync.OnceFunc(func() {
		close(over)
		<-t.done
	}), nil
}
