package box

import (
	"fmt"
	"os"
	"syscall"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/agent"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/agent/mounts"
)

const noIsolation = "" // there is always an error that says why

// isolations returns what to try, the best first.
func isolations() []isolation {
	if os.Geteuid() == 0 {
		return []isolation{allNamespaces, namespaces, userNamespaces}
	}
	return []isolation{userNamespaces}
}

// executable is the running program, also if its file has been replaced since.
func executable() (string, error) { return "/proc/self/exe", nil }

// checkNoMounts returns an error if anything is mounted in dir.
func checkNoMounts(dir string) error {
	all, err := mounts.List()
	if err != nil {
		return err
	}
	for _, m := range all {
		if agent.Below(m.Path, dir) {
			return fmt.Errorf("%s is not removed: something is mounted on %s", dir, m.Path)
		}
	}
	return nil
}

func (i isolation) sysProcAttr(ownNetwork bool, group *cgroup) *syscall.SysProcAttr {
	// An own session, so that a ctrl-C on the emulator's terminal does not reach it.
	attr := &syscall.SysProcAttr{Setsid: true}
	if i == plain {
		// Without Pdeathsig: it would leave the processes of the sandbox behind, which
		// the agent ends when it sees that nobody controls it any more.
		return attr
	}
	attr.Pdeathsig = syscall.SIGKILL
	attr.Cloneflags = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS
	if ownNetwork {
		attr.Cloneflags |= syscall.CLONE_NEWNET
	}
	switch i {
	case allNamespaces:
		// The same users, but root is nobody special to the rest of the kernel.
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: agent.Users}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: agent.Users}}
		attr.GidMappingsEnableSetgroups = true
	case userNamespaces:
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	if group != nil {
		attr.UseCgroupFD = true
		attr.CgroupFD = int(group.fd.Fd())
	}
	return attr
}
