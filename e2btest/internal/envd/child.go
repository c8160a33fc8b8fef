package envd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
)

const (
	pipeChunk     = 32 << 10 // the most that one read of stdout or stderr takes
	terminalChunk = 16 << 10
)

// The wrappers start every command through a shell, as the real daemon does. That
// is why a missing command is an exit code and not an error. The one with nice
// also says it in the words of the real one; the priority stays as it is.
const (
	wrapper     = `exec "${@}"`
	niceTool    = "/usr/bin/nice"
	niceWrapper = `exec ` + niceTool + ` -n 0 "${@}"`
)

// A child is a program that is a process.
type child struct {
	cmd         *exec.Cmd
	start, wait func(*exec.Cmd) error
	out         *fanout
	terminal    bool

	input   *os.File      // write end of stdin, or terminal; nil: there is none
	outputs []*os.File    // what is read: stdout and stderr, or terminal
	eof     chan struct{} // closed when all outputs are read to their end

	mu     sync.Mutex
	cut    chan struct{} // closed when the end is not to wait for eof
	isCut  bool
	reaped bool // the pid may be someone else's
}

// startChild starts a process for c.
func (s *Server) startChild(c *command, u *User, dir string) error {
	config := c.req.GetProcess()
	script := wrapper
	if _, err := os.Stat(niceTool); err == nil {
		script = niceWrapper
	}
	argv := append([]string{"/bin/sh", "-c", script, "--", config.GetCmd()}, config.GetArgs()...)
	p := &child{
		cmd:   &exec.Cmd{Path: argv[0], Args: argv, Dir: dir, Env: s.environment(u, config.GetEnvs())},
		start: s.cfg.Start, wait: s.cfg.Wait,
		out: c.out, terminal: c.terminal,
		eof: make(chan struct{}),
		cut: make(chan struct{}),
	}
	prepare(p.cmd, u, p.terminal)
	name := strings.Join(argv[4:], " ")
	if p.terminal {
		size := terminalSize(c.req.GetPty())
		if err := p.startTerminal(size); err != nil {
			return fmt.Errorf("error starting pty with command '%s' in dir '%s' with '%d' cols and '%d' rows: %w",
				name, dir, size.Cols, size.Rows, err)
		}
	} else if err := p.startPipes(wantsInput(c.req)); err != nil {
		return fmt.Errorf("error starting process '%s': %w", name, err)
	}
	c.program, c.pid = p, uint32(p.cmd.Process.Pid)
	if p.input != nil {
		c.input = childInput{p.input}
	}
	return nil
}

func (p *child) startTerminal(size pty.Winsize) error {
	master, tty, err := openTerminal(size)
	if err != nil {
		return err
	}
	defer tty.Close()
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = tty, tty, tty
	if err := p.start(p.cmd); err != nil {
		master.Close()
		return err
	}
	p.input, p.outputs = master, []*os.File{master}
	return nil
}

func (p *child) startPipes(withInput bool) (err error) {
	var theirs, ours []*os.File
	defer func() {
		closeAll(theirs)
		if err != nil {
			closeAll(ours)
		}
	}()
	stdout, theirOut, err := os.Pipe()
	if err != nil {
		return err
	}
	ours, theirs = append(ours, stdout), append(theirs, theirOut)
	stderr, theirErr, err := os.Pipe()
	if err != nil {
		return err
	}
	ours, theirs = append(ours, stderr), append(theirs, theirErr)
	p.cmd.Stdout, p.cmd.Stderr = theirOut, theirErr
	p.outputs = []*os.File{stdout, stderr}
	if withInput {
		theirIn, stdin, err := os.Pipe()
		if err != nil {
			return err
		}
		ours, theirs = append(ours, stdin), append(theirs, theirIn)
		p.cmd.Stdin, p.input = theirIn, stdin
	}
	return p.start(p.cmd)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

func (p *child) run() *process.ProcessEvent {
	var pumps sync.WaitGroup
	if p.terminal {
		pumps.Go(func() { p.pump(p.outputs[0], terminalChunk, terminalOutput) })
	} else {
		pumps.Go(func() { p.pump(p.outputs[0], pipeChunk, stdoutOutput) })
		pumps.Go(func() { p.pump(p.outputs[1], pipeChunk, stderrOutput) })
	}
	go func() {
		pumps.Wait()
		close(p.eof)
	}()

	// A command is not collected before the end of its output, which a child of it
	// may hold open: until then the pid means this command.
	select {
	case <-p.eof:
	case <-p.cut:
	}
	err := p.wait(p.cmd)
	p.mu.Lock()
	p.reaped = true
	p.mu.Unlock()

	// After a cut there may be output that nobody will see.
	close(p.out.over)
	closeAll(p.outputs)
	if p.input != nil {
		p.input.Close()
	}
	<-p.eof
	return endEvent(p.cmd.ProcessState, err)
}

// pump publishes what r has until it ends; a closed terminal ends in an error.
func (p *child) pump(r *os.File, size int, event func([]byte) *process.ProcessEvent_DataEvent) {
	buf := make([]byte, size)
	for {
		n, err := r.Read(buf)
		if n > 0 && p.out.heard() {
			data := event(bytes.Clone(buf[:n]))
			p.out.publish(&process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: data}})
		}
		if err != nil {
			return
		}
	}
}

// endEvent says how a command ended. A nil state means that err kept it from
// being collected.
func endEvent(state *os.ProcessState, err error) *process.ProcessEvent {
	end := &process.ProcessEvent_EndEvent{ExitCode: -1}
	if state != nil {
		end.ExitCode = int32(state.ExitCode())
		end.Exited = state.Exited()
		end.Status = state.String()
	}
	if err != nil {
		end.Error = new(err.Error())
	}
	return &process.ProcessEvent{Event: &process.ProcessEvent_End{End: end}}
}

func (p *child) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return errEnded
	}
	if err := p.cmd.Process.Signal(sig); errors.Is(err, os.ErrProcessDone) {
		return errEnded
	} else if err != nil {
		return err
	}
	// From now on the end does not wait for the end of the output.
	p.stopWaiting()
	return nil
}

// stopWaiting is called with mu held.
func (p *child) stopWaiting() {
	if !p.isCut {
		p.isCut = true
		close(p.cut)
	}
}

func (p *child) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		killGroup(p.group())
	}
	p.stopWaiting()
}

func (p *child) running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.reaped
}

func (p *child) resize(size pty.Winsize) error { return resizeTerminal(p.input, size) }

func (p *child) group() int { return p.cmd.Process.Pid }

// A childInput is the write end of a pipe, or a terminal.
type childInput struct{ f *os.File }

func (i childInput) write(ctx context.Context, data []byte) error {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = i.f.SetWriteDeadline(time.Unix(1, 0)) // fails only if closed, and then nothing waits
		close(interrupted)
	})
	_, err := i.f.Write(data)
	if !stop() {
		<-interrupted
		_ = i.f.SetWriteDeadline(time.Time{})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return ctx.Err()
		}
	}
	return err
}

func (i childInput) close() error { return i.f.Close() }
