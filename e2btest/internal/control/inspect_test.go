package control_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/control"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/nodetest"
)

func TestStatusesOfSandboxesInAllStates(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		begin := time.Now()
		require.Empty(t, r.api.Statuses())
		id := r.create(ownKey, `{"templateID":"base","timeout":60,"metadata":{"a":"b"},"autoPause":true}`)
		status := func() control.Status {
			t.Helper()
			list := r.api.Statuses()
			require.NotEmpty(t, list)
			require.Equal(t, id, list[0].ID, "the oldest first")
			return list[0]
		}
		ran := func(state string, d time.Duration) {
			t.Helper()
			require.Equal(t, state, status().State)
			require.Equal(t, d, status().Ran)
		}
		st := status()
		require.Equal(t, control.Status{
			ID: id, Team: "local-dev-team", State: "running", Template: st.Template, TemplateName: "base",
			Metadata: map[string]string{"a": "b"}, CPUCount: 2, MemoryMB: 512,
			CreatedAt: begin, StartedAt: begin, EndAt: begin.Add(time.Minute),
			Processes: []node.Process{{PID: 2, Command: "sleep " + id}},
		}, st)
		require.NotEmpty(t, st.Template)
		st.Metadata["a"] = "changed"
		require.Equal(t, "b", status().Metadata["a"], "a copy")

		r.api.Advance(time.Hour)
		ran("paused", time.Minute)
		require.Nil(t, status().Processes)
		require.Equal(t, begin.Add(time.Minute), status().EndAt)
		release := r.hold(nodetest.Resume)
		resumed := r.background(ownKey, "POST", "/sandboxes/"+id+"/connect", `{"timeout":60}`)
		ran("resuming", time.Minute)
		release()
		require.Equal(t, 201, (<-resumed).status)
		r.create(otherKey, `{"templateID":"base"}`)
		r.api.Advance(30 * time.Second)
		ran("running", 90*time.Second)
		require.Equal(t, begin.Add(time.Hour), status().StartedAt)

		release = r.hold(nodetest.Pause)
		paused := r.background(ownKey, "POST", "/sandboxes/"+id+"/pause", "")
		require.Equal(t, "pausing", status().State)
		release()
		require.Equal(t, 204, (<-paused).status)
		r.kill(id)
		synctest.Wait()
		ran("gone", 90*time.Second)
		require.Empty(t, status().Template)
		require.Empty(t, status().TemplateName)
		require.Equal(t, begin.Add(time.Hour+30*time.Second), status().EndAt)
		require.Len(t, r.api.Statuses(), 2, "of all teams")
	})
}
