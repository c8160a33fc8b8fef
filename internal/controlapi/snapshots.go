package controlapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// NewSnapshot is the body of a snapshot.
type NewSnapshot struct {
	Name string `json:"name,omitempty"`
	Mode string `json:"mode,omitempty"` // unknown to servers before November 2026
}

// Snapshot is a snapshot as its creation and the list show it.
type Snapshot struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
}

// Snapshot makes a snapshot of a running sandbox.
func (c *Client) Snapshot(ctx context.Context, id string, body NewSnapshot) (*Snapshot, error) {
	a, err := c.do(ctx, request{method: http.MethodPost, segments: []string{"sandboxes", id, "snapshots"}, body: body})
	if err != nil {
		return nil, err
	}
	var s Snapshot
	if err = a.decode(&s); err == nil && s.SnapshotID == "" {
		err = a.bad(errors.New("it names no snapshot"))
	}
	if err != nil {
		return nil, ambiguous(err)
	}
	return &s, nil
}

// SnapshotQuery selects snapshots.
type SnapshotQuery struct {
	SandboxID string
	Name      string
	Limit     int
	Token     string
}

// Snapshots returns one page of snapshots and the token of the next, "" after
// the last.
func (c *Client) Snapshots(ctx context.Context, q SnapshotQuery) ([]Snapshot, string, error) {
	a, err := c.do(ctx, request{method: http.MethodGet, segments: []string{"snapshots"}, query: q.values(), safe: true})
	if err != nil {
		return nil, "", err
	}
	var page []Snapshot
	if err := a.array(&page); err != nil {
		return nil, "", err
	}
	return page, a.header.Get("X-Next-Token"), nil
}

func (q SnapshotQuery) values() url.Values {
	v := url.Values{}
	for name, value := range map[string]string{"sandboxID": q.SandboxID, "name": q.Name, "nextToken": q.Token} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return v
}

// DeleteSnapshot deletes a snapshot with all its tags: it is a template.
func (c *Client) DeleteSnapshot(ctx context.Context, id string) error {
	_, err := c.do(ctx, request{method: http.MethodDelete, segments: []string{"templates", id}, safe: true})
	status, repeated := refused(err)
	if repeated && status != nil && status.StatusCode == http.StatusNotFound && !routeMissing(err) {
		return nil // an earlier attempt whose answer was lost is what deleted it
	}
	return err
}

// ForkSandbox is the body of a fork.
type ForkSandbox struct {
	Timeout int32 `json:"timeout"`
	Count   int   `json:"count,omitempty"`
}

// ForkResult is what became of one fork: a sandbox, or an *OutcomeError.
type ForkResult struct {
	Sandbox *Sandbox
	Err     error
}

// Fork starts copies of a running sandbox. The results are at least as many as
// were asked for.
func (c *Client) Fork(ctx context.Context, id string, count int, timeout time.Duration) ([]ForkResult, error) {
	body := ForkSandbox{Timeout: seconds(timeout), Count: count}
	a, err := c.do(ctx, request{method: http.MethodPost, segments: []string{"sandboxes", id, "fork"}, body: body})
	if err != nil {
		return nil, err
	}
	var entries []json.RawMessage
	if err := a.array(&entries); err != nil {
		return nil, ambiguous(err)
	}
	results := make([]ForkResult, len(entries), max(len(entries), count, 1))
	for i, entry := range entries {
		results[i] = c.forkResult(a, entry)
	}
	for len(results) < cap(results) {
		results = append(results, ForkResult{Err: ambiguous(a.bad(errors.New("it has too few results")))})
	}
	return results, nil
}

// forkResult reads one entry. That the others can be read must not depend on it.
func (c *Client) forkResult(a *answer, entry []byte) ForkResult {
	var e struct {
		Sandbox *Sandbox        `json:"sandbox"`
		Error   json.RawMessage `json:"error"`
	}
	err := json.Unmarshal(entry, &e)
	switch {
	case err != nil:
	case e.Sandbox != nil:
		e.Sandbox.SandboxID = ShortID(e.Sandbox.SandboxID)
		return ForkResult{Sandbox: e.Sandbox}
	case len(e.Error) > 0 && e.Error[0] == '{':
		var code struct {
			Code json.RawMessage `json:"code"`
		}
		_ = json.Unmarshal(e.Error, &code) // it is an object
		status, _ := strconv.Atoi(string(code.Code))
		sent := http.Header{}
		sent.Set(transport.HeaderAPIKey, c.cfg.APIKey)
		return ForkResult{Err: &OutcomeError{Attempts: a.attempts, Err: transport.NewStatusError(status, sent, a.header, e.Error)}}
	default:
		err = errors.New("a result without sandbox and error")
	}
	return ForkResult{Err: ambiguous(a.bad(err))}
}

// ambiguous marks the error for a success which does not say what was made.
func ambiguous(err error) error {
	if o, ok := errors.AsType[*OutcomeError](err); ok {
		o.Ambiguous = true
	}
	return err
}
