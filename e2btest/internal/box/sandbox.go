//go:build linux || darwin

package box

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/agent"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// Why a sandbox does not do what it is asked for.
var (
	ErrKilled     = errors.New("the sandbox was killed")
	ErrNotRunning = errors.New("the sandbox is not running")
)

type state int

const (
	off     state = iota // it has files and no process
	running              // it has a process
	frozen               // it has a process that is frozen
	killed               // it has nothing
)

// A sandbox implements node.Sandbox.
type sandbox struct {
	node *Node
	spec node.Spec
	dir  string

	// op is held by what changes the state, for as long as that takes.
	op sync.Mutex
	// asking is held while the process is asked for something.
	asking sync.Mutex

	mu    sync.Mutex
	state state // written with op held
	proc  *process
	conns map[*conn]struct{} // the open ones to proc
}

var _ node.Sandbox = (*sandbox)(nil)

func (s *sandbox) root() string { return filepath.Join(s.dir, rootName) }

// set enters a new state. Connections end with the state in which they were made.
func (s *sandbox) set(state state, p *process) {
	s.mu.Lock()
	s.state, s.proc = state, p
	conns := s.conns
	s.conns = make(map[*conn]struct{})
	s.mu.Unlock()
	for c := range conns {
		c.UnixConn.Close()
	}
}

// start makes a fresh sandbox.
func (s *sandbox) start(ctx context.Context) error {
	s.op.Lock()
	defer s.op.Unlock()
	if s.state == killed {
		return ErrClosed
	}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		s.state = killed
		s.node.forget(s) // the directory is another one's
		return err
	}
	if err := s.boot(ctx, func() error { return s.createFiles(ctx) }); err != nil {
		return errors.Join(err, s.kill())
	}
	return nil
}

func (s *sandbox) createFiles(ctx context.Context) error {
	if i, ok := s.spec.Image.(*image); ok {
		return i.copyTo(ctx, s.root())
	}
	if l := s.node.layout; l != nil {
		return l.create(s.root(), s.node.config.OneUser)
	}
	return createPlain(s.root())
}

// boot starts the process, with files that are there or are made by prepare.
func (s *sandbox) boot(ctx context.Context, prepare func() error) error {
	cfg := s.node.config
	cfg.Spec = s.spec
	cfg.Root = s.root()
	var err error
	if cfg.Volumes, err = s.node.volumes(s.spec.Volumes); err != nil {
		return err
	}
	p, err := s.node.startProcess(ctx, cfg, s.node.log.With("sandbox", s.spec.ID), prepare)
	if err != nil {
		return err
	}
	s.set(running, p)
	return nil
}

// Pause implements node.Sandbox.
func (s *sandbox) Pause(ctx context.Context, keepMemory bool) error {
	s.op.Lock()
	defer s.op.Unlock()
	switch s.state {
	case killed:
		return ErrKilled
	case running:
	case frozen:
		if keepMemory {
			return nil
		}
	case off:
		return nil
	}
	p := s.proc
	if !keepMemory {
		s.set(off, nil)
		return p.end()
	}
	if err := p.freeze(ctx); err != nil {
		return errors.Join(fmt.Errorf("pause sandbox %s: %w", s.spec.ID, err), s.thawAnyway(ctx))
	}
	s.set(frozen, p)
	return nil
}

// Resume implements node.Sandbox.
func (s *sandbox) Resume(ctx context.Context, reboot bool) error {
	s.op.Lock()
	defer s.op.Unlock()
	switch s.state {
	case killed:
		return ErrKilled
	case off:
	case running:
		if !reboot {
			return nil
		}
	case frozen:
		if !reboot {
			if err := s.proc.thaw(ctx); err != nil {
				return fmt.Errorf("resume sandbox %s: %w", s.spec.ID, err)
			}
			s.set(running, s.proc)
			return nil
		}
	}
	if p := s.proc; p != nil {
		s.set(off, nil)
		if err := p.end(); err != nil {
			return fmt.Errorf("reboot sandbox %s: %w", s.spec.ID, err)
		}
	}
	if err := s.boot(ctx, func() error { return nil }); err != nil {
		return fmt.Errorf("boot sandbox %s: %w", s.spec.ID, err)
	}
	return nil
}

// Snapshot implements node.Sandbox.
func (s *sandbox) Snapshot(ctx context.Context) (_ node.Image, err error) {
	s.op.Lock()
	defer s.op.Unlock()
	switch s.state {
	case killed:
		return nil, ErrKilled
	case running:
	case off, frozen:
		return nil, ErrNotRunning
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("snapshot of sandbox %s: %w", s.spec.ID, err)
		}
	}()
	// Not a pause: connections stay, and stall.
	if err := s.proc.freeze(ctx); err != nil {
		return nil, errors.Join(err, s.thawAnyway(ctx))
	}
	i, err := s.node.newImage(ctx, s.root())
	if thawErr := s.thawAnyway(ctx); thawErr != nil {
		if i != nil {
			thawErr = errors.Join(thawErr, i.Remove())
		}
		return nil, errors.Join(err, thawErr)
	}
	if err != nil {
		return nil, err
	}
	return i, nil
}

// thawAnyway lets a sandbox go on that was to be frozen, although ctx may be over.
func (s *sandbox) thawAnyway(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return s.proc.thaw(ctx)
}

// Kill implements node.Sandbox.
func (s *sandbox) Kill() error {
	s.op.Lock()
	defer s.op.Unlock()
	return s.kill()
}

func (s *sandbox) kill() error {
	if s.state == killed {
		return nil
	}
	defer s.node.forget(s) // not before: the end of the node waits for those that it knows
	if err := errors.Join(s.end(), s.node.discard(s.dir)); err != nil {
		return fmt.Errorf("kill sandbox %s: %w", s.spec.ID, err)
	}
	return nil
}

// end ends the sandbox and leaves its files.
func (s *sandbox) end() error {
	p := s.proc
	s.set(killed, nil)
	if p == nil {
		return nil
	}
	return p.end()
}

// close ends the sandbox together with its node.
func (s *sandbox) close() error {
	s.op.Lock()
	defer s.op.Unlock()
	if s.state == killed || !s.node.dir.kept {
		return s.kill()
	}
	defer s.node.forget(s)
	return s.end()
}

// Dial implements node.Sandbox.
func (s *sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	if port == node.InterpreterPort && s.spec.Template == node.BaseTemplate {
		return nil, node.ErrPortClosed
	}
	s.mu.Lock()
	p, state := s.proc, s.state
	s.mu.Unlock()
	switch state {
	case running:
	case killed:
		return nil, ErrKilled
	default:
		return nil, ErrNotRunning
	}
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, "unix", p.socket(port))
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("%w: %w", ErrNotRunning, err)
	}
	if err != nil {
		return nil, err
	}
	unixConn, ok := raw.(*net.UnixConn)
	if !ok {
		raw.Close()
		return nil, fmt.Errorf("unexpected connection %T", raw)
	}
	c := &conn{UnixConn: unixConn, sandbox: s}
	s.mu.Lock()
	current := s.proc == p && s.state == running
	if current {
		s.conns[c] = struct{}{}
	}
	s.mu.Unlock()
	if !current {
		unixConn.Close()
		return nil, ErrNotRunning
	}
	if port != node.EnvdPort && port != node.InterpreterPort {
		if err := c.selectPort(ctx, port); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// socket returns the path of the socket that leads to the port.
func (p *process) socket(port int) string {
	switch port {
	case node.EnvdPort:
		return p.sockets[0]
	case node.InterpreterPort:
		return p.sockets[agent.InterpreterFD-agent.EnvdFD]
	default:
		return p.sockets[agent.ForwardFD-agent.EnvdFD]
	}
}

// A conn is a connection to the inside, which ends when the sandbox is paused.
type conn struct {
	*net.UnixConn
	sandbox *sandbox
}

// Close closes the connection.
func (c *conn) Close() error {
	c.sandbox.mu.Lock()
	delete(c.sandbox.conns, c)
	c.sandbox.mu.Unlock()
	return c.UnixConn.Close()
}

// selectPort has the agent connect c to a port.
func (c *conn) selectPort(ctx context.Context, port int) error {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	answer := make([]byte, len(agent.PortOpen))
	_, err := fmt.Fprintf(c.UnixConn, "%d\n", port)
	if err == nil {
		_, err = io.ReadFull(c.UnixConn, answer)
	}
	switch {
	case !stop():
		// The deadline is, or is about to be, in the past: c is of no use.
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("%w: %w", ErrNotRunning, err)
	case string(answer) != agent.PortOpen:
		return node.ErrPortClosed
	}
	return nil
}
