//go:build linux || darwin

package e2btest_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
)

func TestSignedURLsExpireByTheServersClock(t *testing.T) {
	t.Parallel()
	server, client := e2btest.New(t, nil)
	sbx, err := client.Create(t.Context(), &e2b.CreateOptions{Timeout: 12 * time.Hour})
	require.NoError(t, err)
	require.NoError(t, sbx.Files.Write(t.Context(), "a", []byte("x"), nil))
	brief, err := sbx.DownloadURL("a", &e2b.URLOptions{Expires: time.Hour})
	require.NoError(t, err)
	long, err := sbx.DownloadURL("a", &e2b.URLOptions{Expires: 3 * time.Hour})
	require.NoError(t, err)
	get := func(url string) int {
		return ask(t, http.MethodGet, url, "E2b-Sandbox-Id", sbx.ID(), "E2b-Sandbox-Port", "49983", "E2b-Emulator-Clock", "-24h").StatusCode
	}
	require.Equal(t, []int{200, 200}, []int{get(brief), get(long)})
	server.Advance(2 * time.Hour)
	require.Equal(t, []int{401, 200}, []int{get(brief), get(long)})
	server.Advance(2 * time.Hour)
	require.Equal(t, []int{401, 401}, []int{get(brief), get(long)})
	got, err := sbx.Files.Read(t.Context(), "a", nil)
	require.NoError(t, err, "what needs no signature goes on")
	require.Equal(t, "x", string(got))
}

func TestTimesAreOfTheServersClock(t *testing.T) {
	t.Parallel()
	server, client := e2btest.New(t, &e2btest.Options{Run: func(context.Context, *e2btest.Command) int { return 0 }})
	require.WithinDuration(t, time.Now(), server.Now(), time.Minute)
	server.Advance(48 * time.Hour)
	before := server.Now()
	require.WithinDuration(t, time.Now().Add(48*time.Hour), before, time.Minute)
	sbx, err := client.Create(t.Context(), &e2b.CreateOptions{Timeout: time.Hour})
	require.NoError(t, err)
	info, err := sbx.Info(t.Context())
	require.NoError(t, err)
	require.WithinRange(t, info.StartedAt, before.Add(-time.Second), server.Now())
	require.WithinRange(t, info.EndAt, before.Add(time.Hour-time.Second), server.Now().Add(time.Hour))
}

func TestConnectionLimit(t *testing.T) {
	t.Parallel()
	_, client := e2btest.New(t, &e2btest.Options{MaxConnections: 1})
	sbx, err := client.Create(t.Context(), nil)
	require.NoError(t, err)
	proc, err := sbx.Commands.Start(t.Context(), "cat", &e2b.RunOptions{KeepStdin: true})
	require.NoError(t, err)
	_, err = sbx.Files.Read(t.Context(), "a", nil)
	require.ErrorIs(t, err, e2b.ErrRateLimited)
	require.ErrorContains(t, err, "too many concurrent incoming connections (limit: 1)")
	require.NoError(t, proc.Close())
}
