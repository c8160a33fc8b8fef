package envd

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The server is a process of the sandbox that comes from outside: its own files are not
// the sandbox's.
func TestOwnFilesAreNotServed(t *testing.T) {
	w := newWorld(t, host)
	pid := os.Getpid()
	require.NoError(t, os.Symlink("/proc/self/exe", w.home+"/link"))
	for _, path := range []string{
		"/proc/self/exe", fmt.Sprintf("/proc/%d/exe", pid), fmt.Sprintf("/proc/%d/task/%d/exe", pid, pid), "link",
		"/proc/self/maps", "/proc/self/mountinfo", "/proc/self/mem", "/proc/thread-self/environ", fmt.Sprintf("/proc/%d/cmdline", pid),
	} {
		res, text := w.do(t, http.MethodGet, "/files?path="+path, nil)
		require.Equal(t, http.StatusInternalServerError, res.StatusCode, "%s: %s", path, text)
		require.Contains(t, text, "permission denied", path)
		res, text = w.do(t, http.MethodPost, "/files?path="+path, strings.NewReader("x"), "Content-Type", "application/octet-stream")
		require.GreaterOrEqual(t, res.StatusCode, 400, "%s: %s", path, text)
	}
	// What is not about it is.
	child := w.start(t, shell("sleep 600"))
	for _, path := range []string{"/proc/version", "/proc/net/tcp", "/proc/mounts", fmt.Sprintf("/proc/%d/cmdline", child.pid), "/bin/sh"} {
		_, text := w.do(t, http.MethodGet, "/files?path="+path, nil)
		require.NotContains(t, text, "permission denied", path) // though not all of /proc can be served
	}
}

// Nor is what the server has open, through which a path could lead out of the sandbox.
func TestDescriptorsAreNotServed(t *testing.T) {
	w := newWorld(t, host)
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(outside+"/file", []byte("x"), 0o600))
	dir, err := os.Open(outside)
	require.NoError(t, err)
	defer dir.Close()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer read.Close()
	defer write.Close()
	below := fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
	require.NoError(t, os.Symlink(below, w.home+"/link"))
	for _, path := range []string{
		below + "/file", "link/file", "link/new/file", fmt.Sprintf("/proc/%d/fd/%d/file", os.Getpid(), dir.Fd()),
		fmt.Sprintf("/proc/self/fd/%d", read.Fd()), fmt.Sprintf("/dev/fd/%d", write.Fd()), "/proc/self/cwd/new",
	} {
		res, text := w.do(t, http.MethodGet, "/files?path="+path, nil)
		require.Equal(t, http.StatusInternalServerError, res.StatusCode, "%s: %s", path, text)
		res, text = w.do(t, http.MethodPost, "/files?path="+path, strings.NewReader("y"), "Content-Type", "application/octet-stream")
		require.Equal(t, http.StatusInternalServerError, res.StatusCode, "%s: %s", path, text)
		require.Contains(t, text, "permission denied", path)
	}
	tree := hostTree{}
	for name, err := range map[string]error{
		"mkdir":     tree.mkdir(below+"/new", 0o755),
		"remove":    tree.remove(below + "/file"),
		"removeAll": tree.removeAll(below + "/file"),
		"lchown":    tree.lchown(below+"/file", 1, 1),
		"from":      tree.rename(below+"/file", w.home+"/file"),
		"to":        tree.rename(w.home+"/link", below+"/link"),
	} {
		require.ErrorIs(t, err, os.ErrPermission, name)
	}
	_, err = tree.readDir(below)
	require.ErrorIs(t, err, os.ErrPermission)
	require.NoError(t, tree.remove(w.home+"/link"), "the link itself is the sandbox's")
	data, err := os.ReadFile(outside + "/file")
	require.NoError(t, err)
	require.Equal(t, "x", string(data))
}
