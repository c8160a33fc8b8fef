//go:build linux || darwin

package statedir

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A child that is just being started has all files of its parent open.
func TestCloseUnlocksForAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	d, err := Open(path, "{}")
	require.NoError(t, err)
	_, err = Open(path, "{}")
	require.ErrorContains(t, err, "another server uses it")
	child, err := unix.Dup(int(d.lock.Fd()))
	require.NoError(t, err)
	defer unix.Close(child)
	require.NoError(t, d.Close())
	d, err = Open(path, "{}")
	require.NoError(t, err)
	require.NoError(t, d.Close())
}
