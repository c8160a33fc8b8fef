package e2b

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"maps"
	pathpkg "path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/seed-09a7379d/e2b-go/internal/envd"
)

// Files reads and writes files in a sandbox. It is safe for concurrent use.
//
// A relative path is relative to the user's home. envd does not check the
// permissions of files: the user only decides where relative paths begin and
// who owns what is written.
//
// See https://e2b.dev/docs/filesystem.
type Files struct{ s *Sandbox }

// ReadOptions says how to read a file.
type ReadOptions struct {
	User string // "": the template's default user
	// Gzip has the contents compressed on the way. envd compresses at some 50 MB/s,
	// so that it pays over slow links alone; and a transfer that breaks cannot be
	// resumed. It needs envd 0.5.3.
	Gzip bool
}

// WriteOptions says how to write a file.
type WriteOptions struct {
	User string // who owns the file; "": the template's default user
	// Gzip compresses the contents on the way. It needs envd 0.5.3.
	Gzip bool
	// Atomic writes beside the target and then moves the new file there, so that
	// others see the old contents or the new ones. A write that fails changes nothing,
	// unless only the answer to its last step, the move, was lost. The target gets mode
	// 0644; a link at the path is replaced, not followed; of a directory there the error
	// is fs.ErrExist.
	Atomic bool
	// Metadata is kept with the file, and shown by FileInfo.Metadata; nil removes
	// what was there. Keys are those of HTTP headers, without regard to case, and come
	// back in lower case; values are printable ASCII. All together, with 9 bytes more
	// for each, may take 4,096 bytes; a disk may refuse the last hundred of these with
	// ErrNoSpace. It needs envd 0.6.2.
	Metadata map[string]string
}

var (
	opRead  = operation{name: "read file", notFound: fs.ErrNotExist, files: true}
	opWrite = operation{name: "write file", notFound: fs.ErrNotExist, files: true}
)

// Read returns the contents of a file. ctx bounds everything. All of it is in memory,
// however large code in the sandbox has made it: Open with an io.LimitReader bounds
// that.
//
// Errors: fs.ErrNotExist, fs.ErrPermission, ErrInvalidArgument (also a
// directory), ErrSandboxNotRunning, ErrStreamInterrupted, ErrUnauthenticated
// (also an unknown User), ErrForbidden, ErrRateLimited, ErrServiceBusy,
// ErrRequestTimeout (nothing came for that long), ErrPortClosed, ErrNotSupported.
//
// See https://e2b.dev/docs/filesystem/read-write.
func (f *Files) Read(ctx context.Context, path string, opts *ReadOptions) ([]byte, error) {
	r, err := f.Open(ctx, path, opts)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return readAll(r, r.Size())
}

// maxPrealloc bounds what is allocated on a server's word alone.
const maxPrealloc = 64 << 20

// readAll reads r to its end. A file of known size is read into its final place.
func readAll(r io.Reader, size int64) ([]byte, error) {
	if size < 0 || size > maxPrealloc {
		b, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		return b, nil
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
// fails leaves part of it, unless WriteOptions.Atomic is set. data is not changed,
// and not kept.
//
// Errors: ErrNoSpace, fs.ErrNotExist (a parent is a file), fs.ErrPermission,
// ErrInvalidArgument (also a directory), ErrSandboxNotRunning,
// ErrStreamInterrupted, ErrUnauthenticated (also an unknown User), ErrForbidden,
// ErrRateLimited, ErrServiceBusy, ErrRequestTimeout (nothing moved for that long),
// ErrPortClosed, ErrNotSupported.
//
// See https://e2b.dev/docs/filesystem/read-write.
func (f *Files) Write(ctx context.Context, path string, data []byte, opts *WriteOptions) error {
	return f.write(ctx, path, bytes.NewReader(data), opts)
}

// WriteFrom writes what r gives, up to its end, as Write does and without keeping
// it in memory. A Read that blocks does not keep WriteFrom from ending with ctx, nor
// for more than a second with an error of the server; r is then in use until that Read
// returns. An error of r is returned, and leaves
// what came before it in the file, unless WriteOptions.Atomic is set.
//
// Errors: as Write, and those of r.
//
// See https://e2b.dev/docs/filesystem/read-write.
func (f *Files) WriteFrom(ctx context.Context, path string, r io.Reader, opts *WriteOptions) error {
	if r == nil {
		return invalid(opWrite.name, "r", "is nil")
	}
	return f.write(ctx, path, r, opts)
}

func (f *Files) write(ctx context.Context, path string, r io.Reader, opts *WriteOptions) error {
	var o WriteOptions
	if opts != nil {
		o = *opts
	}
	if err := f.checkWrite(path, &o); err != nil {
		return err
	}
	h := f.s.state.Load()
	u := envd.Upload{
		Path: path, User: h.user(o.User), Body: r, Size: -1,
		Raw: atLeast(h.version, 0, 5, 7), Gzip: o.Gzip, Metadata: o.Metadata,
	}
	u.Size, u.Again = known(r)
	if !o.Atomic {
		return f.upload(ctx, path, &u)
	}
	dir := path[:strings.LastIndexByte(path, '/')+1]
	u.Path = dir + ".e2b-go-" + rand.Text()[:16] + ".tmp"
	err := f.upload(ctx, path, &u)
	if err == nil {
		if err = f.move(ctx, opWrite, u.Path, path, o.User); err == nil {
			return nil
		}
		if at, ok := errors.AsType[*fs.PathError](err); ok {
			err = &fs.PathError{Op: at.Op, Path: path, Err: at.Err}
		}
	}
	f.removeQuietly(ctx, err, u.Path, o.User)
	return err
}

func (f *Files) upload(ctx context.Context, path string, u *envd.Upload) error {
	bound, release := f.s.bound(ctx, 0)
	defer release()
	err := f.s.state.Load().envd.Upload(bound, f.s.client.openLimit(ctx), u)
	return f.fail(ctx, opWrite, path, ended(ctx, bound, err), false)
}

// known returns the length of what a reader of bytes in memory holds, and how to
// read it again.
func known(r io.Reader) (int64, func() io.Reader) {
	switch r := r.(type) {
	case *bytes.Reader:
		rest := *r
		return int64(r.Len()), func() io.Reader { again := rest; return &again }
	case *strings.Reader:
		rest := *r
		return int64(r.Len()), func() io.Reader { again := rest; return &again }
	case *bytes.Buffer:
		rest := r.Bytes()
		return int64(len(rest)), func() io.Reader { return bytes.NewReader(rest) }
	}
	return -1, nil
}

// removeQuietly takes away what a failed write left, unless that may wake the
// sandbox.
func (f *Files) removeQuietly(ctx context.Context, err error, path, user string) {
	if errors.Is(err, ErrSandboxNotRunning) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrUnauthenticated) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killWait)
	defer cancel()
	if state, known := f.s.probe(ctx); !known || state != StateRunning {
		return
	}
	// envd goes on for a moment with an upload that was cut off, and may only then
	// make the file.
	for range 3 {
		if f.Remove(ctx, path, &FileOptions{User: user}) != nil || sleep(ctx, killWait/20) != nil {
			return
		}
	}
}

// NewFile is a file for WriteAll to write.
type NewFile struct {
	Path string
	Data []byte
	From io.Reader // if not nil, read instead of Data
}

// WriteAllError is a WriteAll that did not write all.
type WriteAllError struct {
	Written []string // the paths of the files that are written whole, in their order
	Err     error    // why another is not: an *fs.PathError with its path, or that of ctx
}

// Error returns the text of Err.
func (e *WriteAllError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *WriteAllError) Unwrap() error { return e.Err }

// maxParallel is how many requests a call makes at the same time.
const maxParallel = 16

// WriteAll writes files as Write and WriteFrom do, several at the same time and in
// no order. The first error ends it. For a whole directory see CopyIn.
//
// Errors: as Write; once a request was made, in a *WriteAllError.
//
// See https://e2b.dev/docs/filesystem/read-write.
func (f *Files) WriteAll(ctx context.Context, files []NewFile, opts *WriteOptions) error {
	var o WriteOptions
	if opts != nil {
		o = *opts
	}
	seen := make(map[string]bool, len(files))
	for i := range files {
		path := files[i].Path
		if err := f.checkWrite(path, &o); err != nil {
			return err
		}
		clean := pathpkg.Clean(path)
		if seen[clean] {
			return invalid(opWrite.name, "files", "has the path twice: %.80q", path)
		}
		seen[clean] = true
	}
	limit := maxParallel
	if !atLeast(f.s.state.Load().version, 0, 5, 8) {
		limit = 1 // two that make the same directory fail
	}
	written := make([]bool, len(files))
	err := parallel(ctx, limit, len(files), func(ctx context.Context, i int) error {
		from := files[i].From
		if from == nil {
			from = bytes.NewReader(files[i].Data)
		}
		err := f.write(ctx, files[i].Path, from, &o)
		written[i] = err == nil
		return err
	})
	if err == nil {
		return nil
	}
	out := &WriteAllError{Err: err}
	for i := range files {
		if written[i] {
			out.Written = append(out.Written, files[i].Path)
		}
	}
	return out
}

// parallel calls do for 0 to n-1, at most limit at the same time, until one
// fails. It returns the first error.
func parallel(ctx context.Context, limit, n int, do func(context.Context, int) error) error {
	each, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		wg    sync.WaitGroup
		next  atomic.Int64
		once  sync.Once
		first error
	)
	for range min(limit, n) {
		wg.Go(func() {
			for each.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(each, i); err != nil {
					once.Do(func() { first = err })
					cancel()
				}
			}
		})
	}
	wg.Wait()
	if first == nil {
		return ctx.Err()
	}
	return first
}

// checkWrite refuses arguments before any request.
func (f *Files) checkWrite(path string, o *WriteOptions) error {
	if err := checkFile(opWrite, path, o.User); err != nil {
		return err
	}
	if strings.HasSuffix(path, "/") {
		return invalid(opWrite.name, "path", "is a directory: %.80q", path)
	}
	version := f.s.state.Load().version
	if o.Atomic {
		// The path goes into a message that holds text alone.
		if err := validText(opWrite.name, nil, argument{"path", path}); err != nil {
			return err
		}
	}
	if o.Gzip && !atLeast(version, 0, 5, 3) {
		return tooOld(opWrite, f.s.id, version, "a compressed upload", "0.5.3")
	}
	if len(o.Metadata) == 0 {
		return nil
	}
	if !atLeast(version, 0, 6, 2) {
		return tooOld(opWrite, f.s.id, version, "metadata of files", "0.6.2")
	}
	return checkMetadata(o.Metadata)
}

const (
	maxMetadataKey = 246
	maxMetadata    = 4096
)

// checkMetadata refuses what envd would refuse, and what it would change silently.
func checkMetadata(md map[string]string) error {
	seen := make(map[string]bool, len(md))
	total := 0
	for _, key := range slices.Sorted(maps.Keys(md)) {
		value := md[key]
		lower := strings.ToLower(key)
		switch {
		case key == "" || strings.IndexFunc(key, notToken) >= 0:
			return invalid(opWrite.name, "Metadata", "has a key that no HTTP header can have: %.40q", key)
		case len(key) > maxMetadataKey:
			return invalid(opWrite.name, "Metadata", "has a key of more than %d bytes: %.40q", maxMetadataKey, key)
		case seen[lower]:
			return invalid(opWrite.name, "Metadata", "has the key twice, in upper and lower case: %.40q", lower)
		case strings.IndexFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) >= 0:
			return invalid(opWrite.name, "Metadata", "has a value that is not printable ASCII, of the key %.40q", key)
		case strings.Trim(value, " ") != value:
			return invalid(opWrite.name, "Metadata", "has a value with a space at its beginning or end, of the key %.40q", key)
		}
		seen[lower] = true
		total += 9 + len(key) + len(value)
	}
	if total > maxMetadata {
		return invalid(opWrite.name, "Metadata", "takes %d of %d bytes", total, maxMetadata)
	}
	return nil
}

// notToken reports a rune that the name of a header cannot have.
func notToken(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return false
	}
	return !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
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
	return f.pathError(op, path, f.s.dataError(ctx, op, err, opened))
}

func (f *Files) pathError(op operation, path string, err error) error {
	verb, _, _ := strings.Cut(op.name, " ")
	return &fs.PathError{Op: verb, Path: path, Err: err}
}
