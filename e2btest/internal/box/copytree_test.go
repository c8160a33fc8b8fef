//go:build linux || darwin

package box

import (
	"context"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// write makes a file and the directories above it.
func write(t *testing.T, name, data string, mode fs.FileMode) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, []byte(data), 0o600))
	require.NoError(t, os.Chmod(name, mode))
}

// copied copies a tree and returns where to.
func copied(t *testing.T, src string) string {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, copyTree(t.Context(), src, dst))
	t.Cleanup(func() { require.NoError(t, removeTree(dst)) })
	return dst
}

func stat(t *testing.T, name string) (fs.FileInfo, *syscall.Stat_t) {
	t.Helper()
	info, err := os.Lstat(name)
	require.NoError(t, err)
	st, ok := info.Sys().(*syscall.Stat_t)
	require.True(t, ok)
	return info, st
}

func TestCopyTree(t *testing.T) {
	src := filepath.Join(t.TempDir(), "root")
	then := time.Date(2001, 2, 3, 4, 5, 6, 700, time.UTC)
	write(t, src+"/home/user/data.csv", "1,2\n", 0o640)
	write(t, src+"/bin/tool", "#!", 0o755|fs.ModeSetuid|fs.ModeSetgid)
	write(t, src+"/empty", "", 0o600)
	write(t, src+"/a\xffname", "no UTF-8", 0o600)
	require.NoError(t, os.Mkdir(src+"/tmp", 0o700))
	require.NoError(t, os.Chmod(src+"/tmp", 0o777|fs.ModeSticky))
	require.NoError(t, os.Link(src+"/home/user/data.csv", src+"/home/user/second"))
	require.NoError(t, os.Link(src+"/home/user/data.csv", src+"/third"))
	require.NoError(t, os.Symlink("data.csv", src+"/home/user/link"))
	require.NoError(t, os.Symlink("nowhere", src+"/dangling"))
	require.NoError(t, unix.Mkfifo(src+"/home/pipe", 0o620))
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", src+"/socket")
	require.NoError(t, err)
	defer l.Close()
	for _, name := range []string{"/home/user/data.csv", "/home", ""} {
		require.NoError(t, os.Chtimes(src+name, then, then))
	}
	if os.Geteuid() == 0 {
		require.NoError(t, os.Lchown(src+"/home/user/link", 1000, 1001))
		require.NoError(t, os.Lchown(src+"/bin/tool", 1000, 1000))
		require.NoError(t, os.Chmod(src+"/bin/tool", 0o755|fs.ModeSetuid|fs.ModeSetgid))
	}

	dst := copied(t, src)
	names := 0
	require.NoError(t, filepath.WalkDir(src, func(name string, _ fs.DirEntry, err error) error {
		require.NoError(t, err)
		name = strings.TrimPrefix(name, src)
		if name == "/socket" {
			require.NoFileExists(t, dst+name)
			return nil
		}
		names++
		want, st := stat(t, src+name)
		got, st2 := stat(t, dst+name)
		require.Equal(t, want.Mode(), got.Mode(), name)
		require.Equal(t, []uint32{st.Uid, st.Gid}, []uint32{st2.Uid, st2.Gid}, name)
		if want.Mode()&fs.ModeSymlink == 0 {
			require.Equal(t, want.ModTime(), got.ModTime(), name)
		}
		require.NotEqual(t, st.Ino, st2.Ino)
		if want.Mode().IsRegular() {
			data, err := os.ReadFile(src + name)
			require.NoError(t, err)
			copied, err := os.ReadFile(dst + name)
			require.NoError(t, err)
			require.Equal(t, string(data), string(copied))
			require.Equal(t, st.Nlink, st2.Nlink, name)
		}
		return nil
	}))
	require.Equal(t, 14, names)
	target, err := os.Readlink(dst + "/home/user/link")
	require.NoError(t, err)
	require.Equal(t, "data.csv", target)
}

// TestCopyTreeStaysInside copies links and never what they lead to.
func TestCopyTreeStaysInside(t *testing.T) {
	outside := t.TempDir()
	write(t, outside+"/secret", "open sesame", 0o644)
	src := filepath.Join(t.TempDir(), "root")
	require.NoError(t, os.Mkdir(src, 0o755))
	links := map[string]string{
		"file": outside + "/secret", "dir": outside, "up": "../..", "loop": "loop", "root": "/", "proc": "/proc/self/root",
	}
	for name, target := range links {
		require.NoError(t, os.Symlink(target, filepath.Join(src, name)))
	}
	dst := copied(t, src)
	entries, err := os.ReadDir(dst)
	require.NoError(t, err)
	require.Len(t, entries, len(links))
	for name, target := range links {
		got, err := os.Readlink(filepath.Join(dst, name))
		require.NoError(t, err)
		require.Equal(t, target, got)
	}
}

// TestCopyTreeOfSomethingSwapped is for what processes do that do not stand still:
// a name may have become a link by the time that it is opened.
func TestCopyTreeOfSomethingSwapped(t *testing.T) {
	outside := t.TempDir()
	write(t, outside+"/secret", "open sesame", 0o644)
	src := t.TempDir()
	write(t, src+"/file", "", 0o644)
	write(t, src+"/dir/file", "", 0o644)
	from, err := os.OpenRoot(src)
	require.NoError(t, err)
	defer from.Close()
	file, _ := stat(t, src+"/file")
	dir, _ := stat(t, src+"/dir")
	require.NoError(t, os.RemoveAll(src+"/dir"))
	require.NoError(t, os.Remove(src+"/file"))
	require.NoError(t, os.Symlink(outside+"/secret", src+"/file"))
	require.NoError(t, os.Symlink(outside, src+"/dir"))
	dst := t.TempDir()
	to, err := os.OpenRoot(dst)
	require.NoError(t, err)
	defer to.Close()
	c := &copier{ctx: t.Context(), dst: dst + "/x", top: to, names: map[inode]string{}}
	require.Error(t, c.file(from, to, "file", "file", file))
	require.Error(t, c.directory(from, to, "dir", "dir", dir, 0))
	// And by another file.
	require.NoError(t, os.Remove(src+"/file"))
	write(t, src+"/other", "", 0o644)
	require.NoError(t, os.Rename(src+"/other", src+"/file"))
	write(t, src+"/other", "", 0o644)
	require.ErrorIs(t, c.file(from, to, "other", "other", file), fs.ErrNotExist)
	entries, err := os.ReadDir(dst)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// TestCopyTreeOfWhatCannotBeRead is for sandboxes whose owner is nobody special.
func TestCopyTreeOfWhatCannotBeRead(t *testing.T) {
	src := filepath.Join(t.TempDir(), "root")
	write(t, src+"/dir/file", "data", 0)
	write(t, src+"/dir/deep/file", "data", 0o200)
	require.NoError(t, os.Chmod(src+"/dir/deep", 0))
	require.NoError(t, os.Chmod(src+"/dir", 0o100))
	dst := copied(t, src)
	for _, tree := range []string{src, dst} {
		for _, entry := range []struct {
			name string
			mode fs.FileMode
		}{{"/dir", 0o100}, {"/dir/deep", 0}, {"/dir/deep/file", 0o200}, {"/dir/file", 0}} {
			info, _ := stat(t, tree+entry.name)
			require.Equal(t, entry.mode, info.Mode().Perm(), tree+entry.name)
			require.NoError(t, os.Chmod(tree+entry.name, entry.mode|0o700))
		}
		data, err := os.ReadFile(tree + "/dir/deep/file")
		require.NoError(t, err)
		require.Equal(t, "data", string(data))
	}
}

func TestCopyTreeKeepsHoles(t *testing.T) {
	src := filepath.Join(t.TempDir(), "root")
	require.NoError(t, os.Mkdir(src, 0o755))
	const size int64 = 1 << 40 // it would take minutes to read
	f, err := os.Create(src + "/disk")
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("in the middle"), size/2)
	if err != nil {
		t.Skip("this file system has no such files: ", err)
	}
	if f.Truncate(size) != nil {
		t.Skip("this file system has no such files")
	}
	require.NoError(t, f.Close())
	if _, st := stat(t, src+"/disk"); st.Blocks*512 > size/2 {
		t.Log("this file system has no holes")
		return
	}
	dst := copied(t, src)
	info, st := stat(t, dst+"/disk")
	require.EqualValues(t, size, info.Size())
	require.Less(t, st.Blocks*512, int64(1<<20))
	f, err = os.Open(dst + "/disk")
	require.NoError(t, err)
	defer f.Close()
	b := make([]byte, 13)
	_, err = f.ReadAt(b, size/2)
	require.NoError(t, err)
	require.Equal(t, "in the middle", string(b))
}

func TestCopyTreeKeepsAttributes(t *testing.T) {
	src := filepath.Join(t.TempDir(), "root")
	write(t, src+"/file", "data", 0o600)
	if err := unix.Setxattr(src+"/file", "user.e2b.a", []byte("1"), 0); err != nil {
		require.ErrorIs(t, err, unix.ENOTSUP)
		t.Log("this file system has no attributes")
		return
	}
	require.NoError(t, unix.Setxattr(src, "user.e2b.b", nil, 0))
	require.NoError(t, os.Chmod(src+"/file", 0o400))
	dst := copied(t, src)
	b := make([]byte, 10)
	n, err := unix.Getxattr(dst+"/file", "user.e2b.a", b)
	require.NoError(t, err)
	require.Equal(t, "1", string(b[:n]))
	n, err = unix.Getxattr(dst, "user.e2b.b", b)
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestCopyTreeFails(t *testing.T) {
	src := filepath.Join(t.TempDir(), "root")
	write(t, src+"/file", "data", 0o600)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, copyTree(ctx, src, t.TempDir()+"/copy"), context.Canceled)
	require.ErrorIs(t, copyTree(t.Context(), src+"/none", t.TempDir()+"/copy"), fs.ErrNotExist)
	require.ErrorIs(t, copyTree(t.Context(), src, t.TempDir()), fs.ErrExist)
	write(t, src+strings.Repeat("/d", maxDepth+2), "", 0o600)
	require.ErrorContains(t, copyTree(t.Context(), src, t.TempDir()+"/copy"), "more than 500")
}
