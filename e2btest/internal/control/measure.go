package control

import (
	"errors"
	"slices"
	"time"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// A sample is what a sandbox used at a time.
type sample struct {
	at                  time.Time
	cpuPct              float64 // of all its processors
	memory, cache, disk int64   // bytes
}

// A gauge keeps what was measured of a sandbox.
type gauge struct {
	samples []sample // oldest first
	thinned int      // how many samples there were after the old ones became fewer

	// Where the time of the processors is counted from. Without since it is counted
	// from the next measurement on.
	since time.Time // real
	cpu   time.Duration
	pct   float64 // that was found last
}

const (
	// minWindow is the least time over which the use of processors tells something:
	// systems count it in steps of 10 ms.
	minWindow = 100 * time.Millisecond
	// maxAdded is how many samples are added before the old ones become fewer.
	maxAdded = 1000
)

// restart begins the measurement of a run: in a fresh sandbox, or in one whose
// processes may have used some time already.
func (g *gauge) restart(fresh bool) {
	g.since, g.cpu, g.pct = time.Time{}, 0, 0
	if fresh {
		g.since = time.Now()
	}
}

// due reports whether there is no sample yet for the newest point of the run that
// began at start. There is one at most, so that points do not change once they are
// shown.
func (g *gauge) due(start, now time.Time) bool {
	if len(g.samples) == 0 {
		return true
	}
	last := g.samples[len(g.samples)-1].at
	return last.Before(start) || now.Sub(start)/minStep > last.Sub(start)/minStep
}

func (g *gauge) add(at time.Time, u node.Usage) {
	now := time.Now()
	switch window := now.Sub(g.since); {
	case g.since.IsZero():
		g.since, g.cpu = now, u.CPU
	case window >= minWindow:
		g.pct = min(100, 100*(u.CPU-g.cpu).Seconds()/window.Seconds()/cpuCount)
		g.since, g.cpu = now, u.CPU
	}
	g.samples = append(g.samples, sample{at: at, cpuPct: g.pct, memory: u.Memory, cache: u.Cache, disk: u.Disk})
	if len(g.samples) >= g.thinned+maxAdded {
		g.samples = thin(g.samples, at)
		g.thinned = len(g.samples)
	}
}

// thin keeps as many samples as points that span the time since then, which is some
// thousands in a week.
func thin(samples []sample, now time.Time) []sample {
	var kept []sample
	for _, s := range samples {
		age := now.Sub(s.at)
		if age > retention {
			continue
		}
		if n := len(kept); n > 0 {
			step := stepOf(age)
			if s.at.Truncate(step).Equal(kept[n-1].at.Truncate(step)) {
				kept[n-1] = s
				continue
			}
		}
		kept = append(kept, s)
	}
	return slices.Clip(kept)
}

// measuredOf returns the events of a sandbox of the team, none for an unknown one,
// and what was measured of it.
func (s *Server) measuredOf(team *Team, id string) ([]event, []sample) {
	events := s.historyOf(team, id)
	if events == nil {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.histories[id]; h != nil {
		return events, slices.Clone(h.gauge.samples)
	}
	return events, nil
}

// measure measures those of the running sandboxes that are wanted and were not
// measured since their newest point.
func (s *Server) measure(wanted func(*runningSandbox) bool) {
	s.mu.Lock()
	running := s.runningLocked()
	s.mu.Unlock()
	for _, sb := range running {
		if wanted(sb) {
			s.measureOne(sb)
		}
	}
}

// A runningSandbox is what may be read of a live sandbox without the lock.
type runningSandbox struct {
	of        *sandbox
	id        string
	team      *Team
	machine   node.Sandbox
	startedAt time.Time
}

func readableLocked(sb *sandbox) *runningSandbox {
	return &runningSandbox{sb, sb.id, sb.team, sb.machine, sb.startedAt}
}

// runningLocked returns the sandboxes that run, by their IDs.
func (s *Server) runningLocked() map[string]*runningSandbox {
	running := make(map[string]*runningSandbox)
	for id, sb := range s.live {
		if sb.state == Running {
			running[id] = readableLocked(sb)
		}
	}
	return running
}

// measureOne measures a live sandbox, if it can be and was not since its newest
// point.
func (s *Server) measureOne(sb *runningSandbox) {
	meter, ok := sb.machine.(node.Meter)
	at := s.clock.Now()
	if !ok || !s.measureDue(sb, at) {
		return
	}
	u, err := meter.Usage(s.ctx)
	if err != nil {
		if !errors.Is(err, node.ErrBusy) {
			s.log.WarnContext(s.ctx, "measuring a sandbox failed", "sandbox", sb.id, "error", err)
		}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Somebody else may have been faster.
	if h := s.histories[sb.id]; h != nil && s.live[sb.id] == sb.of && h.gauge.due(sb.startedAt, at) {
		h.gauge.add(at, u)
	}
}

func (s *Server) measureDue(sb *runningSandbox, at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.histories[sb.id]
	return h != nil && h.gauge.due(sb.startedAt, at)
}

// measureEvery measures all running sandboxes again and again.
func (s *Server) measureEvery(period time.Duration) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.measure(func(*runningSandbox) bool { return true })
		case <-s.ctx.Done():
			return
		}
	}
}
