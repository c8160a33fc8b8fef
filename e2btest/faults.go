package e2btest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/fault"
)

// A Fault is something that goes wrong with requests, with new connections or with
// the machine that runs the sandboxes: with which ones, and what. It can be part of
// Options, or come and go with [Server.Inject]. It is data: its text is JSON, which
// makes the same Fault again, and [RandomFaults] makes Faults.
//
//	e2btest.Fault{Path: "/sandboxes/{id}", Times: 2, Status: 503}                         // busy, twice
//	e2btest.Fault{Method: "DELETE", Status: 204}                                          // says "killed", and kills nothing
//	e2btest.Fault{Method: "POST", Path: "/sandboxes", Stall: true}                        // creates, and never answers
//	e2btest.Fault{Path: "/process.Process/Start", Cut: e2btest.CutMessage, CutAfter: 2}   // breaks the stream off
//	e2btest.Fault{Port: 49983, ContentType: "proto", Status: 415}                         // an envd that knows JSON alone
//	e2btest.Fault{Fields: map[string]string{"envdVersion": "0.1.0"}}                      // an old envd, by its word
//	e2btest.Fault{Path: "/v2/sandboxes", IgnoreQuery: []string{"*"}}                      // filters without effect, and page one again and again
//	e2btest.Fault{Path: "/v2/sandboxes", RemoveHeader: []string{"X-Next-Token"}}          // a list that ends too early
//	e2btest.Fault{To: e2btest.ToAPI, Cut: e2btest.CutConnect, Times: 3}                   // three connections that come to nothing
//	e2btest.Fault{Node: e2btest.NodePause, Error: e2btest.NodeFailed}                     // pauses that fail, which loses the sandbox
//	e2btest.Fault{Node: e2btest.NodeStart, Skip: 5, Error: e2btest.NodeFull}              // room for five sandboxes
//
// What a Fault does to a request is, in this order: to wait for DelayBefore, to
// have it carried out (unless there is a Status without Commit, or CutRequest), to
// wait for DelayAfter, and to answer it, wholly or to a part.
//
// Of twin routes the SDK asks one first, and the other where that is missing. First are
// POST /sandboxes and POST /sandboxes/{id}/connect, but of lists and logs GET
// /v2/sandboxes and GET /v2/sandboxes/{id}/logs. Options.Routes selects which of those for
// create and connect there are.
//
// A Fault that no request of E2B's clients can match is refused, as one with the path
// /sandbox/{id} or with the method post. With a Port, or with To: ToSandboxes, it can be
// about a server of your own in a sandbox, which may have any path.
//
// With CutConnect it is about new connections, and has only To, Skip and Times
// besides. With Node it is about a step of the machine: see [NodeStep].
type Fault struct {
	// Which requests. A field that is zero lets all pass.

	To          Side   `json:"to,omitempty"`
	Method      string `json:"method,omitempty"`
	Path        string `json:"path,omitempty"`        // as "/sandboxes/{id}/pause" or "/files": {} with any name stands for one segment. Which twin is asked: see above
	Port        int    `json:"port,omitempty"`        // of a sandbox: 49983 for commands and files, 49999 for code
	Sandbox     string `json:"sandbox,omitempty"`     // its ID, in the path, in a header or in the host name
	ContentType string `json:"contentType,omitempty"` // of the request: a part of it, as "proto"
	Skip        int    `json:"skip,omitempty"`        // so many of the requests that match are spared first
	Times       int    `json:"times,omitempty"`       // then so many are hit; 0: all

	// Time, which is that of the machine and not that of Advance. A delay is over
	// when the client gives up or the server closes.

	DelayBefore time.Duration `json:"-"` // before the request is carried out
	DelayAfter  time.Duration `json:"-"` // between that and the answer
	ClockSkew   time.Duration `json:"-"` // added to the Date of the answer

	// The answer. Without a Status it is the server's own.

	Status       int               `json:"status,omitempty"` // the answer, instead of carrying the request out
	Commit       bool              `json:"commit,omitempty"` // carry it out nevertheless
	Body         string            `json:"body,omitempty"`   // with Status; of type JSON, HTML or text by its first byte
	Header       http.Header       `json:"header,omitempty"` // put into the answer
	RemoveHeader []string          `json:"removeHeader,omitempty"`
	Fields       map[string]string `json:"fields,omitempty"`      // values for fields of answers in JSON, at any depth
	IgnoreQuery  []string          `json:"ignoreQuery,omitempty"` // parameters that the server does not see; "*": all

	// The connection.

	Stall    bool     `json:"stall,omitempty"` // carry the request out, and never answer
	Cut      CutPoint `json:"cut,omitzero"`
	CutAfter int64    `json:"cutAfter,omitempty"` // bytes for CutBody, messages for CutMessage

	// The machine that runs the sandboxes.

	Node  NodeStep  `json:"node,omitempty"`
	Error NodeError `json:"error,omitempty"` // the step is not taken, and fails so
}

// A Side is one of the two addresses of a Server.
type Side string

// The values of Side.
const (
	ToAPI       Side = "api"
	ToSandboxes Side = "sandboxes"
)

// A CutPoint is where the connection breaks off, or with HTTP/2 the stream. What
// comes before it reaches the client.
type CutPoint uint8

// The values of CutPoint. An answer that is over before the point is cut at its
// end, which a client notices where the answer did not tell its length.
const (
	CutNone    CutPoint = iota
	CutRequest          // before the request is carried out
	CutAnswer           // after that, before the answer
	CutBody             // in the answer, after CutAfter bytes of its body
	CutMessage          // within the message after CutAfter whole ones, in a stream of a process, a watcher or of code

	// CutConnect is before anything is read from a new connection. Its client sees a
	// reset when it writes or reads, and no refused connection, which only an address
	// without a listener gives. Connections that are open already are not touched.
	CutConnect
)

var cutPoints = []string{"", "request", "answer", "body", "message", "connect"}

// String returns the text that stands for c in JSON.
func (c CutPoint) String() string {
	if int(c) < len(cutPoints) {
		return cutPoints[c]
	}
	return fmt.Sprintf("CutPoint(%d)", uint8(c))
}

// MarshalText returns what String does.
func (c CutPoint) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (c *CutPoint) UnmarshalText(text []byte) error {
	i := slices.Index(cutPoints, string(text))
	if i < 0 {
		return fmt.Errorf("e2btest: there is no point of a cut %q", text)
	}
	*c = CutPoint(i)
	return nil
}

// faultJSON is a Fault in JSON: its durations are text there.
type faultJSON struct {
	*plainFault

	DelayBefore duration `json:"delayBefore,omitzero"`
	DelayAfter  duration `json:"delayAfter,omitzero"`
	ClockSkew   duration `json:"clockSkew,omitzero"`
}

type plainFault Fault // without methods

type duration time.Duration

func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = duration(parsed)
	return err
}

// MarshalJSON writes what UnmarshalJSON reads.
func (f Fault) MarshalJSON() ([]byte, error) {
	p := plainFault(f)
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // for String: pages of HTML are frequent
	err := e.Encode(faultJSON{&p, duration(f.DelayBefore), duration(f.DelayAfter), duration(f.ClockSkew)})
	return bytes.TrimSpace(b.Bytes()), err
}

// UnmarshalJSON reads a Fault. Fields that it does not know are an error, as is a
// Fault that Inject would not take. Durations are written as "1.5s".
func (f *Fault) UnmarshalJSON(text []byte) error {
	read := faultJSON{plainFault: new(plainFault)}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&read); err != nil {
		return fmt.Errorf("e2btest: fault: %w", err)
	}
	got := Fault(*read.plainFault)
	got.DelayBefore, got.DelayAfter, got.ClockSkew = time.Duration(read.DelayBefore), time.Duration(read.DelayAfter), time.Duration(read.ClockSkew)
	if err := got.check(); err != nil {
		return fmt.Errorf("e2btest: %w", err)
	}
	*f = got
	return nil
}

// String returns the Fault in JSON.
func (f Fault) String() string {
	text, err := f.MarshalJSON()
	if err != nil {
		return fmt.Sprintf("Fault(%v)", err)
	}
	return string(text)
}

// Inject adds faults behind those that the server has, and returns a function that
// takes them away again. All faults that match a request do what they do to it, the
// first one outermost: one that answers by itself keeps the request from those
// behind it. The same goes for connections and steps. Inject panics for a Fault that
// makes no sense. What has begun is not touched.
func (s *Server) Inject(faults ...Fault) (remove func()) {
	for i := range faults {
		if err := faults[i].check(); err != nil {
			panic(fmt.Sprintf("e2btest: %v: %v", err, faults[i]))
		}
	}
	return s.faults.add(faults)
}

// An InjectedFault is a Fault of a server.
type InjectedFault struct {
	Fault Fault
	Seen  int // requests, connections or steps that matched
	Fired int // those of them that were hit
}

// Faults returns the faults that the server has, in their order.
func (s *Server) Faults() []InjectedFault {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	list := make([]InjectedFault, 0, len(s.faults.list))
	for _, in := range s.faults.list {
		list = append(list, InjectedFault{in.fault.clone(), in.seen, in.fired})
	}
	return list
}

// A faultList is the faults of a server.
type faultList struct {
	log    *slog.Logger
	closed chan struct{} // by the server: ends delays

	mu   sync.Mutex
	list []*injected // replaced and not changed
}

type injected struct {
	fault   Fault
	pattern pathPattern
	effect  fault.Effect

	seen, fired int
	removed     bool
}

func (f Fault) clone() Fault {
	f.Header = f.Header.Clone()
	f.RemoveHeader, f.IgnoreQuery = slices.Clone(f.RemoveHeader), slices.Clone(f.IgnoreQuery)
	f.Fields = maps.Clone(f.Fields)
	return f
}

func (l *faultList) add(faults []Fault) (remove func()) {
	added := make([]*injected, 0, len(faults))
	for _, f := range faults {
		f = f.clone()
		in := &injected{fault: f, pattern: newPathPattern(f.Path), effect: fault.Effect{
			DelayBefore: f.DelayBefore, DelayAfter: f.DelayAfter, Status: f.Status, Body: f.Body, Commit: f.Commit,
			Stall: f.Stall, Cut: fault.Cut(f.Cut), CutAfter: f.CutAfter, Header: f.Header, RemoveHeader: f.RemoveHeader,
			Fields: f.Fields, ClockSkew: f.ClockSkew, IgnoreQuery: f.IgnoreQuery,
		}}
		added = append(added, in)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(slices.Clip(l.list), added...)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, in := range added {
			in.removed = true
		}
		l.list = slices.DeleteFunc(slices.Clone(l.list), func(in *injected) bool { return in.removed })
	}
}

// now returns the faults that there are.
func (l *faultList) now() []*injected {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list
}

// faulty puts the faults in front of a handler.
func (l *faultList) faulty(h http.Handler, sandbox bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.serve(w, r, l.now(), sandbox, h)
	})
}

func (l *faultList) serve(w http.ResponseWriter, r *http.Request, list []*injected, sandbox bool, h http.Handler) {
	for i, in := range list {
		if !in.matches(r, sandbox) || !l.fires(in) {
			continue
		}
		rest := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { l.serve(w, r, list[i+1:], sandbox, h) })
		l.log.DebugContext(r.Context(), "a fault hits", "method", r.Method, "path", r.URL.Path)
		fault.Serve(w, r, rest, &in.effect, l.closed)
		return
	}
	h.ServeHTTP(w, r)
}

// fires counts what matches a fault and reports whether it is hit.
func (l *faultList) fires(in *injected) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if in.removed {
		return false
	}
	in.seen++
	if in.seen <= in.fault.Skip || in.fault.Times > 0 && in.fired >= in.fault.Times {
		return false
	}
	in.fired++
	return true
}

func (in *injected) matches(r *http.Request, sandbox bool) bool {
	f := &in.fault
	path := strings.Split(r.URL.EscapedPath(), "/")
	id, port := inPath(path), ""
	if sandbox {
		id, port = inHeaders(r)
	}
	switch {
	case f.Node != "" || f.Cut == CutConnect,
		f.To != "" && (f.To == ToSandboxes) != sandbox,
		f.Method != "" && f.Method != r.Method,
		f.Sandbox != "" && f.Sandbox != id,
		f.Port != 0 && fmt.Sprint(f.Port) != port,
		!strings.Contains(r.Header.Get("Content-Type"), f.ContentType):
		return false
	}
	return in.pattern.matches(path)
}

// A pathPattern is the path of a Fault, split at its slashes; nil fits all paths.
type pathPattern []string

func newPathPattern(path string) pathPattern {
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

func (p pathPattern) matches(path []string) bool {
	return p == nil || slices.EqualFunc(p, path, func(want, got string) bool {
		_, anyName := placeholder(want)
		return want == got || anyName && got != ""
	})
}

// placeholder returns the name in a segment that stands for any one.
func placeholder(segment string) (name string, ok bool) {
	name, opens := strings.CutPrefix(segment, "{")
	name, closes := strings.CutSuffix(name, "}")
	return name, opens && closes
}

// inPath returns the sandbox that a path of the API is about.
func inPath(path []string) string {
	if i := slices.Index(path, "sandboxes"); i >= 0 && i+1 < len(path) {
		id, _, _ := strings.Cut(path[i+1], "-") // clients of old add the ID of a node
		return id
	}
	return ""
}

// inHeaders returns where a request to a sandbox goes.
func inHeaders(r *http.Request) (id, port string) {
	if id, port = r.Header.Get("E2b-Sandbox-Id"), r.Header.Get("E2b-Sandbox-Port"); id != "" {
		return id, port
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	label, _, _ := strings.Cut(host, ".")
	port, id, _ = strings.Cut(label, "-")
	return id, port
}

// RandomFaults returns n faults such as servers and networks have, the same ones
// for the same seed. Each hits one request, and each is one that its client gets an
// answer or an error for: none stalls, and no delay is above 50 ms.
func RandomFaults(seed uint64, n int) []Fault {
	rnd := rand.New(rand.NewPCG(seed, 0))
	faults := make([]Fault, 0, max(n, 0))
	for range n {
		f := randomFaults[rnd.IntN(len(randomFaults))]
		f = f.clone()
		f.Path = randomPaths[rnd.IntN(len(randomPaths))]
		f.Skip, f.Times = rnd.IntN(8), 1
		delay := time.Duration(rnd.IntN(50)) * time.Millisecond
		switch {
		case f.DelayBefore > 0:
			f.DelayBefore += delay
		case f.DelayAfter > 0:
			f.DelayAfter += delay
		}
		if after := rnd.Int64N(64); f.Cut == CutBody {
			f.CutAfter = after
		} else if f.Cut == CutMessage {
			f.CutAfter = after % 4
		}
		faults = append(faults, f)
	}
	return faults
}

// What RandomFaults draws from. To change it changes what seeds stand for.
var (
	randomPaths = []string{
		"", "", "", "/sandboxes", "/v2/sandboxes", "/sandboxes/{id}", "/sandboxes/{id}/pause", "/sandboxes/{id}/connect",
		"/v2/sandboxes/{id}/connect", "/sandboxes/{id}/timeout", "/process.Process/Start", "/process.Process/{method}",
		"/filesystem.Filesystem/{method}", "/files", "/execute", "/contexts",
	}
	badGateway   = "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"
	randomFaults = []Fault{
		{Status: 503, Body: `{"code":503,"message":"no capacity"}`},
		{Status: 503, Header: http.Header{"Retry-After": {"0"}}},
		{Status: 429, Header: http.Header{"Retry-After": {"0"}}, Body: `{"code":429,"message":"Rate limit exceeded, please try again later."}`},
		{Status: 429, Body: `{"code":429,"message":"you have reached the maximum number of concurrent E2B sandboxes"}`},
		{Status: 502, Body: badGateway},
		{Status: 502, Body: badGateway, Commit: true},
		{Status: 504, Commit: true},
		{Status: 408},
		{Status: 500, Body: `{"code":500,"message":"internal error"}`},
		{DelayBefore: time.Millisecond},
		{DelayAfter: time.Millisecond},
		{Cut: CutRequest},
		{Cut: CutAnswer},
		{Cut: CutBody},
		{Cut: CutMessage},
	}
)
