//go:build linux || darwin

package box

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/agent"
)

func TestLayoutShows(t *testing.T) {
	l := &layout{
		binds: []agent.Bind{{Path: "/usr"}},
		links: []layoutLink{{"/bin", "usr/bin"}, {"/var/run", "/run"}},
	}
	for path, want := range map[string]bool{
		"/usr": true, "/usr/bin/python3": true, "/bin/python3": true,
		"/usrx": false, "/": false, "/home": false, "/var/run/x": false,
	} {
		require.Equal(t, want, l.shows(path), path)
	}
}

func TestLayoutInterpreter(t *testing.T) {
	prefix := t.TempDir()
	l := &layout{binds: []agent.Bind{{Path: "/usr"}}}
	py := &interpreter{Executable: filepath.Join(prefix, "bin/python3"), Prefixes: []string{prefix, prefix}}
	require.NoError(t, l.addInterpreter(py))
	require.Equal(t, []agent.Bind{{Path: "/usr"}, {Path: prefix, Optional: true}}, l.binds)
	require.NoError(t, l.addInterpreter(&interpreter{Executable: "/usr/bin/python3", Prefixes: []string{"/usr"}}))
	require.Len(t, l.binds, 2)

	require.Error(t, l.addInterpreter(&interpreter{Executable: "/elsewhere/python3", Prefixes: []string{"/usr"}}))
	require.Error(t, l.addInterpreter(&interpreter{Executable: "/no/python3", Prefixes: []string{"/no"}}))
}

// The modes of files do not depend on the umask of the emulator.
func TestLayoutUmask(t *testing.T) {
	l, err := newLayout(nil, standardPath, true, false)
	require.NoError(t, err)
	modes := func(umask int) map[string]os.FileMode {
		old := unix.Umask(umask)
		defer unix.Umask(old)
		root := filepath.Join(t.TempDir(), "root")
		require.NoError(t, l.create(root, true))
		found := make(map[string]os.FileMode)
		for _, d := range l.dirs {
			info, err := os.Stat(filepath.Join(root, d.path))
			require.NoError(t, err)
			require.Equal(t, d.mode, info.Mode()&^os.ModeDir, d.path)
			found[d.path] = info.Mode()
		}
		for _, f := range l.files {
			info, err := os.Stat(filepath.Join(root, f.path))
			require.NoError(t, err)
			require.Equal(t, f.mode, info.Mode(), f.path)
			found[f.path] = info.Mode()
		}
		return found
	}
	require.Equal(t, modes(0o022), modes(0o077))
	require.Equal(t, modes(0o022), modes(0))
}

func TestRemoveTree(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o755))
	keep := filepath.Join(t.TempDir(), "keep")
	require.NoError(t, os.WriteFile(keep, nil, 0o600))
	require.NoError(t, os.Symlink(keep, filepath.Join(dir, "a/b/link")))
	require.NoError(t, os.Chmod(filepath.Join(dir, "a/b/c"), 0))
	require.NoError(t, os.Chmod(filepath.Join(dir, "a/b"), 0))
	require.NoError(t, os.Chmod(filepath.Join(dir, "a"), 0))
	require.NoError(t, removeTree(dir))
	require.NoDirExists(t, dir)
	require.FileExists(t, keep)
	require.NoError(t, removeTree(dir), "nothing is there")
}
