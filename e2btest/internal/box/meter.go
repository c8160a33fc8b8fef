//go:build linux || darwin

package box

import (
	"context"
	"fmt"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/agent"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

var _ node.Meter = (*sandbox)(nil)

// Usage implements node.Meter.
func (s *sandbox) Usage(ctx context.Context) (node.Usage, error) {
	reply, err := s.ask(ctx, agent.Usage)
	return reply.Usage, err
}

// Processes implements node.Meter. PIDs are those that the sandbox sees.
func (s *sandbox) Processes(ctx context.Context) ([]node.Process, error) {
	reply, err := s.ask(ctx, agent.Processes)
	return reply.Processes, err
}

// ask asks a running sandbox for something that does not change its state.
func (s *sandbox) ask(ctx context.Context, op agent.Op) (agent.Reply, error) {
	s.asking.Lock() // so that op is held by a change of the state if it cannot be had
	defer s.asking.Unlock()
	if !s.op.TryLock() {
		return agent.Reply{}, node.ErrBusy
	}
	defer s.op.Unlock()
	if s.state != running {
		return agent.Reply{}, node.ErrBusy
	}
	reply, err := s.proc.request(ctx, op)
	if err != nil {
		return agent.Reply{}, fmt.Errorf("%s of sandbox %s: %w", op, s.spec.ID, err)
	}
	return reply, nil
}
