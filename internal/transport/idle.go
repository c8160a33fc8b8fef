package transport

import (
	"context"
	"io"
	"time"
)

// Idle ends a request when the other side has been silent for too long.
type Idle struct {
	limit  time.Duration
	timer  *time.Timer // nil: no limit
	cancel context.CancelCauseFunc
}

// WithIdle returns a ctx that ends with ErrTimeout as its cause once limit has
// passed since the last Touch. A limit ≤ 0 is none. The caller must call Release.
func WithIdle(ctx context.Context, limit time.Duration) (context.Context, *Idle) {
	if limit <= 0 {
		return ctx, &Idle{}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &Idle{limit: limit, cancel: cancel, timer: time.AfterFunc(limit, func() { cancel(ErrTimeout) })}
}

// Touch says that something moved.
func (i *Idle) Touch() {
	if i.timer != nil && i.timer.Stop() { // not stopped: it has fired
		i.timer.Reset(i.limit)
	}
}

// Stop lifts the limit. The ctx goes on.
func (i *Idle) Stop() {
	if i.timer != nil {
		i.timer.Stop()
	}
}

// Release ends the ctx, and with it what it was for.
func (i *Idle) Release() {
	if i.timer != nil {
		i.timer.Stop()
		i.cancel(nil)
	}
}

// Reader touches i whenever bytes come from r.
func (i *Idle) Reader(r io.Reader) io.Reader {
	if i.timer == nil {
		return r
	}
	return &idleReader{r: r, idle: i}
}

type idleReader struct {
	r    io.Reader
	idle *Idle
}

func (r *idleReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if n > 0 {
		r.idle.Touch()
	}
	return n, err
}
