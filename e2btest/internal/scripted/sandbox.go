package scripted

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"sync"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/envd"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/interp"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/memnet"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// The users of a sandbox, as E2B's templates have them.
var users = []envd.User{
	{Name: "root", Home: "/root"},
	{Name: "user", Home: HomeDir, UID: userID, GID: userID},
}

const (
	// HomeDir is the home of the default user, in which code runs.
	HomeDir = "/home/user"
	userID  = 1000
	path    = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// newFiles returns the files of a new sandbox.
func newFiles() (*envd.Memory, error) {
	m := envd.NewMemory()
	for _, d := range []struct {
		name string
		perm fs.FileMode
		id   int
	}{
		{"/home", 0o755, 0}, {HomeDir, 0o755, userID}, {"/root", 0o700, 0}, {"/tmp", 0o755, 0},
	} {
		if err := m.MakeDir(d.name, d.perm, d.id, d.id); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// errNotRunning is the error of a connection to a sandbox that is paused or gone.
var errNotRunning = errors.New("the sandbox is not running")

// A Sandbox is a node.Sandbox.
type Sandbox struct {
	node  *Node
	spec  node.Spec
	files *envd.Memory

	mu      sync.Mutex
	awake   chan struct{} // closed while the sandbox is not paused
	machine *machine      // nil: it is off
	ending  chan struct{} // closed when nothing runs of the machine that was ended last; may be nil
	running bool
	killed  bool
}

// A machine is a sandbox from a boot to its end.
type machine struct {
	envd   *envd.Server
	interp *interp.Server // nil: there is none

	// Guarded by the mutex of the sandbox.
	ports   map[int]*memnet.Listener // of commands
	servers map[int]*memnet.Server   // of its own, once somebody has come
}

var (
	_ node.Sandbox = (*Sandbox)(nil)
	_ node.Meter   = (*Sandbox)(nil)
)

// ID returns the ID of the sandbox.
func (s *Sandbox) ID() string { return s.spec.ID }

// Files returns its file system.
func (s *Sandbox) Files() *envd.Memory { return s.files }

// boot starts a machine.
func (s *Sandbox) boot() error {
	opts := s.node.opts
	env := map[string]string{"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": s.spec.ID, "E2B_TEMPLATE_ID": s.spec.Template}
	maps.Copy(env, s.spec.Env)
	m := &machine{ports: make(map[int]*memnet.Listener), servers: make(map[int]*memnet.Server)}
	m.envd = envd.New(envd.Config{
		Users: users, DefaultUser: "user", Env: env, Path: path,
		AccessToken: s.spec.AccessToken, Version: s.spec.EnvdVersion, Logger: opts.Logger,
		Memory: s.files, Machine: machineOf,
		Script: func(ctx context.Context, inv *envd.Invocation) int { return s.run(ctx, inv) },
	})
	if opts.Code != nil && s.spec.Template != node.BaseTemplate {
		m.interp = interp.New(interp.Config{
			Dir: HomeDir, Env: env, HangAfterCancel: opts.HangAfterCancel, Logger: opts.Logger,
			Script: func(ctx context.Context, x *interp.Execution) error { return s.code(ctx, x) },
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.killed {
		return errNotRunning // meanwhile; the machine has started nothing yet
	}
	s.awake = make(chan struct{})
	close(s.awake)
	s.machine, s.running = m, true
	return nil
}

// machineOf is what every sandbox is said to have, and does not use.
func machineOf() envd.Machine {
	return envd.Machine{CPUs: node.CPUCount, MemoryTotal: node.MemoryMB << 20, DiskTotal: node.DiskMB << 20}
}

func (s *Sandbox) run(ctx context.Context, inv *envd.Invocation) int {
	if s.node.opts.Run == nil {
		fmt.Fprintf(inv.Stderr, "%s: command not found: there is no function that runs commands\n", inv.Args[0])
		return 127
	}
	inv.Stdin = &gate{s, ctx, inv.Stdin, nil}
	out := &gate{s, ctx, nil, inv.Stdout}
	if inv.Stdout = out; inv.Terminal {
		inv.Stderr = out
	} else {
		inv.Stderr = &gate{s, ctx, nil, inv.Stderr}
	}
	return s.node.opts.Run(ctx, s, inv)
}

func (s *Sandbox) code(ctx context.Context, x *interp.Execution) error {
	x.Stdout, x.Stderr = &gate{s, ctx, nil, x.Stdout}, &gate{s, ctx, nil, x.Stderr}
	show := x.Show
	x.Show = func(main bool, formats map[string]any) error {
		if err := s.wait(ctx); err != nil {
			return err
		}
		return show(main, formats)
	}
	return s.node.opts.Code(ctx, s, x)
}

// end ends the machine, and returns when nothing of it runs.
func (s *Sandbox) end() {
	s.mu.Lock()
	m := s.machine
	s.machine, s.running = nil, false
	if m == nil {
		ending := s.ending
		s.mu.Unlock()
		if ending != nil {
			<-ending // by somebody else
		}
		return
	}
	over := make(chan struct{})
	defer close(over)
	s.ending = over
	s.mu.Unlock()
	for _, l := range m.ports {
		_ = l.Close() // has no error
	}
	for _, server := range m.servers {
		server.Close()
	}
	m.envd.Close()
	if m.interp != nil {
		m.interp.Close()
	}
}

// Pause implements node.Sandbox. With memory, functions go on until they next read or
// write.
func (s *Sandbox) Pause(_ context.Context, keepMemory bool) error {
	s.mu.Lock()
	if s.killed {
		s.mu.Unlock()
		return errNotRunning
	}
	if s.running {
		s.awake = make(chan struct{})
	}
	s.running = false
	s.mu.Unlock()
	if !keepMemory {
		s.end()
	}
	return nil
}

// Resume implements node.Sandbox.
func (s *Sandbox) Resume(_ context.Context, reboot bool) error {
	s.mu.Lock()
	if s.killed {
		s.mu.Unlock()
		return errNotRunning
	}
	reboot = reboot || s.machine == nil
	if !reboot && !s.running {
		close(s.awake)
		s.running = true
	}
	s.mu.Unlock()
	if reboot {
		s.end()
		return s.boot()
	}
	return nil
}

// Snapshot implements node.Sandbox.
func (s *Sandbox) Snapshot(context.Context) (node.Image, error) {
	return image{s.files.Clone()}, nil
}

// Kill implements node.Sandbox.
func (s *Sandbox) Kill() error {
	s.mu.Lock()
	s.killed = true
	s.mu.Unlock()
	s.end()
	s.node.forget(s)
	return nil
}

// Usage implements node.Meter: functions use nothing.
func (s *Sandbox) Usage(context.Context) (node.Usage, error) {
	_, err := s.live()
	return node.Usage{}, err
}

// Processes implements node.Meter.
func (s *Sandbox) Processes(context.Context) ([]node.Process, error) {
	m, err := s.live()
	if err != nil {
		return nil, err
	}
	return m.envd.Processes(), nil
}

// live returns the machine of a running sandbox.
func (s *Sandbox) live() (*machine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		return nil, node.ErrBusy
	}
	return s.machine, nil
}

// Listen opens a port of a running sandbox.
func (s *Sandbox) Listen(port int) (net.Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case port <= 0 || port > 65535:
		return nil, fmt.Errorf("listen: there is no port %d", port)
	case s.machine == nil:
		return nil, errNotRunning
	case port == node.EnvdPort || port == node.InterpreterPort || s.machine.open(port):
		return nil, fmt.Errorf("listen: port %d is in use", port)
	}
	l := memnet.Listen(fmt.Sprintf("127.0.0.1:%d", port))
	s.machine.ports[port] = l
	return l, nil
}

// open says whether a command listens.
func (m *machine) open(port int) bool {
	l := m.ports[port]
	if l == nil {
		return false
	}
	select {
	case <-l.Done():
		return false
	default:
		return true
	}
}

// dialLocked returns how to connect to a port, or nil. The servers of the sandbox itself
// start when they are first needed.
func (s *Sandbox) dialLocked(port int) func(context.Context) (net.Conn, error) {
	m := s.machine
	if m.open(port) {
		return m.ports[port].Dial
	}
	server := m.servers[port]
	switch {
	case server != nil:
	case port == node.EnvdPort:
		server = memnet.Serve("envd", m.envd)
	case port == node.InterpreterPort && m.interp != nil:
		server = memnet.Serve("interpreter", m.interp)
	default:
		return nil
	}
	m.servers[port] = server
	return server.Dial
}

// Dial implements node.Sandbox.
func (s *Sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	s.mu.Lock()
	if !s.running {
		s.mu.Unlock()
		return nil, errNotRunning
	}
	dial := s.dialLocked(port)
	s.mu.Unlock()
	if dial == nil {
		return nil, node.ErrPortClosed
	}
	c, err := dial(ctx)
	if errors.Is(err, net.ErrClosed) {
		return nil, node.ErrPortClosed
	}
	return c, err
}

// wait waits until the sandbox is not paused. A command that got SIGTERM may still
// read and write; nothing else may whose context has ended.
func (s *Sandbox) wait(ctx context.Context) error {
	s.mu.Lock()
	awake := s.awake
	s.mu.Unlock()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, node.ErrTerminated) {
		return cause
	}
	select {
	case <-awake:
		return nil
	default:
	}
	select {
	case <-awake:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
