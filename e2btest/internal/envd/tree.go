package envd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	unixpath "path"
	"slices"
	"strings"
)

// errOutside refuses what a server with a private directory cannot reach.
var errOutside = errors.New("outside of the sandbox: it runs without isolation, " +
	"so only relative paths and paths below its own directory are served")

// A tree is the file system that the services see. All names are absolute, and
// so are those in its errors, which read as those of package os.
type tree interface {
	open(name string, flag int, perm fs.FileMode) (file, error)
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
	setAttrs(f file, md map[string]string) error
	// notifier returns what tells of changes in directories.
	notifier() (notifier, error)
	close()
}

// A file is an open one of a tree.
type file interface {
	io.ReadWriteSeeker
	io.Closer
	Chown(uid, gid int) error
}

// maxLinks is how many symbolic links one path may lead through.
const maxLinks = 255

// relative returns what comes after dir in name. The rest is not cleaned: a ".."
// after a link is resolved as the system does it.
func relative(dir, name string) (string, bool) {
	prefix := strings.TrimSuffix(dir, "/") + "/"
	for _, n := range []string{name, unixpath.Clean(name)} {
		if n == dir {
			return ".", true
		}
		if rest, ok := strings.CutPrefix(n, prefix); ok {
			return rest, true
		}
	}
	return "", false
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
	var abs string
	switch {
	case path == "":
		abs = cmp.Or(s.cfg.DefaultDir, u.Home)
	case path == "~" || strings.HasPrefix(path, "~/"):
		abs = unixpath.Join(u.Home, path[1:])
	case path[0] == '~':
		return "", &pathError{u.Name, errUserHome}
	case unixpath.IsAbs(path):
		abs = path
	default:
		abs = unixpath.Join(u.Home, path)
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
	top := "/"
	if s.cfg.Root != "" {
		top = s.cfg.Root
	}
	if fi, err := s.tree.stat(dir); err == nil && fi.IsDir() {
		return nil // the usual case
	}
	var missing []string
	for p := unixpath.Clean(dir); ; p = unixpath.Dir(p) {
		missing = append(missing, p)
		if p == top || unixpath.Dir(p) == p {
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
