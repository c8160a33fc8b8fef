package control_test

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// metricTimes are those of a sandbox's points, since the start of the test.
func (r *rig) metricTimes(id, query string, start time.Time) []time.Duration {
	r.t.Helper()
	list, ok := r.must(200, ownKey, "GET", "/sandboxes/"+id+"/metrics"+query, "").decoded(r.t).([]any)
	require.True(r.t, ok)
	out := []time.Duration{}
	for _, item := range list {
		m, ok := item.(map[string]any)
		require.True(r.t, ok)
		unix, ok := m["timestampUnix"].(float64)
		require.True(r.t, ok)
		text, err := time.Parse(time.RFC3339, fmt.Sprint(m["timestamp"]))
		require.NoError(r.t, err)
		require.Equal(r.t, int64(unix), text.Unix())
		out = append(out, text.Sub(start.Truncate(time.Second)))
		require.InDelta(r.t, 50, m["cpuUsedPct"], 50)
		for used, total := range map[string]string{"memUsed": "memTotal", "diskUsed": "diskTotal", "memCache": "memTotal"} {
			require.Positive(r.t, m[used])
			require.Greater(r.t, m[total], m[used])
		}
		require.InEpsilon(r.t, 2.0, m["cpuCount"], 0)
	}
	return out
}

// TestI3FirstPointTakesSeconds and until then there is none, and no error.
func TestI3FirstPointTakesSeconds(t *testing.T) {
	inBubble(t, func(r *rig) {
		start := time.Now()
		id := r.create(ownKey, long)
		require.Empty(t, r.metricTimes(id, "", start))
		r.api.Advance(10 * time.Second)
		require.Equal(t, []time.Duration{5 * time.Second, 10 * time.Second}, r.metricTimes(id, "", start))
	})
}

// TestI4SinceTheStart of the sandbox, when no other is asked for.
func TestI4SinceTheStart(t *testing.T) {
	inBubble(t, func(r *rig) {
		start := time.Now()
		id := r.create(ownKey, `{"templateID":"base","timeout":10800}`)
		r.api.Advance(2 * time.Hour)
		all := r.metricTimes(id, "", start)
		require.Contains(t, all, 30*time.Minute)
		require.Contains(t, all, 110*time.Minute)
		require.Len(t, all, 240, "one each half minute")
		of := func(from, to time.Duration) string {
			return fmt.Sprintf("?start=%d&end=%d", start.Add(from).Unix(), start.Add(to).Unix())
		}
		require.Equal(t, []time.Duration{time.Hour, time.Hour + 5*time.Second}, r.metricTimes(id, of(time.Hour, time.Hour+9*time.Second), start), "ends count")
		require.Empty(t, r.metricTimes(id, of(3*time.Hour, 4*time.Hour), start))
		require.Len(t, r.metricTimes(id, "?start="+strconv.FormatInt(start.Add(110*time.Minute).Unix(), 10), start), 121)
		require.Len(t, r.metricTimes(id, "?end="+strconv.FormatInt(start.Add(time.Minute).Unix(), 10), start), 12)
	})
}

// TestNoPointsWhilePaused and the old ones stay, also after the end.
func TestNoPointsWhilePaused(t *testing.T) {
	inBubble(t, func(r *rig) {
		start := time.Now()
		id := r.create(ownKey, long)
		r.api.Advance(7 * time.Second)
		r.pause(id)
		r.api.Advance(time.Minute)
		want := []time.Duration{5 * time.Second}
		require.Equal(t, want, r.metricTimes(id, "", start))
		r.connect(id, "300")
		r.api.Advance(12 * time.Second)
		want = append(want, 72*time.Second, 77*time.Second)
		require.Equal(t, want, r.metricTimes(id, "", start))
		r.kill(id)
		r.api.Advance(time.Minute)
		require.Equal(t, want, r.metricTimes(id, "", start))
		require.Equal(t, "[]", r.call(otherKey, "GET", "/sandboxes/"+id+"/metrics", "").body, "of another team")
		r.api.Advance(8 * 24 * time.Hour)
		require.Empty(t, r.metricTimes(id, "", start), "not kept for ever")
		r.create(ownKey, long)
		require.Empty(t, r.metricTimes(id, "?start=0", start))
	})
}

func TestMetricsOfMany(t *testing.T) {
	inBubble(t, func(r *rig) {
		old, paused, other := r.create(ownKey, long), r.create(ownKey, long), r.create(otherKey, long)
		r.api.Advance(23 * time.Second)
		r.pause(paused)
		fresh := r.create(ownKey, long)
		ask := func(ids ...string) map[string]any {
			a := r.must(200, ownKey, "GET", "/sandboxes/metrics?sandbox_ids="+url.QueryEscape(strings.Join(ids, ",")), "")
			found, ok := a.value(t, "sandboxes").(map[string]any)
			require.True(t, ok)
			return found
		}
		found := ask(old, paused, fresh, other, "iunknown")
		require.Len(t, found, 1)
		m, ok := found[old].(map[string]any)
		require.True(t, ok)
		require.InEpsilon(t, float64(time.Now().Add(20*time.Second).Unix()), m["timestampUnix"], 0)
		require.Contains(t, ask(old+"-6532622b"), old)
		require.Equal(t, "Invalid sandbox ID", r.must(400, ownKey, "GET", "/sandboxes/metrics?sandbox_ids=a..b", "").message(t))
	})
}

func TestTeamMetrics(t *testing.T) {
	inBubble(t, func(r *rig) {
		const team = "/teams/local-dev-team/metrics"
		require.Equal(t, "[]", r.must(200, ownKey, "GET", team, "").body)
		start := time.Now()
		for range 3 {
			r.create(ownKey, long)
		}
		r.create(otherKey, long)
		r.api.Advance(20 * time.Minute) // two time out, and one is killed before
		window := fmt.Sprintf("?start=%d&end=%d", start.Unix(), start.Add(20*time.Minute).Unix())
		list, ok := r.must(200, ownKey, "GET", team+window, "").decoded(t).([]any)
		require.True(t, ok)
		require.Len(t, list, 240)
		point := func(i int) map[string]any {
			m, ok := list[i].(map[string]any)
			require.True(t, ok)
			return m
		}
		require.InEpsilon(t, 3.0, point(0)["concurrentSandboxes"], 0)
		require.InEpsilon(t, 0.6, point(0)["sandboxStartRate"], 1e-9)
		require.Zero(t, point(1)["sandboxStartRate"])
		require.Zero(t, point(200)["concurrentSandboxes"])
		most := r.must(200, ownKey, "GET", team+"/max"+window+"&metric=concurrent_sandboxes", "")
		require.InEpsilon(t, 3.0, most.value(t, "value"), 0)
		require.InEpsilon(t, float64(start.Add(5*time.Second).Unix()), most.value(t, "timestampUnix"), 0)
		rate := r.must(200, ownKey, "GET", team+"/max"+window+"&metric=sandbox_start_rate", "")
		require.InEpsilon(t, 0.6, rate.value(t, "value"), 1e-9)
		require.Equal(t, "You (other) are not authorized to access this team's (local-dev-team) metrics", r.must(403, otherKey, "GET", team, "").message(t))
	})
}

func TestBadMetricsRequests(t *testing.T) {
	inBubble(t, func(r *rig) {
		const invalid = "validation error: error in openapi3filter.RequestError: parameter "
		for target, message := range map[string]string{
			"/sandboxes/i1/metrics?start=x":            invalid + `"start" in query has an error: value x: an invalid integer: invalid syntax`,
			"/sandboxes/i1/metrics?end=-1":             invalid + `"end" in query has an error: number must be at least 0`,
			"/sandboxes/i1/metrics?start=99999999999":  "Invalid time range for metrics",
			"/sandboxes/A/metrics":                     "Invalid sandbox ID",
			"/teams/local-dev-team/metrics?start=1.5":  invalid + `"start" in query has an error: value 1.5: an invalid integer: invalid syntax`,
			"/teams/local-dev-team/metrics/max?metric": invalid + `"metric" in query has an error: value is not one of the allowed values ["concurrent_sandboxes","sandbox_start_rate"]`,
		} {
			require.Equal(t, message, r.must(400, ownKey, "GET", target, "").message(t), target)
		}
	})
}

// TestPointsGetFewer where they span more time.
func TestPointsGetFewer(t *testing.T) {
	inBubble(t, func(r *rig) {
		start := time.Now()
		id := r.create(ownKey, `{"templateID":"base","timeout":86400}`)
		r.api.Advance(24*time.Hour - time.Second)
		for span, step := range map[time.Duration]time.Duration{
			time.Hour - time.Second: 5 * time.Second, time.Hour: 30 * time.Second, 6 * time.Hour: time.Minute,
			12 * time.Hour: 2 * time.Minute, 24 * time.Hour: 5 * time.Minute, 7 * 24 * time.Hour: 15 * time.Minute,
		} {
			got := r.metricTimes(id, fmt.Sprintf("?start=%d&end=%d", start.Unix(), start.Add(span).Unix()), start)
			require.Equal(t, []time.Duration{step, 2 * step}, got[:2], "over %v", span)
		}
	})
}
