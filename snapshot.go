package e2b

import (
	"context"
	"iter"
	"strings"

	"github.com/seed-09a7379d/e2b-go/internal/controlapi"
)

// SnapshotOptions says how to make a snapshot. The zero value makes one of files
// and memory, without a name.
//
// See https://e2b.dev/docs/sandbox/snapshots.
type SnapshotOptions struct {
	// Name is how it can be found: "name", "name:tag" or "team/name:tag", with the
	// slug of the key's own team. A name that there is already gets the new
	// snapshot as its newest, and the tag moves to it. "" makes one without a name.
	Name string
	// FilesystemOnly takes the files alone: sandboxes made from it boot. A server
	// older than November 2026 ignores it silently and takes the memory as well.
	FilesystemOnly bool
}

// Snapshot is a state of a sandbox that was kept. It outlives the sandbox, and
// stays until DeleteSnapshot.
//
// See https://e2b.dev/docs/sandbox/snapshots.
type Snapshot struct {
	// ID always ends in a :tag. It is what CreateOptions.Template and
	// DeleteSnapshot take: "team/name:tag" for one with a name.
	ID string
	// Names are the names that it has, with the team and without a tag.
	Names []string
}

var (
	opSnapshot       = operation{name: "snapshot", notFound: ErrSandboxNotFound, creates: "a snapshot"}
	opSnapshots      = operation{name: "list snapshots"}
	opDeleteSnapshot = operation{name: "delete snapshot", notFound: ErrNotFound}
)

// Snapshot keeps the state of a running sandbox, files and memory, from which
// Create makes any number of others: CreateOptions.Template takes its ID. The
// sandbox stands still meanwhile and then goes on, with the same ID and the same
// lifetime: streams into it stall and are not cut. opts may be nil. ctx bounds
// the wait for the answer; a snapshot that has begun may go on after it.
//
// A snapshot whose answer was lost is not repeated, since it could be made twice:
// the error then is an *OutcomeUnknownError. Snapshots finds what there is, by
// SandboxID and Name.
//
// Once a sandbox was snapshotted, the end of its lifetime with TimeoutKill leaves
// it paused in that state; Kill ends it for good.
//
// Errors: ErrInvalidArgument, ErrSandboxNotFound, ErrSandboxNotRunning (it is
// paused; APIError.State says so), ErrConflict (it is being paused, killed,
// snapshotted or forked), ErrServiceBusy, ErrOutcomeUnknown, ErrNotSupported,
// ErrUnauthenticated, ErrForbidden (the team is blocked), ErrRateLimited. After
// another failure ask Info: when the server itself failed at the snapshot, the
// sandbox is gone.
//
// See https://e2b.dev/docs/sandbox/snapshots.
func (c *Client) Snapshot(ctx context.Context, sandbox string, opts *SnapshotOptions) (*Snapshot, error) {
	id, err := sandboxID(opSnapshot.name, sandbox)
	if err != nil {
		return nil, err
	}
	var body controlapi.NewSnapshot
	if opts != nil {
		if err := validText(opSnapshot.name, nil, argument{"Name", opts.Name}); err != nil {
			return nil, err
		}
		body.Name = opts.Name
		if opts.FilesystemOnly {
			body.Mode = "filesystem"
		}
	}
	s, err := c.api.Snapshot(ctx, id, body)
	if err != nil {
		return nil, c.pausedOrGone(ctx, controlError(ctx, opSnapshot, id, err), id)
	}
	return &Snapshot{ID: s.SnapshotID, Names: s.Names}, nil
}

// Snapshot is Client.Snapshot for this sandbox, with the same errors.
//
// See https://e2b.dev/docs/sandbox/snapshots.
func (s *Sandbox) Snapshot(ctx context.Context, opts *SnapshotOptions) (*Snapshot, error) {
	return s.client.Snapshot(ctx, s.id, opts)
}

// SnapshotListOptions selects snapshots. The zero value lists all that the key's
// team has, the newest first.
//
// See https://e2b.dev/docs/sandbox/snapshots.
type SnapshotListOptions struct {
	SandboxID string // of the sandbox that they were made of; "": of any
	Name      string // "name", "team/name" or an ID, each also with a :tag; "": any
	PageSize  int    // 1 to 100; 0 means 100
	PageToken string // Page.NextToken of the page before; "": the first page
}

// SnapshotsPage returns one page of snapshots. Each is there once, with the
// newest of its tags, or with that of opts.Name. opts may be nil.
//
// Errors: ErrInvalidArgument, ErrUnauthenticated, ErrNotSupported.
//
// See https://e2b.dev/docs/sandbox/snapshots.
func (c *Client) SnapshotsPage(ctx context.Context, opts *SnapshotListOptions) (*Page[Snapshot], error) {
	q, err := opts.query()
	if err != nil {
		return nil, err
	}
	items, next, err := c.api.Snapshots(ctx, q)
	if err != nil {
		return nil, controlError(ctx, opSnapshots, "", err)
	}
	page := &Page[Snapshot]{Items: make([]Snapshot, len(items)), NextToken: next}
	for i, s := range items {
		page.Items[i] = Snapshot{ID: s.SnapshotID, Names: s.Names}
	}
	return page, nil
}

// Snapshots returns all snapshots that opts select, page after page, each once.
// It yields at most one error, as its last pair, and starts over when it is ranged
// over again. ctx bounds the whole range. opts may be nil.
//
// Errors: as SnapshotsPage.
//
// See https://e2b.dev/docs/sandbox/snapshots.
func (c *Client) Snapshots(ctx context.Context, opts *SnapshotListOptions) iter.Seq2[Snapshot, error] {
	var o SnapshotListOptions
	if opts != nil {
		o = *opts
	}
	return pages(opSnapshots, o.PageToken, func(s Snapshot) string { return s.ID }, func(token string) (*Page[Snapshot], error) {
		o := o
		o.PageToken = token
		return c.SnapshotsPage(ctx, &o)
	})
}

// Snapshots is Client.Snapshots for those that were made of this sandbox, with the
// same errors; opts.SandboxID is not looked at.
//
// See https://e2b.dev/docs/sandbox/snapshots.
func (s *Sandbox) Snapshots(ctx context.Context, opts *SnapshotListOptions) iter.Seq2[Snapshot, error] {
	var o SnapshotListOptions
	if opts != nil {
		o = *opts
	}
	o.SandboxID = s.id
	return s.client.Snapshots(ctx, &o)
}

func (o *SnapshotListOptions) query() (controlapi.SnapshotQuery, error) {
	var q controlapi.SnapshotQuery
	if o == nil {
		return q, nil
	}
	if o.SandboxID != "" {
		var err error
		if q.SandboxID, err = sandboxID(opSnapshots.name, o.SandboxID); err != nil {
			return q, err
		}
	}
	if o.PageSize < 0 || o.PageSize > 100 {
		return q, invalid(opSnapshots.name, "PageSize", "must be 1 to 100, or 0 for 100: %d", o.PageSize)
	}
	if err := validText(opSnapshots.name, nil, argument{"Name", o.Name}); err != nil {
		return q, err
	}
	q.Name, q.Limit, q.Token = o.Name, o.PageSize, o.PageToken
	return q, nil
}

// DeleteSnapshot deletes a snapshot: its ID or name, of which a :tag does not
// count. All that was made under the name goes, with every tag. Sandboxes made
// from it must be gone first, running or paused.
//
// Unlike a sandbox, a snapshot does not end by itself, so one that does not exist
// is an error. E2B keeps snapshots as templates: the ID of a template of the
// key's own team deletes that.
//
// Errors: ErrInvalidArgument, ErrNotFound, ErrConflict (in use), ErrForbidden
// (another team's), ErrUnauthenticated.
//
// See https://e2b.dev/docs/sandbox/snapshots.
func (c *Client) DeleteSnapshot(ctx context.Context, id string) error {
	if err := checkSnapshotID(id); err != nil {
		return err
	}
	err := c.api.DeleteSnapshot(ctx, id)
	return controlError(ctx, opDeleteSnapshot, "", err)
}

// checkSnapshotID accepts [team/]name[:tag]. Whatever a server or a proxy makes of
// %2F, the path must stay one to a template.
func checkSnapshotID(id string) error {
	const arg = "snapshot ID"
	bad := func(r rune) bool {
		return r != '-' && r != '_' && r != '.' && r != '/' && r != ':' &&
			(r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}
	if id == "" || len(id) > 255 || strings.ContainsFunc(id, bad) {
		return invalid(opDeleteSnapshot.name, arg, "must be 1 to 255 letters, digits, -, _, ., / or :, as team/name:tag: %.80q", id)
	}
	ref, tag, tagged := strings.Cut(id, ":")
	parts := strings.Split(ref, "/")
	if tagged {
		parts = append(parts, tag)
	}
	for _, part := range parts {
		if part == "" || strings.Trim(part, ".") == "" || strings.Contains(part, ":") {
			return invalid(opDeleteSnapshot.name, arg, "is not of the form team/name:tag: %.80q", id)
		}
	}
	if strings.Contains(tag, "/") || strings.Count(ref, "/") > 1 {
		return invalid(opDeleteSnapshot.name, arg, "is not of the form team/name:tag: %.80q", id)
	}
	return nil
}
