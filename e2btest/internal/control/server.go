package control

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"sync"
	"time"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// Options configures a Server.
type Options struct {
	Node      node.Node  // closed by the caller, after the Server
	Teams     []Team     // at least one
	Templates []Template // default: DefaultTemplates
	Routes    Routes
	// MeasureEvery is how often running sandboxes are measured without being asked
	// for, in real time. 0: never.
	MeasureEvery time.Duration
	Logger       *slog.Logger // default: none
	// RootIsPage says that browsers find a page at /, where others who come by get the
	// answer to an unknown route without a warning in the log.
	RootIsPage bool

	RateLimits []RateLimit
	// MaxRequests to one sandbox can be under way. 0: no limit.
	MaxRequests int
	// Step, if not nil, is called for each step of the node, which do takes. What it
	// returns is the step's error; do need not be called where that is not nil.
	Step func(ctx context.Context, step node.Step, id string, do func() error) error
}

// A Server is the control plane. It is an http.Handler for its REST routes and
// a proxy.Router for traffic to the sandboxes.
type Server struct {
	node      node.Node
	step      func(ctx context.Context, step node.Step, id string, do func() error) error
	keys      map[string]*Team
	templates []*Template
	routes    []route
	limits    rateLimits
	perRun    int // requests that can be under way; 0: no limit
	log       *slog.Logger
	rootPage  bool
	secret    [32]byte // of the tokens

	clock     clock
	advancing chan struct{} // has an item during Advance

	// ctx ends with the server. What goes on whether or not a client waits for it,
	// such as a pause, runs under it.
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // the evictor and all that runs under ctx
	wake   chan struct{}  // tells the evictor that a deadline became earlier or the clock moved

	mu       sync.Mutex
	closed   bool
	live     map[string]*sandbox  // by ID
	stored   map[string]*snapshot // by ID; a sandbox that runs again keeps its snapshot
	starts   map[string]*start    // by ID: snapshots that are being resumed
	creating map[*Team]int        // sandboxes that are being created
	saved    []*saved             // in the order of their creation

	histories map[string]*history // by ID, also of sandboxes that are gone
	pruned    time.Time           // when old ones were dropped last
	volumes   []*volume           // oldest first
	secrets   []*secret

	// What KeepState sets, and the saving mutex guards.
	keeper node.Keeper // nil: no state is kept
	keep   func(state []byte) error
	last   []byte // the state that was saved last, without the time
	saving sync.Mutex
}

// New starts a control plane. Close ends it.
func New(opts Options) *Server {
	s := &Server{
		node:   opts.Node,
		step:   opts.Step,
		perRun: opts.MaxRequests,
		keys:   make(map[string]*Team),
		routes: routesOf(opts.Routes),
		limits: rateLimits{limits: opts.RateLimits, full: make(map[rateKey]time.Time)},
		log:    opts.Logger,
		wake:   make(chan struct{}, 1),

		rootPage:  opts.RootIsPage,
		advancing: make(chan struct{}, 1),
		live:      make(map[string]*sandbox),
		stored:    make(map[string]*snapshot),
		starts:    make(map[string]*start),
		creating:  make(map[*Team]int),

		histories: make(map[string]*history),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.step == nil {
		s.step = func(_ context.Context, _ node.Step, _ string, do func() error) error { return do() }
	}
	for _, team := range opts.Teams {
		for _, key := range team.Keys {
			s.keys[key] = &team
		}
	}
	templates := opts.Templates
	if templates == nil {
		templates = DefaultTemplates()
	}
	for _, t := range templates {
		s.templates = append(s.templates, t.withDefaults())
	}
	_, _ = rand.Read(s.secret[:]) // never fails
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(s.evict)
	if opts.MeasureEvery > 0 {
		s.wg.Go(func() { s.measureEvery(opts.MeasureEvery) })
	}
	return s
}

// Close cuts all streams, ends what is under way and waits for it. It leaves
// the sandboxes to their node. It may be called again.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for _, sb := range s.live {
		sb.run.End()
	}
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
}

// Now returns the emulator's time.
func (s *Server) Now() time.Time { return s.clock.Now() }

// goLocked runs f under the server's own context. The caller holds s.mu and has
// seen that the server is not closed.
func (s *Server) goLocked(f func()) {
	s.wg.Go(f)
}

// token derives a token of the sandbox: the same as long as the ID lives.
func (s *Server) token(kind, id string) string {
	mac := hmac.New(sha256.New, s.secret[:])
	mac.Write([]byte(kind + " " + id))
	return hex.EncodeToString(mac.Sum(nil))
}

// newID makes a sandbox ID.
func newID() string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails
	return "i" + randomText(b[:])
}

// randomText spells random bytes in the alphabet of IDs.
func randomText(b []byte) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
	text := make([]byte, len(b))
	for i := range b {
		text[i] = alphabet[int(b[i])%len(alphabet)]
	}
	return string(text)
}

// usedLocked counts what the quota of team limits.
func (s *Server) usedLocked(team *Team) int {
	n := s.creating[team]
	for _, sb := range s.live {
		if sb.team == team {
			n++
		}
	}
	for _, st := range s.starts {
		if st.team == team {
			n++
		}
	}
	return n
}

// waitFor waits for done; the request's context bounds the wait.
func waitFor(ctx context.Context, done <-chan struct{}) *Error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return errWaited
	}
}

// requestLimit is how long E2B works on one request.
const requestLimit = 70 * time.Second
