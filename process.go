package e2b

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/seed-09a7379d/e2b-go/internal/envd"
)

// A Process is a command that runs in a sandbox. It reads the command's output
// in a goroutine of its own until the command ends or Close is called. It is safe
// for concurrent use.
type Process struct {
	s      *Sandbox
	op     operation
	pid    int
	ctx    context.Context // ends with Close, or with a pause or kill by the handle's owner
	cancel context.CancelCauseFunc
	stop   func() bool // unhooks ctx from the handle's gate

	stdout, stderr output
	tail           []byte // of the standard error
	lost           error  // the first stream broke before its start event
	hasStdin       bool
	cutOff         atomic.Bool // the stream broke, and the sandbox may not run
	after          func()      // nil, or what to do at the end, before done

	done chan struct{} // closed when res and err are final
	res  *Result
	err  error
}

// output is where one stream of a command goes.
type output struct {
	w         io.Writer
	collect   bool
	max       int
	buf       []byte
	truncated bool
}

func (o *output) write(p []byte) error {
	if o.w != nil {
		n, err := o.w.Write(p)
		if err == nil && n < len(p) {
			err = io.ErrShortWrite
		}
		return err
	}
	if !o.collect {
		return nil
	}
	if room := o.max - len(o.buf); len(p) > room {
		p, o.truncated = p[:room], true
	}
	if len(p) > cap(o.buf)-len(o.buf) {
		// append would grow large slices by a quarter, and copy five times.
		o.buf = slices.Grow(o.buf, max(len(p), min(len(o.buf), o.max-len(o.buf))))
	}
	o.buf = append(o.buf, p...)
	return nil
}

// maxTail is how much of the standard error an ExitError shows.
const maxTail = 4 << 10

func (s *Sandbox) newProcess(op operation, o *RunOptions, collect bool) *Process {
	limit := o.MaxOutput
	if limit == 0 {
		limit = DefaultMaxOutput
	}
	limit = min(limit, math.MaxInt)
	p := &Process{
		s: s, op: op, done: make(chan struct{}),
		stdout: output{w: o.Stdout, collect: collect, max: int(limit)},
		stderr: output{w: o.Stderr, collect: collect, max: int(limit)},
	}
	gate := s.gate.Load()
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	p.stop = context.AfterFunc(gate.ctx, func() { p.cancel(context.Cause(gate.ctx)) })
	return p
}

// abandon lets go of a Process that never began.
func (p *Process) abandon() {
	p.stop()
	p.cancel(nil)
}

// bound returns the caller's ctx, ended also by the end of p.
func (p *Process) bound(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(p.ctx, func() { cancel(context.Cause(p.ctx)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// sink takes the output of the command. A terminal has one output for all.
func (p *Process) sink(from envd.Pipe, b []byte) error {
	if from != envd.Stderr {
		return p.stdout.write(b)
	}
	if len(b) >= maxTail {
		p.tail = append(p.tail[:0], b[len(b)-maxTail:]...)
	} else {
		if over := len(p.tail) + len(b) - maxTail; over > 0 {
			p.tail = p.tail[:copy(p.tail, p.tail[over:])]
		}
		p.tail = append(p.tail, b...)
	}
	return p.stderr.write(b)
}

func (p *Process) begin(stream *envd.Stream) {
	p.pid = int(stream.PID)
	go func() {
		defer p.stop()
		defer close(p.done)
		p.finish(p.follow(stream))
		if p.after != nil {
			p.after()
		}
	}()
}

// follow reads a stream to its end.
func (p *Process) follow(stream *envd.Stream) (envd.End, error) {
	for {
		kind, err := stream.Next()
		switch {
		case errors.Is(err, io.EOF):
			stream.Close(nil)
			return envd.End{}, envd.ErrNoEnd
		case err != nil:
			stream.Close(nil)
			return envd.End{}, err
		case kind == envd.Ended:
			end := stream.End()
			stream.Drain()
			return end, nil
		}
	}
}

// finish turns the end of the stream into the result. When the stream broke and
// the sandbox still runs, it attaches to the command once more to learn its end;
// it never starts it again.
func (p *Process) finish(end envd.End, err error) {
	broken := p.lost
	if err != nil && broken == nil && p.ctx.Err() == nil && !p.final(err) {
		p.cutOff.Store(true)
		var running bool
		broken, running = p.s.interrupted(p.ctx, p.op, err)
		p.cutOff.Store(!running)
		if running {
			if stream, aerr := p.s.state.Load().envd.Attach(p.ctx, p.ctx, p.s.client.timeout, uint32(p.pid), p.sink); aerr == nil { //nolint:gosec // from a uint32
				end, err = p.follow(stream)
			}
		}
	}
	p.res = &Result{
		PID: p.pid, ExitCode: -1, Incomplete: broken != nil,
		Stdout: p.stdout.buf, StdoutTruncated: p.stdout.truncated,
		Stderr: p.stderr.buf, StderrTruncated: p.stderr.truncated,
	}
	_, own := errors.AsType[*envd.SinkError](err)
	switch {
	case err != nil && p.ctx.Err() != nil && !p.final(err):
		// Close, or a pause or kill of the handle's owner.
		p.err = p.s.dataError(context.Background(), p.op, context.Cause(p.ctx), true)
	case err != nil && broken != nil && !own:
		p.err = broken
	case err != nil:
		p.err = p.s.dataError(context.Background(), p.op, err, true)
	default:
		p.res.ExitCode = int(end.ExitCode)
		var exit error
		if !end.Exited {
			p.res.Signal = strings.TrimPrefix(end.Status, "signal: ")
		}
		if end.ExitCode != 0 || !end.Exited {
			exit = &ExitError{PID: p.pid, ExitCode: p.res.ExitCode, Signal: p.res.Signal, Reason: end.Status, Stderr: p.tail}
		}
		switch {
		case broken == nil:
			p.err = exit
		case exit == nil:
			p.err = broken
		default:
			p.err = fmt.Errorf("%w; %w", broken, exit)
		}
	}
}

// final reports an error that says what became of the command, or that it was
// the caller's writer that failed. Any other, also one that envd ends the stream
// with, leaves that open.
func (p *Process) final(err error) bool {
	if _, own := errors.AsType[*envd.SinkError](err); own {
		return true
	}
	return p.op.timeout && isWire(err) && connect.CodeOf(err) == connect.CodeDeadlineExceeded
}

// PID returns the process ID in the sandbox.
func (p *Process) PID() int { return p.pid }

// Wait waits for the command's end. ctx bounds the wait alone: Wait can give up
// and be called again, and after the end it gives the same answer each time.
//
// Errors: *ExitError, ErrCommandTimeout, ErrSandboxNotRunning,
// ErrStreamInterrupted, ErrClosed.
//
// See https://e2b.dev/docs/commands/background.
func (p *Process) Wait(ctx context.Context) (*Result, error) {
	select {
	case <-p.done:
		return p.result()
	default:
	}
	select {
	case <-p.done:
		return p.result()
	case <-p.ctx.Done():
		// Closed, or cut by a pause or kill. A writer that does not return may keep
		// the reader from its end.
		cause := p.s.dataError(context.Background(), p.op, context.Cause(p.ctx), true)
		if res, err, ok := p.settled(ctx); ok {
			return res, err
		}
		return &Result{PID: p.pid, ExitCode: -1}, cause
	case <-ctx.Done():
		return nil, &opError{op: "wait for command", sandboxID: p.s.id, errs: []error{ctx.Err()}}
	}
}

// result is for after done.
func (p *Process) result() (*Result, error) {
	res := *p.res
	return &res, p.err
}

// settle disconnects from the command and returns what it left until now. A
// writer of the caller's that does not return keeps even that from being known.
func (p *Process) settle() *Result {
	_ = p.Close()
	if res, _, ok := p.settled(context.Background()); ok {
		return res
	}
	return &Result{PID: p.pid, ExitCode: -1}
}

// settled waits a moment for the reader, whose stream has been ended.
func (p *Process) settled(ctx context.Context) (*Result, error, bool) {
	t := time.NewTimer(killWait)
	defer t.Stop()
	select {
	case <-p.done:
		res, err := p.result()
		return res, err, true
	case <-t.C:
	case <-ctx.Done():
	}
	return nil, nil, false
}

// Signal sends a signal to the command, not to its children. Once its end is known
// nothing is sent, since its PID may be another's by then.
//
// Errors: ErrProcessNotFound, ErrSandboxNotRunning, ErrInvalidArgument.
//
// See https://e2b.dev/docs/commands.
func (p *Process) Signal(ctx context.Context, sig Signal) error {
	if p.over() {
		return &opError{op: opSignal.name, sandboxID: p.s.id, detail: "the command has ended", errs: []error{ErrProcessNotFound}}
	}
	return p.s.Commands.Signal(ctx, p.pid, sig)
}

// Kill sends SIGKILL to the command, not to its children. It returns false when
// the command had ended. Wait then tells the end.
//
// Errors: as Signal, except ErrProcessNotFound.
//
// See https://e2b.dev/docs/commands.
func (p *Process) Kill(ctx context.Context) (bool, error) {
	if p.over() {
		return false, nil
	}
	return p.s.Commands.Kill(ctx, p.pid)
}

// over reports whether the end of the command is known, and not just that of the
// stream.
func (p *Process) over() bool {
	select {
	case <-p.done:
		return p.res.ExitCode >= 0 || p.res.Signal != ""
	default:
		return false
	}
}

// killQuietly ends the command after its caller's ctx has.
func (p *Process) killQuietly(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killWait)
	defer cancel()
	if p.cutOff.Load() {
		// The sandbox may be paused, and a signal would wake it.
		if state, known := p.s.probe(ctx); !known || state != StateRunning {
			return
		}
	}
	_, _ = p.Kill(ctx)
}

// Close disconnects from the command, which lives on; Commands.Attach finds it
// again by its PID. A Wait that is under way ends with ErrClosed, also while a
// writer of the caller's is at work, which may then still be in use. Close may be
// called again, and does nothing after the command's end.
func (p *Process) Close() error {
	p.cancel(ErrClosed)
	return nil
}

// Write writes to the command's standard input, which RunOptions.KeepStdin has
// left open, and returns when all is in the pipe. While the command does not
// read, Write blocks, until Close.
//
// Errors: ErrClosed (also for a command whose input is closed, or was never
// open), ErrProcessNotFound, ErrSandboxNotRunning.
func (p *Process) Write(b []byte) (int, error) {
	if err := p.canFeed(); err != nil {
		return 0, err
	}
	return p.send(b, p.s.state.Load().envd.SendStdin)
}

// CloseStdin ends the command's standard input: it reads EOF. It may be called
// again.
//
// Errors: ErrNotSupported (envd before 0.5.2), else as Write.
func (p *Process) CloseStdin() error {
	if err := p.canFeed(); err != nil {
		return err
	}
	h := p.s.state.Load()
	if !atLeast(h.version, 0, 5, 2) {
		return tooOld(opStdin, p.s.id, h.version, "closing standard input", "0.5.2")
	}
	return p.unsent(h.envd.CloseStdin(p.ctx, uint32(p.pid))) //nolint:gosec // from a uint32
}

// canFeed refuses input that cannot arrive.
func (p *Process) canFeed() error {
	var why string
	switch {
	case !p.hasStdin:
		why = "its standard input was not kept open: see RunOptions.KeepStdin"
	case p.ctx.Err() != nil:
		why = "the handle was closed"
	default:
		select {
		case <-p.done:
			why = "the command has ended"
		default:
			return nil
		}
	}
	return &opError{op: opStdin.name, sandboxID: p.s.id, detail: why, errs: []error{ErrClosed}}
}

// maxInput is how much of what is written goes into one message.
const maxInput = 64 << 10

// send writes b in parts of one message each.
func (p *Process) send(b []byte, to func(context.Context, uint32, []byte) error) (int, error) {
	n := 0
	for len(b) > 0 {
		part := b[:min(len(b), maxInput)]
		if err := to(p.ctx, uint32(p.pid), part); err != nil { //nolint:gosec // from a uint32
			return n, p.unsent(err)
		}
		n += len(part)
		b = b[len(part):]
	}
	return n, nil
}

// unsent is the error for input that did not arrive.
func (p *Process) unsent(err error) error {
	if isWire(err) && connect.CodeOf(err) == connect.CodeInternal {
		// "stdin not enabled or closed", or the pipe has no reader any more.
		return &opError{op: opStdin.name, sandboxID: p.s.id, detail: "the command takes no input", errs: []error{ErrClosed}}
	}
	ctx := context.Background()
	return p.s.dataError(ctx, opStdin, ended(ctx, p.ctx, err), false)
}

// A feeder copies a reader to the standard input of a command.
type feeder struct {
	p    *Process
	r    io.Reader
	done chan error // holds the one result

	turn chan struct{} // of one place: taken during a request, and for good at the end
}

func (p *Process) newFeeder(r io.Reader) *feeder {
	return &feeder{p: p, r: r, done: make(chan error, 1), turn: make(chan struct{}, 1)}
}

// run copies r to the command's standard input and closes it.
func (f *feeder) run(ctx context.Context) {
	h := f.p.s.state.Load()
	pid := uint32(f.p.pid) //nolint:gosec // from a uint32
	buf := make([]byte, maxInput)
	for {
		n, err := f.r.Read(buf)
		if n > 0 {
			if more, err := f.request(ctx, func() error { return h.envd.SendStdin(ctx, pid, buf[:n]) }); !more || err != nil {
				f.done <- err
				return
			}
		}
		switch {
		case err == io.EOF: //nolint:errorlint // as io.Reader has it: a wrapped one is an error
			_, err = f.request(ctx, func() error { return h.envd.CloseStdin(ctx, pid) })
			f.done <- err
			return
		case err != nil:
			f.done <- &opError{op: f.p.op.name, sandboxID: f.p.s.id, detail: "stdin", errs: []error{err}}
			return
		}
	}
}

// request reports whether input is still wanted.
func (f *feeder) request(ctx context.Context, send func() error) (bool, error) {
	select {
	case f.turn <- struct{}{}:
	case <-ctx.Done():
		return false, nil
	}
	err := send()
	<-f.turn
	return err == nil, f.p.unfed(ctx, err)
}

// stop ends the feeding, for a command that has ended or is given up. A request
// under way may go on for a moment: the server answers it now that the command has
// ended, and cancelling one just as its answer comes makes net/http break the
// connection under the next request.
func (f *feeder) stop(cancel func()) {
	defer cancel()
	t := time.NewTimer(killWait)
	defer t.Stop()
	select {
	case f.turn <- struct{}{}:
	case <-t.C:
	}
}

// unfed decides about input that did not arrive. Of a command that has ended or
// closed its input, how it ended says more; one that is merely out of reach would
// wait for its input for ever.
func (p *Process) unfed(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return nil //nolint:nilerr // the command has ended
	}
	if isWire(err) {
		switch connect.CodeOf(err) {
		case connect.CodeNotFound, connect.CodeInternal, connect.CodeUnknown:
			return nil // it has ended, or closed its input
		}
	}
	return p.s.dataError(ctx, opStdin, err, false)
}
