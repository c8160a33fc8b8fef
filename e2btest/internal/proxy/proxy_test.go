package proxy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/nodetest"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// oneSandbox routes everything for the sandbox i1 to one target.
type oneSandbox struct {
	target proxy.Target
	err    error
	seen   proxy.Traffic
}

func (o *oneSandbox) Route(_ context.Context, t proxy.Traffic) (proxy.Target, error) {
	o.seen = t
	switch {
	case o.err != nil:
		return proxy.Target{}, o.err
	case t.SandboxID != "i1":
		return proxy.Target{}, proxy.ErrNotFound
	}
	return o.target, nil
}

// A rig is a proxy in front of one sandbox in memory.
type rig struct {
	router  *oneSandbox
	sandbox *nodetest.Sandbox
	run     *proxy.Run
	dials   atomic.Int32
	handler http.Handler
	active  sync.WaitGroup // requests in the handler
}

// counting counts the connections to a sandbox.
type counting struct {
	node.Sandbox
	dials *atomic.Int32
}

func (c counting) Dial(ctx context.Context, port int) (net.Conn, error) {
	conn, err := c.Sandbox.Dial(ctx, port)
	if err == nil {
		c.dials.Add(1)
	}
	return conn, err
}

func newRig(t *testing.T) *rig {
	t.Helper()
	n := nodetest.New()
	_, err := n.Start(t.Context(), node.Spec{ID: "i1"})
	require.NoError(t, err)
	r := &rig{sandbox: n.Sandbox("i1")}
	r.run = proxy.NewRun(counting{r.sandbox, &r.dials})
	r.router = &oneSandbox{target: proxy.Target{Run: r.run}}
	p := proxy.New(r.router, []string{"e2b.app"}, slog.New(slog.DiscardHandler))
	r.handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.active.Add(1)
		defer r.active.Done()
		p.ServeHTTP(w, req)
	})
	t.Cleanup(func() {
		r.run.End()
		require.NoError(t, n.Close())
	})
	return r
}

// serve puts the proxy on a socket, for HTTP/1.1 and cleartext HTTP/2.
func (r *rig) serve(t *testing.T) string {
	t.Helper()
	server := httptest.NewUnstartedServer(r.handler)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// client speaks one of the two.
func client(t *testing.T, http2 bool) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols), DisableCompression: true}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// protocols says whether each is HTTP/2.
var protocols = map[string]bool{"HTTP1": false, "HTTP2": true}

func request(t *testing.T, method, url, port string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	require.NoError(t, err)
	req.Header.Set("E2b-Sandbox-Id", "i1")
	req.Header.Set("E2b-Sandbox-Port", port)
	return req
}

func do(t *testing.T, c *http.Client, req *http.Request) *http.Response {
	t.Helper()
	resp, err := c.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() }) // many are cut off
	return resp
}

func body(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(b)
}

func TestWhichHostsNameWhat(t *testing.T) {
	tests := []struct{ host, want string }{
		{"localhost", "49983 i1"},
		{"localhost:3001", "49983 i1"},
		{"127.0.0.1:3001", "49983 i1"},
		{"[::1]:3001", "49983 i1"},
		{"[::1]", "49983 i1"},
		{"sandbox.e2b.app", "49983 i1"},
		{"sandbox.other.example", "Invalid host\n"},
		{"8080-i2.e2b.app", "8080 i2"},
		{"8080-i2.localhost:3001", "8080 i2"},
		{"8080-i2-6532622b.any.example", "8080 i2"},
		{"8080-i2", "Invalid host\n"},
		{"8080.e2b.app", "Invalid host\n"},
		{"8080-.e2b.app", "Invalid sandbox ID\n"},
		{"x-i2.e2b.app", "Unexpected error when routing request: invalid sandbox port\n"},
		{"0-i2.e2b.app", "Unexpected error when routing request: invalid sandbox port\n"},
		{"65536-i2.e2b.app", "Unexpected error when routing request: invalid sandbox port\n"},
	}
	r := newRig(t)
	r.router.err = proxy.ErrNotFound
	for _, test := range tests {
		r.router.seen = proxy.Traffic{}
		req := request(t, "GET", "http://x/", "49983", nil)
		req.Host = test.host
		rec := httptest.NewRecorder()
		r.handler.ServeHTTP(rec, req)
		port, id, ok := strings.Cut(test.want, " ")
		if !ok || strings.HasSuffix(test.want, "\n") {
			require.Equal(t, test.want, rec.Body.String(), test.host)
			require.Zero(t, r.router.seen, test.host)
			continue
		}
		require.Equal(t, 502, rec.Code, test.host)
		require.Equal(t, id, r.router.seen.SandboxID, test.host)
		require.Equal(t, port, json.Number(jsonOf(t, r.router.seen.Port)).String(), test.host)
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

func TestErrorsOfTheRouter(t *testing.T) {
	for _, test := range []struct {
		err    error
		status int
		body   string
	}{
		{proxy.ErrNotFound, 502, `{"sandboxId":"i1","message":"The sandbox was not found","code":502}`},
		{errors.New("other"), 502, `{"sandboxId":"i1","message":"The sandbox was not found","code":502}`},
		{proxy.ErrDenied, 403, `{"sandboxId":"i1","message":"This sandbox can't be resumed with the credentials provided. Check your access token and try again.","code":403}`},
		{&proxy.QuotaError{Message: "too many"}, 429, `{"sandboxId":"i1","message":"grpc resume: rpc error: code = ResourceExhausted desc = too many","code":429}`},
	} {
		r := newRig(t)
		r.router.err = test.err
		rec := httptest.NewRecorder()
		r.handler.ServeHTTP(rec, request(t, "GET", "http://localhost/", "8080", nil))
		require.Equal(t, test.status, rec.Code)
		require.JSONEq(t, test.body, rec.Body.String())
		require.Equal(t, "application/json; charset=utf-8", rec.Header().Get("Content-Type"))
	}
}

func TestReservedPathsOfEnvd(t *testing.T) {
	r := newRig(t)
	reached := make(chan string, 100)
	r.sandbox.Serve(8080, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { reached <- req.URL.Path }))
	for _, path := range []string{"/init", "/freeze", "/unfreeze", "/fsfreeze", "/fsthaw", "/collapse", "/upgrade", "//init", "/init/", "/files/../init", "/%69nit"} {
		rec := httptest.NewRecorder()
		r.handler.ServeHTTP(rec, request(t, "POST", "http://localhost"+path, "49983", nil))
		require.Equal(t, 404, rec.Code, path)
		var got map[string]any
		require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &got))
		require.Equal(t, "This endpoint is reserved for the E2B control plane and is not reachable through the sandbox URL", got["message"])
		require.Len(t, got, 3)
		require.Zero(t, r.router.seen, "such a request wakes nothing")
	}
	r.handler.ServeHTTP(httptest.NewRecorder(), request(t, "POST", "http://localhost/init", "8080", nil))
	require.Equal(t, "/init", <-reached, "other ports have their own paths")
}

func TestWhoGetsAPage(t *testing.T) {
	const firefox = "Mozilla/5.0 (X11; Linux) Firefox/140"
	for _, test := range []struct {
		header map[string]string
		html   bool
	}{
		{map[string]string{"User-Agent": firefox}, true},
		{map[string]string{"User-Agent": "SAFARI"}, true},
		{map[string]string{"User-Agent": "curl/8"}, false},
		{map[string]string{}, false},
		{map[string]string{"User-Agent": firefox, "Accept": "text/html,application/json"}, true},
		{map[string]string{"User-Agent": firefox, "Accept": "application/json"}, false},
		{map[string]string{"User-Agent": firefox, "Sec-Fetch-Mode": "cors"}, false},
		{map[string]string{"User-Agent": firefox, "Sec-Fetch-Mode": "websocket"}, false},
		{map[string]string{"User-Agent": firefox, "X-Requested-With": "XMLHttpRequest"}, false},
		{map[string]string{"User-Agent": firefox, "Sec-Fetch-Mode": "navigate", "X-Requested-With": "x"}, true},
	} {
		r := newRig(t)
		r.router.err = proxy.ErrNotFound
		req := request(t, "GET", "http://localhost/", "8080", nil)
		for name, value := range test.header {
			req.Header.Set(name, value)
		}
		rec := httptest.NewRecorder()
		r.handler.ServeHTTP(rec, req)
		require.Equal(t, 502, rec.Code)
		if test.html {
			require.Equal(t, "text/html; charset=utf-8", rec.Header().Get("Content-Type"), test.header)
			require.Contains(t, rec.Body.String(), "<title>Sandbox Not Found</title>")
			require.Contains(t, rec.Body.String(), "<code>i1</code>")
		} else {
			require.Equal(t, "application/json; charset=utf-8", rec.Header().Get("Content-Type"), test.header)
		}
	}
}

func TestClosedPortIsTriedForASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		began := time.Now()
		rec := httptest.NewRecorder()
		r.handler.ServeHTTP(rec, request(t, "GET", "http://localhost/", "8080", nil))
		require.JSONEq(t, `{"sandboxId":"i1","message":"The sandbox is running but port is not open","port":8080,"code":502}`, rec.Body.String())
		require.Equal(t, time.Second, time.Since(began))

		time.AfterFunc(250*time.Millisecond, func() {
			r.sandbox.Serve(8080, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
		})
		rec = httptest.NewRecorder()
		r.handler.ServeHTTP(rec, request(t, "GET", "http://localhost/", "8080", nil))
		require.Equal(t, http.StatusTeapot, rec.Code, "a server that was about to listen")
	})
}

func TestEndOfTheRunEndsTheWaitForAPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		time.AfterFunc(50*time.Millisecond, r.run.End)
		rec := httptest.NewRecorder()
		r.handler.ServeHTTP(rec, request(t, "GET", "http://localhost/", "8080", nil))
		require.Equal(t, 502, rec.Code)
		require.JSONEq(t, `{"sandboxId":"i1","message":"The sandbox was not found","code":502}`, rec.Body.String())
	})
}

func TestRequestAfterTheRun(t *testing.T) {
	r := newRig(t)
	r.run.End()
	rec := httptest.NewRecorder()
	r.handler.ServeHTTP(rec, request(t, "GET", "http://localhost/health", "49983", nil))
	require.JSONEq(t, `{"sandboxId":"i1","message":"The sandbox was not found","code":502}`, rec.Body.String())
	require.Zero(t, r.dials.Load())
}

func TestRequestsPassAsTheyAre(t *testing.T) {
	for name, http2 := range protocols {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.sandbox.Serve(8080, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				b, _ := io.ReadAll(req.Body)
				w.Header().Set("Trailer", "X-After")
				w.Header().Set("X-Seen", req.Method+" "+req.RequestURI+" "+req.Host+" "+req.Header.Get("Accept-Encoding")+"|"+req.Header.Get("X-Forwarded-For"))
				w.WriteHeader(http.StatusAccepted)
				_, _ = w.Write(b)
				w.Header().Set("X-After", "yes")
			}))
			url := r.serve(t)
			resp := do(t, client(t, http2), request(t, "PUT", url+"/a%2Fb//c?x=%20;y", "8080", strings.NewReader("hello")))
			require.Equal(t, http.StatusAccepted, resp.StatusCode)
			require.Equal(t, "hello", body(t, resp))
			require.Equal(t, "PUT /a%2Fb//c?x=%20;y "+strings.TrimPrefix(url, "http://")+" |", resp.Header.Get("X-Seen"))
			require.Equal(t, "yes", resp.Trailer.Get("X-After"))
		})
	}
}

func TestMaskedHost(t *testing.T) {
	r := newRig(t)
	r.router.target.MaskHost = "localhost:${PORT}"
	r.sandbox.Serve(8080, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { _, _ = io.WriteString(w, req.Host) }))
	rec := httptest.NewRecorder()
	r.handler.ServeHTTP(rec, request(t, "GET", "http://localhost/", "8080", nil))
	require.Equal(t, "localhost:8080", rec.Body.String())
}

func TestOnlyTheProxyTellsEnvdTheTime(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Hour} {
		r := newRig(t)
		r.router.target.Clock = ahead
		for _, port := range []int{node.EnvdPort, 8080} {
			r.sandbox.Serve(port, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				_, _ = io.WriteString(w, req.Header.Get(node.ClockHeader))
			}))
		}
		get := func(port string) string {
			req := request(t, "GET", "http://localhost/", port, nil)
			req.Header.Set(node.ClockHeader, "5m0s")
			rec := httptest.NewRecorder()
			r.handler.ServeHTTP(rec, req)
			return rec.Body.String()
		}
		require.Equal(t, map[time.Duration]string{0: "", time.Hour: "1h0m0s"}[ahead], get("49983"))
		require.Equal(t, "5m0s", get("8080"), "what is not for envd is the client's")
	}
}

func TestTooManyConnections(t *testing.T) {
	r := newRig(t)
	r.router.target.MaxRequests = 2
	arrived, release := make(chan struct{}), make(chan struct{})
	r.sandbox.Serve(8080, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	}))
	statuses := make(chan int, 2)
	ask := func() *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		r.handler.ServeHTTP(rec, request(t, "GET", "http://localhost/", "8080", nil))
		return rec
	}
	for range 2 {
		go func() { statuses <- ask().Code }()
		<-arrived
	}
	rec := ask()
	require.Equal(t, 429, rec.Code)
	require.JSONEq(t, `{"sandboxId":"i1","message":"The sandbox has too many concurrent incoming connections (limit: 2)","code":429,"connectionLimit":2}`,
		rec.Body.String())
	close(release)
	require.Equal(t, []int{200, 200}, []int{<-statuses, <-statuses})
	go func() { <-arrived }()
	require.Equal(t, 200, ask().Code, "there is room again")
}

func TestConnectionsToOwnServersAreKeptAndToOthersNot(t *testing.T) {
	r := newRig(t)
	r.sandbox.Serve(8080, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for port, want := range map[string]int32{"49983": 1, "8080": 5} {
		r.dials.Store(0)
		for range 5 {
			rec := httptest.NewRecorder()
			r.handler.ServeHTTP(rec, request(t, "GET", "http://localhost/health", port, nil))
			require.Less(t, rec.Code, 300)
		}
		require.Equal(t, want, r.dials.Load(), port)
	}
}

// A stream in both directions, whose answer begins before the request has ended.
func TestStreamsInBothDirections(t *testing.T) {
	for name, http2 := range protocols {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.sandbox.Serve(49999, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				control := http.NewResponseController(w)
				_ = control.EnableFullDuplex()
				w.WriteHeader(http.StatusOK)
				_ = control.Flush()
				lines := bufio.NewReader(req.Body)
				for {
					line, err := lines.ReadString('\n')
					if err != nil {
						return
					}
					_, _ = io.WriteString(w, "echo "+line)
					_ = control.Flush()
				}
			}))
			in, out := io.Pipe()
			resp := do(t, client(t, http2), request(t, "POST", r.serve(t)+"/", "49999", in))
			answers := bufio.NewReader(resp.Body)
			for _, line := range []string{"one\n", "two\n"} {
				_, err := io.WriteString(out, line)
				require.NoError(t, err)
				got, err := answers.ReadString('\n')
				require.NoError(t, err)
				require.Equal(t, "echo "+line, got)
			}
			require.NoError(t, out.Close())
			rest, err := io.ReadAll(answers)
			require.NoError(t, err)
			require.Empty(t, rest)
		})
	}
}

// endless answers with a first line and then nothing, or without end.
func endless(flood bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.WriteString(w, "first\n")
		_ = http.NewResponseController(w).Flush()
		chunk := strings.Repeat("x", 32<<10)
		for flood {
			if _, err := io.WriteString(w, chunk); err != nil {
				return
			}
		}
		<-req.Context().Done()
	})
}

// closeDelimited is a stream whose end would be that of its connection.
var closeDelimited = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nfirst\n")
	_, _ = io.Copy(io.Discard, conn) // until it is closed
})

func TestEndOfTheRunCutsStreams(t *testing.T) {
	for name, http2 := range protocols {
		t.Run(name, func(t *testing.T) {
			for name, stream := range map[string]http.Handler{"chunked": endless(false), "close-delimited": closeDelimited} {
				t.Run(name, func(t *testing.T) {
					r := newRig(t)
					r.sandbox.Serve(8080, stream)
					resp := do(t, client(t, http2), request(t, "GET", r.serve(t)+"/", "8080", nil))
					lines := bufio.NewReader(resp.Body)
					line, err := lines.ReadString('\n')
					require.NoError(t, err)
					require.Equal(t, "first\n", line)
					r.run.End()
					_, err = lines.ReadByte()
					require.Error(t, err)
					require.NotErrorIs(t, err, io.EOF, "no client may take it for the end")
					r.active.Wait()
				})
			}
		})
	}
}

func TestEndOfTheRunFreesWritesToAClientThatDoesNotRead(t *testing.T) {
	for name, http2 := range protocols {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.sandbox.Serve(8080, endless(true))
			resp := do(t, client(t, http2), request(t, "GET", r.serve(t)+"/", "8080", nil))
			require.Equal(t, http.StatusOK, resp.StatusCode)
			r.run.End()
			r.active.Wait()
			_, err := io.Copy(io.Discard, resp.Body)
			require.Error(t, err)
		})
	}
}

func TestEndOfTheRunBeforeTheAnswer(t *testing.T) {
	for name, http2 := range protocols {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			began := make(chan struct{})
			r.sandbox.Serve(8080, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				close(began)
				<-req.Context().Done()
			}))
			go func() {
				<-began
				r.run.End()
			}()
			resp := do(t, client(t, http2), request(t, "GET", r.serve(t)+"/", "8080", nil))
			require.Equal(t, 502, resp.StatusCode)
			require.JSONEq(t, `{"sandboxId":"i1","message":"The sandbox was not found","code":502}`, body(t, resp))
		})
	}
}

func TestUpstreamThatBreaksBeforeItsAnswer(t *testing.T) {
	r := newRig(t)
	r.sandbox.Serve(8080, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	resp := do(t, client(t, false), request(t, "POST", r.serve(t)+"/", "8080", strings.NewReader("x")))
	require.Equal(t, 502, resp.StatusCode)
	require.JSONEq(t, `{"sandboxId":"i1","message":"The sandbox is running but port is not open","port":8080,"code":502}`, body(t, resp))
}

func TestUpstreamThatBreaksInItsAnswer(t *testing.T) {
	for name, http2 := range protocols {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.sandbox.Serve(8080, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "part")
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}))
			resp := do(t, client(t, http2), request(t, "GET", r.serve(t)+"/", "8080", nil))
			_, err := io.ReadAll(resp.Body)
			require.Error(t, err)
		})
	}
}

func TestClientThatGoesIsNoticedInside(t *testing.T) {
	for name, http2 := range protocols {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			gone := make(chan struct{})
			r.sandbox.Serve(8080, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				_ = http.NewResponseController(w).Flush()
				<-req.Context().Done()
				close(gone)
			}))
			ctx, cancel := context.WithCancel(t.Context())
			do(t, client(t, http2), request(t, "GET", r.serve(t)+"/", "8080", nil).WithContext(ctx))
			cancel()
			<-gone
			r.active.Wait()
		})
	}
}

// echo is a server that switches to a protocol of lines.
var echo = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	for {
		line, err := buffered.ReadString('\n')
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "echo "+line)
	}
})

func TestWebSocketsPassAndAreCut(t *testing.T) {
	r := newRig(t)
	r.sandbox.Serve(8080, echo)
	req := request(t, "GET", r.serve(t)+"/", "8080", nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "websocket")
	resp := do(t, client(t, false), req)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	conn, ok := resp.Body.(io.ReadWriteCloser)
	require.True(t, ok)
	lines := bufio.NewReader(conn)
	for _, line := range []string{"one\n", "two\n"} {
		_, err := io.WriteString(conn, line)
		require.NoError(t, err)
		got, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "echo "+line, got)
	}
	r.run.End()
	_, err := lines.ReadString('\n')
	require.Error(t, err)
	r.active.Wait()
}

func TestEndClosesConnectionsThatAreKept(t *testing.T) {
	r := newRig(t)
	rec := httptest.NewRecorder()
	r.handler.ServeHTTP(rec, request(t, "GET", "http://localhost/health", "49983", nil))
	require.Equal(t, 204, rec.Code)
	r.run.End()
	r.run.End()
	// What stays open is found by goleak: the connection's goroutines.
}
