package box

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/agent/mounts"
)

// A cgroups is a control group (version 2) that has one for each sandbox.
type cgroups struct {
	dir  string
	lock *os.File // dir, locked as long as the owner lives
}

// newCgroups makes a control group of this name, which must match dirPattern, below
// the one that this process is in. It removes those that dead owners left there.
func newCgroups(name string) (*cgroups, error) {
	own, err := ownCgroup()
	if err != nil {
		return nil, err
	}
	abandoned, err := filepath.Glob(filepath.Join(escapeGlob(own), dirPattern))
	if err != nil {
		return nil, err
	}
	for _, dir := range abandoned {
		removeIfAbandonedCgroup(dir)
	}

	g := &cgroups{dir: filepath.Join(own, name)}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, err
	}
	if g.lock, err = lockCgroup(g.dir); err == nil {
		// It is not there if the kernel is too old, or if it was taken for an abandoned
		// one before it was locked.
		_, err = os.Stat(filepath.Join(g.dir, "cgroup.freeze"))
	}
	if err != nil {
		return nil, errors.Join(err, g.remove())
	}
	return g, nil
}

// lockCgroup opens and locks the directory of a control group.
func lockCgroup(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}

// removeIfAbandonedCgroup removes a control group whose owner is dead. One with
// processes stays in any case.
func removeIfAbandonedCgroup(dir string) {
	lock, err := lockCgroup(dir)
	if err != nil {
		return
	}
	defer lock.Close()
	children, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, c := range children {
		if c.IsDir() {
			_ = os.Remove(filepath.Join(dir, c.Name()))
		}
	}
	_ = os.Remove(dir)
}

// remove removes the control group, whose sandboxes have ended.
func (g *cgroups) remove() error {
	if g.lock != nil {
		g.lock.Close()
	}
	err := os.Remove(g.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// ownCgroup returns the directory of the control group of this process.
func ownCgroup() (string, error) {
	all, err := mounts.List()
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	return findCgroup(all, string(data))
}

func findCgroup(all []mounts.Mount, memberships string) (string, error) {
	for line := range strings.Lines(memberships) {
		// The line of version 2 begins with this in every system.
		own, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		if !ok {
			continue
		}
		for _, m := range all {
			if m.Type != "cgroup2" {
				continue
			}
			if rest, ok := strings.CutPrefix(own, strings.TrimSuffix(m.Root, "/")); ok && (rest == "" || rest[0] == '/') {
				return filepath.Join(m.Path, rest), nil
			}
		}
	}
	return "", errors.New("the control group (version 2) of this process is not mounted")
}

// A cgroup is the control group of one sandbox.
type cgroup struct {
	dir string
	fd  *os.File // of the directory
}

func (g *cgroups) add(name string) (*cgroup, error) {
	dir := filepath.Join(g.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	fd, err := os.OpenFile(dir, unix.O_DIRECTORY|unix.O_PATH, 0)
	if err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	return &cgroup{dir: dir, fd: fd}, nil
}

// freeze freezes the processes in the control group and returns when they are.
func (c *cgroup) freeze(ctx context.Context) error { return c.set(ctx, "1") }

// thaw undoes freeze.
func (c *cgroup) thaw(ctx context.Context) error { return c.set(ctx, "0") }

func (c *cgroup) set(ctx context.Context, frozen string) error {
	events, err := os.Open(filepath.Join(c.dir, "cgroup.events"))
	if err != nil {
		return err
	}
	defer events.Close()
	if err := os.WriteFile(filepath.Join(c.dir, "cgroup.freeze"), []byte(frozen), 0); err != nil {
		return err
	}
	buf := make([]byte, 4096)
	for {
		n, _ := events.ReadAt(buf, 0) // it ends with io.EOF
		if strings.Contains(string(buf[:n]), "frozen "+frozen+"\n") {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("freeze the control group: %w", err)
		}
		// The kernel tells of changes; the limit is there to look at ctx again.
		fds := []unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}
		if _, err := unix.Poll(fds, 10); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("poll %s: %w", events.Name(), err)
		}
	}
}

// remove removes the control group, whose processes have ended or are about to.
func (c *cgroup) remove() error {
	const limit = 5 * time.Second
	c.fd.Close()
	deadline := time.Now().Add(limit)
	for {
		err := os.Remove(c.dir)
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return err
		}
		<-time.After(time.Millisecond)
	}
}
