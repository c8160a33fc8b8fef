// Package envd speaks to the daemon inside a sandbox: commands over Connect
// streams, files over plain HTTP.
package envd

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"connectrpc.com/connect"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/filesystem/filesystemconnect"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process/processconnect"
	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// Config is what a Plane is made of.
type Config struct {
	BaseURL   *url.URL
	Transport http.RoundTripper
	JSON      bool // for servers that do not speak protobuf
}

// A Plane is what all sandboxes behind one URL have in common. The generated
// clients take more to make than a request does. It is safe for concurrent use.
type Plane struct {
	cfg     Config
	http    *http.Client
	process processconnect.ProcessClient

	filesystem filesystemconnect.FilesystemClient
}

// A Client calls the envd of one sandbox. It is safe for concurrent use.
type Client struct {
	*Plane
	headers http.Header
}

// Client returns a Client that sends the given headers: routing, token, user
// agent.
func (p *Plane) Client(h http.Header) *Client { return &Client{p, h} }

// New returns a Plane. It makes no request.
func New(cfg Config) *Plane {
	opts := []connect.ClientOption{
		connect.WithCodec(codec{name: "proto"}),
		// Frames are small or incompressible, and envd would compress each.
		connect.WithAcceptCompression("gzip", nil, nil),
		connect.WithReadMaxBytes(maxMessage),
	}
	if cfg.JSON {
		opts = append(opts, connect.WithCodec(codec{name: "json"}))
	}
	rpc := doer{carryHeaders(statusErrors(cfg.Transport))}
	base := strings.TrimSuffix(cfg.BaseURL.String(), "/")
	return &Plane{
		cfg:     cfg,
		http:    &http.Client{Transport: cfg.Transport, CheckRedirect: transport.CheckRedirect},
		process: processconnect.NewProcessClient(rpc, base, opts...),

		filesystem: filesystemconnect.NewFilesystemClient(rpc, base, opts...),
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
		resp, err := transport.RoundTrip(rt, r)
		if err != nil || resp.StatusCode == http.StatusOK {
			return resp, err
		}
		body, _, _ := transport.ReadBody(resp.Body, transport.MaxErrorBody)
		_ = resp.Body.Close()
		var shape struct {
			Code string `json:"code"`
		}
		// A stream tells its errors at its end, and connect-go reads no others.
		if !isStream(r) && json.Unmarshal(body, &shape) == nil && shape.Code != "" {
			resp.Body = io.NopCloser(bytes.NewReader(body))
			return resp, nil
		}
		return nil, transport.NewStatusError(resp.StatusCode, r.Header, resp.Header, body)
	})
}

// A doer sends requests as an http.Client does that has neither cookies nor a limit, and
// never sees a redirect, since statusErrors makes an error of it: without the copies that
// one makes for what could follow.
type doer struct{ rt http.RoundTripper }

// Do implements connect.HTTPClient.
func (d doer) Do(r *http.Request) (*http.Response, error) { return d.rt.RoundTrip(r) }

type headersKey struct{}

// carry returns a ctx whose RPC brings c's headers along.
func (c *Client) carry(ctx context.Context) context.Context {
	return context.WithValue(ctx, headersKey{}, c.headers)
}

// carryHeaders sets the headers of carry below connect-go, which would copy each
// of them twice per call and put a user agent behind its own.
func carryHeaders(rt http.RoundTripper) http.RoundTripper {
	return transport.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		if h, ok := r.Context().Value(headersKey{}).(http.Header); ok {
			maps.Copy(r.Header, h)
		}
		if isStream(r) {
			r.Header["Keepalive-Ping-Interval"] = pingSeconds
		}
		return rt.RoundTrip(r)
	})
}

func isStream(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Content-Type"), "application/connect+")
}

// request is a message on behalf of a user, "" for the default.
func request[T any](msg *T, user string) *connect.Request[T] {
	r := connect.NewRequest(msg)
	if user != "" {
		h := http.Request{Header: r.Header()}
		h.SetBasicAuth(user, "") // envd reads the name alone
	}
	return r
}

func byPID(pid uint32) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: pid}}
}

// unary makes a call that ends with ctx, of whose deadline the server learns
// nothing: it could answer at the deadline a moment before we notice it, and with
// an error that does not look like ours.
func unary[Req, Res any](ctx context.Context, c *Client, req *connect.Request[Req],
	call func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error),
) (*Res, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	life, cancel := context.WithCancelCause(c.carry(context.WithoutCancel(ctx)))
	defer cancel(nil)
	// Not with its cause, which may look like an answer, or like the end of one.
	stop := context.AfterFunc(ctx, func() { cancel(ctx.Err()) })
	defer stop()
	resp, err := call(life, req)
	if err != nil {
		return nil, err
	}
	return resp.Msg, nil
}

// List returns the live processes.
func (c *Client) List(ctx context.Context) ([]*process.ProcessInfo, error) {
	resp, err := unary(ctx, c, request(&process.ListRequest{}, ""), c.process.List)
	return resp.GetProcesses(), err
}

// Signal sends a signal to one process, not to its children.
func (c *Client) Signal(ctx context.Context, pid uint32, sig process.Signal) error {
	_, err := unary(ctx, c, request(&process.SendSignalRequest{Process: byPID(pid), Signal: sig}, ""), c.process.SendSignal)
	return err
}

// SendStdin writes to a process's standard input and returns when all is in
// the pipe.
func (c *Client) SendStdin(ctx context.Context, pid uint32, p []byte) error {
	in := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: p}}
	_, err := unary(ctx, c, request(&process.SendInputRequest{Process: byPID(pid), Input: in}, ""), c.process.SendInput)
	return err
}

// SendTerminal writes to a process's terminal.
func (c *Client) SendTerminal(ctx context.Context, pid uint32, p []byte) error {
	in := &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: p}}
	_, err := unary(ctx, c, request(&process.SendInputRequest{Process: byPID(pid), Input: in}, ""), c.process.SendInput)
	return err
}

// Resize changes the size of a process's terminal.
func (c *Client) Resize(ctx context.Context, pid, cols, rows uint32) error {
	_, err := unary(ctx, c, request(&process.UpdateRequest{Process: byPID(pid), Pty: terminalSize(cols, rows)}, ""), c.process.Update)
	return err
}

func terminalSize(cols, rows uint32) *process.PTY {
	return &process.PTY{Size: &process.PTY_Size{Cols: cols, Rows: rows}}
}

// CloseStdin ends a process's standard input.
func (c *Client) CloseStdin(ctx context.Context, pid uint32) error {
	_, err := unary(ctx, c, request(&process.CloseStdinRequest{Process: byPID(pid)}, ""), c.process.CloseStdin)
	return err
}
