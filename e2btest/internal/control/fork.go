package control

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

var forkSchema = &schema{
	kind: objectKind, name: "SandboxForkRequest",
	fields: map[string]*schema{
		"timeout": defaulted(0),
		"count":   {kind: integerKind, int32: true, min: new(int64(1)), max: new(int64(100))},
	},
}

type forkBody struct {
	Timeout *seconds `json:"timeout"`
	Count   *float64 `json:"count"` // an integer, which may be written as 2.0
}

// A forkView is what became of one fork: a sandbox, or an error.
type forkView struct {
	Sandbox *sandboxView `json:"sandbox,omitempty"`
	Error   *forkError   `json:"error,omitempty"`
}

type forkError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (s *Server) handleFork(c *call) (*response, *Error) {
	var body forkBody
	if err := decode(c.body, &body); err != nil {
		return nil, err
	}
	timeout, count := body.Timeout.or(15*time.Second), 1
	if body.Count != nil {
		count = int(*body.Count)
	}
	if err := checkNewTimeout(c.team, timeout); err != nil {
		return nil, err
	}
	if count >= c.team.MaxSandboxes {
		return nil, fail(http.StatusBadRequest, fmt.Sprintf("Count must be lower than the maximum number of concurrent sandboxes (%d)", c.team.MaxSandboxes))
	}
	id, err := c.id()
	if err != nil {
		return nil, err
	}
	forks, err := s.fork(c.ctx, c.team, id, count, timeout)
	if err != nil {
		return nil, err
	}
	return &response{status: http.StatusCreated, body: forks}, nil
}

// maxForkStarts is how many forks start at a time.
const maxForkStarts = 8

// fork copies a running sandbox once and starts others from that, each of which
// succeeds or fails for itself.
func (s *Server) fork(ctx context.Context, team *Team, id string, count int, timeout time.Duration) ([]forkView, *Error) {
	var b *build
	abandoned := false
	err := s.checkpoint(ctx, opFork, team, id, true, func(made *build) {
		if b = made; abandoned {
			s.discardBuildLocked(b)
		}
	})
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if abandoned = true; b != nil {
			s.discardBuildLocked(b)
		}
		return nil, err
	}
	forks := make([]forkView, count)
	turn := make(chan struct{}, maxForkStarts)
	var wg sync.WaitGroup
	for i := range forks {
		wg.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			c := *b.from
			c.timeout = timeout
			if err := s.create(ctx, &c, b); err != nil {
				forks[i].Error = &forkError{err.Status, err.Message}
				return
			}
			view := s.view(&c)
			forks[i].Sandbox = &view
		})
	}
	wg.Wait()
	s.mu.Lock()
	s.discardBuildLocked(b)
	s.mu.Unlock()
	return forks, nil
}
