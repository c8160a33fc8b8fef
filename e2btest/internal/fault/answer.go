package fault

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An answer is the http.ResponseWriter between a handler and a client. As always,
// one goroutine at a time uses it.
type answer struct {
	http.ResponseWriter
	e      *Effect
	ctx    context.Context // of the client
	cancel func()          // ends the handler
	closed <-chan struct{}

	started bool // the handler has given a status
	over    bool // nothing more goes out
	broken  bool // and what did is no whole answer
	framing framing
	left    int64 // bytes or messages until the cut

	status int
	held   *bytes.Buffer // nil: the body goes out as it comes
}

// serve runs the handler.
func (a *answer) serve(r *http.Request, next http.Handler) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		// A handler that could not write on ends like that, and its client has what
		// it was to get.
		if err, ok := v.(error); !ok || !errors.Is(err, http.ErrAbortHandler) || !a.over || a.broken {
			panic(v)
		}
	}()
	next.ServeHTTP(a, r)
	a.finish()
	if a.broken {
		panic(http.ErrAbortHandler)
	}
}

// Unwrap lets http.ResponseController reach the server's own writer.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader begins the answer. That is when the request has been carried out.
func (a *answer) WriteHeader(status int) {
	switch {
	case a.over || a.started:
	case status < http.StatusOK && status != http.StatusSwitchingProtocols:
		a.ResponseWriter.WriteHeader(status)
	case a.begin(status):
		a.head()
	}
}

// Write writes a body, after a status of 200 where there was none.
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	switch {
	case a.over:
		return 0, errOver
	case a.held != nil:
		return a.held.Write(p)
	}
	return a.write(p)
}

// FlushError flushes, after a status of 200 where there was none.
func (a *answer) FlushError() error {
	a.WriteHeader(http.StatusOK)
	if a.over || a.held != nil {
		return nil
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Hijack is called for answers of status 101. What follows them is not touched.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if a.over || !a.begin(http.StatusSwitchingProtocols) {
		return nil, nil, errOver
	}
	a.over = true
	return http.NewResponseController(a.ResponseWriter).Hijack()
}

// begin does what comes before an answer, and reports whether one goes out.
func (a *answer) begin(status int) bool {
	a.started, a.status = true, status
	d := a.e.DelayAfter
	if a.e.Stall {
		d = -1
	}
	if !Wait(a.ctx, d, a.closed) || a.e.Cut == CutAnswer {
		a.end(true)
		return false
	}
	h := a.Header()
	if a.e.Commit {
		clear(h)
		a.e.describe(h)
		a.status = a.e.Status
	}
	for _, name := range a.e.RemoveHeader {
		h.Del(name)
	}
	for name, values := range a.e.Header {
		h[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
	if a.e.ClockSkew != 0 {
		now, err := http.ParseTime(h.Get("Date"))
		if err != nil {
			now = time.Now()
		}
		h.Set("Date", now.Add(a.e.ClockSkew).UTC().Format(http.TimeFormat))
	}
	return true
}

// head sends the header, unless the body may still change it.
func (a *answer) head() {
	h := a.Header()
	switch kind := h.Get("Content-Type"); {
	case a.e.Commit:
		a.ResponseWriter.WriteHeader(a.status)
		_, _ = a.write([]byte(a.e.Body)) // a client that has gone is no error of ours
		a.complete()
		return
	case len(a.e.Fields) > 0 && strings.HasPrefix(kind, "application/json"):
		h.Del("Content-Length")
		a.held = new(bytes.Buffer)
		return
	case strings.HasPrefix(kind, "application/connect+"):
		a.framing = new(envelopes)
	}
	a.ResponseWriter.WriteHeader(a.status)
	if a.e.Cut == CutBody && a.left == 0 {
		a.cut()
	}
}

// write sends a part of the body, and cuts where it is time to.
func (a *answer) write(p []byte) (int, error) {
	n := len(p)
	switch a.e.Cut {
	case CutBody:
		n = int(min(int64(n), a.left))
		if a.left -= int64(n); a.left == 0 {
			defer a.cut()
		}
	case CutMessage:
		for i, c := range p {
			whole, within := a.framing.next(c)
			if whole {
				a.left--
			}
			if within && a.left == 0 {
				n = i + 1
				defer a.cut()
				break
			}
		}
	}
	m, err := a.ResponseWriter.Write(p[:n])
	if err == nil && n < len(p) {
		err = errOver
	}
	return m, err
}

// finish completes the answer of a handler that has returned.
func (a *answer) finish() {
	if a.over {
		return
	}
	a.WriteHeader(http.StatusOK)
	if a.held != nil && !a.over {
		body := replaceFields(a.held.Bytes(), a.e.Fields)
		a.held = nil
		if a.e.Cut == CutNone {
			a.Header().Set("Content-Length", strconv.Itoa(len(body)))
		}
		a.ResponseWriter.WriteHeader(a.status)
		_, _ = a.write(body) // a client that has gone is no error of ours
	}
	a.complete()
}

// complete ends an answer that has been written.
func (a *answer) complete() {
	switch {
	case a.over:
	case a.e.Cut != CutNone:
		a.cut()
	default:
		a.end(false)
	}
}

// cut sends what is on its way, and nothing more.
func (a *answer) cut() {
	_ = http.NewResponseController(a.ResponseWriter).Flush() // a client that has gone is no error of ours
	a.end(true)
}

func (a *answer) end(broken bool) {
	a.over, a.broken = true, broken
	a.cancel()
}

// A framing finds the messages in a stream of bytes.
type framing interface {
	// next takes a byte and reports whether it is the last of a message, and whether
	// it is a good one to cut after: not the last, and behind the beginning.
	next(c byte) (whole, within bool)
}

// envelopes are the frames of Connect: flags, length, bytes.
type envelopes struct {
	prefix []byte
	at     uint32 // in the bytes
}

func (f *envelopes) next(c byte) (whole, within bool) {
	if len(f.prefix) < 5 {
		if f.prefix = append(f.prefix, c); len(f.prefix) < 5 {
			return false, false
		}
	} else {
		f.at++
	}
	size := binary.BigEndian.Uint32(f.prefix[1:])
	if f.at < size {
		return false, f.at == size/2
	}
	f.prefix, f.at = f.prefix[:0], 0
	return true, false
}

// lines are the messages of the interpreter.
type lines struct{ at int }

func (f *lines) next(c byte) (whole, within bool) {
	if c == '\n' {
		f.at = 0
		return true, false
	}
	f.at++
	return false, f.at == 2
}

// replaceFields gives fields of a JSON text other values, at any depth.
func replaceFields(text []byte, fields map[string]string) []byte {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return text
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return text
	}
	replace(v, fields)
	changed, err := json.Marshal(v)
	if err != nil {
		return text
	}
	return changed
}

func replace(v any, fields map[string]string) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			replace(item, fields)
		}
	case map[string]any:
		for name, item := range v {
			if value, ok := fields[name]; ok {
				v[name] = value
				continue
			}
			replace(item, fields)
		}
	}
}
