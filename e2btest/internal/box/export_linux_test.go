package box

// Cgroup returns the directory of the control group that sandboxes are frozen
// with, if there is one.
func Cgroup(n *Node) string {
	if n.cgroups == nil {
		return ""
	}
	return n.cgroups.dir
}
