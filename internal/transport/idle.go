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
// passed since the last Start; the first is here. A limit ≤ 0 is none. The caller
// must call Release.
func WithIdle(ctx context.Context, limit time.Duration) (context.Context, *Idle) {
	if limit <= 0 {
		return ctx, &Idle{}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &Idle{limit: limit, cancel: cancel, timer: time.AfterFunc(limit, func() { cancel(ErrTimeout) })}
}

// Start lets the limit run from now.
func (i *Idle) Start() {
	if i.timer != nil {
		i.timer.Reset(i.limit)
	}
}

// Stop lifts the limit, until Start. The ctx goes on.
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

// FromWire returns a reader of what the other side sends. The limit runs while a
// Read waits, not while nobody reads.
func (i *Idle) FromWire(r io.Reader) io.Reader {
	if i.timer == nil {
		return r
	}
	return readFunc(func(p []byte) (int, error) {
		i.Start()
		defer i.Stop()
		return r.Read(p)
	})
}

// ToWire returns a reader of what is sent to the other side. The limit runs from
// one Read to the next, not while r is waited for.
func (i *Idle) ToWire(r io.Reader) io.Reader {
	if i.timer == nil {
		return r
	}
	return readFunc(func(p []byte) (int, error) {
		i.Stop()
		defer i.Start()
		return r.Read(p)
	})
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }
