package e2btest

import (
	"context"
	"errors"
	"time"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/fault"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// A NodeStep is what the API asks the machine for that runs the sandboxes. A Fault
// with one hits that step, whoever asked for it, and no request. It can have Sandbox
// (but for NodeStart), Skip, Times, DelayBefore, DelayAfter and Error. Its delays are
// over when the server closes, and those of NodeStart when their request ends, after
// 70 s at the latest (status 504).
type NodeStep string

// The values of NodeStep. A step that fails does to the sandbox what it does on E2B.
const (
	NodeStart    NodeStep = "start"    // of a create, and of each sandbox of a fork: it is not made
	NodePause    NodeStep = "pause"    // also of a timeout: the sandbox is lost
	NodeResume   NodeStep = "resume"   // also of traffic: the sandbox stays paused
	NodeSnapshot NodeStep = "snapshot" // also of a fork: the sandbox is lost, but for NodeBusy
)

// A NodeError is why a step fails.
type NodeError string

// The values of NodeError.
const (
	// NodeFailed is for all steps: status 500, with the code sandbox_create_failed where
	// a sandbox was to start or to resume.
	NodeFailed NodeError = "failed"
	// NodeFull is for starts and resumes: status 503, sandbox_capacity_unavailable. E2B
	// tries again for 70 s before it says so, for which DelayBefore can stand.
	NodeFull NodeError = "full"
	// NodeIncompatible is for starts and resumes: status 503, sandbox_no_compatible_node.
	NodeIncompatible NodeError = "incompatible"
	// NodeTimeout is for starts and resumes: status 504, sandbox_placement_timeout. E2B
	// takes 70 s to say so.
	NodeTimeout NodeError = "timeout"
	// NodeRefused is for starts and resumes: status 500, sandbox_create_failed, with
	// Fault.Body as the machine's words.
	NodeRefused NodeError = "refused"
	// NodeBusy is for snapshots: status 503, and the sandbox goes on.
	NodeBusy NodeError = "busy"
)

// nodeErrors has all steps, and what each can fail with.
var nodeErrors = map[NodeStep][]NodeError{
	NodeStart:    {NodeFailed, NodeFull, NodeIncompatible, NodeTimeout, NodeRefused},
	NodePause:    {NodeFailed},
	NodeResume:   {NodeFailed, NodeFull, NodeIncompatible, NodeTimeout, NodeRefused},
	NodeSnapshot: {NodeFailed, NodeBusy},
}

// errOfNode is the error of a node that stands for that of a fault.
func (f *Fault) errOfNode() error {
	switch f.Error {
	case NodeFull:
		return node.ErrFull
	case NodeIncompatible:
		return node.ErrIncompatible
	case NodeTimeout:
		return node.ErrTimeout
	case NodeRefused:
		return &node.RefusedError{Text: f.Body}
	case NodeBusy:
		return node.ErrBusy
	default:
		return errors.New("a fault was injected")
	}
}

// step takes a step of the node, but for the faults.
func (l *faultList) step(ctx context.Context, step node.Step, id string, do func() error) error {
	return l.stepBehind(ctx, l.now(), step, id, do)
}

func (l *faultList) stepBehind(ctx context.Context, list []*injected, step node.Step, id string, do func() error) error {
	for i, in := range list {
		f := &in.fault
		if f.Node != NodeStep(step) || f.Sandbox != "" && f.Sandbox != id || !l.fires(in) {
			continue
		}
		l.log.DebugContext(ctx, "a fault hits", "step", string(step), "sandbox", id)
		if err := l.delay(ctx, f.DelayBefore); err != nil {
			return err
		}
		if f.Error != "" {
			return f.errOfNode()
		}
		if err := l.stepBehind(ctx, list[i+1:], step, id, do); err != nil {
			return err
		}
		return l.delay(ctx, f.DelayAfter)
	}
	return do()
}

// delay returns an error when it is over too early.
func (l *faultList) delay(ctx context.Context, d time.Duration) error {
	if fault.Wait(ctx, d, l.closed) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.New("the server closes")
}
