package box_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/box"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

func TestFiles(t *testing.T) {
	n := defaultMode.shared(t)
	a, b := start(t, n, "a"), start(t, n, "b")
	a.runAs(t, "user", "echo 1,2 >/data/sales.csv && touch /tmp/x /var/tmp/x")
	a.runAs(t, "root", "mkdir /new && echo hi >/new/file && echo x >>/etc/hosts && touch /root/x /var/lib/x")
	require.Equal(t, "1,2", a.runAs(t, "root", "cat /data/sales.csv"))
	data, err := os.ReadFile(filepath.Join(box.Root(a.Sandbox), "data/sales.csv"))
	require.NoError(t, err)
	require.Equal(t, "1,2\n", string(data))

	b.runAs(t, "root", "! ls /data/sales.csv /new /tmp/x /root/x 2>/dev/null && ! grep x /etc/hosts")

	require.NoError(t, a.Pause(t.Context(), false))
	require.NoError(t, a.Resume(t.Context(), true))
	require.Equal(t, "1,2 hi", a.runAs(t, "root", "echo $(cat /data/sales.csv /new/file); grep -q x /etc/hosts"))
}

func TestHostIsOutOfReach(t *testing.T) {
	n := defaultMode.shared(t)
	g := start(t, n, "a")

	t.Run("files", func(t *testing.T) {
		mine := filepath.Join(t.TempDir(), "mine")
		require.NoError(t, os.WriteFile(mine, nil, 0o666))
		self, err := os.Executable()
		require.NoError(t, err)
		for _, path := range []string{mine, self, box.Dir(n), "/etc/shadow"} {
			g.fails(t, "root", "ls "+path)
		}
		for _, path := range []string{"/usr/x", "/bin/x", "/etc/ssl/certs/x"} {
			require.Contains(t, g.fails(t, "root", "touch "+path), "ead-only file system", path)
		}
		g.fails(t, "root", "echo x >/proc/sys/kernel/hostname")
	})
	t.Run("root has no power", func(t *testing.T) {
		for _, command := range []string{
			"mount -o remount,rw,bind /usr",
			"mount -t tmpfs x /mnt",
			"umount /usr",
			"mknod /tmp/null c 1 3",
			"cat /proc/1/environ",
			"ls -l /proc/1/root/",
			"cat /proc/kmsg | grep .",
			"chmod 777 /dev/null",
			"chmod 777 /proc/kmsg",
		} {
			g.fails(t, "root", command)
		}
		require.Equal(t, "pid 1 lives", g.runAs(t, "root", "for s in {1..64}; do kill -$s 1; done 2>/dev/null; echo pid 1 lives"))
		require.Equal(t, "it does", g.run(t, "echo it does"))
	})
	t.Run("devices", func(t *testing.T) {
		for _, user := range []string{"user", "root"} {
			g.runAs(t, user, "echo x >/dev/null && head -c 9 /dev/zero /dev/urandom >/dev/null && : >/dev/shm/$USER && echo | cat /dev/stdin")
		}
	})
	t.Run("processes", func(t *testing.T) {
		other := start(t, n, "b")
		other.startCounter(t)
		pids := g.runAs(t, "root", "ls -d /proc/[0-9]*")
		// The agent, and the shell, which is replaced by ls.
		require.Len(t, strings.Fields(pids), 2, pids)
		require.Equal(t, "e2b.local", g.run(t, "cat /proc/sys/kernel/hostname"))
	})
	t.Run("descriptors", func(t *testing.T) {
		secret, err := os.Create(filepath.Join(t.TempDir(), "secret"))
		require.NoError(t, err)
		defer secret.Close()
		// One that is inherited by everything this process starts.
		fd, err := syscall.Dup(int(secret.Fd()))
		require.NoError(t, err)
		defer syscall.Close(fd)
		other := start(t, n, "c")
		require.NotContains(t, other.runAs(t, "root", "ls -l /proc/self/fd"), "secret")
		links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", box.PID(other.Sandbox)))
		require.NoError(t, err)
		require.NotEmpty(t, links)
		for _, link := range links {
			target, err := os.Readlink(link)
			if err == nil { // it may be gone already
				require.NotContains(t, target, "secret")
			}
		}
	})
}

func TestNetwork(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	connect := "exec 3<>/dev/tcp/127.0.0.1/" + port

	t.Run("own", func(t *testing.T) {
		n := defaultMode.shared(t)
		a, b := start(t, n, "a"), start(t, n, "b")
		a.fails(t, "user", connect)
		a.fails(t, "user", "exec 3<>/dev/tcp/192.0.2.1/80")
		// Programs inside reach the services of their sandbox.
		a.run(t, fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d", node.EnvdPort))
		a.run(t, fmt.Sprintf("exec 3<>/dev/tcp/localhost/%d", node.InterpreterPort))

		// Both may listen on the same port.
		for _, g := range []*guest{a, b} {
			require.Equal(t, "8080", g.run(t, g.addHelper(t, "echo")+" 127.0.0.1:8080"+waitForPort))
			conn, err := g.Dial(t.Context(), 8080)
			require.NoError(t, err)
			_, err = io.WriteString(conn, "x")
			require.NoError(t, err)
			_, err = io.ReadFull(conn, make([]byte, 1))
			require.NoError(t, err)
			require.NoError(t, conn.Close())
		}
	})
	t.Run("host", func(t *testing.T) {
		m := mode{opts: box.Options{HostNetwork: true}}
		n := m.fresh(t)
		g := start(t, n, "a")
		g.run(t, connect)
		portNumber, err := strconv.Atoi(port)
		require.NoError(t, err)
		conn, err := g.Dial(t.Context(), portNumber)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	})
}

func TestUsers(t *testing.T) {
	n := defaultMode.shared(t)
	g := start(t, n, "a")
	require.Equal(t, "/root", g.runAs(t, "root", "echo ~"))
	require.Equal(t, "/home/user /home/user", g.runAs(t, "user", "echo ~ ~user"))
	require.Equal(t, "0", g.runAs(t, "root", "id -u"))
	if os.Geteuid() != 0 {
		require.Equal(t, "0", g.runAs(t, "user", "id -u"), "there is one user")
		return
	}
	require.Equal(t, "user", g.runAs(t, "user", "whoami"))
	require.Equal(t, "user user", g.runAs(t, "root", "stat -c '%U %G' /home/user"))
	g.fails(t, "user", "touch /root/x")
	g.fails(t, "user", "touch /x")
}

// The sandbox of root must not be something that other users can use.
func TestPermissionsOutside(t *testing.T) {
	n := defaultMode.shared(t)
	g := start(t, n, "a")
	for _, dir := range []string{box.Dir(n), filepath.Dir(box.Root(g.Sandbox))} {
		info, err := os.Stat(dir)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), dir)
	}
}

// What root of a sandbox moves away is not missed at the next boot, unless it is
// the system.
func TestRebootAfterChanges(t *testing.T) {
	n := defaultMode.shared(t)
	g := start(t, n, "a")
	g.runAs(t, "root", "mv /etc /etc.old && mkdir /etc && cp -r /etc.old/passwd /etc.old/group /etc/")
	require.NoError(t, g.Pause(t.Context(), false))
	require.NoError(t, g.Resume(t.Context(), false))
	require.Equal(t, "ok", g.run(t, "echo ok"))
}

func TestOrphansAreReaped(t *testing.T) {
	n := defaultMode.shared(t)
	g := start(t, n, "a")
	for range 10 {
		g.run(t, "for i in 1 2 3 4; do (true & true &); done")
	}
	eventually(t, func() bool {
		return g.run(t, "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z ' || true") == "0"
	}, "zombies are left")
}

func TestDirInsideSystem(t *testing.T) {
	dir, err := os.MkdirTemp("/opt", "e2btest-test-") //nolint:usetesting // it must be in a directory of the system
	if errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist) {
		t.Skip("only root can write to a directory of the system: ", err)
	}
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	_, err = box.New(box.Options{Dir: dir, RequireIsolation: true})
	require.ErrorContains(t, err, "which sandboxes see")
}

func TestRequireIsolation(t *testing.T) {
	_, err := box.New(box.Options{Dir: t.TempDir(), NoIsolation: true, RequireIsolation: true})
	require.ErrorContains(t, err, "not wanted")
}

// TestUnprivileged runs as a user who is nobody those tests for which that makes a
// difference.
func TestUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("all tests run without privileges already")
	}
	const nobody = 65534
	// Not t.TempDir, which only root can enter.
	dir, err := os.MkdirTemp("/tmp", "box-test-") //nolint:usetesting // see above
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	require.NoError(t, os.Chmod(dir, 0o755))
	self, err := os.Executable()
	require.NoError(t, err)
	binary := filepath.Join(dir, "box.test")
	data, err := os.ReadFile(self)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(binary, data, 0o755))
	tmp := filepath.Join(dir, "tmp")
	require.NoError(t, os.Mkdir(tmp, 0o700))
	require.NoError(t, os.Chown(tmp, nobody, nobody))

	// Such a user can freeze nothing with a control group.
	const run = "-test.run=^Test(Run|Freeze|PauseFilesystemOnly|Kill|HostIsOutOfReach|NoRightsOfTheHost|Users)$" +
		"/^(signals|paused|isolated=true.*cgroup=false|own|host|files|root|devices|processes|descriptors)/^signals$"
	cmd := exec.CommandContext(t.Context(), binary, "-test.v", run)
	cmd.Dir = tmp
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + tmp, "TMPDIR=" + tmp, "CI=" + os.Getenv("CI")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}
