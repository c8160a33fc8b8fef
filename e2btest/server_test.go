package e2btest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/nodetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a runtime without processes.
type memory struct {
	*nodetest.Node
	closed bool
}

func (m *memory) Isolated() (ok bool, reason string) { return false, "it is in memory" }

func (m *memory) Python() (string, error) { return "", errors.New("it runs no code") }

func (m *memory) Close() error {
	m.closed = true
	return m.Node.Close()
}

func newMemory() *memory { return &memory{Node: nodetest.New()} }

// inMemory starts a server without processes.
func inMemory(t *testing.T, o Options) (*Server, *memory) {
	t.Helper()
	o, err := o.withDefaults()
	require.NoError(t, err)
	m := newMemory()
	s, err := newServer(o, m)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.True(t, m.closed)
		require.NoError(t, m.Wrong())
	})
	return s, m
}

func newClient(t *testing.T, http2 bool) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// send sends a request with the server's key and returns status and body.
func (s *Server) send(t *testing.T, c *http.Client, method, url, body string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("X-API-Key", s.APIKey())
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	require.NoError(t, err)
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode, string(b)
}

func (s *Server) create(t *testing.T, c *http.Client) string {
	t.Helper()
	status, body := s.send(t, c, "POST", s.APIURL()+"/sandboxes", `{"templateID":"base","timeout":60}`)
	require.Equal(t, 201, status, body)
	_, rest, _ := strings.Cut(body, `"sandboxID":"`)
	id, _, ok := strings.Cut(rest, `"`)
	require.True(t, ok)
	return id
}

func TestBothProtocolsOnBothListeners(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		s, _ := inMemory(t, Options{})
		c := newClient(t, http2)
		id := s.create(t, c)
		status, _ := s.send(t, c, "GET", s.SandboxURL()+"/health", "", "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49983")
		require.Equal(t, 204, status)
		status, body := s.send(t, c, "GET", s.SandboxURL()+"/health", "")
		require.Equal(t, 400, status)
		require.Equal(t, "Invalid host\n", body)
	}
}

func TestHostNamesBelowTheDomain(t *testing.T) {
	s, _ := inMemory(t, Options{})
	c := newClient(t, false)
	id := s.create(t, c)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.SandboxURL()+"/health", nil)
	require.NoError(t, err)
	req.Host = "49983-" + id + "." + s.Domain()
	resp, err := c.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 204, resp.StatusCode)
}

func TestOptionsThatAreRefused(t *testing.T) {
	run := func(context.Context, *Command) int { return 0 }
	for want, o := range map[string]Options{
		"is not an address on loopback":                   {Addr: "0.0.0.0:0"},
		`":0" is not an address`:                          {Addr: ":0"},
		`"192.0.2.1:80" is not an address`:                {SandboxAddr: "192.0.2.1:80"},
		`"example.com:80"`:                                {Addr: "example.com:80"},
		"missing port":                                    {Addr: "127.0.0.1"},
		"visible ASCII":                                   {APIKey: "a\nb"},
		"below a second":                                  {MaxSandboxLifetime: -time.Hour},
		"below zero":                                      {MaxSandboxes: -1},
		"no name of a template":                           {Templates: []string{"Ünï"}},
		"-1 connections":                                  {MaxConnections: -1},
		"no routes":                                       {Routes: 7},
		`EnvdVersion: "0.5"`:                              {EnvdVersion: "0.5"},
		`EnvdVersion: "v0.5.7"`:                           {EnvdVersion: "v0.5.7"},
		`EnvdVersion: "0.6.14" is newer than 0.6.13`:      {EnvdVersion: "0.6.14"},
		`EnvdVersion: "0.10.0" is newer than 0.6.13`:      {EnvdVersion: "0.10.0"},
		"ProcessLimit: -1 processes":                      {ProcessLimit: -1},
		"MemoryLimit: -1 bytes":                           {MemoryLimit: -1},
		"MemoryLimit: 8388607 bytes":                      {MemoryLimit: 8<<20 - 1},
		"ProcessLimit: a scripted server":                 {Run: run, ProcessLimit: 1},
		"MemoryLimit and ProcessLimit: a scripted server": {Run: run, MemoryLimit: 8 << 20},
	} {
		_, err := NewServer(&o)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "e2btest: ")
	}
}

func TestAddressInUse(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	for _, o := range []Options{{Addr: l.Addr().String()}, {SandboxAddr: l.Addr().String()}} {
		o, err := o.withDefaults()
		require.NoError(t, err)
		m := newMemory()
		_, err = newServer(o, m)
		require.ErrorContains(t, err, "address already in use")
		require.True(t, m.closed)
	}
}

func TestOptionsReachTheControlPlane(t *testing.T) {
	s, _ := inMemory(t, Options{
		APIKey: "my-key", Templates: []string{"mine"}, MaxSandboxLifetime: time.Hour, MaxSandboxes: 1, Routes: V2Routes, Addr: "localhost:0",
	})
	c := newClient(t, false)
	require.Equal(t, "my-key", s.APIKey())
	post := func(path, body string) (int, string) { return s.send(t, c, "POST", s.APIURL()+path, body) }
	status, body := post("/sandboxes", `{"templateID":"mine"}`)
	require.Equal(t, 404, status, body)
	status, body = post("/v2/sandboxes", `{"templateID":"mine","timeout":3601}`)
	require.Equal(t, 400, status)
	require.Contains(t, body, "Timeout cannot be greater than 1 hours")
	status, body = post("/v2/sandboxes", `{"templateID":"mine"}`)
	require.Equal(t, 201, status, body)
	status, _ = post("/v2/sandboxes", `{"templateID":"mine"}`)
	require.Equal(t, 429, status)
}

func TestRandomKeysDiffer(t *testing.T) {
	a, _ := inMemory(t, Options{})
	b, _ := inMemory(t, Options{})
	require.Regexp(t, `^e2b_[0-9a-f]{40}$`, a.APIKey())
	require.NotEqual(t, a.APIKey(), b.APIKey())
	status, _ := a.send(t, newClient(t, false), "GET", a.APIURL()+"/sandboxes", "", "X-API-Key", b.APIKey())
	require.Equal(t, 401, status)
}

func TestRequestsAreLogged(t *testing.T) {
	s, _ := inMemory(t, Options{})
	c := newClient(t, false)
	id := s.create(t, c)
	s.send(t, c, "POST", s.SandboxURL()+"/a%2Fb?x=1", "hello", "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49983")
	s.send(t, c, "GET", s.SandboxURL()+"/", "")
	requests := s.Requests()
	require.Len(t, requests, 3)

	create, call, bad := requests[0], requests[1], requests[2]
	require.Equal(t, []any{false, "POST", "/sandboxes", "", 201}, []any{create.Sandbox, create.Method, create.Path, create.Query, create.Status})
	require.Equal(t, s.APIKey(), create.Header.Get("X-API-Key"))
	require.JSONEq(t, `{"templateID":"base","timeout":60}`, string(create.Body))
	require.Equal(t, strings.TrimPrefix(s.APIURL(), "http://"), create.Host)
	require.WithinDuration(t, time.Now(), create.Time, time.Minute)
	require.Equal(t, []any{true, "POST", "/a%2Fb", "x=1", 404, "hello"}, []any{call.Sandbox, call.Method, call.Path, call.Query, call.Status, string(call.Body)})
	require.Equal(t, 400, bad.Status)

	requests[0].Header.Set("X-API-Key", "changed")
	requests[0].Body[0] = 'x'
	require.Equal(t, create.Host, s.Requests()[0].Host)
	require.Equal(t, s.APIKey(), s.Requests()[0].Header.Get("X-API-Key"), "a copy")
	require.Equal(t, byte('{'), s.Requests()[0].Body[0], "a copy")
}

func TestRequestLogIsBounded(t *testing.T) {
	var log requestLog
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x/", nil)
	require.NoError(t, err)
	entry := log.add(request, false)
	log.body(entry, make([]byte, maxLoggedBody-1))
	log.body(entry, make([]byte, 10))
	require.Len(t, log.all()[0].Body, maxLoggedBody)
	for range 2 * maxLogged {
		log.add(request, false)
	}
	require.Len(t, log.all(), maxLogged)
	require.Zero(t, log.bytes)
	log.body(entry, []byte("late")) // of a request that was forgotten
	require.Zero(t, log.bytes)
	for range 2 * maxLoggedAll / maxLoggedBody {
		log.body(log.add(request, false), make([]byte, maxLoggedBody))
	}
	require.LessOrEqual(t, log.bytes, maxLoggedAll)
	require.Len(t, log.all(), maxLoggedAll/maxLoggedBody)
}

func TestUpgradesAreLogged(t *testing.T) {
	s, m := inMemory(t, Options{})
	c := newClient(t, false)
	id := s.create(t, c)
	m.Sandbox(id).Serve(8080, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			_ = conn.Close()
		}
	}))
	status, _ := s.send(t, c, "GET", s.SandboxURL()+"/", "", "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "8080", "Connection", "Upgrade", "Upgrade", "x")
	require.Equal(t, 101, status)
	require.Equal(t, 101, s.Requests()[1].Status)
}

// A buffer may be written to while it is read.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestLogNamesUnknownRoutesAndNoSecrets(t *testing.T) {
	var log buffer
	s, _ := inMemory(t, Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	c := newClient(t, false)
	id := s.create(t, c)
	status, body := s.send(t, c, "GET", s.APIURL()+"/nodes?secret=1", "")
	require.Equal(t, 404, status)
	require.Contains(t, body, "validation error: no matching operation was found")
	s.send(t, c, "GET", s.SandboxURL()+"/files?signature=secret", "", "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49983", "X-Access-Token", "secret")
	require.Contains(t, log.String(), "path=/nodes")
	require.NotContains(t, log.String(), s.APIKey())
	require.NotContains(t, log.String(), "secret")
}

func TestAdvanceMovesTheClock(t *testing.T) {
	s, _ := inMemory(t, Options{})
	c := newClient(t, false)
	id := s.create(t, c)
	s.Advance(time.Minute)
	status, _ := s.send(t, c, "GET", s.APIURL()+"/sandboxes/"+id, "")
	require.Equal(t, 404, status)
}

func TestCloseCutsWhatIsOpen(t *testing.T) {
	s, m := inMemory(t, Options{})
	c := newClient(t, false)
	id := s.create(t, c)
	m.Sandbox(id).Serve(8080, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.SandboxURL(), nil)
	require.NoError(t, err)
	req.Header.Set("E2b-Sandbox-Id", id)
	req.Header.Set("E2b-Sandbox-Port", "8080")
	resp, err := c.Do(req)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, err = resp.Body.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, io.EOF)
	require.NoError(t, resp.Body.Close())
	require.NoError(t, s.Close(), "again")
	_, err = c.Do(req.Clone(t.Context()))
	require.Error(t, err)
}

func TestCloseTellsWhatTheRuntimeSays(t *testing.T) {
	o, err := Options{}.withDefaults()
	require.NoError(t, err)
	s, err := newServer(o, failing{newMemory()})
	require.NoError(t, err)
	require.ErrorIs(t, s.Close(), errFailing)
}

var errFailing = errors.New("failing")

type failing struct{ *memory }

func (f failing) Close() error { return errors.Join(f.memory.Close(), errFailing) }

func TestCloseWithARequestUnderWay(t *testing.T) {
	o, err := Options{}.withDefaults()
	require.NoError(t, err)
	m := newMemory()
	began := make(chan struct{})
	m.Hook = func(ctx context.Context, step nodetest.Step, _ string) error {
		if step == nodetest.Start {
			close(began)
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	s, err := newServer(o, m)
	require.NoError(t, err)
	c := newClient(t, false)
	failed := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.APIURL()+"/sandboxes", strings.NewReader(`{"templateID":"base"}`))
		if err == nil {
			req.Header.Set("X-API-Key", s.APIKey())
			req.Header.Set("Content-Type", "application/json")
			var resp *http.Response
			if resp, err = c.Do(req); err == nil {
				err = resp.Body.Close()
			}
		}
		failed <- err
	}()
	<-began
	require.NoError(t, s.Close())
	require.Error(t, <-failed)
	require.Zero(t, m.Alive())
}
