// Package scripted runs sandboxes without processes: functions stand in for commands
// and for code, files are in memory, and so are connections. It works on every
// system, and in a bubble of testing/synctest.
package scripted

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/envd"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/interp"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// errClosed is returned by Start after Close.
var errClosed = errors.New("the scripted runtime is closed")

// Options configures a Node.
type Options struct {
	// Run runs a command and returns its exit code. nil: there are no commands.
	Run func(ctx context.Context, s *Sandbox, inv *envd.Invocation) int
	// Code runs code. nil: there is no interpreter.
	Code func(ctx context.Context, s *Sandbox, x *interp.Execution) error
	// HangAfterCancel is that of the interpreter.
	HangAfterCancel bool
	// Logger gets what envd logs. nil means none.
	Logger *slog.Logger
}

// A Node is a node.Node.
type Node struct {
	opts Options

	mu        sync.Mutex
	closed    bool
	sandboxes map[*Sandbox]struct{}
}

var _ node.Node = (*Node)(nil)

// New returns a Node, which is to be closed.
func New(opts Options) *Node {
	return &Node{opts: opts, sandboxes: make(map[*Sandbox]struct{})}
}

// Isolated says that sandboxes are isolated: nothing of them runs on this machine
// but functions of the test.
func (n *Node) Isolated() (ok bool, reason string) { return true, "" }

// Python returns that there is none.
func (n *Node) Python() (string, error) {
	return "", errors.New("a function runs the code of this server")
}

// An image is the files of a sandbox.
type image struct{ files *envd.Memory }

func (image) Remove() error { return nil }

// Start implements node.Node.
func (n *Node) Start(_ context.Context, spec node.Spec) (node.Sandbox, error) {
	s := &Sandbox{node: n, spec: spec}
	if kept, ok := spec.Image.(image); ok {
		s.files = kept.files.Clone()
	} else {
		files, err := newFiles()
		if err != nil {
			return nil, fmt.Errorf("start sandbox %s: %w", spec.ID, err)
		}
		s.files = files
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, errClosed
	}
	n.sandboxes[s] = struct{}{}
	return s, s.boot()
}

// Close implements node.Node.
func (n *Node) Close() error {
	n.mu.Lock()
	n.closed = true
	sandboxes := n.sandboxes
	n.sandboxes = nil
	n.mu.Unlock()
	var all sync.WaitGroup
	for s := range sandboxes {
		all.Go(func() { _ = s.Kill() }) // has no error
	}
	all.Wait()
	return nil
}

func (n *Node) forget(s *Sandbox) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.sandboxes, s)
}
