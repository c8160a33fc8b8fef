//go:build linux || darwin

package box

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// An image implements node.Image. It is a directory beside those of the sandboxes.
type image struct {
	dir string
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
func (i *image) Remove() error { return removeTree(i.dir) }

// newImage copies the files of a sandbox.
func (n *Node) newImage(ctx context.Context, root string) (*image, error) {
	// No ID of a sandbox has a dot.
	i := &image{dir: filepath.Join(n.dir.path, fmt.Sprintf(".i%x", n.counter.Add(1)))}
	err := os.Mkdir(i.dir, 0o700)
	if err == nil {
		err = copyTree(ctx, root, i.root())
	}
	if err != nil {
		return nil, errors.Join(err, i.Remove())
	}
	return i, nil
}
