// Package interp is the emulated code interpreter: the HTTP service that a
// sandbox of the code-interpreter template has on port 49999. It runs inside the
// sandbox and keeps one live interpreter process, a kernel, per code context.
//
// # Differences from the real service
//
//   - There are kernels for Python, JavaScript and Bash, as far as Config names what
//     runs them. Any other language, TypeScript included, is answered like one for
//     which no kernel is installed.
//   - JavaScript that calls process.exit ends its kernel, as if that had died. The real
//     one then never answers again. The value undefined is not shown. The only form in
//     which a value is shown is text.
//   - Bash has no terminal. A trap of SIGINT lasts as long as the code that sets it, and a
//     shell that goes on for ten seconds after an interrupt is killed. Code that is not
//     complete is an error; the real one says nothing.
//   - Variables of one call (env_vars) are set in the kernel's environment, where
//     the real service pastes assignments before the code. Their values are read
//     as if they stood between single quotes in it, as there, but line numbers do
//     not shift, cell magics may stay first, and a cancelled call leaves nothing
//     behind. In Bash they are pasted. A variable that has no sandbox-wide value gets
//     back the one that it had before the call, but in Bash; the real service removes it.
//   - Sandbox-wide variables are in a kernel's environment from its start, also
//     when it replaces one that has died.
//   - Kernels start when they are first needed, and a dead one is noticed at once.
//     What it started ends with it.
//   - A request that comes while a cancelled execution is being interrupted waits
//     for its turn, unless Config.HangAfterCancel asks for the real behaviour.
//   - Output is never dropped, however fast it comes.
//   - Charts are read from figures as far as the recorded ones tell how. Of IPython there is what code written for
//     notebooks uses most: display and the classes of IPython.display, !commands,
//     and the magics %cd, %env, %matplotlib, %pip, %pwd, %time, %%bash, %%sh,
//     %%time and %%writefile.
//   - There is no /openapi.json.
package interp

import (
	"log/slog"
	"net/http"
	"os/exec"
	"sync"
	"time"
)

const defaultKeepAlive = 5 * time.Second

// Config says how a Server runs its kernels.
type Config struct {
	// Python is the absolute path of the python3 (3.8 or newer) that Python kernels
	// run. It must be the interpreter itself, not a script that looks for one. Empty
	// means that there is none.
	Python string
	// PythonErr says why there is none, if Python is empty. Callers get to see it.
	PythonErr string
	// Node is the absolute path of the Node.js that JavaScript kernels run, and Bash
	// that of the shell that Bash kernels run; the rest is as for Python.
	Node, NodeErr string
	Bash, BashErr string

	// Script runs in place of all kernels, if it is not nil.
	Script Script

	// Dir is the working directory of new kernels.
	Dir string
	// Environ and Env make up the complete environment of kernels; Env, the variables
	// of the sandbox, overrides Environ. One of Env that a call overrides has its value
	// again after the call.
	Environ []string
	Env     map[string]string

	// Start starts a child process and Wait waits for it. Nil means those of
	// os/exec.
	Start func(*exec.Cmd) error
	Wait  func(*exec.Cmd) error

	// HangAfterCancel imitates a fault of the real service. When a client goes away,
	// the context is free for the next request before the interrupted code has
	// ended, and a request that comes in this window is never answered: it gets
	// keepalive lines until its client gives up. If false, such a request waits
	// for its turn.
	HangAfterCancel bool

	// KeepAlive is the time without output after which an execution sends a
	// keepalive line. Default 5 s.
	KeepAlive time.Duration

	// Logger gets what happens to kernels, never code or output. Nil means none.
	Logger *slog.Logger
}

// Server is the code interpreter of one sandbox. It is an http.Handler.
type Server struct {
	cfg     Config
	log     *slog.Logger
	mux     *http.ServeMux
	kernels sync.WaitGroup // the goroutines of kernels and of delayed interrupts
	closing chan struct{}  // closed by Close

	patience time.Duration // the longest time between two interrupts of a shell that goes on

	mu       sync.Mutex
	closed   bool
	contexts []*codeContext    // in the order of their creation
	defaults map[string]string // language → ID of its default context, which may be deleted
}

// New returns a Server. It never blocks, and starts no process: kernels start
// with the first code that they get.
func New(cfg Config) *Server {
	if cfg.Start == nil {
		cfg.Start = (*exec.Cmd).Start
	}
	if cfg.Wait == nil {
		cfg.Wait = (*exec.Cmd).Wait
	}
	if cfg.KeepAlive <= 0 {
		cfg.KeepAlive = defaultKeepAlive
	}
	if noKernels != "" {
		cfg.Python, cfg.PythonErr = "", noKernels
		cfg.Node, cfg.NodeErr = "", noKernels
		cfg.Bash, cfg.BashErr = "", noKernels
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		cfg:      cfg,
		log:      log,
		closing:  make(chan struct{}),
		defaults: make(map[string]string),
		patience: 5 * time.Second,
	}
	s.mux = s.routes()
	if cfg.Python != "" || cfg.Script != nil {
		s.addContext(languagePython, "", true)
	}
	if cfg.Node != "" || cfg.Script != nil {
		s.addContext(languageJavaScript, "", true)
	}
	return s
}

// Close kills all kernels, cuts the responses under way, and returns when nothing
// is left of the kernels. It may be called more than once.
func (s *Server) Close() {
	s.mu.Lock()
	contexts := s.contexts
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	s.contexts = nil
	s.mu.Unlock()
	for _, c := range contexts {
		c.reset(outcomeClosed, true)
	}
	s.kernels.Wait()
}

func (s *Server) isClosing() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// spawn runs f in a goroutine that Close waits for. It reports false, and does
// nothing, if the server is closed.
func (s *Server) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.kernels.Go(f)
	return true
}
