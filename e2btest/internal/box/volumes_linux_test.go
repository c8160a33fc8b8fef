package box_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/box"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// startWith starts a sandbox with volumes.
func startWith(t *testing.T, n *box.Node, id string, volumes ...node.Volume) *guest {
	t.Helper()
	spec := spec
	spec.ID, spec.Volumes = id, volumes
	s, err := n.Start(t.Context(), spec)
	require.NoError(t, err)
	g := newGuest(s)
	t.Cleanup(func() {
		g.disconnect()
		require.NoError(t, g.Kill())
	})
	return g
}

func TestVolumes(t *testing.T) {
	n := defaultMode.fresh(t)
	a := startWith(t, n, "a", node.Volume{ID: "v", Path: "/mnt/deep/er"}, node.Volume{ID: "other", Path: "/other"})
	b := startWith(t, n, "b", node.Volume{ID: "v", Path: "/data"})
	a.runAs(t, "user", "echo 1 >/mnt/deep/er/user")
	a.runAs(t, "root", "echo 2 >/mnt/deep/er/root && ! ls /other | grep .")
	require.Equal(t, "1 2", b.runAs(t, "user", "echo $(cat /data/user /data/root)"))
	a.fails(t, "root", "mknod /mnt/deep/er/null c 1 3")
	a.fails(t, "root", "umount /mnt/deep/er")

	require.NoError(t, a.Kill())
	require.Equal(t, "1", b.runAs(t, "user", "cat /data/user"), "they outlive a sandbox")

	require.NoError(t, n.RemoveVolume("v"))
	require.NoError(t, n.RemoveVolume("v"), "once more")
	require.Error(t, n.RemoveVolume("../b"))
	require.Equal(t, "lives", b.runAs(t, "user", "echo lives"))
	c := startWith(t, n, "c", node.Volume{ID: "v", Path: "/data"})
	c.runAs(t, "user", "! ls /data | grep .")
	for _, bad := range []string{"", "..", "a/b", ".lock"} {
		spec := spec
		spec.ID, spec.Volumes = "d", []node.Volume{{ID: bad, Path: "/x"}}
		_, err := n.Start(t.Context(), spec)
		require.Error(t, err, bad)
	}
}

// TestVolumeAfterALink that a sandbox has put where its volume was: what the reboot
// makes is in the sandbox all the same.
func TestVolumeAfterALink(t *testing.T) {
	n := defaultMode.fresh(t)
	outside := t.TempDir()
	g := startWith(t, n, "a", node.Volume{ID: "v", Path: "/new/volume"})
	g.runAs(t, "root", "echo 1 >/new/volume/file && mkdir /moved")
	require.NoError(t, g.Pause(t.Context(), false))
	root := box.Root(g.Sandbox)
	require.NoError(t, os.Remove(filepath.Join(root, "new/volume")))
	require.NoError(t, os.Remove(filepath.Join(root, "new")))
	require.NoError(t, os.Symlink(outside, filepath.Join(root, "new")))
	require.Error(t, g.Resume(t.Context(), true), "there is no such directory in the sandbox")
	require.NoError(t, os.Remove(filepath.Join(root, "new")))
	require.NoError(t, os.Symlink("/moved", filepath.Join(root, "new")))
	require.NoError(t, g.Resume(t.Context(), true))
	require.Equal(t, "1", g.runAs(t, "root", "cat /moved/volume/file"))
	left, err := os.ReadDir(outside)
	require.NoError(t, err)
	require.Empty(t, left)
}
