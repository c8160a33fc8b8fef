package box

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/agent/mounts"
)

// A cgroups is a control group that has one for each sandbox.
type cgroups struct {
	dir  string
	lock *os.File // dir, locked as long as the owner lives
	// limits are the files to be written to limit what is in a group.
	limits []setting
	// controllers are those that limit in version 2. With them a sandbox has two groups
	// in its own, of which one is limited: all threads of a process are in one group.
	controllers []string
}

// A setting is a file of a control group, and what it is to have.
type setting struct {
	file, value string
	optional    bool // not every system has the file
}

// The two groups of a sandbox.
const (
	agentGroup    = "agent"
	commandsGroup = "commands"
)

// newCgroups makes a control group (version 2) of this name, which must match dirPattern,
// below the one that this process is in. It removes those that dead owners left there.
// Where that one cannot limit, the one above it has to, since a group with processes
// gives no limits to those below.
func newCgroups(name string, limits []limit) (*cgroups, error) {
	own, root, err := ownCgroup("")
	if err != nil {
		return nil, err
	}
	g, err := makeCgroups(own, name, "cgroup.freeze")
	if err != nil || len(limits) == 0 {
		return g, err
	}
	err = enable(own, g, limits)
	if err != nil && own != root {
		if err := g.remove(); err != nil {
			return nil, err
		}
		above := filepath.Dir(own)
		if g, err = makeCgroups(above, name, "cgroup.freeze"); err != nil {
			return nil, err
		}
		err = enable(above, g, limits)
	}
	if err != nil {
		return nil, errors.Join(err, g.remove())
	}
	return g, nil
}

// enable lets the groups in g be limited, for which it needs the group above.
func enable(above string, g *cgroups, limits []limit) error {
	for _, l := range limits {
		for _, dir := range []string{above, g.dir} {
			if slices.Contains(fieldsOf(filepath.Join(dir, subtreeControl)), l.controller) {
				continue
			}
			if err := giveController(dir, l.controller); err != nil {
				return err
			}
		}
		g.controllers = append(g.controllers, l.controller)
		g.limits = append(g.limits, l.unified()...)
	}
	return nil
}

// giveController makes the groups in a group have a controller.
func giveController(dir, controller string) error {
	return writeFile(filepath.Join(dir, subtreeControl), "+"+controller)
}

const subtreeControl = "cgroup.subtree_control"

// writeFile writes to a file that is there.
func writeFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// fieldsOf returns the words of a file, none if it cannot be read.
func fieldsOf(path string) []string {
	data, _ := os.ReadFile(path)
	return strings.Fields(string(data))
}

// newLimits makes the control groups (version 1) for the limits whose controllers have a
// hierarchy of that version, and returns the limits that are left.
func newLimits(name string, limits []limit) (groups []*cgroups, rest []limit, err error) {
	for _, l := range limits {
		own, _, err := ownCgroup(l.controller)
		if errors.Is(err, errNotMounted) {
			rest = append(rest, l)
			continue
		}
		if err == nil {
			groups, err = addLimit(groups, filepath.Join(own, name), l)
		}
		if err != nil {
			for _, g := range groups {
				err = errors.Join(err, g.remove())
			}
			return nil, nil, fmt.Errorf("%s: %w", l.option, err)
		}
	}
	return groups, rest, nil
}

// addLimit adds a limit to the group in dir, which it makes if need be: hierarchies can
// have several controllers.
func addLimit(groups []*cgroups, dir string, l limit) ([]*cgroups, error) {
	i := slices.IndexFunc(groups, func(g *cgroups) bool { return g.dir == dir })
	if i < 0 {
		g, err := makeCgroups(filepath.Dir(dir), filepath.Base(dir), tasksFile)
		if err != nil {
			return groups, err
		}
		i, groups = len(groups), append(groups, g)
	}
	groups[i].limits = append(groups[i].limits, l.separate()...)
	return groups, nil
}

// tasksFile is what takes a thread into a group of version 1.
const tasksFile = "tasks"

// unified returns what the limit is in version 2.
func (l limit) unified() []setting {
	value := strconv.FormatInt(l.value, 10)
	if l.controller == pidsController {
		return []setting{{file: "pids.max", value: value}}
	}
	return []setting{
		{file: "memory.max", value: value},
		{file: "memory.swap.max", value: "0", optional: true},
	}
}

// separate returns what the limit is in version 1.
func (l limit) separate() []setting {
	if l.controller == pidsController {
		// The thread that starts the processes is in the group, too.
		return []setting{{file: "pids.max", value: strconv.FormatInt(l.value+1, 10)}}
	}
	value := strconv.FormatInt(l.value, 10)
	return []setting{
		{file: "memory.limit_in_bytes", value: value},
		{file: "memory.memsw.limit_in_bytes", value: value, optional: true}, // with what is swapped out
	}
}

// makeCgroups makes a control group below another. check is a file that it has if it can
// be used.
func makeCgroups(own, name, check string) (*cgroups, error) {
	abandoned, err := filepath.Glob(filepath.Join(escapeGlob(own), dirPattern))
	if err != nil {
		return nil, err
	}
	for _, dir := range abandoned {
		removeIfAbandonedCgroup(dir)
	}

	g := &cgroups{dir: filepath.Join(own, name)}
	for {
		if err := os.Mkdir(g.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if g.lock, err = lockCgroup(g.dir); err == nil {
			break
		}
		if !isTaken(err) {
			return nil, errors.Join(err, g.remove())
		}
		<-time.After(time.Millisecond)
	}
	if _, err := os.Stat(filepath.Join(g.dir, check)); err != nil { // the kernel is too old
		return nil, errors.Join(err, g.remove())
	}
	return g, nil
}

// isTaken says whether a group could not be locked since another node takes it for
// abandoned, as it is until it is locked, and removes it.
func isTaken(err error) bool {
	return errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist)
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
	if _, err := os.Stat(dir); err != nil { // it was removed meanwhile
		f.Close()
		return nil, err
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
			child := filepath.Join(dir, c.Name())
			_ = os.Remove(filepath.Join(child, agentGroup))
			_ = os.Remove(filepath.Join(child, commandsGroup))
			_ = os.Remove(child)
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

var errNotMounted = errors.New("the control group of this process is not mounted")

// ownCgroup returns the directory of the control group that this process is in, and the
// uppermost one that can be seen: of version 1 for a controller, of version 2 for none.
func ownCgroup(controller string) (own, root string, err error) {
	all, err := mounts.List()
	if err != nil {
		return "", "", err
	}
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", "", err
	}
	return findCgroup(all, string(data), controller)
}

func findCgroup(all []mounts.Mount, memberships, controller string) (own, root string, err error) {
	for line := range strings.Lines(memberships) {
		// The line of version 2 names no controller.
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		names, group, ok := strings.Cut(rest, ":")
		if !ok || !slices.Contains(strings.Split(names, ","), controller) {
			continue
		}
		for _, m := range all {
			switch {
			case controller == "" && m.Type == "cgroup2":
			case controller != "" && m.Type == "cgroup" && slices.Contains(m.Super, controller):
			default:
				continue
			}
			if rest, ok := strings.CutPrefix(group, strings.TrimSuffix(m.Root, "/")); ok && (rest == "" || rest[0] == '/') {
				return filepath.Join(m.Path, rest), m.Path, nil
			}
		}
	}
	return "", "", errNotMounted
}

// A cgroup is the control group of one sandbox.
type cgroup struct {
	dir      string
	inner    []string // the groups in it
	commands string   // the directory of the one that is limited
	fd       *os.File // of the directory for the agent
}

func (g *cgroups) add(name string) (c *cgroup, err error) {
	c = &cgroup{dir: filepath.Join(g.dir, name)}
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c, err = nil, errors.Join(err, c.remove())
		}
	}()
	agent := c.dir
	c.commands = c.dir
	if len(g.controllers) > 0 {
		for _, controller := range g.controllers {
			if err := giveController(c.dir, controller); err != nil {
				return nil, err
			}
		}
		agent, c.commands = filepath.Join(c.dir, agentGroup), filepath.Join(c.dir, commandsGroup)
		for _, dir := range []string{agent, c.commands} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return nil, err
			}
			c.inner = append(c.inner, dir)
		}
	}
	for _, l := range g.limits {
		err := writeFile(filepath.Join(c.commands, l.file), l.value)
		if errors.Is(err, fs.ErrNotExist) && l.optional {
			continue
		}
		if err != nil {
			return nil, err
		}
	}
	c.fd, err = os.OpenFile(agent, unix.O_DIRECTORY|unix.O_PATH, 0)
	return c, err
}

// tasks is the file that takes a thread, in version 1.
func (c *cgroup) tasks() string { return filepath.Join(c.commands, tasksFile) }

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
	if c.fd != nil {
		c.fd.Close()
	}
	deadline := time.Now().Add(limit)
	for _, dir := range append(c.inner, c.dir) {
		for {
			err := os.Remove(dir)
			if err == nil {
				break
			}
			if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
				return err
			}
			<-time.After(time.Millisecond)
		}
	}
	return nil
}
