package envd

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// hostTree is the file system of the process. No path leads through the descriptors of
// this or another process, which the system has in /proc as links to what is open.
type hostTree struct{}

func (hostTree) open(name string, flag int, perm fs.FileMode) (file, error) {
	f, err := openNamed(name, flag, perm)
	if err == nil && isOwn(f) {
		f.Close()
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return opened(f, err)
}

func (hostTree) stat(name string) (fs.FileInfo, error) { return statNamed("stat", name) }

func (hostTree) readDir(name string) ([]fs.DirEntry, error) {
	f, err := openNamed(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return entries, err
}

func (hostTree) lstat(name string) (fi fs.FileInfo, err error) {
	if strings.HasSuffix(name, "/") {
		return statNamed("lstat", name) // it means what a link leads to
	}
	err = within("lstat", name, func(path string) error {
		fi, err = os.Lstat(path)
		return err
	})
	return fi, err
}

func (hostTree) mkdir(name string, perm fs.FileMode) error {
	return within("mkdir", name, func(path string) error { return os.Mkdir(path, perm) })
}

func (hostTree) lchown(name string, uid, gid int) error {
	return within("lchown", name, func(path string) error { return os.Lchown(path, uid, gid) })
}

func (hostTree) remove(name string) error { return within("remove", name, os.Remove) }

func (hostTree) removeAll(name string) error {
	err := within("unlinkat", name, os.RemoveAll)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nor is there the directory for it
	}
	return err
}

func (hostTree) rename(from, to string) error {
	err := within("rename", from, func(f string) error {
		return within("rename", to, func(t string) error { return os.Rename(f, t) })
	})
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		e.Old, e.New = from, to
	} else if e, ok := errors.AsType[*fs.PathError](err); ok {
		return &os.LinkError{Op: e.Op, Old: from, New: to, Err: e.Err}
	}
	return err
}

// within calls do with another path of the file name, which means the same whatever
// becomes of the directories above it. The paths in errors are those of name.
func within(op, name string, do func(path string) error) error {
	trimmed := strings.TrimRight(name, "/")
	dir, base := filepath.Split(trimmed)
	if base == "" { // the root
		return do(name)
	}
	parent, done, err := holdDir(dir)
	if err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	defer done()
	path := strings.TrimSuffix(parent, "/") + "/" + base
	err = do(path)
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		if rest, ok := strings.CutPrefix(e.Path, path); ok {
			e.Path = trimmed + rest
		}
	}
	return err
}

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

func (hostTree) setAttrs(f file, md map[string]string) error { return writeFileAttrs(f, md) }

func (hostTree) notifier() (notifier, error) { return newHostNotifier() }

func (hostTree) close() {}

// opened is for the result of an open, so that no file is a nil interface.
func opened(f *os.File, err error) (file, error) {
	if err != nil {
		return nil, err
	}
	return f, nil
}

// writeFileAttrs sets the attributes of a file that hostTree or rootTree has opened.
func writeFileAttrs(f file, md map[string]string) error {
	host, ok := f.(*os.File)
	if !ok {
		return errors.ErrUnsupported
	}
	return writeAttrs(fileAttrs{host}, md)
}

// A hostNotifier tells of changes in directories of the process's file system.
type hostNotifier struct{ *fsnotify.Watcher }

func newHostNotifier() (notifier, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return hostNotifier{w}, nil
}

func (n hostNotifier) events() <-chan fsnotify.Event { return n.Events }
func (n hostNotifier) errors() <-chan error          { return n.Errors }
