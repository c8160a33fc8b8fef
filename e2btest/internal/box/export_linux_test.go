package box

import "github.com/seed-09a7379d/e2b-go/e2btest/internal/node"

// Cgroup returns the directory of the control group that sandboxes are frozen
// with, if there is one.
func Cgroup(n *Node) string {
	if n.cgroups == nil {
		return ""
	}
	return n.cgroups.dir
}

// LimitGroups returns the directories of the control groups that limit sandboxes.
func LimitGroups(n *Node) []string {
	var dirs []string
	for _, g := range n.limits {
		dirs = append(dirs, g.dir)
	}
	if len(n.unlimited) > 0 {
		dirs = append(dirs, n.cgroups.dir)
	}
	return dirs
}

// CommandsGroup returns the directory of the control group that the processes of a
// sandbox are in, by the one that also freezes them.
func CommandsGroup(s node.Sandbox) string {
	if g := s.(*sandbox).proc.group; g != nil {
		return g.commands
	}
	return ""
}

// ErrNotMounted is what New returns where there are no control groups.
var ErrNotMounted = errNotMounted
