//go:build linux || darwin

package box

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// What the names of things in a node's directory begin with. No ID of a sandbox has
// a dot.
const (
	imagePrefix   = ".i"
	socketPrefix  = ".s"
	discardPrefix = ".d" // what is being removed
)

var _ node.Keeper = (*Node)(nil)

// openKept opens a directory that stays. It removes what a node that was killed left
// there and nobody can want.
func openKept(path string) (*ownedDir, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := e.Name()
		if name == probeID || strings.HasPrefix(name, socketPrefix) || strings.HasPrefix(name, discardPrefix) {
			if err := removeTree(filepath.Join(path, name)); err != nil {
				return nil, err
			}
		}
	}
	return &ownedDir{path: path, kept: true}, nil
}

// cgroupName returns a name for the control group of a node, which matches
// dirPattern.
func (n *Node) cgroupName() string {
	if !n.dir.kept {
		return filepath.Base(n.dir.path)
	}
	return strings.Replace(dirPattern, "*", rand.Text(), 1)
}

// discard removes a directory. To a later node on the same files it is gone at once
// or not at all.
func (n *Node) discard(dir string) error {
	if n.dir.kept {
		gone := filepath.Join(n.dir.path, fmt.Sprintf("%s%x", discardPrefix, n.counter.Add(1)))
		if err := os.Rename(dir, gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		dir = gone
	}
	return removeTree(dir)
}

// Layout implements node.Keeper.
func (n *Node) Layout() string {
	return [...]string{plain: "plain", userNamespaces: "isolated, one user", namespaces: "isolated", allNamespaces: "isolated"}[n.isolation]
}

// AdoptSandbox implements node.Keeper.
func (n *Node) AdoptSandbox(spec node.Spec) (node.Sandbox, error) {
	if !validID(spec.ID) {
		return nil, fmt.Errorf("adopt sandbox: invalid ID %q", spec.ID)
	}
	s := &sandbox{node: n, spec: spec, dir: filepath.Join(n.dir.path, spec.ID)}
	if err := checkRoot(s.root()); err != nil {
		return nil, fmt.Errorf("adopt sandbox %s: %w", spec.ID, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, ErrClosed
	}
	n.boxes[s] = struct{}{}
	return s, nil
}

// checkRoot makes sure that there is a directory, and not what merely leads to one.
func checkRoot(root string) error {
	info, err := os.Lstat(root)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no directory", root)
	}
	return err
}

// AdoptImage implements node.Keeper.
func (n *Node) AdoptImage(name string) (node.Image, error) {
	if !strings.HasPrefix(name, imagePrefix) || filepath.Base(name) != name {
		return nil, fmt.Errorf("adopt image: invalid name %q", name)
	}
	i := &image{node: n, dir: filepath.Join(n.dir.path, name)}
	if err := checkRoot(i.root()); err != nil {
		return nil, fmt.Errorf("adopt image: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.adopted = append(n.adopted, name)
	return i, nil
}

// ImageName implements node.Keeper.
func (n *Node) ImageName(i node.Image) string {
	if i, ok := i.(*image); ok {
		return filepath.Base(i.dir)
	}
	return ""
}

// DropOthers implements node.Keeper.
func (n *Node) DropOthers(volumes []string) error {
	n.mu.Lock()
	wanted := slices.Clone(n.adopted)
	for s := range n.boxes {
		wanted = append(wanted, s.spec.ID)
	}
	n.mu.Unlock()
	// Names with other dots are not those of a sandbox or an image.
	others := func(name string) bool { return validID(name) || strings.HasPrefix(name, imagePrefix) }
	if err := n.dropBut(wanted, n.dir.path, others); err != nil {
		return err
	}
	err := n.dropBut(volumes, filepath.Join(n.dir.path, volumesName), validID)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// dropBut discards what dir has of a kind, except what is wanted.
func (n *Node) dropBut(wanted []string, dir string, kind func(name string) bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !kind(e.Name()) || slices.Contains(wanted, e.Name()) {
			continue
		}
		if err := n.discard(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
