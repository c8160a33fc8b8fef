package control_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/control"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/nodetest"
)

// snapshot makes one and returns its ID.
func (r *rig) snapshot(id, body string) string {
	r.t.Helper()
	return r.must(201, ownKey, "POST", "/sandboxes/"+id+"/snapshots", body).field(r.t, "snapshotID")
}

// from creates a sandbox from a snapshot.
func (r *rig) from(ref string) answer {
	r.t.Helper()
	return r.call(ownKey, "POST", "/sandboxes", `{"templateID":"`+ref+`","timeout":600}`)
}

// snapshotIDs lists snapshots.
func (r *rig) snapshotIDs(query string) []string {
	r.t.Helper()
	items, ok := r.must(200, ownKey, "GET", "/snapshots"+query, "").decoded(r.t).([]any)
	require.True(r.t, ok)
	ids := []string{}
	for _, item := range items {
		ids = append(ids, item.(map[string]any)["snapshotID"].(string))
	}
	return ids
}

func (r *rig) deleteSnapshot(id string) answer {
	r.t.Helper()
	return r.call(ownKey, "DELETE", "/templates/"+strings.NewReplacer("/", "%2F", ":", "%3A").Replace(id), "")
}

// forks forks a sandbox and returns the results.
func (r *rig) forks(key, id, body string) []map[string]any {
	r.t.Helper()
	var results []map[string]any
	for _, entry := range r.must(201, key, "POST", "/sandboxes/"+id+"/fork", body).decoded(r.t).([]any) {
		results = append(results, entry.(map[string]any))
	}
	return results
}

func TestSandboxFromASnapshot(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, `{"templateID":"code-interpreter","timeout":600,"envVars":{"A":"1","B":"1"}}`)
		end := r.at(id, "endAt")
		named, unnamed := r.snapshot(id, `{"name":" Snap:V1 "}`), r.snapshot(id, `{}`)
		require.Equal(t, "local-dev-team/snap:v1", named)
		require.Equal(t, "running", r.state(id))
		require.Equal(t, end, r.at(id, "endAt"), "it lives as long as before")
		for _, ref := range []string{named, unnamed, "snap:v1", " SNAP:v1 ", strings.TrimSuffix(unnamed, ":default")} {
			a := r.must(201, ownKey, "POST", "/sandboxes", `{"templateID":"`+ref+`","envVars":{"B":"2"}}`)
			spec := r.node.Sandbox(a.field(t, "sandboxID")).Spec
			require.Equal(t, "code-interpreter", spec.Template, "what it has is that of the first")
			require.Equal(t, map[string]string{"A": "1", "B": "2"}, spec.Env)
			require.Equal(t, id, spec.Image.(*nodetest.Image).Of)
			require.NotEqual(t, id, spec.ID)
		}
		for ref, message := range map[string]string{
			"snap":                   "tag 'default' does not exist for template 'snap'",
			"local-dev-team/snap:v2": "tag 'v2' does not exist for template 'local-dev-team/snap'",
			"other/snap:v1":          "template 'other/snap' not found",
		} {
			a := r.from(ref)
			require.Equal(t, 404, a.status, ref)
			require.Equal(t, message, a.message(t))
		}
		a := r.call(otherKey, "POST", "/sandboxes", `{"templateID":"`+strings.TrimSuffix(unnamed, ":default")+`"}`)
		require.Equal(t, 404, a.status, "it belongs to another team")
	})
}

// TestSnapshotsOfSnapshots know where they came from.
func TestSnapshotsOfSnapshots(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		first := r.create(ownKey, `{"templateID":"base","timeout":600}`)
		second := r.from(r.snapshot(first, `{"name":"one"}`)).field(t, "sandboxID")
		third := r.from(r.snapshot(second, `{"name":"two"}`)).field(t, "sandboxID")
		spec := r.node.Sandbox(third).Spec
		require.Equal(t, second, spec.Image.(*nodetest.Image).Of)
		require.Equal(t, "base", spec.Template)
		require.Equal(t, "two", r.info(third).field(t, "alias"))
		require.Equal(t, []string{third}, r.call(ownKey, "GET", "/v2/sandboxes?template=two", "").ids(t))
	})
}

// TestANameIsReused: the tag moves, and what no tag leads to is removed.
func TestANameIsReused(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id, other := r.create(ownKey, long), r.create(ownKey, long)
		r.snapshot(id, `{"name":"base:v1"}`) // also one of E2B's own
		r.snapshot(id, `{"name":"base:v2"}`)
		require.Equal(t, 2, r.node.Images())
		r.snapshot(other, `{"name":"local-dev-team/base:v1"}`)
		synctest.Wait()
		require.Equal(t, 2, r.node.Images())
		require.Equal(t, other, r.node.Sandbox(r.from("base:v1").field(t, "sandboxID")).Spec.Image.(*nodetest.Image).Of)
		require.Equal(t, id, r.node.Sandbox(r.from("base:v2").field(t, "sandboxID")).Spec.Image.(*nodetest.Image).Of)
		require.Equal(t, []string{"local-dev-team/base:v1"}, r.snapshotIDs(""), "the newest tag")
		require.Equal(t, []string{"local-dev-team/base:v2"}, r.snapshotIDs("?sandboxID="+id))
		require.Equal(t, 201, r.call(otherKey, "POST", "/sandboxes", plain).status, "others have E2B's")
		a := r.from("base")
		require.Equal(t, "tag 'default' does not exist for template 'base'", a.message(t), "one's own come first")
	})
}

// TestAnImageInUseIsRemovedLater when its tag moves while a sandbox starts from it.
func TestAnImageInUseIsRemovedLater(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, long)
		snap := r.snapshot(id, `{"name":"snap"}`)
		release := r.hold(nodetest.Start)
		started := r.background(ownKey, "POST", "/sandboxes", `{"templateID":"`+snap+`"}`)
		a := r.deleteSnapshot(snap)
		require.Equal(t, 400, a.status)
		require.Contains(t, a.message(t), "because there are running sandboxes using it")
		r.snapshot(id, `{"name":"snap"}`)
		synctest.Wait()
		require.Equal(t, 2, r.node.Images())
		release()
		require.Equal(t, 201, (<-started).status)
		synctest.Wait()
		require.Equal(t, 1, r.node.Images())
	})
}

func TestDeleteSnapshot(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, long)
		snap := r.snapshot(id, `{"name":"snap:v1"}`)
		r.snapshot(id, `{"name":"snap:v2"}`)
		user := r.from(snap).field(t, "sandboxID")
		refused := func(state string) {
			t.Helper()
			a := r.deleteSnapshot(snap)
			require.Equal(t, 400, a.status)
			require.Regexp(t, "^cannot delete template '[a-z0-9]{20}' because there are "+state+" sandboxes using it$", a.message(t))
		}
		refused("running")
		r.pause(user)
		refused("paused")
		r.kill(user)
		require.Equal(t, 404, r.call(otherKey, "DELETE", "/templates/snap", "").status, "another team's bare name is unknown")
		require.Equal(t, 404, r.deleteSnapshot("none").status)
		require.Equal(t, 400, r.deleteSnapshot("a%20b").status)
		require.Equal(t, 403, r.deleteSnapshot("base").status, "that is nobody's own")
		a := r.call(ownKey, "DELETE", "/templates/"+snap, "")
		require.Equal(t, "validation error: no matching operation was found", a.message(t), "a slash is escaped")
		require.Equal(t, 2, r.node.Images())

		require.Equal(t, 204, r.deleteSnapshot("local-dev-team/snap:whatever").status)
		synctest.Wait()
		require.Zero(t, r.node.Images())
		require.Equal(t, 404, r.deleteSnapshot(snap).status)
		require.Equal(t, 404, r.from(snap).status)
		require.Empty(t, r.snapshotIDs(""))
		require.Equal(t, "running", r.state(id), "its source stays")
	})
}

func TestListSnapshots(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		a, b := r.create(ownKey, long), r.create(ownKey, long)
		var made []string
		for _, s := range []struct{ id, body string }{{a, `{}`}, {b, `{"name":"one"}`}, {a, `{"name":"two:x"}`}, {b, `{}`}} {
			r.api.Advance(time.Second)
			made = append(made, r.snapshot(s.id, s.body))
		}
		r.kill(b)
		theirs := r.create(otherKey, long)
		r.must(201, otherKey, "POST", "/sandboxes/"+theirs+"/snapshots", `{"name":"one"}`)
		for query, want := range map[string][]string{
			"":                                {made[3], made[2], made[1], made[0]},
			"?sandboxID=" + a:                 {made[2], made[0]},
			"?sandboxID=" + b + "-6532622b":   {made[3], made[1]},
			"?sandboxID=" + theirs:            {},
			"?name=one":                       {made[1]},
			"?name=local-dev-team/one":        {made[1]},
			"?name=other/one":                 {},
			"?name=one:x":                     {},
			"?name=two:x&sandboxID=" + a:      {made[2]},
			"?name=two&sandboxID=" + b:        {},
			"?name=" + made[0]:                {made[0]},
			"?name=" + strings.ToUpper("one"): {made[1]},
			"?limit=3":                        {made[3], made[2], made[1]},
			"?nextToken=":                     {made[3], made[2], made[1], made[0]},
		} {
			require.Equal(t, want, r.snapshotIDs(query), query)
		}
		next := r.must(200, ownKey, "GET", "/snapshots?limit=3", "").header.Get("X-Next-Token")
		require.Equal(t, []string{made[0]}, r.snapshotIDs("?limit=3&nextToken="+next))
		for query, message := range map[string]string{
			"?limit=0":       `validation error: error in openapi3filter.RequestError: parameter "limit" in query has an error: number must be at least 1`,
			"?sandboxID=A_B": "Invalid sandbox ID",
			"?name=a%20b":    "Invalid name: invalid template ID: a b",
		} {
			answer := r.must(400, ownKey, "GET", "/snapshots"+query, "")
			require.Equal(t, message, answer.message(t))
		}
	})
}

func TestSnapshotBodies(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, long)
		for body, message := range map[string]string{
			`{"name":7}`:         `validation error: error in openapi3filter.RequestError: request body has an error: doesn't match schema #/components/schemas/SandboxSnapshotRequest: Error at "/name": value must be a string`,
			`{"name":"a b"}`:     "Invalid name: invalid template ID: a b",
			`{"mode":"half"}`:    `validation error: error in openapi3filter.RequestError: request body has an error: doesn't match schema #/components/schemas/SandboxSnapshotRequest: Error at "/mode": value is not one of the allowed values ["full","filesystem"]`,
			`{"name":"other/x"}`: "namespace 'other' must match your team 'local-dev-team'",
		} {
			require.Equal(t, message, r.must(400, ownKey, "POST", "/sandboxes/"+id+"/snapshots", body).message(t))
		}
		require.Equal(t, 400, r.call(ownKey, "POST", "/sandboxes/A_B/snapshots", `{}`).status)
		require.Equal(t, 400, r.call(ownKey, "POST", "/sandboxes/A_B/fork", `{}`).status)
		require.Zero(t, r.node.Images())

		// What was kept of the sandbox itself has that mode, too.
		r.snapshot(id, `{"mode":"filesystem"}`)
		r.must(204, ownKey, "POST", "/sandboxes/"+id+"/timeout", `{"timeout":0}`)
		synctest.Wait()
		require.Equal(t, "paused", r.state(id))
		r.connect(id, "60")
		require.Equal(t, 2, r.node.Sandbox(id).Boots())
	})
}

// TestTrafficDuringASnapshot goes on.
func TestTrafficDuringASnapshot(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, long)
		release := r.hold(nodetest.Snapshot)
		taken := r.background(ownKey, "POST", "/sandboxes/"+id+"/fork", "")
		require.Equal(t, "running", r.state(id))
		require.Equal(t, 204, r.traffic(id, "49983").status)
		release()
		require.Equal(t, 201, (<-taken).status)
	})
}

// TestBusyNode changes nothing, also for who waits.
func TestBusyNode(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, long)
		for _, path := range []string{"/snapshots", "/fork"} {
			r.failingWith(nodetest.Snapshot, node.ErrBusy)
			release := r.hold(nodetest.Snapshot)
			taken := r.background(ownKey, "POST", "/sandboxes/"+id+path, `{}`)
			connected := r.background(ownKey, "POST", "/sandboxes/"+id+"/connect", `{"timeout":60}`)
			release()
			require.Equal(t, 503, (<-taken).status)
			require.Equal(t, 200, (<-connected).status)
			require.Equal(t, "running", r.state(id))
		}
		require.Empty(t, r.snapshotIDs(""))
		r.must(204, ownKey, "POST", "/sandboxes/"+id+"/timeout", `{"timeout":0}`)
		synctest.Wait()
		require.Equal(t, 404, r.info(id).status, "nothing was kept")
	})
}

// TestFailedNode loses the sandbox.
func TestFailedNode(t *testing.T) {
	for path, message := range map[string]string{"/snapshots": "Error creating snapshot template", "/fork": "Error forking sandbox"} {
		inBubble(t, func(r *rig) {
			t := r.t
			id := r.create(ownKey, long)
			r.failing(nodetest.Snapshot)
			require.Equal(t, message, r.must(500, ownKey, "POST", "/sandboxes/"+id+path, `{}`).message(t))
			require.Equal(t, 404, r.info(id).status)
			require.Equal(t, "killed", r.node.Sandbox(id).State())
			require.Zero(t, r.node.Images())
		})
	}
}

func TestForks(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, `{"templateID":"code-interpreter","timeout":600,"secure":true,"autoPause":true,"metadata":{"m":"1"},
			"envVars":{"A":"1"},"network":{"allowPublicTraffic":false}}`)
		source := r.info(id)
		r.api.Advance(time.Minute)
		results := r.forks(ownKey, id, `{"count":3.0,"timeout":60}`)
		require.Len(t, results, 3)
		seen := map[string]bool{id: true, source.field(t, "envdAccessToken"): true}
		for _, result := range results {
			require.NotContains(t, result, "error")
			fork := result["sandbox"].(map[string]any)
			require.Equal(t, source.field(t, "templateID"), fork["templateID"])
			for _, name := range []string{"sandboxID", "envdAccessToken", "trafficAccessToken"} {
				value, _ := fork[name].(string)
				require.NotEmpty(t, value)
				require.False(t, seen[value], "each has its own %s", name)
				seen[value] = true
			}
			forkID := fork["sandboxID"].(string)
			info := r.info(forkID)
			require.Equal(t, map[string]any{"m": "1"}, info.value(t, "metadata"))
			require.Equal(t, map[string]any{"autoResume": false, "onTimeout": "pause"}, info.value(t, "lifecycle"))
			require.Equal(t, time.Minute, r.at(forkID, "endAt").Sub(r.at(forkID, "startedAt")))
			spec := r.node.Sandbox(forkID).Spec
			require.Equal(t, "code-interpreter", spec.Template)
			require.Equal(t, map[string]string{"A": "1"}, spec.Env)
			require.Equal(t, fork["envdAccessToken"], spec.AccessToken)
		}
		require.Equal(t, source.value(t, "endAt"), r.info(id).value(t, "endAt"))
		synctest.Wait()
		require.Zero(t, r.node.Images(), "a fork leaves no snapshot")
		require.Empty(t, r.snapshotIDs(""))

		// Those of a sandbox from a snapshot use that, too.
		user := r.from(r.snapshot(id, `{"name":"snap"}`)).field(t, "sandboxID")
		fork := r.forks(ownKey, user, "")[0]["sandbox"].(map[string]any)["sandboxID"].(string)
		r.kill(user)
		require.Equal(t, 400, r.deleteSnapshot("snap").status)
		r.kill(fork)
		require.Equal(t, 204, r.deleteSnapshot("snap").status)
	})
}

// TestForksFailEachForItself.
func TestForksFailEachForItself(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		count := func(results []map[string]any) (sandboxes int, failure map[string]any) {
			for _, result := range results {
				require.Len(t, result, 1)
				if result["sandbox"] != nil {
					sandboxes++
				} else {
					failure, _ = result["error"].(map[string]any)
				}
			}
			return sandboxes, failure
		}
		id := r.create(ownKey, long)
		r.once = nodetest.Start
		sandboxes, failure := count(r.forks(ownKey, id, `{"count":3}`))
		require.Equal(t, 2, sandboxes)
		require.Equal(t, map[string]any{
			"code": 500.0, "message": "Failed to place sandbox: sandbox creation failed on 1 node(s), please retry; if the problem persists, contact us",
		}, failure)
		r.failing(nodetest.Start)
		sandboxes, _ = count(r.forks(ownKey, id, `{"count":3}`))
		require.Zero(t, sandboxes, "and it is 201 nevertheless")
		require.Equal(t, "running", r.state(id))
	})
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(smallKey, long)
		r.create(smallKey, long)
		results := r.forks(smallKey, id, "")
		require.Len(t, results, 1)
		failure, _ := results[0]["error"].(map[string]any)
		require.InDelta(t, 429, failure["code"], 0)
		require.Contains(t, failure["message"], "you have reached the maximum number of concurrent E2B sandboxes (2)")
		synctest.Wait()
		require.Zero(t, r.node.Images())
	})
}

// leave sends a request, goes away, and returns when the handler has.
func (r *rig) leave(path string) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(`{}`))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Api-Key", ownKey)
	done := make(chan answer, 1)
	go func() { done <- send(r.api, req) }()
	synctest.Wait()
	cancel()
	require.Equal(r.t, 408, (<-done).status)
}

// TestNobodyWaits: a snapshot is kept all the same, a fork leaves nothing.
func TestNobodyWaits(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, long)
		release := r.hold(nodetest.Snapshot)
		r.leave("/sandboxes/" + id + "/snapshots")
		release()
		synctest.Wait()
		require.Len(t, r.snapshotIDs("?sandboxID="+id), 1)
		require.Equal(t, 1, r.node.Images())
		release = r.hold(nodetest.Snapshot)
		r.leave("/sandboxes/" + id + "/fork")
		release()
		synctest.Wait()
		require.Equal(t, 1, r.node.Images())
		require.Equal(t, 1, r.node.Alive())
		require.Equal(t, "running", r.state(id))

		// And while the forks start.
		release = r.hold(nodetest.Start)
		r.leaveForks(id)
		release()
		synctest.Wait()
		require.Equal(t, 1, r.node.Images())
		require.Equal(t, 1, r.node.Alive())
		// Nor does one wait for another.
		release = r.hold(nodetest.Snapshot)
		first := r.background(ownKey, "POST", "/sandboxes/"+id+"/snapshots", `{}`)
		r.leave("/sandboxes/" + id + "/snapshots")
		release()
		require.Equal(t, 201, (<-first).status)
	})
}

// TestNobodyWaitsAtTheEnd: who leaves just as the snapshot is there shares nothing with it.
func TestNobodyWaitsAtTheEnd(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, long)
		for _, path := range []string{"/snapshots", "/fork"} {
			for range 50 {
				release := r.hold(nodetest.Snapshot)
				ctx, cancel := context.WithCancel(t.Context())
				req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/sandboxes/"+id+path, strings.NewReader(`{}`))
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("X-Api-Key", ownKey)
				done := make(chan answer, 1)
				go func() { done <- send(r.api, req) }()
				synctest.Wait()
				go release()
				cancel()
				require.Contains(t, []int{201, 408}, (<-done).status)
				synctest.Wait()
			}
		}
		require.Len(t, r.snapshotIDs(""), 50)
	})
}

// leaveForks is leave for forks that are being started, which have an answer.
func (r *rig) leaveForks(id string) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/sandboxes/"+id+"/fork", strings.NewReader(`{"count":20}`))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Api-Key", ownKey)
	done := make(chan answer, 1)
	go func() { done <- send(r.api, req) }()
	synctest.Wait()
	cancel()
	require.Equal(r.t, 201, (<-done).status)
}

// TestBlockedTeamKeepsItsSnapshots and may delete them.
func TestBlockedTeamKeepsItsSnapshots(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, long)
		snap := r.snapshot(id, `{}`)
		r.api.Block(ownKey, "payment failed")
		require.Equal(t, 403, r.call(ownKey, "POST", "/sandboxes/"+id+"/snapshots", `{}`).status)
		require.Equal(t, 403, r.call(ownKey, "POST", "/sandboxes/"+id+"/fork", "").status)
		require.Equal(t, []string{snap}, r.snapshotIDs(""))
		require.Equal(t, 204, r.deleteSnapshot(snap).status)
	})
}

// TestCloseDuringASnapshot leaves nothing that runs.
func TestCloseDuringASnapshot(t *testing.T) {
	for _, path := range []string{"/snapshots", "/fork"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, control.Options{})
			id := r.create(ownKey, long)
			r.hold(nodetest.Snapshot)
			taken := r.background(ownKey, "POST", "/sandboxes/"+id+path, `{}`)
			r.api.Close()
			require.Equal(t, 500, (<-taken).status)
			require.Equal(t, 503, r.call(ownKey, "POST", "/sandboxes", plain).status)
		})
	}
}

// TestSnapshotOutlivesItsSandboxsTime: the end comes when it is taken.
func TestSnapshotOutlivesItsSandboxsTime(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, `{"templateID":"base","timeout":10}`)
		release := r.hold(nodetest.Snapshot)
		taken := r.background(ownKey, "POST", "/sandboxes/"+id+"/snapshots", `{}`)
		<-time.After(20 * time.Second)
		require.Equal(t, "running", r.state(id))
		release()
		require.Equal(t, 201, (<-taken).status)
		synctest.Wait()
		require.Equal(t, "paused", r.state(id))
		r.connect(id, "60")
		require.Equal(t, "running", r.state(id))
	})
}
