package control_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/control"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/nodetest"
)

func TestConnectAtTheDeadline(t *testing.T) {
	seen := make(map[string]int)
	for range 100 {
		inBubble(t, func(r *rig) {
			t := r.t
			id := r.create(ownKey, `{"templateID":"base","timeout":1,"autoPause":true}`)
			<-time.After(time.Second) // wakes together with the evictor
			a := r.call(ownKey, "POST", "/sandboxes/"+id+"/connect", `{"timeout":60}`)
			require.Contains(t, []int{200, 201}, a.status, a.body)
			require.Equal(t, "running", r.state(id))
			require.Equal(t, "running", r.node.Sandbox(id).State())
			require.Equal(t, time.Minute, r.at(id, "endAt").Sub(time.Now().UTC()))
			seen[fmt.Sprint(a.status)]++
		})
	}
	t.Log(seen)
}

func TestConcurrentConnectsShareOneStart(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, plain)
		r.pause(id)
		release := r.hold(nodetest.Resume)
		var answers []<-chan answer
		for n := range 10 {
			answers = append(answers, r.background(ownKey, "POST", "/sandboxes/"+id+"/connect", fmt.Sprintf(`{"timeout":%d}`, 100+n)))
		}
		release()
		for _, a := range answers {
			require.Equal(t, 201, (<-a).status)
		}
		require.Equal(t, 100*time.Second, r.at(id, "endAt").Sub(r.at(id, "startedAt")), "the first one's timeout")
	})
}

// Connect always comes just too late: each time it is told of the end of a transition,
// the next one has begun.
func TestConnectDuringManyTransitions(t *testing.T) {
	for _, c := range []struct {
		last   string // operation
		busy   bool   // nothing is stored
		status int
	}{
		{"snapshots", false, 200},
		{"pause", false, 201},
		{"snapshots", true, 404},
	} {
		t.Run(fmt.Sprint(c.last, c.status), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				begun, end := make(chan struct{}), make(chan struct{})
				r.node.Hook = func(_ context.Context, step nodetest.Step, _ string) error {
					if step == nodetest.Snapshot || step == nodetest.Pause {
						begun <- struct{}{}
						<-end
					}
					if c.busy && step == nodetest.Snapshot {
						return node.ErrBusy
					}
					return nil
				}
				id := ""
				next := []string{"snapshots", "snapshots", "snapshots", c.last}
				answers := make(chan answer, len(next))
				begin := func() {
					operation := next[0]
					next = next[1:]
					go func() { answers <- r.call(smallKey, "POST", "/sandboxes/"+id+"/"+operation, "{}") }()
					<-begun
				}
				following := false
				// The state is saved when a transition has ended and nobody knows yet.
				require.NoError(r.t, r.api.KeepState([]byte(control.NoState), func([]byte) error {
					if following && len(next) > 0 {
						begin()
					}
					return nil
				}))
				id = r.create(smallKey, long)
				r.create(smallKey, long) // the team can have no other
				following = true
				begin()
				connected := r.background(smallKey, "POST", "/sandboxes/"+id+"/connect", `{"timeout":3600}`)
				for range cap(answers) {
					if c.busy {
						r.api.Advance(time.Millisecond) // or there were nothing to save
					}
					end <- struct{}{}
					synctest.Wait()
				}
				require.Equal(r.t, c.status, (<-connected).status)
				require.NoError(r.t, r.node.Wrong())
				if !c.busy {
					info := r.call(smallKey, "GET", "/sandboxes/"+id, "")
					require.Equal(r.t, "running", info.field(r.t, "state"))
					require.Equal(r.t, "2000-01-01T01:00:00Z", info.field(r.t, "endAt"), "what was asked for")
				}
				for range cap(answers) {
					<-answers
				}
			})
		})
	}
}

func TestQuotaHoldsUnderConcurrency(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		release := r.hold(nodetest.Start)
		var answers []<-chan answer
		for range 10 {
			answers = append(answers, r.background(smallKey, "POST", "/sandboxes", long))
		}
		release()
		var ids []string
		refused := 0
		for _, answered := range answers {
			if a := <-answered; a.status == 201 {
				ids = append(ids, a.field(t, "sandboxID"))
			} else {
				require.Equal(t, 429, a.status)
				refused++
			}
		}
		require.Len(t, ids, 2)
		require.Equal(t, 8, refused)
		r.must(204, smallKey, "POST", "/sandboxes/"+ids[0]+"/pause", "")
		r.create(smallKey, long)
		require.Equal(t, 429, r.call(smallKey, "POST", "/sandboxes/"+ids[0]+"/connect", `{"timeout":1}`).status)
		r.must(204, smallKey, "DELETE", "/sandboxes/"+ids[1], "")
		r.must(201, smallKey, "POST", "/sandboxes/"+ids[0]+"/connect", `{"timeout":1}`)
	})
}

// A model is what a single client knows of its own sandbox.
type model struct{ state string }

// expect returns the answer to an operation and moves on.
func (m *model) expect(operation string) string {
	want := cells[operation][m.state]
	switch {
	case m.state == "unknown":
	case operation == "kill":
		m.state = "unknown"
	case operation == "pause":
		m.state = "paused"
	case m.state == "paused" && slices.Contains([]string{"connect", "resume", "traffic"}, operation):
		m.state = "running"
	}
	return want
}

// Sixteen clients work on sandboxes of their own, where each answer is known
// beforehand, and on shared ones, where it must be one that some phase has.
func TestRandomOperationsOfManyClients(t *testing.T) {
	const clients, steps = 16, 150
	names := slices.Sorted(maps.Keys(operations))
	names = slices.DeleteFunc(names, func(name string) bool { return name == "fork" }) // they would use up the quota
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, control.Options{})
		r.slow = true
		var shared []string
		for range 4 {
			shared = append(shared, r.create(ownKey, autoResume))
		}
		seed := rand.Uint64()
		t.Log("seed", seed)
		var wg sync.WaitGroup
		wrong := make(chan string, clients)
		for client := range clients {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(client)))
				var own string
				var m model
				for range steps {
					if own == "" || m.state == "unknown" && random.IntN(3) == 0 {
						own, m.state = r.create(ownKey, autoResume), "running"
					}
					operation := names[random.IntN(len(names))]
					if want, got := m.expect(operation), operations[operation](r, own); got != want {
						wrong <- fmt.Sprintf("%s of an own sandbox: want %q, got %q", operation, want, got)
						return
					}
					id := shared[random.IntN(len(shared))]
					operation = names[random.IntN(len(names))]
					if operation == "kill" && random.IntN(50) > 0 {
						continue
					}
					got := operations[operation](r, id)
					if !allowed(operation, got) {
						wrong <- fmt.Sprintf("%s of a shared sandbox: %q", operation, got)
						return
					}
				}
				if m.state != "unknown" {
					operations["kill"](r, own)
				}
			})
		}
		wg.Wait()
		select {
		case what := <-wrong:
			require.Fail(t, what)
		default:
		}
		synctest.Wait()
		alive := 0
		for _, id := range shared {
			want, ok := map[string]string{"200 running": "running", "200 paused": "paused", gone: "killed"}[operations["info"](r, id)]
			require.True(t, ok)
			require.Equal(t, want, r.node.Sandbox(id).State())
			if want != "killed" {
				alive++
			}
		}
		require.Equal(t, alive, r.node.Alive())
	})
}

func allowed(operation, got string) bool {
	for _, cell := range cells[operation] {
		if strings.TrimPrefix(cell, "waits ") == got {
			return true
		}
	}
	return false
}
