package e2b

import (
	"context"
	"errors"
	"io"
	"maps"

	"github.com/seed-09a7379d/e2b-go/internal/envd"
)

// PTY starts terminals in a sandbox. It is safe for concurrent use.
//
// See https://e2b.dev/docs/sandbox/pty.
type PTY struct{ s *Sandbox }

// TerminalOptions describes a terminal. The zero value is a login shell of the
// default user on 80 columns and 24 rows.
type TerminalOptions struct {
	Cols, Rows int               // 0 means 80 and 24; at most 65535
	Cmd        string            // "" means the shell itself: /bin/bash -i -l
	Dir        string            // "": the user's home
	User       string            // "": the template's default user
	Env        map[string]string // besides TERM=xterm-256color, LANG=C.UTF-8 and LC_ALL=C.UTF-8, which it can replace
	Tag        string            // shown by Commands.List; "" means one of the SDK's own
}

// A Terminal is a shell, or another program, on a terminal in a sandbox. Reading
// and writing are for one goroutine each; everything else is safe for concurrent
// use.
type Terminal struct {
	p   *Process
	out *io.PipeReader
}

var (
	opTerminal = operation{name: "start terminal", notFound: ErrProcessNotFound}
	opResize   = operation{name: "resize terminal", notFound: ErrProcessNotFound}
)

// Start starts a terminal and returns when it runs. ctx bounds that alone: the
// Terminal goes on until its end or its Close, and the program until its end or
// its kill.
//
// What the terminal prints must be read: while nobody reads, its programs stop
// once some megabytes wait.
//
// Errors: ErrInvalidArgument, ErrSandboxNotRunning, ErrUnauthenticated (also an
// unknown User).
//
// See https://e2b.dev/docs/sandbox/pty.
func (t *PTY) Start(ctx context.Context, opts *TerminalOptions) (*Terminal, error) {
	o := TerminalOptions{}
	if opts != nil {
		o = *opts
	}
	if o.Cols == 0 {
		o.Cols = 80
	}
	if o.Rows == 0 {
		o.Rows = 24
	}
	if err := checkSize(opTerminal, o.Cols, o.Rows); err != nil {
		return nil, err
	}
	env := map[string]string{"TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
	maps.Copy(env, o.Env)
	args := []string{"-i", "-l"}
	shown := "bash"
	if o.Cmd != "" {
		args, shown = []string{"-l", "-c", o.Cmd}, o.Cmd
	}
	run := &RunOptions{Dir: o.Dir, User: o.User, Env: env, Tag: o.Tag}
	if err := run.check(opTerminal.name, shown); err != nil {
		return nil, err
	}
	term := t.newTerminal(run)
	h := t.s.state.Load()
	err := t.s.Commands.launch(ctx, term.p, h, &envd.Command{
		Path: "/bin/bash", Args: args, Env: env, Dir: o.Dir, User: h.user(o.User), Tag: o.Tag,
		Cols: uint32(o.Cols), Rows: uint32(o.Rows), //nolint:gosec // checked
	})
	if err != nil {
		return nil, err
	}
	return term, nil
}

// Attach returns a handle for a terminal that runs already. What is printed from
// now on can be read.
//
// Errors: ErrProcessNotFound, ErrSandboxNotRunning, ErrInvalidArgument.
//
// See https://e2b.dev/docs/sandbox/pty.
func (t *PTY) Attach(ctx context.Context, pid int) (*Terminal, error) {
	term := t.newTerminal(&RunOptions{})
	if err := term.p.attach(ctx, pid); err != nil {
		return nil, err
	}
	return term, nil
}

func (t *PTY) newTerminal(o *RunOptions) *Terminal {
	r, w := io.Pipe()
	run := *o
	run.Stdout = w
	term := &Terminal{p: t.s.newProcess(opTerminal, &run, false), out: r}
	term.p.hasStdin = true
	term.p.after = func() {
		_, exit := errors.AsType[*ExitError](term.p.err)
		if term.p.err == nil || exit {
			_ = w.Close() // an end is an end for a reader, whatever the status
			return
		}
		_ = w.CloseWithError(term.p.err)
	}
	return term
}

func checkSize(op operation, cols, rows int) error {
	if cols < 1 || cols > 65535 || rows < 1 || rows > 65535 {
		return invalid(op.name, "size", "must be 1 to 65535 columns and rows: %d, %d", cols, rows)
	}
	return nil
}

// PID returns the process ID in the sandbox, by which Attach finds the terminal.
func (t *Terminal) PID() int { return t.p.PID() }

// Read reads what the terminal prints: bytes as they come, with line ends \r\n,
// and cut anywhere, also within a character. It returns io.EOF after the end.
//
// Errors: ErrClosed, ErrSandboxNotRunning, ErrStreamInterrupted.
func (t *Terminal) Read(b []byte) (int, error) {
	n, err := t.out.Read(b)
	if errors.Is(err, io.ErrClosedPipe) {
		err = &opError{op: "read terminal", sandboxID: t.p.s.id, errs: []error{ErrClosed}}
	}
	return n, err
}

// Write types b on the terminal: "\r" is Enter, "\x03" is Ctrl+C, "\x04" is
// Ctrl+D. It blocks while the terminal takes no more, until Close.
//
// Errors: ErrClosed, ErrProcessNotFound, ErrSandboxNotRunning.
func (t *Terminal) Write(b []byte) (int, error) {
	if err := t.p.canFeed(); err != nil {
		return 0, err
	}
	return t.p.send(b, t.p.s.state.Load().envd.SendTerminal)
}

// Resize changes the size of the terminal; its programs get SIGWINCH.
//
// Errors: ErrInvalidArgument, ErrProcessNotFound, ErrSandboxNotRunning.
//
// See https://e2b.dev/docs/sandbox/pty.
func (t *Terminal) Resize(ctx context.Context, cols, rows int) error {
	if err := checkSize(opResize, cols, rows); err != nil {
		return err
	}
	s := t.p.s
	bound, release := s.bound(ctx, s.client.openLimit(ctx))
	defer release()
	err := s.state.Load().envd.Resize(bound, uint32(t.p.pid), uint32(cols), uint32(rows)) //nolint:gosec // checked
	return s.dataError(ctx, opResize, ended(ctx, bound, err), false)
}

// Kill sends SIGKILL to the shell; what it runs gets SIGHUP. It returns false
// when the shell had ended.
//
// Errors: as Process.Kill.
//
// See https://e2b.dev/docs/sandbox/pty.
func (t *Terminal) Kill(ctx context.Context) (bool, error) { return t.p.Kill(ctx) }

// Wait waits for the shell's end and returns its exit code, -1 with an
// *ExitError when a signal ended it. The output must be read meanwhile. ctx bounds
// the wait alone.
//
// Errors: *ExitError, ErrClosed, ErrSandboxNotRunning, ErrStreamInterrupted.
//
// See https://e2b.dev/docs/sandbox/pty.
func (t *Terminal) Wait(ctx context.Context) (int, error) {
	res, err := t.p.Wait(ctx)
	if res == nil {
		return -1, err
	}
	if exit, ok := errors.AsType[*ExitError](err); ok && exit.Signal == "" && !res.Incomplete {
		err = nil
	}
	return res.ExitCode, err
}

// Close disconnects from the terminal, which lives on; PTY.Attach finds it again
// by its PID. A Read, Write or Wait under way ends with ErrClosed. Close may be
// called again.
func (t *Terminal) Close() error {
	_ = t.p.Close()
	// A reader that nobody waits for any more must not hold up the stream.
	return t.out.CloseWithError(ErrClosed)
}
