package spawn

import (
	"os"
	"os/exec"
)

// IntoCgroup makes every child start in a control group (version 2), whose directory dir
// is. It stays open as long as the process lives.
func IntoCgroup(dir *os.File) { cgroup.Store(dir) }

func enterCgroup(cmd *exec.Cmd, fd int) {
	attr := attributes(cmd)
	attr.UseCgroupFD, attr.CgroupFD = true, fd
	cmd.SysProcAttr = attr
}
