package envd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// hostTree is the file system of the process.
type hostTree struct{}

func (hostTree) open(name string, flag int, perm fs.FileMode) (file, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err == nil && isOwn(f) {
		f.Close()
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return opened(f, err)
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
