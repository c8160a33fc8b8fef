// Package fault does to single requests and their answers what networks and
// servers sometimes do.
package fault

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// A Cut is where a connection breaks off.
type Cut uint8

// The places.
const (
	CutNone    Cut = iota
	CutRequest     // before the request is carried out
	CutAnswer      // after that, before its answer
	CutBody        // after CutAfter bytes of the body of the answer
	CutMessage     // within the message after CutAfter whole ones
)

// An Effect is what is done to one request.
type Effect struct {
	DelayBefore, DelayAfter time.Duration

	Status int // 0: the handler's own answer
	Body   string
	Commit bool // carry the request out, where Status is the answer
	Stall  bool // carry the request out, and do not answer

	Cut      Cut
	CutAfter int64

	Header       http.Header       // put into the answer
	RemoveHeader []string          // taken out of it
	Fields       map[string]string // of JSON answers
	ClockSkew    time.Duration
	IgnoreQuery  []string // "*": all
}

// Serve answers r as next does, but for the effect. Waits end with the context of
// r, or with closed.
func Serve(w http.ResponseWriter, r *http.Request, next http.Handler, e *Effect, closed <-chan struct{}) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	inner := r.WithContext(ctx) // and not r itself, of whose body net/http looks at what is unread
	if e.ignores() {
		u := *r.URL
		u.RawQuery = e.query(u.RawQuery)
		inner.URL = &u
	}
	carriedOut := e.Cut != CutRequest && (e.Status == 0 || e.Commit)
	if e.DelayBefore > 0 || !carriedOut {
		fetch(inner)
	}
	if !Wait(ctx, e.DelayBefore, closed) || e.Cut == CutRequest {
		panic(http.ErrAbortHandler)
	}
	if !carriedOut {
		next = http.HandlerFunc(e.answer)
	}
	a := &answer{ResponseWriter: w, e: e, ctx: r.Context(), cancel: cancel, closed: closed, framing: new(lines), left: e.CutAfter}
	a.serve(inner, next)
}

// Wait waits for d, without end where it is negative, and reports whether it did
// so to the end.
func Wait(ctx context.Context, d time.Duration, closed <-chan struct{}) bool {
	if d == 0 {
		return true
	}
	var over <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-over:
		return true
	case <-ctx.Done():
	case <-closed:
	}
	return false
}

// fetch reads the body of a request, or the beginning of a long one: until then
// an HTTP/1.1 server does not notice that a client has gone. What a client sends bit by
// bit to a process is left alone.
func fetch(r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody || strings.HasSuffix(r.URL.Path, "/StreamInput") {
		return
	}
	var b bytes.Buffer
	_, err := io.CopyN(&b, r.Body, 64<<10)
	rest := io.Reader(r.Body)
	if err != nil {
		rest = failing{err} // io.EOF too
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&b, rest), r.Body}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func (e *Effect) ignores() bool { return len(e.IgnoreQuery) > 0 }

// query takes parameters out of an encoded query, and leaves the others as they are.
func (e *Effect) query(encoded string) string {
	var kept []string
	for pair := range strings.SplitSeq(encoded, "&") {
		name, _, _ := strings.Cut(pair, "=")
		ignored := false
		for _, n := range e.IgnoreQuery {
			ignored = ignored || n == "*" || n == name
		}
		if !ignored {
			kept = append(kept, pair)
		}
	}
	return strings.Join(kept, "&")
}

// answer is the handler for requests that are not carried out.
func (e *Effect) answer(w http.ResponseWriter, _ *http.Request) {
	e.describe(w.Header())
	w.WriteHeader(e.Status)
	_, _ = io.WriteString(w, e.Body) // a client that has gone is no error of ours
}

// describe says what kind of text the body is.
func (e *Effect) describe(h http.Header) {
	switch text := strings.TrimSpace(e.Body); {
	case text == "":
	case text[0] == '{', text[0] == '[':
		h.Set("Content-Type", "application/json; charset=utf-8")
	case text[0] == '<':
		h.Set("Content-Type", "text/html; charset=utf-8")
	default:
		h.Set("Content-Type", "text/plain; charset=utf-8")
	}
}

// errOver is what a handler gets that writes more than goes out.
var errOver = errors.New("fault: the answer is over")
