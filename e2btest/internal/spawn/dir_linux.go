package spawn

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// GuardDirs lets no child start in a directory that a link of /proc to what a process has
// open leads to: until its program runs, a child has what this process has open.
func GuardDirs() { guarded.Store(true) }

// guardDir opens the directory of a command, as the command's user would, and has the
// child start in it by its descriptor. done undoes that.
func guardDir(cmd *exec.Cmd) (done func(), err error) {
	fd, err := openDir(cmd.Dir, cmd.SysProcAttr)
	if err != nil {
		// What the child would have said.
		return nil, &os.PathError{Op: "fork/exec", Path: cmd.Path, Err: err}
	}
	dir := cmd.Dir
	cmd.Dir = fmt.Sprintf("/proc/self/fd/%d", fd)
	return func() {
		cmd.Dir = dir
		_ = unix.Close(fd)
	}, nil
}

func openDir(name string, attr *unix.SysProcAttr) (int, error) {
	if attr != nil && attr.Credential != nil {
		// These are of a thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		uid, gid := os.Geteuid(), os.Getegid()
		if err := unix.Setfsgid(int(attr.Credential.Gid)); err != nil {
			return -1, err
		}
		if err := unix.Setfsuid(int(attr.Credential.Uid)); err != nil {
			return -1, err
		}
		defer func() {
			_ = unix.Setfsuid(uid) // what was so before can be so again
			_ = unix.Setfsgid(gid)
		}()
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return -1, err
	}
	// Only a path means the right to enter it.
	if err := unix.Faccessat2(fd, "", unix.X_OK, unix.AT_EMPTY_PATH|unix.AT_EACCESS); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
