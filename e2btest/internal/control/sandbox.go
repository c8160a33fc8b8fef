package control

import (
	"maps"
	"time"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/proxy"
)

// settings are what a sandbox keeps across pause and resume. They are not
// changed once shared; a change makes a copy.
type settings struct {
	id       string
	team     *Team
	template *Template
	base     string // the template that it came from in the end, which says what its machine has
	envd     string // the version, which stays when templates get another one
	env      map[string]string
	machine  node.Sandbox

	metadata        map[string]string // nil: none was given
	timeout         time.Duration     // of the create request
	autoPause       bool
	autoPauseMemory bool
	autoResume      bool
	secure          bool
	allowInternet   *bool
	network         *network
	volumes         []volumeMount
}

// private reports whether traffic needs a token.
func (c *settings) private() bool {
	return c.network != nil && c.network.AllowPublicTraffic != nil && !*c.network.AllowPublicTraffic
}

// envWith returns the sandbox-wide variables with others added.
func (c *settings) envWith(more map[string]string) map[string]string {
	env := make(map[string]string, len(c.env)+len(more))
	maps.Copy(env, c.env)
	maps.Copy(env, more)
	return env
}

// A sandbox is a live one.
type sandbox struct {
	*settings
	state      State
	startedAt  time.Time
	endAt      time.Time
	run        *proxy.Run
	transition *transition // nil while running
}

// A transition is a change of state under way.
type transition struct {
	done chan struct{}
	err  error // once done
}

// A snapshot is a paused sandbox, or what a running one was when it was paused
// last.
type snapshot struct {
	*settings
	startedAt time.Time // of the run that was paused
	pausedAt  time.Time
	memory    bool // false: files alone
}

// A start is a snapshot on its way to be a live sandbox. All who ask for the
// sandbox meanwhile wait for the one start.
type start struct {
	*settings // with which it begins to run
	done      chan struct{}
	err       *Error // once done
}

// phaseLocked is what the sandbox is to an operation of team.
func (s *Server) phaseLocked(team *Team, id string) phase {
	if sb := s.live[id]; sb != nil {
		if sb.team != team {
			return unknown
		}
		return phaseOf(sb.state)
	}
	return s.storedPhaseLocked(team, id)
}

// storedPhaseLocked goes by the snapshot alone.
func (s *Server) storedPhaseLocked(team *Team, id string) phase {
	snap := s.stored[id]
	switch {
	case snap == nil || snap.team != team:
		return unknown
	case s.starts[id] != nil:
		return resuming
	}
	return paused
}

// beginLocked moves sb into a transition. work runs in a goroutine of its own,
// without the lock; finish then runs with it. The caller has seen in the tables
// that the state allows the transition.
func (s *Server) beginLocked(sb *sandbox, to State, work func() error, finish func(error)) *transition {
	t := &transition{done: make(chan struct{})}
	sb.state, sb.transition = to, t
	s.goLocked(func() {
		err := work()
		s.mu.Lock()
		if err == nil || s.ctx.Err() == nil {
			finish(err)
		} // else it stays what it is: the server is being closed
		s.mu.Unlock()
		s.saveChanges()
		t.err = err
		close(t.done)
	})
	return t
}

// addLocked makes a machine that runs a live sandbox.
func (s *Server) addLocked(c *settings, timeout time.Duration) {
	now := s.clock.Now()
	sb := &sandbox{settings: c, startedAt: now, endAt: now.Add(timeout), run: proxy.NewRun(c.machine)}
	s.live[c.id] = sb
	what := created
	if s.histories[c.id] != nil {
		what = resumed
	}
	s.noteLocked(c, now, what)
	s.histories[c.id].gauge.restart(what == created)
	s.wakeEvictor()
}

// pauseLocked begins to pause a running sandbox.
func (s *Server) pauseLocked(sb *sandbox, keepMemory bool) *transition {
	now := s.clock.Now()
	sb.endAt = now
	readable := readableLocked(sb)
	return s.beginLocked(sb, Pausing, func() error {
		s.measureOne(readable)
		if !keepMemory {
			// Its processes are about to end, which no stream may report as their own end.
			sb.run.End()
		}
		err := s.step(s.ctx, node.StepPause, sb.id, func() error { return sb.machine.Pause(s.ctx, keepMemory) })
		sb.run.End()
		if err != nil {
			s.lose(sb, "pause", err)
		}
		return err
	}, func(err error) {
		delete(s.live, sb.id)
		if err != nil {
			delete(s.stored, sb.id)
			return
		}
		s.noteLocked(sb.settings, now, stopped)
		s.storeLocked(sb, now, keepMemory)
	})
}

// storeLocked keeps what a sandbox is when it is paused.
func (s *Server) storeLocked(sb *sandbox, now time.Time, memory bool) {
	c := *sb.settings
	if c.metadata == nil {
		c.metadata = map[string]string{} // so the real server shows it from now on
	}
	s.stored[sb.id] = &snapshot{settings: &c, startedAt: sb.startedAt, pausedAt: now, memory: memory}
}

// lose ends the machine of a sandbox in transition whose node failed at what.
func (s *Server) lose(sb *sandbox, what string, err error) {
	if s.ctx.Err() != nil {
		return // the server is being closed, which may be why, and its node ends it
	}
	s.log.ErrorContext(s.ctx, "sandbox is lost: its "+what+" failed", "sandbox", sb.id, "error", err)
	s.mu.Lock()
	sb.state = Killing
	s.noteLocked(sb.settings, s.clock.Now(), ended)
	s.mu.Unlock()
	sb.run.End()
	_ = s.destroy(sb.settings) // which logs its error
}

// killLocked begins to kill a running sandbox, with its snapshot.
func (s *Server) killLocked(sb *sandbox) *transition {
	return s.beginLocked(sb, Killing, func() error {
		sb.run.End()
		return s.destroy(sb.settings)
	}, func(error) {
		s.noteLocked(sb.settings, s.clock.Now(), ended)
		delete(s.live, sb.id)
		delete(s.stored, sb.id)
	})
}

// expireLocked begins what the end of its time does to a running sandbox.
func (s *Server) expireLocked(sb *sandbox) {
	snap := s.stored[sb.id]
	switch {
	case sb.autoPause:
		s.pauseLocked(sb, sb.autoPauseMemory)
	case snap == nil:
		s.killLocked(sb)
	default:
		// E2B kills the machine but keeps the snapshot, so the sandbox is paused
		// again in its older state. A node keeps no older states; here it is paused in
		// the newest one.
		s.beginLocked(sb, Killing, func() error {
			sb.run.End()
			err := sb.machine.Pause(s.ctx, snap.memory)
			if err != nil && s.ctx.Err() == nil {
				s.log.ErrorContext(s.ctx, "sandbox is lost: it could not be put aside", "sandbox", sb.id, "error", err)
				_ = s.destroy(sb.settings) // which logs its error
			}
			return err
		}, func(err error) {
			s.noteLocked(sb.settings, s.clock.Now(), ended)
			delete(s.live, sb.id)
			if err != nil {
				delete(s.stored, sb.id)
			}
		})
	}
}

// destroy ends a machine, and logs where that fails.
func (s *Server) destroy(c *settings) error {
	err := c.machine.Kill()
	if err != nil {
		s.log.ErrorContext(s.ctx, "killing a sandbox failed", "sandbox", c.id, "error", err)
	}
	return err
}

// resumeOptions are what a request may say of the start of a snapshot.
type resumeOptions struct {
	timeout   time.Duration
	reboot    bool
	autoPause *bool
}

// startLocked begins to resume a snapshot. It fails at once when the quota is
// used up.
func (s *Server) startLocked(snap *snapshot, opts resumeOptions) (*start, *Error) {
	if s.closed {
		return nil, errClosed
	}
	if s.usedLocked(snap.team) >= snap.team.MaxSandboxes {
		return nil, snap.team.quotaError()
	}
	c := snap.settings
	if opts.autoPause != nil {
		changed := *c
		changed.autoPause = *opts.autoPause
		c = &changed
	}
	st := &start{settings: c, done: make(chan struct{})}
	s.starts[c.id] = st
	s.goLocked(func() {
		err := s.step(s.ctx, node.StepResume, c.id, func() error {
			return c.machine.Resume(s.ctx, opts.reboot || !snap.memory)
		})
		s.mu.Lock()
		delete(s.starts, c.id)
		// A kill during the start took the snapshot away. The sandbox runs all the
		// same once it has started, as on E2B, but a failed start leaves nothing.
		orphan := false
		switch {
		case err == nil && !s.closed:
			s.addLocked(c, opts.timeout)
		default:
			st.err = placementError(err)
			orphan = s.stored[c.id] == nil
		}
		s.mu.Unlock()
		s.saveChanges()
		if err != nil {
			s.log.ErrorContext(s.ctx, "resuming a sandbox failed", "sandbox", c.id, "error", err)
		}
		if orphan {
			_ = s.destroy(c) // which logs its error
		}
		close(st.done)
	})
	return st, nil
}
