package control

import (
	"sync/atomic"
	"time"
)

// A clock is the real clock with an offset that only grows.
type clock struct {
	offset atomic.Int64
}

// Now returns the emulator's time.
func (c *clock) Now() time.Time {
	return time.Now().Add(c.ahead())
}

// ahead is by how much it is ahead of the real clock.
func (c *clock) ahead() time.Duration { return time.Duration(c.offset.Load()) }

// add moves the clock forward.
func (c *clock) add(d time.Duration) {
	c.offset.Add(int64(d))
}
