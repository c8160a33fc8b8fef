package e2b

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/controlapi"
	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// Version is the version of this SDK.
const Version = "0.1.0"

// What stands where neither an option nor the environment says otherwise.
const (
	DefaultDomain         = "e2b.app"
	DefaultRequestTimeout = 90 * time.Second // the server itself gives up after 70 s
	DefaultSandboxTimeout = 5 * time.Minute
	DefaultMaxRetries     = 3
)

// ClientOptions configures a Client. It prints without its key, unless it stands
// in an unexported field of another struct, which fmt prints as it is. For each of the first four fields the
// option comes first, then the environment variable, then the default.
type ClientOptions struct {
	APIKey     string // $E2B_API_KEY; required. It is sent as it is, whatever its form
	Domain     string // $E2B_DOMAIN; "e2b.app". Where the API and the sandboxes are
	APIURL     string // $E2B_API_URL; "https://api." + Domain
	SandboxURL string // $E2B_SANDBOX_URL; by Domain. One URL through which all sandboxes are reached

	// Transport makes the requests of all planes; nil means http.DefaultTransport.
	// An *http.Transport is cloned and tuned, and keeps its proxy, TLS and dialing.
	// Any other RoundTripper is used as it is. It must not decompress or ask for
	// gzip by itself, must keep streams open for hours, and should speak HTTP/1.1
	// to port 49999, where nothing but a closed connection interrupts code.
	Transport http.RoundTripper

	// RequestTimeout bounds each attempt of a request to the control plane, the
	// opening of a stream, and how long a file transfer may stand still, all only
	// where ctx has no deadline. 0 means 90 s, negative none.
	RequestTimeout time.Duration
	// SandboxTimeout is the lifetime that Create and Connect give a sandbox when
	// their options give none. 0 means 5 min.
	SandboxTimeout time.Duration
	// MaxRetries bounds the repeats of a request to the control plane. 0 means 3,
	// negative none. Before each it waits as long as Retry-After says, else 0.4 s, doubling;
	// where that is more than a minute, or than ctx lasts, the answer is returned at once:
	// see APIError.RetryAfter. Requests to a sandbox are never repeated.
	MaxRetries int

	// JSON selects Connect's JSON instead of protobuf, for compatible servers that
	// speak only that.
	JSON bool
	// Headers are sent with every request to the control plane.
	Headers http.Header
	// UserAgent is put before the SDK's own.
	UserAgent string
	// Logger gets one debug record per request: method, host, path, status,
	// duration, never a secret, code, a command or file contents. nil means none.
	Logger *slog.Logger
}

// String describes o without its key and its headers, which may hold others.
func (o ClientOptions) String() string {
	return fmt.Sprintf("{Domain:%q APIURL:%q SandboxURL:%q RequestTimeout:%v SandboxTimeout:%v MaxRetries:%d JSON:%t UserAgent:%q}",
		o.Domain, o.APIURL, o.SandboxURL, o.RequestTimeout, o.SandboxTimeout, o.MaxRetries, o.JSON, o.UserAgent)
}

// GoString returns what String returns.
func (o ClientOptions) GoString() string { return "e2b.ClientOptions" + o.String() }

// LogValue returns what String returns.
func (o ClientOptions) LogValue() slog.Value { return slog.StringValue(o.String()) }

// A Client calls E2B with one API key. It is safe for concurrent use, and meant
// to be made once and kept: it owns the connections. It holds no sandbox; a
// program that ends without killing or pausing one leaves it to its timeout.
type Client struct {
	api        *controlapi.Client
	main       http.RoundTripper
	http1      http.RoundTripper
	domain     string
	apiBase    *url.URL
	sandboxURL *url.URL // nil: by domain
	userAgent  string
	timeout    time.Duration // of requests; ≤ 0: none
	lifetime   time.Duration
	json       bool
	idle       func()
	contexts   contextGates
	planes     sync.Map // URL (string) → *envd.Plane
}

// NewClient returns a Client. It makes no request. opts may be nil.
//
// Errors: ErrNoAPIKey, ErrInvalidArgument.
//
// See https://e2b.dev/docs/api-key.
func NewClient(opts *ClientOptions) (*Client, error) {
	const op = "new client"
	var o ClientOptions
	if opts != nil {
		o = *opts
	}
	pick := func(option, env, otherwise string) string {
		if option != "" {
			return option
		}
		if v := os.Getenv(env); v != "" {
			return v
		}
		return otherwise
	}
	key := pick(o.APIKey, "E2B_API_KEY", "")
	domain := pick(o.Domain, "E2B_DOMAIN", DefaultDomain)
	apiURL := pick(o.APIURL, "E2B_API_URL", "https://api."+domain)
	sandboxURL := pick(o.SandboxURL, "E2B_SANDBOX_URL", "")
	switch {
	case key == "":
		return nil, &opError{op: op, detail: "set ClientOptions.APIKey or $E2B_API_KEY", errs: []error{ErrNoAPIKey}}
	case !transport.ValidHeader(key) || strings.TrimSpace(key) != key:
		return nil, invalid(op, "APIKey", "holds white space or control characters")
	case !validDomain(domain):
		return nil, invalid(op, "Domain", "is not a host name: %.100q", domain)
	case !transport.ValidHeader(o.UserAgent):
		return nil, invalid(op, "UserAgent", "holds control characters")
	case o.SandboxTimeout < 0:
		return nil, invalid(op, "SandboxTimeout", "is negative")
	}
	headers := make(http.Header, len(o.Headers))
	for name, values := range o.Headers {
		for _, v := range values {
			if !transport.ValidHeader(v) || !validHeaderName(name) {
				return nil, invalid(op, "Headers", "hold a name or value that HTTP does not allow: %.100q", name)
			}
			headers.Add(name, v) // in the one form in which names can be compared
		}
	}
	base, err := transport.ParseBase(apiURL)
	if err != nil {
		return nil, invalid(op, "APIURL", "%v", err)
	}
	c := &Client{
		domain:    domain,
		apiBase:   base,
		userAgent: strings.TrimSpace(o.UserAgent + " e2b-go/" + Version),
		timeout:   o.RequestTimeout,
		lifetime:  o.SandboxTimeout,
		json:      o.JSON,
	}
	if sandboxURL != "" {
		if c.sandboxURL, err = transport.ParseBase(sandboxURL); err != nil {
			return nil, invalid(op, "SandboxURL", "%v", err)
		}
	}
	if c.timeout == 0 {
		c.timeout = DefaultRequestTimeout
	}
	if c.lifetime == 0 {
		c.lifetime = DefaultSandboxTimeout
	}
	if o.MaxRetries == 0 {
		o.MaxRetries = DefaultMaxRetries
	}
	main, http1 := transport.Tune(o.Transport)
	c.api = controlapi.New(controlapi.Config{
		BaseURL: base, APIKey: key, UserAgent: c.userAgent, Header: headers,
		Transport: main, RequestTimeout: c.timeout, MaxRetries: o.MaxRetries, Logger: o.Logger,
	})
	c.main, c.http1 = transport.Log(main, o.Logger), transport.Log(http1, o.Logger)
	c.idle = func() {
		closeIdle(main)
		closeIdle(http1)
	}
	return c, nil
}

// CloseIdleConnections closes the connections that nothing uses now, as at the
// end of a program or test. The Client can be used afterwards.
func (c *Client) CloseIdleConnections() { c.idle() }

func closeIdle(rt http.RoundTripper) {
	if rt, ok := rt.(interface{ CloseIdleConnections() }); ok {
		rt.CloseIdleConnections()
	}
}

// validDomain reports whether s can follow "<port>-<id>." in a URL.
func validDomain(s string) bool {
	if s == "" || len(s) > 200 {
		return false
	}
	host := s
	if h, _, err := net.SplitHostPort(s); err == nil {
		host = h // self-hosted, on a port of its own
	}
	for i := range len(host) {
		c := host[i]
		if c != '.' && c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	u, err := url.Parse("https://x." + s)
	return err == nil && u.Host == "x."+s
}

func validHeaderName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return s != ""
}
