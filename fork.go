package e2b

import (
	"context"
	"errors"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/controlapi"
)

// maxForks is the most that the server makes at a time.
const maxForks = 100

// ForkOptions says how to fork a sandbox. The zero value makes one fork.
//
// See https://e2b.dev/docs/sandbox/snapshots.
type ForkOptions struct {
	// Count is how many forks to make: 1 to 100, and fewer than the account may
	// have running; 0 means 1.
	Count int
	// Timeout is the lifetime of the forks. 0 means ClientOptions.SandboxTimeout,
	// and for Sandbox.Fork the lifetime that the handle was made with. Whole seconds
	// go out, rounded up. The sandbox's own lifetime does not change.
	Timeout time.Duration
}

// ForkResult is what became of one fork: a sandbox or an error.
//
// See https://e2b.dev/docs/sandbox/snapshots.
type ForkResult struct {
	Sandbox *Sandbox // nil if it failed
	Err     error    // why it failed; nil if it did not
}

var opFork = operation{name: "fork", notFound: ErrSandboxNotFound, creates: "sandboxes"}

// Fork starts copies of a running sandbox, with its files, memory and processes,
// its metadata, network and environment. Each has an ID and tokens of its own.
// The sandbox itself stands still meanwhile and then goes on, with the same ID
// and the same lifetime: streams into it stall and are not cut. opts may be nil.
//
// Each fork succeeds or fails for itself. The results are as many as were asked
// for, in no order; each has either a handle that is ready to use or an error: one
// of the kinds of Create, such as ErrQuotaExceeded, with the server's text in an
// *APIError, or ErrOutcomeUnknown where the answer is not clear. That all have
// failed is no error of Fork.
//
// ctx bounds the wait for the answer. A fork whose answer was lost is not
// repeated: the error then is an *OutcomeUnknownError. What there may be has the
// sandbox's metadata, by which List finds it.
//
// Errors: ErrInvalidArgument (also for a count that the account's number of
// running sandboxes does not allow), ErrSandboxNotFound, ErrSandboxNotRunning (it
// is paused; APIError.State says so), ErrConflict (it is being paused, killed,
// snapshotted or forked), ErrServiceBusy, ErrOutcomeUnknown, ErrNotSupported,
// ErrUnauthenticated, ErrForbidden (the team is blocked), ErrRateLimited. After
// another failure ask Info: when the server itself failed at it, the sandbox is
// gone.
//
// See https://e2b.dev/docs/sandbox/snapshots.
func (c *Client) Fork(ctx context.Context, sandbox string, opts *ForkOptions) ([]ForkResult, error) {
	return c.fork(ctx, sandbox, opts, c.lifetime)
}

// Fork is Client.Fork for this sandbox, with the same errors.
//
// See https://e2b.dev/docs/sandbox/snapshots.
func (s *Sandbox) Fork(ctx context.Context, opts *ForkOptions) ([]ForkResult, error) {
	return s.client.fork(ctx, s.id, opts, s.state.Load().lifetime)
}

func (c *Client) fork(ctx context.Context, arg string, opts *ForkOptions, lifetime time.Duration) ([]ForkResult, error) {
	id, err := sandboxID(opFork.name, arg)
	if err != nil {
		return nil, err
	}
	var o ForkOptions
	if opts != nil {
		o = *opts
	}
	switch {
	case o.Count < 0 || o.Count > maxForks:
		return nil, invalid(opFork.name, "Count", "must be 1 to %d, or 0 for 1: %d", maxForks, o.Count)
	case o.Timeout < 0:
		return nil, invalid(opFork.name, "Timeout", "is negative")
	case o.Timeout > 0:
		lifetime = o.Timeout
	}
	answers, err := c.api.Fork(ctx, id, o.Count, lifetime)
	if err != nil {
		err = c.pausedOrGone(ctx, controlError(ctx, opFork, id, err), id)
		if api, ok := errors.AsType[*APIError](err); ok && errors.Is(err, ErrSandboxNotRunning) {
			api.State = StatePaused // the answer says so, or Info
		}
		return nil, err
	}
	results := make([]ForkResult, len(answers))
	for i, a := range answers {
		results[i] = c.forkResult(ctx, id, a, lifetime)
	}
	return results, nil
}

func (c *Client) forkResult(ctx context.Context, id string, r controlapi.ForkResult, lifetime time.Duration) ForkResult {
	err := r.Err
	if err == nil {
		var h *handle
		h, err = c.handleOf(r.Sandbox, lifetime, false)
		if err == nil && r.Sandbox.SandboxID == id {
			err = errors.New("the answer names the sandbox itself")
		}
		if err == nil {
			s := &Sandbox{client: c, id: r.Sandbox.SandboxID}
			s.init(h)
			return ForkResult{Sandbox: s}
		}
		err = &controlapi.OutcomeError{Attempts: 1, Ambiguous: true, Err: err}
	}
	return ForkResult{Err: controlError(ctx, opFork, id, err)}
}
