package envd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// isOwn says whether an open file is this process's own: its program, which comes from
// outside of the sandbox that it serves, or a file of /proc that is about it. The system
// gives these to nobody else in the sandbox.
func isOwn(f *os.File) (own bool) {
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	// Not f.Fd, which would make reads of a pipe block.
	err = conn.Control(func(fd uintptr) { own = isOwnFile(int(fd)) })
	return own || err != nil
}

func isOwnFile(fd int) bool {
	var st unix.Stat_t
	own := ownFiles()
	switch err := unix.Fstat(fd, &st); {
	case err != nil, own.program == idOf(&st):
		return true
	case idOf(&st).dev != own.proc:
		return false
	}
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return true
	}
	of, ok := strings.CutPrefix(name, fmt.Sprintf("/proc/%d/", os.Getpid()))
	// These are what /proc/net and /proc/mounts lead to, and the same for all.
	return ok && of != "mounts" && !strings.HasPrefix(of, "net/")
}

type fileID struct{ dev, ino uint64 }

func idOf(st *unix.Stat_t) fileID {
	return fileID{uint64(st.Dev), st.Ino} //nolint:unconvert // it is another type elsewhere
}

// ownFiles tells how to know them.
var ownFiles = sync.OnceValue(func() (own struct {
	program fileID
	proc    uint64
},
) {
	var st unix.Stat_t
	if unix.Stat("/proc/self/exe", &st) == nil {
		own.program = idOf(&st)
	}
	if unix.Stat("/proc/self", &st) == nil {
		own.proc = idOf(&st).dev
	}
	return own
})

// openNamed is os.OpenFile without the links of /proc to what processes have open.
func openNamed(name string, flag int, perm fs.FileMode) (*os.File, error) {
	how := unix.OpenHow{Flags: uint64(flag) | unix.O_CLOEXEC | unix.O_LARGEFILE}
	if flag&os.O_CREATE != 0 {
		how.Mode = uint64(perm.Perm())
	}
	fd, err := openUnlinked(name, how)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

func statNamed(op, name string) (fs.FileInfo, error) {
	fd, err := openUnlinked(name, unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC})
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	return f.Stat()
}

// holdDir returns a path of a directory that means it until done is called.
func holdDir(name string) (path string, done func(), err error) {
	fd, err := openUnlinked(name, unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC})
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d", fd), func() { _ = unix.Close(fd) }, nil
}

func openUnlinked(name string, how unix.OpenHow) (fd int, err error) {
	how.Resolve = unix.RESOLVE_NO_MAGICLINKS
	for {
		fd, err = unix.Openat2(unix.AT_FDCWD, name, &how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if errors.Is(err, unix.ELOOP) {
		// Also said of what is refused here.
		var st unix.Stat_t
		if unix.Stat(name, &st) == nil {
			err = unix.EACCES
		}
	}
	return fd, err
}
