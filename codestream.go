package e2b

import (
	"context"
	"iter"
	"sync"

	"github.com/seed-09a7379d/e2b-go/internal/interpreter"
)

var opStreamCode = operation{name: "stream code", notFound: ErrNotFound, code: true}

// CodeEvent is something that code did while it ran. One of the fields is set.
type CodeEvent struct {
	Count          int             // the code has begun, as this execution of its context
	Stdout, Stderr string          // a piece of output, not a line
	Result         *CodeResult     // a value, displayed or of the last expression
	Error          *ExecutionError // an exception; it may not be the last event
}

// A CodeStream is code that runs and whose events are read as they come. It has
// its context for itself until its end or Close. One goroutine may read the
// events; Close and Result may be called by any.
type CodeStream struct {
	run    *codeRun
	cancel context.CancelCauseFunc // ends the execution
	unhook func() bool             // the call of abandon when the execution is ended

	mu    sync.Mutex
	state codeStreamState
	exec  *Execution
	err   error
}

type codeStreamState int

const (
	streamOpen    codeStreamState = iota
	streamReading                 // Events has it
	streamEnded                   // by Events
	streamClosed                  // before Events was called
)

// StreamCode runs code as RunCode does and returns once the interpreter has taken
// it. ctx bounds that alone, with the wait for earlier calls in the context: the
// CodeStream goes on until its end or its Close, and must have one of them, since
// the next call in the context waits for it.
//
// CodeOptions holds as in RunCode: Timeout bounds the execution, Stdout and Stderr
// get the output besides the events, MaxOutput bounds what Result collects.
//
// Errors: as RunCode.
//
// See https://e2b.dev/docs/code-interpreting/streaming.
func (s *Sandbox) StreamCode(ctx context.Context, code string, opts *CodeOptions) (*CodeStream, error) {
	base, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	if ctx.Err() != nil {
		cancel(nil)
		return nil, s.dataError(ctx, opStreamCode, ctx.Err(), false)
	}
	stop := context.AfterFunc(ctx, func() { cancel(ctx.Err()) })
	run, err := s.beginCode(ctx, base, opStreamCode, code, opts)
	if err != nil {
		stop()
		cancel(nil)
		return nil, err
	}
	if !stop() { // ctx has ended just now, and the execution with it
		defer run.close()
		_, err := run.finish(ctx, ctx.Err())
		return nil, err
	}
	return newCodeStream(run, cancel), nil
}

func newCodeStream(run *codeRun, cancel context.CancelCauseFunc) *CodeStream {
	c := &CodeStream{run: run, cancel: cancel}
	c.mu.Lock() // against an execution that has ended already
	defer c.mu.Unlock()
	c.unhook = context.AfterFunc(run.ctx, c.abandon)
	return c
}

// Events returns what the code does, as it does it. The last pair holds the error
// if there was one; an exception in the code is an event, not an error. Nothing is
// read ahead: who takes events slowly slows down the code once the connection's
// buffers are full.
//
// The end of ctx, and a loop that is left early, close the CodeStream, since
// nobody could read on: the events may be ranged over once.
//
// Errors: ErrCommandTimeout, ErrInterpreter, ErrSandboxNotRunning,
// ErrStreamInterrupted, ErrClosed.
//
// See https://e2b.dev/docs/code-interpreting/streaming.
func (c *CodeStream) Events(ctx context.Context) iter.Seq2[CodeEvent, error] {
	return func(yield func(CodeEvent, error) bool) {
		if err := c.take(); err != nil {
			yield(CodeEvent{}, err)
			return
		}
		stop := context.AfterFunc(ctx, func() { c.cancel(ctx.Err()) })
		defer stop()
		left := true
		defer func() {
			if left { // the loop, by break or panic
				c.cancel(ErrClosed)
				_ = c.end(ctx, ErrClosed)
			}
		}()
		for {
			e, end, err := c.next(ctx)
			if end || err != nil {
				left = false
				if err = c.end(ctx, err); err != nil {
					yield(CodeEvent{}, err)
				}
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// take gives the reading to the caller.
func (c *CodeStream) take() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.state {
	case streamOpen:
		c.state = streamReading
		return nil
	case streamClosed:
		return c.err
	}
	return &opError{op: opStreamCode.name, sandboxID: c.run.s.id, detail: "its events were read already", errs: []error{ErrClosed}}
}

// next reads up to the next event, or tells that there is none.
func (c *CodeStream) next(ctx context.Context) (e CodeEvent, end bool, err error) {
	var l interpreter.Line
	for {
		if ctx.Err() != nil {
			return e, false, ctx.Err()
		}
		if err := c.run.over(); err != nil { // or what is buffered would come first
			return e, false, err
		}
		if end, err := c.run.r.next(c.run.x, &l); end || err != nil {
			return e, end, err
		}
		switch l.Type {
		case interpreter.TypeCount:
			e.Count = l.Count
		case interpreter.TypeStdout:
			e.Stdout = l.Text
		case interpreter.TypeStderr:
			e.Stderr = l.Text
		case interpreter.TypeResult:
			r := newCodeResult(&l) // Result may have had no room for it
			e.Result = &r
		case interpreter.TypeError:
			e.Error = &ExecutionError{Name: l.Name, Value: l.Value, Traceback: l.Traceback}
		}
		if e != (CodeEvent{}) {
			return e, false, nil
		}
	}
}

// end makes the result. The caller has the reading.
func (c *CodeStream) end(ctx context.Context, err error) error {
	c.unhook()
	exec, err := c.run.finish(ctx, err)
	c.run.close()
	c.cancel(nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state, c.exec, c.err = streamEnded, exec, err
	return err
}

// abandon ends a stream that nobody reads.
func (c *CodeStream) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != streamOpen {
		return
	}
	c.unhook()
	c.state = streamClosed
	c.exec, c.err = c.run.finish(context.Background(), c.run.over())
	c.run.close()
}

// Result returns what the code left, once Events has come to its end or the
// CodeStream was closed, and the error with which it ended. With an error the
// Execution holds what was read until then, and is nil if nothing was. Before the
// end it is an error to call Result.
func (c *CodeStream) Result() (*Execution, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == streamOpen || c.state == streamReading {
		return nil, &opError{op: opStreamCode.name, sandboxID: c.run.s.id, detail: "the code has not ended: range over Events first"}
	}
	return c.exec, c.err
}

// Close interrupts the code, if it has not ended, as the end of ctx does in
// RunCode. A loop over Events that is under way ends with ErrClosed. Close may be
// called again, and does nothing after the end.
func (c *CodeStream) Close() error {
	c.cancel(ErrClosed)
	c.abandon()
	return nil
}
