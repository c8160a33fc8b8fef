//go:build linux || darwin

package box_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/box"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// startFrom starts a sandbox with the files of an image.
func startFrom(t *testing.T, n *box.Node, id string, image node.Image) *guest {
	t.Helper()
	spec := spec
	spec.ID, spec.Image = id, image
	s, err := n.Start(t.Context(), spec)
	require.NoError(t, err)
	g := newGuest(s)
	t.Cleanup(func() {
		g.disconnect()
		require.NoError(t, g.Kill())
	})
	return g
}

func TestSnapshot(t *testing.T) {
	forEachMode(t, func(t *testing.T, n *box.Node) {
		a := start(t, n, "a")
		a.startCounter(t)
		a.run(t, "echo 1 >file; mkdir dir; ln -s ../file dir/link; chmod 0 dir; mkdir -p ~/.cache && touch ~/.cache/x")
		a.runAs(t, "root", "echo 2 >file")
		image, err := a.Snapshot(t.Context())
		require.NoError(t, err)
		before := a.count(t)
		eventually(t, func() bool { return a.count(t) > before }, "its processes do not go on")
		require.Equal(t, "1", a.run(t, "cat file"), "the connection stays")
		a.run(t, "echo changed >file")

		b := startFrom(t, n, "b", image)
		require.Equal(t, "1 b blue", b.run(t, "echo $(cat file) $E2B_SANDBOX_ID $COLOUR"))
		require.Equal(t, "1", b.run(t, "chmod 700 dir; cat dir/link"))
		require.Equal(t, "2", b.runAs(t, "root", "cat file"))
		count := b.count(t)
		require.LessOrEqual(t, count, before)
		b.run(t, "rm file; echo mine >own")
		require.Equal(t, count, b.count(t), "no process was carried")
		require.Equal(t, "changed", a.run(t, "cat file; ls own 2>/dev/null || true"), "they are independent")
		require.NoError(t, a.Kill())

		c := startFrom(t, n, "c", image)
		require.NoError(t, image.Remove())
		require.NoError(t, image.Remove(), "again")
		require.Equal(t, "1", c.run(t, "cat file; ls own 2>/dev/null || true"))
		require.NoError(t, c.Pause(t.Context(), false))
		require.NoError(t, c.Resume(t.Context(), false))
		require.Equal(t, "1", c.run(t, "cat file"))

		// Of one that came from another.
		image, err = c.Snapshot(t.Context())
		require.NoError(t, err)
		require.Equal(t, "1", startFrom(t, n, "d", image).run(t, "cat file"))
		require.NoError(t, image.Remove())
		entries, err := filepath.Glob(filepath.Join(box.Dir(n), ".i*"))
		require.NoError(t, err)
		require.Empty(t, entries)
	})
}

func TestSnapshotNeedsARunningSandbox(t *testing.T) {
	n := plainMode.shared(t)
	g := start(t, n, "a")
	for _, keepMemory := range []bool{true, false} {
		require.NoError(t, g.Pause(t.Context(), keepMemory))
		_, err := g.Snapshot(t.Context())
		require.ErrorIs(t, err, box.ErrNotRunning)
	}
	require.NoError(t, g.Kill())
	_, err := g.Snapshot(t.Context())
	require.ErrorIs(t, err, box.ErrKilled)
}

// TestSnapshotFails leaves nothing of it, and a sandbox that goes on.
func TestSnapshotFails(t *testing.T) {
	forEachMode(t, func(t *testing.T, n *box.Node) {
		g := start(t, n, "a")
		g.startCounter(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := g.Snapshot(ctx)
		require.ErrorIs(t, err, context.Canceled)
		before := g.count(t)
		eventually(t, func() bool { return g.count(t) > before }, "it does not go on")
		entries, err := filepath.Glob(filepath.Join(box.Dir(n), ".i*"))
		require.NoError(t, err)
		require.Empty(t, entries)

		// From an image that is gone.
		image, err := g.Snapshot(t.Context())
		require.NoError(t, err)
		require.NoError(t, image.Remove())
		_, err = n.Start(t.Context(), node.Spec{ID: "b", Image: image})
		require.ErrorIs(t, err, os.ErrNotExist)
		require.NoDirExists(t, filepath.Join(box.Dir(n), "b"))
	})
}

// TestCloseRemovesImages that nobody removed.
func TestCloseRemovesImages(t *testing.T) {
	n, err := box.New(box.Options{Dir: t.TempDir(), NoIsolation: true})
	require.NoError(t, err)
	s, err := n.Start(t.Context(), spec)
	require.NoError(t, err)
	_, err = s.Snapshot(t.Context())
	require.NoError(t, err)
	dir := box.Dir(n)
	require.NoError(t, n.Close())
	require.NoDirExists(t, dir)
}
