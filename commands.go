package e2b

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-09a7379d/e2b-go/internal/envd"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// DefaultMaxOutput is how much of each stream Run collects.
const DefaultMaxOutput = 64 << 20

// Commands runs shell commands in a sandbox. It is safe for concurrent use.
//
// See https://e2b.dev/docs/commands.
type Commands struct{ s *Sandbox }

// RunOptions says how to run a command. The zero value runs it in the home of
// the default user, without input and without a time limit.
type RunOptions struct {
	Dir  string            // "": the user's home; a relative path is relative to it
	User string            // "": the template's default user
	Env  map[string]string // besides the sandbox's own. A login shell sets PATH anew
	// Tag is shown by List. "" means one of the SDK's own, by which it finds a
	// command again whose start was cut off; with another one it does not look, as
	// several commands may have it.
	Tag string

	// Timeout is how long the command may live in the sandbox, in milliseconds,
	// rounded up; envd then kills it, though not its children, and drops the output
	// that is still under way. 0 means no limit. The limit holds also when nobody
	// is connected any more.
	Timeout time.Duration

	// KeepStdin leaves the standard input open for Process.Write, until
	// Process.CloseStdin. For Start only.
	KeepStdin bool

	// Stdin is copied to the command, and its standard input then closed. nil
	// means no input. For Run only. A Read of it that blocks does not keep Run from
	// returning, but its goroutine stays until the Read returns.
	Stdin io.Reader

	// Stdout and Stderr get the output as it comes, in the order of arrival, from
	// one goroutine. nil means that Run collects it and Start discards it. A writer
	// that does not return holds up the command; its error ends the stream.
	Stdout, Stderr io.Writer

	// MaxOutput is how many bytes Run collects of each stream; the rest is read
	// and dropped, and Result says so. 0 means 64 MiB.
	MaxOutput int64
}

// Result is what a command left.
type Result struct {
	PID      int    // 0: not known
	ExitCode int    // -1: a signal ended it, or the end is not known
	Signal   string // the signal's name, as "killed"
	// Stdout and Stderr are what Run collected; nil where a writer got it.
	Stdout, Stderr                   []byte
	StdoutTruncated, StderrTruncated bool
	// Incomplete says that the connection broke, so that output may be missing. The end
	// may have become known all the same: then ExitCode or Signal tells it.
	Incomplete bool
}

var (
	opRun    = operation{name: "run command", notFound: ErrProcessNotFound, timeout: true}
	opStart  = operation{name: "start command", notFound: ErrProcessNotFound, timeout: true}
	opAttach = operation{name: "attach to command", notFound: ErrProcessNotFound}
	opSignal = operation{name: "signal command", notFound: ErrProcessNotFound}
	opProcs  = operation{name: "list commands"}
	opStdin  = operation{name: "feed stdin of command", notFound: ErrProcessNotFound}
)

// killWait is how long a call whose ctx has ended still tries to end what it
// started.
const killWait = time.Second

// Run runs a command with /bin/bash -l -c and waits for its end. A command that
// fails is an *ExitError. The Result is there with every error once the command
// has started.
//
// ctx bounds everything: when it ends, the command is killed with SIGKILL, though
// not the children that it started, for which Run takes up to two seconds more
// where the sandbox does not answer. What keeps the standard output open, as
// "server &" does, keeps Run waiting; redirect its output, or use Start.
//
// Errors: *ExitError, ErrCommandTimeout, ErrSandboxNotRunning,
// ErrStreamInterrupted, ErrInvalidArgument (also a Dir that does not exist),
// ErrUnauthenticated (also an unknown User), ErrForbidden, ErrRateLimited,
// ErrServiceBusy, ErrRequestTimeout (the start was not answered), ErrPortClosed
// (there is no envd), ErrNotSupported.
//
// See https://e2b.dev/docs/commands.
func (c *Commands) Run(ctx context.Context, cmd string, opts *RunOptions) (*Result, error) {
	var o RunOptions
	if opts != nil {
		o = *opts
	}
	if o.KeepStdin {
		return nil, invalid(opRun.name, "KeepStdin", "is for Start")
	}
	if err := o.check(opRun.name, cmd); err != nil {
		return nil, err
	}
	return c.run(ctx, []string{"-l", "-c", cmd}, &o)
}

// run runs a shell with these arguments.
func (c *Commands) run(ctx context.Context, args []string, o *RunOptions) (*Result, error) {
	p, err := c.start(ctx, opRun, args, o, true)
	if err != nil {
		return nil, err
	}
	var stdin chan error // nil without one
	if o.Stdin != nil {
		feed, cancel := context.WithCancel(p.ctx)
		f := p.newFeeder(o.Stdin)
		stdin = f.done
		defer f.stop(cancel)
		go f.run(feed)
	}
	for {
		select {
		case <-p.done:
			if _, own := errors.AsType[*envd.SinkError](p.err); own {
				p.killQuietly(ctx)
			}
			return p.result()
		case err := <-stdin:
			if err == nil {
				continue
			}
			p.killQuietly(ctx)
			return p.settle(), err
		case <-ctx.Done():
			p.killQuietly(ctx)
			return p.settle(), &opError{op: opRun.name, sandboxID: c.s.id, errs: []error{ctx.Err()}}
		}
	}
}

// Start starts a command and returns when it runs. ctx bounds that alone: the
// Process goes on until its end or its Close, and the command until its end or
// its kill, also when the program that started it ends.
//
// Errors: as Run, except *ExitError.
//
// See https://e2b.dev/docs/commands/background.
func (c *Commands) Start(ctx context.Context, cmd string, opts *RunOptions) (*Process, error) {
	var o RunOptions
	if opts != nil {
		o = *opts
	}
	if o.Stdin != nil {
		return nil, invalid(opStart.name, "Stdin", "is for Run")
	}
	if err := o.check(opStart.name, cmd); err != nil {
		return nil, err
	}
	return c.start(ctx, opStart, []string{"-l", "-c", cmd}, &o, false)
}

// AttachOptions says where the output of a running command goes.
type AttachOptions struct {
	Stdout, Stderr io.Writer // as in RunOptions; nil: discarded
}

// Attach returns a handle for a command that runs already. Output is what comes
// from now on. An end is known for 30 s, on envd 0.6.12 and newer.
//
// Errors: ErrProcessNotFound, ErrSandboxNotRunning, ErrInvalidArgument,
// ErrRequestTimeout, ErrUnauthenticated.
//
// See https://e2b.dev/docs/commands/background.
func (c *Commands) Attach(ctx context.Context, pid int, opts *AttachOptions) (*Process, error) {
	var o AttachOptions
	if opts != nil {
		o = *opts
	}
	p := c.s.newProcess(opAttach, &RunOptions{Stdout: o.Stdout, Stderr: o.Stderr}, false)
	p.hasStdin = true // as far as is known here
	if err := p.attach(ctx, pid); err != nil {
		return nil, err
	}
	return p, nil
}

// attach makes p the handle for a running process, and lets go of p when that
// fails.
func (p *Process) attach(ctx context.Context, pid int) error {
	if err := checkPID(p.op, pid); err != nil {
		p.abandon()
		return err
	}
	stream, err := p.s.state.Load().envd.Attach(ctx, p.ctx, p.s.client.openLimit(ctx), uint32(pid), p.sink) //nolint:gosec // checked
	if err != nil {
		err = ended(ctx, p.ctx, err)
		p.abandon()
		return p.s.dataError(ctx, p.op, err, false)
	}
	p.begin(stream)
	return nil
}

// ProcessInfo is a command that runs in a sandbox.
type ProcessInfo struct {
	PID  int
	Tag  string
	Cmd  string
	Args []string
	Env  map[string]string
	Dir  string
}

// List returns the commands that run in the sandbox, in no order: those that
// were started through envd, not their children.
//
// Errors: ErrSandboxNotRunning, ErrUnauthenticated, ErrRequestTimeout.
//
// See https://e2b.dev/docs/commands.
func (c *Commands) List(ctx context.Context) ([]ProcessInfo, error) {
	bound, release := c.s.bound(ctx, c.s.client.openLimit(ctx))
	defer release()
	list, err := c.s.state.Load().envd.List(bound)
	if err != nil {
		return nil, c.s.dataError(ctx, opProcs, ended(ctx, bound, err), false)
	}
	out := make([]ProcessInfo, len(list))
	for i, p := range list {
		cfg := p.GetConfig()
		out[i] = ProcessInfo{
			PID: int(p.GetPid()), Tag: p.GetTag(), Cmd: cfg.GetCmd(), Args: cfg.GetArgs(), Env: cfg.GetEnvs(), Dir: cfg.GetCwd(),
		}
	}
	return out, nil
}

// Signal is a signal that envd can send.
type Signal int

// The signals that envd sends. Any other can be sent by running kill.
const (
	SIGKILL Signal = 9
	SIGTERM Signal = 15
)

// Signal sends a signal to one process, not to its children. Output that is
// still under way may be lost then; running "kill -TERM pid" loses none.
//
// Errors: ErrProcessNotFound, ErrSandboxNotRunning, ErrInvalidArgument,
// ErrRequestTimeout, ErrUnauthenticated.
//
// See https://e2b.dev/docs/commands.
func (c *Commands) Signal(ctx context.Context, pid int, sig Signal) error {
	if err := checkPID(opSignal, pid); err != nil {
		return err
	}
	if sig != SIGKILL && sig != SIGTERM {
		return invalid(opSignal.name, "signal", "must be SIGKILL or SIGTERM: %d", int(sig))
	}
	bound, release := c.s.bound(ctx, c.s.client.openLimit(ctx))
	defer release()
	err := c.s.state.Load().envd.Signal(bound, uint32(pid), process.Signal(sig)) //nolint:gosec // both checked
	return c.s.dataError(ctx, opSignal, ended(ctx, bound, err), false)
}

// Kill sends SIGKILL to one process, not to its children. It returns false when
// there was none.
//
// Errors: as Signal, except ErrProcessNotFound.
//
// See https://e2b.dev/docs/commands.
func (c *Commands) Kill(ctx context.Context, pid int) (bool, error) {
	err := c.Signal(ctx, pid, SIGKILL)
	if errors.Is(err, ErrProcessNotFound) {
		return false, nil
	}
	return err == nil, err
}

func checkPID(op operation, pid int) error {
	if pid <= 0 || int64(pid) > 1<<32-1 {
		return invalid(op.name, "pid", "is none: %d", pid)
	}
	return nil
}

// check refuses options before any request.
func (o *RunOptions) check(op, cmd string) error {
	switch {
	case cmd == "":
		return invalid(op, "cmd", "is empty")
	case strings.Contains(cmd, "\x00"):
		return invalid(op, "cmd", "has a NUL byte")
	case strings.Contains(o.Dir, "\x00"):
		return invalid(op, "Dir", "has a NUL byte")
	case !validUser(o.User):
		return invalid(op, "User", "is no user name: %.80q", o.User)
	case o.Timeout < 0:
		return invalid(op, "Timeout", "is negative")
	case o.Timeout >= maxCommandTimeout:
		return invalid(op, "Timeout", "is longer than envd can keep: %v", o.Timeout)
	case o.MaxOutput < 0:
		return invalid(op, "MaxOutput", "is negative")
	}
	if name, bad := badEnv(o.Env); bad {
		return invalid(op, "Env", "has a name or value that no process can have: %.40q", name)
	}
	return validText(op, o.Env, argument{"cmd", cmd}, argument{"Dir", o.Dir}, argument{"User", o.User}, argument{"Tag", o.Tag})
}

type argument struct{ name, value string }

// validText refuses what is not UTF-8: protobuf does not encode it, and JSON
// would change it silently.
func validText(op string, env map[string]string, args ...argument) error {
	for _, arg := range args {
		if !utf8.ValidString(arg.value) {
			return invalid(op, arg.name, "is not UTF-8")
		}
	}
	for name, value := range env {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return invalid(op, "Env", "has a name or value that is not UTF-8: %.40q", name)
		}
	}
	return nil
}

// maxCommandTimeout is the first that does not fit into the ten digits of the
// header that carries it.
const maxCommandTimeout = 10_000_000_000 * time.Millisecond

// validUser reports whether envd can be told the name.
func validUser(name string) bool {
	return !strings.ContainsAny(name, ":\x00") && transport.ValidHeader(name)
}

func (c *Commands) start(ctx context.Context, op operation, args []string, o *RunOptions, collect bool) (*Process, error) {
	h := c.s.state.Load()
	if o.Stdin != nil && !atLeast(h.version, 0, 5, 2) {
		return nil, tooOld(op, c.s.id, h.version, "closing standard input", "0.5.2")
	}
	p := c.s.newProcess(op, o, collect)
	p.hasStdin = o.Stdin != nil || o.KeepStdin
	err := c.launch(ctx, p, h, &envd.Command{
		Path: "/bin/bash", Args: args,
		Env: o.Env, Dir: o.Dir, User: h.user(o.User), Tag: o.Tag, Stdin: p.hasStdin, Timeout: o.Timeout,
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// launch starts cmd as p, and lets go of p when that fails.
func (c *Commands) launch(ctx context.Context, p *Process, h *handle, cmd *envd.Command) error {
	if ctx.Err() != nil {
		// What begins now would have to be looked for and ended at once.
		p.abandon()
		return c.s.dataError(ctx, p.op, ctx.Err(), false)
	}
	own := cmd.Tag == ""
	if own {
		cmd.Tag = "e2b-go-" + rand.Text()[:16]
	}
	limit := c.s.client.openLimit(ctx)
	stream, err := h.envd.Start(ctx, p.ctx, limit, cmd, p.sink)
	if err == nil {
		p.begin(stream)
		return nil
	}
	err = ended(ctx, p.ctx, err)
	if uncertain(err) {
		// envd may have started it all the same; then its tag is in the list.
		if ctx.Err() == nil && !errors.Is(err, transport.ErrTimeout) {
			broken, running := c.s.interrupted(ctx, p.op, err)
			if running && own {
				if stream := p.rejoin(ctx, h, limit, cmd.Tag); stream != nil {
					p.lost = broken
					p.begin(stream)
					return nil
				}
			}
			if ctx.Err() == nil {
				p.abandon()
				return broken
			}
		}
		if own {
			c.killTagged(ctx, h, cmd.Tag)
		}
	}
	p.abandon()
	return c.s.dataError(ctx, p.op, err, false)
}

// uncertain reports a failed start after which the command may run.
func uncertain(err error) bool {
	var status *transport.StatusError
	return !errors.As(err, &status) && !isWire(err) && !errors.Is(err, errCut) && lost(err)
}

func findTag(ctx context.Context, h *handle, tag string) (uint32, bool) {
	list, err := h.envd.List(ctx)
	if err != nil {
		return 0, false
	}
	for _, p := range list {
		if p.GetTag() == tag {
			return p.GetPid(), true
		}
	}
	return 0, false
}

// rejoin attaches to a command whose start event was lost; nil if there is none.
func (p *Process) rejoin(ctx context.Context, h *handle, limit time.Duration, tag string) *envd.Stream {
	ctx, release := p.bound(ctx)
	defer release()
	listing, idle := transport.WithIdle(ctx, limit)
	defer idle.Release()
	pid, found := findTag(listing, h, tag)
	if !found {
		return nil
	}
	stream, err := h.envd.Attach(ctx, p.ctx, limit, pid, p.sink)
	if err != nil {
		return nil
	}
	return stream
}

// killTagged ends a command whose start event never came.
func (c *Commands) killTagged(ctx context.Context, h *handle, tag string) {
	tries := 3
	if ctx.Err() != nil {
		tries = 20 // the caller was told that the command does not outlive ctx
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killWait)
	defer cancel()
	for range tries {
		if pid, ok := findTag(ctx, h, tag); ok {
			_ = h.envd.Signal(ctx, pid, process.Signal_SIGNAL_SIGKILL)
			return
		}
		// envd goes on with a start that nobody waits for any more, and it may not
		// be in the list yet.
		if sleep(ctx, killWait/20) != nil {
			return
		}
	}
}

// openLimit is how long an opening may take: ctx alone counts where it has a
// deadline.
func (c *Client) openLimit(ctx context.Context) time.Duration {
	if _, has := ctx.Deadline(); has {
		return 0
	}
	return c.timeout
}

// bound returns a ctx for one call: the caller's, ended also by a pause or kill
// of this handle, and by limit if > 0.
func (s *Sandbox) bound(ctx context.Context, limit time.Duration) (context.Context, func()) {
	gate := s.gate.Load()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(gate.ctx, func() { cancel(context.Cause(gate.ctx)) })
	ctx, idle := transport.WithIdle(ctx, limit)
	return ctx, func() {
		idle.Release()
		stop()
		cancel(nil)
	}
}

// ended replaces err by what ended bound, if something has. The end of the
// caller's ctx is told by its own error: its cause may be an error of this
// package, or an answer to an RPC of another's, that has nothing to do with the call.
func ended(ctx, bound context.Context, err error) error {
	switch {
	case err == nil || isWire(err) && !errors.Is(context.Cause(ctx), err):
	case ctx.Err() != nil:
		return ctx.Err()
	case bound.Err() != nil:
		return context.Cause(bound)
	}
	return err
}

// user is the user on whose behalf a call is made. Before 0.4.0 envd's default was
// root, whatever the template's.
func (h *handle) user(name string) string {
	if name == "" && !atLeast(h.version, 0, 4, 0) {
		return "user"
	}
	return name
}

// atLeast compares an envd version. One that cannot be read counts as new, as
// that of a server which does not say.
func atLeast(version string, want ...int) bool {
	var got [3]int
	for i := range got {
		part, rest, _ := strings.Cut(version, ".")
		if i == 2 {
			part = part[:len(part)-len(strings.TrimLeft(part, "0123456789"))] // without "-rc.1"
		}
		n, err := strconv.Atoi(part)
		if err != nil {
			return true
		}
		got[i], version = n, rest
	}
	for i, w := range want {
		if got[i] != w {
			return got[i] > w
		}
	}
	return true
}

func tooOld(op operation, id, version, what, need string) error {
	return &opError{
		op: op.name, sandboxID: id, errs: []error{ErrNotSupported},
		detail: fmt.Sprintf("%s needs envd %s, the sandbox has %s", what, need, version),
	}
}
