package e2b_test

import (
	"errors"
	"io"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

func TestFS(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	run(t, sbx, `mkdir -p tree/sub/deep tree/empty && cd tree && printf hello > a.txt && : > sub/zero && printf deep > sub/deep/x &&
		ln -s ../a.txt sub/link && ln -s sub dirlink && chmod 600 a.txt && printf '\303\274' > 'odd name ü'`)
	fsys := sbx.Files.FS(t.Context(), "tree")
	require.NoError(t, fstest.TestFS(fsys, "a.txt", "sub/zero", "sub/deep/x", "sub/link", "dirlink", "empty", "odd name ü"))
	sub, err := fs.Sub(fsys, "sub")
	require.NoError(t, err)
	require.NoError(t, fstest.TestFS(sub, "zero", "deep/x"))

	info, err := fs.Stat(fsys, "sub/link")
	require.NoError(t, err)
	require.Equal(t, "link", info.Name())
	require.Equal(t, int64(5), info.Size(), "a link is followed")
	require.Equal(t, fs.FileMode(0o600), info.Mode())
	b, err := fs.ReadFile(fsys, "sub/link")
	require.NoError(t, err)
	require.Equal(t, "hello", string(b))
	run(t, sbx, "ln -s nowhere tree/broken")
	for _, name := range []string{"broken", "missing", "a.txt/x"} {
		_, err = fs.Stat(fsys, name)
		require.ErrorIs(t, err, fs.ErrNotExist, name)
		_, err = fsys.Open(name)
		require.ErrorIs(t, err, fs.ErrNotExist, name)
		_, err = fs.ReadFile(fsys, name)
		require.ErrorIs(t, err, fs.ErrNotExist, name)
		_, err = fs.ReadDir(fsys, name)
		require.Error(t, err, name)
		var pe *fs.PathError
		require.ErrorAs(t, err, &pe)
		require.Equal(t, name, pe.Path)
	}
	_, err = fs.ReadDir(fsys, "a.txt")
	require.ErrorIs(t, err, e2b.ErrInvalidArgument)
	matches, err := fs.Glob(fsys, "*.txt")
	require.NoError(t, err)
	require.Equal(t, []string{"a.txt"}, matches)

	_, err = sbx.Kill(t.Context())
	require.NoError(t, err)
	_, err = fsys.Open("a.txt")
	require.ErrorIs(t, err, e2b.ErrSandboxNotRunning)
}

// Names that are none, and handles that are closed, make no request.
func TestFSRefuses(t *testing.T) {
	f := newFakeSandbox()
	sbx := f.inMemory(t)
	fsys := sbx.Files.FS(t.Context(), "/tree")
	for _, name := range []string{"", "/a", "../a", "a/../b", "a/"} {
		_, err := fsys.Open(name)
		require.ErrorIs(t, err, fs.ErrInvalid, name)
		_, err = fs.ReadDir(fsys, name)
		require.ErrorIs(t, err, fs.ErrInvalid, name)
		_, err = fs.ReadFile(fsys, name)
		require.ErrorIs(t, err, fs.ErrInvalid, name)
	}
	_, err := fs.Stat(sbx.Files.FS(t.Context(), ""), "x")
	require.ErrorIs(t, err, e2b.ErrInvalidArgument)
	require.Empty(t, f.requests(""))
}

func TestFSHandles(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	run(t, sbx, "mkdir -p d && cd d && printf 1 > a && printf 2 > b && printf 3 > c")
	fsys := sbx.Files.FS(t.Context(), "d")
	f, err := fsys.Open("a")
	require.NoError(t, err)
	require.NoError(t, f.Close(), "unread")
	require.ErrorIs(t, f.Close(), fs.ErrClosed)
	_, err = f.Read(make([]byte, 1))
	require.ErrorIs(t, err, fs.ErrClosed)
	_, err = f.Stat()
	require.ErrorIs(t, err, fs.ErrClosed)

	f, err = fsys.Open(".")
	require.NoError(t, err)
	_, err = f.Read(make([]byte, 1))
	require.Error(t, err)
	d, ok := f.(fs.ReadDirFile)
	require.True(t, ok)
	var names []string
	for {
		list, err := d.ReadDir(2)
		for _, e := range list {
			names = append(names, e.Name())
		}
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	require.Equal(t, []string{"a", "b", "c"}, names)
	require.NoError(t, d.Close())
	_, err = d.ReadDir(-1)
	require.ErrorIs(t, err, fs.ErrClosed)
}
