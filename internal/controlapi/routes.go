package controlapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// Create starts a sandbox.
func (c *Client) Create(ctx context.Context, body NewSandbox, timeout time.Duration) (*Sandbox, error) {
	body.Timeout = seconds(timeout)
	v1 := func() (*answer, error) {
		return c.do(ctx, request{method: http.MethodPost, segments: []string{"sandboxes"}, body: body, secrets: body.secrets()})
	}
	v2 := func() (*answer, error) {
		twin := body
		if !twin.Secure {
			return nil, &OutcomeError{Err: ErrAlwaysSecure}
		}
		twin.Secure = false
		return c.do(ctx, request{method: http.MethodPost, segments: []string{"v2", "sandboxes"}, body: twin, secrets: body.secrets()})
	}
	a, err := c.create.do(v1, v2)
	if err != nil {
		return nil, err
	}
	sbx, err := a.sandbox()
	return sbx, ambiguous(err)
}

// ErrAlwaysSecure is returned when a server has only the routes that give every
// sandbox an envd token.
var ErrAlwaysSecure = errors.New("this server secures every sandbox")

// Connect extends a running sandbox or resumes a paused one, and tells which.
func (c *Client) Connect(ctx context.Context, id string, body ConnectSandbox, timeout time.Duration) (sbx *Sandbox, resumed bool, err error) {
	body.Timeout = seconds(timeout)
	route := func(segments ...string) func() (*answer, error) {
		return func() (*answer, error) {
			return c.do(ctx, request{method: http.MethodPost, segments: segments, body: body, safe: true, busy: true})
		}
	}
	a, err := c.conn.do(route("sandboxes", id, "connect"), route("v2", "sandboxes", id, "connect"))
	if err != nil {
		return nil, false, err
	}
	sbx, err = a.sandbox()
	return sbx, a.status == http.StatusCreated, err
}

// ShortID cuts the old long form of an ID, "sandbox-client", to the sandbox's. An
// ID of another form stays as it is: compatible servers have IDs with dashes, and
// half of one would name another sandbox.
func ShortID(id string) string {
	if short, client, ok := strings.Cut(id, "-"); ok && short != "" && client != "" && !strings.Contains(client, "-") {
		return short
	}
	return id
}

func (a *answer) sandbox() (*Sandbox, error) {
	var s Sandbox
	if err := a.decode(&s); err != nil {
		return nil, err
	}
	s.SandboxID = ShortID(s.SandboxID)
	return &s, nil
}

// Pause pauses a sandbox. It returns false when it was paused already.
func (c *Client) Pause(ctx context.Context, id string, body PauseSandbox) (bool, error) {
	_, err := c.do(ctx, request{method: http.MethodPost, segments: []string{"sandboxes", id, "pause"}, body: body, safe: true})
	if err == nil {
		return true, nil
	}
	status, ambiguous := refused(err)
	if status == nil || !strings.Contains(status.Message, "already paused") {
		return false, err
	}
	switch status.StatusCode {
	case http.StatusConflict, http.StatusBadRequest: // compatible servers say 400
		// An earlier attempt whose answer was lost is what paused it.
		return ambiguous, nil
	}
	return false, err
}

// Kill ends a sandbox. It returns false when there was none.
func (c *Client) Kill(ctx context.Context, id string) (bool, error) {
	_, err := c.do(ctx, request{method: http.MethodDelete, segments: []string{"sandboxes", id}, safe: true})
	if err == nil {
		return true, nil
	}
	if status, ambiguous := refused(err); status != nil && status.StatusCode == http.StatusNotFound && !routeMissing(err) {
		return ambiguous, nil
	}
	return false, err
}

// refused returns the answer that ended a call, nil if something else did, and
// whether an attempt before it may have been carried out.
func refused(err error) (status *transport.StatusError, ambiguous bool) {
	o, ok := errors.AsType[*OutcomeError](err)
	if !ok {
		return nil, false
	}
	status, _ = errors.AsType[*transport.StatusError](o.Err)
	return status, o.Ambiguous
}

// SetTimeout sets how long a running sandbox lives from now.
func (c *Client) SetTimeout(ctx context.Context, id string, d time.Duration) error {
	body := struct {
		Timeout int32 `json:"timeout"`
	}{seconds(d)}
	_, err := c.do(ctx, request{method: http.MethodPost, segments: []string{"sandboxes", id, "timeout"}, body: body, safe: true, busy: true})
	return err
}

// Refresh makes a running sandbox live for d from now, if it would end earlier.
func (c *Client) Refresh(ctx context.Context, id string, d time.Duration) error {
	body := struct {
		Duration int32 `json:"duration"`
	}{seconds(d)}
	_, err := c.do(ctx, request{method: http.MethodPost, segments: []string{"sandboxes", id, "refreshes"}, body: body, safe: true, busy: true})
	return err
}

// SetNetwork replaces the rules for a sandbox's outgoing traffic.
func (c *Client) SetNetwork(ctx context.Context, id string, body *NetworkUpdate) error {
	_, err := c.do(ctx, request{method: http.MethodPut, segments: []string{"sandboxes", id, "network"}, body: body, safe: true, secrets: egressSecrets(body.Rules, body.EgressProxy)})
	return err
}

// Info describes a sandbox.
func (c *Client) Info(ctx context.Context, id string) (*Detail, error) {
	a, err := c.do(ctx, request{method: http.MethodGet, segments: []string{"sandboxes", id}, safe: true})
	if err != nil {
		return nil, err
	}
	var d Detail
	if err := a.decode(&d); err != nil {
		return nil, err
	}
	return &d, nil
}

// ListQuery selects and orders sandboxes.
type ListQuery struct {
	States       []string // none: all
	Metadata     map[string]string
	Template     string
	StartedAfter time.Time
	Ascending    bool
	Limit        int
	Token        string
}

// ErrListV1 is returned when a server's only list has no way to say what was
// asked for. The error says what.
var ErrListV1 = errors.New("this server's list shows running sandboxes only")

// List returns one page of sandboxes and the token of the next, "" after the
// last.
func (c *Client) List(ctx context.Context, q ListQuery) ([]Detail, string, error) {
	v2 := func() (*answer, error) {
		return c.do(ctx, request{method: http.MethodGet, segments: []string{"v2", "sandboxes"}, query: q.values(), safe: true})
	}
	v1 := func() (*answer, error) {
		if what := q.beyondV1(); what != "" {
			return nil, &OutcomeError{Err: fmt.Errorf("%w: %s", ErrListV1, what)}
		}
		only := ListQuery{Metadata: q.Metadata}
		return c.do(ctx, request{method: http.MethodGet, segments: []string{"sandboxes"}, query: only.values(), safe: true})
	}
	a, err := c.list.do(v2, v1)
	if err != nil {
		return nil, "", err
	}
	var page []Detail
	if err := a.array(&page); err != nil {
		return nil, "", err
	}
	return page, a.header.Get("X-Next-Token"), nil
}

// array decodes a list.
func (a *answer) array(out any) error {
	if !bytes.HasPrefix(bytes.TrimLeft(a.body, " \t\r\n"), []byte("[")) {
		// null and objects would decode to an empty list, or to an error that
		// does not say what is wrong.
		return a.bad(errors.New("a list that is not an array"))
	}
	return a.decode(out)
}

func (q ListQuery) values() url.Values {
	v := url.Values{}
	if len(q.States) > 0 {
		v.Set("state", strings.Join(q.States, ",")) // one parameter: the server refuses two
	}
	if len(q.Metadata) > 0 {
		// The server decodes the query, then this string, then each key and value.
		m := url.Values{}
		for key, value := range q.Metadata {
			m.Set(url.QueryEscape(key), url.QueryEscape(value))
		}
		v.Set("metadata", m.Encode())
	}
	if q.Template != "" {
		v.Set("template", q.Template)
	}
	if !q.StartedAfter.IsZero() {
		v.Set("startedAfter", q.StartedAfter.UTC().Format("2006-01-02T15:04:05.999999Z07:00"))
	}
	if q.Ascending {
		v.Set("order", "asc")
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.Token != "" {
		v.Set("nextToken", q.Token)
	}
	return v
}

// beyondV1 names what the first form of the list cannot do.
func (q ListQuery) beyondV1() string {
	switch {
	case len(q.States) != 1 || q.States[0] != "running":
		return "ask for StateRunning alone"
	case q.Template != "":
		return "it has no template filter"
	case !q.StartedAfter.IsZero():
		return "it has no start time filter"
	case q.Ascending:
		return "it has no order"
	case q.Token != "":
		return "it has no pages"
	}
	return ""
}
