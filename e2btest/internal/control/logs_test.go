package control_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/nodetest"
)

// logMessages are those of a log, in its order.
func (r *rig) logMessages(target string) []string {
	r.t.Helper()
	list, ok := r.must(200, ownKey, "GET", target, "").value(r.t, "logs").([]any)
	require.True(r.t, ok)
	out := []string{}
	for _, item := range list {
		e, ok := item.(map[string]any)
		require.True(r.t, ok)
		text := fmt.Sprint(e["message"], e["line"])
		out = append(out, strings.TrimSuffix(strings.TrimPrefix(text, "Sandbox "), "<nil>"))
	}
	return out
}

func TestLogsTellTheLifeOfASandbox(t *testing.T) {
	inBubble(t, func(r *rig) {
		start := time.Now()
		id := r.create(ownKey, long)
		r.api.Advance(time.Second)
		r.pause(id)
		r.api.Advance(time.Second)
		r.connect(id, "60")
		r.api.Advance(2 * time.Minute) // it times out: its older state stays
		r.connect(id, "60")
		r.kill(id)
		v2 := "/v2/sandboxes/" + id + "/logs"
		all := []string{"created", "paused", "resumed", "killed", "resumed", "killed"}
		require.Equal(t, all, r.logMessages(v2+"?direction=forward"))
		require.Equal(t, []string{"killed", "resumed", "killed", "resumed", "paused", "created"}, r.logMessages(v2), "the newest first")
		require.Equal(t, all[:2], r.logMessages(v2+"?direction=forward&limit=2&level=info"))
		require.Empty(t, r.logMessages(v2+"?limit=0"))
		require.Empty(t, r.logMessages(v2+"?level=warn"))
		require.Equal(t, all[1:2], r.logMessages(v2+"?search=pause"))
		require.Empty(t, r.logMessages(v2+"?search=PAUSE"))
		at := start.Add(time.Second).UnixMilli()
		require.Equal(t, all[1:], r.logMessages(fmt.Sprintf("%s?direction=forward&cursor=%d", v2, at)))
		require.Equal(t, all[2:], r.logMessages(fmt.Sprintf("%s?direction=forward&cursor=%d", v2, at+1)))
		require.Equal(t, []string{"paused", "created"}, r.logMessages(fmt.Sprintf("%s?cursor=%d", v2, at)))

		v1 := "/sandboxes/" + id + "/logs"
		a := r.must(200, ownKey, "GET", fmt.Sprintf("%s?start=%d&limit=2", v1, at), "")
		require.Contains(t, a.body, `"line":"Sandbox paused"`)
		require.Contains(t, a.body, `"message":"Sandbox resumed"`)
		require.NotContains(t, a.body, "killed")

		require.Equal(t, `{"logs":[]}`, r.call(otherKey, "GET", v2, "").body, "of another team")
		r.api.Advance(8 * 24 * time.Hour)
		require.Empty(t, r.logMessages(v2), "kept for 7 days")
	})
}

// TestLogsTellOfALoss, whatever the node has failed at, and of a kill while paused.
func TestLogsTellOfALoss(t *testing.T) {
	inBubble(t, func(r *rig) {
		lost, paused := r.create(ownKey, long), r.create(ownKey, long)
		r.pause(paused)
		r.failing(nodetest.Pause)
		r.must(500, ownKey, "POST", "/sandboxes/"+lost+"/pause", "")
		r.kill(paused)
		require.Equal(t, []string{"killed", "created"}, r.logMessages("/v2/sandboxes/"+lost+"/logs"))
		require.Equal(t, []string{"killed", "paused", "created"}, r.logMessages("/v2/sandboxes/"+paused+"/logs"))
		r.failing(nodetest.Snapshot)
		lost = r.create(ownKey, long)
		r.must(500, ownKey, "POST", "/sandboxes/"+lost+"/snapshots", "{}")
		require.Equal(t, []string{"killed", "created"}, r.logMessages("/v2/sandboxes/"+lost+"/logs"))
		require.NotContains(t, r.must(200, ownKey, "GET", "/sandboxes/metrics?sandbox_ids="+lost, "").body, lost)
	})
}

func TestBadLogRequests(t *testing.T) {
	inBubble(t, func(r *rig) {
		for query, reason := range map[string]string{
			"cursor=-1":    `"cursor" in query has an error: number must be at least 0`,
			"cursor=a":     `"cursor" in query has an error: value a: an invalid integer: invalid syntax`,
			"limit=1001":   `"limit" in query has an error: number must be at most 1000`,
			"direction=up": `"direction" in query has an error: value is not one of the allowed values ["forward","backward"]`,
			"level=loud":   `"level" in query has an error: value is not one of the allowed values ["debug","info","warn","error"]`,
			"search=" + strings.Repeat("%C3%BC", 257): `"search" in query has an error: maximum string length is 256`,
		} {
			require.Contains(t, r.must(400, ownKey, "GET", "/v2/sandboxes/i1/logs?"+query, "").message(t), reason)
		}
		for _, query := range []string{"start=x", "limit=x"} {
			require.Contains(t, r.must(400, ownKey, "GET", "/sandboxes/i1/logs?"+query, "").message(t), "an invalid integer")
		}
		for _, path := range []string{"/v2/sandboxes/A/logs", "/sandboxes/A/logs"} {
			require.Equal(t, "Invalid sandbox ID", r.must(400, ownKey, "GET", path, "").message(t))
		}
	})
}
