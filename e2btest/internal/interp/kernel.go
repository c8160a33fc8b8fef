package interp

import (
	"encoding/json"
	"errors"
	"fmt"
)

// A kernel is one live interpreter process. It runs one cell at a time.
type kernel interface {
	// ready is closed when the interpreter is up.
	ready() <-chan struct{}
	// exited is closed when the process is gone and what it said is delivered.
	exited() <-chan struct{}
	// failure says why the process is gone. It must not be called before exited.
	failure() error

	// run gives a cell to the kernel, which ends it in its own time. It does not
	// wait, and reports false if the kernel is on its way out. It must not be called
	// before the last cell has ended.
	run(*cell) bool
	// interrupt asks a running cell to stop. It has no effect on any other cell,
	// however late it comes.
	interrupt(*cell)
	// kill ends the process and its children, without waiting for it.
	kill()
}

// outcome is how a cell ended.
type outcome int

const (
	outcomeEnded  outcome = iota // by itself, with or without an error
	outcomeExited                // and the kernel exits, as its code asked
	outcomeDied                  // with its kernel
	outcomeLost                  // the context was restarted or deleted
	outcomeClosed                // the server was closed
)

// A cell is one piece of code given to a kernel.
type cell struct {
	code  string
	env   map[string]string // variables for this cell
	after map[string]string // what those of them that are sandbox-wide are to be afterwards
	count int               // as number_of_executions, for a kernel that does not count itself

	// chunks carries the response. It is not buffered: when done is closed, all
	// has been received.
	chunks chan chunk
	// gone is closed when nobody receives any more.
	gone chan struct{}
	// done is closed when the cell has ended; outcome is valid then.
	done    chan struct{}
	outcome outcome

	lost bool // hangs: see Config.HangAfterCancel

	// Guarded by the mutex of the cell's context.
	finished bool // done is closed
	orphaned bool // the context's turn is released when the cell ends
}

// chunk is a part of a response line.
type chunk struct {
	data []byte
	last bool // of the line
}

// newCell returns a cell with variables of its own and those that are sandbox-wide.
func newCell(code string, env, sandboxEnv map[string]string) *cell {
	x := &cell{
		code: code, env: make(map[string]string), after: make(map[string]string),
		chunks: make(chan chunk), gone: make(chan struct{}), done: make(chan struct{}),
	}
	for name, value := range env {
		x.env[name] = value
		if value, ok := sandboxEnv[name]; ok {
			x.after[name] = value
		}
	}
	return x
}

// deliver hands over a part of the response, unless nobody wants it any more.
func (c *cell) deliver(ch chunk) {
	select {
	case c.chunks <- ch:
	case <-c.gone:
	case <-c.done:
	}
}

// The protocol between the server and the program that runs in a kernel process
// (see python/kernel_pipes.py): JSON lines both ways. Bash gets command lines.

// runRequest is the line that gives a kernel a cell.
type runRequest struct {
	Run   int               `json:"run"` // the number of the cell, from 1
	Code  string            `json:"code"`
	Env   map[string]string `json:"env"`
	After map[string]string `json:"after"`
	Cwd   string            `json:"cwd,omitempty"` // where to go first
}

// interruptRequest is the line that interrupts a cell.
type interruptRequest struct {
	Interrupt int `json:"interrupt"`
}

// kernelEvent is a line from the kernel. Exactly one of Ready, Size and End is set.
type kernelEvent struct {
	Ready bool  `json:"ready"`
	Seq   int   `json:"seq"`  // the number of the cell
	Size  int64 `json:"size"` // so many bytes follow: one line of the response
	End   bool  `json:"end"`
	Exit  bool  `json:"exit"` // with End: the kernel exits now
}

var errEvent = errors.New("not a line of the kernel protocol")

func decodeEvent(line []byte) (kernelEvent, error) {
	var e kernelEvent
	if err := json.Unmarshal(line, &e); err != nil {
		return kernelEvent{}, fmt.Errorf("%w: %w", errEvent, err)
	}
	var ok bool
	switch {
	case e.Ready:
		ok = e == kernelEvent{Ready: true}
	case e.End:
		ok = e.Seq > 0 && e.Size == 0
	default:
		ok = e.Seq > 0 && e.Size > 0 && !e.Exit
	}
	if !ok {
		return kernelEvent{}, errEvent
	}
	return e, nil
}
