package envd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"

	"github.com/creack/pty"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
)

// firstPID is the pid of the first script.
const firstPID = 100

// stdinBuffer is how much a script's input takes before it is read, as a pipe of
// Linux does.
const stdinBuffer = 64 << 10

var errBrokenPipe = errors.New("broken pipe")

// A Script is what runs for a command; it returns the exit code. Its context ends
// with node.ErrTerminated or node.ErrKilled as the cause, and it must return soon then.
type Script func(ctx context.Context, inv *Invocation) int

// An Invocation is a command as a Script gets it.
type Invocation struct {
	PID  int
	Args []string // with the command itself
	Env  []string // NAME=value
	Dir  string
	User User
	Tag  string

	Stdin          io.Reader
	Stdout, Stderr io.Writer // the same one for a terminal

	Terminal bool
	Size     func() (cols, rows int) // of the terminal
	Resized  <-chan struct{}         // has an item after the size has changed
}

// A script is a program that is a Script.
type script struct {
	srv     *Server
	ctx     context.Context //nolint:containedctx // that of the function
	inv     *Invocation
	out     *fanout
	stop    context.CancelCauseFunc
	stdin   *scriptInput
	resized chan struct{}

	returned chan int      // the exit code; closed without one when the goroutine ended by itself
	killed   chan struct{} // closed by SIGKILL

	mu   sync.Mutex
	size pty.Winsize
	over bool // it returned, or was killed
}

// startScript starts a Script for c.
func (s *Server) startScript(c *command, u *User, dir string) {
	config := c.req.GetProcess()
	ctx, cancel := context.WithCancelCause(context.Background())
	p := &script{
		srv: s, ctx: ctx, out: c.out, stop: cancel, resized: make(chan struct{}, 1),
		stdin:    newScriptInput(ctx),
		returned: make(chan int, 1), killed: make(chan struct{}),
		size: terminalSize(c.req.GetPty()),
	}
	s.mu.Lock()
	s.procs.pids++
	c.pid = firstPID - 1 + s.procs.pids
	s.mu.Unlock()
	c.program = p
	if c.terminal || wantsInput(c.req) {
		c.input = p.stdin
	} else {
		_ = p.stdin.close() // has no error
	}
	p.inv = &Invocation{
		PID: int(c.pid), Args: append([]string{config.GetCmd()}, config.GetArgs()...),
		Env: s.environment(u, config.GetEnvs()), Dir: dir, User: *u, Tag: c.req.GetTag(),
		Stdin: p.stdin, Stdout: &scriptOutput{p, stdoutOutput}, Stderr: &scriptOutput{p, stderrOutput},
		Terminal: c.terminal, Size: p.terminalSize, Resized: p.resized,
	}
	if c.terminal {
		p.inv.Stdout = &scriptOutput{p, terminalOutput}
		p.inv.Stderr = p.inv.Stdout
	}
}

func (p *script) run() *process.ProcessEvent {
	// After a kill it goes on until it notices.
	p.srv.running.Go(func() {
		defer p.stop(nil)
		defer close(p.returned)
		p.returned <- p.srv.cfg.Script(p.ctx, p.inv)
	})
	code, ok := 0, true
	select {
	case code, ok = <-p.returned:
	case <-p.killed:
	}
	if !ok {
		code = 1
		_, _ = io.WriteString(p.inv.Stderr, "the function ended its goroutine, as t.FailNow does\n") // for whoever is there
	}
	end := &process.ProcessEvent_EndEvent{}
	select {
	case <-p.killed:
		end.ExitCode, end.Status = -1, "signal: killed"
	default:
		code &= 0xff
		end.ExitCode, end.Exited, end.Status = int32(code), true, fmt.Sprintf("exit status %d", code)
	}
	if end.GetExitCode() != 0 {
		end.Error = new(end.GetStatus())
	}
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	close(p.out.over)
	p.stdin.end()
	return &process.ProcessEvent{Event: &process.ProcessEvent_End{End: end}}
}

func (p *script) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.over:
		return errEnded
	case sig != syscall.SIGKILL:
		p.stop(node.ErrTerminated)
	default:
		p.over = true
		close(p.killed) // first, so that what it returns then does not count
		p.stop(node.ErrKilled)
	}
	return nil
}

func (p *script) kill() { _ = p.signal(syscall.SIGKILL) } // it has ended: the better

func (p *script) running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.over
}

func (p *script) resize(size pty.Winsize) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size = size
	fill(p.resized)
	return nil
}

func (p *script) terminalSize() (cols, rows int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(p.size.Cols), int(p.size.Rows)
}

func (p *script) group() int { return 0 }

// A scriptOutput is what a Script writes to.
type scriptOutput struct {
	script *script
	event  func([]byte) *process.ProcessEvent_DataEvent
}

func (w *scriptOutput) Write(b []byte) (int, error) {
	for done := 0; done < len(b); {
		if !w.script.running() {
			return done, errEnded
		}
		part := b[done:min(len(b), done+pipeChunk)]
		if w.script.out.heard() {
			data := w.event(bytes.Clone(part))
			w.script.out.publish(&process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: data}})
		}
		done += len(part)
	}
	return len(b), nil
}

// A scriptInput is a pipe to a Script.
type scriptInput struct {
	ctx      context.Context //nolint:containedctx // of the script, which reads until it ends
	readable chan struct{}   // filled when a read has something to return
	writable chan struct{}   // filled when a write can go on

	mu     sync.Mutex
	data   []byte
	closed bool // nothing more is written
	ended  bool // nothing more is read
}

func newScriptInput(ctx context.Context) *scriptInput {
	i := &scriptInput{ctx: ctx, readable: make(chan struct{}, 1), writable: make(chan struct{}, 1)}
	fill(i.writable)
	return i
}

// change does op and wakes those who wait for what has become possible.
func (i *scriptInput) change(op func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	op()
	if len(i.data) > 0 || i.closed || i.ended {
		fill(i.readable)
	}
	if len(i.data) < stdinBuffer || i.ended {
		fill(i.writable)
	}
}

func (i *scriptInput) write(ctx context.Context, data []byte) error {
	for len(data) > 0 {
		select {
		case <-i.writable:
		case <-ctx.Done():
			return ctx.Err()
		}
		var err error
		i.change(func() {
			if i.ended {
				err = errBrokenPipe
				return
			}
			room := min(stdinBuffer-len(i.data), len(data))
			i.data, data = append(i.data, data[:room]...), data[room:]
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (i *scriptInput) close() error {
	i.change(func() { i.closed = true })
	return nil
}

// end is close for the side that reads.
func (i *scriptInput) end() { i.change(func() { i.ended = true }) }

// Read implements io.Reader for a Script.
func (i *scriptInput) Read(b []byte) (n int, err error) {
	for n == 0 && err == nil && len(b) > 0 {
		select {
		case <-i.readable:
		case <-i.ctx.Done():
		}
		i.change(func() {
			switch {
			case i.ended:
				err = errEnded
			case len(i.data) > 0:
				n = copy(b, i.data)
				i.data = i.data[n:]
			case i.closed:
				err = io.EOF
			default:
				err = context.Cause(i.ctx) // nil: there was something for another reader
			}
		})
	}
	return n, err
}
