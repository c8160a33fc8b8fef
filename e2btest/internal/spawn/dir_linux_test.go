package spawn

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestGuardDirs(t *testing.T) {
	GuardDirs()
	t.Cleanup(func() { guarded.Store(false) })
	dir := t.TempDir()
	open, err := os.Open(dir)
	require.NoError(t, err)
	defer open.Close()
	own := fmt.Sprintf("/proc/self/fd/%d", open.Fd())
	require.NoError(t, os.Symlink(own, dir+"/own"))
	require.NoError(t, os.Symlink(".", dir+"/here"))
	require.NoError(t, os.WriteFile(dir+"/file", nil, 0o600))

	pwd := func(dir string, attr *unix.SysProcAttr) (string, error) {
		var out bytes.Buffer
		cmd := &exec.Cmd{Path: "/bin/sh", Args: []string{"sh", "-c", "/bin/pwd -P"}, Dir: dir, Stdout: &out, SysProcAttr: attr}
		if err := Start(cmd); err != nil {
			return "", err
		}
		require.Equal(t, dir, cmd.Dir)
		err := Wait(cmd)
		return out.String(), err
	}
	for _, name := range []string{"", dir, dir + "/here"} {
		_, err := pwd(name, nil)
		require.NoError(t, err, name)
	}
	for name, text := range map[string]string{
		own:           "fork/exec /bin/sh: too many levels of symbolic links",
		dir + "/own":  "fork/exec /bin/sh: too many levels of symbolic links",
		dir + "/file": "fork/exec /bin/sh: not a directory",
		dir + "/none": "fork/exec /bin/sh: no such file or directory",
	} {
		_, err := pwd(name, nil)
		require.EqualError(t, err, text)
	}
	if os.Geteuid() != 0 {
		return
	}
	// The rights are those of the command's user, above it and in it.
	closed, err := os.MkdirTemp("/tmp", "spawn-test-") //nolint:usetesting // where everyone gets to
	require.NoError(t, err)
	defer os.RemoveAll(closed)
	require.NoError(t, os.Mkdir(closed+"/in", 0o755))
	nobody := &unix.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	for _, name := range []string{closed, closed + "/in"} {
		_, err := pwd(name, nobody)
		require.EqualError(t, err, "fork/exec /bin/sh: permission denied")
		out, err := pwd(name, nil)
		require.NoError(t, err)
		require.Equal(t, name+"\n", out)
	}
	require.NoError(t, os.Chmod(closed, 0o711))
	out, err := pwd(closed+"/in", nobody)
	require.NoError(t, err)
	require.Equal(t, closed+"/in\n", out)
}
