package control

import "time"

// Skip moves the clock without waking the evictor, which on E2B looks only every
// 50 ms. It must sleep by then.
func (s *Server) Skip(d time.Duration) { s.clock.add(d) }

// Next lists the states that may follow s.
func (s State) Next() []State { return next[s] }

// Block blocks the team of a key.
func (s *Server) Block(key, reason string) { s.keys[key].Blocked = reason }

// Samples counts the measurements of a sandbox that are kept.
func (s *Server) Samples(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.histories[id].gauge.samples)
}
