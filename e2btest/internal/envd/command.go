package envd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
)

const exitRetention = 30 * time.Second // how long Connect knows a command that has ended

var (
	errEnded   = errors.New("process has ended")
	errNoStdin = errors.New("stdin not enabled or closed")
)

// A command is one that was started and has not ended.
type command struct {
	program

	pid      uint32
	number   uint64 // in the order of starts
	req      *process.StartRequest
	out      *fanout
	terminal bool
	timer    *time.Timer // kills it at its deadline; may be nil

	input  input         // stdin or terminal; nil: there is none
	turn   chan struct{} // holds a token while someone writes to input or closes it
	closed bool          // input is; guarded by turn

	done chan struct{} // closed when it has ended

	mu      sync.Mutex
	expired bool // killed at its deadline
}

// A program is what runs for a command.
type program interface {
	// run publishes what the program prints until it has ended, and returns its end.
	run() *process.ProcessEvent
	// signal sends sig to the program, not to its children. It returns errEnded once
	// the program has ended.
	signal(sig syscall.Signal) error
	// kill ends the program and all that belongs to it.
	kill()
	// running says whether the program has not ended.
	running() bool
	// resize changes the size of the terminal.
	resize(size pty.Winsize) error
	// group is the process group that the program has or had; 0 is none.
	group() int
}

// An input is where the input of a program is written. It is used by one at a time.
type input interface {
	// write returns when all of data is taken. When ctx ends before, the rest is not
	// written.
	write(ctx context.Context, data []byte) error
	close() error
}

// wantsInput says whether the command is to have a stdin.
func wantsInput(req *process.StartRequest) bool { return req.Stdin == nil || req.GetStdin() }

// launch starts a command for u.
func (s *Server) launch(u *User, req *process.StartRequest) (*command, error) {
	dir, err := s.workDir(u, req.GetProcess().GetCwd())
	if err != nil {
		return nil, err
	}
	c := &command{
		req:      req,
		out:      newFanout(s.grace),
		terminal: req.Pty != nil,
		turn:     make(chan struct{}, 1),
		done:     make(chan struct{}),
	}
	if s.cfg.Script != nil {
		s.startScript(c, u, dir)
		return c, nil
	}
	return c, s.startChild(c, u, dir)
}

// workDir returns the directory that a command starts in.
func (s *Server) workDir(u *User, cwd string) (string, error) {
	dir, err := s.resolve(cwd, u)
	if err != nil {
		return "", err
	}
	if _, err := s.tree.stat(dir); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("cwd '%s' does not exist", dir)
	} else if errors.Is(err, errOutside) {
		return "", err
	}
	if s.cfg.Root != "" {
		if real, err := s.tree.realPath(dir); err == nil {
			return real, nil
		}
	}
	return dir, nil // what else is wrong with it, the start says
}

// environment returns the variables of a command; nothing of the server's own
// gets through.
func (s *Server) environment(u *User, envs map[string]string) []string {
	env := map[string]string{"PATH": s.cfg.Path, "HOME": u.Home, "USER": u.Name, "LOGNAME": u.Name}
	maps.Copy(env, s.cfg.Env)
	maps.Copy(env, envs)
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// terminalSize cuts the size to the bits that a terminal has.
func terminalSize(p *process.PTY) pty.Winsize {
	return pty.Winsize{Cols: uint16(p.GetSize().GetCols()), Rows: uint16(p.GetSize().GetRows())}
}

func stdoutOutput(b []byte) *process.ProcessEvent_DataEvent {
	return &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: b}}
}

func stderrOutput(b []byte) *process.ProcessEvent_DataEvent {
	return &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stderr{Stderr: b}}
}

func terminalOutput(b []byte) *process.ProcessEvent_DataEvent {
	return &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Pty{Pty: b}}
}

// expire kills the command at its deadline.
func (c *command) expire() {
	c.mu.Lock()
	// Before the signal: whoever sees the end sees also why.
	c.expired = c.running()
	c.mu.Unlock()
	_ = c.signal(syscall.SIGKILL) // it has ended: the better
}

func (c *command) hasExpired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.expired
}

// takeTurn waits until nobody else writes to the input or closes it. The caller
// must receive from turn when it is done.
func (c *command) takeTurn(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
		return errEnded
	}
}

// feed writes to the input.
func (c *command) feed(ctx context.Context, data []byte) error {
	if err := c.takeTurn(ctx); err != nil {
		return err
	}
	defer func() { <-c.turn }()
	if c.input == nil || c.closed {
		return errNoStdin
	}
	return c.input.write(ctx, data)
}

// closeInput ends what the command reads. It may be called again.
func (c *command) closeInput(ctx context.Context) error {
	if err := c.takeTurn(ctx); err != nil {
		return err
	}
	defer func() { <-c.turn }()
	if c.input == nil || c.closed {
		return nil
	}
	c.closed = true
	return c.input.close()
}

// An exit is a command that has ended. It is remembered for exitRetention.
type exit struct {
	command *command
	end     *process.ProcessEvent
	at      time.Time
}

// A processTable knows the commands. The mutex of the Server guards it.
type processTable struct {
	started uint64 // how many there were
	pids    uint32 // of scripts, that were given out
	live    map[uint32]*command
	exits   map[uint32]exit
	groups  map[int]struct{} // process groups that outlived their leader
}

func newProcessTable() processTable {
	return processTable{
		live:   make(map[uint32]*command),
		exits:  make(map[uint32]exit),
		groups: make(map[int]struct{}),
	}
}

// adopt enters c into the table and runs it.
func (s *Server) adopt(c *command) {
	s.mu.Lock()
	t := &s.procs
	t.started++
	c.number = t.started
	t.live[c.pid] = c
	delete(t.exits, c.pid)
	maps.DeleteFunc(t.groups, func(group int, _ struct{}) bool { return !groupAlive(group) })
	if s.closed {
		c.kill()
	}
	s.running.Add(1)
	s.mu.Unlock()
	s.log.Debug("command started", "pid", c.pid)
	go func() {
		defer s.running.Done()
		end := c.run()
		if c.timer != nil {
			c.timer.Stop()
		}
		s.retire(c, end)
		c.out.finish(end)
		close(c.done)
		s.log.Debug("command ended", "pid", c.pid, "status", end.GetEnd().GetStatus())
	}()
}

// Processes returns the commands that run, by their pid.
func (s *Server) Processes() []node.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]node.Process, 0, len(s.procs.live))
	for _, pid := range slices.Sorted(maps.Keys(s.procs.live)) {
		config := s.procs.live[pid].req.GetProcess()
		list = append(list, node.Process{PID: int(pid), Command: strings.Join(append([]string{config.GetCmd()}, config.GetArgs()...), " ")})
	}
	return list
}

// retire moves c from the live commands to the ended ones.
func (s *Server) retire(c *command, end *process.ProcessEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, now := &s.procs, s.now()
	if group := c.group(); group != 0 && groupAlive(group) {
		t.groups[group] = struct{}{}
	}
	maps.DeleteFunc(t.exits, func(_ uint32, e exit) bool { return now.Sub(e.at) > exitRetention })
	if t.live[c.pid] != c {
		return // a new command already has the pid
	}
	delete(t.live, c.pid)
	if s.since("0.6.12") {
		t.exits[c.pid] = exit{c, end, now}
	}
}
