package control_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/control"
)

// A connect one millisecond before the deadline comes before the scan for what has
// expired, after it, or at the same time. Whoever is told that the sandbox runs has
// one that runs, for as long as was asked.
func TestConnectAMillisecondBeforeTheDeadline(t *testing.T) {
	const times, length = 1000, time.Minute
	for autoPause, late := range map[bool][]string{
		true:  {"201"},
		false: {gone, `409 Sandbox "ID" is being killed`},
	} {
		t.Run(fmt.Sprintf("autoPause=%t", autoPause), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, control.Options{})
				r.slow = true
				seen := make(map[string]int)
				for n := range times {
					id := r.create(ownKey, fmt.Sprintf(`{"templateID":"base","timeout":1,"autoPause":%t}`, autoPause))
					r.api.Advance(time.Second - time.Millisecond)
					asked := r.at(id, "endAt").Add(-time.Millisecond)
					answered := r.connectWhileExpiring(n%3, id)
					seen[answered]++
					if answered != "200" && answered != "201" {
						require.Contains(t, late, answered)
						synctest.Wait()
						require.Equal(t, 404, r.info(id).status)
						require.Equal(t, "killed", r.node.Sandbox(id).State())
						continue
					}
					require.Equal(t, "running", r.state(id), answered)
					require.Equal(t, "running", r.node.Sandbox(id).State(), answered)
					end := r.at(id, "endAt")
					require.WithinRange(t, end, asked.Add(length), asked.Add(length+10*time.Millisecond), answered)
					r.api.Advance(length - 20*time.Millisecond)
					require.Equal(t, "running", r.state(id), "it ends before its time")
					r.kill(id)
				}
				require.Positive(t, seen["200"])
				require.Positive(t, seen[late[0]], seen)
				require.Zero(t, r.node.Alive())
				t.Log(seen)
			})
		})
	}
}

// connectWhileExpiring sends a connect and lets the last millisecond pass: after it,
// before it, or at the same time.
func (r *rig) connectWhileExpiring(order int, id string) (answered string) {
	connect := func() { answered = post("connect", `{"timeout":60}`)(r, id) }
	expire := func() { r.api.Advance(time.Millisecond) }
	switch order {
	case 0:
		connect()
		expire()
	case 1:
		expire()
		connect()
	default:
		var wg sync.WaitGroup
		wg.Go(expire)
		wg.Go(connect)
		wg.Wait()
	}
	return answered
}
