package spawn

import (
	"os"
	"os/exec"
)

// IntoCgroup makes every child start in a control group (version 2), whose directory dir
// is and stays.
func IntoCgroup(dir *os.File) { cgroup.Store(int32(dir.Fd())) }

func enterCgroup(cmd *exec.Cmd, fd int) {
	attr := attributes(cmd)
	attr.UseCgroupFD, attr.CgroupFD = true, fd
	cmd.SysProcAttr = attr
}
