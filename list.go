package e2b

import (
	"context"
	"errors"
	"iter"
	"maps"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/controlapi"
)

// State is what a sandbox does. A value that this SDK does not know is kept as
// the server sent it.
type State string

// The states of a sandbox.
const (
	StateRunning State = "running"
	StatePaused  State = "paused"
)

// SandboxInfo describes a sandbox. Fields that the server left out are zero.
type SandboxInfo struct {
	ID         string
	TemplateID string
	Alias      string // a name of the template, not always the one that was asked for
	State      State
	Metadata   map[string]string
	StartedAt  time.Time // of the last start or resume
	EndAt      time.Time // of the lifetime; for a paused sandbox when it was paused; zero: unknown, or never
	CPUCount   int
	MemoryMiB  int
	DiskMiB    int

	EnvdVersion   string
	Domain        string
	OnTimeout     TimeoutAction     // Info only; TimeoutPause for both kinds of pause
	AutoResume    bool              // Info only
	AllowInternet *bool             // Info only; nil: not set
	Network       *Network          // Info only; nil: not set
	Volumes       map[string]string // mount path to name; not told of a paused sandbox
}

func infoOf(d *controlapi.Detail) SandboxInfo {
	info := SandboxInfo{
		ID: controlapi.ShortID(d.SandboxID), TemplateID: d.TemplateID, Alias: d.Alias, State: State(d.State), Metadata: d.Metadata,
		StartedAt: d.StartedAt.Time, EndAt: d.EndAt.Time,
		CPUCount: d.CPUCount, MemoryMiB: d.MemoryMB, DiskMiB: d.DiskSizeMB,
		EnvdVersion: d.EnvdVersion, Domain: d.Domain, AllowInternet: d.AllowInternetAccess,
	}
	if delete(info.Metadata, CreateTokenKey); len(info.Metadata) == 0 {
		info.Metadata = nil
	}
	if l := d.Lifecycle; l != nil {
		info.AutoResume = l.AutoResume
		switch l.OnTimeout {
		case "kill":
			info.OnTimeout = TimeoutKill
		case "pause":
			info.OnTimeout = TimeoutPause
		}
	}
	info.Network = networkOf(d.Network)
	if len(d.VolumeMounts) > 0 {
		info.Volumes = make(map[string]string, len(d.VolumeMounts))
		for _, m := range d.VolumeMounts {
			info.Volumes[m.Path] = m.Name
		}
	}
	return info
}

// ListOptions selects and orders sandboxes. The zero value lists all that the
// key's team has, running and paused, the newest start first.
type ListOptions struct {
	States       []State           // none: running and paused
	Metadata     map[string]string // all of these, with exactly these values
	Template     string            // name or ID, without a tag
	StartedAfter time.Time         // or at that time; to the microsecond
	Ascending    bool              // the oldest start first
	PageSize     int               // 1 to 100; 0 means 100
	PageToken    string            // Page.NextToken of the page before
}

// Page is a part of a list.
type Page[T any] struct {
	Items     []T
	NextToken string // of the next page; "" after the last
}

var opList = operation{name: "list"}

// ListPage returns one page of sandboxes. A sandbox that is paused or resumed
// between two pages can be on both, or on neither.
//
// Errors: ErrInvalidArgument, ErrUnauthenticated, ErrNotSupported (the server
// has only the old list, which shows running sandboxes on one page, and opts ask
// for more).
//
// See https://e2b.dev/docs/sandbox/list.
func (c *Client) ListPage(ctx context.Context, opts *ListOptions) (*Page[SandboxInfo], error) {
	q, err := opts.query()
	if err != nil {
		return nil, err
	}
	items, next, err := c.api.List(ctx, q)
	if err != nil {
		return nil, controlError(ctx, opList, "", err)
	}
	page := &Page[SandboxInfo]{Items: make([]SandboxInfo, len(items)), NextToken: next}
	for i := range items {
		page.Items[i] = infoOf(&items[i])
	}
	return page, nil
}

// List returns all sandboxes that opts select, page after page, each once. It
// yields at most one error, as its last pair, and starts over when it is ranged
// over again. ctx bounds the whole range.
//
// Errors: as ListPage.
//
// See https://e2b.dev/docs/sandbox/list.
func (c *Client) List(ctx context.Context, opts *ListOptions) iter.Seq2[SandboxInfo, error] {
	var o ListOptions
	if opts != nil {
		o = *opts
		o.States = append([]State(nil), o.States...)
		o.Metadata = maps.Clone(o.Metadata)
	}
	return pages(opList, o.PageToken, func(i SandboxInfo) string { return i.ID }, func(token string) (*Page[SandboxInfo], error) {
		o := o
		o.PageToken = token
		return c.ListPage(ctx, &o)
	})
}

// pages ranges over all items of a list, page after page from the one of token
// on, each once.
func pages[T any](op operation, token string, id func(T) string, page func(token string) (*Page[T], error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		token := token
		seen := map[string]bool{}   // what moved between two pages
		tokens := map[string]bool{} // a server that turns in a circle
		for {
			p, err := page(token)
			if err != nil {
				yield(none, err)
				return
			}
			for _, item := range p.Items {
				if key := id(item); key != "" && seen[key] {
					continue
				} else if key != "" {
					seen[key] = true
				}
				if !yield(item, nil) {
					return
				}
			}
			if p.NextToken == "" {
				return
			}
			if tokens[p.NextToken] {
				yield(none, &opError{op: op.name, errs: []error{errors.New("the server repeats a page")}})
				return
			}
			tokens[p.NextToken] = true
			token = p.NextToken
		}
	}
}

func (o *ListOptions) query() (controlapi.ListQuery, error) {
	var q controlapi.ListQuery
	if o == nil {
		return q, nil
	}
	if o.PageSize < 0 || o.PageSize > 100 {
		return q, invalid(opList.name, "PageSize", "must be 1 to 100, or 0 for 100: %d", o.PageSize)
	}
	for _, s := range o.States {
		if s != StateRunning && s != StatePaused {
			return q, invalid(opList.name, "States", "has one that no list knows: %.40q", s)
		}
		q.States = append(q.States, string(s))
	}
	q.Metadata, q.Template, q.StartedAfter = o.Metadata, o.Template, o.StartedAfter
	q.Ascending, q.Limit, q.Token = o.Ascending, o.PageSize, o.PageToken
	return q, nil
}
