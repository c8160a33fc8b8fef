package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// errEnded is why a request to a run that has ended fails.
var errEnded = errors.New("proxy: the sandbox is not running")

// A Run is a sandbox between its start or resume and its pause or end: the time
// during which its connections live.
type Run struct {
	sandbox node.Sandbox

	// ctx ends with the run; each request through it derives its own from it.
	ctx    context.Context
	cancel context.CancelFunc

	// pooled is for the ports of E2B's own servers. A server of the user may drop
	// an idle connection just as a request goes out on it, so single makes one
	// connection for each request, as E2B does.
	pooled, single *http.Transport

	mu    sync.Mutex
	conns map[*conn]struct{}

	requests atomic.Int64 // under way
}

// NewRun begins a run of sandbox.
func NewRun(sandbox node.Sandbox) *Run {
	r := &Run{sandbox: sandbox, conns: make(map[*conn]struct{})}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.pooled = &http.Transport{
		DialContext:         r.dial,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     10 * time.Minute,
	}
	r.single = r.pooled.Clone()
	r.single.DisableKeepAlives = true
	return r
}

// End cuts the streams of the run and closes its connections. It may be called
// again.
func (r *Run) End() {
	r.cancel()
	r.mu.Lock()
	conns := r.conns
	r.conns = nil
	r.mu.Unlock()
	for c := range conns {
		_ = c.Conn.Close() // there is nothing to lose
	}
	r.pooled.CloseIdleConnections()
}

// enter counts a request, unless there are as many as limit already; 0 is no limit.
func (r *Run) enter(limit int) bool {
	if n := r.requests.Add(1); limit == 0 || n <= int64(limit) {
		return true
	}
	r.leave()
	return false
}

func (r *Run) leave() { r.requests.Add(-1) }

// endDelay is how long after a sandbox has stopped to answer its run may end.
const endDelay = 500 * time.Millisecond

// expectEnd waits a moment for the end of the run. A connection that broke is
// often the first to tell of a pause: the sandbox is frozen before its run ends.
func (r *Run) expectEnd(ctx context.Context) {
	t := time.NewTimer(endDelay)
	defer t.Stop()
	select {
	case <-r.ctx.Done():
	case <-ctx.Done():
	case <-t.C:
	}
}

func (r *Run) transport(port int) *http.Transport {
	switch port {
	case node.EnvdPort, node.InterpreterPort:
		return r.pooled
	}
	return r.single
}

// dialPauses are the waits between the attempts to reach a port: a server that
// was started a moment ago may not listen yet.
var dialPauses = [...]time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond, 400 * time.Millisecond}

// dial connects to the port of the transport's address.
func (r *Run) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	for attempt := 0; ; attempt++ {
		if r.ctx.Err() != nil {
			return nil, errEnded
		}
		c, err := r.sandbox.Dial(ctx, port)
		if err == nil {
			return r.track(c)
		}
		if !errors.Is(err, node.ErrPortClosed) || attempt == len(dialPauses) {
			return nil, err
		}
		timer := time.NewTimer(dialPauses[attempt])
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}

// track makes c end with the run at the latest, also where the transport has
// dialed it in advance and nobody uses it.
func (r *Run) track(c net.Conn) (net.Conn, error) {
	tracked := &conn{Conn: c, run: r}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conns == nil {
		return nil, errors.Join(errEnded, c.Close())
	}
	r.conns[tracked] = struct{}{}
	return tracked, nil
}

type conn struct {
	net.Conn
	run *Run
}

// Close closes the connection and forgets it.
func (c *conn) Close() error {
	c.run.mu.Lock()
	delete(c.run.conns, c)
	c.run.mu.Unlock()
	return c.Conn.Close()
}
