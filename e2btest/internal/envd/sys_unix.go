//go:build linux || darwin

package envd

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// openNoWait keeps open from waiting for the other end of a named pipe.
const openNoWait = unix.O_NONBLOCK

// outOfSpace are the errors of a full disk.
var outOfSpace = []error{unix.ENOSPC, unix.EDQUOT}

// errLoop is what the system says of too many links.
var errLoop error = unix.ELOOP

// prepare makes cmd run as u, in a process group or, with a terminal, in a
// session of its own.
func prepare(cmd *exec.Cmd, u *User, terminal bool) {
	attr := &syscall.SysProcAttr{Setpgid: !terminal, Setsid: terminal, Setctty: terminal}
	if u.Switch {
		attr.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
	}
	cmd.SysProcAttr = attr
}

// keepFiles sees to it that commands do not inherit what this process was started
// with, such as its end of a pipe to its parent. What Go opens they never do.
func keepFiles() {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// killGroup kills the process group.
func killGroup(pid int) {
	_ = unix.Kill(-pid, unix.SIGKILL) // ESRCH: it is gone, which is what was wanted
}

// groupAlive says whether a process group has members.
func groupAlive(pid int) bool {
	return !errors.Is(unix.Kill(-pid, 0), unix.ESRCH)
}

// openTerminal returns both ends of a new terminal.
func openTerminal(size pty.Winsize) (master, tty *os.File, err error) {
	blocking, tty, err := pty.Open()
	if err != nil {
		return nil, nil, err
	}
	defer blocking.Close()
	if master, err = pollable(blocking); err == nil {
		if err = resizeTerminal(master, size); err == nil {
			return master, tty, nil
		}
		master.Close()
	}
	tty.Close()
	return nil, nil, err
}

// pollable returns a duplicate of f whose reads and writes end when it is closed.
// pty leaves its files in blocking mode, where they do not.
func pollable(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	ctlErr := raw.Control(func(old uintptr) {
		if fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			err = unix.SetNonblock(fd, true)
		}
	})
	if err = errors.Join(ctlErr, err); err != nil {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

func resizeTerminal(master *os.File, size pty.Winsize) error {
	raw, err := master.SyscallConn()
	if err != nil {
		return err
	}
	// Not pty.Setsize: it would put the file back into blocking mode.
	ctlErr := raw.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	})
	return errors.Join(ctlErr, err)
}

// owner returns the ids of a file's owner and group.
func owner(fi fs.FileInfo) (uid, gid uint32, ok bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return st.Uid, st.Gid, true
}

// diskSpace returns the used and all bytes of the file system at dir.
func diskSpace(dir string) (used, total uint64) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0
	}
	size := uint64(st.Bsize)
	return (st.Blocks - st.Bfree) * size, st.Blocks * size
}

// attrsUnsupported says that a file system keeps no extended attributes.
func attrsUnsupported(err error) bool {
	return errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EOPNOTSUPP)
}

// fileAttrs are the extended attributes of an open file.
type fileAttrs struct{ f *os.File }

func (a fileAttrs) do(op func(fd int) (int, error)) (n int, err error) {
	raw, err := a.f.SyscallConn()
	if err != nil {
		return 0, err
	}
	ctlErr := raw.Control(func(fd uintptr) { n, err = op(int(fd)) })
	return n, errors.Join(ctlErr, err)
}

func (a fileAttrs) list(buf []byte) (int, error) {
	return a.do(func(fd int) (int, error) { return unix.Flistxattr(fd, buf) })
}

func (a fileAttrs) get(name string, buf []byte) (int, error) {
	return a.do(func(fd int) (int, error) { return unix.Fgetxattr(fd, name, buf) })
}

func (a fileAttrs) set(name, value string) error {
	_, err := a.do(func(fd int) (int, error) { return 0, unix.Fsetxattr(fd, name, []byte(value), 0) })
	return err
}

func (a fileAttrs) remove(name string) error {
	_, err := a.do(func(fd int) (int, error) { return 0, unix.Fremovexattr(fd, name) })
	return err
}

// pathAttrs are the extended attributes of a file that need not be opened.
type pathAttrs string

func (a pathAttrs) list(buf []byte) (int, error) { return unix.Llistxattr(string(a), buf) }

func (a pathAttrs) get(name string, buf []byte) (int, error) {
	return unix.Lgetxattr(string(a), name, buf)
}
