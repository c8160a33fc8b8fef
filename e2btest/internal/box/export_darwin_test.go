package box

// Cgroup returns "", since this system has no control groups.
func Cgroup(*Node) string { return "" }
