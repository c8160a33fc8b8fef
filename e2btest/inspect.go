package e2btest

import (
	"net/http"
	"sync"
	"time"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// A SandboxStatus is a sandbox as the server itself sees it, with what none of E2B's
// routes tells.
type SandboxStatus struct {
	ID   string
	Team string // whose it is: "local", or the Name of one of Options.Teams
	// State is running, pausing, paused, resuming, snapshotting, killing or gone.
	State    string
	Template string            // its ID; "" once the sandbox is gone
	Metadata map[string]string // nil once the sandbox is gone
	// TemplateName is a name of the template; "" if it has none or the sandbox is gone.
	TemplateName string

	CPUCount, MemoryMiB int

	CreatedAt time.Time
	StartedAt time.Time // of its newest run
	EndAt     time.Time // when its time is over; when it was paused; when it ended
	// Billed is how long it has run in all, by the server's clock, which Advance moves.
	Billed time.Duration
	// Open is how many requests to it are under way, streams among them.
	Open int
	// Processes are what runs in it, the oldest first; nil unless its state is running.
	Processes []Process
}

// A Process is one that runs in a sandbox.
type Process struct {
	PID     int    // as the sandbox sees it
	Command string // with its arguments, where the system tells them
}

// Cost returns what the time that the sandbox has run costs, at the prices of a
// second of one virtual CPU and of one GiB of memory: see
// https://e2b.dev/pricing. A paused sandbox costs nothing.
func (s *SandboxStatus) Cost(perCPU, perGiB float64) float64 {
	return s.Billed.Seconds() * (float64(s.CPUCount)*perCPU + float64(s.MemoryMiB)/1024*perGiB)
}

// Sandboxes returns all sandboxes that the server has or had, of all teams, the
// oldest first. It
// forgets those that are gone after seven days of its clock.
func (s *Server) Sandboxes() []SandboxStatus {
	statuses := s.control.Statuses()
	list := make([]SandboxStatus, 0, len(statuses))
	for _, st := range statuses {
		list = append(list, SandboxStatus{
			ID: st.ID, Team: st.Team, State: st.State, Template: st.Template, TemplateName: st.TemplateName, Metadata: st.Metadata,
			CPUCount: st.CPUCount, MemoryMiB: st.MemoryMB,
			CreatedAt: st.CreatedAt, StartedAt: st.StartedAt, EndAt: st.EndAt, Billed: st.Ran, Open: s.open.of(st.ID),
			Processes: processes(st.Processes),
		})
	}
	return list
}

func processes(list []node.Process) []Process {
	var out []Process
	for _, p := range list {
		out = append(out, Process(p))
	}
	return out
}

// openRequests counts the requests to sandboxes that are under way.
type openRequests struct {
	mu     sync.Mutex
	counts map[string]int // by sandbox; only of those with any
}

func (o *openRequests) add(id string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.counts == nil {
		o.counts = make(map[string]int)
	}
	if o.counts[id] += n; o.counts[id] == 0 {
		delete(o.counts, id)
	}
}

func (o *openRequests) of(id string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.counts[id]
}

// opened counts the requests to a handler for sandboxes.
func (o *openRequests) opened(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, _ := inHeaders(r)
		o.add(id, 1)
		defer o.add(id, -1)
		h.ServeHTTP(w, r)
	})
}
