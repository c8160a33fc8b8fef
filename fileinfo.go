package e2b

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/filesystem"
)

// FileInfo describes a file or directory in a sandbox.
type FileInfo struct {
	Name string // the last element of Path
	Path string // as it was asked for, made absolute
	Size int64
	// Mode has the permissions, and the type of what the path leads to: of a link
	// that of its target, besides fs.ModeSymlink. A link that leads nowhere, a pipe,
	// a socket or a device has fs.ModeIrregular.
	Mode          fs.FileMode
	Owner, Group  string // names, or numbers of unknown ones
	ModTime       time.Time
	SymlinkTarget string            // the resolved target of a link, its own path if it leads nowhere; "" for no link
	Metadata      map[string]string // what WriteOptions.Metadata set
}

// IsDir reports whether the path leads to a directory.
func (i *FileInfo) IsDir() bool { return i.Mode.IsDir() }

// IsSymlink reports whether the path itself is a symbolic link.
func (i *FileInfo) IsSymlink() bool { return i.Mode&fs.ModeSymlink != 0 }

func fileInfoOf(e *filesystem.EntryInfo) FileInfo {
	info := FileInfo{
		Name: e.GetName(), Path: e.GetPath(), Size: e.GetSize(), Mode: fs.FileMode(e.GetMode()) & fs.ModePerm,
		Owner: e.GetOwner(), Group: e.GetGroup(), SymlinkTarget: e.GetSymlinkTarget(), Metadata: e.GetMetadata(),
	}
	if t := e.GetModifiedTime(); t != nil {
		info.ModTime = t.AsTime()
	}
	switch e.GetType() {
	case filesystem.FileType_FILE_TYPE_FILE:
	case filesystem.FileType_FILE_TYPE_DIRECTORY:
		info.Mode |= fs.ModeDir
	default:
		info.Mode |= fs.ModeIrregular
	}
	if e.SymlinkTarget != nil {
		info.Mode |= fs.ModeSymlink
	}
	return info
}

// FileOptions says on whose behalf files are looked at and changed.
type FileOptions struct {
	User string // whose home relative paths begin at; "": the template's default user
}

// ListDirOptions says what of a directory to list.
type ListDirOptions struct {
	User  string // as in FileOptions
	Depth int    // how many levels; 0 means 1: the directory's own entries
}

var (
	opStat    = operation{name: "stat file", notFound: fs.ErrNotExist, files: true}
	opListDir = operation{name: "list directory", notFound: fs.ErrNotExist, files: true}
	opMakeDir = operation{name: "mkdir directory", notFound: fs.ErrNotExist, files: true}
	opRename  = operation{name: "rename file", notFound: fs.ErrNotExist, files: true}
	opRemove  = operation{name: "remove file", notFound: fs.ErrNotExist, files: true}
)

// Stat describes a file or directory; of a symbolic link the link, as FileInfo
// says.
//
// Errors: fs.ErrNotExist, ErrSandboxNotRunning, ErrInvalidArgument.
//
// See https://e2b.dev/docs/filesystem.
func (f *Files) Stat(ctx context.Context, path string, opts *FileOptions) (*FileInfo, error) {
	var info FileInfo
	err := f.call(ctx, opStat, opts.user(), path, func(ctx context.Context) error {
		h := f.s.state.Load()
		e, err := h.envd.Stat(ctx, path, h.user(opts.user()))
		if err == nil {
			info = fileInfoOf(e)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &info, nil
}

// Exists reports whether there is something at a path, also a link that leads
// nowhere.
//
// Errors: as Stat, except fs.ErrNotExist.
//
// See https://e2b.dev/docs/filesystem.
func (f *Files) Exists(ctx context.Context, path string, opts *FileOptions) (bool, error) {
	_, err := f.Stat(ctx, path, opts)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// List describes what is in a directory, sorted by path, level below level; the
// directory itself is not in it, and links to directories are not entered. A
// name that is not UTF-8 makes the whole call fail, since envd cannot send it.
//
// Errors: fs.ErrNotExist, ErrInvalidArgument (also a path that is no directory),
// ErrSandboxNotRunning, ErrNotSupported (a Depth above 1 on envd before 0.1.6).
//
// See https://e2b.dev/docs/filesystem.
func (f *Files) List(ctx context.Context, path string, opts *ListDirOptions) ([]FileInfo, error) {
	var o ListDirOptions
	if opts != nil {
		o = *opts
	}
	if o.Depth < 0 || o.Depth > 1<<31-1 {
		return nil, invalid(opListDir.name, "Depth", "is none: %d", o.Depth)
	}
	h := f.s.state.Load()
	if o.Depth > 1 && !atLeast(h.version, 0, 1, 6) {
		return nil, tooOld(opListDir, f.s.id, h.version, "listing more than one level", "0.1.6")
	}
	var out []FileInfo
	err := f.call(ctx, opListDir, o.User, path, func(ctx context.Context) error {
		entries, err := h.envd.ListDir(ctx, path, h.user(o.User), uint32(max(o.Depth, 1))) //nolint:gosec // checked
		if err != nil {
			return err
		}
		out = make([]FileInfo, len(entries))
		for i, e := range entries {
			out[i] = fileInfoOf(e)
		}
		return nil
	})
	return out, err
}

// MakeDir makes a directory and those above it, with mode 0755 and owned by the
// user. It returns false when the directory is there already.
//
// Errors: ErrInvalidArgument (also a path where a file is), ErrSandboxNotRunning,
// ErrNoSpace.
//
// See https://e2b.dev/docs/filesystem.
func (f *Files) MakeDir(ctx context.Context, path string, opts *FileOptions) (bool, error) {
	err := f.call(ctx, opMakeDir, opts.user(), path, func(ctx context.Context) error {
		h := f.s.state.Load()
		return h.envd.MakeDir(ctx, path, h.user(opts.user()))
	})
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}

// Rename moves a file or directory, and makes the directories above its new
// path, also when it then fails. A file at the new path is replaced; a directory
// is not.
//
// Errors: fs.ErrNotExist, fs.ErrExist (a directory is at the new path),
// ErrInvalidArgument, ErrSandboxNotRunning.
//
// See https://e2b.dev/docs/filesystem.
func (f *Files) Rename(ctx context.Context, oldPath, newPath string, opts *FileOptions) error {
	if err := checkRPCFile(opRename, newPath, ""); err != nil {
		return err
	}
	return f.move(ctx, opRename, oldPath, newPath, opts.user())
}

func (f *Files) move(ctx context.Context, op operation, oldPath, newPath, user string) error {
	return f.call(ctx, op, user, oldPath, func(ctx context.Context) error {
		h := f.s.state.Load()
		return h.envd.Move(ctx, oldPath, newPath, h.user(user))
	})
}

// Remove removes a file, a link, or a directory with all in it. That there is
// nothing at the path is no error.
//
// Errors: fs.ErrPermission, ErrInvalidArgument, ErrSandboxNotRunning.
//
// See https://e2b.dev/docs/filesystem.
func (f *Files) Remove(ctx context.Context, path string, opts *FileOptions) error {
	return f.call(ctx, opRemove, opts.user(), path, func(ctx context.Context) error {
		h := f.s.state.Load()
		return h.envd.Remove(ctx, path, h.user(opts.user()))
	})
}

func (o *FileOptions) user() string {
	if o == nil {
		return ""
	}
	return o.User
}

// checkRPCFile is checkFile for calls whose messages hold text alone.
func checkRPCFile(op operation, path, user string) error {
	if err := checkFile(op, path, user); err != nil {
		return err
	}
	return validText(op.name, nil, argument{"path", path})
}

// call makes one call about a file.
func (f *Files) call(ctx context.Context, op operation, user, path string, do func(context.Context) error) error {
	if err := checkRPCFile(op, path, user); err != nil {
		return err
	}
	bound, release := f.s.bound(ctx, f.s.client.openLimit(ctx))
	defer release()
	err := do(bound)
	return f.fail(ctx, op, path, ended(ctx, bound, err), false)
}
