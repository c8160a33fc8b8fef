package e2b

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/controlapi"
)

// ConnectOptions says how to connect to a sandbox.
type ConnectOptions struct {
	// Timeout is the lifetime from now. Of a running sandbox it only ever extends
	// the lifetime: a shorter one changes nothing (SetTimeout shortens). A paused
	// one gets it when it resumes, unless another Connect is resuming it already,
	// whose lifetime counts then. 0 means ClientOptions.SandboxTimeout, and for
	// Sandbox.Connect the lifetime that the handle was made with. One beyond the account's
	// limit is ErrInvalidArgument.
	Timeout time.Duration
	// OnResume says how a paused sandbox resumes.
	OnResume OnResume
}

// OnResume says how a paused sandbox resumes. It does nothing to a running one.
type OnResume struct {
	// Reboot starts the sandbox from its disk and drops the memory that was kept:
	// no process survives, and writes that were not flushed may be lost. A server
	// older than August 2026 ignores it silently.
	Reboot bool
}

var opConnect = operation{name: "connect", notFound: ErrSandboxNotFound}

// Connect returns a handle for a sandbox that exists, and resumes it first if it
// is paused: files, memory and processes are as they were. After a pause that
// kept the files alone, and with OnResume.Reboot, it boots instead, which the
// answer does not tell. Sandbox.Resumed tells whether it had to resume. While the
// sandbox is being paused, Connect waits for that and then resumes it. It never
// creates a sandbox.
//
// ctx bounds everything. opts may be nil.
//
// Errors: ErrInvalidArgument, ErrSandboxNotFound, ErrConflict (it is being
// killed), ErrQuotaExceeded, ErrRateLimited, ErrServiceBusy (it is as it was:
// try again), ErrUnauthenticated, ErrForbidden (the team is blocked).
//
// See https://e2b.dev/docs/sandbox/connect.
func (c *Client) Connect(ctx context.Context, sandboxID string, opts *ConnectOptions) (*Sandbox, error) {
	h, id, err := c.connect(ctx, sandboxID, opts, c.lifetime)
	if err != nil {
		return nil, err
	}
	s := &Sandbox{client: c, id: id}
	s.init(h)
	return s, nil
}

// Connect does what Client.Connect does and renews this handle in place, for
// all who use it: tokens, domain and version are the new ones afterwards.
//
// Errors: as Client.Connect.
//
// See https://e2b.dev/docs/sandbox/connect.
func (s *Sandbox) Connect(ctx context.Context, opts *ConnectOptions) error {
	old := s.state.Load()
	h, _, err := s.client.connect(ctx, s.id, opts, old.lifetime)
	if err != nil {
		return err
	}
	s.renew(h)
	return nil
}

func (c *Client) connect(ctx context.Context, arg string, opts *ConnectOptions, lifetime time.Duration) (*handle, string, error) {
	id, err := sandboxID(opConnect.name, arg)
	if err != nil {
		return nil, "", err
	}
	var body controlapi.ConnectSandbox
	if opts != nil {
		if opts.Timeout < 0 {
			return nil, "", invalid(opConnect.name, "Timeout", "is negative")
		}
		if opts.Timeout > 0 {
			lifetime = opts.Timeout
		}
		if opts.OnResume.Reboot {
			body.Memory = new(bool)
		}
	}
	a, resumed, err := c.api.Connect(ctx, id, body, lifetime)
	if err != nil {
		return nil, "", controlError(ctx, opConnect, id, err)
	}
	switch {
	case a.SandboxID == "" && a.EnvdVersion != "":
		a.SandboxID = id // compatible servers leave out what was asked with
	case a.SandboxID != "" && a.SandboxID != id:
		// Its tokens are not for the sandbox that was asked for.
		err = fmt.Errorf("the answer is about another sandbox: %.80q", a.SandboxID)
		return nil, "", controlError(ctx, opConnect, id, err)
	}
	h, err := c.handleOf(a, lifetime, resumed)
	if err != nil {
		return nil, "", controlError(ctx, opConnect, id, err)
	}
	return h, id, nil
}
