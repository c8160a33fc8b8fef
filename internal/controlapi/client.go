// Package controlapi speaks to E2B's control plane: it has the routes, their
// bodies, and the one path that every request takes, with its retries.
package controlapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// maxBody bounds an answer. A page of 100 sandboxes with large metadata stays
// far below it.
const maxBody = 64 << 20

// Config is what a Client is made of.
type Config struct {
	BaseURL        *url.URL
	APIKey         string
	UserAgent      string
	Header         http.Header // sent with every request; may not replace the headers of this package
	Transport      http.RoundTripper
	RequestTimeout time.Duration // of one attempt, where ctx has no deadline; ≤ 0: none
	MaxRetries     int
	Logger         *slog.Logger
}

// A Client calls the control plane. It is safe for concurrent use.
type Client struct {
	cfg     *Config // behind a pointer, which fmt does not follow: it has the key
	http    *retryablehttp.Client
	maxBody int64
	create  family
	conn    family
	list    family
	logs    family
}

// New returns a Client. It makes no request.
func New(cfg Config) *Client {
	c := &Client{cfg: &cfg, maxBody: maxBody}
	// The steps of one attempt, from the outside in.
	rt := transport.Log(cfg.Transport, cfg.Logger)
	rt = c.attempt(rt) // also hides CloseIdleConnections: retryablehttp drops the pool whenever it gives up
	c.http = &retryablehttp.Client{
		HTTPClient:   &http.Client{Transport: rt, CheckRedirect: transport.CheckRedirect},
		RetryMax:     max(cfg.MaxRetries, 0),
		CheckRetry:   checkRetry,
		Backoff:      backoff,
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	return c
}

// A request is one call of the control plane, with what may be done to it.
type request struct {
	method   string
	segments []string
	query    url.Values
	body     any      // nil: none
	safe     bool     // to repeat, after an attempt that may have arrived
	busy     bool     // repeat also a 409: the sandbox is changing its state
	secrets  []string // in the body; taken out of what the server says of it
}

// OutcomeError is what an error of this package knows beyond its cause.
type OutcomeError struct {
	Attempts  int
	Last      *transport.StatusError // the last answer, also if the wait after it was cut short; or nil
	Ambiguous bool                   // an attempt may have been carried out without our learning of it
	Err       error                  // why the call ended
}

func (e *OutcomeError) Error() string { return e.Err.Error() }

func (e *OutcomeError) Unwrap() error { return e.Err }

// call is the state of one request over its attempts. retryablehttp runs them
// one after another, so nothing guards it.
type call struct {
	request
	delivery  transport.Delivery
	attempts  int
	sent      bool // the latest attempt came as far as the transport
	last      *transport.StatusError
	ambiguous bool
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// answer is a success.
type answer struct {
	status   int
	header   http.Header
	body     []byte
	attempts int
}

// do makes a request, repeats it as far as that is safe and allowed, and
// returns its answer or an *OutcomeError.
func (c *Client) do(ctx context.Context, r request) (*answer, error) {
	st := &call{request: r}
	fail := func(err error) error {
		return &OutcomeError{Attempts: st.attempts, Last: st.last, Ambiguous: st.ambiguous, Err: err}
	}
	var body any // retryablehttp takes bytes without a copy
	if r.body != nil {
		b, err := json.Marshal(r.body)
		if err != nil {
			return nil, fail(err)
		}
		body = b
	}
	u := transport.Join(c.cfg.BaseURL, r.segments...)
	u.RawQuery = r.query.Encode()
	req, err := retryablehttp.NewRequestWithContext(context.WithValue(ctx, callKey{}, st), r.method, u.String(), body)
	if err != nil {
		return nil, fail(transport.Cause(err))
	}
	maps.Copy(req.Header, c.cfg.Header)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", c.cfg.UserAgent)
	req.Header.Set(transport.HeaderAPIKey, c.cfg.APIKey)
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fail(transport.Cause(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return nil, fail(st.last)
	}
	if t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); t == "text/html" {
		// A page of something else, whatever its status: a wrong URL, a portal.
		return nil, fail(&BadAnswerError{Status: resp.StatusCode, RequestID: transport.RequestID(resp.Header), Err: errors.New("it is a page in HTML")})
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fail(err)
	}
	return &answer{status: resp.StatusCode, header: resp.Header, body: b, attempts: st.attempts}, nil
}

// attempt makes one attempt under its own limit, reads its whole answer within
// it, and notes how far the request came.
func (c *Client) attempt(rt http.RoundTripper) http.RoundTripper {
	return transport.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		caller := r.Context()
		st := callOf(caller)
		if st.sent = caller.Err() == nil; !st.sent {
			return nil, caller.Err()
		}
		ctx := st.delivery.Trace(caller)
		if _, has := caller.Deadline(); !has && c.cfg.RequestTimeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, c.cfg.RequestTimeout)
			defer cancel()
		}
		fail := func(err error) (*http.Response, error) {
			if ctx.Err() != nil && caller.Err() == nil {
				err = transport.ErrTimeout
			}
			return nil, err
		}
		resp, err := transport.RoundTrip(rt, r.WithContext(ctx))
		if err != nil {
			return fail(err)
		}
		limit := c.maxBody
		if resp.StatusCode >= 300 {
			limit = transport.MaxErrorBody
		}
		body, whole, err := transport.ReadBody(resp.Body, limit)
		_ = resp.Body.Close()
		if err == nil {
			err = transport.FalseEnd(ctx)
		}
		switch {
		case resp.StatusCode >= 300: // what came of an error's text is enough
		case err != nil:
			return fail(fmt.Errorf("answer cut off: %w", err))
		case !whole:
			return nil, fmt.Errorf("answer of more than %d bytes", limit)
		}
		resp.Body = io.NopCloser(bytes.NewReader(body))
		if resp.StatusCode >= 300 {
			st.last = transport.NewStatusError(resp.StatusCode, r.Header, resp.Header, body, st.secrets...)
		}
		return resp, nil
	})
}

// decode reads a JSON answer into out.
func (a *answer) decode(out any) error {
	if err := json.Unmarshal(a.body, out); err != nil {
		return a.bad(err)
	}
	if bytes.Equal(bytes.TrimSpace(a.body), []byte("null")) {
		return a.bad(errors.New("null")) // which decodes into anything, to nothing
	}
	return nil
}

// bad is the error for an answer that err says cannot be used.
func (a *answer) bad(err error) error {
	return &OutcomeError{Attempts: a.attempts, Err: &BadAnswerError{Status: a.status, RequestID: transport.RequestID(a.header), Err: err}}
}

// BadAnswerError is a success whose body is not what it should be.
type BadAnswerError struct {
	Status    int
	RequestID string
	Err       error
}

func (e *BadAnswerError) Error() string {
	// Errors of encoding/json quote at most a character or a short literal.
	return fmt.Sprintf("answer %d cannot be read: %v", e.Status, transport.Clean(e.Err.Error(), false))
}

func (e *BadAnswerError) Unwrap() error { return e.Err }

// ErrNoRoute is returned when a server has neither form of a route.
var ErrNoRoute = errors.New("this server does not have the route")

// family remembers which of two routes for the same thing a server has.
type family struct{ second atomic.Bool }

// do tries the first route and, when the server answers that it does not exist,
// the second. Once the second has answered it is asked directly, until it is gone.
func (f *family) do(first, second func() (*answer, error)) (*answer, error) {
	if f.second.Load() {
		a, err := second()
		if !routeMissing(err) {
			return a, err
		}
		f.second.Store(false) // the server was replaced by another one
	}
	a, err := first()
	if !mayBeMissing(err) {
		return a, err
	}
	b, err2 := second()
	switch {
	case !mayBeMissing(err2):
		if err2 == nil || answered(err2) {
			f.second.Store(true)
		}
	case !routeMissing(err):
		return a, err // that answer was about something else after all
	case routeMissing(err2):
		if o, ok := errors.AsType[*OutcomeError](err2); ok {
			o.Err = fmt.Errorf("%w: %w", ErrNoRoute, o.Err)
		}
	}
	return b, err2
}

// answered reports an error by which a server shows that it has the route: not one that
// may come from what stands before a server that cannot be reached.
func answered(err error) bool {
	e, ok := errors.AsType[*transport.StatusError](err)
	return ok && e.StatusCode < 500 && e.StatusCode != http.StatusTooManyRequests && e.StatusCode != http.StatusRequestTimeout
}
