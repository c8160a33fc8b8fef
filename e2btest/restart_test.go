//go:build linux || darwin

package e2btest_test

import (
	"cmp"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
)

// A restarted is a server that is started again and again on one directory.
type restarted struct {
	*testing.T
	opts   e2btest.Options
	server *e2btest.Server
	client *e2b.Client
}

func newRestarted(t *testing.T, opts e2btest.Options) *restarted {
	t.Helper()
	opts.StateDir = filepath.Join(t.TempDir(), "state")
	r := &restarted{T: t, opts: opts}
	r.start()
	t.Cleanup(r.end)
	return r
}

func (r *restarted) start() {
	r.Helper()
	var err error
	r.server, err = e2btest.NewServer(&r.opts)
	require.NoError(r, err)
	r.client, err = e2b.NewClient(r.server.ClientOptions())
	require.NoError(r, err)
}

func (r *restarted) end() {
	r.Helper()
	r.client.CloseIdleConnections()
	require.NoError(r, r.server.Close())
}

func (r *restarted) restart() {
	r.Helper()
	r.end()
	r.start()
}

func (r *restarted) connect(id string) *e2b.Sandbox {
	r.Helper()
	sbx, err := r.client.Connect(r.Context(), id, nil)
	require.NoError(r, err)
	return sbx
}

func (r *restarted) run(sbx *e2b.Sandbox, command string) string {
	r.Helper()
	result, err := sbx.Commands.Run(r.Context(), command, nil)
	require.NoError(r, err)
	return string(result.Stdout)
}

// TestRestart keeps what a user would miss.
func TestRestart(t *testing.T) {
	t.Parallel()
	r := newRestarted(t, e2btest.Options{Templates: []string{"mine"}})
	ctx, key := t.Context(), r.server.APIKey()
	_, err := r.client.CreateVolume(ctx, "shared")
	require.NoError(t, err)
	_, err = r.client.CreateSecret(ctx, "secret", e2b.NewToken("value"), &e2b.SecretOptions{Metadata: map[string]string{"k": "v"}})
	require.NoError(t, err)
	private := false
	paused, err := r.client.Create(ctx, &e2b.CreateOptions{
		Template: "mine", Timeout: time.Hour, OnTimeout: e2b.TimeoutPause, Env: map[string]string{"COLOUR": "blue"},
		Metadata: map[string]string{"of": "paused"}, Network: &e2b.Network{AllowPublicTraffic: &private},
		Volumes: map[string]string{"/data/shared": "shared"},
	})
	require.NoError(t, err)
	require.NoError(t, paused.Files.Write(ctx, "note", []byte("1"), nil))
	isolated, _ := r.server.Isolated()
	if isolated {
		r.run(paused, "echo content >/data/shared/file")
	}
	snapshot, err := paused.Snapshot(ctx, &e2b.SnapshotOptions{Name: "kept"})
	require.NoError(t, err)
	require.NoError(t, paused.Files.Write(ctx, "note", []byte("2"), nil))
	_, err = paused.Pause(ctx, nil)
	require.NoError(t, err)
	running, err := r.client.Create(ctx, &e2b.CreateOptions{Template: snapshot.ID, Timeout: time.Hour})
	require.NoError(t, err)
	sleeping, err := running.Commands.Start(ctx, "sleep 1000", nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sleeping.Close()) })
	killed, err := r.client.Create(ctx, nil)
	require.NoError(t, err)
	_, err = killed.Kill(ctx)
	require.NoError(t, err)
	r.server.Advance(time.Minute)
	before, err := paused.Info(ctx)
	require.NoError(t, err)

	for range 2 {
		r.restart()
		require.Equal(t, key, r.server.APIKey())
		after, err := r.client.Info(ctx, paused.ID())
		require.NoError(t, err)
		require.Equal(t, before, after)
		info, err := r.client.Info(ctx, running.ID())
		require.NoError(t, err)
		require.Equal(t, e2b.StatePaused, info.State)
		require.WithinRange(t, info.EndAt, before.EndAt.Add(time.Minute-time.Millisecond), before.EndAt.Add(time.Hour))
		_, err = r.client.Info(ctx, killed.ID())
		require.ErrorIs(t, err, e2b.ErrSandboxNotFound)
		secret, err := r.client.Secret(ctx, "secret")
		require.NoError(t, err)
		require.Equal(t, map[string]string{"k": "v"}, secret.Metadata)
	}

	again := r.connect(paused.ID())
	require.Equal(t, paused.TrafficAccessToken().Reveal(), again.TrafficAccessToken().Reveal())
	require.Equal(t, "2blue", r.run(again, `cat note; echo -n "$COLOUR"`))
	require.Equal(t, "1blue", r.run(r.connect(running.ID()), `cat note; echo -n "$COLOUR"`))
	other, err := r.client.Create(ctx, &e2b.CreateOptions{Template: "kept", Volumes: map[string]string{"/v": "shared"}})
	require.NoError(t, err)
	require.Equal(t, "1", r.run(other, "cat note"))
	if isolated {
		require.Equal(t, "content\ncontent\n", r.run(again, "cat /data/shared/file")+r.run(other, "cat /v/file"))
	}

	// What is deleted then stays away.
	for _, id := range []string{paused.ID(), running.ID(), other.ID()} {
		_, err := r.client.Kill(ctx, id)
		require.NoError(t, err)
	}
	require.NoError(t, r.client.DeleteSnapshot(ctx, snapshot.ID))
	r.restart()
	require.Empty(t, r.server.Sandboxes())
	entries, err := os.ReadDir(filepath.Join(r.opts.StateDir, "sandboxes"))
	require.NoError(t, err)
	if isolated {
		require.Len(t, entries, 1)
		require.Equal(t, ".volumes", entries[0].Name())
	} else {
		require.Empty(t, entries)
	}
}

// TestRestartWithAnotherEnvd keeps the versions of what there is.
func TestRestartWithAnotherEnvd(t *testing.T) {
	t.Parallel()
	r := newRestarted(t, e2btest.Options{EnvdVersion: "0.5.4"})
	create := func(template string) *e2b.Sandbox {
		sbx, err := r.client.Create(t.Context(), &e2b.CreateOptions{Template: template})
		require.NoError(t, err)
		return sbx
	}
	snapshot := func(sbx *e2b.Sandbox, name string) {
		_, err := sbx.Snapshot(t.Context(), &e2b.SnapshotOptions{Name: name})
		require.NoError(t, err)
	}
	kept := create("base")
	snapshot(kept, "old")
	snapshot(kept, "replaced")
	ofOld := create("old")
	for _, version := range []string{"", "0.5.0"} {
		r.opts.EnvdVersion = version
		r.restart()
		require.Equal(t, "0.5.4", r.connect(kept.ID()).EnvdVersion())
		require.Equal(t, "0.5.4", r.connect(ofOld.ID()).EnvdVersion())
		info, err := r.client.Info(t.Context(), kept.ID())
		require.NoError(t, err)
		require.Equal(t, "0.5.4", info.EnvdVersion)
		fromOld := create("old")
		require.Equal(t, "0.5.4", fromOld.EnvdVersion())
		// What came with 0.5.5 is missing in all of them.
		for _, sbx := range []*e2b.Sandbox{r.connect(kept.ID()), fromOld} {
			resp := ask(t, http.MethodPost, r.server.SandboxURL()+"/files/compose",
				"E2b-Sandbox-Id", sbx.ID(), "E2b-Sandbox-Port", "49983", "X-Access-Token", sbx.Record().EnvdAccessToken.Reveal())
			require.Equal(t, http.StatusNotFound, resp.StatusCode)
		}
		want := cmp.Or(version, "0.6.13")
		fresh := create("base")
		require.Equal(t, want, fresh.EnvdVersion())
		snapshot(fresh, "replaced")
		require.Equal(t, want, create("replaced").EnvdVersion())
	}
}

// TestStateDirIsRefused where it is not a server's, or another's, and nothing in it is
// touched.
func TestStateDirIsRefused(t *testing.T) {
	t.Parallel()
	r := newRestarted(t, e2btest.Options{})
	_, err := r.client.Create(t.Context(), nil)
	require.NoError(t, err)
	_, err = e2btest.NewServer(&r.opts)
	require.ErrorContains(t, err, "StateDir: "+r.opts.StateDir+": another server uses it")
	_, err = e2btest.NewServer(&e2btest.Options{StateDir: r.opts.StateDir, Dir: t.TempDir()})
	require.ErrorContains(t, err, "both Dir and StateDir")
	require.NoError(t, r.server.Close())

	file := filepath.Join(r.opts.StateDir, "state.json")
	good, err := os.ReadFile(file)
	require.NoError(t, err)
	count := func() int {
		entries, err := os.ReadDir(filepath.Join(r.opts.StateDir, "sandboxes"))
		require.NoError(t, err)
		return len(entries)
	}
	require.Equal(t, 1, count())
	for text, say := range map[string]string{
		"":                             "unexpected end of JSON input",
		"{":                            "unexpected end of JSON input",
		`{"version":2,"new":true}`:     "version 2 of the format",
		`{"version":1,"other":true}`:   `unknown field "other"`,
		string(good) + "{}":            "invalid character",
		`{"version":1,"secrets":[{}]}`: "its secret for tokens has 0 bytes",
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err = e2btest.NewServer(&r.opts)
		require.ErrorContains(t, err, "StateDir: "+file+": ", text)
		require.ErrorContains(t, err, say)
		require.Equal(t, 1, count(), "nothing was removed")
		left, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, text, string(left))
	}
	require.NoError(t, os.Remove(file))
	_, err = e2btest.NewServer(&r.opts)
	require.ErrorContains(t, err, "it is not the directory of a server")
	require.Equal(t, 1, count())

	require.NoError(t, os.WriteFile(file, good, 0o600))
	r.start()
	require.Len(t, r.server.Sandboxes(), 1)

	foreign := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(foreign, "thesis.tex"), nil, 0o600))
	_, err = e2btest.NewServer(&e2btest.Options{StateDir: foreign})
	require.ErrorContains(t, err, foreign+" has thesis.tex in it and no state.json")
	entries, err := os.ReadDir(foreign)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}
