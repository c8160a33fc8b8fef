package control_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/control"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// measured returns one field of each point of a sandbox.
func (r *rig) measured(id, field string) []float64 {
	r.t.Helper()
	list, ok := r.must(200, ownKey, "GET", "/sandboxes/"+id+"/metrics", "").decoded(r.t).([]any)
	require.True(r.t, ok)
	values := []float64{}
	for _, item := range list {
		m, ok := item.(map[string]any)
		require.True(r.t, ok)
		v, ok := m[field].(float64)
		require.True(r.t, ok, "%s: %v", field, m)
		values = append(values, v)
	}
	return values
}

// newest returns one field of the newest point of a sandbox.
func (r *rig) newest(id, field string) float64 {
	r.t.Helper()
	found, ok := r.must(200, ownKey, "GET", "/sandboxes/metrics?sandbox_ids="+id, "").value(r.t, "sandboxes").(map[string]any)
	require.True(r.t, ok)
	m, ok := found[id].(map[string]any)
	require.True(r.t, ok, found)
	v, ok := m[field].(float64)
	require.True(r.t, ok)
	return v
}

// pass lets fake time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// measuredEvery runs f with a control plane that measures sandboxes by itself.
func measuredEvery(t *testing.T, period time.Duration, f func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, control.Options{MeasureEvery: period})
		f(r)
	})
}

func TestPointsAreWhatWasMeasured(t *testing.T) {
	measuredEvery(t, 5*time.Second, func(r *rig) {
		t := r.t
		// One of two processors is busy for ten seconds, and memory grows by a byte a second.
		r.node.Usage = func(_ string, after time.Duration) (node.Usage, error) {
			s := int64(after / time.Second)
			return node.Usage{CPU: min(after, 10*time.Second), Memory: s, Cache: 2 * s, Disk: 3 * s}, nil
		}
		id := r.create(ownKey, long)
		pass(21 * time.Second)
		require.Equal(t, []float64{50, 50, 0, 0}, r.measured(id, "cpuUsedPct"))
		for i, field := range []string{"memUsed", "memCache", "diskUsed"} {
			n := float64(i + 1)
			require.Equal(t, []float64{5 * n, 10 * n, 15 * n, 20 * n}, r.measured(id, field))
			require.InDelta(t, 20*n, r.newest(id, field), 0)
		}
	})
}

// TestPointsStay once they are shown, and what is skipped is as it was before.
func TestPointsStay(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		r.node.Usage = func(_ string, after time.Duration) (node.Usage, error) {
			return node.Usage{CPU: after, Memory: int64(after / time.Second)}, nil
		}
		id := r.create(ownKey, long)
		pass(2 * time.Second)
		r.api.Advance(10 * time.Second) // measured before: after 2 s
		require.Equal(t, []float64{2, 2}, r.measured(id, "memUsed"))
		require.Equal(t, []float64{50, 50}, r.measured(id, "cpuUsedPct"))
		pass(2 * time.Second)
		require.Equal(t, []float64{2, 2}, r.measured(id, "memUsed"), "of the same five seconds")
		require.InDelta(t, 2, r.newest(id, "memUsed"), 0)
		pass(2 * time.Second)
		require.Equal(t, []float64{2, 2, 6}, r.measured(id, "memUsed"))
		require.InDelta(t, 6, r.newest(id, "memUsed"), 0)
		require.InDelta(t, 50, r.newest(id, "cpuUsedPct"), 0)
	})
}

// TestPausedIsNotMeasured, and what ran before a pause does not count after it.
func TestPausedIsNotMeasured(t *testing.T) {
	measuredEvery(t, time.Second, func(r *rig) {
		t := r.t
		asked := 0
		r.node.Usage = func(_ string, after time.Duration) (node.Usage, error) {
			asked++
			return node.Usage{CPU: after}, nil
		}
		id := r.create(ownKey, long)
		pass(11 * time.Second)
		require.Equal(t, []float64{50, 50}, r.measured(id, "cpuUsedPct"))
		r.pause(id)
		before := asked
		pass(time.Minute)
		require.Equal(t, []float64{50, 50}, r.measured(id, "cpuUsedPct"))
		require.Equal(t, before, asked)
		r.connect(id, "300")
		pass(11 * time.Second)
		require.Equal(t, []float64{50, 50, 50, 50}, r.measured(id, "cpuUsedPct"))
	})
}

func TestMeasuringFails(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		fails := true
		r.node.Usage = func(string, time.Duration) (node.Usage, error) {
			if fails {
				return node.Usage{}, errors.New("no meter")
			}
			return node.Usage{Memory: 7}, nil
		}
		id := r.create(ownKey, long)
		r.api.Advance(5 * time.Second)
		require.Equal(t, []float64{0}, r.measured(id, "memUsed"))
		fails = false
		require.Equal(t, []float64{7}, r.measured(id, "memUsed"))
		fails = true
		r.api.Advance(5 * time.Second)
		require.Equal(t, []float64{7, 7}, r.measured(id, "memUsed"))
	})
}

// TestMeasurementsAreFew however long a sandbox runs: the older, the fewer.
func TestMeasurementsAreFew(t *testing.T) {
	measuredEvery(t, 5*time.Second, func(r *rig) {
		t := r.t
		r.node.Usage = func(_ string, after time.Duration) (node.Usage, error) {
			return node.Usage{Memory: int64(after / time.Second)}, nil
		}
		id := r.create(ownKey, fmt.Sprintf(`{"templateID":"base","timeout":%d}`, 24*3600))
		begin := time.Now()
		pass(23 * time.Hour)
		require.Less(t, r.api.Samples(id), 3000)
		require.Greater(t, r.api.Samples(id), 700)
		start := begin.Add(2 * time.Hour).Unix()
		old := r.must(200, ownKey, "GET", fmt.Sprintf("/sandboxes/%s/metrics?start=%d&end=%d", id, start, start), "").decoded(t)
		points, ok := old.([]any)
		require.True(t, ok)
		require.Len(t, points, 1)
		point, ok := points[0].(map[string]any)
		require.True(t, ok)
		require.InDelta(t, 7200, point["memUsed"], 120)
		require.InDelta(t, 23*3600, r.newest(id, "memUsed"), 5)
	})
}
