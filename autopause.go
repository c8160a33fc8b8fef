package e2b

import (
	"context"
	"time"
)

// BetaCreateOptions describes a sandbox to create. The fields are those of
// CreateOptions with the same names.
type BetaCreateOptions struct {
	Template string
	Timeout  time.Duration // 0 means ClientOptions.SandboxTimeout
	// AutoPause lets the sandbox pause itself, with files and memory, at the end
	// of its lifetime, instead of being killed. It stays so after every Connect.
	AutoPause            bool
	Metadata, Env        map[string]string
	Insecure, NoInternet bool
}

// BetaCreate is Create under the name that E2B's tutorials use for a sandbox
// that pauses itself: AutoPause is OnTimeout: TimeoutPause.
//
// Errors: as Create.
//
// See https://e2b.dev/docs/sandbox/persistence.
func (c *Client) BetaCreate(ctx context.Context, opts *BetaCreateOptions) (*Sandbox, error) {
	if opts == nil {
		return c.Create(ctx, nil)
	}
	o := &CreateOptions{
		Template: opts.Template, Timeout: opts.Timeout, Metadata: opts.Metadata, Env: opts.Env,
		Insecure: opts.Insecure, NoInternet: opts.NoInternet,
	}
	if opts.AutoPause {
		o.OnTimeout = TimeoutPause
	}
	return c.Create(ctx, o)
}
