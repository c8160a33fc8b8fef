package e2btest

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// A Request is one that the server got.
type Request struct {
	Time    time.Time // when it came, by the clock of the machine
	Sandbox bool      // sent to the sandbox URL; otherwise to the API
	Method  string
	Path    string // as sent, escaped
	Query   string // as sent, encoded
	Host    string
	Header  http.Header // with the secrets in it
	Body    []byte      // as much of it as was read, at most 64 KiB
	Status  int         // 0: not answered yet, or cut off before an answer
}

// What the log keeps at the most: the newest requests.
const (
	maxLogged     = 10000
	maxLoggedBody = 64 << 10
	maxLoggedAll  = 16 << 20 // bytes of bodies
)

// A requestLog keeps the newest requests.
type requestLog struct {
	mu      sync.Mutex
	entries []*logEntry // oldest first
	bytes   int         // of all bodies
}

type logEntry struct {
	Request
	forgotten bool
}

// add logs a request and returns its entry.
func (l *requestLog) add(r *http.Request, sandbox bool) *logEntry {
	entry := &logEntry{Request: Request{
		Time: time.Now(), Sandbox: sandbox, Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery,
		Host: r.Host, Header: r.Header.Clone(),
	}}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, entry)
	l.trim()
	return entry
}

// trim forgets the oldest requests where there are too many. The caller holds mu.
func (l *requestLog) trim() {
	for len(l.entries) > maxLogged || l.bytes > maxLoggedAll {
		oldest := l.entries[0]
		oldest.forgotten = true
		l.bytes -= len(oldest.Body)
		l.entries[0] = nil
		l.entries = l.entries[1:]
	}
}

// body adds to the body of an entry.
func (l *requestLog) body(entry *logEntry, p []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if entry.forgotten {
		return
	}
	p = p[:min(len(p), maxLoggedBody-len(entry.Body))]
	entry.Body = append(entry.Body, p...)
	l.bytes += len(p)
	l.trim()
}

func (l *requestLog) status(entry *logEntry, status int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entry.Status = status
}

// all returns copies.
func (l *requestLog) all() []Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	requests := make([]Request, 0, len(l.entries))
	for _, entry := range l.entries {
		r := entry.Request
		r.Header, r.Body = r.Header.Clone(), slices.Clone(r.Body)
		requests = append(requests, r)
	}
	return requests
}

// logged logs the requests to a handler.
func (l *requestLog) logged(h http.Handler, sandbox bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entry := l.add(r, sandbox)
		if r.Body != nil && r.Body != http.NoBody {
			// On a copy: net/http looks at its own after the handler, to see whether
			// what was not read of it must end the connection.
			r = r.WithContext(r.Context())
			r.Body = &loggedBody{r.Body, l, entry}
		}
		h.ServeHTTP(&loggedWriter{ResponseWriter: w, log: l, entry: entry}, r)
	})
}

type loggedBody struct {
	io.ReadCloser
	log   *requestLog
	entry *logEntry
}

// Read reads and logs.
func (b *loggedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.log.body(b.entry, p[:n])
	return n, err
}

type loggedWriter struct {
	http.ResponseWriter
	log     *requestLog
	entry   *logEntry
	started bool
}

// Unwrap lets http.ResponseController reach the server's own writer.
func (w *loggedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader logs the status.
func (w *loggedWriter) WriteHeader(status int) {
	if status >= http.StatusOK {
		w.began(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write writes a body, after a status of 200 where there was none.
func (w *loggedWriter) Write(p []byte) (int, error) {
	w.began(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// Hijack is called for answers of status 101.
func (w *loggedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.began(http.StatusSwitchingProtocols)
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

func (w *loggedWriter) began(status int) {
	if !w.started {
		w.started = true
		w.log.status(w.entry, status)
	}
}
