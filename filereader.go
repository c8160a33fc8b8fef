package e2b

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/envd"
	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// A FileReader reads a file in a sandbox from beginning to end. One goroutine may
// read; Close may be called from any.
type FileReader struct {
	f      *Files
	path   string
	opts   ReadOptions
	caller context.Context // bounds the reading
	ctx    context.Context // ends also with Close, or with a pause or kill by the handle's owner
	cancel context.CancelCauseFunc
	free   func() // what ctx holds

	mu   sync.Mutex
	d    *envd.Download
	size int64
	mod  string // Last-Modified where it says for sure which contents these are
	at   int64
	idle int   // resumptions since anything came
	err  error // the final one
}

// Open opens a file for reading as it comes, in constant memory. As with the body
// of an HTTP answer, ctx bounds the reading too. The caller must Close it.
//
// When the connection breaks and the sandbox still runs, the rest is fetched by
// another request, if the file is still the same: this is known of files that had
// not been changed in the second before they were opened. Otherwise Read returns
// ErrStreamInterrupted.
//
// Errors: as Read.
//
// See https://e2b.dev/docs/filesystem/read-write.
func (f *Files) Open(ctx context.Context, path string, opts *ReadOptions) (*FileReader, error) {
	var o ReadOptions
	if opts != nil {
		o = *opts
	}
	if err := checkFile(opRead, path, o.User); err != nil {
		return nil, err
	}
	if version := f.s.state.Load().version; o.Gzip && !atLeast(version, 0, 5, 3) {
		return nil, tooOld(opRead, f.s.id, version, "a compressed download", "0.5.3")
	}
	bound, free := f.s.bound(ctx, 0)
	r := &FileReader{f: f, path: path, opts: o, caller: ctx, free: free}
	r.ctx, r.cancel = context.WithCancelCause(bound)
	d, err := r.download()
	if err != nil {
		err = f.fail(ctx, opRead, path, ended(ctx, r.ctx, err), false)
		r.cancel(nil)
		free()
		return nil, err
	}
	r.d, r.size = d, d.Size
	if d.Size >= 0 && settled(d.LastModified, d.Date) {
		r.mod = d.LastModified
	}
	return r, nil
}

// settled reports whether a file's time of change, which has whole seconds, tells
// its contents from any later ones.
func settled(modified, date string) bool {
	mod, err := http.ParseTime(modified)
	now, err2 := http.ParseTime(date)
	return err == nil && err2 == nil && now.Sub(mod) > time.Second
}

func (r *FileReader) download() (*envd.Download, error) {
	h := r.f.s.state.Load()
	return h.envd.Download(r.ctx, r.f.s.client.openLimit(r.caller), r.path, &envd.DownloadOptions{
		User: h.user(r.opts.User), Gzip: r.opts.Gzip, From: r.at, IfRange: r.mod,
	})
}

// Size returns the length of the file when it was opened, -1 if it is not known,
// as with ReadOptions.Gzip.
func (r *FileReader) Size() int64 { return r.size }

// Read reads the file. io.EOF means that all of it was read.
//
// Errors: ErrStreamInterrupted, ErrSandboxNotRunning, ErrRequestTimeout (nothing
// came for that long), ErrClosed.
func (r *FileReader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	for r.err == nil {
		n, err := r.d.Read(p)
		r.at += int64(n)
		if n > 0 {
			r.idle = 0
		}
		switch {
		case errors.Is(err, io.EOF):
			r.end(io.EOF)
		case err != nil:
			r.resume(err)
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, r.err
}

// Close ends the reading. A Read that is under way ends with ErrClosed. It may be
// called again.
func (r *FileReader) Close() error {
	r.cancel(ErrClosed)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.end(r.fail(ErrClosed))
	}
	return nil
}

func (r *FileReader) end(err error) {
	_ = r.d.Close()
	r.err = err
	r.cancel(nil)
	r.free()
}

func (r *FileReader) fail(err error) error {
	return r.f.fail(r.caller, opRead, r.path, ended(r.caller, r.ctx, err), true)
}

const (
	maxResume  = 3
	resumeWait = 100 * time.Millisecond // before the second, and twice that before the third
)

// resume goes on where a connection broke. After it, r reads on or has ended.
func (r *FileReader) resume(err error) {
	if r.mod == "" || r.ctx.Err() != nil || errors.Is(err, transport.ErrTimeout) {
		r.end(r.fail(err))
		return
	}
	// What is asked of envd could wake a sandbox that has been paused.
	broken, running := r.f.s.interrupted(r.ctx, opRead, err)
	_ = r.d.Close()
	for running && r.idle < maxResume {
		if r.idle++; r.idle > 1 && sleep(r.ctx, resumeWait<<(r.idle-2)) != nil {
			break
		}
		d, err := r.download()
		if err == nil && r.at+d.Size != r.size {
			_ = d.Close()
			err = envd.ErrChanged
		}
		if err == nil {
			r.d = d
			return
		}
		_, final := errors.AsType[*transport.StatusError](err)
		if errors.Is(err, envd.ErrChanged) {
			final = true
			broken = &opError{op: opRead.name, sandboxID: r.f.s.id, detail: err.Error(), errs: []error{ErrStreamInterrupted}}
		}
		running = !final
	}
	if r.ctx.Err() != nil {
		r.end(r.fail(context.Cause(r.ctx)))
		return
	}
	r.end(r.f.pathError(opRead, r.path, broken))
}
