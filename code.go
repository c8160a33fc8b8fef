package e2b

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/envd"
	"github.com/seed-09a7379d/e2b-go/internal/interpreter"
	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// CodeOptions says how to run code. The zero value runs it as Python in the
// context that every sandbox has from its start.
type CodeOptions struct {
	// Language selects the default context of a language, as "python",
	// "javascript", "typescript", "bash" or "r". "" means "python".
	Language string
	// Context is the ID of a code context to run in, instead of the default one of
	// a language. It excludes Language.
	Context string
	// Env is set for this execution alone. The interpreter pastes the values into
	// the code, so they are escaped for python, javascript, typescript, bash, r and
	// java; for other languages a value that would need it is refused.
	Env map[string]string
	// Timeout bounds the execution, the wait for earlier ones in the same context
	// included. 0 means no limit. The code is then interrupted, as when ctx ends.
	// Code that swallows the interrupt keeps its context busy: RestartCodeContext
	// ends it.
	Timeout time.Duration
	// Stdout and Stderr get the output as it comes; nil means that it is collected.
	// A writer's error interrupts the code; one that does not return holds up the
	// call, also after ctx has ended.
	Stdout, Stderr io.Writer
	// MaxOutput is how many bytes are collected of each stream, and of all results
	// and of all errors in their encoded form. 0 means 64 MiB. The rest is read and
	// dropped, and Execution says so, except of errors; StreamCode's events have it all
	// the same.
	MaxOutput int64
}

// Execution is what running code left.
type Execution struct {
	// Count is the number of the execution in its context. It starts again at 1
	// when the context was restarted.
	Count int
	// Results are the value of the last expression and what the code displayed.
	Results []CodeResult
	// ResultsTruncated says that results are missing: see CodeOptions.MaxOutput.
	ResultsTruncated bool
	// Stdout and Stderr are what was collected. In bash all output is in Stdout.
	Stdout, Stderr                   string
	StdoutTruncated, StderrTruncated bool
	// Error is the exception that ended the code; nil if none did. An exception is
	// not an error of RunCode. To return it as an error, call Err.
	Error *ExecutionError
	// Errors are what the interpreter reported, Error among them, as far as there is
	// room: see CodeOptions.MaxOutput.
	Errors []ExecutionError
}

// ExecutionError is an exception in the code that ran.
type ExecutionError struct {
	Name      string // as "ZeroDivisionError"; "" in bash
	Value     string // its message; the exit status in bash
	Traceback string
}

// Error returns name and message.
func (e *ExecutionError) Error() string {
	if e == nil {
		return "no exception"
	}
	return strings.TrimPrefix(e.Name+": "+e.Value, ": ")
}

// Err returns Error as an error, which is nil if there was no exception.
func (e *Execution) Err() error {
	if e == nil || e.Error == nil {
		return nil
	}
	return e.Error
}

var opCode = operation{name: "run code", notFound: ErrNotFound, code: true}

// RunCode runs code in the sandbox's interpreter, which the template must have
// ("code-interpreter" does), and waits for its end. Variables, imports and the
// working directory stay for the next call, also over Pause and Connect. The code
// runs as root.
//
// An exception in the code is Execution.Error, not an error. With an error the
// Execution holds what came until then, and is nil if nothing had begun.
//
// Calls in one context run one after another. ctx bounds everything, the wait
// for earlier calls too. When it ends the code is interrupted: Python, bash and R
// keep their variables, JavaScript and TypeScript lose them. The next call first
// makes sure that the interrupted code has really ended, which takes a moment
// then, and at most RequestTimeout where ctx has no deadline. When another process
// cancelled the call, and the context therefore swallows this one, the error is
// ErrInterpreter, and the call can be repeated.
//
// Errors: ErrCommandTimeout, ErrInterpreter (the kernel died or was restarted:
// variables are gone), ErrPortClosed (the template has no interpreter, or it
// still starts), ErrSandboxNotRunning, ErrStreamInterrupted, ErrNotSupported (the
// interpreter lacks the language), ErrNotFound (there is no such Context),
// ErrInvalidArgument.
//
// See https://e2b.dev/docs/code-interpreting.
func (s *Sandbox) RunCode(ctx context.Context, code string, opts *CodeOptions) (*Execution, error) {
	run, err := s.beginCode(ctx, ctx, opCode, code, opts)
	if err != nil {
		return nil, err
	}
	defer run.close()
	return run.finish(ctx, run.r.read(run.x))
}

// check refuses options before any request.
func (o *CodeOptions) check(op, code string) error {
	switch {
	case o.Context != "" && o.Language != "":
		return invalid(op, "Context", "excludes Language: a context has its own")
	case o.Timeout < 0:
		return invalid(op, "Timeout", "is negative")
	case o.MaxOutput < 0:
		return invalid(op, "MaxOutput", "is negative")
	}
	if o.Context != "" {
		if err := validContext(op, "Context", o.Context); err != nil {
			return err
		}
	} else if err := validLanguage(op, o.Language); err != nil {
		return err
	}
	if name, bad := badEnv(o.Env); bad {
		return invalid(op, "Env", "has a name or value that no process can have: %.40q", name)
	}
	return validText(op, o.Env, argument{"code", code})
}

// pasteEnv returns the variables as they must be sent to a context of o.Language.
func (o *CodeOptions) pasteEnv(op string) (map[string]string, error) {
	if len(o.Env) == 0 {
		return nil, nil
	}
	env := make(map[string]string, len(o.Env))
	for name, value := range o.Env {
		if !pasteable(o.Language, name) {
			return nil, invalid(op, "Env", "has a name that cannot be pasted into code: %.40q", name)
		}
		escaped, ok := escapeEnv(o.Language, value)
		if !ok {
			return nil, invalid(op, "Env", "has a value for %.40q that cannot be pasted into %s", name, o.Language)
		}
		env[name] = escaped
	}
	return env, nil
}

// pasteable reports whether the interpreter can paste the name of a variable into
// code: within quotes in some languages, bare in the others.
func pasteable(language, name string) bool {
	switch language {
	case "python", "javascript", "typescript", "java":
		return !strings.ContainsAny(name, "'\"\\\n\r $`")
	}
	for i := range len(name) {
		c := name[i]
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return true
}

var (
	singleQuoted = strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`, "\r", `\r`)
	doubleQuoted = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`)
	shellQuoted  = strings.NewReplacer(`'`, `'\''`)
)

// escapeEnv makes value safe for the quotes that the interpreter puts around it.
func escapeEnv(language, value string) (string, bool) {
	switch language {
	case "python", "javascript", "typescript":
		return singleQuoted.Replace(value), true
	case "bash":
		return shellQuoted.Replace(value), true
	case "r", "java":
		return doubleQuoted.Replace(value), true
	}
	return value, !strings.ContainsAny(value, "'\"\\\n\r`$")
}

// normalLanguage maps the names that mean the same context to one.
func normalLanguage(s string) string {
	switch s = strings.ToLower(strings.TrimSpace(s)); s {
	case "", "py", "python3":
		return "python"
	case "js":
		return "javascript"
	case "ts":
		return "typescript"
	}
	return s
}

// codeReader builds an Execution from its lines.
type codeReader struct {
	e              Execution
	stdout, stderr output
	infra          *ExecutionError // the first that the interpreter made itself
	taken          bool            // the code has begun
	failed         bool            // the code itself has
	room           int             // for results
	errRoom        int             // for errors
}

func newCodeReader(o *CodeOptions) *codeReader {
	limit := o.MaxOutput
	if limit == 0 {
		limit = DefaultMaxOutput
	}
	room := int(min(limit, math.MaxInt))
	return &codeReader{
		room: room, errRoom: room,
		stdout: output{w: o.Stdout, collect: true, max: room},
		stderr: output{w: o.Stderr, collect: true, max: room},
	}
}

func (r *codeReader) read(x *interpreter.Execution) error {
	var l interpreter.Line
	for {
		if end, err := r.next(x, &l); end || err != nil {
			return err
		}
	}
}

// next reads one line into l, or tells that the execution has ended.
func (r *codeReader) next(x *interpreter.Execution, l *interpreter.Line) (end bool, err error) {
	if err := x.Next(l); err != nil {
		if errors.Is(err, io.EOF) && !errors.Is(err, interpreter.ErrNoEnd) {
			return true, nil
		}
		return false, err
	}
	return false, r.line(l)
}

func (r *codeReader) line(l *interpreter.Line) error {
	r.taken = r.taken || l.Type != interpreter.TypeKeepalive
	switch l.Type {
	case interpreter.TypeKeepalive:
		if !r.taken {
			return errNotTaken
		}
	case interpreter.TypeCount:
		r.e.Count = l.Count
	case interpreter.TypeStdout:
		return sinkError(r.stdout.write([]byte(l.Text)))
	case interpreter.TypeStderr:
		return sinkError(r.stderr.write([]byte(l.Text)))
	case interpreter.TypeResult:
		r.result(l)
	case interpreter.TypeError:
		r.failure(&ExecutionError{Name: l.Name, Value: l.Value, Traceback: l.Traceback}, l.Size)
	}
	return nil
}

// failure keeps an error for which there is room, and in any case the first of its kind.
func (r *codeReader) failure(e *ExecutionError, size int) {
	if e.synthetic() {
		if r.infra == nil {
			r.infra = e
		}
	} else if !r.failed {
		r.failed = true
		r.e.Errors = append(r.e.Errors, *e)
		r.errRoom -= size
		return
	}
	if size <= r.errRoom {
		r.errRoom -= size
		r.e.Errors = append(r.e.Errors, *e)
	}
}

// result keeps a result for which there is room.
func (r *codeReader) result(l *interpreter.Line) {
	if r.e.ResultsTruncated = r.e.ResultsTruncated || l.Size > r.room; !r.e.ResultsTruncated {
		r.room -= l.Size
		r.e.Results = append(r.e.Results, newCodeResult(l))
	}
}

// errNotTaken tells of code that a context swallowed, or that waits behind code
// which will not end: what comes first otherwise is the number of the execution.
var errNotTaken = errors.New("the context did not take the code: code that was cancelled elsewhere may still run in it")

// syntheticErrors are the names of errors that the interpreter's server makes
// about itself.
var syntheticErrors = []string{"ContextRestarting", "WebSocketError", "UnexpectedEndOfExecution", "ExecutionAborted"}

func (e *ExecutionError) synthetic() bool {
	return e.Traceback == "" && slices.Contains(syntheticErrors, e.Name)
}

func (r *codeReader) execution() *Execution {
	r.e.Stdout, r.e.StdoutTruncated = string(r.stdout.buf), r.stdout.truncated
	r.e.Stderr, r.e.StderrTruncated = string(r.stderr.buf), r.stderr.truncated
	for i := range r.e.Errors {
		if !r.e.Errors[i].synthetic() {
			r.e.Error = &r.e.Errors[i]
			break
		}
	}
	return &r.e
}

// contextGates lets one call at a time into each code context. The interpreter
// has a queue of its own, but a call that waits there behind one that is
// cancelled may hang for ever; and what a cancelled call left must be known to
// the next, also through another handle.
type contextGates struct {
	mu    sync.Mutex
	m     map[gateKey]*contextGate
	known map[gateKey]contextInfo // by their ID
}

// A gateKey names a context by its language or by its ID.
type gateKey struct{ sandbox, language, id string }

// address returns how the interpreter is told the context.
func (k gateKey) address() *interpreter.Code {
	if k.language == "python" {
		k.language = "" // the default, also on servers with another name for it
	}
	return &interpreter.Code{ContextID: k.id, Language: k.language}
}

type contextGate struct {
	key     gateKey
	refs    int           // under contextGates.mu
	restart bool          // the context was restarted; under contextGates.mu
	turn    chan struct{} // holds one token while nobody is in
	left    doubt         // of the one who is in
}

// doubt is what a call left in a context that the next has to wait out.
type doubt int

const (
	clean       doubt = iota
	interrupted       // the code may still run, and swallow what is sent
	restarted         // the kernel boots, and must not be interrupted
)

// maxDoubts bounds the contexts that are remembered though nobody uses them: a
// sandbox that timed out is never heard of again.
const maxDoubts = 4096

func (g *contextGates) enter(ctx context.Context, key gateKey) (*contextGate, error) {
	g.mu.Lock()
	gate := g.gate(key)
	gate.refs++
	g.evict()
	g.mu.Unlock()
	select {
	case <-gate.turn:
		if ctx.Err() == nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			if gate.restart {
				gate.restart = false
				gate.doubt(restarted)
			}
			return gate, nil
		}
		gate.turn <- struct{}{}
	case <-ctx.Done():
	}
	g.drop(gate)
	return nil, ctx.Err()
}

// gate returns the gate with a key, under mu.
func (g *contextGates) gate(key gateKey) *contextGate {
	gate := g.m[key]
	if gate == nil {
		if g.m == nil {
			g.m = make(map[gateKey]*contextGate)
		}
		gate = &contextGate{key: key, turn: make(chan struct{}, 1)}
		gate.turn <- struct{}{}
		g.m[key] = gate
	}
	return gate
}

func (g *contextGates) leave(gate *contextGate) {
	gate.turn <- struct{}{}
	g.drop(gate)
}

// drop forgets a gate that nobody is at and that left nothing to remember.
func (g *contextGates) drop(gate *contextGate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	// With no refs left nobody is in, so left is not being written.
	if gate.refs--; gate.refs == 0 && gate.left == clean && !gate.restart && g.m[gate.key] == gate {
		delete(g.m, gate.key)
	}
}

// evict makes room, under mu.
func (g *contextGates) evict() {
	for key, gate := range g.m {
		if len(g.m) <= maxDoubts {
			return
		}
		if gate.refs == 0 {
			delete(g.m, key)
		}
	}
}

// forget drops what is known of a sandbox that is being killed.
func (g *contextGates) forget(sandbox string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, gate := range g.m {
		if key.sandbox == sandbox && gate.refs == 0 {
			delete(g.m, key)
		}
	}
	for key := range g.known {
		if key.sandbox == sandbox {
			delete(g.known, key)
		}
	}
}

func (gate *contextGate) doubt(d doubt) { gate.left = max(gate.left, d) }

const (
	probeFirst   = 1500 * time.Millisecond // after a restart, when a kernel may not be asked yet
	probeLimit   = time.Second
	probeBooting = 5 * time.Second // a shorter one could interrupt the boot
	probePause   = 250 * time.Millisecond
)

// settle makes sure that a context in doubt takes code again. Empty code has no
// effect, so it is sent until one such call has ended: the interrupt of a
// cancelled call reaches the kernel after its connection is gone, and what was
// sent in between is swallowed without an answer.
func (gate *contextGate) settle(ctx context.Context, c *interpreter.Client, limit time.Duration) error {
	if gate.left == clean {
		return nil
	}
	ctx, idle := transport.WithIdle(ctx, limit)
	defer idle.Release()
	for {
		budget := probeLimit
		if gate.left == restarted {
			if err := sleep(ctx, probeFirst); err != nil {
				return err
			}
			budget = probeBooting
		}
		d, err := probeContext(ctx, c, budget, gate.key.address())
		if err == nil {
			if gate.left = d; d == clean {
				return nil
			}
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if _, answered := errors.AsType[*transport.StatusError](err); answered || !lost(err) {
			return err
		}
		if err := sleep(ctx, probePause); err != nil {
			return err
		}
	}
}

func probeContext(ctx context.Context, c *interpreter.Client, budget time.Duration, empty *interpreter.Code) (doubt, error) {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	x, err := c.Execute(ctx, 0, empty)
	if err != nil {
		return 0, err
	}
	defer x.Close()
	r := newCodeReader(&CodeOptions{MaxOutput: 1})
	if err := r.read(x); err != nil {
		return 0, err
	}
	if r.infra != nil {
		return restarted, nil
	}
	return clean, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// sinkError marks an error of the caller's writer.
func sinkError(err error) error {
	if err == nil {
		return nil
	}
	return &envd.SinkError{Err: err}
}
