//go:build unix

package main

import (
	"context"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

// client returns an SDK client that is set up by the printed variables.
func (s *service) client(t *testing.T) *e2b.Client {
	t.Helper()
	client, err := e2b.NewClient(&e2b.ClientOptions{
		APIKey: s.env["E2B_API_KEY"], APIURL: s.env["E2B_API_URL"], SandboxURL: s.env["E2B_SANDBOX_URL"],
	})
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// kill ends the program as a crash would.
func (s *service) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, s.cmd.Process.Kill())
	require.Error(t, s.cmd.Wait())
}

func create(t *testing.T, client *e2b.Client, note string) *e2b.Sandbox {
	t.Helper()
	sbx, err := client.Create(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, sbx.Files.Write(t.Context(), "note", []byte(note), nil))
	return sbx
}

// read connects to a sandbox and reads what create wrote.
func read(t *testing.T, client *e2b.Client, id string) string {
	t.Helper()
	info, err := client.Info(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, e2b.StatePaused, info.State)
	sbx, err := client.Connect(t.Context(), id, nil)
	require.NoError(t, err)
	text, err := sbx.Files.Read(t.Context(), "note", nil)
	require.NoError(t, err)
	return string(text)
}

func TestRestart(t *testing.T) {
	program, env := build(t), "E2B_LOCAL_STATE_DIR="+filepath.Join(t.TempDir(), "state")
	s := start(t, program, env, "E2B_API_KEY=")
	client := s.client(t)
	running, paused := create(t, client, "running"), create(t, client, "paused")
	_, err := paused.Pause(t.Context(), nil)
	require.NoError(t, err)
	key := s.env["E2B_API_KEY"]
	s.end(t, syscall.SIGTERM)
	require.Empty(t, processes(program))

	s = start(t, program, env, "E2B_API_KEY=")
	require.Equal(t, key, s.env["E2B_API_KEY"])
	client = s.client(t)
	require.Equal(t, "running", read(t, client, running.ID()))
	require.Equal(t, "paused", read(t, client, paused.ID()))
	s.end(t, syscall.SIGTERM)
}

// TestCrash loses nothing that was answered, although a request is under way.
func TestCrash(t *testing.T) {
	program, env := build(t), "E2B_LOCAL_STATE_DIR="+filepath.Join(t.TempDir(), "state")
	notes := make(map[string]string)
	for round := range 3 {
		s := start(t, program, env, "E2B_API_KEY=")
		client := s.client(t)
		for id, note := range notes {
			require.Equal(t, note, read(t, client, id))
		}
		sbx := create(t, client, strconv.Itoa(round))
		notes[sbx.ID()] = strconv.Itoa(round)
		ctx, cancel := context.WithCancel(t.Context())
		underWay := make(chan struct{})
		go func() {
			defer close(underWay)
			for {
				if _, err := sbx.Pause(ctx, nil); err != nil {
					return
				}
				if err := sbx.Connect(ctx, nil); err != nil {
					return
				}
			}
		}()
		if round > 0 {
			gone := create(t, client, "gone")
			_, err := gone.Kill(t.Context())
			require.NoError(t, err)
		}
		s.kill(t)
		cancel()
		<-underWay
	}
	s := start(t, program, env, "E2B_API_KEY=")
	client := s.client(t)
	for info, err := range client.List(t.Context(), nil) {
		require.NoError(t, err)
		require.Contains(t, notes, info.ID)
	}
	for id, note := range notes {
		require.Equal(t, note, read(t, client, id))
	}
	s.end(t, syscall.SIGTERM)
	require.Empty(t, processes(program))
}
