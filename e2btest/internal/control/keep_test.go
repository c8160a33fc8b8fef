package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/control"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/nodetest"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/proxy"
)

// A kept is a rig whose state is saved.
type kept struct {
	*rig
	state  []byte // as it was saved last
	saves  int
	broken error // what saving gives
}

func inKeptBubble(t *testing.T, test func(k *kept)) {
	synctest.Test(t, func(t *testing.T) {
		k := &kept{rig: newRig(t, control.Options{}), state: []byte(control.NoState)}
		require.NoError(t, k.api.KeepState(k.state, k.save))
		test(k)
	})
}

func (k *kept) save(state []byte) error {
	if k.broken != nil {
		return k.broken
	}
	k.state = state
	k.saves++
	return nil
}

// crash goes on with another server, with what was saved up to now.
func (k *kept) crash() {
	k.t.Helper()
	state := k.state
	k.api.Close()
	require.NoError(k.t, k.next(state))
}

// restart goes on with another server, after a good end.
func (k *kept) restart() {
	k.t.Helper()
	k.api.Close()
	require.NoError(k.t, k.api.Save())
	require.NoError(k.t, k.next(k.state))
}

func (k *kept) next(state []byte) error {
	k.api = control.New(control.Options{Node: k.node, Teams: teams()})
	k.proxy = proxy.New(k.api, []string{"e2b.app"}, slog.New(slog.DiscardHandler))
	k.t.Cleanup(k.api.Close)
	return k.api.KeepState(state, k.save)
}

const complete = `{"templateID":"base","timeout":60,"secure":true,"autoPause":true,"envVars":{"A":"1"},"metadata":{"of":"x"},
	"allow_internet_access":false,"network":{"allowPublicTraffic":false,"denyOut":["10.0.0.0/8"],"httpsPorts":[8443]},
	"volumeMounts":[{"name":"v","path":"/v"}]}`

func TestKeepState(t *testing.T) {
	inKeptBubble(t, func(k *kept) {
		t := k.t
		volume := k.must(201, ownKey, "POST", "/volumes", `{"name":"v"}`)
		secret := k.must(201, ownKey, "POST", "/secrets", `{"name":"s","value":"hidden"}`)
		created := k.must(201, ownKey, "POST", "/sandboxes", complete)
		id, theirs := created.field(t, "sandboxID"), k.create(otherKey, long)
		snapshot := k.must(201, ownKey, "POST", "/sandboxes/"+id+"/snapshots", `{"name":"snap:tag"}`).field(t, "snapshotID")
		of := k.must(201, ownKey, "POST", "/sandboxes", `{"templateID":"snap:tag","timeout":60}`).field(t, "sandboxID")
		k.api.Advance(10 * time.Second)
		k.pause(id)
		spec := k.node.Sandbox(id).Spec
		info, list := k.info(id), k.must(200, ownKey, "GET", "/snapshots", "")
		k.kill(k.create(ownKey, plain))
		k.api.Advance(5 * time.Second)
		volume = k.must(200, ownKey, "GET", "/volumes/"+volume.field(t, "volumeID"), "") // its token has the time
		before := k.api.Statuses()
		require.NotContains(t, string(k.state), "hidden")

		for range 2 {
			k.restart()
			require.Equal(t, spec, k.node.Sandbox(id).Spec)
			require.JSONEq(t, info.body, k.info(id).body)
			require.Equal(t, "paused", k.rig.state(of))
			require.Equal(t, list.body, k.must(200, ownKey, "GET", "/snapshots", "").body)
			require.Equal(t, volume.body, k.must(200, ownKey, "GET", "/volumes/"+volume.field(t, "volumeID"), "").body)
			require.Equal(t, secret.body, k.must(200, ownKey, "GET", "/secrets/s", "").body)
			require.Equal(t, 404, k.info(theirs).status)
			require.Equal(t, 200, k.call(otherKey, "GET", "/sandboxes/"+theirs, "").status)
			after := k.api.Statuses()
			require.Len(t, after, 3, "of what is gone nothing is kept")
			for i := range after {
				require.Equal(t, before[i].ID, after[i].ID)
				require.Equal(t, before[i].Ran, after[i].Ran)
				require.True(t, before[i].CreatedAt.Equal(after[i].CreatedAt))
			}
		}
		logs := k.must(200, ownKey, "GET", "/sandboxes/"+of+"/logs", "").body
		require.Equal(t, 2, strings.Count(logs, `"line"`), "its creation and its pause: %s", logs)
		again := k.must(201, ownKey, "POST", "/sandboxes/"+id+"/connect", `{"timeout":60}`)
		require.Equal(t, created.body, again.body, "with its tokens")
		require.Equal(t, 2, k.node.Sandbox(id).Boots())
		require.Equal(t, "cannot delete template", k.must(400, ownKey, "DELETE", "/templates/snap", "").message(t)[:22], "one from it is there")
		k.kill(of)
		k.must(204, ownKey, "DELETE", "/templates/snap", "")
		k.restart()
		require.Equal(t, 404, k.info(of).status)
		require.Equal(t, 404, k.call(ownKey, "POST", "/sandboxes", `{"templateID":"`+snapshot+`"}`).status)
		require.Zero(t, k.node.Images())
	})
}

// TestCrash loses nothing that a request was told of.
func TestCrash(t *testing.T) {
	inKeptBubble(t, func(k *kept) {
		t := k.t
		running, killed, timedOut := k.create(ownKey, long), k.create(ownKey, long), k.create(ownKey, `{"templateID":"base","timeout":10}`)
		snap := k.must(201, ownKey, "POST", "/sandboxes/"+running+"/snapshots", `{}`).field(t, "snapshotID")
		k.kill(killed)
		k.api.Advance(time.Minute)
		saved := k.state
		late := k.create(ownKey, plain)
		require.NotNil(t, k.node.Sandbox(late))
		k.state = saved // it was not saved any more
		k.crash()
		require.Equal(t, "paused", k.rig.state(running))
		for _, id := range []string{killed, timedOut, late} {
			require.Equal(t, 404, k.info(id).status)
		}
		require.Nil(t, k.node.Sandbox(late), "its files are removed")
		k.connect(running, "60")
		k.create(ownKey, `{"templateID":"`+snap+`","timeout":60}`)
	})
}

// TestFilesThatAreGone, since they were being removed in the crash, take their
// sandbox with them.
func TestFilesThatAreGone(t *testing.T) {
	inKeptBubble(t, func(k *kept) {
		t := k.t
		id := k.create(ownKey, long)
		k.must(201, ownKey, "POST", "/sandboxes/"+id+"/snapshots", `{}`)
		other := k.create(ownKey, long)
		state := k.state
		k.kill(id)
		require.NotEqual(t, state, k.state)
		k.state = []byte(regexp.MustCompile(`"image": ".*"`).ReplaceAllString(string(state), `"image": "x"`))
		k.crash()
		require.Equal(t, 404, k.info(id).status)
		require.Equal(t, "paused", k.rig.state(other))
		require.Equal(t, "[]", k.must(200, ownKey, "GET", "/snapshots", "").body)
		require.NotContains(t, string(k.state), id)
	})
}

// TestEndDuringATransition loses no sandbox.
func TestEndDuringATransition(t *testing.T) {
	for step, path := range map[nodetest.Step]string{
		nodetest.Pause: "/pause", nodetest.Snapshot: "/snapshots", nodetest.Resume: "/connect",
	} {
		inKeptBubble(t, func(k *kept) {
			t := k.t
			id := k.create(ownKey, long)
			if step == nodetest.Resume {
				k.pause(id)
			}
			k.hold(step)
			answered := k.background(ownKey, "POST", "/sandboxes/"+id+path, `{"timeout":60}`)
			k.restart()
			require.Equal(t, 500, (<-answered).status)
			k.releaseAll()
			require.Equal(t, "paused", k.rig.state(id))
			k.connect(id, "60")
			require.Equal(t, "running", k.rig.state(id))
		})
	}
}

// TestPutAside at the end of its time, which is no pause to E2B.
func TestPutAsideIsKept(t *testing.T) {
	inKeptBubble(t, func(k *kept) {
		t := k.t
		id := k.create(ownKey, `{"templateID":"base","timeout":10}`)
		k.pause(id)
		k.connect(id, "10")
		k.hold(nodetest.Pause)
		done := make(chan struct{})
		go func() { defer close(done); k.api.Advance(time.Minute) }()
		synctest.Wait()
		k.restart()
		<-done
		k.releaseAll()
		require.Equal(t, "paused", k.rig.state(id))
		k.connect(id, "60")
	})
}

func TestSavesWhatChangesAlone(t *testing.T) {
	inKeptBubble(t, func(k *kept) {
		t := k.t
		require.Equal(t, 1, k.saves, "at the start")
		id := k.create(ownKey, plain)
		require.Equal(t, 2, k.saves)
		k.info(id)
		k.must(204, ownKey, "POST", "/sandboxes/"+id+"/timeout", `{"timeout":30}`)
		require.Equal(t, 2, k.saves)
		k.broken = errors.New("disk full")
		k.pause(id)
		require.Equal(t, 2, k.saves)
		require.ErrorIs(t, k.api.Save(), k.broken)
		k.broken = nil
		k.call(ownKey, "POST", "/sandboxes/"+id+"/timeout", `{"timeout":30}`)
		require.Equal(t, 3, k.saves, "what could not be saved comes with the next request")
		require.Contains(t, string(k.state), "pausedAt")
	})
}

func TestTrafficDoesNotWakeAfterARestart(t *testing.T) {
	inKeptBubble(t, func(k *kept) {
		t := k.t
		id := k.create(ownKey, `{"templateID":"base","timeout":60,"autoPause":true,"autoResume":{"enabled":true}}`)
		k.pause(id)
		require.Equal(t, 204, k.traffic(id, "49983").status)
		k.pause(id)
		k.restart()
		require.Equal(t, 502, k.traffic(id, "49983").status)
		k.connect(id, "60")
		k.pause(id)
		require.Equal(t, 204, k.traffic(id, "49983").status, "it has memory again")
	})
}

// TestKeptPausedForLong is still known after the retention of logs.
func TestKeptPausedForLong(t *testing.T) {
	inKeptBubble(t, func(k *kept) {
		t := k.t
		id := k.create(ownKey, plain)
		k.pause(id)
		k.api.Advance(30 * 24 * time.Hour)
		k.kill(k.create(ownKey, plain))
		require.Equal(t, id, k.api.Statuses()[0].ID)
		k.restart()
		require.Equal(t, id, k.api.Statuses()[0].ID)
		k.connect(id, "60")
		require.Equal(t, "running", k.rig.state(id))
	})
}

func TestBadState(t *testing.T) {
	inKeptBubble(t, func(k *kept) {
		t := k.t
		id := k.create(ownKey, complete[:len(`{"templateID":"base","timeout":60`)]+"}")
		k.must(201, ownKey, "POST", "/sandboxes/"+id+"/snapshots", `{"name":"snap"}`)
		k.must(201, ownKey, "POST", "/volumes", `{"name":"v"}`)
		k.must(201, ownKey, "POST", "/secrets", `{"name":"s","value":"v"}`)
		k.api.Close()
		good := string(k.state)
		for _, test := range []struct{ old, new, say string }{
			{`"version": 1`, `"version": 2`, "version 2"},
			{`"version": 1`, `"version": 0`, "no version 0"},
			{`"layout": "memory"`, `"layout": "other"`, "of another kind (other) than those of now (memory)"},
			{`"id": "` + id, `"id": "../` + id, `sandbox "../` + id + `": the ID is none`},
			{`"team": "local-dev-team"`, `"team": "x"`, `a team that there is not: "x"`},
			{`"what": "created"`, `"what": "born"`, `"born" at`},
			{`"startedAt"`, `"started"`, `unknown field "started"`},
			{`"tag": "default"`, `"tag": ""`, "a build has no tag"},
			{`"name": "snap"`, `"name": "a b"`, "it is incomplete"},
			{`"name": "v"`, `"name": "a b"`, `volume "a b"`},
			{`"name": "s"`, `"name": "a b"`, `secret "a b"`},
			{`"savedAt": "`, `"savedAt": "x`, "cannot parse"},
			{`"tokenSecret": "`, `"tokenSecret": "AAAA`, "35 bytes"},
		} {
			text := strings.Replace(good, test.old, test.new, 1)
			require.NotEqual(t, good, text, test.old)
			require.ErrorContains(t, k.next([]byte(text)), test.say)
			require.Equal(t, good, string(k.state), "it is not saved over")
			require.NotNil(t, k.node.Sandbox(id))
		}
		require.NoError(t, k.next([]byte(good)))
	})
}

// Anything is a node that has whatever it is asked to adopt.
type anything struct{ *nodetest.Node }

type namedImage string

func (namedImage) Remove() error { return nil }

func (a anything) AdoptSandbox(spec node.Spec) (node.Sandbox, error) {
	sb, err := a.Start(context.Background(), spec)
	if err != nil {
		return nil, err
	}
	return sb, sb.Pause(context.Background(), false)
}

func (anything) AdoptImage(name string) (node.Image, error) { return namedImage(name), nil }

func (anything) ImageName(i node.Image) string { return string(i.(namedImage)) }

// savedState is one of each kind.
const savedState = `{"version":1,"savedAt":"2000-01-01T00:00:15Z","layout":"memory","clockAheadNs":15000000000,
"tokenSecret":"opTccVPqucRtqqZ4x6RMQnS/spGiWIPft/DDO2av/5w=",
"sandboxes":[{"id":"ia","team":"local-dev-team","templateID":"ypn0anfmthx2zyyl7t5z","templateAliases":["base"],"envdVersion":"0.6.13",
	"base":"base","env":{"A":"1"},"metadata":{"of":"x"},"timeoutNs":60000000000,"autoPause":true,"autoPauseMemory":true,"secure":true,
	"allowInternet":false,"network":{"allowPublicTraffic":false,"denyOut":["10.0.0.0/8"],"httpsPorts":[8443]},
	"volumes":[{"volumeID":"b9092ad8-76cc-4071-a563-4481d71a6b5b","name":"v","path":"/v"}],
	"startedAt":"2000-01-01T00:00:00Z","pausedAt":"2000-01-01T00:00:10Z",
	"events":[{"at":"2000-01-01T00:00:00Z","what":"created"},{"at":"2000-01-01T00:00:10Z","what":"paused"}]},
	{"id":"ib","team":"local-dev-team","templateID":"5qdke","envdVersion":"0.6.13","base":"base","metadata":null,"timeoutNs":1,
	"startedAt":"2000-01-01T00:00:00Z","events":[{"at":"2000-01-01T00:00:00Z","what":"created"}]}],
"templates":[{"id":"5qdke","name":"snap","envdVersion":"0.6.13","team":"local-dev-team","createdAt":"2000-01-01T00:00:00Z",
	"builds":[{"tag":"tag","image":"x","from":{"id":"ia","team":"local-dev-team","templateID":"none","envdVersion":"0.6.13","base":"base",
	"metadata":null,"timeoutNs":1}}]}],
"volumes":[{"id":"b9092ad8-76cc-4071-a563-4481d71a6b5b","team":"local-dev-team","name":"v"}],
"secrets":[{"team":"local-dev-team","createdAt":"2000-01-01T00:00:00Z","currentVersion":1,"metadata":{},"name":"s",
	"secretID":"sec_0n6","updatedAt":"2000-01-01T00:00:00Z"}]}`

// FuzzKeepState: whatever a file has, it is an error or a state that is saved again as
// it is.
func FuzzKeepState(f *testing.F) {
	f.Add([]byte(control.NoState))
	f.Add([]byte(savedState))
	n := anything{nodetest.New()}
	server := control.New(control.Options{Node: n, Teams: teams()})
	require.NoError(f, server.KeepState([]byte(savedState), func([]byte) error { return nil }))
	require.Len(f, server.Statuses(), 2)
	server.Close()
	require.NoError(f, n.Close())
	f.Fuzz(func(t *testing.T, text []byte) {
		n := anything{nodetest.New()}
		defer func() { require.NoError(t, n.Close()) }()
		server := control.New(control.Options{Node: n, Teams: teams()})
		defer server.Close()
		var first, second []byte
		if server.KeepState(text, func(state []byte) error { first = state; return nil }) != nil {
			return
		}
		require.True(t, json.Valid(first))
		server.Statuses()
		again := control.New(control.Options{Node: n, Teams: teams()})
		defer again.Close()
		require.NoError(t, again.KeepState(first, func(state []byte) error { second = state; return nil }))
		savedAt := regexp.MustCompile(`"savedAt": ".*"`)
		require.Equal(t, savedAt.ReplaceAllString(string(first), ""), savedAt.ReplaceAllString(string(second), ""))
	})
}
