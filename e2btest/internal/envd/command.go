package envd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"slices"
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
	exitRetention = 30 * time.Second // how long Connect knows a command that has ended
)

var (
	errEnded   = errors.New("process has ended")
	errNoStdin = errors.New("stdin not enabled or closed")
)

// The wrappers start every command through a shell, as the real daemon does. That
// is why a missing command is an exit code and not an error. The one with nice
// also says it in the words of the real one; the priority stays as it is.
const (
	wrapper     = `exec "${@}"`
	niceTool    = "/usr/bin/nice"
	niceWrapper = `exec ` + niceTool + ` -n 0 "${@}"`
)

// A command is one that was started and has not ended.
type command struct {
	pid      uint32
	number   uint64 // in the order of starts
	req      *process.StartRequest
	cmd      *exec.Cmd
	out      *fanout
	terminal bool
	timer    *time.Timer // kills it at its deadline; may be nil

	input   *os.File   // write end of stdin, or terminal; nil: there is none
	outputs []*os.File // what is read: stdout and stderr, or terminal

	turn   chan struct{} // holds a token while someone writes to input or closes it
	closed bool          // input is; guarded by turn

	eof  chan struct{} // closed when all outputs are read to their end
	done chan struct{} // closed when it has ended

	mu      sync.Mutex
	cut     chan struct{} // closed when the end is not to wait for eof
	isCut   bool
	expired bool // killed at its deadline
	reaped  bool // the pid may be someone else's
}

// launch starts a command for u.
func (s *Server) launch(u *User, req *process.StartRequest) (*command, error) {
	config := req.GetProcess()
	dir, err := s.workDir(u, config.GetCwd())
	if err != nil {
		return nil, err
	}
	script := wrapper
	if _, err := os.Stat(niceTool); err == nil {
		script = niceWrapper
	}
	argv := append([]string{"/bin/sh", "-c", script, "--", config.GetCmd()}, config.GetArgs()...)
	c := &command{
		req:      req,
		cmd:      &exec.Cmd{Path: argv[0], Args: argv, Dir: dir, Env: s.environment(u, config.GetEnvs())},
		out:      newFanout(s.grace),
		terminal: req.Pty != nil,
		turn:     make(chan struct{}, 1),
		eof:      make(chan struct{}),
		done:     make(chan struct{}),
		cut:      make(chan struct{}),
	}
	prepare(c.cmd, u, c.terminal)
	name := strings.Join(argv[4:], " ")
	if c.terminal {
		size := terminalSize(req.Pty)
		if err := c.startTerminal(s.cfg.Start, size); err != nil {
			return nil, fmt.Errorf("error starting pty with command '%s' in dir '%s' with '%d' cols and '%d' rows: %w",
				name, dir, size.Cols, size.Rows, err)
		}
	} else if err := c.startPipes(s.cfg.Start); err != nil {
		return nil, fmt.Errorf("error starting process '%s': %w", name, err)
	}
	c.pid = uint32(c.cmd.Process.Pid)
	return c, nil
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

func (c *command) startTerminal(start func(*exec.Cmd) error, size pty.Winsize) error {
	master, tty, err := openTerminal(size)
	if err != nil {
		return err
	}
	defer tty.Close()
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = tty, tty, tty
	if err := start(c.cmd); err != nil {
		master.Close()
		return err
	}
	c.input, c.outputs = master, []*os.File{master}
	return nil
}

func (c *command) startPipes(start func(*exec.Cmd) error) (err error) {
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
	c.cmd.Stdout, c.cmd.Stderr = theirOut, theirErr
	c.outputs = []*os.File{stdout, stderr}
	if c.req.Stdin == nil || *c.req.Stdin {
		theirIn, stdin, err := os.Pipe()
		if err != nil {
			return err
		}
		ours, theirs = append(ours, stdin), append(theirs, theirIn)
		c.cmd.Stdin, c.input = theirIn, stdin
	}
	return start(c.cmd)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// run passes on what the command prints until it has ended, and returns the end
// event.
func (c *command) run(wait func(*exec.Cmd) error) *process.ProcessEvent {
	var pumps sync.WaitGroup
	if c.terminal {
		pumps.Go(func() { c.pump(c.outputs[0], terminalChunk, terminalOutput) })
	} else {
		pumps.Go(func() { c.pump(c.outputs[0], pipeChunk, stdoutOutput) })
		pumps.Go(func() { c.pump(c.outputs[1], pipeChunk, stderrOutput) })
	}
	go func() {
		pumps.Wait()
		close(c.eof)
	}()

	// A command is not collected before the end of its output, which a child of it
	// may hold open: until then the pid means this command.
	select {
	case <-c.eof:
	case <-c.cut:
	}
	err := wait(c.cmd)
	c.mu.Lock()
	c.reaped = true
	c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}

	// After a cut there may be output that nobody will see.
	close(c.out.over)
	closeAll(c.outputs)
	if c.input != nil {
		c.input.Close()
	}
	<-c.eof
	return endEvent(c.cmd.ProcessState, err)
}

// pump publishes what r has until it ends; a closed terminal ends in an error.
func (c *command) pump(r *os.File, size int, event func([]byte) *process.ProcessEvent_DataEvent) {
	buf := make([]byte, size)
	for {
		n, err := r.Read(buf)
		if n > 0 && c.out.heard() {
			data := event(bytes.Clone(buf[:n]))
			c.out.publish(&process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: data}})
		}
		if err != nil {
			return
		}
	}
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

// signal sends sig to the command, not to its children. From then on its end does
// not wait for the end of the output.
func (c *command) signal(sig os.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reaped {
		return errEnded
	}
	if err := c.cmd.Process.Signal(sig); errors.Is(err, os.ErrProcessDone) {
		return errEnded
	} else if err != nil {
		return err
	}
	c.stopWaiting()
	return nil
}

// stopWaiting is called with mu held.
func (c *command) stopWaiting() {
	if !c.isCut {
		c.isCut = true
		close(c.cut)
	}
}

// expire kills the command at its deadline.
func (c *command) expire() {
	c.mu.Lock()
	// Before the signal: whoever sees the end sees also why.
	c.expired = !c.reaped
	c.mu.Unlock()
	_ = c.signal(syscall.SIGKILL) // it has ended: the better
}

func (c *command) hasExpired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.expired
}

// kill ends the command and all in its process group.
func (c *command) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reaped {
		killGroup(int(c.pid))
	}
	c.stopWaiting()
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

// write returns when the command's pipe or terminal has all of data. When ctx
// ends before, the rest is not written.
func (c *command) write(ctx context.Context, data []byte) error {
	if err := c.takeTurn(ctx); err != nil {
		return err
	}
	defer func() { <-c.turn }()
	if c.input == nil || c.closed {
		return errNoStdin
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.input.SetWriteDeadline(time.Unix(1, 0)) // fails only if closed, and then nothing waits
		close(interrupted)
	})
	_, err := c.input.Write(data)
	if !stop() {
		<-interrupted
		_ = c.input.SetWriteDeadline(time.Time{})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return ctx.Err()
		}
	}
	return err
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
	return c.input.Close()
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
	live    map[uint32]*command
	exits   map[uint32]exit
	groups  map[uint32]struct{} // groups that outlived their leader
}

func newProcessTable() processTable {
	return processTable{
		live:   make(map[uint32]*command),
		exits:  make(map[uint32]exit),
		groups: make(map[uint32]struct{}),
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
	maps.DeleteFunc(t.groups, func(pid uint32, _ struct{}) bool { return !groupAlive(int(pid)) })
	if s.closed {
		c.kill()
	}
	s.running.Add(1)
	s.mu.Unlock()
	s.log.Debug("command started", "pid", c.pid)
	go func() {
		defer s.running.Done()
		end := c.run(s.cfg.Wait)
		s.retire(c, end)
		c.out.finish(end)
		close(c.done)
		s.log.Debug("command ended", "pid", c.pid, "status", end.GetEnd().GetStatus())
	}()
}

// retire moves c from the live commands to the ended ones.
func (s *Server) retire(c *command, end *process.ProcessEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, now := &s.procs, s.now()
	if groupAlive(int(c.pid)) {
		t.groups[c.pid] = struct{}{}
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
