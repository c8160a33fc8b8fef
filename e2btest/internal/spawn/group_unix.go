//go:build linux || darwin

package spawn

import (
	"errors"
	"maps"
	"os/exec"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// groups has the process groups whose leader Start started and that had members
// when last looked at.
var groups = struct {
	sync.Mutex
	leaders map[int]struct{}
}{leaders: make(map[int]struct{})}

// OwnGroups makes every child that Start starts from now on the leader of a
// process group, unless it leads a session anyway.
func OwnGroups() { grouping.Store(true) }

// Groups returns the process groups of children that still have members. A
// member may have outlived the leader.
func Groups() []int {
	groups.Lock()
	defer groups.Unlock()
	for pgid := range groups.leaders {
		if errors.Is(unix.Kill(-pgid, 0), unix.ESRCH) {
			delete(groups.leaders, pgid)
		}
	}
	return slices.Sorted(maps.Keys(groups.leaders))
}

func leadGroup(cmd *exec.Cmd) {
	attr := attributes(cmd)
	if !attr.Setsid && !attr.Setpgid {
		attr.Setpgid = true
		cmd.SysProcAttr = attr
	}
}

// attributes returns a copy of those of a command.
func attributes(cmd *exec.Cmd) *unix.SysProcAttr {
	attr := new(unix.SysProcAttr)
	if cmd.SysProcAttr != nil {
		*attr = *cmd.SysProcAttr
	}
	return attr
}

func enterGroup(pid int) {
	groups.Lock()
	defer groups.Unlock()
	groups.leaders[pid] = struct{}{}
}

// leaveGroup forgets a group that ended with its leader, at once, since its
// number may then be given to strangers.
func leaveGroup(pid int) {
	groups.Lock()
	defer groups.Unlock()
	if errors.Is(unix.Kill(-pid, 0), unix.ESRCH) {
		delete(groups.leaders, pid)
	}
}
