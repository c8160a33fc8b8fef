//go:build linux || darwin

package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSizeOf(t *testing.T) {
	dir := t.TempDir()
	empty := sizeOf(dir)
	const size = 3 << 20
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o755))
	name := filepath.Join(dir, "a/b/file")
	require.NoError(t, os.WriteFile(name, bytes.Repeat([]byte("x"), size), 0o600))
	require.NoError(t, os.Link(name, filepath.Join(dir, "same")))
	require.NoError(t, os.Symlink(os.TempDir(), filepath.Join(dir, "link")))
	require.InDelta(t, size, sizeOf(dir)-empty, 64<<10)
	require.Zero(t, sizeOf(filepath.Join(dir, "missing")))
}

// A disk is not measured again at once, and shows what is new in the end.
func TestDiskIsMeasuredAgain(t *testing.T) {
	dir := t.TempDir()
	d := disk{dir: dir}
	require.Eventually(t, func() bool { return d.used() == sizeOf(dir) }, treeTimeout, 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), bytes.Repeat([]byte("x"), 1<<20), 0o600))
	require.Eventually(t, func() bool { return d.used() >= 1<<20 }, treeTimeout, 1)
}
