//go:build linux || darwin

package box

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// An image implements node.Image. It is a directory beside those of the sandboxes.
type image struct {
	node *Node
	dir  string
	// Copying for a user who is not root opens, for a moment, what may not be read.
	copying sync.Mutex
}

var _ node.Image = (*image)(nil)

func (i *image) root() string { return filepath.Join(i.dir, rootName) }

// copyTo makes the files of a sandbox.
func (i *image) copyTo(ctx context.Context, root string) error {
	i.copying.Lock()
	defer i.copying.Unlock()
	return copyTree(ctx, i.root(), root)
}

// Remove implements node.Image.
func (i *image) Remove() error { return i.node.discard(i.dir) }

// newImage copies the files of a sandbox.
func (n *Node) newImage(ctx context.Context, root string) (*image, error) {
	dir, err := os.MkdirTemp(n.dir.path, imagePrefix)
	if err != nil {
		return nil, err
	}
	i := &image{node: n, dir: dir}
	if err := copyTree(ctx, root, i.root()); err != nil {
		return nil, errors.Join(err, i.Remove())
	}
	return i, nil
}
