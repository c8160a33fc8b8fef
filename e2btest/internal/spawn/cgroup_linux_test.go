package spawn

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Whoever opened the directory need not keep it: a file that nobody has any more is
// closed, and its number is soon that of another.
func TestCgroupStaysOpen(t *testing.T) {
	t.Cleanup(func() { cgroup.Store(nil) })
	fd := func() int {
		dir, err := os.Open(t.TempDir())
		require.NoError(t, err)
		IntoCgroup(dir)
		return int(dir.Fd())
	}()
	for range 3 {
		runtime.GC()
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	require.NoError(t, err)
}
