package e2b_test

import (
	"context"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
)

// TestLogsOfTheEmulator are followed through the life of a sandbox.
func TestLogsOfTheEmulator(t *testing.T) {
	t.Parallel()
	_, client := e2btest.New(t, nil)
	sbx, err := client.Create(t.Context(), nil)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	steps := map[string]func() error{
		"Sandbox created": func() error { _, err := sbx.Pause(ctx, nil); return err },
		"Sandbox paused":  func() error { return sbx.Connect(ctx, nil) },
		"Sandbox resumed": func() error { _, err := sbx.Kill(ctx); return err },
	}
	var got []string
	for e, err := range sbx.FollowLogs(ctx, &e2b.FollowOptions{Interval: 10 * time.Millisecond}) {
		require.NoError(t, err)
		require.Equal(t, e2b.LogInfo, e.Level)
		require.Equal(t, sbx.ID(), e.Fields["sandboxID"])
		got = append(got, e.Message)
		step := steps[e.Message]
		if step == nil {
			break
		}
		require.NoError(t, step())
	}
	require.Equal(t, []string{"Sandbox created", "Sandbox paused", "Sandbox resumed", "Sandbox killed"}, got)
	back, err := readLogs(client.Logs(t.Context(), sbx.ID(), &e2b.LogOptions{Reverse: true, PageSize: 1, Level: e2b.LogInfo}))
	require.NoError(t, err)
	require.Equal(t, []string{"Sandbox killed", "Sandbox resumed", "Sandbox paused", "Sandbox created"}, messages(back))
}

// TestRefreshOnTheEmulator only ever extends.
func TestRefreshOnTheEmulator(t *testing.T) {
	t.Parallel()
	_, client := e2btest.New(t, nil)
	sbx, err := client.Create(t.Context(), &e2b.CreateOptions{Timeout: time.Minute})
	require.NoError(t, err)
	left := func() time.Duration {
		info, err := sbx.Info(t.Context())
		require.NoError(t, err)
		return time.Until(info.EndAt)
	}
	require.NoError(t, sbx.Refresh(t.Context(), time.Second))
	require.Greater(t, left(), 30*time.Second)
	require.NoError(t, sbx.Refresh(t.Context(), time.Hour))
	require.Greater(t, left(), 59*time.Minute)
	_, err = sbx.Pause(t.Context(), nil)
	require.NoError(t, err)
	requireKinds(t, sbx.Refresh(t.Context(), time.Minute), e2b.ErrSandboxNotRunning)
	_, err = sbx.Kill(t.Context())
	require.NoError(t, err)
	requireKinds(t, sbx.Refresh(t.Context(), time.Minute), e2b.ErrSandboxNotFound)
}

// TestVolumesOfTheEmulator are listed, shown in sandboxes and deleted.
func TestVolumesOfTheEmulator(t *testing.T) {
	t.Parallel()
	_, client := e2btest.New(t, nil)
	ctx := t.Context()
	v, err := client.CreateVolume(ctx, "data")
	require.NoError(t, err)
	require.False(t, v.Token.IsZero())
	_, err = client.CreateVolume(ctx, "data")
	requireKinds(t, err, e2b.ErrInvalidArgument)
	list, err := client.Volumes(ctx)
	require.NoError(t, err)
	require.Equal(t, []e2b.Volume{{ID: v.ID, Name: "data"}}, list)
	again, err := client.Volume(ctx, v.ID)
	require.NoError(t, err)
	require.Equal(t, "data", again.Name)

	mounts := map[string]string{"/mnt/data": "data"}
	sbx, err := client.Create(ctx, &e2b.CreateOptions{Volumes: mounts})
	require.NoError(t, err)
	info, err := sbx.Info(ctx)
	require.NoError(t, err)
	require.Equal(t, mounts, info.Volumes)
	_, err = client.Create(ctx, &e2b.CreateOptions{Volumes: map[string]string{"/mnt": "other"}})
	requireKinds(t, err, e2b.ErrInvalidArgument)
	require.ErrorContains(t, err, "volume 'other' not found")

	require.NoError(t, client.DeleteVolume(ctx, v.ID))
	requireKinds(t, client.DeleteVolume(ctx, v.ID), e2b.ErrNotFound)
	_, err = client.Volume(ctx, v.ID)
	requireKinds(t, err, e2b.ErrNotFound)
}

// TestSecretsOfTheEmulator are kept and changed, and never shown.
func TestSecretsOfTheEmulator(t *testing.T) {
	t.Parallel()
	_, client := e2btest.New(t, nil)
	ctx := t.Context()
	made, err := client.CreateSecret(ctx, "My-Key", e2b.NewToken("s3cr3t"), &e2b.SecretOptions{Metadata: map[string]string{"a": "1"}})
	require.NoError(t, err)
	require.Equal(t, "my-key", made.Name)
	changed, err := client.UpdateSecret(ctx, "My-Key", e2b.NewToken("other"), nil)
	require.NoError(t, err)
	require.Equal(t, made.Version+1, changed.Version)
	require.Equal(t, made.Metadata, changed.Metadata)
	cleared, err := client.UpdateSecret(ctx, made.ID, e2b.NewToken("other"), &e2b.SecretOptions{Metadata: map[string]string{}})
	require.NoError(t, err)
	require.Empty(t, cleared.Metadata)
	_, err = client.CreateSecret(ctx, "my-key", e2b.NewToken("v"), nil)
	requireKinds(t, err, e2b.ErrConflict)
	_, err = client.CreateSecret(ctx, "other", e2b.NewToken("v"), nil)
	require.NoError(t, err)
	var names []string
	for s, err := range client.Secrets(ctx, &e2b.SecretListOptions{PageSize: 1}) {
		require.NoError(t, err)
		names = append(names, s.Name)
	}
	require.Equal(t, []string{"my-key", "other"}, names)
	got, err := client.Secret(ctx, "my-key")
	require.NoError(t, err)
	require.Equal(t, cleared, got)
	require.NoError(t, client.DeleteSecret(ctx, "my-key"))
	_, err = client.Secret(ctx, "my-key")
	requireKinds(t, err, e2b.ErrNotFound)
}

// TestVolumesAreShared by sandboxes, and outlive them.
func TestVolumesAreShared(t *testing.T) {
	t.Parallel()
	server, client := e2btest.New(t, nil)
	if ok, why := server.Isolated(); !ok {
		if os.Getenv("CI") == "true" && runtime.GOOS == "linux" {
			t.Fatal(why)
		}
		t.Skip("sandboxes that are not isolated have no volumes: " + why)
	}
	ctx := t.Context()
	v, err := client.CreateVolume(ctx, "shared")
	require.NoError(t, err)
	create := func(path string) *e2b.Sandbox {
		sbx, err := client.Create(ctx, &e2b.CreateOptions{Volumes: map[string]string{path: "shared"}})
		require.NoError(t, err)
		return sbx
	}
	first, second := create("/mnt/deep/er"), create("/data")
	require.NoError(t, first.Files.Write(ctx, "/mnt/deep/er/note", []byte("hello"), nil))
	require.Equal(t, "hello", run(t, second, "cat /data/note && echo -n , again >>/data/note"))
	_, err = first.Kill(ctx)
	require.NoError(t, err)
	third := create("/new")
	require.Equal(t, "hello, again", run(t, third, "cat /new/note"))

	// A reboot finds it again.
	_, err = third.Pause(ctx, &e2b.PauseOptions{DropMemory: true})
	require.NoError(t, err)
	require.NoError(t, third.Connect(ctx, nil))
	require.Equal(t, "hello, again", run(t, third, "cat /new/note"))

	require.NoError(t, client.DeleteVolume(ctx, v.ID))
	_, err = client.CreateVolume(ctx, "shared")
	require.NoError(t, err)
	require.Empty(t, run(t, create("/mnt"), "ls /mnt"), "another one of that name")
	require.Equal(t, "still here\n", run(t, second, "echo still here"))
}
