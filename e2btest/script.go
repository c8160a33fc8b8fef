package e2btest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"path"
	"slices"
	"strings"
	"sync"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/envd"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/interp"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/scripted"
)

// Why the context of Options.Run or Options.Code has ended; context.Cause returns
// one of them.
var (
	ErrTerminated  = node.ErrTerminated  // the command got SIGTERM
	ErrKilled      = node.ErrKilled      // it was killed, alone or with its sandbox
	ErrInterrupted = node.ErrInterrupted // the client of the code has gone away
)

// A Command is a command as [Options].Run gets it. Reading and writing wait while the
// sandbox is paused, and fail once the command was killed. SIGTERM ends a Read that has
// nothing to return.
type Command struct {
	files

	SandboxID string
	PID       int
	Args      []string          // the program and its arguments
	Env       map[string]string // all of it, with PATH, HOME and USER
	Dir       string
	User      string
	Tag       string

	Stdin          io.Reader
	Stdout, Stderr io.Writer // the same one for a terminal

	Terminal bool
	Resized  <-chan struct{} // has an item after the terminal has changed its size

	size   func() (cols, rows int)
	listen func(port int) (net.Listener, error)
}

// Line returns the text for a shell that Commands.Run and Start were called with:
// the last argument, if the arguments are those of a shell with -c, and otherwise all
// arguments with spaces between them.
func (c *Command) Line() string {
	if i := slices.Index(c.Args, "-c"); i > 0 && i == len(c.Args)-2 {
		return c.Args[i+1]
	}
	return strings.Join(c.Args, " ")
}

// Size returns the size of the command's terminal, in characters.
func (c *Command) Size() (cols, rows int) { return c.size() }

// Listen opens a port of the sandbox, which clients reach as that of a server in it.
// It is closed when the command ends.
func (c *Command) Listen(port int) (net.Listener, error) { return c.listen(port) }

// A Code is code as [Options].Code gets it.
type Code struct {
	files

	SandboxID string
	ContextID string // of its code context
	Language  string // as "python"
	Text      string
	Env       map[string]string // of the sandbox and of the call
	Count     int               // of the executions in the context, with this one

	// Vars is what the executions of one code context have in common, in place of
	// variables. It is there after a pause that kept memory, and is empty after a
	// restart of the context or of the sandbox.
	Vars map[string]any

	Stdout, Stderr io.Writer

	show func(main bool, formats map[string]any) error
}

// Show makes r a result of the code. Its Main says that it is the value of the last
// expression. The error is that of a JSON field of r that holds none, or of a context
// that has ended.
func (c *Code) Show(r e2b.CodeResult) error {
	formats := make(map[string]any)
	for name, text := range map[string]string{
		"text": r.Text, "html": r.HTML, "markdown": r.Markdown, "svg": r.SVG, "latex": r.LaTeX, "javascript": r.JavaScript,
	} {
		if text != "" {
			formats[name] = text
		}
	}
	for name, data := range map[string][]byte{"png": r.PNG, "jpeg": r.JPEG, "pdf": r.PDF} {
		if len(data) > 0 {
			formats[name] = data
		}
	}
	for name, data := range map[string]json.RawMessage{"json": r.JSON, "data": r.Data, "chart": r.Chart} {
		if len(data) > 0 {
			formats[name] = data
		}
	}
	if len(r.Extra) > 0 {
		formats["extra"] = r.Extra
	}
	return c.show(r.Main, formats)
}

// files are those of the sandbox, for its functions.
type files struct {
	memory *envd.Memory
	dir    string // where relative names begin
	uid    int
}

// ReadFile returns what a file of the sandbox holds. A relative name begins in the
// directory of the command, or in the user's home for code. Errors are those of package
// fs.
func (f files) ReadFile(name string) ([]byte, error) { return f.memory.ReadFile(f.path(name)) }

// WriteFile makes data what a file of the sandbox holds, and makes the file and its
// directories where they are missing.
func (f files) WriteFile(name string, data []byte) error {
	if name == "" || strings.HasSuffix(name, "/") {
		return &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	return f.memory.WriteFile(f.path(name), data, 0o644, f.uid, f.uid)
}

func (f files) path(name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return path.Join(f.dir, name)
}

// scripted says whether functions stand in for processes.
func (o *Options) scripted() bool { return o.Run != nil || o.Code != nil }

// newScripted returns the runtime for Run and Code.
func newScripted(o *Options) runtime {
	opts := scripted.Options{HangAfterCancel: o.HangAfterCancel, Logger: o.Logger}
	if o.Run != nil {
		opts.Run = func(ctx context.Context, s *scripted.Sandbox, inv *envd.Invocation) int {
			return runCommand(ctx, o.Run, s, inv)
		}
	}
	if o.Code != nil {
		opts.Code = func(ctx context.Context, s *scripted.Sandbox, x *interp.Execution) error {
			return runCode(ctx, o.Code, s, x)
		}
	}
	return scripted.New(opts)
}

func runCommand(ctx context.Context, run func(context.Context, *Command) int, s *scripted.Sandbox, inv *envd.Invocation) int {
	env := make(map[string]string, len(inv.Env))
	for _, pair := range inv.Env {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	ports := &openPorts{sandbox: s}
	defer ports.close()
	defer context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), ErrKilled) {
			ports.close() // when nobody would believe that it still serves
		}
	})()
	return run(ctx, &Command{
		files:     files{s.Files(), inv.Dir, int(inv.User.UID)},
		SandboxID: s.ID(), PID: inv.PID, Args: inv.Args, Env: env, Dir: inv.Dir, User: inv.User.Name, Tag: inv.Tag,
		Stdin: inv.Stdin, Stdout: inv.Stdout, Stderr: inv.Stderr,
		Terminal: inv.Terminal, Resized: inv.Resized, size: inv.Size,
		listen: ports.listen,
	})
}

// openPorts are those of one command.
type openPorts struct {
	sandbox *scripted.Sandbox
	mu      sync.Mutex
	open    []net.Listener
	closed  bool
}

func (o *openPorts) listen(port int) (net.Listener, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, net.ErrClosed
	}
	l, err := o.sandbox.Listen(port)
	if err == nil {
		o.open = append(o.open, l)
	}
	return l, err
}

func (o *openPorts) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for _, l := range o.open {
		_ = l.Close() // has no error
	}
}

func runCode(ctx context.Context, run func(context.Context, *Code) error, s *scripted.Sandbox, x *interp.Execution) error {
	err := run(ctx, &Code{
		files:     files{s.Files(), scripted.HomeDir, 0},
		SandboxID: s.ID(), ContextID: x.ContextID, Language: x.Language, Text: x.Code, Env: x.Env, Count: x.Count, Vars: x.Vars,
		Stdout: x.Stdout, Stderr: x.Stderr, show: x.Show,
	})
	if e, ok := errors.AsType[*e2b.ExecutionError](err); ok && e == nil {
		return nil
	} else if ok {
		return &interp.ScriptError{Name: e.Name, Value: e.Value, Traceback: e.Traceback}
	}
	return err
}
