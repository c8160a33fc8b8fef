package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/proxy"
)

// refusal is the error of a rule.
func (r rule) refusal(id string) *Error {
	return fail(r.status, fmt.Sprintf(r.text, id))
}

// spec is what the machine of a sandbox is started with.
func (s *Server) spec(c *settings) node.Spec {
	return node.Spec{
		ID: c.id, Template: c.base, Env: c.env, AccessToken: s.view(c).EnvdAccessToken,
		EnvdVersion: c.envd, Volumes: c.mounts(),
	}
}

// create starts a new sandbox, from what b has kept if it is not nil.
func (s *Server) create(ctx context.Context, c *settings, b *build) *Error {
	c.id = newID()
	spec := s.spec(c)
	s.mu.Lock()
	switch {
	case s.closed:
		s.mu.Unlock()
		return errClosed
	case b != nil && b.gone: // since it was looked up
		s.mu.Unlock()
		return templateNotFound(c.template.ID)
	case s.usedLocked(c.team) >= c.team.MaxSandboxes:
		s.mu.Unlock()
		return c.team.quotaError()
	}
	s.creating[c.team]++
	if b != nil {
		b.starts++
		spec.Image = b.image
	}
	s.mu.Unlock()

	machine, err := s.boot(ctx, spec)

	s.mu.Lock()
	s.creating[c.team]--
	if b != nil {
		if b.starts--; b.gone {
			s.discardBuildLocked(b)
		}
	}
	closed := s.closed
	if err == nil && !closed {
		c.machine = machine
		s.addLocked(c, c.timeout)
	}
	s.mu.Unlock()
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return placementError(node.ErrTimeout)
	case err != nil:
		s.log.ErrorContext(ctx, "starting a sandbox failed", "sandbox", c.id, "error", err)
		return placementError(err)
	case closed:
		_ = machine.Kill() // the node is about to be closed anyway
		return errClosed
	}
	return nil
}

// boot starts a machine. One that comes too late is ended.
func (s *Server) boot(ctx context.Context, spec node.Spec) (machine node.Sandbox, err error) {
	err = s.step(ctx, node.StepStart, spec.ID, func() (err error) {
		machine, err = s.node.Start(ctx, spec)
		if err != nil {
			machine = nil
		}
		return err
	})
	if err != nil && machine != nil {
		_ = machine.Kill() // the other error is the one to tell
	}
	return machine, err
}

// placementError is what E2B says when its nodes do not start a sandbox.
func placementError(err error) *Error {
	const prefix = "Failed to place sandbox: "
	refused, isRefused := errors.AsType[*node.RefusedError](err)
	switch {
	case isRefused:
		return &Error{http.StatusInternalServerError, prefix + refused.Text, "sandbox_create_failed"}
	case errors.Is(err, node.ErrFull):
		return &Error{
			http.StatusServiceUnavailable,
			prefix + "not enough capacity for the requested resources right now, please retry shortly", "sandbox_capacity_unavailable",
		}
	case errors.Is(err, node.ErrIncompatible):
		return &Error{
			http.StatusServiceUnavailable,
			prefix + "no compatible node for this template's requirements", "sandbox_no_compatible_node",
		}
	case errors.Is(err, node.ErrTimeout):
		return &Error{
			http.StatusGatewayTimeout,
			prefix + "placement timed out after 1 attempt(s), please retry", "sandbox_placement_timeout",
		}
	}
	return &Error{
		http.StatusInternalServerError,
		prefix + "sandbox creation failed on 1 node(s), please retry; if the problem persists, contact us", "sandbox_create_failed",
	}
}

// maxTransitions is how many transitions connect waits for before it goes by the
// snapshot alone. Where there is one, it waits on: the machine that would start from it
// is the one in transition, which counts for the quota already and has a timeout.
const maxTransitions = 3

// connect makes sure that the sandbox runs. It reports whether it had to be
// resumed.
func (s *Server) connect(ctx context.Context, team *Team, id string, opts resumeOptions) (*settings, bool, *Error) {
	for round := 0; ; round++ {
		s.mu.Lock()
		r := rules[opConnect][s.phaseLocked(team, id)]
		if round >= maxTransitions && r.do == await && s.storedPhaseLocked(team, id) == unknown {
			r = rules[opConnect][unknown]
		}
		switch r.do {
		case onLive:
			sb := s.live[id]
			err := s.extendLocked(sb, opts.timeout)
			c := sb.settings
			s.mu.Unlock()
			return c, false, err
		case await:
			t := s.live[id].transition
			s.mu.Unlock()
			if err := waitForTransition(ctx, t); err != nil {
				return nil, false, err
			}
		case onStored, join:
			c, err := s.resumeAndUnlock(ctx, id, r.do, opts)
			return c, true, err
		default:
			s.mu.Unlock()
			return nil, false, r.refusal(id)
		}
	}
}

// resume is the deprecated twin of connect, which refuses a running sandbox.
func (s *Server) resume(ctx context.Context, team *Team, id string, opts resumeOptions) (*settings, *Error) {
	for {
		s.mu.Lock()
		r := rules[opResume][s.phaseLocked(team, id)]
		switch r.do {
		case await:
			t := s.live[id].transition
			s.mu.Unlock()
			if err := waitForTransition(ctx, t); err != nil {
				return nil, err
			}
		case onStored, join:
			return s.resumeAndUnlock(ctx, id, r.do, opts)
		default:
			s.mu.Unlock()
			return nil, r.refusal(id)
		}
	}
}

// waitForTransition is for those who want the sandbox afterwards.
func waitForTransition(ctx context.Context, t *transition) *Error {
	if err := waitFor(ctx, t.done); err != nil {
		return err
	}
	if t.err != nil {
		return fail(http.StatusInternalServerError, "Error waiting for sandbox state change")
	}
	return nil
}

// resumeAndUnlock starts the snapshot, or joins the start under way, whose own
// options stand then, and waits for it. It unlocks s.mu.
func (s *Server) resumeAndUnlock(ctx context.Context, id string, do action, opts resumeOptions) (*settings, *Error) {
	snap := s.stored[id]
	st := s.starts[id]
	var err *Error
	switch {
	case opts.reboot && snap.memory && snap.team.NoReboot:
		err = &Error{
			Status: http.StatusBadRequest, Code: "sandbox_memory_override_disabled",
			Message: "Resuming without memory (memory: false) is not enabled for this team; a plain resume still restores memory",
		}
	case do == onStored:
		st, err = s.startLocked(snap, opts)
	case opts.reboot:
		err = &Error{
			Status: http.StatusConflict, Code: "sandbox_start_in_flight",
			Message: fmt.Sprintf("Sandbox '%s' is already being started", id),
		}
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := waitFor(ctx, st.done); err != nil {
		return nil, err
	}
	if st.err != nil {
		return nil, st.err
	}
	return st.settings, nil
}

// pause pauses the sandbox, or joins the pause under way, whose kind stands then.
func (s *Server) pause(ctx context.Context, team *Team, id string, keepMemory bool) *Error {
	for {
		s.mu.Lock()
		r := rules[opPause][s.phaseLocked(team, id)]
		if r.do == skipLive {
			r = rules[opPause][s.storedPhaseLocked(team, id)]
		}
		var t *transition
		switch r.do {
		case onLive:
			if s.closed {
				s.mu.Unlock()
				return errClosed
			}
			t = s.pauseLocked(s.live[id], keepMemory)
		case join, await:
			t = s.live[id].transition
		default:
			s.mu.Unlock()
			return r.refusal(id)
		}
		s.mu.Unlock()
		if err := waitFor(ctx, t.done); err != nil {
			return err
		}
		switch {
		case r.do == await:
		case t.err != nil:
			return fail(http.StatusInternalServerError, "Error pausing sandbox")
		default:
			return nil
		}
	}
}

// kill ends the sandbox and deletes its snapshot.
func (s *Server) kill(ctx context.Context, team *Team, id string) *Error {
	joined := false
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return errClosed
		}
		r := rules[opKill][s.phaseLocked(team, id)]
		var done <-chan struct{}
		var failed func() error
		switch r.do {
		case onLive:
			t := s.killLocked(s.live[id])
			done, failed = t.done, func() error { return t.err }
		case join, await:
			done = s.live[id].transition.done
		case onStored:
			done, failed = s.discardLocked(id)
		default:
			s.mu.Unlock()
			if joined {
				return nil // the kill that this one joined left nothing to do
			}
			return r.refusal(id)
		}
		s.mu.Unlock()
		if err := waitFor(ctx, done); err != nil {
			return err
		}
		if failed != nil {
			if err := failed(); err != nil {
				return fail(http.StatusInternalServerError, "Error killing sandbox: "+err.Error())
			}
			return nil
		}
		joined = joined || r.do == join
	}
}

// discardLocked deletes a snapshot. A start of it goes on, and its sandbox then
// runs, as on E2B.
func (s *Server) discardLocked(id string) (<-chan struct{}, func() error) {
	snap := s.stored[id]
	delete(s.stored, id)
	s.noteLocked(snap.settings, s.clock.Now(), ended)
	done := make(chan struct{})
	if s.starts[id] != nil {
		close(done)
		return done, func() error { return nil }
	}
	var err error
	s.goLocked(func() {
		err = s.destroy(snap.settings)
		close(done)
	})
	return done, func() error { return err }
}

// setTimeout makes the sandbox end after d from now, or where that is later than
// it would.
func (s *Server) setTimeout(team *Team, id string, d time.Duration, onlyExtend bool) *Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := rules[opSetTimeout][s.phaseLocked(team, id)]
	if r.do != onLive {
		return r.refusal(id)
	}
	sb := s.live[id]
	if onlyExtend {
		return s.extendLocked(sb, d)
	}
	end, err := s.endLocked(sb, d)
	if err != nil {
		return err
	}
	sb.endAt = end
	s.expireDueLocked() // zero means now, not when the evictor comes to it
	s.wakeEvictor()
	return nil
}

// extendLocked lets the sandbox live for d from now if it would end earlier.
func (s *Server) extendLocked(sb *sandbox, d time.Duration) *Error {
	end, err := s.endLocked(sb, d)
	if err != nil {
		return err
	}
	if end.After(sb.endAt) {
		sb.endAt = end
	}
	return nil
}

// endLocked is the end of a life of d from now, within the limit of the run.
func (s *Server) endLocked(sb *sandbox, d time.Duration) (time.Time, *Error) {
	now, limit := s.clock.Now(), sb.startedAt.Add(sb.team.MaxLength)
	if now.After(limit) {
		return time.Time{}, fail(http.StatusBadRequest, "Max instance length exceeded")
	}
	if end := now.Add(d); end.Before(limit) {
		return end, nil
	}
	return limit, nil
}

const (
	minTrafficTimeout = 5 * time.Minute  // of a sandbox that traffic has woken
	maxTrafficWait    = 60 * time.Second // of traffic for a pause
)

// Route finds the sandbox for a request from outside, and wakes a paused one
// that was created for that.
func (s *Server) Route(ctx context.Context, t proxy.Traffic) (proxy.Target, error) {
	for {
		s.mu.Lock()
		team := s.ownerLocked(t.SandboxID)
		snap := s.stored[t.SandboxID]
		r := rules[opTraffic][s.phaseLocked(team, t.SandboxID)]
		switch r.do {
		case onLive:
			target := s.targetLocked(s.live[t.SandboxID])
			s.mu.Unlock()
			return target, nil
		case refuse:
			s.mu.Unlock()
			return proxy.Target{}, proxy.ErrNotFound
		}
		// A first pause has no snapshot yet that says whether traffic may wake it.
		if snap == nil || !snap.autoResume || !snap.memory {
			s.mu.Unlock()
			return proxy.Target{}, proxy.ErrNotFound
		}
		if !s.mayWake(snap.settings, t) {
			s.mu.Unlock()
			return proxy.Target{}, proxy.ErrDenied
		}
		if r.do == await {
			done := s.live[t.SandboxID].transition.done
			s.mu.Unlock()
			if !waitAtMost(ctx, done, maxTrafficWait) {
				return proxy.Target{}, proxy.ErrNotFound
			}
			continue
		}
		st := s.starts[t.SandboxID]
		if r.do == onStored {
			var err *Error
			st, err = s.startLocked(snap, resumeOptions{timeout: min(max(snap.timeout, minTrafficTimeout), snap.team.MaxLength)})
			if err != nil {
				s.mu.Unlock()
				if err.Status == http.StatusTooManyRequests {
					return proxy.Target{}, &proxy.QuotaError{Message: err.Message}
				}
				return proxy.Target{}, proxy.ErrNotFound
			}
		}
		s.mu.Unlock()
		if waitFor(ctx, st.done) != nil || st.err != nil {
			return proxy.Target{}, proxy.ErrNotFound
		}
	}
}

// ownerLocked returns nil for an unknown sandbox.
func (s *Server) ownerLocked(id string) *Team {
	if sb := s.live[id]; sb != nil {
		return sb.team
	}
	if snap := s.stored[id]; snap != nil {
		return snap.team
	}
	return nil
}

func (s *Server) targetLocked(sb *sandbox) proxy.Target {
	target := proxy.Target{Run: sb.run, MaxRequests: s.perRun, Clock: s.clock.ahead()}
	if sb.private() {
		target.TrafficToken = s.token("traffic", sb.id)
	}
	if sb.network != nil {
		target.MaskHost = sb.network.MaskRequestHost
	}
	return target
}

// mayWake reports whether a request shows what it must to spend the team's money.
func (s *Server) mayWake(c *settings, t proxy.Traffic) bool {
	switch {
	case c.team.Banned || c.team.Blocked != "":
		return false
	case t.Port == node.EnvdPort:
		return !c.secure || t.AccessToken == s.token("envd", c.id)
	}
	return !c.private() || t.TrafficToken == s.token("traffic", c.id)
}

// waitAtMost reports whether done was closed in time.
func waitAtMost(ctx context.Context, done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}
