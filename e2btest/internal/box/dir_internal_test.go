//go:build linux || darwin

package box

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Volumes are removed while sandboxes write to them.
func TestRemoveTreeStaysInside(t *testing.T) {
	outside := t.TempDir()
	require.NoError(t, os.MkdirAll(outside+"/below", 0o755))
	require.NoError(t, os.Chmod(outside, 0o755))
	dir := filepath.Join(t.TempDir(), "volume")
	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		// Much of it fails, since it is being removed.
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.MkdirAll(dir+"/a/b/c", 0o755)
			_ = os.Rename(dir+"/a", dir+"/old")
			_ = os.Symlink(outside, dir+"/a")
			_ = os.Remove(dir + "/a")
			_ = os.Rename(dir+"/old", dir+"/a")
		}
	})
	for range 3000 {
		_ = removeTree(dir)
		for _, name := range []string{outside, outside + "/below"} {
			info, err := os.Lstat(name)
			require.NoError(t, err)
			require.Equal(t, fs.FileMode(0o755), info.Mode().Perm(), name)
		}
	}
	close(stop)
	swapper.Wait()
	require.NoError(t, removeTree(dir))
}

// A directory can be in more others than can be open at a time.
func TestClearDeepTree(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	for range 3 * maxOpen {
		require.NoError(t, root.Mkdir("d", 0o700))
		require.NoError(t, root.Mkdir("e", 0))
		below, err := root.OpenRoot("d")
		require.NoError(t, err)
		require.NoError(t, root.Close())
		root = below
	}
	require.NoError(t, root.Close())
	require.NoError(t, clearTree(dir))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}
