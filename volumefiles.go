package e2b

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
	"github.com/seed-09a7379d/e2b-go/internal/volumeapi"
)

// VolumeFiles reads and writes what is in a volume, without a sandbox. It is safe
// for concurrent use.
//
// Experimental: nothing of this service could be recorded. Routes and fields are
// those of E2B's JavaScript SDK, and the emulator does not have it.
//
// See https://e2b.dev/docs/volumes.
type VolumeFiles struct {
	c   *Client
	api *volumeapi.Client
}

// VolumeEntry is a file, directory or link in a volume.
//
// See https://e2b.dev/docs/volumes.
type VolumeEntry struct {
	Name, Path string
	Size       int64       // in bytes
	Mode       fs.FileMode // permissions and type; fs.ModeIrregular where that is not known
	UID, GID   int
	ModTime    time.Time
	AccessTime time.Time
	ChangeTime time.Time
	Target     string // of a link
}

// VolumeWriteOptions says who owns what is written, and with which permissions.
// What is nil is left to the service.
//
// See https://e2b.dev/docs/volumes.
type VolumeWriteOptions struct {
	UID, GID *uint32      // numbers of the owner and the group
	Mode     *fs.FileMode // permissions alone
	Parents  bool         // make the directories above, too
}

var (
	opVolumeFiles  = operation{name: "open volume"}
	opVolumeList   = operation{name: "list volume directory", notFound: fs.ErrNotExist, files: true}
	opVolumeStat   = operation{name: "stat volume file", notFound: fs.ErrNotExist, files: true}
	opVolumeRead   = operation{name: "read volume file", notFound: fs.ErrNotExist, files: true}
	opVolumeWrite  = operation{name: "write volume file", notFound: fs.ErrNotExist, files: true}
	opVolumeMkdir  = operation{name: "mkdir volume directory", notFound: fs.ErrNotExist, files: true}
	opVolumeChange = operation{name: "change volume file", notFound: fs.ErrNotExist, files: true}
	opVolumeRemove = operation{name: "remove volume file", notFound: fs.ErrNotExist, files: true}
)

// VolumeFiles returns access to what is in a volume that CreateVolume or Volume has
// returned, for as long as its token holds: an hour. It makes no request.
//
// Errors: ErrInvalidArgument (a volume without its token, as Volumes returns it).
//
// See https://e2b.dev/docs/volumes.
func (c *Client) VolumeFiles(v *Volume) (*VolumeFiles, error) {
	switch {
	case v == nil || !validID(v.ID):
		return nil, invalid(opVolumeFiles.name, "v", "has no ID of a volume")
	case v.Token.IsZero():
		return nil, invalid(opVolumeFiles.name, "v", "has no token: ask Client.Volume for it")
	case !transport.ValidHeader(v.Token.Reveal()):
		return nil, invalid(opVolumeFiles.name, "v", "has a token that is none")
	case v.Domain != "" && !validDomain(v.Domain):
		return nil, invalid(opVolumeFiles.name, "v", "has a domain that is none: %.100q", v.Domain)
	}
	base := c.apiBase
	if v.Domain != "" {
		base = &url.URL{Scheme: "https", Host: "api." + v.Domain}
	}
	return &VolumeFiles{c, &volumeapi.Client{Base: base, Transport: c.main, VolumeID: v.ID, Token: v.Token.Reveal(), UserAgent: c.userAgent}}, nil
}

// List describes what is below a directory, depth levels deep; 0 means 1. The order
// is the service's.
//
// Errors, of all calls of VolumeFiles and, once a request was made, in an
// *fs.PathError: fs.ErrNotExist, ErrInvalidArgument, ErrUnauthenticated (also a token
// that has expired), ErrForbidden, ErrRateLimited, ErrServiceBusy, ErrRequestTimeout
// (nothing moved for that long), ErrNotSupported.
//
// See https://e2b.dev/docs/volumes.
func (f *VolumeFiles) List(ctx context.Context, path string, depth int) ([]VolumeEntry, error) {
	if depth < 0 || depth > 1<<31-1 {
		return nil, invalid(opVolumeList.name, "depth", "is none: %d", depth)
	}
	var list []volumeapi.Entry
	err := f.call(ctx, opVolumeList, path, func(ctx context.Context) (err error) {
		list, err = f.api.List(ctx, path, max(depth, 1))
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make([]VolumeEntry, len(list))
	for i := range list {
		out[i] = volumeEntry(&list[i])
	}
	return out, nil
}

// Stat describes a file, directory or link.
//
// Errors: as List.
//
// See https://e2b.dev/docs/volumes.
func (f *VolumeFiles) Stat(ctx context.Context, path string) (*VolumeEntry, error) {
	return f.entry(ctx, opVolumeStat, path, func(ctx context.Context) (*volumeapi.Entry, error) { return f.api.Stat(ctx, path) })
}

// Open opens a file for reading as it comes. ctx bounds the reading too. The caller
// must Close it. A download that breaks is not resumed.
//
// Errors: as List, and ErrStreamInterrupted and ErrClosed from the reading.
//
// See https://e2b.dev/docs/volumes.
func (f *VolumeFiles) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	if err := checkFile(opVolumeRead, path, ""); err != nil {
		return nil, err
	}
	bound, idle := transport.WithIdle(ctx, f.c.openLimit(ctx))
	body, err := f.api.Open(bound, path)
	if err != nil {
		err = ended(ctx, bound, err)
		idle.Release() // which ends bound
		return nil, f.fail(ctx, opVolumeRead, path, err)
	}
	idle.Stop()
	return &volumeReader{f: f, path: path, caller: ctx, ctx: bound, idle: idle, body: body, r: idle.FromWire(body)}, nil
}

// Read returns the contents of a file. ctx bounds everything.
//
// Errors: as Open.
//
// See https://e2b.dev/docs/volumes.
func (f *VolumeFiles) Read(ctx context.Context, path string) ([]byte, error) {
	r, err := f.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return readAll(r, -1)
}

// Write writes a file, replacing what is there. ctx bounds everything. opts may be
// nil. data is not changed, and not kept.
//
// Errors: as List, and ErrNoSpace.
//
// See https://e2b.dev/docs/volumes.
func (f *VolumeFiles) Write(ctx context.Context, path string, data []byte, opts *VolumeWriteOptions) (*VolumeEntry, error) {
	return f.WriteFrom(ctx, path, bytes.NewReader(data), opts)
}

// WriteFrom writes what r gives, up to its end, without keeping it in memory. A
// Read that blocks does not keep WriteFrom from ending with ctx, nor for more than a
// second with an error of the service; r is then in use until that Read returns. opts
// may be nil.
//
// Errors: as Write, and those of r.
//
// See https://e2b.dev/docs/volumes.
func (f *VolumeFiles) WriteFrom(ctx context.Context, path string, r io.Reader, opts *VolumeWriteOptions) (*VolumeEntry, error) {
	if r == nil {
		return nil, invalid(opVolumeWrite.name, "r", "is nil")
	}
	if err := checkFile(opVolumeWrite, path, ""); err != nil {
		return nil, err
	}
	size, again := known(r)
	bound, idle := transport.WithIdle(ctx, f.c.openLimit(ctx))
	defer idle.Release()
	e, err := f.api.Write(bound, idle, path, r, size, again != nil, opts.owner(), opts != nil && opts.Parents)
	if err != nil {
		return nil, f.fail(ctx, opVolumeWrite, path, ended(ctx, bound, err))
	}
	out := volumeEntry(e)
	return &out, nil
}

// MakeDir makes a directory. opts may be nil.
//
// Errors: as List, and ErrNoSpace.
//
// See https://e2b.dev/docs/volumes.
func (f *VolumeFiles) MakeDir(ctx context.Context, path string, opts *VolumeWriteOptions) (*VolumeEntry, error) {
	return f.entry(ctx, opVolumeMkdir, path, func(ctx context.Context) (*volumeapi.Entry, error) {
		return f.api.MakeDir(ctx, path, opts.owner(), opts != nil && opts.Parents)
	})
}

// Change changes the owner and the permissions of a file or directory; what is nil
// in opts stays. Parents means nothing here.
//
// Errors: as List.
//
// See https://e2b.dev/docs/volumes.
func (f *VolumeFiles) Change(ctx context.Context, path string, opts *VolumeWriteOptions) (*VolumeEntry, error) {
	return f.entry(ctx, opVolumeChange, path, func(ctx context.Context) (*volumeapi.Entry, error) {
		return f.api.Change(ctx, path, opts.owner())
	})
}

// Remove removes a file or directory.
//
// Errors: as List.
//
// See https://e2b.dev/docs/volumes.
func (f *VolumeFiles) Remove(ctx context.Context, path string) error {
	return f.call(ctx, opVolumeRemove, path, func(ctx context.Context) error { return f.api.Remove(ctx, path) })
}

func (o *VolumeWriteOptions) owner() volumeapi.Owner {
	if o == nil {
		return volumeapi.Owner{}
	}
	out := volumeapi.Owner{UID: o.UID, GID: o.GID}
	if o.Mode != nil {
		out.Mode = new(uint32(o.Mode.Perm()))
	}
	return out
}

func (f *VolumeFiles) entry(ctx context.Context, op operation, path string, do func(context.Context) (*volumeapi.Entry, error)) (*VolumeEntry, error) {
	var out VolumeEntry
	err := f.call(ctx, op, path, func(ctx context.Context) error {
		e, err := do(ctx)
		if err == nil {
			out = volumeEntry(e)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

func (f *VolumeFiles) call(ctx context.Context, op operation, path string, do func(context.Context) error) error {
	if err := checkFile(op, path, ""); err != nil {
		return err
	}
	bound, idle := transport.WithIdle(ctx, f.c.openLimit(ctx))
	defer idle.Release()
	return f.fail(ctx, op, path, ended(ctx, bound, do(bound)))
}

func (f *VolumeFiles) fail(ctx context.Context, op operation, path string, err error) error {
	if err == nil {
		return nil
	}
	var out error
	status, isStatus := errors.AsType[*transport.StatusError](err)
	source, isSource := errors.AsType[*transport.SourceError](err)
	switch {
	case isStatus:
		out = newAPIError(op, "", status, 1)
	case isSource && ctx.Err() == nil:
		out = &opError{op: op.name, errs: []error{source}}
	default:
		out = &opError{op: op.name, errs: []error{broken(ctx, err)}}
	}
	verb, _, _ := strings.Cut(op.name, " ")
	return &fs.PathError{Op: verb, Path: path, Err: out}
}

func volumeEntry(e *volumeapi.Entry) VolumeEntry {
	out := VolumeEntry{
		Name: e.Name, Path: e.Path, Size: e.Size, Mode: fs.FileMode(e.Mode) & fs.ModePerm, UID: int(e.UID), GID: int(e.GID),
		ModTime: e.MTime, AccessTime: e.ATime, ChangeTime: e.CTime, Target: e.Target,
	}
	switch e.Type {
	case "file":
	case "directory":
		out.Mode |= fs.ModeDir
	case "symlink":
		out.Mode |= fs.ModeSymlink
	default:
		out.Mode |= fs.ModeIrregular
	}
	return out
}

// volumeReader is a file of a volume on its way.
type volumeReader struct {
	f           *VolumeFiles
	path        string
	caller, ctx context.Context //nolint:containedctx // as the body of an HTTP answer
	idle        *transport.Idle
	body        io.Closer
	r           io.Reader
	closed      atomic.Bool
}

// Read reads the file.
func (r *volumeReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if err != nil && r.closed.Load() && r.caller.Err() == nil {
		return n, &fs.PathError{Op: "read", Path: r.path, Err: &opError{op: opVolumeRead.name, errs: []error{ErrClosed}}}
	}
	if cut := transport.FalseEnd(r.ctx); cut != nil && errors.Is(err, io.EOF) {
		err = cut
	}
	if err != nil && !errors.Is(err, io.EOF) {
		cause := r.f.fail(r.caller, opVolumeRead, r.path, ended(r.caller, r.ctx, err))
		if r.caller.Err() == nil && !errors.Is(cause, ErrRequestTimeout) {
			cause = &fs.PathError{Op: "read", Path: r.path, Err: &opError{op: opVolumeRead.name, errs: []error{ErrStreamInterrupted, err}}}
		}
		err = cause
	}
	return n, err
}

// Close lets go of the connection.
func (r *volumeReader) Close() error {
	r.closed.Store(true)
	r.idle.Release()
	return r.body.Close()
}
