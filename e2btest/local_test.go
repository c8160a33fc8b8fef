//go:build linux || darwin

package e2btest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
)

// A caller sends plain HTTP requests.
type caller struct {
	*testing.T
	server *e2btest.Server
	client *http.Client
	id     string
	token  string
}

func (c *caller) do(method, url, body string, header map[string]string) (*http.Response, string) {
	c.Helper()
	req, err := http.NewRequestWithContext(c.Context(), method, url, strings.NewReader(body))
	require.NoError(c, err)
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := c.client.Do(req)
	require.NoError(c, err)
	b, err := io.ReadAll(resp.Body)
	require.NoError(c, err)
	require.NoError(c, resp.Body.Close())
	return resp, string(b)
}

// api calls the control plane.
func (c *caller) api(status int, method, path, body string) map[string]any {
	c.Helper()
	header := map[string]string{"X-API-Key": c.server.APIKey()}
	if body != "" {
		header["Content-Type"] = "application/json"
	}
	resp, text := c.do(method, c.server.APIURL()+path, body, header)
	require.Equal(c, status, resp.StatusCode, text)
	if text == "" {
		return nil
	}
	var v map[string]any
	require.NoError(c, json.Unmarshal([]byte(text), &v))
	return v
}

// envd calls the sandbox.
func (c *caller) envd(status int, method, path, body string) string {
	c.Helper()
	resp, text := c.do(method, c.server.SandboxURL()+path, body, map[string]string{
		"E2b-Sandbox-Id": c.id, "E2b-Sandbox-Port": "49983", "X-Access-Token": c.token, "Content-Type": "application/octet-stream",
	})
	require.Equal(c, status, resp.StatusCode, text)
	return text
}

func TestLifeOfALocalSandbox(t *testing.T) {
	server, err := e2btest.NewServer(nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	c := &caller{T: t, server: server, client: &http.Client{Transport: transport}}

	created := c.api(201, "POST", "/sandboxes", `{"templateID":"base","timeout":60,"secure":true}`)
	c.id, _ = created["sandboxID"].(string)
	c.token, _ = created["envdAccessToken"].(string)
	c.envd(204, "GET", "/health", "")
	file := "/files?path=note.txt&username=user"
	c.envd(200, "POST", file, "kept")

	c.api(204, "POST", "/sandboxes/"+c.id+"/pause", "")
	require.Equal(t, "paused", c.api(200, "GET", "/sandboxes/"+c.id, "")["state"])
	require.JSONEq(t, `{"sandboxId":"`+c.id+`","message":"The sandbox was not found","code":502}`, c.envd(502, "GET", "/health", ""))

	again := c.api(201, "POST", "/sandboxes/"+c.id+"/connect", `{"timeout":60}`)
	require.Equal(t, c.token, again["envdAccessToken"])
	require.Equal(t, "kept", c.envd(200, "GET", file, ""))

	c.api(204, "POST", "/sandboxes/"+c.id+"/pause", `{"memory":false}`)
	c.api(201, "POST", "/sandboxes/"+c.id+"/connect", `{"timeout":60}`)
	require.Equal(t, "kept", c.envd(200, "GET", file, ""), "after a boot from the files")
	c.envd(404, "POST", "/init", `{}`)

	c.api(204, "DELETE", "/sandboxes/"+c.id, "")
	c.envd(502, "GET", "/health", "")
	c.api(404, "GET", "/sandboxes/"+c.id, "")

	python, err := server.Python()
	if err != nil {
		require.Empty(t, python)
	} else {
		require.NotEmpty(t, python)
	}
}

func TestTimedOutAfterAPauseLocally(t *testing.T) {
	server, client := e2btest.New(t, nil)
	sbx, err := client.Create(t.Context(), &e2b.CreateOptions{OnTimeout: e2b.TimeoutKill, Timeout: time.Hour})
	require.NoError(t, err)
	require.NoError(t, sbx.Files.Write(t.Context(), "x", []byte("1"), nil))
	_, err = sbx.Pause(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, sbx.Connect(t.Context(), &e2b.ConnectOptions{Timeout: time.Hour}))
	server.Advance(2 * time.Hour)
	info, err := sbx.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, e2b.StatePaused, info.State, "its snapshot is still there")
	require.NoError(t, sbx.Connect(t.Context(), nil))
	got, err := sbx.Files.Read(t.Context(), "x", nil)
	require.NoError(t, err)
	require.Equal(t, "1", string(got))
}

func TestPauseCutsTheStreamsOfALocalSandbox(t *testing.T) {
	_, client := e2btest.New(t, nil)
	sbx, err := client.Create(t.Context(), nil)
	require.NoError(t, err)
	process, err := sbx.Commands.Start(t.Context(), "sleep 1000", nil)
	require.NoError(t, err)
	// Not by the handle, which ends its own streams.
	paused, err := client.Pause(t.Context(), sbx.ID(), nil)
	require.NoError(t, err)
	require.True(t, paused)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = process.Wait(ctx)
	require.ErrorIs(t, err, e2b.ErrSandboxNotRunning)
}

func TestNewFailsTheTestForBadOptions(t *testing.T) {
	tb := &fakeTB{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		e2btest.New(tb, &e2btest.Options{Addr: "0.0.0.0:0"})
	}()
	<-done
	require.Contains(t, tb.failed, "not an address on loopback")
}

// A fakeTB notes the first failure instead of failing.
type fakeTB struct {
	e2btest.TB
	failed string
}

func (f *fakeTB) Fatalf(format string, args ...any) {
	f.failed = fmt.Sprintf(format, args...)
	panic("the end of the test")
}

// Code of each language runs inside the sandbox, and goes on after a pause.
func TestLanguagesOfALocalSandbox(t *testing.T) {
	_, client := e2btest.New(t, nil)
	sbx, err := client.Create(t.Context(), &e2b.CreateOptions{Template: "code-interpreter"})
	require.NoError(t, err)
	languages := map[string][2]string{
		"bash":       {"x=42; cd /tmp", "echo $x; pwd; echo $E2B_SANDBOX_ID"},
		"javascript": {"let x = 42; process.chdir('/tmp')", "console.log(`${x}\n${process.cwd()}\n${process.env.E2B_SANDBOX_ID}`)"},
	}
	if _, err := exec.LookPath("node"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Log("without JavaScript, since this machine has no node: ", err)
		_, err = sbx.RunCode(t.Context(), "1", &e2b.CodeOptions{Language: "javascript"})
		require.ErrorIs(t, err, e2b.ErrNotSupported)
		require.ErrorContains(t, err, "node")
		delete(languages, "javascript")
	}
	for language, code := range languages {
		e, err := sbx.RunCode(t.Context(), code[0], &e2b.CodeOptions{Language: language})
		require.NoError(t, err)
		require.Nil(t, e.Error, language)
	}
	_, err = sbx.Pause(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, sbx.Connect(t.Context(), nil))
	for language, code := range languages {
		e, err := sbx.RunCode(t.Context(), code[1], &e2b.CodeOptions{Language: language})
		require.NoError(t, err)
		require.Nil(t, e.Error, language)
		require.Equal(t, "42\n/tmp\n"+sbx.ID()+"\n", e.Stdout, language)
	}
	_, err = sbx.RunCode(t.Context(), "1", &e2b.CodeOptions{Language: "typescript"})
	require.ErrorIs(t, err, e2b.ErrNotSupported)
}

// The fault that HangAfterCancel imitates: a call right after a cancelled one is lost.
func TestHangAfterCancel(t *testing.T) {
	t.Parallel()
	server, err := e2btest.NewServer(&e2btest.Options{HangAfterCancel: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	c := &caller{T: t, server: server, client: &http.Client{Transport: transport}}
	created := c.api(201, "POST", "/sandboxes", `{"templateID":"code-interpreter","timeout":60}`)
	c.id, _ = created["sandboxID"].(string)
	execute := func(ctx context.Context, code string) *bufio.Reader {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.SandboxURL()+"/execute", strings.NewReader(code))
		require.NoError(t, err)
		req.Header.Set("E2b-Sandbox-Id", c.id)
		req.Header.Set("E2b-Sandbox-Port", "49999")
		resp, err := c.client.Do(req)
		require.NoError(t, err)
		t.Cleanup(func() { _ = resp.Body.Close() })
		require.Equal(t, http.StatusOK, resp.StatusCode)
		return bufio.NewReader(resp.Body)
	}
	ctx, cancel := context.WithCancel(t.Context())
	lines := execute(ctx, `{"language":"bash","code":"echo on; while :; do :; done"}`)
	for range 2 {
		_, err = lines.ReadString('\n')
		require.NoError(t, err)
	}
	lost := execute(t.Context(), `{"language":"bash","code":"echo never"}`) // waits when the other one goes
	cancel()
	line, err := lost.ReadString('\n')
	require.NoError(t, err)
	require.JSONEq(t, `{"type":"keepalive"}`, line)
}

// What is shown of a sandbox and what changes its settings can come at the same time.
func TestInspectionBesideChanges(t *testing.T) {
	server, client := e2btest.New(t, nil)
	sbx, err := client.Create(t.Context(), nil)
	require.NoError(t, err)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := sbx.SetNetwork(t.Context(), &e2b.Network{DenyOut: []string{"10.0.0.0/8"}}, nil); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() { server.Sandboxes() })
		all.Go(func() {
			if _, err := sbx.Metrics(t.Context(), nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
