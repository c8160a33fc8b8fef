package interp

import (
	"slices"
	"sync"
)

// turns lets one in at a time, in the order of arrival.
type turns struct {
	mu      sync.Mutex
	taken   bool
	waiting []chan struct{}
}

// take takes the turn, or returns what is closed once the caller has it.
func (t *turns) take() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.taken {
		t.taken = true
		return nil
	}
	mine := make(chan struct{})
	t.waiting = append(t.waiting, mine)
	return mine
}

// pass gives the turn to the next.
func (t *turns) pass() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken = len(t.waiting) > 0; t.taken {
		close(t.waiting[0])
		t.waiting = t.waiting[1:]
	}
}

// giveUp ends the waiting for a turn, which the caller may just have got.
func (t *turns) giveUp(mine <-chan struct{}) {
	t.mu.Lock()
	i := slices.IndexFunc(t.waiting, func(c chan struct{}) bool { return c == mine })
	if i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	}
	t.mu.Unlock()
	if i < 0 {
		t.pass()
	}
}
