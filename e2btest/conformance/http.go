package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// A header is one line of a request.
type header [2]string

// An answer is what the server said to a request.
type answer struct {
	p       *probe
	request string // method and path, for people
	status  int
	header  http.Header
	body    string
}

// maxBody bounds what is read of an answer.
const maxBody = 16 << 20

// send makes a request and reads its whole answer. A server that is asked too much
// is asked again when it says so.
func (r *runner) send(ctx context.Context, rt http.RoundTripper, method, url, body string, headers ...header) (*answer, error) {
	for tries := 0; ; tries++ {
		resp, err := r.open(ctx, rt, method, url, body, headers...)
		if err != nil {
			return nil, err
		}
		b, whole, err := transport.ReadBody(resp.Body, maxBody)
		_ = resp.Body.Close()
		if err == nil && !whole {
			err = fmt.Errorf("an answer of more than %d bytes", maxBody)
		}
		if err != nil {
			return nil, fmt.Errorf("%d with a body that breaks off: %w", resp.StatusCode, transport.Cause(err))
		}
		wait, later := retryAfter(resp)
		if !later || tries == 5 {
			return &answer{request: method + " " + shown(url), status: resp.StatusCode, header: resp.Header, body: string(b)}, nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// retryAfter tells how long to wait where the server is asked too often. The 429 of
// a quota names no time.
func retryAfter(resp *http.Response) (wait time.Duration, later bool) {
	if resp.StatusCode != http.StatusTooManyRequests {
		return 0, false
	}
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	return time.Duration(min(seconds, 30)) * time.Second, err == nil
}

// open makes a request and leaves the body of its answer to be read.
func (r *runner) open(ctx context.Context, rt http.RoundTripper, method, url, body string, headers ...header) (*http.Response, error) {
	var sent io.Reader
	if body != "" {
		sent = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, sent)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "e2b-conformance")
	for _, h := range headers {
		req.Header.Set(h[0], h[1])
		if h[0] == "Host" {
			req.Host = h[1]
		}
	}
	client := http.Client{
		Transport:     rt,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, transport.Cause(err)
	}
	return resp, nil
}

// shown is a URL for people: without its host, which is often an address with a
// random port.
func shown(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return raw
	}
	return u.RequestURI()
}

// asked sends a request of the check.
func (p *probe) asked(rt http.RoundTripper, method, url, body string, headers ...header) *answer {
	a, err := p.send(p.ctx, rt, method, url, body, headers...)
	if err != nil {
		p.failErr("an answer to "+method+" "+shown(url), err)
	}
	a.p = p
	return a
}

// call sends a request to the API with the key. body is text of JSON, or what is
// made JSON of; nil: none.
func (p *probe) call(method, path string, body any, headers ...header) *answer {
	return p.asked(p.runner.api, method, p.target.APIURL+path, encoded(body), append(p.apiHeaders(body != nil), headers...)...)
}

func (r *runner) apiHeaders(body bool) []header {
	headers := []header{{transport.HeaderAPIKey, r.target.APIKey}, {"Accept", "application/json"}}
	if body {
		headers = append(headers, header{"Content-Type", "application/json"})
	}
	return headers
}

// object is JSON to be written or read.
type object = map[string]any

func encoded(body any) string {
	switch body := body.(type) {
	case nil:
		return ""
	case string:
		return body
	}
	b, err := json.Marshal(body)
	if err != nil {
		panic(err) // of what the checks are made of
	}
	return string(b)
}

// seen describes the answer.
func (a *answer) seen() string {
	text := strconv.Itoa(a.status)
	if a.body != "" {
		text += " " + strings.TrimSpace(fmt.Sprintf("%.300s", a.body))
	}
	return text
}

// expect says what would have been right.
func (a *answer) expect(format string, args ...any) string {
	return a.request + ": " + fmt.Sprintf(format, args...)
}

// is fails the check unless the status is one of these.
func (a *answer) is(statuses ...int) *answer {
	if !slices.Contains(statuses, a.status) {
		words := make([]string, len(statuses))
		for i, s := range statuses {
			words[i] = strconv.Itoa(s)
		}
		a.p.fail(a.expect("%s", strings.Join(words, " or ")), a.seen())
	}
	return a
}

// noRoute tells an unknown route from an unknown thing.
func (a *answer) noRoute() bool {
	return a.status == http.StatusMethodNotAllowed || a.status == http.StatusNotImplemented ||
		a.status == http.StatusNotFound && (a.hasMessage("validation error: ") || !strings.HasPrefix(a.body, "{"))
}

// supported ends the check where the server has no such route.
func (a *answer) supported() *answer {
	if a.noRoute() {
		a.p.unsupported(fmt.Sprintf("%s is answered %s", a.request, a.seen()))
	}
	return a
}

// enabled ends the check where the server says that the key's team may not.
func (a *answer) enabled() *answer {
	if a.supported().status == http.StatusForbidden {
		a.p.unsupported(fmt.Sprintf("%s is answered %s", a.request, a.seen()))
	}
	return a
}

func (a *answer) hasMessage(prefix string) bool {
	var body struct{ Message string }
	return json.Unmarshal([]byte(a.body), &body) == nil && strings.HasPrefix(body.Message, prefix)
}

// refused fails the check unless the answer is an error of the API with that
// message. A message that ends in "…" is the beginning of one.
func (a *answer) refused(status int, message string) *answer {
	a.is(status)
	var body struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	prefix, partly := strings.CutSuffix(message, "…")
	err := json.Unmarshal([]byte(a.body), &body)
	if err != nil || body.Code != status || body.Message != message && (!partly || !strings.HasPrefix(body.Message, prefix)) {
		a.p.fail(a.expect(`%d with "code":%d and "message":%q`, status, status, message), a.seen())
	}
	return a
}

// has fails the check unless a header has that value.
func (a *answer) has(name, value string) *answer {
	if got := a.header.Get(name); got != value {
		a.p.fail(a.expect("the header %s: %s", name, value), fmt.Sprintf("%s: %s", name, got))
	}
	return a
}

// says fails the check unless the body is that text.
func (a *answer) says(body string) *answer {
	if a.body != body {
		a.p.fail(a.expect("the body %.300q", body), fmt.Sprintf("%.300q", a.body))
	}
	return a
}

// contains fails the check unless the body has that text in it.
func (a *answer) contains(text string) {
	if !strings.Contains(a.body, text) {
		a.p.fail(a.expect("a body with %q in it", text), a.seen())
	}
}

// decode reads the body as JSON.
func decode[T any](a *answer) T {
	var v T
	d := json.NewDecoder(bytes.NewReader([]byte(a.body)))
	if err := d.Decode(&v); err != nil {
		a.p.fail(a.expect("JSON that is %T", v), a.seen())
	}
	return v
}

// fields reads the body as an object of JSON.
func (a *answer) fields() fields { return fields{a.p, a.request, decode[object](a)} }

// list reads the body as a list of objects.
func (a *answer) list() []fields {
	decoded := decode[[]object](a)
	a.p.holds(decoded != nil, a.expect("a list"), a.body)
	list := make([]fields, len(decoded))
	for i, o := range decoded {
		list[i] = fields{a.p, a.request, o}
	}
	return list
}

// fields is an object of an answer.
type fields struct {
	p  *probe
	of string
	m  object
}

func get[T any](f fields, name, kind string) T {
	v, ok := f.m[name].(T)
	if !ok {
		f.p.fail(fmt.Sprintf("%s: the field %s, %s", f.of, name, kind), f.describe(name))
	}
	return v
}

func (f fields) describe(name string) string {
	v, ok := f.m[name]
	if !ok {
		return "no such field among " + strings.Join(slices.Sorted(maps.Keys(f.m)), ", ")
	}
	return fmt.Sprintf("%v", v)
}

func (f fields) text(name string) string    { return get[string](f, name, "a string") }
func (f fields) number(name string) float64 { return get[float64](f, name, "a number") }
func (f fields) flag(name string) bool      { return get[bool](f, name, "true or false") }
func (f fields) values(name string) []any   { return get[[]any](f, name, "a list") }
func (f fields) object(name string) fields {
	return fields{f.p, f.of, get[object](f, name, "an object")}
}
func (f fields) has(name string) bool { _, ok := f.m[name]; return ok }

// expect fails the check unless the field has that value, as JSON.
func (f fields) expect(name string, want any) {
	b, err := json.Marshal(want)
	if err != nil {
		panic(err) // of what the checks are made of
	}
	got, err := json.Marshal(f.m[name])
	if err != nil || !f.has(name) || !bytes.Equal(got, b) {
		f.p.fail(fmt.Sprintf("%s: the field %s: %s", f.of, name, b), f.describe(name))
	}
}

// lacks fails the check if there is such a field.
func (f fields) lacks(name string) {
	if f.has(name) {
		f.p.fail(fmt.Sprintf("%s: no field %s", f.of, name), f.describe(name))
	}
}

// time reads a field as a time.
func (f fields) time(name string) time.Time {
	text := f.text(name)
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		f.p.fail(fmt.Sprintf("%s: a time of RFC 3339 in the field %s", f.of, name), text)
	}
	return t
}
