//go:build linux || darwin

package box

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/agent"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// volumesName, which is no ID of a sandbox, is the directory that has the volumes.
const volumesName = ".volumes"

var _ node.VolumeRemover = (*Node)(nil)

func (n *Node) volumeDir(id string) (string, error) {
	if !validID(id) {
		return "", fmt.Errorf("invalid ID of a volume: %q", id)
	}
	return filepath.Join(n.dir.path, volumesName, id), nil
}

// volumes makes sure that the directories of volumes are there. Sandboxes that are
// not isolated have none.
func (n *Node) volumes(wanted []node.Volume) ([]agent.Volume, error) {
	if n.isolation == plain {
		return nil, nil
	}
	var out []agent.Volume
	for _, v := range wanted {
		if dir := n.shown(v.Path); dir != "" {
			return nil, &node.RefusedError{Text: fmt.Sprintf("volume path '%s': %s is this machine's, and nothing can be mounted in it", v.Path, dir)}
		}
		dir, err := n.volumeDir(v.ID)
		if err != nil {
			return nil, err
		}
		if err := n.makeVolume(dir); err != nil {
			return nil, err
		}
		out = append(out, agent.Volume{Source: dir, Path: v.Path})
	}
	return out, nil
}

// shown returns the directory which a path is in that is not the sandbox's own, if any.
func (n *Node) shown(path string) string {
	for _, dir := range agent.SystemMounts {
		if agent.Below(path, dir) {
			return dir
		}
	}
	for _, b := range n.config.Binds {
		if agent.Below(path, b.Path) {
			return b.Path
		}
	}
	return ""
}

// makeVolume makes a directory that all users of all sandboxes can write to. Once it is
// there, it is complete.
func (n *Node) makeVolume(dir string) error {
	n.making.Lock()
	defer n.making.Unlock()
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) {
		return nil
	} else if err != nil {
		return err
	}
	if !n.config.OneUser {
		if err := os.Chown(dir, agent.UserID, agent.UserID); err != nil {
			return err
		}
	}
	return os.Chmod(dir, 0o777) // only sandboxes get to it
}

// RemoveVolume implements node.VolumeRemover.
func (n *Node) RemoveVolume(id string) error {
	dir, err := n.volumeDir(id)
	if err != nil {
		return err
	}
	return n.discard(dir)
}
