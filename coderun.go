package e2b

import (
	"context"
	"errors"
	"slices"

	"github.com/seed-09a7379d/e2b-go/internal/interpreter"
	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// A codeRun is code that runs, and has its context for itself.
type codeRun struct {
	s       *Sandbox
	op      operation
	ctx     context.Context // bounds the execution
	cancels []func()        // release ctx
	gates   []*contextGate
	x       *interpreter.Execution
	r       *codeReader

	finished bool
}

// beginCode starts code. ctx is the caller's, and base what the execution then
// lives on; they may be the same. The caller must close what it returns.
func (s *Sandbox) beginCode(ctx, base context.Context, op operation, code string, opts *CodeOptions) (*codeRun, error) {
	var o CodeOptions
	if opts != nil {
		o = *opts
	}
	if err := o.check(op.name, code); err != nil {
		return nil, err
	}
	if o.Context == "" {
		o.Language = normalLanguage(o.Language)
	}
	streams := s.gate.Load().ctx
	bound, release := s.bound(base, 0)
	c := &codeRun{s: s, op: op, cancels: []func(){release}, r: newCodeReader(&o)}
	if err := c.begin(ctx, bound, streams, code, &o); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// begin waits for the turn and starts the code. bound becomes c.ctx, and streams
// ends with all that was begun under the handle's gate.
func (c *codeRun) begin(ctx, bound, streams context.Context, code string, o *CodeOptions) error {
	s := c.s
	fail := func(err error) error { return s.dataError(ctx, c.op, ended(ctx, bound, err), false) }
	limit := s.client.openLimit(ctx)
	client := s.state.Load().code
	keys := []gateKey{{sandbox: s.id, language: o.Language}}
	if o.Context != "" {
		known, err := s.knownContext(ctx, c.op, o.Context)
		if err != nil {
			return err
		}
		o.Language = known.language
		keys = known.keys(s.id, o.Context)
	}
	env, err := o.pasteEnv(c.op.name)
	if err != nil {
		return err
	}
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		bound, cancel = context.WithTimeoutCause(bound, o.Timeout, ErrCommandTimeout)
		c.cancels = append(c.cancels, cancel)
	}
	gates := &s.client.contexts
	for _, key := range keys {
		gate, err := gates.enter(bound, key)
		if err != nil {
			return fail(err)
		}
		c.gates = append(c.gates, gate)
	}
	if streams.Err() != nil {
		// The one before was cut off, and so are those who waited for it; bound may
		// not have learned of it yet.
		return s.dataError(ctx, c.op, context.Cause(streams), false)
	}
	for _, gate := range c.gates {
		if err := gate.settle(bound, client, limit); err != nil {
			return fail(err)
		}
	}
	c.ctx = bound
	send := keys[len(keys)-1].address()
	send.Code, send.Env = code, env
	if c.x, err = client.Execute(bound, limit, send); err != nil {
		if _, answered := errors.AsType[*transport.StatusError](err); !answered && lost(err) {
			c.doubt(interrupted)
		}
		return fail(err)
	}
	return nil
}

// finish returns what the run left. err is why the reading ended before the
// execution did; nil if it did not.
func (c *codeRun) finish(ctx context.Context, err error) (*Execution, error) {
	c.finished = true
	switch {
	case errors.Is(err, errNotTaken):
		c.doubt(interrupted)
		return nil, &opError{op: c.op.name, sandboxID: c.s.id, errs: []error{ErrInterpreter, errNotTaken}}
	case err != nil:
		c.doubt(interrupted)
		return c.r.execution(), c.s.dataError(ctx, c.op, ended(ctx, c.ctx, err), true)
	case c.r.infra != nil:
		c.doubt(restarted)
		e := &opError{op: c.op.name, sandboxID: c.s.id, detail: c.r.infra.Error(), errs: []error{ErrInterpreter}}
		return c.r.execution(), e
	}
	return c.r.execution(), nil
}

// over returns what has ended the execution from outside, if something has.
func (c *codeRun) over() error {
	if c.ctx.Err() == nil {
		return nil
	}
	return context.Cause(c.ctx)
}

func (c *codeRun) doubt(d doubt) {
	for _, gate := range c.gates {
		gate.doubt(d)
	}
}

// close ends the run, and lets the next into its context.
func (c *codeRun) close() {
	if c.x != nil {
		if !c.finished { // a writer of the caller's has panicked
			c.doubt(interrupted)
		}
		_ = c.x.Close()
	}
	for _, cancel := range slices.Backward(c.cancels) {
		cancel()
	}
	for _, gate := range c.gates {
		c.s.client.contexts.leave(gate)
	}
}
