package envd

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// errOutside refuses what a server with a private directory cannot reach.
var errOutside = errors.New("outside of the sandbox: it runs without isolation, " +
	"so only relative paths and paths below its own directory are served")

// A tree is the file system that the services see. All names are absolute, and
// so are those in its errors, which read as those of package os.
type tree interface {
	open(name string, flag int, perm fs.FileMode) (*os.File, error)
	lstat(name string) (fs.FileInfo, error)
	stat(name string) (fs.FileInfo, error)
	readDir(name string) ([]fs.DirEntry, error)
	mkdir(name string, perm fs.FileMode) error
	lchown(name string, uid, gid int) error
	rename(from, to string) error
	remove(name string) error
	removeAll(name string) error
	// realPath resolves all links. The file must exist.
	realPath(name string) (string, error)
	// attrs returns the user.e2b.* attributes of a regular file or a directory.
	attrs(name string) (map[string]string, error)
	// setAttrs replaces these attributes of an open file.
	setAttrs(f *os.File, md map[string]string) error
	close()
}

// hostTree is the file system of the process.
type hostTree struct{}

func (hostTree) open(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(name, flag, perm)
}
func (hostTree) lstat(name string) (fs.FileInfo, error)     { return os.Lstat(name) }
func (hostTree) stat(name string) (fs.FileInfo, error)      { return os.Stat(name) }
func (hostTree) readDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }
func (hostTree) mkdir(name string, perm fs.FileMode) error  { return os.Mkdir(name, perm) }
func (hostTree) lchown(name string, uid, gid int) error     { return os.Lchown(name, uid, gid) }
func (hostTree) rename(from, to string) error               { return os.Rename(from, to) }
func (hostTree) remove(name string) error                   { return os.Remove(name) }
func (hostTree) removeAll(name string) error                { return os.RemoveAll(name) }

func (hostTree) realPath(name string) (string, error) {
	target, err := filepath.EvalSymlinks(name)
	if _, ok := errors.AsType[*fs.PathError](err); err != nil && !ok {
		// EvalSymlinks has an error without a type for a chain of 255 links.
		return "", &fs.PathError{Op: "stat", Path: name, Err: errLoop}
	}
	return target, err
}

func (hostTree) attrs(name string) (map[string]string, error) {
	return readAttrs(pathAttrs(name))
}

func (hostTree) setAttrs(f *os.File, md map[string]string) error {
	return writeAttrs(fileAttrs{f}, md)
}

func (hostTree) close() {}

// maxLinks is how many symbolic links one path may lead through.
const maxLinks = 255

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

// relative returns what comes after dir in name. The rest is not cleaned: a ".."
// after a link is resolved as the system does it.
func relative(dir, name string) (string, bool) {
	sep := string(filepath.Separator)
	prefix := strings.TrimSuffix(dir, sep) + sep
	for _, n := range []string{name, filepath.Clean(name)} {
		if n == dir {
			return ".", true
		}
		if rest, ok := strings.CutPrefix(n, prefix); ok {
			return rest, true
		}
	}
	return "", false
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
	todo := strings.Split(rest, sep)
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
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
		last := !slices.ContainsFunc(todo, func(s string) bool { return s != "" })
		if last && !follow {
			break
		}
		here := filepath.Join(done...)
		fi, err := t.root.Lstat(here)
		if err != nil {
			done = append(done, todo...)
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
		todo = append(strings.Split(target, sep), todo...)
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

func (t *rootTree) open(name string, flag int, perm fs.FileMode) (f *os.File, err error) {
	err = t.at("open", name, true, func(rel string) error {
		f, err = t.root.OpenFile(rel, flag, perm)
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

func (t *rootTree) readDir(name string) ([]fs.DirEntry, error) {
	f, err := t.open(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, &fs.PathError{Op: "readdirent", Path: name, Err: cause(err)}
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
	f, err := t.open(name, os.O_RDONLY|openNoWait, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAttrs(fileAttrs{f})
}

func (t *rootTree) setAttrs(f *os.File, md map[string]string) error {
	return writeAttrs(fileAttrs{f}, md)
}

// A pathError is a path that means nothing.
type pathError struct {
	user string
	err  error
}

func (e *pathError) Error() string {
	// The path is always empty in this message.
	return fmt.Sprintf("failed to expand path '' for user '%s': %v", e.user, e.err)
}

func (e *pathError) Unwrap() error { return e.err }

// errUserHome refuses ~name.
var errUserHome = errors.New("cannot expand user-specific home dir")

// resolve returns the absolute path that u means.
func (s *Server) resolve(path string, u *User) (string, error) {
	const sep = string(filepath.Separator)
	var abs string
	switch {
	case path == "":
		abs = cmp.Or(s.cfg.DefaultDir, u.Home)
	case path == "~" || strings.HasPrefix(path, "~/") || strings.HasPrefix(path, "~"+sep):
		abs = filepath.Join(u.Home, path[1:])
	case path[0] == '~':
		return "", &pathError{u.Name, errUserHome}
	case filepath.IsAbs(path):
		abs = path
	default:
		abs = filepath.Join(u.Home, path)
	}
	if s.cfg.Root != "" {
		if _, ok := relative(s.cfg.Root, abs); !ok {
			return "", fmt.Errorf("path %q is %w", path, errOutside)
		}
	}
	return abs, nil
}

// makeDirs creates the directory and its parents. All that are new belong to u.
func (s *Server) makeDirs(dir string, u *User) error {
	top := string(filepath.Separator)
	if s.cfg.Root != "" {
		top = s.cfg.Root
	}
	if fi, err := s.tree.stat(dir); err == nil && fi.IsDir() {
		return nil // the usual case
	}
	var missing []string
	for p := filepath.Clean(dir); ; p = filepath.Dir(p) {
		missing = append(missing, p)
		if p == top || filepath.Dir(p) == p {
			break
		}
	}
	for _, p := range slices.Backward(missing) {
		fi, err := s.tree.stat(p)
		switch {
		case err == nil && fi.IsDir():
		case err == nil:
			return fmt.Errorf("path is a file: %s", p)
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("failed to stat directory: %w", err)
		default:
			err := s.tree.mkdir(p, 0o755)
			if errors.Is(err, fs.ErrExist) {
				// Another request was faster, or it is a link to nothing.
				if fi, statErr := s.tree.stat(p); statErr == nil && fi.IsDir() {
					continue
				}
			}
			if err != nil {
				return fmt.Errorf("failed to create directory: %w", err)
			}
			if err := s.own(p, u); err != nil {
				return err
			}
		}
	}
	return nil
}

// own gives a file to u. A server that does not change users may lack the right,
// and then its files belong to the one user that it has.
func (s *Server) own(name string, u *User) error {
	err := s.tree.lchown(name, int(u.UID), int(u.GID))
	if err != nil && u.Switch {
		return fmt.Errorf("failed to change the owner: %w", err)
	}
	return nil
}
