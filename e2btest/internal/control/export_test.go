package control

import "time"

// Skip moves the clock without waking the evictor, which on E2B looks only every
// 50 ms.
func (s *Server) Skip(d time.Duration) { s.clock.add(d) }

// Snapshotting puts a running sandbox into the state in which a snapshot is
// taken, until release is called.
func (s *Server) Snapshotting(id string) (release func()) {
	released := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	sb := s.live[id]
	s.beginLocked(sb, Snapshotting, func() error {
		<-released
		return nil
	}, func(error) { sb.state, sb.transition = Running, nil })
	return func() { close(released) }
}

// Next lists the states that may follow s.
func (s State) Next() []State { return next[s] }

// Block blocks the team of a key.
func (s *Server) Block(key, reason string) { s.keys[key].Blocked = reason }
