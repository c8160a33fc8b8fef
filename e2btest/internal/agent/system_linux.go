package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/agent/mounts"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/spawn"
)

// faults are the signals that end a Go program as a fault of its own.
var faults = []os.Signal{
	unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSTKFLT, unix.SIGSYS,
}

// adopt makes the orphans among our descendants our children, so that they can be
// found.
func adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	return nil
}

// startReaper collects orphans for as long as the process lives.
func startReaper() { go spawn.Reap(nil) }

// isolate turns the process, pid 1 of new namespaces, into that of a sandbox: with
// cfg.Root as its root, and with nothing of the host but cfg.Binds. files is a path,
// of use to this process alone, to the sandbox's own files without what is mounted in
// them.
func isolate(cfg *Config) (files string, err error) {
	// First of all: what is mounted from here on must not reach the host.
	if err := mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "", err
	}
	own, err := unix.OpenTree(unix.AT_FDCWD, cfg.Root, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", cfg.Root, err)
	}
	if err := mount(cfg.Root, cfg.Root, "", unix.MS_BIND, ""); err != nil {
		return "", err
	}
	if err := mountInside(cfg); err != nil {
		return "", err
	}
	volumes, err := openVolumes(cfg.Volumes)
	if err != nil {
		return "", err
	}

	// The old root is put on top of the new one, and taken off.
	old, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open the host's root: %w", err)
	}
	defer unix.Close(old)
	if err := os.Chdir(cfg.Root); err != nil {
		return "", err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return "", fmt.Errorf("pivot_root: %w", err)
	}
	// This program, the one thing that is in use of it: a command whose shell is a link to
	// /proc/self/exe would run it, and root of the sandbox could change the host's file.
	if err := setMountAttr(old, unix.MOUNT_ATTR_NOEXEC); err != nil {
		return "", fmt.Errorf("restrict the host's root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return "", fmt.Errorf("unmount the host's root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return "", err
	}

	if cfg.OwnUsers {
		// Who made a namespace of users would have all rights in it, also to mount.
		if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
			return "", err
		}
	}
	if err := coverProc(); err != nil {
		return "", err
	}
	if err := restrictMounts(); err != nil {
		return "", err
	}
	// Last, since from here on paths can lead through what sandboxes have written.
	if err := mountVolumes(volumes, cfg.Volumes); err != nil {
		return "", err
	}
	if err := unix.Sethostname([]byte(Hostname)); err != nil {
		return "", fmt.Errorf("set the host name: %w", err)
	}
	if cfg.OwnNetwork {
		if err := raiseLoopback(); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("/proc/self/fd/%d/.", own), nil
}

func mount(source, target, fstype string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, fstype, flags, data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", source, target, err)
	}
	return nil
}

// mountInside mounts what a sandbox has besides its own files. Those can be of an earlier
// life, in which root could put links to anywhere in the way: no link is followed.
func mountInside(cfg *Config) error {
	root, err := unix.Open(cfg.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", cfg.Root, err)
	}
	defer unix.Close(root)
	for _, b := range cfg.Binds {
		err := mountBind(root, b.Path)
		if b.Optional && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)) {
			continue
		}
		if err != nil {
			return fmt.Errorf("show %s: %w", b.Path, err)
		}
	}
	if err := mountOn(root, "dev", func(dev string) error {
		return mount("tmpfs", dev, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755,size=1m")
	}); err != nil {
		return err
	}
	if err := mountOn(root, "dev", func(dev string) error { return fillDev(dev, cfg.SharedMemory) }); err != nil {
		return err
	}
	return mountOn(root, "proc", func(proc string) error {
		return mount("proc", proc, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	})
}

// openInside opens what path, without links, means below root.
func openInside(root int, path string) (int, error) {
	return unix.Openat2(root, strings.TrimPrefix(path, "/"), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
}

// mountOn calls do with another path of the one below root, which no link can change.
func mountOn(root int, path string, do func(path string) error) error {
	fd, err := openInside(root, path)
	if err != nil {
		return fmt.Errorf("open /%s: %w", path, err)
	}
	defer unix.Close(fd)
	return do(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// mountBind shows a directory or file of the host at the same path, with what is mounted
// in it, as nothing that can be changed.
func mountBind(root int, path string) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if err := setMountAttr(tree, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV); err != nil {
		return err
	}
	at, err := openInside(root, path)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	return unix.MoveMount(tree, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// setMountAttr restricts mounts that nobody else sees.
func setMountAttr(tree int, attr uint64) error {
	return unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attr})
}

// devices are those of the host that a sandbox has.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// fillDev makes of an empty directory a /dev with the devices that programs need.
func fillDev(dev string, sharedMemory int64) error {
	for _, path := range devices {
		target := filepath.Join(dev, filepath.Base(path))
		// A namespace of an unprivileged user can have no device of its own.
		f, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
		if err := mount(path, target, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	for _, dir := range []string{"pts", "shm"} {
		if err := os.Mkdir(filepath.Join(dev, dir), 0o755); err != nil {
			return err
		}
	}
	if err := mount("devpts", dev+"/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"); err != nil {
		return err
	}
	shm := "mode=1777"
	if sharedMemory > 0 {
		shm += fmt.Sprintf(",size=%d", sharedMemory)
	}
	if err := mount("tmpfs", dev+"/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, shm); err != nil {
		return err
	}
	for name, target := range map[string]string{
		"ptmx":   "pts/ptmx",
		"fd":     "/proc/self/fd",
		"stdin":  "/proc/self/fd/0",
		"stdout": "/proc/self/fd/1",
		"stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	return nil
}

// openVolumes takes hold of volumes as long as the host's root is there.
func openVolumes(volumes []Volume) ([]int, error) {
	trees := make([]int, len(volumes))
	for i, v := range volumes {
		fd, err := unix.OpenTree(unix.AT_FDCWD, v.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return nil, fmt.Errorf("open volume for %s: %w", v.Path, err)
		}
		if err := setMountAttr(fd, unix.MOUNT_ATTR_NODEV); err != nil {
			return nil, fmt.Errorf("restrict volume for %s: %w", v.Path, err)
		}
		trees[i] = fd
	}
	return trees, nil
}

// mountVolumes mounts them when the root is the sandbox's own and nothing of the host can
// be changed in it, since what its processes have put in the way must not lead out of it.
func mountVolumes(trees []int, volumes []Volume) error {
	for i, v := range volumes {
		if err := mountVolume(trees[i], v.Path); err != nil {
			return fmt.Errorf("mount volume: %w", err)
		}
		if err := unix.Close(trees[i]); err != nil {
			return err
		}
	}
	return nil
}

func mountVolume(tree int, path string) error {
	dir, err := makeDirs(path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir))
	if err != nil {
		return err
	}
	if at == "/" || slices.ContainsFunc(SystemMounts, func(dir string) bool { return Below(at, dir) }) {
		return fmt.Errorf("%s leads to %s", path, at)
	}
	if err := unix.MoveMount(tree, "", dir, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("on %s: %w", at, err)
	}
	return nil
}

// makeDirs opens a directory, which it makes with those above it where they are missing.
// Links are followed, but those to what this process has open, since that can be the host's.
func makeDirs(path string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	dir, err := unix.Openat2(unix.AT_FDCWD, path, &how)
	if err == nil {
		return dir, nil
	}
	if !errors.Is(err, unix.ENOENT) || path == "/" {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	above, err := makeDirs(filepath.Dir(path))
	if err != nil {
		return -1, err
	}
	defer unix.Close(above)
	if err := unix.Mkdirat(above, filepath.Base(path), 0o755); err != nil {
		return -1, &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	how.Resolve |= unix.RESOLVE_NO_SYMLINKS
	if dir, err = unix.Openat2(above, filepath.Base(path), &how); err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return dir, nil
}

// restrictMounts makes what is left of the host's read-only, and lets no device be opened
// in the sandbox's own files.
func restrictMounts() error {
	all, err := mounts.List()
	if err != nil {
		return err
	}
	for _, m := range all {
		flags := uintptr(unix.MS_BIND | unix.MS_REMOUNT)
		switch {
		case m.Path == "/":
			flags |= unix.MS_NODEV
		case slices.Contains(devices, m.Path), Below(m.Path, "/proc") && m.Path != "/proc":
			// Devices can be written to all the same, but their modes are not changed.
			flags |= unix.MS_RDONLY
		default:
			continue
		}
		// What is left out would be taken away, which the kernel does not allow
		// everyone; only what is about access times stays by itself.
		for _, option := range m.Options {
			flags |= mountFlags[option]
		}
		if err := mount("", m.Path, "", flags, ""); err != nil {
			return err
		}
	}
	return nil
}

var mountFlags = map[string]uintptr{
	"ro":     unix.MS_RDONLY,
	"nosuid": unix.MS_NOSUID,
	"nodev":  unix.MS_NODEV,
	"noexec": unix.MS_NOEXEC,
}

// coverProc covers the parts of /proc that are not about the processes of the
// namespace, since with them root of the sandbox would control or read the host:
// by themselves, which restrictMounts makes read-only, or by nothing.
func coverProc() error {
	for name, cover := range map[string]string{
		"/proc/sys":           "/proc/sys",
		"/proc/sysrq-trigger": "/proc/sysrq-trigger",
		"/proc/irq":           "/proc/irq",
		"/proc/bus":           "/proc/bus",
		"/proc/fs":            "/proc/fs",
		"/proc/kcore":         "/dev/null",
		"/proc/kmsg":          "/dev/null",
		"/proc/keys":          "/dev/null",
	} {
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := mount(cover, name, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
	}
	return nil
}

func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("raise the loopback interface: %w", err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("raise the loopback interface: %w", err)
	}
	return nil
}

// keptCapabilities is what root of a sandbox needs to feel as root. Whatever
// could undo the isolation is not among it: mounting, making devices, tracing the
// agent, opening files by handle, changing the network or the kernel.
var keptCapabilities = []int{
	unix.CAP_CHOWN,
	unix.CAP_DAC_OVERRIDE,
	unix.CAP_FOWNER,
	unix.CAP_FSETID,
	unix.CAP_KILL,
	unix.CAP_SETGID,
	unix.CAP_SETUID,
	unix.CAP_SETPCAP,
	unix.CAP_SETFCAP,
	unix.CAP_NET_BIND_SERVICE,
	unix.CAP_SYS_CHROOT,
	unix.CAP_SYS_NICE,
	unix.CAP_IPC_LOCK,
	unix.CAP_IPC_OWNER,
}

// dropCapabilities keeps the programs that this thread starts from ever having
// other capabilities than these. The agent keeps its own.
func dropCapabilities() error {
	for c := 0; c <= unix.CAP_LAST_CAP; c++ {
		if slices.Contains(keptCapabilities, c) {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: not known to this kernel
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	// Inheritable ones would come back with the next program.
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	for i := range sets {
		sets[i].Inheritable = 0
	}
	if err := unix.Capset(&header, &sets[0]); err != nil {
		return fmt.Errorf("drop inheritable capabilities: %w", err)
	}
	return nil
}
