package box_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/box"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
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
		for _, target := range []string{"/usr/share", "/proc/self", "/dev", "/proc/self/root/mnt"} {
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
	if out, _, err := g.try(t.Context(), "user", "unshare --version"); err != nil || !strings.Contains(out, "util-linux") {
		if os.Getenv("CI") == "true" {
			t.Fatal("CI must have unshare of util-linux: ", out, err)
		}
		t.Skip("there is no unshare of util-linux: ", out, err)
	}
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

// What the emulator was started with is not for sandboxes.
func TestKeysOfTheSession(t *testing.T) {
	defaultMode.shared(t)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), helperVariable+"=session")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// A session whose keys were revoked at its end, as those of a login are that a terminal
// outlives, is no obstacle.
func TestRevokedKeysOfTheSession(t *testing.T) {
	defaultMode.shared(t)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), helperVariable+"=revoked")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// revoked is a helper that has a session that has ended, and needs a sandbox.
func revoked() error {
	if len(os.Args) == 1 {
		runtime.LockOSThread()
		if _, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0); err != nil {
			return err
		}
		if _, err := unix.KeyctlInt(unix.KEYCTL_REVOKE, unix.KEY_SPEC_SESSION_KEYRING, 0, 0, 0); err != nil {
			return err
		}
		return unix.Exec("/proc/self/exe", append(os.Args, "go on"), os.Environ())
	}
	if _, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false); !errors.Is(err, unix.EKEYREVOKED) {
		return fmt.Errorf("the session has not ended: %w", err)
	}
	n, err := box.New(box.Options{RequireIsolation: true}) // it has started one
	if err != nil {
		return err
	}
	if err := n.Close(); err != nil {
		return err
	}
	os.Exit(0)
	return nil
}

// session is a helper that has a session with a key, and looks for it from a sandbox.
func session() error {
	if len(os.Args) > 1 {
		key, err := unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", os.Args[1], 0)
		if errors.Is(err, unix.ENOKEY) {
			os.Exit(0)
		}
		return errors.Join(fmt.Errorf("the sandbox has the key %d", key), err)
	}
	runtime.LockOSThread()
	if _, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0); err != nil {
		return err
	}
	if _, err := unix.AddKey("user", "e2btest-box-key", []byte("value"), unix.KEY_SPEC_SESSION_KEYRING); err != nil {
		return err
	}
	// The session is that of this thread, and of the program that it becomes.
	if err := os.Setenv(helperVariable, "in session"); err != nil {
		return err
	}
	return unix.Exec("/proc/self/exe", os.Args, os.Environ())
}

// inSession goes on with it.
func inSession() error {
	n, err := box.New(box.Options{})
	if err != nil {
		return err
	}
	s, err := n.Start(context.Background(), spec)
	if err == nil {
		err = searchKey(s)
	}
	if err := errors.Join(err, n.Close()); err != nil {
		return err
	}
	os.Exit(0)
	return nil
}

func searchKey(s node.Sandbox) error {
	if _, err := unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", "e2btest-box-key", 0); err != nil {
		return err
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(box.Root(s), "tmp/helper"), self, 0o755); err != nil {
		return err
	}
	out, code, err := newGuest(s).try(context.Background(), "root", helperVariable+"=session /tmp/helper e2btest-box-key")
	if code != 0 {
		err = errors.Join(fmt.Errorf("exit code %d: %s", code, out), err)
	}
	return err
}

// addKey is a helper that adds a key to those of its user.
func addKey() error {
	if _, err := unix.AddKey("user", os.Args[1], []byte("value"), unix.KEY_SPEC_USER_KEYRING); err != nil {
		return err
	}
	os.Exit(0)
	return nil
}

// The agent's program is a file of the host, whose mode root of a sandbox could change if
// it ran there.
func TestOwnProgramIsNotRun(t *testing.T) {
	n := defaultMode.shared(t)
	g := start(t, n, "guest")
	g.runAs(t, "root", "PATH=/usr/bin; rm /bin; mkdir /bin; ln -s /usr/bin/sh /bin/; cd /bin && ln -s sh bash")
	for _, script := range []string{
		"/usr/bin/ln -sf /proc/self/exe /bin/sh",
		"/usr/bin/rm /bin/sh; echo '#!/proc/self/exe' >/bin/sh; /usr/bin/chmod +x /bin/sh",
	} {
		_, code, err := g.start(t.Context(), "root", &process.StartRequest{
			Process: &process.ProcessConfig{Cmd: "/usr/bin/bash", Args: []string{"-c", script}},
		})
		require.NoError(t, err)
		require.Zero(t, code)
		_, _, err = g.try(t.Context(), "root", "true")
		require.ErrorContains(t, err, "fork/exec /bin/sh: permission denied")
		require.NoError(t, os.Remove(filepath.Join(box.Root(g.Sandbox), "bin/sh")))
		require.NoError(t, os.Symlink("/usr/bin/sh", filepath.Join(box.Root(g.Sandbox), "bin/sh")))
	}
}

// Whose file has been removed since it was started can start sandboxes all the same.
func TestProgramWithoutFile(t *testing.T) {
	self, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	program := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(program, self, 0o755))
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), helperVariable+"=removed")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// removed is a helper that removes its program and starts a sandbox.
func removed() (err error) {
	if err := os.Remove(os.Args[0]); err != nil {
		return err
	}
	n, err := box.New(box.Options{})
	if err != nil {
		return err
	}
	s, err := n.Start(context.Background(), spec)
	if err == nil {
		var code int
		if _, code, err = newGuest(s).try(context.Background(), "root", "true"); code != 0 {
			err = errors.Join(fmt.Errorf("exit code %d", code), err)
		}
	}
	if err := errors.Join(err, n.Close()); err != nil {
		return err
	}
	os.Exit(0)
	return nil
}
