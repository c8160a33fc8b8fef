package e2b_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

// TestSignedURLVectors compares with signatures that the real envd accepted.
func TestSignedURLVectors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := e2b.NewClient(&e2b.ClientOptions{APIKey: "k", Domain: "x.test"})
		require.NoError(t, err)
		sbx, err := c.FromRecord(e2b.Record{SandboxID: "i1", EnvdVersion: "0.6.13", EnvdAccessToken: e2b.NewToken("0123456789abcdef0123456789abcdef")})
		require.NoError(t, err)
		for _, row := range []struct {
			opts *e2b.URLOptions
			want url.Values
		}{
			{nil, url.Values{"path": {"/tmp/envd-fx/a.txt"}, "signature": {"v1_9iIbLZHZmAgw2L8vo8ZJ5OecOxQhF2MCN+ngQFuHPCQ"}}},
			{
				&e2b.URLOptions{User: "user", Expires: time.Until(time.Unix(4102444800, 0)) - time.Millisecond},
				url.Values{
					"path": {"/tmp/envd-fx/a.txt"}, "username": {"user"}, "signature_expiration": {"4102444800"},
					"signature": {"v1_I51EA/coTaCj9ujQhzp6I7Uof8lbXvSKH2XXlUgpc0E"},
				},
			},
		} {
			got, err := sbx.DownloadURL("/tmp/envd-fx/a.txt", row.opts)
			require.NoError(t, err)
			u, err := url.Parse(got)
			require.NoError(t, err)
			require.Equal(t, "https://49983-i1.x.test/files", u.Scheme+"://"+u.Host+u.Path)
			require.Equal(t, row.want, u.Query())
		}
		down, err := sbx.DownloadURL("a", nil)
		require.NoError(t, err)
		up, err := sbx.UploadURL("a", nil)
		require.NoError(t, err)
		require.NotEqual(t, down, up, "reading does not allow writing")
	})
}

func TestSignedURLRefuses(t *testing.T) {
	t.Parallel()
	c, err := e2b.NewClient(&e2b.ClientOptions{APIKey: "k"})
	require.NoError(t, err)
	handle := func(version, token string) *e2b.Sandbox {
		s, err := c.FromRecord(e2b.Record{SandboxID: "i1", EnvdVersion: version, EnvdAccessToken: e2b.NewToken(token)})
		require.NoError(t, err)
		return s
	}
	_, err = handle("0.6.13", "t").DownloadURL("", nil)
	require.ErrorIs(t, err, e2b.ErrInvalidArgument)
	_, err = handle("0.6.13", "t").UploadURL("a", &e2b.URLOptions{Expires: -1})
	require.ErrorIs(t, err, e2b.ErrInvalidArgument)
	_, err = handle("0.6.13", "").UploadURL("a", &e2b.URLOptions{Expires: time.Hour})
	require.ErrorIs(t, err, e2b.ErrInvalidArgument)
	_, err = handle("0.1.5", "t").DownloadURL("a", nil)
	require.ErrorIs(t, err, e2b.ErrNotSupported)
	require.ErrorContains(t, err, "0.2.0")
	require.ErrorContains(t, err, "0.1.5")
	plain, err := handle("0.6.13", "").DownloadURL("a b", nil)
	require.NoError(t, err)
	require.Equal(t, "https://49983-i1.e2b.app/files?path=a+b", plain)
}

// fetch makes a request without a token; the emulator needs to be told the
// sandbox, as it has no names of its own.
func fetch(t *testing.T, sbx *e2b.Sandbox, method, target, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("E2b-Sandbox-Id", sbx.ID())
	req.Header.Set("E2b-Sandbox-Port", "49983")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b)
}

func TestH6SignedURLs(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	for _, path := range []string{"plain.txt", "/data/with space", `/data/quo"te's`, "/data/ü", "/data/100%2F", "/data/a+b&c=d", "/data/new\nline"} {
		up, err := sbx.UploadURL(path, &e2b.URLOptions{Expires: time.Hour})
		require.NoError(t, err)
		status, body := fetch(t, sbx, http.MethodPost, up, "of "+path)
		require.Equal(t, 200, status, body)
		down, err := sbx.DownloadURL(path, nil)
		require.NoError(t, err)
		status, body = fetch(t, sbx, http.MethodGet, down, "")
		require.Equal(t, 200, status)
		require.Equal(t, "of "+path, body)
		status, _ = fetch(t, sbx, http.MethodPost, down, "x")
		require.Equal(t, 401, status)
	}
	root, err := sbx.UploadURL("who", &e2b.URLOptions{User: "root"})
	require.NoError(t, err)
	status, _ := fetch(t, sbx, http.MethodPost, root, "x")
	require.Equal(t, 200, status)
	status, _ = fetch(t, sbx, http.MethodPost, strings.Replace(root, "username=root", "username=user", 1), "x")
	require.Equal(t, 401, status, "the signature is for one user")
	res, err := sbx.Commands.Run(t.Context(), "cat /root/who", &e2b.RunOptions{User: "root"})
	require.NoError(t, err)
	require.Equal(t, "x", string(res.Stdout))
}

// serve starts an HTTP server of python's in the sandbox.
func serve(t *testing.T, sbx *e2b.Sandbox, port int) {
	t.Helper()
	script := fmt.Sprintf(`
import http.server, hashlib, base64
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def do_GET(self):
        if self.headers.get("Upgrade"):
            self.send_response(101); self.send_header("Upgrade", "echo"); self.send_header("Connection", "Upgrade"); self.end_headers()
            while (b := self.connection.recv(100)): self.connection.sendall(b.upper())
            self.close_connection = True
            return
        self.send_response(200); self.send_header("Transfer-Encoding", "chunked"); self.send_header("X-Token", self.headers.get("E2b-Traffic-Access-Token", "none")); self.end_headers()
        for part in (self.path, self.headers.get("X-Own", "")):
            b = part.encode(); self.wfile.write(b"%%x\r\n%%s\r\n" %% (len(b), b)) if b else None; self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
    def do_POST(self):
        b = self.rfile.read(int(self.headers["Content-Length"])); self.send_response(200); self.send_header("Content-Length", str(len(b))); self.end_headers(); self.wfile.write(b[::-1])
http.server.ThreadingHTTPServer(("127.0.0.1", %d), H).serve_forever()
`, port)
	require.NoError(t, sbx.Files.Write(t.Context(), "server.py", []byte(script), nil))
	p, err := sbx.Commands.Start(t.Context(), "exec python3 server.py", nil)
	require.NoError(t, err)
	require.NoError(t, p.Close())
	eventually(t, func() bool {
		_, err := sbx.Commands.Run(t.Context(), fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d", port), nil)
		return err == nil
	})
}

func TestPortTransport(t *testing.T) {
	t.Parallel()
	_, client, sbx := newSandbox(t, nil)
	base := sbx.URL(8123)
	require.Equal(t, "https://"+sbx.Host(8123), base)
	c := &http.Client{Transport: sbx.Transport(8123)}

	get := func(target string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
		require.NoError(t, err)
		req.Header.Set("X-Own", "mine")
		return c.Do(req)
	}
	resp, err := get(base + "/early")
	require.NoError(t, err)
	require.ErrorIs(t, sbx.PortError(resp), e2b.ErrPortClosed)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(body), "port is not open", "the body can still be read")
	resp.Body.Close()

	serve(t, sbx, 8123)
	resp, err = get(base + "/a%2Fb?q=1")
	require.NoError(t, err)
	require.NoError(t, sbx.PortError(resp))
	body, err = io.ReadAll(resp.Body)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, "/a%2Fb?q=1mine", string(body))
	_, err = get("https://elsewhere.test/")
	require.ErrorIs(t, err, e2b.ErrInvalidArgument)

	// A reverse proxy, whose own host must not lead the request astray.
	target, err := url.Parse(base)
	require.NoError(t, err)
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = "public.example.com" },
		Transport: sbx.Transport(8123),
	})
	defer proxy.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, proxy.URL+"/x", strings.NewReader("abc"))
	require.NoError(t, err)
	front := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err = front.Do(req)
	require.NoError(t, err)
	body, err = io.ReadAll(resp.Body)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, "cba", string(body))

	// A connection that changes its protocol, as a WebSocket does.
	req, err = http.NewRequestWithContext(ctx, http.MethodGet, base+"/ws", nil)
	require.NoError(t, err)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err = c.Do(req)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	conn, ok := resp.Body.(io.ReadWriteCloser)
	require.True(t, ok)
	_, err = io.WriteString(conn, "hello\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "HELLO\n", line)
	require.NoError(t, conn.Close())

	_, err = client.Pause(t.Context(), sbx.ID(), nil)
	require.NoError(t, err)
	resp, err = get(base + "/late")
	require.NoError(t, err)
	require.ErrorIs(t, sbx.PortError(resp), e2b.ErrSandboxNotRunning)
	resp.Body.Close()
}

func TestF14TrafficToken(t *testing.T) {
	t.Parallel()
	no := false
	_, _, sbx := newSandbox(t, &e2b.CreateOptions{Network: &e2b.Network{AllowPublicTraffic: &no}})
	require.False(t, sbx.TrafficAccessToken().IsZero())
	serve(t, sbx, 8123)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, sbx.URL(8123)+"/", nil)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: sbx.Transport(8123)}).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Empty(t, req.Header, "the caller's request is not changed")
}

// A request need not have headers of its own.
func TestTransportWithoutHeaders(t *testing.T) {
	f := newFakeSandbox()
	f.code = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }
	sbx := f.inMemory(t)
	u, err := url.Parse(sbx.URL(49999))
	require.NoError(t, err)
	resp, err := sbx.Transport(49999).RoundTrip(&http.Request{Method: http.MethodGet, URL: u})
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusTeapot, resp.StatusCode)
}
