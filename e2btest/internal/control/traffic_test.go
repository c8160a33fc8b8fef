package control_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/control"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/nodetest"
)

const privateAutoResume = `{"templateID":"base","timeout":60,"secure":true,"autoPause":true,"autoResume":{"enabled":true},"network":{"allowPublicTraffic":false}}`

func TestTrafficWakesOnlyWhatItMay(t *testing.T) {
	const (
		notFound = "The sandbox was not found"
		denied   = "This sandbox can't be resumed with the credentials provided. Check your access token and try again."
		closed   = "The sandbox is running but port is not open"
	)
	tests := []struct {
		name, create, pause, port, header string // header: which token to send
		status                            int
		message                           string
	}{
		{"not enabled", long, "", "49983", "", 502, notFound},
		{"without memory", autoResume, `{"memory":false}`, "49983", "", 502, notFound},
		{"open envd", autoResume, "", "49983", "", 204, ""},
		{"open port", full, "", "8080", "", 502, closed},
		{"secured envd without token", full, "", "49983", "", 403, denied},
		{"secured envd with another token", full, "", "49983", "wrong", 403, denied},
		{"secured envd with its token", full, "", "49983", "X-Access-Token", 204, ""},
		{"private port without token", privateAutoResume, "", "8080", "", 403, denied},
		{"private port with envd's token", privateAutoResume, "", "8080", "X-Access-Token", 403, denied},
		{"private port with its token", privateAutoResume, "", "8080", "E2b-Traffic-Access-Token", 502, closed},
		{"envd of a private one", privateAutoResume, "", "49983", "X-Access-Token", 204, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				t := r.t
				created := r.must(201, ownKey, "POST", "/sandboxes", test.create)
				id := created.field(t, "sandboxID")
				r.must(204, ownKey, "POST", "/sandboxes/"+id+"/pause", test.pause)
				var header []string
				switch test.header {
				case "":
				case "wrong":
					header = []string{"X-Access-Token", "wrong"}
				case "X-Access-Token":
					header = []string{test.header, created.field(t, "envdAccessToken")}
				default:
					header = []string{test.header, created.field(t, "trafficAccessToken")}
				}
				a := r.traffic(id, test.port, header...)
				require.Equal(t, test.status, a.status, a.body)
				if test.message != "" {
					require.Equal(t, test.message, a.message(t))
				}
				woken := test.status == 204 || test.message == closed
				require.Equal(t, map[bool]string{true: "running", false: "paused"}[woken], r.state(id))
			})
		})
	}
}

func TestLifeAfterTrafficHasWoken(t *testing.T) {
	for body, want := range map[string]time.Duration{
		`{"templateID":"base","timeout":60,"autoResume":{"enabled":true}}`:   300 * time.Second,
		`{"templateID":"base","timeout":7200,"autoResume":{"enabled":true}}`: 7200 * time.Second,
	} {
		inBubble(t, func(r *rig) {
			t := r.t
			id := r.create(ownKey, body)
			r.pause(id)
			require.Equal(t, 204, r.traffic(id, "49983").status)
			require.Equal(t, want, r.at(id, "endAt").Sub(r.at(id, "startedAt")))
		})
	}
}

// A team that may not run as long as traffic asks for gets what it may.
func TestLifeAfterTrafficEndsWithTheTeamsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := teams()
		all[0].MaxLength = 2 * time.Minute
		r := newRig(t, control.Options{Teams: all})
		id := r.create(ownKey, `{"templateID":"base","timeout":60,"autoResume":{"enabled":true}}`)
		r.pause(id)
		require.Equal(t, 204, r.traffic(id, "49983").status)
		require.Equal(t, 2*time.Minute, r.at(id, "endAt").Sub(r.at(id, "startedAt")))
	})
}

// trafficInBackground asks the envd of a sandbox and tells how long it took.
func (r *rig) trafficInBackground(id string) (<-chan answer, func() time.Duration) {
	done, began := make(chan answer, 1), time.Now()
	var took time.Duration
	go func() {
		a := r.traffic(id, "49983")
		took = time.Since(began)
		done <- a
	}()
	synctest.Wait()
	return done, func() time.Duration { return took }
}

func TestHowLongTrafficWaits(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, `{"templateID":"base","timeout":3600,"autoResume":{"enabled":true}}`)
		r.pause(id)
		release := r.hold(nodetest.Resume)
		answered, took := r.trafficInBackground(id)
		<-time.After(10 * time.Minute)
		require.Empty(t, answered, "the API's own limit is not that of traffic")
		release()
		require.Equal(t, 204, (<-answered).status)
		require.Equal(t, 10*time.Minute, took())

		release = r.hold(nodetest.Pause)
		paused := r.background(ownKey, "POST", "/sandboxes/"+id+"/pause", "")
		answered, took = r.trafficInBackground(id)
		a := <-answered
		require.Equal(t, 502, a.status)
		require.Equal(t, "The sandbox was not found", a.message(t))
		require.Equal(t, time.Minute, took())
		release()
		require.Equal(t, 204, (<-paused).status)
	})
}

func TestTokensLastAsLongAsTheID(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		created := r.must(201, ownKey, "POST", "/sandboxes", privateAutoResume)
		id := created.field(t, "sandboxID")
		envd, traffic := created.field(t, "envdAccessToken"), created.field(t, "trafficAccessToken")
		require.NotEqual(t, envd, traffic)
		for _, status := range []int{200, 201} {
			if status == 201 {
				r.pause(id)
			}
			require.Equal(t, envd, r.info(id).field(t, "envdAccessToken"))
			require.Nil(t, r.info(id).value(t, "trafficAccessToken"), "GET does not tell it")
			a := r.must(status, ownKey, "POST", "/sandboxes/"+id+"/connect", `{"timeout":60}`)
			require.Equal(t, []string{envd, traffic}, []string{a.field(t, "envdAccessToken"), a.field(t, "trafficAccessToken")})
		}
		require.Equal(t, 204, r.traffic(id, "49983").status, "the traffic token does not guard envd's port")
		require.Equal(t, 403, r.traffic(id, "49999").status)
		require.Equal(t, 403, r.traffic(id, "49999", "E2b-Traffic-Access-Token", envd).status)
		require.Equal(t, 502, r.traffic(id, "49999", "E2b-Traffic-Access-Token", traffic).status, "nothing listens there")
	})
}

func TestTrafficThatWaitsForABadEnd(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, autoResume)
		r.pause(id)
		r.failing(nodetest.Resume)
		require.Equal(t, 502, r.traffic(id, "49983").status)
		require.Equal(t, "paused", r.state(id))
		r.api.Close()
		require.Equal(t, 502, r.traffic(id, "49983").status)
	})
}

func TestTrafficOfABlockedTeamWakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := teams()
		r := newRig(t, control.Options{Teams: all})
		id := r.create(ownKey, autoResume)
		r.pause(id)
		r.api.Block(ownKey, "payment failed")
		require.Equal(t, 403, r.traffic(id, "49983").status)
	})
}
