package transport

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func mustURL(tb testing.TB, s string) *url.URL {
	tb.Helper()
	u, err := url.Parse(s)
	require.NoError(tb, err)
	return u
}

// get makes a request and reads its whole answer.
func get(t *testing.T, rt http.RoundTripper, u string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u, nil)
	require.NoError(t, err)
	resp, err := rt.RoundTrip(req)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp
}

func TestTuneLeavesTheCallersTransportAlone(t *testing.T) {
	t.Parallel()
	base := &http.Transport{MaxIdleConnsPerHost: 7, IdleConnTimeout: time.Hour, Proxy: http.ProxyFromEnvironment}
	main, http1 := Tune(base)
	require.NotSame(t, base, main)
	require.NotSame(t, base, http1)
	require.NotSame(t, main, http1)
	require.Equal(t, 7, base.MaxIdleConnsPerHost)
	require.Equal(t, time.Hour, base.IdleConnTimeout)
	require.False(t, base.DisableCompression)
	require.Nil(t, base.Protocols)

	for name, rt := range map[string]http.RoundTripper{"main": main, "http1": http1} {
		tr, ok := rt.(*http.Transport)
		require.True(t, ok, name)
		require.True(t, tr.DisableCompression, name)
		require.GreaterOrEqual(t, tr.MaxIdleConnsPerHost, 256, name)
		require.Zero(t, tr.MaxIdleConns, name)
		require.Less(t, tr.IdleConnTimeout, 10*time.Minute, name)
		require.Positive(t, tr.IdleConnTimeout, name)
	}
	tr, ok := main.(*http.Transport)
	require.True(t, ok)
	require.Positive(t, tr.HTTP2.SendPingTimeout)
	require.Positive(t, tr.HTTP2.PingTimeout)
}

func TestTuneKeepsWhatTheCallerChose(t *testing.T) {
	t.Parallel()
	main, _ := Tune(&http.Transport{
		MaxIdleConnsPerHost: 1000, IdleConnTimeout: time.Minute,
		HTTP2: &http.HTTP2Config{SendPingTimeout: time.Second, PingTimeout: 2 * time.Second},
	})
	tr, ok := main.(*http.Transport)
	require.True(t, ok)
	require.Equal(t, 1000, tr.MaxIdleConnsPerHost)
	require.Equal(t, time.Minute, tr.IdleConnTimeout)
	require.Equal(t, time.Second, tr.HTTP2.SendPingTimeout)
	require.Equal(t, 2*time.Second, tr.HTTP2.PingTimeout)
}

// TestUserF8F10ProxyIsKept checks that a proxy goes on to be used: the caller's,
// and for no transport that of the environment, as net/http reads it.
func TestUserF8F10ProxyIsKept(t *testing.T) {
	t.Parallel()
	want := mustURL(t, "http://proxy.test:3128")
	main, http1 := Tune(&http.Transport{Proxy: http.ProxyURL(want)})
	def, ok := http.DefaultTransport.(*http.Transport)
	require.True(t, ok)
	byDefault, _ := Tune(nil)
	require.NotSame(t, def, byDefault)
	tr, ok := byDefault.(*http.Transport)
	require.True(t, ok)
	require.NotNil(t, tr.Proxy, "http.DefaultTransport asks the environment")
	for _, rt := range []http.RoundTripper{main, http1} {
		tr, ok := rt.(*http.Transport)
		require.True(t, ok)
		got, err := tr.Proxy(&http.Request{URL: mustURL(t, "https://api.e2b.test")})
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestTuneUsesAnyOtherRoundTripperAsItIs(t *testing.T) {
	t.Parallel()
	rt := &countingTripper{}
	main, http1 := Tune(rt)
	require.Same(t, rt, main)
	require.Same(t, rt, http1)
}

type countingTripper struct {
	trips, closed atomic.Int64
}

func (c *countingTripper) RoundTrip(*http.Request) (*http.Response, error) {
	c.trips.Add(1)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Header: http.Header{}}, nil
}

func (c *countingTripper) CloseIdleConnections() { c.closed.Add(1) }

// TestTuneProtocols speaks to a server that offers HTTP/2: the one transport
// takes it, the other must not, and neither asks for gzip.
func TestTuneProtocols(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Asked-For", r.Header.Get("Accept-Encoding"))
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	base, ok := srv.Client().Transport.(*http.Transport)
	require.True(t, ok)
	main, http1 := Tune(base)
	for want, rt := range map[int]http.RoundTripper{2: main, 1: http1} {
		resp := get(t, rt, srv.URL)
		require.Equal(t, want, resp.ProtoMajor)
		require.Empty(t, resp.Header.Get("Asked-For"))
		c, ok := rt.(interface{ CloseIdleConnections() })
		require.True(t, ok)
		c.CloseIdleConnections()
	}
}

func TestCheckRedirect(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name             string
		method, from     string
		toMethod, to     string
		hops             int
		refused, refusal bool
	}{
		{name: "another path", from: "https://api.e2b.test/a", to: "https://api.e2b.test/b"},
		{name: "up to https", from: "http://api.e2b.test/a", to: "https://api.e2b.test/a"},
		{name: "http stays http", from: "http://127.0.0.1:1/a", to: "http://127.0.0.1:1/b"},
		{name: "a method that stays", method: "POST", from: "https://api.e2b.test/a", toMethod: "POST", to: "https://api.e2b.test/b"},
		{name: "down to http", from: "https://api.e2b.test/a", to: "http://api.e2b.test/a", refused: true, refusal: true},
		{name: "another host", from: "https://api.e2b.test/a", to: "https://evil.test/a", refused: true, refusal: true},
		{name: "another port", from: "https://api.e2b.test/a", to: "https://api.e2b.test:8443/a", refused: true, refusal: true},
		{name: "a subdomain", from: "https://e2b.test/a", to: "https://api.e2b.test/a", refused: true, refusal: true},
		{name: "a method that changes", method: "DELETE", from: "https://api.e2b.test/a", toMethod: "GET", to: "https://api.e2b.test/a", refused: true, refusal: true},
		{name: "in a circle", from: "https://api.e2b.test/a", to: "https://api.e2b.test/a", hops: 10, refused: true, refusal: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			via := []*http.Request{{Method: row.method, URL: mustURL(t, row.from)}}
			for range row.hops {
				via = append(via, &http.Request{URL: mustURL(t, row.from)})
			}
			err := CheckRedirect(&http.Request{Method: row.toMethod, URL: mustURL(t, row.to)}, via)
			require.Equal(t, row.refused, err != nil)
			require.Equal(t, row.refusal, errors.Is(err, ErrRedirect))
		})
	}
}

func TestLog(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	fail := errors.New("no luck")
	var answer error
	rt := Log(RoundTripFunc(func(*http.Request) (*http.Response, error) {
		if answer != nil {
			return nil, &url.Error{Op: "Get", URL: "https://e2b.test/?secret-query", Err: answer}
		}
		return &http.Response{StatusCode: http.StatusTeapot, Body: http.NoBody}, nil
	}), l)

	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://user:secret-password@e2b.test/files?path=secret-query", strings.NewReader("secret-body"))
	require.NoError(t, err)
	req.Header.Set(HeaderAPIKey, "secret-key")
	req.Header.Set(HeaderEnvdToken, "secret-token")
	req.Header.Set(HeaderSandboxID, "isandbox")
	_, err = rt.RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(out.String(), "\n"), "one record per request")
	for _, part := range []string{"level=DEBUG", "method=POST", "host=e2b.test", "path=/files", "status=418", "sandbox=isandbox", "duration="} {
		require.Contains(t, out.String(), part)
	}
	answer = fail
	_, err = rt.RoundTrip(req)
	require.ErrorIs(t, err, fail)
	require.Contains(t, out.String(), `error="no luck"`)
	require.NotContains(t, out.String(), "secret")

	plain := &countingTripper{}
	require.Same(t, plain, Log(plain, nil))
}

func TestCause(t *testing.T) {
	t.Parallel()
	inner := errors.New("inner")
	wrapped := &url.Error{Op: "Get", URL: "https://e2b.test/?a=secret", Err: fmt.Errorf("outer: %w", &url.Error{Err: inner})}
	require.Equal(t, inner, Cause(wrapped))
	require.Equal(t, inner, Cause(inner))
	require.NoError(t, Cause(nil))
}

// TestDelivery makes requests that fail at each stage, over a real transport.
func TestDelivery(t *testing.T) {
	t.Parallel()
	try := func(t *testing.T, rt http.RoundTripper, ctx context.Context, d *Delivery, u string) error {
		t.Helper()
		req, err := http.NewRequestWithContext(d.Trace(ctx), http.MethodPost, u, strings.NewReader("x"))
		require.NoError(t, err)
		resp, err := rt.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	listen := func(t *testing.T) net.Listener {
		t.Helper()
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	transport := func(t *testing.T) *http.Transport {
		t.Helper()
		tr := &http.Transport{}
		t.Cleanup(tr.CloseIdleConnections)
		return tr
	}

	t.Run("nothing listens", func(t *testing.T) {
		t.Parallel()
		l := listen(t)
		require.NoError(t, l.Close())
		var d Delivery
		err := try(t, transport(t), t.Context(), &d, "http://"+l.Addr().String())
		require.Error(t, err)
		require.True(t, d.NotSent(err))
	})
	t.Run("no TLS there", func(t *testing.T) {
		t.Parallel()
		srv := httptest.NewServer(http.NotFoundHandler())
		t.Cleanup(srv.Close)
		var d Delivery
		err := try(t, transport(t), t.Context(), &d, strings.Replace(srv.URL, "http:", "https:", 1))
		require.Error(t, err)
		require.True(t, d.NotSent(err))
	})
	t.Run("an unknown certificate", func(t *testing.T) {
		t.Parallel()
		srv := httptest.NewUnstartedServer(http.NotFoundHandler())
		srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
		srv.StartTLS()
		t.Cleanup(srv.Close)
		var d Delivery
		err := try(t, transport(t), t.Context(), &d, srv.URL)
		_, unknown := errors.AsType[*tls.CertificateVerificationError](err)
		require.True(t, unknown, "%v", err)
		require.True(t, d.NotSent(err))
	})
	t.Run("closed without an answer", func(t *testing.T) {
		t.Parallel()
		l := listen(t)
		served := make(chan struct{})
		go func() {
			defer close(served)
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(c))
			_ = c.Close()
		}()
		var d Delivery
		err := try(t, transport(t), t.Context(), &d, "http://"+l.Addr().String())
		require.Error(t, err)
		require.False(t, d.NotSent(err))
		<-served
	})
	t.Run("a Delivery follows requests", func(t *testing.T) {
		t.Parallel()
		srv := httptest.NewServer(http.NotFoundHandler())
		tr := transport(t)
		var d Delivery
		require.NoError(t, try(t, tr, t.Context(), &d, srv.URL))
		tr.CloseIdleConnections()
		srv.Close()
		err := try(t, tr, t.Context(), &d, srv.URL)
		require.Error(t, err)
		require.True(t, d.NotSent(err), "the second one was not sent, though the first was")
	})
	t.Run("a transport without hooks", func(t *testing.T) {
		t.Parallel()
		fail := errors.New("fails")
		var d Delivery
		err := try(t, RoundTripFunc(func(*http.Request) (*http.Response, error) { return nil, fail }), t.Context(), &d, "http://e2b.test")
		require.ErrorIs(t, err, fail)
		require.False(t, d.NotSent(err), "nobody can tell")
		require.True(t, d.NotSent(fmt.Errorf("wrapped: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})))
		require.False(t, d.NotSent(&net.OpError{Op: "read", Err: syscall.ECONNRESET}))
	})
}

func TestJoin(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		base     string
		segments []string
		want     string
	}{
		{"https://api.e2b.test", []string{"sandboxes"}, "https://api.e2b.test/sandboxes"},
		{"https://api.e2b.test/", []string{"sandboxes"}, "https://api.e2b.test/sandboxes"},
		{"https://e2b.test/api/v9/", []string{"sandboxes", "a", "pause"}, "https://e2b.test/api/v9/sandboxes/a/pause"},
		{"https://e2b.test/a%2Fb", []string{"x"}, "https://e2b.test/a%2Fb/x"},
		{"https://e2b.test", []string{"templates", "team/name:tag"}, "https://e2b.test/templates/team%2Fname%3Atag"},
		{"https://e2b.test", []string{"a?b#c"}, "https://e2b.test/a%3Fb%23c"},
		{"https://e2b.test", []string{"%2e%2e"}, "https://e2b.test/%252e%252e"},
		{"https://e2b.test", []string{"a b\n"}, "https://e2b.test/a%20b%0A"},
	} {
		base := mustURL(t, row.base)
		before := *base
		got := Join(base, row.segments...)
		require.Equal(t, row.want, got.String())
		require.Equal(t, before, *base, "the base is not changed")
		again := mustURL(t, got.String())
		require.Equal(t, strings.Count(row.want, "/"), strings.Count(again.String(), "/"))
	}
	for _, bad := range []string{"", ".", ".."} {
		require.Panics(t, func() { Join(mustURL(t, "https://e2b.test"), "sandboxes", bad) }, "%q", bad)
	}
}

func TestParseBase(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"https://api.e2b.app", "http://localhost:3000", "http://10.0.0.1", "https://e2b.test/api/", "https://[::1]:8080"} {
		u, err := ParseBase(good)
		require.NoError(t, err, good)
		require.Equal(t, good, u.String())
	}
	for _, bad := range []string{
		"", "api.e2b.app", "ftp://e2b.test", "https://", "https://:8080", "//e2b.test", "https://user:secret@e2b.test",
		"https://e2b.test?a=secret", "https://e2b.test/#secret", "https://e2b.test:secret", "https://e2b .test", "https://e2b.test/%zzsecret", "secret\n",
	} {
		_, err := ParseBase(bad)
		require.Error(t, err, bad)
		require.NotContains(t, err.Error(), "secret", bad)
	}
}

func TestValidHeader(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"", "e2b_0123", "a b", "ü", "a\tb", "sk-Abc.123~!"} {
		require.True(t, ValidHeader(good), "%q", good)
	}
	for _, bad := range []string{"a\nb", "\r", "a\x00", "\x7f", "a\r\nX-Other: 1"} {
		require.False(t, ValidHeader(bad), "%q", bad)
	}
}

func TestReadBody(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		body  string
		limit int64
		want  string
		whole bool
	}{
		{"", 3, "", true},
		{"abc", 3, "abc", true},
		{"abcd", 3, "abc", false},
		{strings.Repeat("x", 100), 3, "xxx", false},
	} {
		r := strings.NewReader(row.body)
		b, whole, err := ReadBody(r, row.limit)
		require.NoError(t, err)
		require.Equal(t, row.want, string(b))
		require.Equal(t, row.whole, whole)
		require.LessOrEqual(t, len(row.body)-r.Len(), int(row.limit)+1, "no more is read than can be used")
	}
	fail := errors.New("cut")
	b, whole, err := ReadBody(io.MultiReader(strings.NewReader("ab"), failingReader{fail}), 10)
	require.ErrorIs(t, err, fail)
	require.Equal(t, "ab", string(b))
	require.True(t, whole)
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }
