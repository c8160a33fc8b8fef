package e2btest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/box"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/control"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/memnet"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/proxy"
)

// A Server is an E2B server: the API on one URL, the sandboxes behind another. It
// is safe for concurrent use.
type Server struct {
	opts     Options
	runtime  runtime
	control  *control.Server
	requests requestLog
	faults   faultList
	open     openRequests
	closed   chan struct{} // closed when Close has done its work
	closeErr error         // of that

	api, sandboxes listener
	memory         *memoryNetwork // nil: they are on loopback
	handlers       sync.WaitGroup
	mu             sync.Mutex
	closing        bool // no handler may begin
}

// A runtime is what runs the sandboxes.
type runtime interface {
	node.Node
	Isolated() (ok bool, reason string)
	Python() (string, error)
}

// A listener is one of the two HTTP servers.
type listener struct {
	net.Listener
	http   *http.Server
	served chan struct{}
}

// NewServer starts a server. opts may be nil. Close ends it; the end of the process
// ends it as well, and leaves no process of a sandbox behind.
func NewServer(opts *Options) (*Server, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("e2btest: %w", err)
	}
	if o.scripted() {
		return newServer(o, newScripted(&o))
	}
	if err := o.openState(opts == nil || opts.APIKey == ""); err != nil {
		return nil, fmt.Errorf("e2btest: %w", err)
	}
	local, err := box.New(box.Options{
		Dir: o.Dir, Keep: o.state.Sandboxes(), HostNetwork: o.HostNetwork, RequireIsolation: o.RequireIsolation,
		MemoryLimit: o.MemoryLimit, ProcessLimit: o.ProcessLimit,
		HangAfterCancel: o.HangAfterCancel, Logger: o.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("e2btest: %w", errors.Join(err, o.state.Close()))
	}
	return newServer(o, local)
}

// newServer serves the sandboxes of a runtime, which it closes in the end, as it does
// with the directory that keeps the state.
func newServer(o Options, r runtime) (*Server, error) {
	s := &Server{opts: o, runtime: r, faults: faultList{log: o.Logger, closed: make(chan struct{})}}
	s.faults.add(o.Faults)
	if err := s.listen(); err != nil {
		return nil, fmt.Errorf("e2btest: %w", errors.Join(err, r.Close(), o.state.Close()))
	}
	templates := control.DefaultTemplates()
	for _, name := range o.Templates {
		templates = append(templates, control.Template{Aliases: []string{name}})
	}
	for i := range templates {
		templates[i].EnvdVersion = o.EnvdVersion
	}
	s.control = control.New(control.Options{
		Node:         r,
		MeasureEvery: measureEvery(r),
		Teams:        o.teams(),
		Templates:    templates,
		Routes:       control.Routes(o.Routes),
		RateLimits:   o.rateLimits(),
		MaxRequests:  o.MaxConnections,
		Step:         s.faults.step,
		Logger:       o.Logger,
		RootIsPage:   o.StatusPage,
	})
	if err := s.takeOver(); err != nil {
		s.control.Close()
		return nil, fmt.Errorf("e2btest: StateDir: %w",
			errors.Join(err, s.api.Close(), s.sandboxes.Close(), r.Close(), o.state.Close()))
	}
	s.closed = make(chan struct{})
	s.serve(&s.api, s.control, false)
	s.serve(&s.sandboxes, s.open.opened(proxy.New(s.control, []string{"e2b.app", "localhost"}, o.Logger)), true)
	return s, nil
}

// The addresses of a server without a network.
const (
	memoryAPI     = "api.localhost"
	memorySandbox = "sandbox.localhost"
)

func (s *Server) listen() (err error) {
	if s.opts.inMemory() {
		s.memory = &memoryNetwork{memnet.Listen(memoryAPI), memnet.Listen(memorySandbox)}
		s.api.Listener, s.sandboxes.Listener = s.memory.api, s.memory.sandboxes
		return nil
	}
	if s.api.Listener, err = listen(s.opts.Addr); err != nil {
		return err
	}
	if s.sandboxes.Listener, err = listen(s.opts.SandboxAddr); err != nil {
		return errors.Join(err, s.api.Close())
	}
	return nil
}

// takeOver goes on with the state that an earlier server has left.
func (s *Server) takeOver() error {
	dir := s.opts.state
	if dir == nil {
		return nil
	}
	state, err := dir.State()
	if err != nil {
		return err
	}
	if err := s.control.KeepState(state, dir.Save); err != nil {
		return fmt.Errorf("%s: %w", dir.StateFile(), err)
	}
	return nil
}

// A memoryNetwork leads to a server that has no other.
type memoryNetwork struct{ api, sandboxes *memnet.Listener }

func (n *memoryNetwork) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	if host, _, _ := net.SplitHostPort(addr); host == memoryAPI {
		return n.api.Dial(ctx)
	}
	return n.sandboxes.Dial(ctx)
}

// measureEvery is how often the sandboxes of a runtime are measured without being
// asked for: never where time may be fake.
func measureEvery(r runtime) time.Duration {
	if _, local := r.(*box.Node); local {
		return 5 * time.Second
	}
	return 0
}

func listen(addr string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	if tcp, ok := l.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		// The name localhost may stand for anything.
		return nil, errors.Join(fmt.Errorf("%s is not on loopback", l.Addr()), l.Close())
	}
	return l, nil
}

func (s *Server) serve(l *listener, h http.Handler, sandbox bool) {
	h = s.requests.logged(s.faults.faulty(h, sandbox), sandbox)
	if !sandbox {
		h = s.withStatusPage(h)
	}
	l.http = &http.Server{
		Handler:           s.counted(h),
		Protocols:         new(http.Protocols),
		ReadHeaderTimeout: 10 * time.Second, // streams are what has no limit
		IdleTimeout:       620 * time.Second,
		ErrorLog:          slog.NewLogLogger(s.opts.Logger.Handler(), slog.LevelDebug),
	}
	l.http.Protocols.SetHTTP1(true)
	l.http.Protocols.SetUnencryptedHTTP2(true)
	l.served = make(chan struct{})
	side := ToAPI
	if sandbox {
		side = ToSandboxes
	}
	go func() {
		defer close(l.served)
		if err := l.http.Serve(&faultyListener{l.Listener, &s.faults, side}); !errors.Is(err, http.ErrServerClosed) {
			s.opts.Logger.ErrorContext(context.Background(), "the emulator serves no longer", "address", l.Addr(), "error", err)
		}
	}()
}

// counted lets Close wait for the handlers, which http.Server does not.
func (s *Server) counted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		if s.closing {
			s.mu.Unlock()
			panic(http.ErrAbortHandler)
		}
		s.handlers.Add(1)
		s.mu.Unlock()
		defer s.handlers.Done()
		h.ServeHTTP(w, r)
	})
}

// Close kills all sandboxes, removes their files, cuts all connections, and
// returns when nothing of the server is left. With Options.StateDir it pauses the
// sandboxes and leaves them there. It may be called again.
func (s *Server) Close() error {
	s.mu.Lock()
	first := !s.closing
	s.closing = true
	s.mu.Unlock()
	if first {
		s.closeErr = s.shutdown()
		close(s.closed)
	}
	<-s.closed // not a mutex, which would stop the time of a bubble
	return s.closeErr
}

func (s *Server) shutdown() error {
	close(s.faults.closed)
	err := errors.Join(s.api.http.Close(), s.sandboxes.http.Close())
	s.control.Close()
	<-s.api.served
	<-s.sandboxes.served
	s.handlers.Wait()
	err = errors.Join(err, s.control.Save(), s.runtime.Close(), s.opts.state.Close())
	if err != nil {
		return fmt.Errorf("e2btest: close: %w", err)
	}
	return nil
}

// APIURL returns the base URL of the API, for $E2B_API_URL.
func (s *Server) APIURL() string { return "http://" + s.api.Addr().String() }

// SandboxURL returns the URL through which all sandboxes are reached by the headers
// E2b-Sandbox-Id and E2b-Sandbox-Port, for $E2B_SANDBOX_URL.
func (s *Server) SandboxURL() string { return "http://" + s.sandboxes.Addr().String() }

// APIKey returns the key of Options.APIKey, for $E2B_API_KEY.
func (s *Server) APIKey() string { return s.opts.APIKey }

// Domain returns the domain, with a port, under which http://<port>-<sandbox
// ID>.<domain>/ leads to a port of a sandbox, on systems where all names below
// localhost are loopback.
func (s *Server) Domain() string {
	if s.memory != nil {
		return "localhost"
	}
	_, port, _ := net.SplitHostPort(s.sandboxes.Addr().String()) // an address of TCP has one
	return net.JoinHostPort("localhost", port)
}

// Advance moves the server's clock forward by d and returns when all that is due by
// then has happened: sandboxes whose time is over are killed or paused, in the
// order of their deadlines. The clock goes on by itself as well. The times in answers of
// the API are of this clock, as when a sandbox ends: see [Server.Now]. Inside the sandboxes
// time does not move; but what E2B signs for a time expires by this clock, also the
// signed URLs of files.
func (s *Server) Advance(d time.Duration) { s.control.Advance(d) }

// Now returns the time of the server's clock, which is that of the machine and what
// Advance has added to it, also for earlier servers with the same Options.StateDir.
func (s *Server) Now() time.Time { return s.control.Now() }

// Requests returns the requests that the server got, oldest first, API and sandboxes
// together. It keeps the newest 10,000.
func (s *Server) Requests() []Request { return s.requests.all() }

// Isolated reports whether sandboxes are isolated from this machine and from each
// other, and if not, why.
func (s *Server) Isolated() (ok bool, reason string) { return s.runtime.Isolated() }

// Python returns the path of the interpreter that runs Python code in the sandboxes,
// or why there is none.
func (s *Server) Python() (string, error) { return s.runtime.Python() }
