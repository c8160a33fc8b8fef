package e2b

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// FS returns a directory of the sandbox as an fs.FS, for the default user. It is
// also an fs.StatFS, fs.ReadDirFS, fs.ReadFileFS and fs.ReadLinkFS. Links are
// followed, also those that lead out of the directory; of where one leads, envd
// tells the end alone, as an absolute path. Each call of the fs.FS makes one or two
// requests, which ctx bounds, as it does the reading of files. Files cannot Seek, as
// http.FileServerFS wants them to.
//
// Errors of the fs.FS, in an *fs.PathError: as Files.Stat and Files.Open, and as
// Files.List.
//
// See https://e2b.dev/docs/filesystem.
func (f *Files) FS(ctx context.Context, dir string) fs.FS {
	return &sandboxFS{f, ctx, dir}
}

type sandboxFS struct {
	f   *Files
	ctx context.Context //nolint:containedctx // an fs.FS has no other way
	dir string
}

var (
	_ fs.StatFS     = (*sandboxFS)(nil)
	_ fs.ReadDirFS  = (*sandboxFS)(nil)
	_ fs.ReadFileFS = (*sandboxFS)(nil)
	_ fs.ReadLinkFS = (*sandboxFS)(nil)
)

// path returns where a name is in the sandbox.
func (s *sandboxFS) path(op, name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	if name == "." || s.dir == "" { // an empty path is refused below
		return s.dir, nil
	}
	return strings.TrimSuffix(s.dir, "/") + "/" + name, nil
}

// fsError is err about a name of the fs.FS instead of a path in the sandbox.
func fsError(op, name string, err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// stat follows links, as fs.Stat does.
func (s *sandboxFS) stat(op, name string) (string, *fsInfo, error) {
	info, err := s.lstat(op, name)
	if err != nil {
		return "", nil, err
	}
	full := info.Path
	if info.IsSymlink() {
		if info.Mode&fs.ModeIrregular != 0 && info.SymlinkTarget == info.Path {
			err = fs.ErrNotExist // it leads nowhere
		} else {
			info, err = s.f.Stat(s.ctx, info.SymlinkTarget, nil)
		}
	}
	if err != nil {
		return "", nil, fsError(op, name, err)
	}
	info.Mode &^= fs.ModeSymlink
	return full, &fsInfo{*info, path.Base(name)}, nil
}

// Stat describes what is at a name.
func (s *sandboxFS) Stat(name string) (fs.FileInfo, error) {
	_, info, err := s.stat("stat", name)
	if err != nil {
		return nil, err
	}
	return info, nil
}

// lstat describes what is at a name, and not what that leads to.
func (s *sandboxFS) lstat(op, name string) (*FileInfo, error) {
	full, err := s.path(op, name)
	if err != nil {
		return nil, err
	}
	info, err := s.f.Stat(s.ctx, full, nil)
	if err != nil {
		return nil, fsError(op, name, err)
	}
	return info, nil
}

// Lstat describes what is at a name, of a link the link.
func (s *sandboxFS) Lstat(name string) (fs.FileInfo, error) {
	info, err := s.lstat("lstat", name)
	if err != nil {
		return nil, err
	}
	return ofLink(*info, path.Base(name)), nil
}

// ReadLink returns where a link leads in the end.
func (s *sandboxFS) ReadLink(name string) (string, error) {
	info, err := s.lstat("readlink", name)
	if err != nil {
		return "", err
	}
	if !info.IsSymlink() {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	return info.SymlinkTarget, nil
}

// ofLink is info without what is known of where a link leads.
func ofLink(info FileInfo, name string) *fsInfo {
	if info.IsSymlink() {
		info.Mode = fs.ModeSymlink | fs.ModePerm
	}
	return &fsInfo{info, name}
}

// ReadFile returns the contents of a file.
func (s *sandboxFS) ReadFile(name string) ([]byte, error) {
	full, err := s.path("read", name)
	if err != nil {
		return nil, err
	}
	b, err := s.f.Read(s.ctx, full, nil)
	if err != nil {
		return nil, fsError("read", name, err)
	}
	return b, nil
}

// ReadDir returns what is in a directory, sorted by name.
func (s *sandboxFS) ReadDir(name string) ([]fs.DirEntry, error) {
	full, err := s.path("readdir", name)
	if err != nil {
		return nil, err
	}
	list, err := s.f.List(s.ctx, full, nil)
	if err != nil {
		return nil, fsError("readdir", name, err)
	}
	entries := make([]fs.DirEntry, len(list))
	for i, info := range list {
		entries[i] = fs.FileInfoToDirEntry(ofLink(info, info.Name))
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// Open opens a file or directory.
func (s *sandboxFS) Open(name string) (fs.File, error) {
	full, info, err := s.stat("open", name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return &fsDir{s: s, name: name, info: info}, nil
	}
	return &fsFile{s: s, name: name, full: full, info: info}, nil
}

// fsInfo is a FileInfo as an fs.FileInfo.
type fsInfo struct {
	info FileInfo
	name string
}

// Name returns the last element of the name.
func (i *fsInfo) Name() string { return i.name }

// Size returns the length in bytes.
func (i *fsInfo) Size() int64 { return i.info.Size }

// Mode returns the type and the permissions.
func (i *fsInfo) Mode() fs.FileMode { return i.info.Mode }

// ModTime returns the time of the last change.
func (i *fsInfo) ModTime() time.Time { return i.info.ModTime }

// IsDir reports whether it is a directory.
func (i *fsInfo) IsDir() bool { return i.info.IsDir() }

// Sys returns the *FileInfo.
func (i *fsInfo) Sys() any { return &i.info }

// fsFile is an open file. It makes its request with the first Read.
type fsFile struct {
	s          *sandboxFS
	name, full string
	info       *fsInfo
	r          *FileReader
	closed     bool
}

// Stat describes the file as it was when it was opened.
func (f *fsFile) Stat() (fs.FileInfo, error) {
	if f.closed {
		return nil, &fs.PathError{Op: "stat", Path: f.name, Err: fs.ErrClosed}
	}
	return f.info, nil
}

// Read reads the file.
func (f *fsFile) Read(p []byte) (int, error) {
	if f.closed {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: fs.ErrClosed}
	}
	if f.r == nil {
		r, err := f.s.f.Open(f.s.ctx, f.full, nil)
		if err != nil {
			return 0, fsError("read", f.name, err)
		}
		f.r = r
	}
	n, err := f.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fsError("read", f.name, err)
	}
	return n, err
}

// Close ends the reading.
func (f *fsFile) Close() error {
	if f.closed {
		return &fs.PathError{Op: "close", Path: f.name, Err: fs.ErrClosed}
	}
	f.closed = true
	if f.r == nil {
		return nil
	}
	return f.r.Close()
}

// fsDir is an open directory. It makes its request with the first ReadDir.
type fsDir struct {
	s       *sandboxFS
	name    string
	info    *fsInfo
	entries []fs.DirEntry
	listed  bool
	closed  bool
}

// Stat describes the directory as it was when it was opened.
func (d *fsDir) Stat() (fs.FileInfo, error) {
	if d.closed {
		return nil, &fs.PathError{Op: "stat", Path: d.name, Err: fs.ErrClosed}
	}
	return d.info, nil
}

// Read fails: it is a directory.
func (d *fsDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: errors.New("is a directory")}
}

// Close ends the use of d.
func (d *fsDir) Close() error {
	if d.closed {
		return &fs.PathError{Op: "close", Path: d.name, Err: fs.ErrClosed}
	}
	d.closed = true
	return nil
}

// ReadDir returns the next n entries, all that are left for n ≤ 0.
func (d *fsDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if d.closed {
		return nil, &fs.PathError{Op: "readdir", Path: d.name, Err: fs.ErrClosed}
	}
	if !d.listed {
		entries, err := d.s.ReadDir(d.name)
		if err != nil {
			return nil, err
		}
		d.entries, d.listed = entries, true
	}
	if n <= 0 {
		n = len(d.entries)
	} else if len(d.entries) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.entries))
	out := d.entries[:n:n]
	d.entries = d.entries[n:]
	return out, nil
}
