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
	for _, path := range []string{"/proc/version", fmt.Sprintf("/proc/%d/cmdline", child.pid), "/bin/sh"} {
		_, text := w.do(t, http.MethodGet, "/files?path="+path, nil)
		require.NotContains(t, text, "permission denied", path) // though not all of /proc can be served
	}
}
