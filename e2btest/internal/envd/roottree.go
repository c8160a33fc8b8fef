package envd

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// rootTree is one directory. os.Root keeps every operation inside, whatever
// happens in the directory meanwhile; what rootTree adds are links with an
// absolute target inside, which os.Root refuses.
type rootTree struct {
	dir  string // absolute, cleaned, without links
	root *os.Root
	err  error // why root could not be opened; every operation fails with it
}

func newRootTree(dir string) *rootTree {
	root, err := os.OpenRoot(dir)
	return &rootTree{dir: dir, root: root, err: err}
}

func (t *rootTree) close() {
	if t.err == nil {
		_ = t.root.Close() // nothing is written through it
	}
}

// locate returns the path of name from the root, without links except for a
// link at its end if that is not to be followed. What does not exist is kept:
// the operation on it has the right error.
func (t *rootTree) locate(name string, follow bool) (string, error) {
	if t.err != nil {
		return "", t.err
	}
	rest, ok := relative(t.dir, name)
	if !ok {
		return "", errOutside
	}
	const sep = string(filepath.Separator)
	// A slash at the end follows a link and wants a directory.
	slash := strings.HasSuffix(rest, sep)
	follow = follow || slash

	var done []string
	ahead := strings.Split(rest, sep)
	for links := 0; len(ahead) > 0; {
		part := ahead[0]
		ahead = ahead[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if len(done) == 0 {
				return "", errOutside
			}
			done = done[:len(done)-1]
			continue
		}
		done = append(done, part)
		last := !slices.ContainsFunc(ahead, func(s string) bool { return s != "" })
		if last && !follow {
			break
		}
		here := filepath.Join(done...)
		fi, err := t.root.Lstat(here)
		if err != nil {
			done = append(done, ahead...)
			break
		}
		if fi.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		if links++; links > maxLinks {
			return "", errLoop
		}
		target, err := t.root.Readlink(here)
		if err != nil {
			return "", cause(err)
		}
		slash = slash || last && strings.HasSuffix(target, sep)
		done = done[:len(done)-1]
		if filepath.IsAbs(target) {
			inside, ok := relative(t.dir, target)
			if !ok {
				return "", errOutside
			}
			target, done = inside, nil
		}
		ahead = append(strings.Split(target, sep), ahead...)
	}
	at := cmp.Or(strings.Join(done, sep), ".")
	if !filepath.IsLocal(at) {
		return "", errOutside
	}
	if slash {
		at += sep
	}
	return at, nil
}

// cause returns the system's error, without the names that os.Root puts to it.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return cause(e.Err)
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return cause(e.Err)
	}
	return err
}

// at runs op on the place of name and puts opName and name to its error.
func (t *rootTree) at(opName, name string, follow bool, op func(rel string) error) error {
	rel, err := t.locate(name, follow)
	if err == nil {
		err = op(rel)
	}
	if err != nil {
		return &fs.PathError{Op: opName, Path: name, Err: cause(err)}
	}
	return nil
}

func (t *rootTree) open(name string, flag int, perm fs.FileMode) (f file, err error) {
	err = t.at("open", name, true, func(rel string) error {
		f, err = opened(t.root.OpenFile(rel, flag, perm))
		return err
	})
	return f, err
}

func (t *rootTree) lstat(name string) (fi fs.FileInfo, err error) {
	err = t.at("lstat", name, false, func(rel string) error {
		fi, err = t.root.Lstat(rel)
		return err
	})
	return fi, err
}

func (t *rootTree) stat(name string) (fi fs.FileInfo, err error) {
	err = t.at("stat", name, true, func(rel string) error {
		fi, err = t.root.Stat(rel)
		return err
	})
	return fi, err
}

func (t *rootTree) readDir(name string) (entries []fs.DirEntry, err error) {
	var readErr error
	err = t.at("open", name, true, func(rel string) error {
		f, err := t.root.Open(rel)
		if err != nil {
			return err
		}
		defer f.Close()
		entries, readErr = f.ReadDir(-1)
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case readErr != nil:
		return nil, &fs.PathError{Op: "readdirent", Path: name, Err: cause(readErr)}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

func (t *rootTree) mkdir(name string, perm fs.FileMode) error {
	return t.at("mkdir", name, false, func(rel string) error { return t.root.Mkdir(rel, perm) })
}

func (t *rootTree) lchown(name string, uid, gid int) error {
	return t.at("lchown", name, false, func(rel string) error { return t.root.Lchown(rel, uid, gid) })
}

func (t *rootTree) rename(from, to string) error {
	fromRel, err := t.locate(from, false)
	if err == nil {
		var toRel string
		if toRel, err = t.locate(to, false); err == nil {
			err = t.root.Rename(fromRel, toRel)
		}
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: cause(err)}
	}
	return nil
}

func (t *rootTree) remove(name string) error {
	return t.at("remove", name, false, t.root.Remove)
}

func (t *rootTree) removeAll(name string) error {
	return t.at("unlinkat", name, false, t.root.RemoveAll)
}

func (t *rootTree) realPath(name string) (real string, err error) {
	err = t.at("lstat", name, true, func(rel string) error {
		_, err := t.root.Lstat(rel)
		if err == nil {
			real = filepath.Join(t.dir, rel)
		}
		return err
	})
	return real, err
}

// attrs opens the file, as there is no other way to stay inside for sure.
func (t *rootTree) attrs(name string) (map[string]string, error) {
	var md map[string]string
	err := t.at("open", name, true, func(rel string) error {
		f, err := t.root.OpenFile(rel, os.O_RDONLY|openNoWait, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		md, err = readAttrs(fileAttrs{f})
		return err
	})
	return md, err
}

func (t *rootTree) setAttrs(f file, md map[string]string) error { return writeFileAttrs(f, md) }

func (t *rootTree) notifier() (notifier, error) { return newHostNotifier() }
