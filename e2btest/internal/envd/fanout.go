package envd

import (
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
)

// maxQueued is how many events wait for one reader before it counts as full.
const maxQueued = 64

// errTooSlow ends the stream of a reader that stopped the others.
var errTooSlow = errors.New("output was not read for too long while others wanted to go on")

// A fanout gives the output of a command to everyone who reads it. The command
// waits while nobody takes what it prints, but a reader that stands still stops
// the others only for the grace: then it is dropped.
type fanout struct {
	grace time.Duration
	over  chan struct{} // closed when output that nobody took is to be thrown away
	moved chan struct{} // filled when a reader came, went, or made room

	turn chan struct{} // holds a token during one event, so that all see the same order

	mu   sync.Mutex
	subs map[*subscriber]struct{}
	end  *process.ProcessEvent
}

// A subscriber is one reader of a fanout.
type subscriber struct {
	of    *fanout
	ready chan struct{} // filled when next has something

	// Guarded by of.mu.
	queue []*process.ProcessEvent
	err   error // after the queue
	ended bool
}

func newFanout(grace time.Duration) *fanout {
	return &fanout{
		grace: grace,
		over:  make(chan struct{}),
		moved: make(chan struct{}, 1),
		turn:  make(chan struct{}, 1),
		subs:  make(map[*subscriber]struct{}),
	}
}

// fill fills a channel of capacity one.
func fill(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (f *fanout) subscribe() *subscriber {
	s := &subscriber{of: f, ready: make(chan struct{}, 1)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.end == nil {
		f.subs[s] = struct{}{}
	}
	fill(f.moved)
	fill(s.ready)
	return s
}

// leave ends the subscription. It may be called again.
func (s *subscriber) leave() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	delete(s.of.subs, s)
	fill(s.of.moved)
}

// next returns the next event, or nothing: then ready says when to ask again. An
// error is the last answer; it is io.EOF after the end event.
func (s *subscriber) next() (*process.ProcessEvent, error) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	switch {
	case len(s.queue) > 0:
		ev := s.queue[0]
		s.queue[0] = nil // the array stays, the output should not
		s.queue = s.queue[1:]
		fill(s.of.moved)
		return ev, nil
	case s.err != nil:
		return nil, s.err
	case s.ended:
		return nil, io.EOF
	case s.of.end != nil:
		s.ended = true
		return s.of.end, nil
	}
	return nil, nil
}

// push queues ev if there is room. of.mu is held.
func (s *subscriber) push(ev *process.ProcessEvent) bool {
	if len(s.queue) >= maxQueued {
		return false
	}
	s.queue = append(s.queue, ev)
	fill(s.ready)
	return true
}

// publish gives ev to every reader and waits for those that are full.
func (f *fanout) publish(ev *process.ProcessEvent) {
	f.turn <- struct{}{} // not a mutex, which would stop the time of a bubble
	defer func() { <-f.turn }()

	var full []*subscriber
	f.mu.Lock()
	for s := range f.subs {
		if !s.push(ev) {
			full = append(full, s)
		}
	}
	f.mu.Unlock()

	var timer *time.Timer
	defer func() {
		if timer != nil {
			timer.Stop()
		}
	}()
	for len(full) > 0 {
		var expired <-chan time.Time
		if f.othersWait(full) {
			if timer == nil {
				timer = time.NewTimer(f.grace)
			}
			expired = timer.C
		} else if timer != nil {
			timer.Stop()
			timer = nil
		}
		select {
		case <-f.over:
			return
		case <-expired:
			f.drop(full)
			return
		case <-f.moved:
			f.mu.Lock()
			full = slices.DeleteFunc(full, func(s *subscriber) bool {
				_, here := f.subs[s]
				return !here || s.push(ev)
			})
			f.mu.Unlock()
		}
	}
}

// othersWait says whether a reader that is not among those has room, and so
// would get more if it were not for them.
func (f *fanout) othersWait(those []*subscriber) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.subs {
		if len(s.queue) < maxQueued && !slices.Contains(those, s) {
			return true
		}
	}
	return false
}

func (f *fanout) drop(those []*subscriber) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range those {
		if _, here := f.subs[s]; here {
			delete(f.subs, s)
			s.err = errTooSlow
			fill(s.ready)
		}
	}
}

// heard says whether anyone reads.
func (f *fanout) heard() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.subs) > 0
}

// finish makes ev the last event of everyone, now and later.
func (f *fanout) finish(ev *process.ProcessEvent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end = ev
	for s := range f.subs {
		fill(s.ready)
	}
	clear(f.subs)
}
