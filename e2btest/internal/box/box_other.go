//go:build !linux && !darwin

package box

import (
	"context"
	"errors"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// ErrUnsupported is returned by New on systems that have no local runtime.
var ErrUnsupported = errors.New("the local runtime needs Linux or macOS")

// A Node runs sandboxes. There is none on this system.
type Node struct{}

// New returns ErrUnsupported.
func New(Options) (*Node, error) { return nil, ErrUnsupported }

// Isolated reports false.
func (*Node) Isolated() (ok bool, reason string) { return false, ErrUnsupported.Error() }

// Start implements node.Node. It returns ErrUnsupported.
func (*Node) Start(context.Context, node.Spec) (node.Sandbox, error) { return nil, ErrUnsupported }

// Close implements node.Node.
func (*Node) Close() error { return nil }

// Python returns ErrUnsupported.
func (*Node) Python() (string, error) { return "", ErrUnsupported }
