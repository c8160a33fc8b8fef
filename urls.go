package e2b

import (
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// URL returns the public URL of a port in the sandbox, without a path. Where
// ClientOptions.SandboxURL is set, that URL is the way in and this one may lead
// nowhere: use Transport.
func (s *Sandbox) URL(port int) string { return "https://" + s.Host(port) }

// URLOptions says what a signed URL allows.
type URLOptions struct {
	User    string        // as in ReadOptions and WriteOptions
	Expires time.Duration // from now, in whole seconds, rounded up; 0: never
}

var opURL = operation{name: "sign url"}

// DownloadURL returns a URL from which anyone can get the file at path with a GET
// request, without a token. In a sandbox whose envd is not secured it is not
// signed, and Expires is refused. It makes no request.
//
// The URL is a secret as long as it is valid. Where ClientOptions.SandboxURL is
// set, as for the emulator, requests to it need the headers E2b-Sandbox-Id, with
// the sandbox's ID, and E2b-Sandbox-Port: 49983.
//
// Errors: ErrInvalidArgument, ErrNotSupported (envd before 0.2.0).
//
// See https://e2b.dev/docs/filesystem/download.
func (s *Sandbox) DownloadURL(path string, opts *URLOptions) (string, error) {
	return s.fileURL("read", path, opts)
}

// UploadURL returns a URL to which anyone can send the file at path with a POST
// request, without a token: as a form with one part named "file", or as the raw
// body with the type application/octet-stream. It is otherwise as DownloadURL.
//
// Errors: as DownloadURL.
//
// See https://e2b.dev/docs/filesystem/upload.
func (s *Sandbox) UploadURL(path string, opts *URLOptions) (string, error) {
	return s.fileURL("write", path, opts)
}

func (s *Sandbox) fileURL(operation, path string, opts *URLOptions) (string, error) {
	var o URLOptions
	if opts != nil {
		o = *opts
	}
	// An empty path would let the bearer write anywhere, by the names in a form.
	if err := checkFile(opURL, path, o.User); err != nil {
		return "", err
	}
	if o.Expires < 0 {
		return "", invalid(opURL.name, "Expires", "is negative")
	}
	h := s.state.Load()
	q := url.Values{"path": {path}}
	if o.User != "" {
		q.Set("username", o.User)
	}
	if !h.envdToken.IsZero() {
		if !atLeast(h.version, 0, 2, 0) {
			return "", tooOld(opURL, s.id, h.version, "a signed URL", "0.2.0")
		}
		var expiration string
		if o.Expires > 0 {
			at := time.Now().Add(o.Expires)
			if at.Nanosecond() > 0 {
				at = at.Add(time.Second)
			}
			expiration = strconv.FormatInt(at.Unix(), 10)
			q.Set("signature_expiration", expiration)
		}
		q.Set("signature", fileSignature(operation, path, o.User, h.envdToken.Reveal(), expiration))
	} else if o.Expires > 0 {
		return "", invalid(opURL.name, "Expires", "needs a sandbox with a secured envd")
	}
	base := s.client.sandboxURL
	if base == nil {
		// The shared host of E2B's own domains needs headers, which a URL has not.
		base = &url.URL{Scheme: "https", Host: s.Host(envdPort)}
	}
	u := transport.Join(base, "files")
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// fileSignature is what envd computes itself, over the query as it gets it.
func fileSignature(operation, path, user, token, expiration string) string {
	parts := []string{path, operation, user, token}
	if expiration != "" {
		parts = append(parts, expiration)
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, ":")))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// Transport returns an http.RoundTripper to a service that listens on a port in
// the sandbox, for an http.Client or a reverse proxy. Requests must be for the
// host Sandbox.Host(port); each is copied, gets the sandbox's traffic token, and
// goes over the client's connections. Requests for other hosts are refused, so
// that the token goes nowhere else. The service sees the proxy's host.
//
// It does not turn answers into errors: the proxy in front of the sandbox answers
// 502 when nothing listens, or the sandbox does not run; PortError tells these
// apart from a 502 of the service.
func (s *Sandbox) Transport(port int) http.RoundTripper { return &portTransport{s, port} }

type portTransport struct {
	s    *Sandbox
	port int
}

// RoundTrip sends a copy of r to the port.
func (t *portTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	refuse := func(err error) (*http.Response, error) {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	if t.port < 1 || t.port > 65535 {
		return refuse(invalid("port transport", "port", "is none: %d", t.port))
	}
	host := t.s.Host(t.port)
	if r.URL.Host != "" && !strings.EqualFold(r.URL.Host, host) {
		return refuse(invalid("port transport", "request", "is for another host than %s", host))
	}
	h := t.s.state.Load()
	out := r.Clone(r.Context())
	if out.Header == nil {
		out.Header = make(http.Header)
	}
	to := t.s.client.sandboxURL
	if to == nil {
		to = &url.URL{Scheme: "https", Host: host}
	}
	// The proxy routes by the host, as long as that is not an address of its own,
	// so the one that a reverse proxy was asked for must not get there.
	out.URL.Scheme, out.URL.Host, out.Host = to.Scheme, to.Host, to.Host
	if prefix := strings.TrimSuffix(to.EscapedPath(), "/"); prefix != "" {
		escaped := prefix + out.URL.EscapedPath()
		out.URL.Path, out.URL.RawPath = strings.TrimSuffix(to.Path, "/")+out.URL.Path, escaped
	}
	out.Header.Set(transport.HeaderSandboxID, t.s.id)
	out.Header.Set(transport.HeaderSandboxPort, strconv.Itoa(t.port))
	if !h.trafficToken.IsZero() {
		out.Header.Set(transport.HeaderTrafficToken, h.trafficToken.Reveal())
	}
	if out.Header.Get("Upgrade") != "" {
		return t.s.client.http1.RoundTrip(out) // HTTP/2 has no such thing
	}
	return t.s.client.main.RoundTrip(out)
}

// PortError tells the proxy's own answers from those of a service: it returns
// ErrPortClosed or ErrSandboxNotRunning, as an *APIError, if resp is one, and nil
// otherwise. It reads resp.Body and puts what it has read back.
func (s *Sandbox) PortError(resp *http.Response) error {
	if resp.StatusCode != http.StatusBadGateway {
		return nil
	}
	body, _, err := transport.ReadBody(resp.Body, transport.MaxErrorBody)
	rest := resp.Body
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(strings.NewReader(string(body)), rest), rest}
	if err != nil {
		return nil //nolint:nilerr // the next reader meets it
	}
	status := transport.NewStatusError(resp.StatusCode, http.Header{}, resp.Header, body)
	if !status.PortClosed() && !status.SandboxGone() {
		return nil
	}
	return newAPIError(operation{name: "port"}, s.id, status, 1)
}
