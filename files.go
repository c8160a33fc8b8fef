package e2b

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
)

// Files reads and writes files in a sandbox. It is safe for concurrent use.
//
// A relative path is relative to the user's home. envd does not check the
// permissions of files: the user only decides where relative paths begin and
// who owns what is written.
type Files struct{ s *Sandbox }

// ReadOptions says how to read a file.
type ReadOptions struct {
	User string // "": the template's default user
}

// WriteOptions says how to write a file.
type WriteOptions struct {
	User string // who owns the file; "": the template's default user
}

var (
	opRead  = operation{name: "read file", notFound: fs.ErrNotExist, files: true}
	opWrite = operation{name: "write file", notFound: fs.ErrNotExist, files: true}
)

// Read returns the contents of a file. ctx bounds everything.
//
// Errors: fs.ErrNotExist, fs.ErrPermission, ErrInvalidArgument (also a
// directory), ErrSandboxNotRunning, ErrStreamInterrupted, ErrUnauthenticated
// (also an unknown User), ErrForbidden, ErrRateLimited, ErrServiceBusy,
// ErrRequestTimeout (nothing moved for that long), ErrPortClosed.
//
// See https://e2b.dev/docs/filesystem/read-write.
func (f *Files) Read(ctx context.Context, path string, opts *ReadOptions) ([]byte, error) {
	var o ReadOptions
	if opts != nil {
		o = *opts
	}
	if err := checkFile(opRead, path, o.User); err != nil {
		return nil, err
	}
	bound, release := f.s.bound(ctx, 0)
	defer release()
	h := f.s.state.Load()
	d, err := h.envd.Download(bound, f.s.client.openLimit(ctx), path, h.user(o.User))
	if err != nil {
		return nil, f.fail(ctx, opRead, path, ended(ctx, bound, err), false)
	}
	defer d.Close()
	b, err := readAll(d, d.Size)
	if err != nil {
		return nil, f.fail(ctx, opRead, path, ended(ctx, bound, err), true)
	}
	return b, nil
}

// maxPrealloc bounds what is allocated on a server's word alone.
const maxPrealloc = 64 << 20

// readAll reads r to its end. A file of known size is read into its final place.
func readAll(r io.Reader, size int64) ([]byte, error) {
	if size < 0 || size > maxPrealloc {
		return io.ReadAll(r)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(r, b); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	// To the end of the body, so that the connection can be used again.
	if _, err := io.CopyN(io.Discard, r, 1); !errors.Is(err, io.EOF) {
		return nil, errors.Join(err, errors.New("more bytes than were announced"))
	}
	return b, nil
}

// Write writes a file, creating it and the directories above it. An existing
// file is replaced in place, so a reader may see part of it, and a write that
// fails leaves part of it. data is not changed, and not kept.
//
// Errors: ErrNoSpace, fs.ErrNotExist (a parent is a file), ErrInvalidArgument
// (also a directory), ErrSandboxNotRunning, ErrStreamInterrupted,
// ErrUnauthenticated (also an unknown User), ErrForbidden, ErrRateLimited,
// ErrServiceBusy, ErrRequestTimeout (nothing moved for that long), ErrPortClosed.
//
// See https://e2b.dev/docs/filesystem/read-write.
func (f *Files) Write(ctx context.Context, path string, data []byte, opts *WriteOptions) error {
	var o WriteOptions
	if opts != nil {
		o = *opts
	}
	if err := checkFile(opWrite, path, o.User); err != nil {
		return err
	}
	h := f.s.state.Load()
	bound, release := f.s.bound(ctx, 0)
	defer release()
	raw := atLeast(h.version, 0, 5, 7)
	err := h.envd.Upload(bound, f.s.client.openLimit(ctx), path, h.user(o.User),
		func() io.Reader { return bytes.NewReader(data) }, int64(len(data)), raw)
	return f.fail(ctx, opWrite, path, ended(ctx, bound, err), false)
}

func checkFile(op operation, path, user string) error {
	switch {
	case path == "":
		// envd would take the home for it.
		return invalid(op.name, "path", "is empty")
	case strings.Contains(path, "\x00"):
		return invalid(op.name, "path", "has a NUL byte")
	case !validUser(user):
		return invalid(op.name, "User", "is no user name: %.80q", user)
	}
	return nil
}

// fail is dataError with the path as os errors have it.
func (f *Files) fail(ctx context.Context, op operation, path string, err error, opened bool) error {
	if err == nil {
		return nil
	}
	verb, _, _ := strings.Cut(op.name, " ")
	return &fs.PathError{Op: verb, Path: path, Err: f.s.dataError(ctx, op, err, opened)}
}
