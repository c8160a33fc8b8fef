package envd

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	unixpath "path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A memoryError is an error of a Memory. It reads the same on every system.
type memoryError struct {
	text string
	is   error // of package fs; may be nil
}

func (e *memoryError) Error() string { return e.text }
func (e *memoryError) Unwrap() error { return e.is }

var (
	errMissing      = &memoryError{"no such file or directory", fs.ErrNotExist}
	errThere        = &memoryError{"file exists", fs.ErrExist}
	errNoDirectory  = &memoryError{"not a directory", nil}
	errDirectory    = &memoryError{"is a directory", nil}
	errNotEmpty     = &memoryError{"directory not empty", fs.ErrExist}
	errArgument     = &memoryError{"invalid argument", fs.ErrInvalid}
	errBadFile      = &memoryError{"bad file descriptor", nil}
	errFileIsClosed = &memoryError{"file already closed", fs.ErrClosed}
)

// A Memory is a file system in memory. It has directories and regular files, no
// links, and checks no permissions. It is safe for concurrent use.
type Memory struct {
	mu        sync.Mutex
	root      *inode
	notifiers map[*memoryNotifier]struct{}
}

// An inode is a file or a directory of a Memory, whose mutex guards it.
type inode struct {
	// Where it is, or was when it was removed; the root has no parent.
	parent *inode
	base   string

	mode     fs.FileMode
	uid, gid uint32
	modified time.Time
	metadata map[string]string // replaced, never changed

	entries map[string]*inode // of a directory; nil: it is a file
	data    []byte            // of a file
	shared  bool              // other inodes have the same data
}

// NewMemory returns a file system with a root directory.
func NewMemory() *Memory {
	return &Memory{root: newDirectory(0o755), notifiers: make(map[*memoryNotifier]struct{})}
}

func newDirectory(perm fs.FileMode) *inode {
	return &inode{mode: fs.ModeDir | perm, modified: time.Now(), entries: make(map[string]*inode)}
}

// Clone returns a copy of the file system. It copies what files hold when one of
// the two changes it.
func (m *Memory) Clone() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMemory()
	c.root = m.root.clone()
	return c
}

func (n *inode) clone() *inode {
	n.shared = true
	c := *n
	if n.entries != nil {
		c.entries = make(map[string]*inode, len(n.entries))
		for base, below := range n.entries {
			c.put(base, below.clone())
		}
	}
	return &c
}

// put makes below the entry base of the directory.
func (n *inode) put(base string, below *inode) {
	n.entries[base] = below
	below.parent, below.base = n, base
}

// path is the name of the file.
func (n *inode) path() string {
	if n.parent == nil {
		return "/"
	}
	return unixpath.Join(n.parent.path(), n.base)
}

// ReadFile returns what the file holds.
func (m *Memory) ReadFile(name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookup(name)
	if err == nil && n.entries != nil {
		err = errDirectory
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return slices.Clone(n.data), nil
}

// WriteFile makes data what the file holds, and makes the file and its parents
// where they are missing. What is new belongs to the user and group.
func (m *Memory) WriteFile(name string, data []byte, perm fs.FileMode, uid, gid int) error {
	if err := m.mkdirAll(unixpath.Dir(name), uid, gid); err != nil {
		return err
	}
	f, err := m.open(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	if err := f.Chown(uid, gid); err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Close()
}

// MakeDir makes a directory that belongs to the user and group.
func (m *Memory) MakeDir(name string, perm fs.FileMode, uid, gid int) error {
	if err := m.mkdir(name, perm); err != nil {
		return err
	}
	return m.lchown(name, uid, gid)
}

// mkdirAll makes the directory and its parents where they are missing.
func (m *Memory) mkdirAll(name string, uid, gid int) error {
	at := "/"
	for part := range strings.SplitSeq(strings.Trim(unixpath.Clean(name), "/"), "/") {
		at = unixpath.Join(at, part)
		if err := m.MakeDir(at, 0o755, uid, gid); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// lookup finds a file. The caller holds mu.
func (m *Memory) lookup(name string) (*inode, error) {
	n := m.root
	for part := range strings.SplitSeq(strings.Trim(unixpath.Clean(name), "/"), "/") {
		if part == "" || part == "." {
			continue // the root itself
		}
		if n.entries == nil {
			return nil, errNoDirectory
		}
		below, ok := n.entries[part]
		if !ok {
			return nil, errMissing
		}
		n = below
	}
	if strings.HasSuffix(name, "/") && n.entries == nil {
		return nil, errNoDirectory
	}
	return n, nil
}

// parent finds the directory that has, or would have, the file name. The caller
// holds mu.
func (m *Memory) parent(name string) (dir *inode, base string, err error) {
	clean := unixpath.Clean(name)
	dir, err = m.lookup(unixpath.Dir(clean))
	if err == nil && dir.entries == nil {
		err = errNoDirectory
	}
	return dir, unixpath.Base(clean), err
}

// do runs op with mu held and puts opName and name to its error.
func (m *Memory) do(opName, name string, op func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := op(); err != nil {
		return &fs.PathError{Op: opName, Path: name, Err: err}
	}
	return nil
}

// umask is that of all sandboxes.
const umask = 0o022

func (m *Memory) open(name string, flag int, perm fs.FileMode) (f file, err error) {
	err = m.do("open", name, func() error {
		n, err := m.lookup(name)
		cut := flag&os.O_TRUNC != 0
		switch {
		case err == nil && flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
			return errThere
		case errors.Is(err, fs.ErrNotExist) && flag&os.O_CREATE != 0:
			dir, base, err := m.parent(name)
			if err != nil {
				return err
			}
			n = &inode{mode: perm &^ umask, modified: time.Now()}
			dir.put(base, n)
			m.tell(name, fsnotify.Create)
			cut = false
		case err != nil:
			return err
		}
		writable := flag&(os.O_WRONLY|os.O_RDWR) != 0
		if n.entries != nil && writable {
			return errDirectory
		}
		if cut {
			n.data, n.shared, n.modified = nil, false, time.Now()
			m.tell(name, fsnotify.Write)
		}
		f = &memoryFile{tree: m, name: unixpath.Clean(name), inode: n, writable: writable}
		return nil
	})
	return f, err
}

func (m *Memory) lstat(name string) (fs.FileInfo, error) { return m.info("lstat", name) }
func (m *Memory) stat(name string) (fs.FileInfo, error)  { return m.info("stat", name) }

func (m *Memory) info(opName, name string) (fi fs.FileInfo, err error) {
	err = m.do(opName, name, func() error {
		n, err := m.lookup(name)
		if err == nil {
			fi = n.info(unixpath.Base(unixpath.Clean(name)))
		}
		return err
	})
	return fi, err
}

func (m *Memory) readDir(name string) (list []fs.DirEntry, err error) {
	if fi, err := m.info("open", name); err != nil {
		return nil, err
	} else if !fi.IsDir() {
		return nil, &fs.PathError{Op: "readdirent", Path: name, Err: errNoDirectory}
	}
	err = m.do("open", name, func() error {
		n, err := m.lookup(name)
		if err != nil {
			return err // since a moment ago
		}
		for _, base := range slices.Sorted(maps.Keys(n.entries)) {
			list = append(list, fs.FileInfoToDirEntry(n.entries[base].info(base)))
		}
		return nil
	})
	return list, err
}

func (m *Memory) mkdir(name string, perm fs.FileMode) error {
	return m.do("mkdir", name, func() error {
		dir, base, err := m.parent(name)
		if err != nil {
			return err
		}
		if _, ok := dir.entries[base]; ok || base == "/" {
			return errThere
		}
		dir.put(base, newDirectory(perm&^umask))
		m.tell(name, fsnotify.Create)
		return nil
	})
}

func (m *Memory) lchown(name string, uid, gid int) error {
	return m.do("lchown", name, func() error {
		n, err := m.lookup(name)
		if err == nil {
			n.uid, n.gid = uint32(uid), uint32(gid)
			m.tell(name, fsnotify.Chmod)
		}
		return err
	})
}

func (m *Memory) rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.move(from, to); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// move does the work of rename. The caller holds mu.
func (m *Memory) move(from, to string) error {
	fromDir, fromBase, err := m.parent(from)
	if err != nil {
		return err
	}
	toDir, toBase, err := m.parent(to)
	if err != nil {
		return err
	}
	n, ok := fromDir.entries[fromBase]
	if !ok {
		return errMissing
	}
	old := toDir.entries[toBase]
	if old != nil && old.entries != nil {
		return errThere // as os.Rename has it
	}
	if rest, ok := relative(unixpath.Clean(from), unixpath.Clean(to)); ok {
		if rest == "." {
			return nil
		}
		return errArgument
	}
	if old != nil && n.entries != nil {
		return errNoDirectory
	}
	delete(fromDir.entries, fromBase)
	toDir.put(toBase, n)
	m.tell(from, fsnotify.Rename)
	m.tell(to, fsnotify.Create)
	return nil
}

func (m *Memory) remove(name string) error {
	return m.do("remove", name, func() error {
		dir, base, err := m.parent(name)
		if err != nil {
			return err
		}
		n, ok := dir.entries[base]
		switch {
		case !ok:
			return errMissing
		case len(n.entries) > 0:
			return errNotEmpty
		}
		delete(dir.entries, base)
		m.tell(name, fsnotify.Remove)
		return nil
	})
}

func (m *Memory) removeAll(name string) error {
	return m.do("unlinkat", name, func() error {
		dir, base, err := m.parent(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		n, ok := dir.entries[base]
		if !ok {
			return nil
		}
		m.tellRemoved(name, n)
		delete(dir.entries, base)
		return nil
	})
}

func (m *Memory) realPath(name string) (string, error) {
	_, err := m.lstat(name)
	return unixpath.Clean(name), err
}

func (m *Memory) attrs(name string) (md map[string]string, err error) {
	err = m.do("open", name, func() error {
		n, err := m.lookup(name)
		if err == nil {
			md = n.metadata
		}
		return err
	})
	return md, err
}

func (m *Memory) setAttrs(f file, md map[string]string) error {
	own, ok := f.(*memoryFile)
	if !ok {
		return errors.ErrUnsupported
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	own.inode.metadata = md
	return nil
}

func (m *Memory) close() {}

// A memoryInfo describes a file of a Memory.
type memoryInfo struct {
	name     string
	size     int64
	mode     fs.FileMode
	modified time.Time
	owner    memoryOwner
}

type memoryOwner struct{ uid, gid uint32 }

func (n *inode) info(name string) *memoryInfo {
	return &memoryInfo{name, int64(len(n.data)), n.mode, n.modified, memoryOwner{n.uid, n.gid}}
}

func (i *memoryInfo) Name() string       { return i.name }
func (i *memoryInfo) Size() int64        { return i.size }
func (i *memoryInfo) Mode() fs.FileMode  { return i.mode }
func (i *memoryInfo) ModTime() time.Time { return i.modified }
func (i *memoryInfo) IsDir() bool        { return i.mode.IsDir() }
func (i *memoryInfo) Sys() any           { return i.owner }

// ownerOf returns the ids of a file's owner and group, where the tree has them.
func ownerOf(fi fs.FileInfo) (uid, gid uint32, ok bool) {
	if o, ok := fi.Sys().(memoryOwner); ok {
		return o.uid, o.gid, true
	}
	return owner(fi)
}

// A memoryFile is an open file of a Memory.
type memoryFile struct {
	tree     *Memory
	name     string // under which it was opened
	inode    *inode
	writable bool

	// Guarded by the mutex of the tree.
	at     int64
	closed bool
}

// do runs op with the tree's mutex held, unless the file is closed.
func (f *memoryFile) do(opName string, op func() error) error {
	return f.tree.do(opName, f.name, func() error {
		if f.closed {
			return errFileIsClosed
		}
		return op()
	})
}

func (f *memoryFile) Read(p []byte) (n int, err error) {
	end := false
	err = f.do("read", func() error {
		if f.inode.entries != nil {
			return errDirectory
		}
		if f.at < int64(len(f.inode.data)) {
			n = copy(p, f.inode.data[f.at:])
			f.at += int64(n)
		}
		end = n == 0 && len(p) > 0
		return nil
	})
	if err == nil && end {
		err = io.EOF
	}
	return n, err
}

func (f *memoryFile) Write(p []byte) (n int, err error) {
	err = f.do("write", func() error {
		if !f.writable {
			return errBadFile
		}
		i := f.inode
		if i.shared {
			i.data, i.shared = slices.Clone(i.data), false
		}
		if gap := f.at - int64(len(i.data)); gap > 0 {
			i.data = append(i.data, make([]byte, gap)...)
		}
		n = copy(i.data[f.at:], p)
		i.data = append(i.data, p[n:]...)
		n = len(p)
		f.at += int64(n)
		i.modified = time.Now()
		if n > 0 {
			f.tree.tell(i.path(), fsnotify.Write)
		}
		return nil
	})
	return n, err
}

func (f *memoryFile) Seek(offset int64, whence int) (at int64, err error) {
	err = f.do("seek", func() error {
		switch whence {
		case io.SeekCurrent:
			offset += f.at
		case io.SeekEnd:
			offset += int64(len(f.inode.data))
		}
		if offset < 0 {
			return errArgument
		}
		f.at = offset
		return nil
	})
	return f.at, err
}

func (f *memoryFile) Chown(uid, gid int) error {
	return f.do("chown", func() error {
		f.inode.uid, f.inode.gid = uint32(uid), uint32(gid)
		f.tree.tell(f.inode.path(), fsnotify.Chmod)
		return nil
	})
}

func (f *memoryFile) Close() error {
	return f.do("close", func() error {
		f.closed = true
		return nil
	})
}
