// Package envd speaks to the daemon inside a sandbox: commands over Connect
// streams, files over plain HTTP.
package envd

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"

	"connectrpc.com/connect"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process/processconnect"
	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// Config is what a Client is made of.
type Config struct {
	BaseURL   *url.URL
	Header    http.Header // routing, token, user agent
	Transport http.RoundTripper
	JSON      bool // for servers that do not speak protobuf
}

// A Client calls the envd of one sandbox. It is safe for concurrent use.
type Client struct {
	cfg     Config
	http    *http.Client
	process processconnect.ProcessClient
}

// New returns a Client. It makes no request.
func New(cfg Config) *Client {
	opts := []connect.ClientOption{
		connect.WithCodec(codec{name: "proto"}),
		// Frames are small or incompressible, and envd would compress each.
		connect.WithAcceptCompression("gzip", nil, nil),
		connect.WithReadMaxBytes(maxMessage),
	}
	if cfg.JSON {
		opts = append(opts, connect.WithCodec(codec{name: "json"}))
	}
	rpc := &http.Client{Transport: statusErrors(cfg.Transport), CheckRedirect: transport.CheckRedirect}
	base := strings.TrimSuffix(cfg.BaseURL.String(), "/")
	return &Client{
		cfg:     cfg,
		http:    &http.Client{Transport: cfg.Transport, CheckRedirect: transport.CheckRedirect},
		process: processconnect.NewProcessClient(rpc, base, opts...),
	}
}

// maxMessage bounds one message, so that a broken length prefix allocates
// nothing. A listing of a million entries is smaller.
const maxMessage = 512 << 20

// statusErrors turns every answer that is not shaped as Connect's into a
// *transport.StatusError: connect-go would keep neither its body nor its
// headers, and the proxy's word on a sandbox is in the body.
func statusErrors(rt http.RoundTripper) http.RoundTripper {
	return transport.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		resp, err := rt.RoundTrip(r)
		if err != nil || resp.StatusCode == http.StatusOK {
			return resp, err
		}
		body, _, _ := transport.ReadBody(resp.Body, transport.MaxErrorBody) //nolint:errcheck // what came of it is enough
		_ = resp.Body.Close()
		var shape struct {
			Code string `json:"code"`
		}
		if json.Unmarshal(body, &shape) == nil && shape.Code != "" {
			resp.Body = io.NopCloser(bytes.NewReader(body))
			return resp, nil
		}
		return nil, transport.NewStatusError(resp.StatusCode, r.Header, resp.Header, body)
	})
}

// header fills in the headers of one request. user may be "" for the default.
func (c *Client) header(h http.Header, user string) {
	for name, values := range c.cfg.Header {
		h[name] = values
	}
	if user != "" {
		r := http.Request{Header: h}
		r.SetBasicAuth(user, "") // envd reads the name alone
	}
}

func request[T any](c *Client, msg *T, user string) *connect.Request[T] {
	r := connect.NewRequest(msg)
	c.header(r.Header(), user)
	return r
}

func byPID(pid uint32) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: pid}}
}

// List returns the live processes.
func (c *Client) List(ctx context.Context) ([]*process.ProcessInfo, error) {
	resp, err := c.process.List(ctx, request(c, &process.ListRequest{}, ""))
	if err != nil {
		return nil, err
	}
	return resp.Msg.GetProcesses(), nil
}

// Signal sends a signal to one process, not to its children.
func (c *Client) Signal(ctx context.Context, pid uint32, sig process.Signal) error {
	_, err := c.process.SendSignal(ctx, request(c, &process.SendSignalRequest{Process: byPID(pid), Signal: sig}, ""))
	return err
}

// SendStdin writes to a process's standard input and returns when all is in
// the pipe.
func (c *Client) SendStdin(ctx context.Context, pid uint32, p []byte) error {
	in := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: p}}
	_, err := c.process.SendInput(ctx, request(c, &process.SendInputRequest{Process: byPID(pid), Input: in}, ""))
	return err
}

// CloseStdin ends a process's standard input.
func (c *Client) CloseStdin(ctx context.Context, pid uint32) error {
	_, err := c.process.CloseStdin(ctx, request(c, &process.CloseStdinRequest{Process: byPID(pid)}, ""))
	return err
}
