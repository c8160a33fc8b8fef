package control

import "time"

// evict is the evictor: it sleeps until the next deadline, however far away, and
// is woken when there is an earlier one.
func (s *Server) evict() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.mu.Lock()
		s.expireDueLocked()
		wait, ok := s.untilNextLocked()
		s.mu.Unlock()
		if ok {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-s.wake:
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *Server) wakeEvictor() {
	select {
	case s.wake <- struct{}{}:
	default: // it has not looked since it was woken
	}
}

// untilNextLocked is the time to the earliest deadline of a running sandbox.
func (s *Server) untilNextLocked() (time.Duration, bool) {
	var earliest time.Time
	for _, sb := range s.live {
		if sb.state == Running && (earliest.IsZero() || sb.endAt.Before(earliest)) {
			earliest = sb.endAt
		}
	}
	return max(0, earliest.Sub(s.clock.Now())), !earliest.IsZero()
}

// expireDueLocked begins the end of every sandbox whose time is over, and
// returns the transitions of all those that are still under way.
func (s *Server) expireDueLocked() []*transition {
	if s.closed {
		return nil
	}
	now := s.clock.Now()
	var under []*transition
	for _, sb := range s.live {
		if sb.endAt.After(now) {
			continue
		}
		if sb.state == Running {
			s.expireLocked(sb)
		}
		under = append(under, sb.transition)
	}
	return under
}

// Advance moves the clock forward by d and returns when everything that is due
// by then has happened, in the order in which it became due. Negative values are
// taken as zero.
func (s *Server) Advance(d time.Duration) {
	s.advancing <- struct{}{} // not a mutex, which would stop the time of a bubble
	defer func() { <-s.advancing }()
	// What they have done until now is what they do in the time that is left out.
	s.measure(func(*runningSandbox) bool { return true })
	d = max(d, 0)
	for {
		s.mu.Lock()
		if s.closed {
			s.clock.add(d) // nothing becomes due any more
			s.mu.Unlock()
			return
		}
		step := d
		if wait, ok := s.untilNextLocked(); ok {
			step = min(d, wait)
		}
		s.clock.add(step)
		d -= step
		under := s.expireDueLocked()
		s.mu.Unlock()
		if d == 0 && len(under) == 0 {
			s.wakeEvictor()
			return
		}
		for _, t := range under {
			<-t.done
		}
	}
}
