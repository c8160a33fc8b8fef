//go:build linux || darwin

package box_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/box"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// forEachKept runs a test in every way that this machine has, with a function that
// opens a node on the same directory.
func forEachKept(t *testing.T, test func(t *testing.T, dir string, open func() *box.Node)) {
	for _, m := range modes() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			opts := m.opts
			opts.Keep = filepath.Join(t.TempDir(), "kept")
			test(t, opts.Keep, func() *box.Node {
				n, err := box.New(opts)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, n.Close()) })
				m.check(t, n)
				return n
			})
		})
	}
}

func TestKeep(t *testing.T) {
	forEachKept(t, func(t *testing.T, dir string, open func() *box.Node) {
		first := open()
		running, frozen, off := start(t, first, "a"), start(t, first, "b"), start(t, first, "c")
		other, killed := start(t, first, "d"), start(t, first, "e")
		for _, g := range []*guest{running, frozen, off} {
			g.run(t, "echo $E2B_SANDBOX_ID >file")
		}
		image, err := running.Snapshot(t.Context())
		require.NoError(t, err)
		otherImage, err := other.Snapshot(t.Context())
		require.NoError(t, err)
		require.NotEqual(t, first.ImageName(image), first.ImageName(otherImage))
		require.NoError(t, frozen.Pause(t.Context(), true))
		require.NoError(t, off.Pause(t.Context(), false))
		require.NoError(t, killed.Kill())
		require.NoDirExists(t, filepath.Join(dir, "e"))
		ended := box.Ended(frozen.Sandbox)
		require.NoError(t, first.Close())
		<-ended
		require.Error(t, running.Resume(t.Context(), true), "the node is closed")

		// What a node that was killed could have left.
		for _, name := range []string{"probe/root/x", ".d1/root/x", ".s1", "with.dot/x"} {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
		}
		second := open()
		require.Equal(t, first.Layout(), second.Layout())
		for _, id := range []string{"a", "b", "c"} {
			spec := spec
			spec.ID = id
			s, err := second.AdoptSandbox(spec)
			require.NoError(t, err)
			g := newGuest(s)
			t.Cleanup(g.disconnect)
			_, err = g.Snapshot(t.Context())
			require.ErrorIs(t, err, box.ErrNotRunning)
			require.NoError(t, g.Resume(t.Context(), false))
			require.Equal(t, id, g.run(t, "cat file"))
		}
		adopted, err := second.AdoptImage(first.ImageName(image))
		require.NoError(t, err)
		require.NoError(t, second.DropOthers(nil))
		require.NoError(t, second.DropOthers(nil), "again")
		require.Equal(t, "a", startFrom(t, second, "f", adopted).run(t, "cat file"))
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		var left []string
		for _, e := range entries {
			if e.IsDir() {
				left = append(left, e.Name())
			}
		}
		require.Equal(t, []string{first.ImageName(image), "a", "b", "c", "f", "with.dot"}, left)
		require.NoError(t, adopted.Remove())
		require.NoDirExists(t, filepath.Join(dir, first.ImageName(image)))
	})
}

func TestAdoptWhatIsNotThere(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, box.Options{Keep: dir, NoIsolation: true})
	for _, name := range []string{"file", ".ifile"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "link"), 0o700))
	require.NoError(t, os.Symlink(t.TempDir(), filepath.Join(dir, "link", "root")))
	_, err := n.AdoptSandbox(node.Spec{ID: "x"})
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = n.AdoptImage(".ix")
	require.ErrorIs(t, err, fs.ErrNotExist)
	for _, id := range []string{"", "..", "a/b", ".lock", "file", "link"} {
		_, err := n.AdoptSandbox(node.Spec{ID: id})
		require.Error(t, err, id)
		require.NotErrorIs(t, err, fs.ErrNotExist, id)
	}
	for _, name := range []string{"", "..", "link", ".i/../link", ".ifile"} {
		_, err := n.AdoptImage(name)
		require.Error(t, err, name)
		require.NotErrorIs(t, err, fs.ErrNotExist, name)
	}
	require.NoError(t, n.Close())
	_, err = n.Start(t.Context(), spec)
	require.ErrorIs(t, err, box.ErrClosed)
	require.DirExists(t, dir)
}
