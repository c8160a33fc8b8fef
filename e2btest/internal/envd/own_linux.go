package envd

import (
	"fmt"
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
	return err != nil || strings.HasPrefix(name, fmt.Sprintf("/proc/%d/", os.Getpid()))
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
