package control

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// A Status is a sandbox as the server itself sees it.
type Status struct {
	ID       string
	Team     string // its ID
	State    string // one of State, or paused, resuming or gone
	Template string // empty once it is gone, as is Metadata
	Metadata map[string]string
	// TemplateName may be empty, as well.
	TemplateName string

	CPUCount, MemoryMB int

	CreatedAt time.Time
	StartedAt time.Time // of the newest run
	EndAt     time.Time // when its time is over; when it was paused or ended
	Ran       time.Duration

	Processes []node.Process // nil while it does not run, and where the node does not tell
}

// Statuses returns all sandboxes of all teams, the oldest first. Those that are
// gone stay as long as logs do.
func (s *Server) Statuses() []Status {
	now := s.clock.Now()
	s.mu.Lock()
	list := make([]Status, 0, len(s.histories))
	for id, h := range s.histories {
		list = append(list, s.statusLocked(id, h, now))
	}
	running := s.runningLocked()
	s.mu.Unlock()
	for i := range list {
		list[i].Processes = s.processesOf(running[list[i].ID])
	}
	slices.SortFunc(list, func(a, b Status) int { return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID)) })
	return list
}

func (s *Server) statusLocked(id string, h *history, now time.Time) Status {
	st := Status{
		ID: id, Team: h.team.ID, State: "gone", CPUCount: cpuCount, MemoryMB: memoryMB,
		CreatedAt: h.events[0].at, EndAt: h.events[len(h.events)-1].at,
	}
	for _, run := range stretches(h.events, now) {
		st.StartedAt = run.from
		st.Ran += run.to.Sub(run.from)
	}
	var c *settings
	switch sb, snap := s.live[id], s.stored[id]; {
	case sb != nil:
		st.State, st.EndAt, c = sb.state.String(), sb.endAt, sb.settings
	case snap != nil:
		st.State, st.EndAt, c = "paused", snap.pausedAt, snap.settings
		if s.starts[id] != nil {
			st.State = "resuming"
		}
	default:
		return st
	}
	st.Template, st.TemplateName, st.Metadata = c.template.ID, c.template.alias(), maps.Clone(c.metadata)
	return st
}

// processesOf lists what runs in a sandbox. sb may be nil.
func (s *Server) processesOf(sb *runningSandbox) []node.Process {
	if sb == nil {
		return nil
	}
	meter, ok := sb.machine.(node.Meter)
	if !ok {
		return nil
	}
	list, err := meter.Processes(s.ctx)
	if err != nil {
		return nil // it is about to run no longer, or has ended
	}
	return list
}
