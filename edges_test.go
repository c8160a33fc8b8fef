package e2b_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
)

// hold is a command that runs until its stream ends.
func hold(pid uint32) func(context.Context, *startRequest, *startStream) error {
	return func(ctx context.Context, _ *startRequest, s *startStream) error {
		if err := send(s, evStart(pid), evOut("begun\n")); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

// TestAnotherCommandsTag is the caller's own, which several commands may have:
// none of them must be taken for the one whose start was cut off.
func TestAnotherCommandsTag(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(context.Context) error{
		"ctx ends":       func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"stream is lost": func(context.Context) error { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeSandbox()
			f.start = func(ctx context.Context, _ *startRequest, _ *startStream) error { return cut(ctx) }
			f.list = func(context.Context) ([]*process.ProcessInfo, error) {
				tag := "worker"
				return []*process.ProcessInfo{{Pid: 10, Tag: &tag}}, nil
			}
			f.signal = func(context.Context, uint32, process.Signal) error { t.Error("another command was killed"); return nil }
			f.attach = func(context.Context, *attachRequest, *attachStream) error {
				t.Error("another command was attached to")
				return nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, err := f.onLoopback(t).Commands.Run(ctx, "job 2", &e2b.RunOptions{Tag: "worker"})
			require.Error(t, err)
		})
	}
}

// TestStartThatAppearsLate is killed all the same.
func TestStartThatAppearsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		tag := f.startUnheard()
		asked := 0
		f.list = func(context.Context) ([]*process.ProcessInfo, error) {
			if asked++; asked < 3 {
				return nil, nil
			}
			mine := tag()
			return []*process.ProcessInfo{{Pid: 3, Tag: &mine}}, nil
		}
		var killed atomic.Uint32
		f.signal = func(_ context.Context, pid uint32, _ process.Signal) error { killed.Store(pid); return nil }
		sbx := f.inMemory(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := sbx.Commands.Run(ctx, "x", nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, uint32(3), killed.Load())
	})
}

// TestNoSignalWakesASandbox has ctx end while the SDK finds out what became of
// the sandbox, which is paused.
func TestNoSignalWakesASandbox(t *testing.T) {
	t.Parallel()
	f := newFakeSandbox()
	began, asked := make(chan struct{}), make(chan struct{})
	f.start = func(_ context.Context, _ *startRequest, s *startStream) error {
		if err := send(s, evStart(7)); err != nil {
			return err
		}
		<-began
		panic(http.ErrAbortHandler)
	}
	var once sync.Once
	f.info = func(w http.ResponseWriter, r *http.Request) {
		once.Do(func() { close(asked) })
		select { // long enough for ctx to end first
		case <-time.After(300 * time.Millisecond):
		case <-r.Context().Done():
		}
		writeJSON(w, http.StatusOK, map[string]any{"sandboxID": fakeID, "state": "paused"})
	}
	f.signal = func(context.Context, uint32, process.Signal) error { t.Error("a signal was sent"); return nil }
	sbx := f.onLoopback(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := sbx.Commands.Run(ctx, "x", nil)
		done <- err
	}()
	close(began)
	<-asked
	cancel()
	require.Error(t, <-done)
}

// TestCloseEndsWaitWithABlockedWriter and Pause does.
func TestCloseEndsWaitWithABlockedWriter(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		by   func(context.Context, *e2b.Sandbox, *e2b.Process) error
		want error
	}{
		"close": {func(_ context.Context, _ *e2b.Sandbox, p *e2b.Process) error { return p.Close() }, e2b.ErrClosed},
		"pause": {func(ctx context.Context, s *e2b.Sandbox, _ *e2b.Process) error {
			_, err := s.Pause(ctx, nil)
			return err
		}, e2b.ErrSandboxNotRunning},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeSandbox()
			f.start = hold(7)
			sbx := f.onLoopback(t)
			r, w := io.Pipe()
			p, err := sbx.Commands.Start(t.Context(), "x", &e2b.RunOptions{Stdout: w})
			require.NoError(t, err)
			_, err = r.Read(make([]byte, 1)) // the writer has begun, and waits for the rest
			require.NoError(t, err)
			require.NoError(t, end.by(t.Context(), sbx, p))
			_, err = p.Wait(t.Context())
			require.ErrorIs(t, err, end.want)
			require.NoError(t, r.Close())
		})
	}
}

// TestSilentStream has an edge that keeps a connection whose other half is dead.
func TestSilentStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.start = func(ctx context.Context, _ *startRequest, s *startStream) error {
			if err := send(s, evStart(7), evOut("begun"), evKeepalive()); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		}
		f.code = func(w http.ResponseWriter, r *http.Request) {
			drain(r)
			emit(w, `{"type":"number_of_executions","execution_count":1}`, `{"type":"stdout","text":"begun"}`, `{"type":"keepalive"}`)
			<-r.Context().Done()
		}
		sbx := f.inMemory(t)
		begin := time.Now()
		res, err := sbx.Commands.Run(t.Context(), "x", nil)
		require.ErrorIs(t, err, e2b.ErrStreamInterrupted)
		require.Equal(t, "begun", string(res.Stdout))
		require.InDelta(t, 150, time.Since(begin).Seconds(), 10)
		begin = time.Now()
		exec, err := sbx.RunCode(t.Context(), "x", nil)
		require.ErrorIs(t, err, e2b.ErrStreamInterrupted)
		require.Equal(t, "begun", exec.Stdout)
		require.InDelta(t, 30, time.Since(begin).Seconds(), 5)
	})
}

// TestSwallowedCode was sent after another client's was cancelled.
func TestSwallowedCode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		swallow := true
		f.code = func(w http.ResponseWriter, r *http.Request) {
			drain(r)
			if !swallow {
				emit(w, `{"type":"number_of_executions","execution_count":1}`, endLine)
				return
			}
			swallow = false
			for elapse(r.Context(), 5*time.Second) {
				emit(w, `{"type":"keepalive"}`)
			}
		}
		sbx := f.inMemory(t)
		exec, err := sbx.RunCode(t.Context(), "x", nil)
		require.ErrorIs(t, err, e2b.ErrInterpreter)
		require.Nil(t, exec)
		_, err = sbx.RunCode(t.Context(), "x", nil)
		require.NoError(t, err)
	})
}

func TestProxyIsAskedForJSON(t *testing.T) {
	t.Parallel()
	f := newFakeSandbox()
	f.start = script(evStart(7), evExit(0))
	f.list = func(context.Context) ([]*process.ProcessInfo, error) { return nil, nil }
	f.files = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }
	sbx := f.inMemory(t)
	_, err := sbx.Commands.Run(t.Context(), "x", nil)
	require.NoError(t, err)
	_, err = sbx.Commands.List(t.Context())
	require.NoError(t, err)
	_, err = sbx.Files.Read(t.Context(), "x", nil)
	require.NoError(t, err)
	seen := f.requests("")
	require.Len(t, seen, 3)
	for _, r := range seen {
		require.Equal(t, "application/json", r.header.Get("Accept"), r.path)
	}
}

// TestOldEnvdsUser was root unless another was named.
func TestOldEnvdsUser(t *testing.T) {
	t.Parallel()
	for version, named := range map[string]bool{"0.3.5": true, "0.4.0": false} {
		f := newFakeSandbox()
		f.version = version
		f.start = script(evStart(7), evExit(0))
		f.files = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }
		sbx := f.inMemory(t)
		_, err := sbx.Commands.Run(t.Context(), "x", nil)
		require.NoError(t, err)
		_, err = sbx.Files.Read(t.Context(), "x", nil)
		require.NoError(t, err)
		seen := f.requests("")
		user, _, basic := (&http.Request{Header: seen[0].header}).BasicAuth()
		require.Equal(t, named, basic)
		want := "path=x"
		if named {
			require.Equal(t, "user", user)
			want += "&username=user"
		}
		require.Equal(t, want, seen[1].query)
	}
}

// TestKillAfterTheEnd sends nothing: the PID may be another's by then.
func TestKillAfterTheEnd(t *testing.T) {
	t.Parallel()
	f := newFakeSandbox()
	f.start = script(evStart(7), evExit(0))
	f.signal = func(context.Context, uint32, process.Signal) error { t.Error("a signal was sent"); return nil }
	p, err := f.inMemory(t).Commands.Start(t.Context(), "x", nil)
	require.NoError(t, err)
	_, err = p.Wait(t.Context())
	require.NoError(t, err)
	killed, err := p.Kill(t.Context())
	require.NoError(t, err)
	require.False(t, killed)
	require.ErrorIs(t, p.Signal(t.Context(), e2b.SIGTERM), e2b.ErrProcessNotFound)
}

// TestReadWithoutALength could not tell a cut from the end.
func TestReadWithoutALength(t *testing.T) {
	t.Parallel()
	f := newFakeSandbox()
	f.files = func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = buf.WriteString("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\npart")
		_ = buf.Flush()
		_ = conn.Close()
	}
	_, err := f.onLoopback(t).Files.Read(t.Context(), "x", nil)
	require.ErrorIs(t, err, e2b.ErrStreamInterrupted)
}

func TestNetworkOnTheWire(t *testing.T) {
	t.Parallel()
	no := false
	set := &e2b.Network{
		AllowOut: []string{"*.example.com"}, DenyOut: []string{"0.0.0.0/0"}, AllowPublicTraffic: &no,
		MaskRequestHost: "localhost:${PORT}", HTTPSPorts: []int{8443},
		Rules:       map[string][]e2b.NetworkRule{"api.example.com": {{Headers: map[string]string{"X-Team": "a"}}}},
		EgressProxy: &e2b.EgressProxy{Address: "proxy.example.com:1080", Username: "u", Password: e2b.NewToken("s3cr3t")},
	}
	wire := `{"allowPublicTraffic":false,"allowOut":["*.example.com"],"denyOut":["0.0.0.0/0"],"maskRequestHost":"localhost:${PORT}",` +
		`"httpsPorts":[8443],"rules":{"api.example.com":[{"transform":{"headers":{"X-Team":"a"}}}]},` +
		`"egressProxy":{"address":"proxy.example.com:1080","username":"u"`
	api := newFakeAPI(t, answerText(201, `{"sandboxID":"i1","envdVersion":"0.6.13"}`),
		answerText(200, `{"sandboxID":"i1","state":"running","network":`+wire+`}}}`))
	c := api.client(t)
	_, err := c.Create(t.Context(), &e2b.CreateOptions{NoToken: true, Network: set})
	require.NoError(t, err)
	require.JSONEq(t, `{"templateID":"base","timeout":300,"secure":true,"network":`+wire+`,"password":"s3cr3t"}}}`, api.requests()[0].Body)
	info, err := c.Info(t.Context(), "i1")
	require.NoError(t, err)
	set.EgressProxy.Password = e2b.Token{} // never shown
	require.Equal(t, set, info.Network)
}

// TestStubbornContext is kept busy by code that swallows the interrupt.
func TestStubbornContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.code = func(w http.ResponseWriter, r *http.Request) {
			drain(r)
			flush(w)
			<-r.Context().Done()
		}
		sbx := f.inMemory(t)
		for range 3 {
			begin := time.Now()
			_, err := sbx.RunCode(t.Context(), "x", &e2b.CodeOptions{Timeout: 3 * time.Second})
			require.ErrorIs(t, err, e2b.ErrCommandTimeout)
			require.Equal(t, 3*time.Second, time.Since(begin))
		}
	})
}

// TestPageInHTML is what a wrong URL or a portal answers, with status 200.
func TestPageInHTML(t *testing.T) {
	t.Parallel()
	page := answerText(200, "<html>welcome</html>", "Content-Type", "text/html; charset=utf-8")
	c := newFakeAPI(t, page, page, page).client(t)
	killed, err := c.Kill(t.Context(), "i1")
	require.Error(t, err)
	require.False(t, killed)
	paused, err := c.Pause(t.Context(), "i1", nil)
	require.Error(t, err)
	require.False(t, paused)
	require.Error(t, c.SetTimeout(t.Context(), "i1", time.Minute))
}

// TestConnectAnswersAboutAnother has tokens that are not for the sandbox that was
// asked for.
func TestConnectAnswersAboutAnother(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{}`, `{"sandboxID":"i2","envdVersion":"0.6.13","envdAccessToken":"t"}`} {
		c := newFakeAPI(t, answerText(200, body, "Content-Type", "application/json")).client(t)
		sbx, err := c.FromRecord(e2b.Record{SandboxID: "i1", EnvdVersion: "0.6.13", EnvdAccessToken: e2b.NewToken("mine")})
		require.NoError(t, err)
		require.Error(t, sbx.Connect(t.Context(), nil))
		require.Equal(t, "mine", sbx.Record().EnvdAccessToken.Reveal(), "the handle is as it was")
	}
}

func TestBaseTemplateRunsNoCode(t *testing.T) {
	t.Parallel()
	_, client := e2btest.New(t, nil)
	sbx, err := client.Create(t.Context(), nil)
	require.NoError(t, err)
	_, err = sbx.RunCode(t.Context(), "1", nil)
	require.ErrorIs(t, err, e2b.ErrPortClosed)
	require.Contains(t, sbx.Host(80), "localhost", "nothing leads to the real E2B")
}

// TestUnreadBodyEndsTheConnection: what follows on it must not be taken for
// requests.
func TestUnreadBodyEndsTheConnection(t *testing.T) {
	t.Parallel()
	server, client := e2btest.New(t, nil)
	sbx, err := client.Create(t.Context(), nil)
	require.NoError(t, err)
	body := strings.Repeat("GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n", 40_000)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, sbx.URL(8099)+"/", strings.NewReader(body))
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: sbx.Transport(8099)}).Do(req)
	if err == nil {
		require.Equal(t, http.StatusBadGateway, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
	}
	for _, r := range server.Requests() {
		require.NotContains(t, r.Path, "smuggled")
	}
}

func TestAdvanceAfterClose(t *testing.T) {
	t.Parallel()
	server, err := e2btest.NewServer(nil)
	require.NoError(t, err)
	client, err := e2b.NewClient(server.ClientOptions())
	require.NoError(t, err)
	_, err = client.Create(t.Context(), nil)
	require.NoError(t, err)
	client.CloseIdleConnections()
	require.NoError(t, server.Close())
	server.Advance(time.Hour)
}
