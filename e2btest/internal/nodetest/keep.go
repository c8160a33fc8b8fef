package nodetest

import (
	"fmt"
	"io/fs"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

var _ node.Keeper = (*Node)(nil)

// Layout implements node.Keeper.
func (n *Node) Layout() string { return "memory" }

// AdoptSandbox pauses a sandbox that the node has had, as if it had been opened anew.
func (n *Node) AdoptSandbox(spec node.Spec) (node.Sandbox, error) {
	sb := n.Sandbox(spec.ID)
	if sb == nil || sb.State() == "killed" {
		return nil, fs.ErrNotExist
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.Spec, sb.state, sb.memory, sb.adopted = spec, "paused", false, true
	return sb, nil
}

// AdoptImage implements node.Keeper.
func (n *Node) AdoptImage(name string) (node.Image, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.images {
		if n.ImageName(i) == name {
			i.adopted = true
			return i, nil
		}
	}
	return nil, fs.ErrNotExist
}

// ImageName implements node.Keeper.
func (n *Node) ImageName(i node.Image) string { return fmt.Sprintf("%p", i) }

// DropOthers implements node.Keeper. There are no volumes.
func (n *Node) DropOthers([]string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, sb := range n.sandboxes {
		if !sb.adopted {
			sb.end()
			delete(n.sandboxes, id)
		}
	}
	for i := range n.images {
		if !i.adopted {
			delete(n.images, i)
		}
	}
	return nil
}
