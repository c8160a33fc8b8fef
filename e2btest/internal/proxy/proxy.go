// Package proxy is the emulated way to the ports of the sandboxes: it finds the
// sandbox by headers or by host name, wakes it where that is allowed, passes the
// request on, and answers itself, as E2B's proxies do, where it cannot.
package proxy

import (
	"context"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// Names of headers.
const (
	headerSandboxID    = "E2b-Sandbox-Id"
	headerPort         = "E2b-Sandbox-Port"
	headerAccessToken  = "X-Access-Token"
	headerTrafficToken = "E2b-Traffic-Access-Token"
)

// Traffic is what a Router needs to know of a request.
type Traffic struct {
	SandboxID    string
	Port         int
	AccessToken  string // of envd, as the client sent it
	TrafficToken string // as the client sent it
}

// A Target is where traffic goes.
type Target struct {
	Run          *Run
	TrafficToken string        // demanded on every port but envd's; empty: none is
	MaskHost     string        // Host for the user's servers, with ${PORT}; empty: as the client sent it
	MaxRequests  int           // at the same time; 0: no limit
	Clock        time.Duration // how far the emulator's clock is ahead, for envd
}

// A Router finds the running sandbox for traffic, and wakes it first where
// traffic may do that. Its errors are ErrNotFound, ErrDenied or a QuotaError.
type Router interface {
	Route(ctx context.Context, t Traffic) (Target, error)
}

// Errors of a Router.
var (
	ErrNotFound = errors.New("proxy: sandbox not found")
	ErrDenied   = errors.New("proxy: the credentials do not allow to resume the sandbox")
)

// A QuotaError says that the sandbox could not be woken since too many run.
type QuotaError struct{ Message string }

// Error makes QuotaError an error.
func (e *QuotaError) Error() string { return "proxy: " + e.Message }

// A Handler is the proxy.
type Handler struct {
	router  Router
	domains []string
	log     *slog.Logger
}

// New returns a proxy in front of the sandboxes of router. Under
// sandbox.<domain>, for each of the domains, the sandbox is found by headers.
func New(router Router, domains []string, log *slog.Logger) *Handler {
	return &Handler{router: router, domains: domains, log: log}
}

// ServeHTTP passes a request on to its sandbox.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, port, err := h.destination(r)
	if err != nil {
		http.Error(w, err.text, err.status)
		return
	}
	if port == node.EnvdPort {
		if clean := path.Clean("/" + r.URL.Path); slices.Contains(reservedPaths, clean) {
			reserved(clean).write(w, r)
			return
		}
	}
	token := r.Header.Get(headerTrafficToken)
	target, routeErr := h.router.Route(r.Context(), Traffic{
		SandboxID: id, Port: port, AccessToken: r.Header.Get(headerAccessToken), TrafficToken: token,
	})
	if routeErr != nil {
		refusal(id, routeErr).write(w, r)
		return
	}
	if want := target.TrafficToken; want != "" && port != node.EnvdPort {
		switch {
		case token == "":
			trafficDenied(id, "Token header 'e2b-traffic-access-token' is missing").write(w, r)
			return
		case !equal(token, want):
			trafficDenied(id, "Provided token in header 'e2b-traffic-access-token' is invalid").write(w, r)
			return
		}
	}
	if !target.Run.enter(target.MaxRequests) {
		tooMany(id, target.MaxRequests).write(w, r)
		return
	}
	defer target.Run.leave()
	h.forward(w, r, target, id, port)
}

// reservedPaths of envd are for the node that runs the sandbox.
var reservedPaths = []string{"/init", "/freeze", "/unfreeze", "/fsfreeze", "/fsthaw", "/collapse", "/upgrade"}

func equal(a, b string) bool {
	return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}

func refusal(id string, err error) *answer {
	if quota, ok := errors.AsType[*QuotaError](err); ok {
		return quotaReached(id, quota.Message)
	}
	if errors.Is(err, ErrDenied) {
		return resumeDenied(id)
	}
	return notFound(id)
}

// A textError is an answer to a request that names no sandbox.
type textError struct {
	status int
	text   string
}

var (
	errInvalidHost   = &textError{http.StatusBadRequest, "Invalid host"}
	errMissingHeader = &textError{http.StatusBadRequest, "missing header"}
	errInvalidID     = &textError{http.StatusBadRequest, "Invalid sandbox ID"}
	// E2B means this to be a 400 as well.
	errInvalidPort = &textError{http.StatusInternalServerError, "Unexpected error when routing request: invalid sandbox port"}
)

var validID = regexp.MustCompile(`^[a-z0-9]+$`)

// destination reads sandbox and port from the headers, which count only under a
// host name that names no sandbox itself, or from the host name.
func (h *Handler) destination(r *http.Request) (string, int, *textError) {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	id, port := r.Header.Get(headerSandboxID), r.Header.Get(headerPort)
	switch {
	case !h.sharedHost(host) || id == "" && port == "":
		label, _, found := strings.Cut(host, ".")
		parts := strings.Split(label, "-")
		if !found || len(parts) < 2 {
			return "", 0, errInvalidHost
		}
		port, id = parts[0], parts[1]
	case id == "" || port == "":
		return "", 0, errMissingHeader
	}
	if !validID.MatchString(id) {
		return "", 0, errInvalidID
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", 0, errInvalidPort
	}
	return id, int(n), nil
}

func (h *Handler) sharedHost(host string) bool {
	if host == "localhost" {
		return true
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	domain, ok := strings.CutPrefix(host, "sandbox.")
	return ok && slices.Contains(h.domains, domain)
}

// forward passes the request on and its answer back. When the run ends, the
// connection is broken off, so that no client takes a part for the whole.
func (h *Handler) forward(w http.ResponseWriter, r *http.Request, target Target, id string, port int) {
	run := target.Run
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	out := &writer{ResponseWriter: w, run: run}
	stop := context.AfterFunc(run.ctx, func() {
		cancel()
		out.cut()
	})
	defer stop() // also where ReverseProxy panics for a client that has gone
	// A sandbox may answer before it has read the whole request. HTTP/2 needs
	// nothing for that, and says so with an error.
	_ = http.NewResponseController(w).EnableFullDuplex()
	reverse := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme = "http"
			p.Out.URL.Host = net.JoinHostPort("sandbox", strconv.Itoa(port))
			p.Out.URL.RawQuery = p.In.URL.RawQuery // also what net/url cannot parse
			p.Out.Host = p.In.Host
			if port == node.EnvdPort {
				p.Out.Header.Del(node.ClockHeader) // it is not the client's to say
				if target.Clock != 0 {
					p.Out.Header.Set(node.ClockHeader, target.Clock.String())
				}
			}
			if target.MaskHost != "" && port != node.EnvdPort {
				p.Out.Host = strings.ReplaceAll(target.MaskHost, "${PORT}", strconv.Itoa(port))
			}
		},
		Transport: run.transport(port),
		// The writer flushes by itself. ReverseProxy would do it with a timer that waits
		// for a mutex while a client does not read, and so stop the time of a bubble; it
		// does so where it finds no length.
		ModifyResponse: func(resp *http.Response) error {
			resp.ContentLength = max(resp.ContentLength, 0)
			return nil
		},
		BufferPool: buffers{},
		ErrorLog:   slog.NewLogLogger(h.log.Handler(), slog.LevelDebug),
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			if !errors.Is(err, node.ErrPortClosed) {
				run.expectEnd(r.Context())
			}
			switch {
			case run.ctx.Err() != nil:
				notFound(id).write(w, r)
			case r.Context().Err() == nil:
				h.log.DebugContext(r.Context(), "sandbox did not answer", "sandbox", id, "port", port, "error", err)
				portClosed(id, port).write(w, r)
			}
		},
	}
	reverse.ServeHTTP(out, r.WithContext(ctx))
	if !stop() && out.started.Load() && r.Context().Value(http.ServerContextKey) != nil {
		// The answer came to its end as the run did. Whether its last bytes went
		// out is open, so it must not look complete.
		panic(http.ErrAbortHandler)
	}
}

// buffers are what answers are copied with.
type buffers struct{}

var freeBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// Get implements httputil.BufferPool.
func (buffers) Get() []byte {
	b, _ := freeBuffers.Get().(*[32 << 10]byte) // there is nothing else
	return b[:]
}

// Put implements httputil.BufferPool.
func (buffers) Put(b []byte) { freeBuffers.Put((*[32 << 10]byte)(b)) }

// A writer sends all that is written at once, and unblocks writes to a client that does
// not read when the run ends.
type writer struct {
	http.ResponseWriter
	run     *Run
	started atomic.Bool // the answer, so that there is no other one to give
}

// Unwrap lets http.ResponseController reach the server's own writer.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader passes the status on.
func (w *writer) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.started.Store(true)
		if w.run.ctx.Err() != nil {
			w.cut()
		}
	}
	w.ResponseWriter.WriteHeader(status)
	if status >= http.StatusOK && w.Header().Get("Content-Length") == "" {
		_ = http.NewResponseController(w.ResponseWriter).Flush() // what follows may take long; an error is met there
	}
}

// Write writes and sends b.
func (w *writer) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	if err == nil {
		_ = http.NewResponseController(w.ResponseWriter).Flush() // the next write meets an error
	}
	return n, err
}

// cut makes all further writes of an answer that has begun fail.
func (w *writer) cut() {
	if w.started.Load() {
		// A writer without deadlines does not block either.
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
	}
}
