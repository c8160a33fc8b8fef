// Package transport has what every plane of the SDK shares: how URLs are built,
// how connections are made and limited, how an answer that is not a success
// becomes an error, and what must not leak from any of them.
package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// The headers that route a request to a sandbox and let it in.
const (
	HeaderAPIKey       = "X-API-Key" //nolint:gosec // the header's name, not a credential
	HeaderSandboxID    = "E2b-Sandbox-Id"
	HeaderSandboxPort  = "E2b-Sandbox-Port"
	HeaderEnvdToken    = "X-Access-Token"
	HeaderTrafficToken = "E2b-Traffic-Access-Token" //nolint:gosec // the header's name, not a credential
)

// ErrTimeout is returned when a limit of ours, not the caller's ctx, ended an
// attempt.
var ErrTimeout = errors.New("no answer within the request timeout")

// ErrRedirect is returned for a redirect that would carry a request, and the
// secrets in its headers, to another host or onto plain HTTP, or that would make
// another request of it.
var ErrRedirect = errors.New("refused a redirect")

// Tune returns the transports that a client uses: one for everything, and one
// for code execution, where HTTP/1.1 is needed because only the end of a
// connection interrupts a kernel. An *http.Transport is cloned, and nil means
// http.DefaultTransport; any other RoundTripper serves both as it is.
func Tune(rt http.RoundTripper) (main, http1 http.RoundTripper) {
	if rt == nil {
		rt = http.DefaultTransport
	}
	base, ok := rt.(*http.Transport)
	if !ok {
		return rt, rt
	}
	t := base.Clone()
	// Without this net/http asks for gzip by itself, and envd then compresses
	// every download at a fortieth of the speed.
	t.DisableCompression = true
	// An agent backend talks to one host with many sandboxes behind it.
	t.MaxIdleConns = 0
	t.MaxIdleConnsPerHost = max(t.MaxIdleConnsPerHost, 256)
	// Below the 600 s after which E2B's load balancer drops idle connections.
	if t.IdleConnTimeout <= 0 || t.IdleConnTimeout > 5*time.Minute {
		t.IdleConnTimeout = 90 * time.Second
	}
	if t.HTTP2 == nil {
		t.HTTP2 = new(http.HTTP2Config)
	}
	// A dead HTTP/2 connection carries every stream to a host with it: notice.
	if t.HTTP2.SendPingTimeout == 0 {
		t.HTTP2.SendPingTimeout = 30 * time.Second
	}
	if t.HTTP2.PingTimeout == 0 {
		t.HTTP2.PingTimeout = 15 * time.Second
	}
	h1 := t.Clone()
	h1.ForceAttemptHTTP2 = false
	h1.Protocols = new(http.Protocols)
	h1.Protocols.SetHTTP1(true)
	h1.TLSNextProto = nil
	// Clone has net/http offer HTTP/2 in the TLS handshake, and a server that takes
	// the offer then speaks another protocol than this transport.
	if h1.TLSClientConfig == nil {
		h1.TLSClientConfig = new(tls.Config)
	}
	h1.TLSClientConfig.NextProtos = []string{"http/1.1"}
	return t, h1
}

// RoundTripFunc is a function as an http.RoundTripper.
type RoundTripFunc func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f RoundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// RoundTrip makes a request with rt, for what stands below an http.Client or goes
// without one. As with that, there is a body in every answer: not each RoundTripper of
// a user's takes care of it.
func RoundTrip(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
	resp, err := rt.RoundTrip(r)
	switch {
	case err != nil:
	case resp == nil:
		return nil, fmt.Errorf("the RoundTripper (%T) returned neither an answer nor an error", rt)
	case resp.Body == nil:
		resp.Body = http.NoBody
	}
	return resp, err
}

// CheckRedirect is the redirect policy of every plane.
func CheckRedirect(req *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case req.URL.Host != first.URL.Host:
		return fmt.Errorf("%w to another host", ErrRedirect)
	case first.URL.Scheme == "https" && req.URL.Scheme != "https":
		return fmt.Errorf("%w to plain http", ErrRedirect)
	case req.Method != first.Method:
		// After 301, 302 and 303 net/http goes on with GET: the answer to that would
		// be taken for the success of a DELETE that was never carried out.
		return fmt.Errorf("%w that turns %s into %s", ErrRedirect, first.Method, req.Method)
	case len(via) >= 10:
		return fmt.Errorf("%w after %d others", ErrRedirect, len(via))
	}
	return nil
}

// Log wraps rt so that each request leaves one record: what was asked, never
// what was said. A nil logger returns rt itself.
func Log(rt http.RoundTripper, l *slog.Logger) http.RoundTripper {
	if l == nil {
		return rt
	}
	return RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		start := time.Now()
		resp, err := RoundTrip(rt, r)
		attrs := make([]slog.Attr, 0, 6)
		// The query may hold file names, metadata and signatures.
		attrs = append(attrs,
			slog.String("method", r.Method), slog.String("host", r.URL.Host), slog.String("path", r.URL.Path),
			slog.Duration("duration", time.Since(start)))
		if id := r.Header.Get(HeaderSandboxID); id != "" {
			attrs = append(attrs, slog.String("sandbox", id))
		}
		if err != nil {
			attrs = append(attrs, slog.String("error", Cause(err).Error()))
		} else {
			attrs = append(attrs, slog.Int("status", resp.StatusCode))
		}
		l.LogAttrs(r.Context(), slog.LevelDebug, "e2b: request", attrs...)
		return resp, err
	})
}

// Cause takes the *url.Error off an error of net/http: it repeats the URL, whose
// query may hold what belongs in no log.
func Cause(err error) error {
	for {
		ue, ok := errors.AsType[*url.Error](err)
		if !ok {
			return err
		}
		err = ue.Err
	}
}

// FalseEnd returns the error of a ctx whose cause net/http returns for the end of a body,
// though the body was cut off there; nil for any other.
func FalseEnd(ctx context.Context) error {
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), io.EOF) {
		return ctx.Err()
	}
	return nil
}

// A Delivery tells how far a request came.
type Delivery struct {
	asked, got atomic.Bool
}

// Trace returns a ctx under which a request reports to d. A Delivery may follow
// one request after another, and then tells of the last.
func (d *Delivery) Trace(ctx context.Context) context.Context {
	d.asked.Store(false)
	d.got.Store(false)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { d.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { d.got.Store(true) },
	})
}

// NotSent reports whether it is certain that err came before the first byte of
// the request left. A RoundTripper that calls no trace hooks leaves it uncertain, and
// so does a nil err.
func (d *Delivery) NotSent(err error) bool {
	if d.asked.Load() && !d.got.Load() {
		return true
	}
	if oe, ok := errors.AsType[*net.OpError](err); ok && (oe.Op == "dial" || oe.Op == "proxyconnect") {
		return true
	}
	// A handshake that failed: nothing of the request goes out before it is done.
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	_, ok := errors.AsType[tls.RecordHeaderError](err)
	return ok
}

// Join appends path segments to base, each escaped as a whole, so that no
// segment can climb out of its place or add a query. It panics on "", "." and
// "..", which callers refuse as arguments before.
func Join(base *url.URL, segments ...string) *url.URL {
	u := *base
	var escaped, plain strings.Builder
	escaped.WriteString(strings.TrimSuffix(base.EscapedPath(), "/"))
	plain.WriteString(strings.TrimSuffix(base.Path, "/"))
	for _, s := range segments {
		if s == "" || s == "." || s == ".." {
			panic("transport: path segment " + s)
		}
		// A colon could begin a verb after an ID, for some servers.
		escaped.WriteString("/" + strings.ReplaceAll(url.PathEscape(s), ":", "%3A"))
		plain.WriteString("/" + s)
	}
	u.Path, u.RawPath = plain.String(), escaped.String()
	return &u
}

// ParseBase checks a base URL that a user gave.
func ParseBase(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		// The text of a parse error repeats the URL, which may hold a password.
		return nil, errors.New("is not a URL")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("must begin with http:// or https://")
	case u.Host == "" || u.Hostname() == "":
		return nil, errors.New("has no host")
	case u.User != nil:
		return nil, errors.New("must not hold a user name or password")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("must not have a query or fragment")
	}
	return u, nil
}

// ValidHeader reports whether s may stand in a header value as it is.
func ValidHeader(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < ' ' && c != '\t') || c == 0x7f {
			return false
		}
	}
	return true
}

// ReadBody reads at most limit bytes and tells whether that was all.
func ReadBody(r io.Reader, limit int64) (b []byte, whole bool, err error) {
	b, err = io.ReadAll(io.LimitReader(r, limit+1))
	if int64(len(b)) > limit {
		return b[:limit], false, err
	}
	return b, true, err
}
