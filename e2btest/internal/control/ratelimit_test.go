package control_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/control"
)

// twoRefreshes lets a team refresh twice, and once more each 5 s.
func twoRefreshes() []control.RateLimit {
	return []control.RateLimit{{
		Matches:  func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/refreshes") },
		Requests: 2, Per: 10 * time.Second,
	}}
}

// limits are the headers of a rate limit.
func (a answer) limits() [4]string {
	get := a.header.Get
	return [4]string{get("Ratelimit-Limit"), get("Ratelimit-Remaining"), get("Ratelimit-Reset"), get("Retry-After")}
}

func TestRateLimitRefills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, control.Options{RateLimits: twoRefreshes()})
		id, foreign := r.create(ownKey, long), r.create(otherKey, long)
		synctest.Wait() // until the evictor sleeps: it is not to see the skipped hour
		refresh := func(key, id string) answer { return r.call(key, "POST", "/sandboxes/"+id+"/refreshes", "") }
		for _, step := range []struct {
			after  time.Duration
			status int
			want   [4]string
		}{
			{0, 204, [4]string{"2", "1", "5", ""}},
			{0, 204, [4]string{"2", "0", "10", ""}},
			{0, 429, [4]string{"2", "0", "10", "5"}},
			{4500 * time.Millisecond, 429, [4]string{"2", "0", "6", "1"}},
			{499 * time.Millisecond, 429, [4]string{"2", "0", "6", "1"}},
			{time.Millisecond, 204, [4]string{"2", "0", "10", ""}},
			{time.Hour, 204, [4]string{"2", "1", "5", ""}},
		} {
			r.api.Skip(step.after)
			a := refresh(ownKey, id)
			require.Equal(t, step.status, a.status, a.body)
			require.Equal(t, step.want, a.limits())
		}
		require.Equal(t, 204, refresh(otherKey, foreign).status, "another team's requests count for themselves")
		require.Equal(t, [4]string{}, r.info(foreign).limits(), "a route without a limit")
	})
}

func TestWhatARateLimitCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		once := control.RateLimit{Matches: func(*http.Request) bool { return true }, Requests: 1, Per: time.Hour}
		r := newRig(t, control.Options{RateLimits: []control.RateLimit{once}})
		require.Equal(t, 401, r.call("", "GET", "/sandboxes/iunknown", "").status)
		require.Equal(t, 400, r.call(ownKey, "POST", "/sandboxes", `{}`).status)
		require.Equal(t, 404, r.info("iunknown").status, "neither of them counted")
		require.Equal(t, 429, r.info("iother").status, "the same route")
		a := r.call(ownKey, "POST", "/sandboxes", plain)
		require.Equal(t, 201, a.status, "another route")
		require.Equal(t, [4]string{"1", "0", "3600", ""}, a.limits())
	})
}
