package interp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// A Script runs in place of the kernels, for code in any language. The error that it
// returns is the exception with which the code ends, see ScriptError. Its context ends
// with node.ErrInterrupted or node.ErrKilled as the cause, and it must return soon then.
type Script func(ctx context.Context, x *Execution) error

// An Execution is code as a Script gets it.
type Execution struct {
	ContextID, Language string
	Code                string
	Env                 map[string]string
	Count               int // of the executions in its context, with this one

	// Vars is what the executions of a context have in common, as their variables. It
	// is new in a new kernel. Only one of them uses it at a time.
	Vars map[string]any

	Stdout, Stderr io.Writer

	// Show shows a value in the formats that it has, under the names that they have on
	// the wire. main says that it is that of the last expression.
	Show func(main bool, formats map[string]any) error
}

// A ScriptError is an exception. Any other error stands for one with the name Error.
type ScriptError struct{ Name, Value, Traceback string }

// Error returns the name and the value.
func (e *ScriptError) Error() string { return e.Name + ": " + e.Value }

// A scriptKernel is a kernel that is a Script.
type scriptKernel struct {
	server *Server
	owner  *codeContext
	vars   map[string]any
	up     chan struct{} // closed from the start
	gone   chan struct{} // closed once it was killed and nothing runs

	mu     sync.Mutex
	killed bool
	cell   *cell                   // that runs
	stop   context.CancelCauseFunc // of its context
}

func newScriptKernel(s *Server, c *codeContext) *scriptKernel {
	k := &scriptKernel{server: s, owner: c, vars: make(map[string]any), up: make(chan struct{}), gone: make(chan struct{})}
	close(k.up)
	return k
}

func (k *scriptKernel) ready() <-chan struct{}  { return k.up }
func (k *scriptKernel) exited() <-chan struct{} { return k.gone }
func (k *scriptKernel) failure() error          { return node.ErrKilled }

func (k *scriptKernel) run(x *cell) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.killed {
		return false
	}
	ctx, stop := context.WithCancelCause(context.Background())
	k.cell, k.stop = x, stop
	if k.server.spawn(func() { k.execute(ctx, x) }) {
		return true
	}
	k.cell = nil
	return false
}

// execute runs a cell and tells its context of the end.
func (k *scriptKernel) execute(ctx context.Context, x *cell) {
	how := outcomeDied // unless the Script returns: it may end its goroutine
	defer func() {
		k.mu.Lock()
		k.cell = nil
		k.stop(nil)
		k.killed = k.killed || how == outcomeDied
		if k.killed {
			close(k.gone)
		}
		k.mu.Unlock()
		k.owner.kernelEnded(k, x, how)
	}()
	say(x, struct {
		Type  string `json:"type"`
		Count int    `json:"execution_count"`
	}{"number_of_executions", x.count})
	if strings.TrimSpace(x.code) == "" {
		how = outcomeEnded
		return
	}
	env := maps.Clone(k.server.cfg.Env)
	if env == nil {
		env = make(map[string]string)
	}
	maps.Copy(env, x.env)
	err := k.server.cfg.Script(ctx, &Execution{
		ContextID: k.owner.id, Language: k.owner.language, Code: x.code, Env: env, Count: x.count, Vars: k.vars,
		Stdout: scriptOutput{x, "stdout"}, Stderr: scriptOutput{x, "stderr"},
		Show: func(main bool, formats map[string]any) error { return show(x, main, formats) },
	})
	if err != nil {
		e, ok := errors.AsType[*ScriptError](err)
		switch {
		case ok:
		case errors.Is(context.Cause(ctx), node.ErrInterrupted):
			e = &ScriptError{Name: "KeyboardInterrupt"}
		default:
			e = &ScriptError{Name: "Error", Value: err.Error()}
		}
		say(x, struct {
			Type      string `json:"type"`
			Name      string `json:"name"`
			Value     string `json:"value"`
			Traceback string `json:"traceback"`
		}{"error", e.Name, e.Value, e.Traceback})
	}
	how = outcomeEnded
}

// say delivers a line.
func say(x *cell, line any) { x.deliver(chunk{data: responseLine(line), last: true}) }

// show delivers a line of type result.
func show(x *cell, main bool, formats map[string]any) error {
	line := maps.Clone(formats)
	if line == nil {
		line = make(map[string]any)
	}
	line["type"], line["is_main_result"] = "result", main
	if _, ok := line["extra"]; !ok {
		line["extra"] = map[string]any{}
	}
	data, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("a format has no JSON: %w", err)
	}
	x.deliver(chunk{data: append(asciiJSON(data), '\n'), last: true})
	return nil
}

func (k *scriptKernel) interrupt(x *cell) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cell == x {
		k.stop(node.ErrInterrupted)
	}
}

func (k *scriptKernel) kill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.killed:
	case k.cell == nil:
		close(k.gone)
	default:
		k.stop(node.ErrKilled)
	}
	k.killed = true
}

// A scriptOutput is what a Script writes to.
type scriptOutput struct {
	cell *cell
	name string
}

func (w scriptOutput) Write(b []byte) (int, error) {
	w.cell.deliver(chunk{data: outputLine(w.name, string(b)), last: true})
	return len(b), nil
}
