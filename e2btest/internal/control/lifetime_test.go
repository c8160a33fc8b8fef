package control_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/control"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/nodetest"
)

// inBubble runs a test in fake time, with a rig.
func inBubble(t *testing.T, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newRig(t, control.Options{})) })
}

// at returns a time in the info of a sandbox.
func (r *rig) at(id, field string) time.Time {
	r.t.Helper()
	at, err := time.Parse(time.RFC3339Nano, r.info(id).field(r.t, field))
	require.NoError(r.t, err)
	return at
}

func TestTimeoutKillsOnTime(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, `{"templateID":"base","timeout":10}`)
		<-time.After(10*time.Second - time.Nanosecond)
		synctest.Wait()
		require.Equal(t, "running", r.state(id))
		<-time.After(time.Nanosecond)
		synctest.Wait()
		require.Equal(t, 404, r.info(id).status)
		require.Equal(t, "killed", r.node.Sandbox(id).State())
	})
}

func TestTimeoutPausesWithTheKindAskedFor(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		full := r.create(ownKey, `{"templateID":"base","timeout":10,"autoPause":true}`)
		files := r.create(ownKey, `{"templateID":"base","timeout":10,"autoPause":true,"autoPauseMemory":false}`)
		r.api.Advance(10 * time.Second)
		for id, boots := range map[string]int{full: 1, files: 2} {
			require.Equal(t, "paused", r.state(id))
			require.Equal(t, "paused", r.node.Sandbox(id).State())
			r.connect(id, "10")
			require.Equal(t, boots, r.node.Sandbox(id).Boots())
		}
		r.api.Advance(10 * time.Second)
		require.Equal(t, "paused", r.state(full), "auto-pause survives a connect")
		r.connect(files, "10")
		require.Equal(t, 3, r.node.Sandbox(files).Boots(), "and so does its kind")
	})
}

func TestAdvanceDoesThingsInOrderAndAtTheirTime(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		began := time.Now()
		late := r.create(ownKey, `{"templateID":"base","timeout":7200,"autoPause":true}`)
		early := r.create(ownKey, `{"templateID":"base","timeout":60,"autoPause":true}`)
		stays := r.create(ownKey, `{"templateID":"base","timeout":86400}`)
		r.api.Advance(3 * time.Hour)
		require.WithinDuration(t, began.Add(time.Minute), r.at(early, "endAt"), 0)
		require.WithinDuration(t, began.Add(2*time.Hour), r.at(late, "endAt"), 0)
		require.Equal(t, "running", r.state(stays))
		fresh := r.create(ownKey, plain)
		require.WithinDuration(t, began.Add(3*time.Hour), r.at(fresh, "startedAt"), 0)
		r.api.Advance(-time.Hour)
		require.Equal(t, "running", r.state(fresh))
		require.Equal(t, began, time.Now(), "real time stood still")
	})
}

func TestAdvanceWaitsForWhatIsDue(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		r.create(ownKey, `{"templateID":"base","timeout":60,"autoPause":true}`)
		release := r.hold(nodetest.Pause)
		advanced := make(chan struct{})
		go func() {
			r.api.Advance(time.Hour)
			close(advanced)
		}()
		synctest.Wait()
		select {
		case <-advanced:
			require.Fail(t, "the pause is not over")
		default:
		}
		release()
		<-advanced
	})
}

func TestAdvanceWaitsOutASnapshotThatDelaysTheEnd(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, `{"templateID":"base","timeout":60}`)
		release := r.hold(nodetest.Snapshot)
		taken := r.background(ownKey, "POST", "/sandboxes/"+id+"/snapshots", `{}`)
		advanced := make(chan struct{})
		go func() {
			r.api.Advance(time.Hour)
			close(advanced)
		}()
		synctest.Wait()
		require.Equal(t, "running", r.state(id))
		release()
		<-advanced
		require.Equal(t, 201, (<-taken).status)
		require.Equal(t, "paused", r.state(id), "as after any end that a kept state survives")
	})
}

func TestMaximumCountsFromTheLastResume(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, `{"templateID":"base","timeout":72000,"autoPause":true}`) // 20 of 24 h
		first := r.at(id, "startedAt")
		r.api.Advance(19 * time.Hour)
		r.connect(id, "86400")
		require.WithinDuration(t, first.Add(24*time.Hour), r.at(id, "endAt"), 0, "clamped")
		r.api.Advance(5 * time.Hour)
		require.Equal(t, "paused", r.state(id))
		r.connect(id, "86400")
		require.WithinDuration(t, first.Add(48*time.Hour), r.at(id, "endAt"), 0, "a new run")
	})
}

func TestRefreshHasAFloorAndOnlyExtends(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, `{"templateID":"base","timeout":10}`)
		for _, step := range []struct {
			body string
			want time.Duration
		}{{"", 15 * time.Second}, {`{"duration":20}`, 20 * time.Second}, {`{"duration":1}`, 20 * time.Second}} {
			r.must(204, ownKey, "POST", "/sandboxes/"+id+"/refreshes", step.body)
			require.Equal(t, step.want, r.at(id, "endAt").Sub(r.at(id, "startedAt")), step.body)
		}
		r.must(204, ownKey, "POST", "/sandboxes/"+id+"/timeout", `{"timeout":5}`)
		require.Equal(t, 5*time.Second, r.at(id, "endAt").Sub(r.at(id, "startedAt")), "timeout may shorten")
	})
}

func TestConnectWithTimeoutZeroResumesTheExpired(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		pausing := r.create(ownKey, `{"templateID":"base","autoPause":true}`)
		killing := r.create(ownKey, plain)
		for _, id := range []string{pausing, killing} {
			r.pause(id)
			r.connect(id, "0")
		}
		synctest.Wait()
		require.Equal(t, "paused", r.state(pausing))
		// It had a snapshot, which a timeout leaves there.
		require.Equal(t, "paused", r.state(killing))
		r.connect(killing, "10")
		require.Equal(t, 204, r.traffic(killing, "49983").status)
		r.kill(killing)
		require.Equal(t, "killed", r.node.Sandbox(killing).State())
	})
}

func TestFailedPauseOnTimeoutLosesTheSandbox(t *testing.T) {
	for name, body := range map[string]string{
		"auto-pause":         `{"templateID":"base","timeout":60,"autoPause":true}`,
		"kill after a pause": `{"templateID":"base","timeout":60}`,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				t := r.t
				id := r.create(ownKey, body)
				r.pause(id)
				r.connect(id, "60")
				r.failing(nodetest.Pause)
				r.api.Advance(time.Minute)
				require.Equal(t, 404, r.info(id).status)
				require.Equal(t, "killed", r.node.Sandbox(id).State())
			})
		})
	}
}

func TestFailedResumeLeavesTheSandboxPaused(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, plain)
		r.pause(id)
		r.failing(nodetest.Resume)
		a := r.call(ownKey, "POST", "/sandboxes/"+id+"/connect", `{"timeout":60}`)
		require.Equal(t, 500, a.status)
		require.Equal(t, "sandbox_create_failed", a.field(t, "error_code"))
		require.Equal(t, "paused", r.state(id))

		release := r.hold(nodetest.Resume)
		connected := r.background(ownKey, "POST", "/sandboxes/"+id+"/connect", `{"timeout":60}`)
		r.kill(id)
		release()
		require.Equal(t, 500, (<-connected).status)
		require.Equal(t, "killed", r.node.Sandbox(id).State(), "nobody could reach it any more")
	})
}

func TestFailedPauseFailsThoseWhoWaitForIt(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, plain)
		release := r.hold(nodetest.Pause)
		r.failing(nodetest.Pause)
		path := "/sandboxes/" + id
		first := r.background(ownKey, "POST", path+"/pause", "")
		second := r.background(ownKey, "POST", path+"/pause", "")
		connect := r.background(ownKey, "POST", path+"/connect", `{"timeout":60}`)
		release()
		require.Equal(t, "Error pausing sandbox", (<-first).message(t))
		require.Equal(t, "Error pausing sandbox", (<-second).message(t))
		require.Equal(t, "Error waiting for sandbox state change", (<-connect).message(t))
		require.Equal(t, 404, r.info(id).status)
	})
}

func TestFailedKillIsToldAndForgotten(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		r.failing(nodetest.Kill)
		running, paused := r.create(ownKey, plain), r.create(ownKey, plain)
		r.pause(paused)
		for _, id := range []string{running, paused} {
			a := r.call(ownKey, "DELETE", "/sandboxes/"+id, "")
			require.Equal(t, 500, a.status)
			require.Equal(t, "Error killing sandbox: injected", a.message(t))
			require.Equal(t, 404, r.info(id).status)
		}
	})
}

func TestSlowNodeEndsInTheServersOwnTimeout(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, `{"templateID":"base","timeout":600}`)
		release := r.hold(nodetest.Pause)
		began := time.Now()
		a := r.call(ownKey, "POST", "/sandboxes/"+id+"/pause", "")
		require.Equal(t, 408, a.status)
		require.Empty(t, a.body)
		require.Equal(t, 70*time.Second, time.Since(began))
		require.Equal(t, "paused", r.state(id), "the pause goes on")
		release()
		synctest.Wait()
		require.Equal(t, "paused", r.node.Sandbox(id).State())
	})
}

func TestPauseGoesOnWhenItsClientGoes(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, plain)
		release := r.hold(nodetest.Pause)
		ctx, cancel := context.WithCancel(t.Context())
		answered := make(chan struct{})
		go func() {
			req := httptest.NewRequestWithContext(ctx, "POST", "/sandboxes/"+id+"/pause", nil)
			req.Header.Set("X-API-Key", ownKey)
			send(r.api, req)
			close(answered)
		}()
		synctest.Wait()
		cancel()
		<-answered
		joiner := r.background(ownKey, "POST", "/sandboxes/"+id+"/pause", "")
		release()
		require.Equal(t, 204, (<-joiner).status)
		require.Equal(t, "paused", r.node.Sandbox(id).State())
	})
}

func TestMemoryFalse(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, plain)
		path := "/sandboxes/" + id
		r.must(204, ownKey, "POST", path+"/pause", "")
		r.must(201, ownKey, "POST", path+"/connect", `{"timeout":60,"memory":false}`)
		require.Equal(t, 2, r.node.Sandbox(id).Boots(), "a reboot, although the memory was there")
		r.must(200, ownKey, "POST", path+"/connect", `{"timeout":60,"memory":false}`)
		require.Equal(t, 2, r.node.Sandbox(id).Boots(), "nothing happens to a running sandbox")

		r.pause(id)
		release := r.hold(nodetest.Resume)
		first := r.background(ownKey, "POST", path+"/connect", `{"timeout":60}`)
		a := r.call(ownKey, "POST", path+"/connect", `{"timeout":60,"memory":false}`)
		require.Equal(t, 409, a.status)
		require.Equal(t, "sandbox_start_in_flight", a.field(t, "error_code"))
		release()
		require.Equal(t, 201, (<-first).status)
	})
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		pausing, resuming := r.create(ownKey, plain), r.create(ownKey, plain)
		r.pause(resuming)
		r.hold(nodetest.Pause)
		r.hold(nodetest.Resume)
		r.hold(nodetest.Start)
		waiting := []<-chan answer{
			r.background(ownKey, "POST", "/sandboxes/"+pausing+"/pause", ""),
			r.background(ownKey, "POST", "/sandboxes/"+resuming+"/connect", `{"timeout":60}`),
		}
		starting := r.background(ownKey, "POST", "/sandboxes", plain)
		r.api.Close()
		for _, answered := range waiting {
			require.Equal(t, 500, (<-answered).status)
		}
		r.releaseAll()
		require.Equal(t, 503, (<-starting).status)
		for _, a := range []answer{
			r.call(ownKey, "POST", "/sandboxes", plain),
			r.call(ownKey, "POST", "/sandboxes/"+resuming+"/connect", `{"timeout":60}`),
			r.call(ownKey, "DELETE", "/sandboxes/"+resuming, ""),
		} {
			require.Equal(t, 503, a.status, a.body)
		}
		r.api.Close()
	})
}
