//go:build linux || darwin

package envd

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
)

// TestSwitchedUser is about what only root can do: commands with the credentials
// of someone else, and files that belong to them.
func TestSwitchedUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("not root: nobody else to be")
		return
	}
	const uid, gid, extra = 65534, 65533, 65532
	w := newWorld(t, func(c *Config) {
		u := &c.Users[1]
		u.UID, u.GID, u.Groups, u.Switch = uid, gid, []uint32{extra}, true
	})
	for dir := w.root; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		require.NoError(t, os.Chmod(dir, 0o755)) // TempDir lets in nobody else
	}
	require.NoError(t, os.Chown(w.home, uid, gid))
	r := w.run(t, "id -u; id -g; id -G; touch made")
	require.Equal(t, "65534\n65533\n65533 65532\n", r.out.String())
	w.put(t, "a/b/up", "x")
	require.NoError(t, w.mkdir(t, "c/d"))
	w.put(t, "p", "x")
	res, body := w.do(t, "POST", "/files/compose", strings.NewReader(`{"source_paths":["p"],"destination":"e/composed"}`))
	require.Equal(t, 200, res.StatusCode, body)
	for _, name := range []string{"made", "a", "a/b", "a/b/up", "c", "c/d", "e", "e/composed"} {
		fi, err := os.Lstat(filepath.Join(w.home, name))
		require.NoError(t, err)
		u, g, ok := owner(fi)
		require.True(t, ok)
		require.Equal(t, []uint32{uid, gid}, []uint32{u, g}, name)
		e, err := w.stat(t, name)
		require.NoError(t, err)
		require.Equal(t, "user", e.GetOwner())
		require.Equal(t, "user", e.GetGroup())
	}

	// The terminal is usable, too.
	msg := shell("id -u; tty >/dev/null && echo terminal")
	msg.Pty = &process.PTY{}
	r = w.start(t, msg)
	require.Zero(t, r.finished().GetExitCode())
	require.Equal(t, "65534\r\nterminal\r\n", r.out.String())

	// Only commands are kept out by permissions; the file services are not.
	closed := filepath.Join(w.root, "closed")
	require.NoError(t, os.Mkdir(closed, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(closed, "f"), []byte("x"), 0o600))
	res, body = w.get(t, closed+"/f")
	require.Equal(t, 200, res.StatusCode, body)
	stream, err := w.procs.Start(t.Context(), connect.NewRequest(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "true", Cwd: &closed}}))
	require.NoError(t, err)
	require.False(t, stream.Receive())
	requireCode(t, connect.CodeInvalidArgument, "error starting process 'true': fork/exec /bin/sh: permission denied", stream.Err())
	require.NoError(t, stream.Close())
	require.NotZero(t, w.run(t, "cat "+closed+"/f").end.GetExitCode())

	// A failure to give a file away is one that is told.
	require.ErrorIs(t, w.srv.own(filepath.Join(w.home, "none"), w.srv.user("user")), fs.ErrNotExist)
	require.NoError(t, w.srv.own(filepath.Join(w.home, "none"), w.srv.user("root")))
}
