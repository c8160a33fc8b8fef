//go:build linux || darwin

package box

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// dirPattern names the directories and the control groups of nodes.
	dirPattern = "e2btest-*"
	// lockName, which is no ID of a sandbox, is the file in them that is locked as
	// long as the owner lives.
	lockName = ".lock"
)

// An ownedDir is a directory that goes with its owner: if not by itself, since the
// owner was killed, then by the next owner of one beside it.
type ownedDir struct {
	path string
	lock *os.File
	kept bool // it stays, and has no lock
}

// newOwnedDir makes a directory in parent, for this user alone, and removes what
// dead owners left there.
func newOwnedDir(parent string) (*ownedDir, error) {
	removeAbandoned(parent)
	path, err := os.MkdirTemp(parent, dirPattern)
	if err != nil {
		return nil, err
	}
	// It gets its name when it is locked: nobody else may find it unlocked.
	name := filepath.Join(path, lockName)
	lock, err := os.OpenFile(name+".new", os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		if lock != nil {
			lock.Close()
		}
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), os.RemoveAll(path))
	}
	return &ownedDir{path: path, lock: lock}, nil
}

// remove removes the directory, unless it is to stay.
func (d *ownedDir) remove() error {
	if d.kept {
		return nil
	}
	return errors.Join(removeTree(d.path), d.lock.Close())
}

func removeAbandoned(parent string) {
	locks, err := filepath.Glob(filepath.Join(escapeGlob(parent), dirPattern, lockName))
	if err != nil {
		return
	}
	for _, name := range locks {
		removeIfAbandoned(filepath.Dir(name))
	}
}

func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// removeIfAbandoned removes the directory of a node if its owner is dead. What
// fails is left to the next one.
func removeIfAbandoned(dir string) {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil || int(st.Uid) != os.Geteuid() {
		return
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer lock.Close()
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	_ = removeTree(dir)
}

// removeTree removes the directory with everything in it, also what its modes
// protect.
func removeTree(dir string) error {
	// The mounts of a sandbox are seen by nobody else. If they were, the files of the
	// host would be removed here.
	if err := checkNoMounts(dir); err != nil {
		return err
	}
	if os.RemoveAll(dir) == nil {
		return nil
	}
	if err := clearTree(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(dir)
}

const (
	// maxOpen is how many directories, one in the other, are open at a time.
	maxOpen = 200
	// clearRounds is how often a directory is cleared that others fill meanwhile, and
	// clearTimeout how long.
	clearRounds  = 10
	clearTimeout = time.Minute
)

// clearTree removes what is in a directory: also what modes protect, and what is in more
// directories than can be open. It never leaves the directory, whatever is changed in it
// meanwhile.
func clearTree(dir string) error {
	if err := os.Chmod(dir, 0o700); err != nil {
		return err
	}
	top, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer top.Close()
	c := clearer{top: top}
	for begin, round := time.Now(), 0; round < clearRounds && time.Since(begin) < clearTimeout; round++ {
		c.moved = false
		if err = c.clear(top, ".", 0); err == nil && !c.moved {
			return nil
		}
		if c.moved {
			round = 0
		}
	}
	return err
}

// A clearer clears one directory.
type clearer struct {
	top   *os.Root
	moved bool // something was moved up that is to be removed
}

// clear removes what is in dir, whose path below top this is.
func (c *clearer) clear(dir *os.Root, path string, depth int) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	f.Close()
	for _, name := range names {
		err = errors.Join(err, c.remove(dir, name, path, depth))
	}
	return err
}

func (c *clearer) remove(dir *os.Root, name, path string, depth int) error {
	err := dir.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	info, statErr := dir.Lstat(name)
	if statErr != nil || !info.IsDir() {
		return err
	}
	if info.Mode()&0o700 != 0o700 {
		if err := dir.Chmod(name, 0o700); err != nil {
			return err
		}
	}
	path = filepath.Join(path, name)
	if depth >= maxOpen {
		c.moved = true
		return c.top.Rename(path, rand.Text())
	}
	below, err := dir.OpenRoot(name)
	if err != nil {
		return err
	}
	err = c.clear(below, path, depth+1)
	below.Close()
	if err != nil {
		return err
	}
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) && !c.moved {
		return err
	}
	return nil
}
