package e2btest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

// clientFor returns a client with that key, which asks once for each call.
func clientFor(t *testing.T, s *Server, key string) *e2b.Client {
	t.Helper()
	opts := s.ClientOptionsFor(key)
	opts.MaxRetries = -1
	client, err := e2b.NewClient(opts)
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	return client
}

func TestTeamsDoNotSeeEachOther(t *testing.T) {
	s, _ := inMemory(t, Options{Teams: []Team{{Name: "other", APIKeys: []string{"e2b_01", "e2b_02"}}}})
	own, first, second := clientFor(t, s, s.APIKey()), clientFor(t, s, "e2b_01"), clientFor(t, s, "e2b_02")
	ctx := t.Context()
	sbx, err := first.Create(ctx, nil)
	require.NoError(t, err)
	snapshot, err := sbx.Snapshot(ctx, nil)
	require.NoError(t, err)
	volume, err := first.CreateVolume(ctx, "data")
	require.NoError(t, err)
	_, err = first.CreateSecret(ctx, "token", e2b.NewToken("x"), nil)
	require.NoError(t, err)

	_, err = second.Info(ctx, sbx.ID())
	require.NoError(t, err, "the team's other key")
	_, err = own.Info(ctx, sbx.ID())
	require.ErrorIs(t, err, e2b.ErrSandboxNotFound)
	_, err = own.Connect(ctx, sbx.ID(), nil)
	require.ErrorIs(t, err, e2b.ErrSandboxNotFound)
	_, err = own.Create(ctx, &e2b.CreateOptions{Template: snapshot.ID})
	require.ErrorIs(t, err, e2b.ErrNotFound)
	_, err = own.Volume(ctx, volume.ID)
	require.ErrorIs(t, err, e2b.ErrNotFound)
	_, err = own.Secret(ctx, "token")
	require.ErrorIs(t, err, e2b.ErrNotFound)
	for range own.List(ctx, nil) {
		require.Fail(t, "it has no sandbox")
	}
	for range own.Snapshots(ctx, nil) {
		require.Fail(t, "it has no snapshot")
	}
	volumes, err := own.Volumes(ctx)
	require.NoError(t, err)
	require.Empty(t, volumes)

	_, err = own.Create(ctx, nil)
	require.NoError(t, err)
	list := s.Sandboxes()
	require.Equal(t, []string{"other", "local"}, []string{list[0].Team, list[1].Team})
	_, err = clientFor(t, s, "e2b_03").Info(ctx, sbx.ID())
	require.ErrorIs(t, err, e2b.ErrUnauthenticated)
}

func TestLimitsOfTeams(t *testing.T) {
	s, _ := inMemory(t, Options{MaxSandboxes: 1, MaxSandboxLifetime: time.Hour, Teams: []Team{
		{Name: "same", APIKeys: []string{"same"}},
		{Name: "more", APIKeys: []string{"more"}, MaxSandboxes: 2, MaxSandboxLifetime: 2 * time.Hour},
		{Name: "blocked", APIKeys: []string{"e2b_b1"}, Blocked: "payment failed"},
		{Name: "banned", APIKeys: []string{"e2b_b2"}, Banned: true},
	}})
	long := &e2b.CreateOptions{Timeout: 2 * time.Hour}
	ctx := t.Context()
	same := clientFor(t, s, "same")
	_, err := same.Create(ctx, long)
	require.ErrorContains(t, err, "Timeout cannot be greater than 1 hours")
	_, err = same.Create(ctx, nil)
	require.NoError(t, err)
	_, err = same.Create(ctx, nil)
	require.ErrorIs(t, err, e2b.ErrQuotaExceeded)
	more := clientFor(t, s, "more")
	for range 2 {
		_, err = more.Create(ctx, long)
		require.NoError(t, err)
	}
	_, err = clientFor(t, s, "e2b_b1").Create(ctx, nil)
	require.ErrorIs(t, err, e2b.ErrForbidden)
	require.ErrorContains(t, err, "team is blocked: payment failed")
	_, err = clientFor(t, s, "e2b_b1").Volumes(ctx)
	require.NoError(t, err, "it may read")
	_, err = clientFor(t, s, "e2b_b2").Volumes(ctx)
	require.ErrorContains(t, err, "team is banned")
}

func TestTeamsAndLimitsThatAreRefused(t *testing.T) {
	keys := []string{"e2b_01"}
	for want, o := range map[string]Options{
		`Teams[0].Name: "" is no name`:                        {Teams: []Team{{APIKeys: keys}}},
		`Teams[0].Name: "A/b" is no name`:                     {Teams: []Team{{Name: "A/b", APIKeys: keys}}},
		`Teams[0].Name: there is a team "local" already`:      {Teams: []Team{{Name: "local", APIKeys: keys}}},
		`Teams[1].Name: there is a team "a" already`:          {Teams: []Team{{Name: "a", APIKeys: keys}, {Name: "a", APIKeys: []string{"k"}}}},
		"Teams[0].APIKeys: the team has no key":               {Teams: []Team{{Name: "a"}}},
		"Teams[0].APIKeys[1]: the key is empty":               {Teams: []Team{{Name: "a", APIKeys: []string{"k", ""}}}},
		"Teams[0].APIKeys[0]: the API key holds other":        {Teams: []Team{{Name: "a", APIKeys: []string{"a b"}}}},
		"Teams[0].APIKeys[0]: the key is there twice":         {APIKey: "e2b_01", Teams: []Team{{Name: "a", APIKeys: keys}}},
		"Teams[1].APIKeys[0]: the key is there twice":         {Teams: []Team{{Name: "a", APIKeys: keys}, {Name: "b", APIKeys: keys}}},
		"Teams[0].MaxSandboxes: -1 is below zero":             {Teams: []Team{{Name: "a", APIKeys: keys, MaxSandboxes: -1}}},
		"Teams[0].MaxSandboxLifetime: 1ms is below":           {Teams: []Team{{Name: "a", APIKeys: keys, MaxSandboxLifetime: time.Millisecond}}},
		"RateLimits[0]: no request can match it: its path":    {RateLimits: []RateLimit{{Path: "x", Requests: 1, Per: time.Second}}},
		"RateLimits[0]: no request can match it: \"post\"":    {RateLimits: []RateLimit{{Method: "post", Requests: 1, Per: time.Second}}},
		"RateLimits[0]: no request can match it: there is no": {RateLimits: []RateLimit{{Path: "/v3/sandboxes", Requests: 1, Per: time.Second}}},
		"RateLimits[1].Requests: 0":                           {RateLimits: []RateLimit{{Requests: 1, Per: time.Second}, {Per: time.Second}}},
		"RateLimits[0].Per: 0s is too short":                  {RateLimits: []RateLimit{{Requests: 1}}},
	} {
		_, err := NewServer(&o)
		require.ErrorContains(t, err, want)
	}
}

func TestRateLimits(t *testing.T) {
	s, _ := inMemory(t, Options{
		Teams:      []Team{{Name: "other", APIKeys: []string{"other"}}},
		RateLimits: []RateLimit{{Method: "GET", Path: "/sandboxes/{id}", Requests: 2, Per: time.Hour}},
	})
	client := clientFor(t, s, s.APIKey())
	sbx, err := client.Create(t.Context(), nil)
	require.NoError(t, err)
	for range 2 {
		_, err = sbx.Info(t.Context())
		require.NoError(t, err)
	}
	_, err = sbx.Info(t.Context())
	require.ErrorIs(t, err, e2b.ErrRateLimited)
	require.NotErrorIs(t, err, e2b.ErrQuotaExceeded)
	_, err = clientFor(t, s, "other").Info(t.Context(), sbx.ID())
	require.ErrorIs(t, err, e2b.ErrSandboxNotFound, "each team has its own")
	require.NoError(t, sbx.SetTimeout(t.Context(), 2*time.Hour), "another route")
	s.Advance(30 * time.Minute)
	_, err = sbx.Info(t.Context())
	require.NoError(t, err)
	_, err = sbx.Info(t.Context())
	require.ErrorIs(t, err, e2b.ErrRateLimited)
}
