package box

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

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

// executable is the running program, which is opened again by the path in the mount
// namespace of the agent, whose mounts the agent can restrict. If the file has been
// replaced since, it is a copy. close is for when it has been started.
func executable() (path string, close func(), err error) {
	const self = "/proc/self/exe"
	running, err := os.Stat(self)
	if err != nil {
		return "", nil, err
	}
	if path, err := os.Readlink(self); err == nil {
		if now, err := os.Stat(path); err == nil && os.SameFile(now, running) {
			return path, func() {}, nil
		}
	}
	f, err := copyInMemory(self)
	if err != nil {
		return "", nil, fmt.Errorf("copy the running program: %w", err)
	}
	return fmt.Sprintf("/proc/self/fd/%d", f.Fd()), func() { f.Close() }, nil
}

// copyInMemory returns a copy of a file that has no name and can be executed.
func copyInMemory(path string) (_ *os.File, err error) {
	from, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	fd, err := unix.MemfdCreate("e2b-sandbox", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // the kernel does not ask for MFD_EXEC
		fd, err = unix.MemfdCreate("e2b-sandbox", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, err
	}
	to := os.NewFile(uintptr(fd), "copy")
	defer to.Close() // what can be written to is not executed
	if _, err := io.Copy(to, from); err != nil {
		return nil, err
	}
	readable, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return nil, err
	}
	defer readable.Close()
	// Beyond the descriptors that a child gets, which replace what has their numbers.
	high, err := unix.FcntlInt(readable.Fd(), unix.F_DUPFD_CLOEXEC, 64)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(high), "copy"), nil
}

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
