package interp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// interruptDelay is about the time that the real service needs to get an interrupt
// to a kernel. Only Config.HangAfterCancel needs it: without it the window in
// which a request is lost would be too short to be met.
const interruptDelay = 50 * time.Millisecond

// codeContext is one code context: a kernel, when there is need of one, and the
// queue in front of it.
type codeContext struct {
	id, language string
	listedCwd    string // as GET /contexts shows it

	server *Server
	turn   turns // of a request that has the kernel for itself

	mu      sync.Mutex
	cwd     string // where the next kernel goes first; "" is nowhere
	count   int    // of the cells that have ended since the last restart
	kernel  kernel // nil: none is running
	current *cell  // given, or about to be given, to the kernel
	lost    *cell  // the request that hangs after a cancel
	resets  int    // so often the context was restarted or removed
	removed bool
}

func newContextID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6] = b[6]&0x0f | 0x40 // a random (version 4) UUID
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// release ends the caller's turn.
func (c *codeContext) release() { c.turn.pass() }

var errRemoved = errors.New("the context has been removed")

// ready returns the context's kernel, after starting one if there is none. The
// caller must have the turn.
func (c *codeContext) ready(ctx context.Context) (kernel, error) {
	for {
		c.mu.Lock()
		if c.removed {
			c.mu.Unlock()
			return nil, errRemoved
		}
		if c.kernel == nil {
			k, err := c.server.startKernel(ctx, c, c.cwd)
			if err != nil {
				c.mu.Unlock()
				return nil, err
			}
			c.kernel = k
		}
		k, resets := c.kernel, c.resets
		c.mu.Unlock()
		select {
		case <-k.ready():
			return k, nil
		case <-k.exited():
			select {
			case <-k.ready():
				return k, nil // it has died since then, which run will tell
			default:
			}
			c.mu.Lock()
			again := c.resets > resets
			c.mu.Unlock()
			if !again {
				return nil, fmt.Errorf("the kernel did not start: %w", k.failure())
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// cold reports whether the next cell has to wait for a kernel to start.
func (c *codeContext) cold() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kernel == nil
}

// finish ends a cell. Only the first call for a cell has an effect. The caller
// holds mu.
func (c *codeContext) finish(x *cell, o outcome) {
	if x == nil || x.finished {
		return
	}
	if c.server.isClosing() {
		o = outcomeClosed
	}
	x.finished, x.outcome = true, o
	close(x.done)
	if o == outcomeEnded || o == outcomeExited {
		c.cwd = "" // only the first kernel goes there
		if strings.TrimSpace(x.code) != "" {
			c.count++
		}
	}
	if c.current == x {
		c.current = nil
	}
	if c.lost == x {
		c.lost = nil
	}
	if x.orphaned {
		c.release()
	}
}

// kernelEnded is called by a kernel when a cell has ended, and when the kernel
// itself has, with the cell that it was running or nil.
func (c *codeContext) kernelEnded(k kernel, x *cell, o outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o != outcomeEnded && c.kernel == k {
		c.kernel = nil
	}
	c.finish(x, o)
}

// reset kills the kernel, ends what it was running with o, and returns when the
// process is gone. The context then starts afresh, or is removed for good.
func (c *codeContext) reset(o outcome, remove bool) {
	c.mu.Lock()
	k := c.kernel
	c.kernel = nil
	c.cwd, c.count = "", 0 // the real service forgets it, too
	c.resets++
	if remove {
		c.removed = true
	}
	c.finish(c.current, o)
	c.finish(c.lost, o)
	c.mu.Unlock()
	if k != nil {
		k.kill()
		<-k.exited()
	}
}

// execute runs code and writes its response. The caller has the turn, which
// execute ends, possibly after it has returned.
func (c *codeContext) execute(ctx context.Context, out *stream, req executeRequest) {
	for again := false; ; again = true {
		c.mu.Lock()
		if c.removed {
			c.mu.Unlock()
			c.release()
			if c.server.isClosing() {
				out.end(outcomeClosed)
			} else {
				out.end(outcomeLost)
			}
			return
		}
		x := newCell(req.code, req.env, c.server.cfg.Env)
		x.count = c.count + 1
		if c.current != nil {
			c.lost, x.lost = x, true
			c.mu.Unlock()
			c.hang(ctx, out, x)
			return
		}
		c.current = x
		c.mu.Unlock()

		k, err := c.ready(ctx)
		c.mu.Lock()
		switch {
		case x.finished: // by a restart meanwhile
		case err != nil:
			c.finish(x, outcomeDied)
		case !k.run(x):
			c.kernel = nil
			c.finish(x, outcomeDied)
		}
		c.mu.Unlock()
		if !out.copy(ctx, x) {
			c.abandon(x, k)
			return
		}
		if x.outcome == outcomeDied && !out.started && k != nil && !again {
			continue // the kernel had died before; the code did not begin to run
		}
		c.release()
		out.end(x.outcome)
		return
	}
}

// abandon leaves a cell whose client is gone: it is interrupted, and what it still
// has to say is dropped.
func (c *codeContext) abandon(x *cell, k kernel) {
	close(x.gone)
	hang := c.server.cfg.HangAfterCancel
	c.mu.Lock()
	free := x.finished || hang
	x.orphaned = !free
	c.mu.Unlock()
	if free {
		c.release()
	}
	if k != nil {
		c.interrupt(k, x)
	}
}

func (c *codeContext) interrupt(k kernel, x *cell) {
	if !c.server.cfg.HangAfterCancel {
		k.interrupt(x)
		return
	}
	c.server.spawn(func() {
		select {
		case <-time.After(interruptDelay):
			k.interrupt(x)
		case <-x.done:
		case <-c.server.closing:
		}
	})
}

// hang is what Config.HangAfterCancel is about: x came too early after a cancel.
func (c *codeContext) hang(ctx context.Context, out *stream, x *cell) {
	defer c.release()
	if out.copy(ctx, x) {
		out.end(x.outcome)
		return
	}
	c.mu.Lock()
	c.finish(x, outcomeLost)
	k, current := c.kernel, c.current
	c.mu.Unlock()
	if k != nil && current != nil {
		// Its client has gone away, too.
		c.interrupt(k, current)
	}
}

// stream writes the lines of a response.
type stream struct {
	w         http.ResponseWriter
	keepAlive time.Duration
	started   bool // a kernel has said something
	partial   bool // the last line is not complete
}

// start sends the headers.
func (s *stream) start() {
	s.w.Header()["Content-Type"] = nil // the real service sends none
	s.w.WriteHeader(http.StatusOK)
	s.flush()
}

// flush sends what has been written and reports whether the client can still be
// reached.
func (s *stream) flush() bool {
	err := http.NewResponseController(s.w).Flush()
	return err == nil || errors.Is(err, errors.ErrUnsupported)
}

// write sends data and reports whether the client can still be reached.
func (s *stream) write(data []byte, last bool) bool {
	if _, err := s.w.Write(data); err != nil {
		return false
	}
	s.partial = !last
	return !last || s.flush()
}

// copy sends what a cell has to say, and keepalives while that is nothing although
// the code runs, until the cell has ended. It reports false if the client went away
// first.
func (s *stream) copy(ctx context.Context, x *cell) bool {
	quiet := time.NewTimer(s.keepAlive)
	defer quiet.Stop()
	for {
		select {
		case ch := <-x.chunks:
			s.started = true
			if !s.write(ch.data, ch.last) {
				return false
			}
			quiet.Reset(s.keepAlive)
		case <-quiet.C:
			if (s.started || x.lost) && !s.partial && !s.write(keepAliveLine, true) {
				return false
			}
			quiet.Reset(s.keepAlive)
		case <-x.done:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// end sends the last lines of a response.
func (s *stream) end(o outcome) {
	var lines []byte
	switch o {
	case outcomeDied:
		lines = append(lines, restartedLine...)
	case outcomeLost:
		lines = append(append(lines, lostLine...), cutLine...)
	}
	if s.partial || o == outcomeClosed {
		panic(http.ErrAbortHandler) // how a handler cuts a response
	}
	s.write(append(lines, endLine...), true)
}
