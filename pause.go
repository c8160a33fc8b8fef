package e2b

import (
	"context"

	"github.com/seed-09a7379d/e2b-go/internal/controlapi"
)

// PauseOptions says how to pause a sandbox.
type PauseOptions struct {
	// DropMemory keeps the files alone: processes end, and a resume boots the
	// sandbox. Run sync in it first, or writes that were not flushed may be lost.
	// If a pause is under way already, its kind counts.
	DropMemory bool
}

var opPause = operation{name: "pause", notFound: ErrSandboxNotFound}

// Pause stops a sandbox and keeps its files and memory, until it is connected to
// or killed. A paused sandbox costs nothing. It returns true when this call
// paused it, or joined a pause under way, and false when it was paused already.
// Pausing takes about 4 s per GiB of memory.
//
// Connections into the sandbox break. ctx bounds the wait for the answer; a
// pause that has begun may go on after it.
//
// Errors: ErrInvalidArgument, ErrSandboxNotFound, ErrConflict,
// ErrUnauthenticated, ErrForbidden (the team is blocked), ErrRateLimited. After
// another failure ask Info: when the server itself failed at the pause, the
// sandbox is gone.
//
// See https://e2b.dev/docs/sandbox/persistence.
func (c *Client) Pause(ctx context.Context, id string, opts *PauseOptions) (bool, error) {
	id, err := sandboxID(opPause.name, id)
	if err != nil {
		return false, err
	}
	var body controlapi.PauseSandbox
	if opts != nil && opts.DropMemory {
		body.Memory = new(bool)
	}
	paused, err := c.api.Pause(ctx, id, body)
	return paused, controlError(ctx, opPause, id, err)
}

// Pause is Client.Pause for this sandbox, with the same errors. The handle's own
// streams end first, with ErrSandboxNotRunning; the commands behind them are paused
// with the rest and go on after Connect, where Commands.List finds them.
//
// See https://e2b.dev/docs/sandbox/persistence.
func (s *Sandbox) Pause(ctx context.Context, opts *PauseOptions) (bool, error) {
	if ctx.Err() == nil {
		s.cut()
	}
	return s.client.Pause(ctx, s.id, opts)
}

// BetaPause is Pause with files and memory kept, under the name that E2B's
// tutorials use.
//
// Errors: as Pause.
//
// See https://e2b.dev/docs/sandbox/persistence.
func (c *Client) BetaPause(ctx context.Context, id string) (bool, error) {
	return c.Pause(ctx, id, nil)
}

// BetaPause is Pause with files and memory kept, under the name that E2B's
// tutorials use.
//
// Errors: as Pause.
//
// See https://e2b.dev/docs/sandbox/persistence.
func (s *Sandbox) BetaPause(ctx context.Context) (bool, error) { return s.Pause(ctx, nil) }
