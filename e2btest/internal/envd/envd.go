package envd

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"os/exec"
	unixpath "path"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/filesystem/filesystemconnect"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process/processconnect"
)

// maxMessage bounds one message of a client. The real daemon has no bound.
const maxMessage = 256 << 20

// A User is someone whom commands run as and files belong to.
type User struct {
	Name   string
	Home   string
	UID    uint32
	GID    uint32
	Groups []uint32
	// Switch makes commands run with the credentials of the user. Without it they
	// run as the process that serves, and the users differ in name and home only.
	Switch bool
}

// Config says where and for whom a Server works.
type Config struct {
	// Root is the private directory of a server that is not alone in its
	// namespaces: absolute, with no symbolic link in it. Paths that are not below
	// it are refused, and no link and no ".." leads out of it. If it is empty,
	// paths are those of the process.
	Root string

	Users       []User
	DefaultUser string // acts when a request names nobody
	DefaultDir  string // what an empty path means; if empty too, the user's home

	Env  map[string]string // variables of all commands
	Path string            // PATH of all commands

	// AccessToken must come with nearly every request. If it is empty, no request
	// needs one.
	AccessToken string

	// Version is the version that is played: what came after it is missing. Empty
	// means the newest that this package knows.
	Version string

	// Script runs in place of a process for each command, and Memory has the files in
	// place of the system, if they are not nil. The server then works where there are no
	// processes, and in a bubble of testing/synctest.
	Script Script
	Memory *Memory

	// Start and Wait do what the methods of exec.Cmd do, and default to them.
	Start func(*exec.Cmd) error
	Wait  func(*exec.Cmd) error

	// Machine measures what /metrics tells of. If it is nil, that is the whole system.
	Machine func() Machine

	Logger *slog.Logger // nil: nothing is logged
}

// A Server is the daemon. It must be closed.
type Server struct {
	cfg     Config
	tree    tree
	log     *slog.Logger
	memory  memoryAttrs
	cpu     cpuClock
	routes  map[string]map[string]http.HandlerFunc // path → method
	refuse  *connect.ErrorWriter
	grace   time.Duration    // how long a stalled reader may stop the others
	now     func() time.Time // for the retention of exits
	began   time.Time
	running sync.WaitGroup // requests, commands, watchers

	mu       sync.Mutex
	closed   bool
	requests map[*request]struct{}
	procs    processTable
	watchers map[string]*watcher
}

// New returns a Server. It does not block.
func New(cfg Config) *Server {
	if cfg.Root != "" {
		cfg.Root = unixpath.Clean(cfg.Root)
	}
	s := &Server{
		cfg:      cfg,
		tree:     hostTree{},
		log:      cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		refuse:   connect.NewErrorWriter(),
		grace:    time.Second,
		now:      time.Now,
		began:    time.Now(),
		requests: make(map[*request]struct{}),
		procs:    newProcessTable(),
		watchers: make(map[string]*watcher),
	}
	if cfg.Script == nil {
		keepFiles()
	}
	switch {
	case cfg.Memory != nil:
		s.tree = cfg.Memory
	case cfg.Root != "":
		s.tree = newRootTree(cfg.Root)
	}
	if s.cfg.Start == nil {
		s.cfg.Start = (*exec.Cmd).Start
	}
	if s.cfg.Wait == nil {
		s.cfg.Wait = (*exec.Cmd).Wait
	}
	s.routes = map[string]map[string]http.HandlerFunc{
		"/health":  {http.MethodGet: s.getHealth},
		"/metrics": {http.MethodGet: s.getMetrics},
		"/envs":    {http.MethodGet: s.getEnvs},
		"/files":   {http.MethodGet: s.getFile, http.MethodPost: s.postFiles},
	}
	if s.since("0.5.5") {
		s.routes["/files/compose"] = map[string]http.HandlerFunc{http.MethodPost: s.postCompose}
	}
	return s
}

// since says whether the version that is played has what came with version v.
func (s *Server) since(v string) bool {
	if s.cfg.Version == "" {
		return true
	}
	have, want := strings.Split(s.cfg.Version, "."), strings.Split(v, ".")
	for i, part := range want {
		if i >= len(have) {
			return false
		}
		h, _ := strconv.Atoi(have[i]) // what is no number counts as 0
		w, _ := strconv.Atoi(part)
		if h != w {
			return h > w
		}
	}
	return true
}

// A request is one call of ServeHTTP that has not returned.
type request struct {
	control *http.ResponseController
	cancel  context.CancelFunc
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	req := &request{control: http.NewResponseController(w), cancel: cancel}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		http.Error(w, "envd has stopped", http.StatusServiceUnavailable)
		return
	}
	s.requests[req] = struct{}{}
	s.running.Add(1)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.requests, req)
		s.mu.Unlock()
		s.running.Done()
	}()
	s.serve(w, r.WithContext(ctx))
}

// Close ends all commands and streams and waits for them. Streams break off, as
// those of a daemon that dies.
func (s *Server) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.running.Wait()
		return
	}
	s.closed = true
	for req := range s.requests {
		// First the connection, so that no request can still say that all went well.
		// Not every ResponseWriter has deadlines; with those that have none, the
		// stream ends with an error.
		past := time.Unix(1, 0)
		_ = req.control.SetWriteDeadline(past)
		_ = req.control.SetReadDeadline(past) // net/http ends the request at once, which would be told
		req.cancel()
	}
	for _, c := range s.procs.live {
		c.kill()
	}
	for _, w := range s.watchers {
		w.stop()
	}
	s.mu.Unlock()

	s.running.Wait()
	for group := range s.procs.groups {
		killGroup(group)
	}
	s.tree.close()
}

// serve is the chain that every request goes through: CORS, token, user, route.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if preflight(w, r) {
		return
	}
	if !s.authorized(r) {
		jsonError(w, http.StatusUnauthorized, unauthorizedMessage)
		return
	}
	u, err := s.actor(r)
	if err != nil {
		_ = s.refuse.Write(w, r, err) // the client is gone
		return
	}
	r = r.WithContext(withCaller(r.Context(), s, u))

	if methods, ok := s.routes[r.URL.Path]; ok {
		if handle, ok := methods[r.Method]; ok {
			handle(w, r)
			return
		}
		for method := range methods {
			w.Header().Add("Allow", method)
		}
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	for prefix, handler := range services() {
		if strings.HasPrefix(r.URL.Path, prefix) && s.knows(r.URL.Path) {
			handler.ServeHTTP(w, r)
			return
		}
	}
	http.NotFound(w, r)
}

// services are those of all servers, by the prefixes of their paths: to make them costs
// more than a short command.
var services = sync.OnceValue(func() map[string]http.Handler {
	limit := connect.WithReadMaxBytes(maxMessage)
	all := make(map[string]http.Handler)
	prefix, handler := processconnect.NewProcessHandler(processService{}, limit)
	all[prefix] = handler
	prefix, handler = filesystemconnect.NewFilesystemHandler(filesystemService{}, limit)
	all[prefix] = handler
	return all
})

// knows says whether the version that is played has the method.
func (s *Server) knows(procedure string) bool {
	return procedure != processconnect.ProcessCloseStdinProcedure || s.since("0.5.2")
}

// preflight puts the CORS headers to the answer and says whether r was a
// preflight, which needs nothing more.
func preflight(w http.ResponseWriter, r *http.Request) bool {
	h := w.Header()
	origin := r.Header.Get("Origin")
	method := r.Header.Get("Access-Control-Request-Method")
	if r.Method != http.MethodOptions || method == "" {
		h.Set("Vary", "Origin")
		if origin != "" {
			h.Set("Access-Control-Allow-Origin", "*")
			h.Set("Access-Control-Expose-Headers", "Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin, "+
				"Location, Cache-Control, X-Content-Type-Options")
		}
		return false
	}
	h.Set("Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers")
	if origin != "" {
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Allow-Methods", method)
		if headers := r.Header.Get("Access-Control-Request-Headers"); headers != "" {
			h.Set("Access-Control-Allow-Headers", headers)
		}
		h.Set("Access-Control-Max-Age", "7200")
	}
	w.WriteHeader(http.StatusNoContent)
	return true
}

func (s *Server) getHealth(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "")
	w.WriteHeader(http.StatusNoContent)
}
