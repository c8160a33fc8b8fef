// Package interpreter speaks to the code interpreter inside a sandbox.
package interpreter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// Config is what a Client is made of.
type Config struct {
	BaseURL   *url.URL
	Header    http.Header
	Transport http.RoundTripper // HTTP/1.1: only a closed connection interrupts the code
}

// A Client runs code in the contexts of one sandbox.
type Client struct {
	cfg  Config
	http *http.Client
}

// New returns a Client. It makes no request.
func New(cfg Config) *Client {
	return &Client{cfg: cfg, http: &http.Client{Transport: cfg.Transport, CheckRedirect: transport.CheckRedirect}}
}

// Code is what to run, and where.
type Code struct {
	Code      string            `json:"code"`
	ContextID string            `json:"context_id,omitempty"`
	Language  string            `json:"language,omitempty"`
	Env       map[string]string `json:"env_vars,omitempty"`
}

// ErrNoEnd is returned for an answer without end_of_execution.
var ErrNoEnd = errors.New("the answer ended before the execution did")

// An Execution is code that runs.
type Execution struct {
	body io.ReadCloser
	r    *bufio.Reader
	long []byte // a line that does not fit into r's buffer
	max  int    // of a line
	done bool

	release func()
	silent  atomic.Bool
	watch   *time.Timer // nil until a keepalive was seen
}

// maxSilence is how long an execution may be silent on which a keepalive has been
// seen, of which the server sends one every five seconds.
const maxSilence = 30 * time.Second

// ErrSilent is returned when a server has stopped to show that it is alive.
var ErrSilent = errors.New("the answer went silent")

// Execute starts code and returns once the server has taken it. The end of ctx,
// also after that, and Close before the end interrupt the code. limit, if > 0,
// bounds the wait for the server to take it.
func (c *Client) Execute(ctx context.Context, limit time.Duration, code *Code) (*Execution, error) {
	b, err := json.Marshal(code)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx) // also where there is no limit: silence must end it
	ctx, idle := transport.WithIdle(ctx, limit)
	release := func() {
		idle.Release()
		cancel()
	}
	e, err := c.execute(ctx, b)
	if err != nil {
		release()
		return nil, err
	}
	idle.Stop()
	e.release = release
	return e, nil
}

func (c *Client) execute(ctx context.Context, b []byte) (*Execution, error) {
	resp, err := c.send(ctx, http.MethodPost, bytes.NewReader(b), "execute") //nolint:bodyclose // Execution.Close does
	if err != nil {
		return nil, err
	}
	return newExecution(resp.Body), nil
}

// send makes a request and turns an answer that is no success into an error.
func (c *Client) send(ctx context.Context, method string, body io.Reader, segments ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, transport.Join(c.cfg.BaseURL, segments...).String(), body)
	if err != nil {
		return nil, transport.Cause(err)
	}
	maps.Copy(req.Header, c.cfg.Header)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, transport.Cause(err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	b, _, _ := transport.ReadBody(resp.Body, transport.MaxErrorBody)
	return nil, transport.NewStatusError(resp.StatusCode, req.Header, resp.Header, b)
}

// drainWait is how long an answer that has told its end may take to close.
const drainWait = time.Second

// maxLine bounds a line. A picture of 20 MB has been seen, in one.
const maxLine = 512 << 20

func newExecution(body io.ReadCloser) *Execution {
	return &Execution{body: body, r: bufio.NewReaderSize(body, 32<<10), max: maxLine}
}

// Next reads the next line into l. After the line that ends the execution it
// returns io.EOF; an answer that stops before it is ErrNoEnd.
func (e *Execution) Next(l *Line) error {
	if e.watch != nil {
		e.watch.Reset(maxSilence)
		defer e.watch.Stop() // the time that the caller takes is not the server's
	}
	err := e.next(l)
	if err == nil && l.Type == TypeKeepalive && e.watch == nil {
		e.watch = time.AfterFunc(maxSilence, func() {
			e.silent.Store(true)
			e.release()
		})
		e.watch.Stop()
	}
	if err != nil && e.silent.Load() {
		return ErrSilent
	}
	return err
}

func (e *Execution) next(l *Line) error {
	for {
		if e.done {
			// Read on to the end of the body, so that the connection can be used
			// again. A server that does not end it is not waited for.
			t := time.AfterFunc(drainWait, func() { _ = e.body.Close() })
			_, _ = io.Copy(io.Discard, io.LimitReader(e.r, 64<<10))
			t.Stop()
			return io.EOF
		}
		b, err := e.line()
		if len(bytes.TrimSpace(b)) > 0 {
			*l = Line{Size: len(b)}
			jerr := json.Unmarshal(b, l)
			if _, odd := errors.AsType[*json.UnmarshalTypeError](jerr); jerr != nil && !odd {
				// A field of another type is left out, as that of a line of a later kind.
				if err == nil {
					return fmt.Errorf("line of the interpreter cannot be read: %s", transport.Clean(jerr.Error(), false))
				}
				return noEnd(err) // cut in the middle
			}
			e.done = l.Type == TypeEnd
			return nil
		}
		if err != nil {
			return noEnd(err)
		}
	}
}

func noEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return ErrNoEnd
	}
	return fmt.Errorf("%w: %w", ErrNoEnd, err)
}

// line returns the next line. It is valid until the next call.
func (e *Execution) line() ([]byte, error) {
	b, err := e.r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return b, err
	}
	e.long = e.long[:0]
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(e.long) > e.max {
			return nil, fmt.Errorf("line of the interpreter has more than %d bytes", e.max)
		}
		if cap(e.long)-len(e.long) < len(b) {
			e.long = slices.Grow(e.long, max(len(b), len(e.long))) // append alone would copy a picture five times
		}
		e.long = append(e.long, b...)
		b, err = e.r.ReadSlice('\n')
	}
	e.long = append(e.long, b...)
	b = e.long
	if cap(e.long) > 1<<20 {
		e.long = nil // do not keep the room of one plot for the rest of the stream
	}
	return b, err
}

// Close ends the execution: before its end that closes the connection, which
// interrupts the code.
func (e *Execution) Close() error {
	if e.watch != nil {
		e.watch.Stop()
	}
	defer e.release()
	return e.body.Close()
}
