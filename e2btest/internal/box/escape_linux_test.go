package box_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/box"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// absent fails the test if the host has a file, and removes it.
func absent(t *testing.T, path string) {
	t.Helper()
	_, err := os.Lstat(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	t.Cleanup(func() {
		_, err := os.Lstat(path)
		require.ErrorIs(t, err, os.ErrNotExist, "the host has %s", path)
		_ = os.Remove(path)
	})
}

// Nothing is mounted in what is the host's: the directory for it would be made there.
func TestVolumesInSystemDirectories(t *testing.T) {
	n := defaultMode.shared(t)
	absent(t, "/usr/share/box-test-volume")
	for _, path := range []string{"/usr/share/box-test-volume", "/usr", "/proc", "/proc/sys", "/dev/shm/x", "/sys"} {
		spec := spec
		spec.ID, spec.Volumes = "volumes", []node.Volume{{ID: "v", Path: path}}
		_, err := n.Start(t.Context(), spec)
		refused := new(node.RefusedError)
		require.ErrorAs(t, err, &refused, path)
		require.Contains(t, refused.Text, path)
	}
	g := startWith(t, n, "volumes", node.Volume{ID: "v", Path: "/usr2/share"})
	g.runAs(t, "root", "touch /usr2/share/x")
}

// Links that a sandbox has put above what is mounted when it boots lead nowhere.
func TestLinksAboveMounts(t *testing.T) {
	n := defaultMode.fresh(t)
	t.Run("system", func(t *testing.T) {
		shown, err := filepath.Glob("/etc/*/")
		require.NoError(t, err)
		g := start(t, n, "system")
		script := "mv /etc /old && mkdir -p /mnt/etc && cp -a /old/passwd /old/group /mnt/etc/ && ln -s mnt/etc /etc"
		for _, dir := range shown {
			name := filepath.Base(dir)
			script += fmt.Sprintf(" && mkdir -p '/mnt/etc/%s'", name)
			absent(t, filepath.Join(dir, "box-test-file"))
		}
		g.runAs(t, "root", script)
		require.NoError(t, g.Pause(t.Context(), false))
		require.NoError(t, g.Resume(t.Context(), true))
		for _, dir := range shown {
			g.runAs(t, "root", fmt.Sprintf("touch '/mnt/etc/%s/box-test-file'", filepath.Base(dir)))
		}
		g.fails(t, "root", "touch /usr/share/box-test-file")
	})
	t.Run("volume", func(t *testing.T) {
		absent(t, "/usr/share/box-test-volume")
		g := startWith(t, n, "volume", node.Volume{ID: "v", Path: "/data/box-test-volume"})
		for _, target := range []string{"/usr/share", "/proc/self", "/dev"} {
			g.runAs(t, "root", "rm -rf /old; mv /data /old; ln -s "+target+" /data")
			require.NoError(t, g.Pause(t.Context(), false))
			require.Error(t, g.Resume(t.Context(), true), target)
			require.NoError(t, os.Remove(filepath.Join(box.Root(g.Sandbox), "data")))
			require.NoError(t, g.Resume(t.Context(), true))
		}
	})
}

// Root of a sandbox is nobody special to the kernel, and cannot become somebody.
func TestNoRightsOfTheHost(t *testing.T) {
	n := defaultMode.shared(t)
	g := start(t, n, "guest")
	for _, user := range []string{"user", "root"} {
		for _, command := range []string{
			"unshare --user true", "unshare --user --map-root-user --mount --cgroup mount -t cgroup -o pids none /mnt",
			"unshare --mount true", "unshare --net true", "unshare --cgroup true",
		} {
			require.Contains(t, g.fails(t, user, command), "unshare failed", command)
		}
	}
	g.runAs(t, "root", "cd /home/user && "+g.addHelper(t, "key")+" e2btest-box-key")
	_, err := unix.KeyctlSearch(unix.KEY_SPEC_USER_KEYRING, "user", "e2btest-box-key", 0)
	require.ErrorIs(t, err, unix.ENOKEY, "the keys of the host are the host's")
}

// addKey is a helper that adds a key to those of its user.
func addKey() error {
	if _, err := unix.AddKey("user", os.Args[1], []byte("value"), unix.KEY_SPEC_USER_KEYRING); err != nil {
		return err
	}
	os.Exit(0)
	return nil
}
