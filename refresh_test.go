package e2b_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

var refreshOp = controlOp{"refresh", apiTestID, answerText(204, ""), func(ctx context.Context, c *e2b.Client) error {
	return c.Refresh(ctx, apiTestID, time.Minute)
}}

func sendRefresh(body string) wantRequest {
	return wantRequest{method: http.MethodPost, path: "/sandboxes/" + apiTestID + "/refreshes", body: body}
}

// refreshCalls are the recorded exchanges about refreshes, and the rate limit that
// was recorded with them.
func refreshCalls() []recordedCall {
	refreshing := func(file string, d time.Duration, body string, want any) recordedCall {
		return recordedCall{
			file: file, op: "refresh", sent: []wantRequest{sendRefresh(body)}, want: want,
			call: func(ctx context.Context, c *e2b.Client) (any, error) { return nil, c.Refresh(ctx, apiTestID, d) },
		}
	}
	minute := func(file string, want any) recordedCall {
		return refreshing(file, time.Minute, `{"duration":60}`, want)
	}
	return []recordedCall{
		// There is always a duration: the server's own is 15 s.
		minute("refresh-empty-object-204", nil),
		minute("refresh-no-body", nil),
		minute("refresh-paused-404", wantError{
			kinds: []error{e2b.ErrSandboxNotRunning}, status: 404, message: sandboxUnknown.message, state: e2b.StatePaused,
		}).answeredBy("refresh-paused-404", "info-paused").sending(sendRefresh(`{"duration":60}`), sendInfo()),
		minute("refresh-unknown-404", sandboxUnknown).
			answeredBy("refresh-unknown-404", "info-killed-404").sending(sendRefresh(`{"duration":60}`), sendInfo()),
		refreshing("refresh-too-large-400", time.Hour, `{"duration":3600}`,
			badSchema(`request body has an error: doesn't match schema #/components/schemas/SandboxRefreshRequest: Error at "/duration": number must be at most 3600`)).
			refusing(func(ctx context.Context, c *e2b.Client) error { return c.Refresh(ctx, apiTestID, 3601*time.Second) }),
		minute("rate-limit-429", failsWith(429, "Rate limit exceeded", e2b.ErrRateLimited)),
		minute("rate-limit-headers-204", nil),
	}
}

// TestRefresh sends whole seconds, and none that the server refuses.
func TestRefresh(t *testing.T) {
	t.Parallel()
	for d, body := range map[time.Duration]string{
		1: `{"duration":1}`, time.Second: `{"duration":1}`, 1500 * time.Millisecond: `{"duration":2}`,
		time.Hour - 1: `{"duration":3600}`, time.Hour: `{"duration":3600}`,
	} {
		api := newFakeAPI(t, answerText(204, ""), answerText(204, ""))
		require.NoError(t, api.client(t).Refresh(t.Context(), apiTestID+"-6532622b", d))
		require.NoError(t, handleOf(t, api).Refresh(t.Context(), d))
		for _, r := range api.requests() {
			require.Equal(t, "POST /sandboxes/"+apiTestID+"/refreshes", r.Method+" "+r.Path)
			require.JSONEq(t, body, r.Body)
		}
	}
	api := newFakeAPI(t)
	for _, d := range []time.Duration{0, -1, time.Hour + 1, 1 << 62} {
		requireRefused(t, api, api.client(t).Refresh(t.Context(), apiTestID, d))
	}
	requireRefused(t, api, api.client(t).Refresh(t.Context(), "a/b", time.Minute))
}

// TestRefreshWaitsOutAChange of state, as SetTimeout does.
func TestRefreshWaitsOutAChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		busy := answerJSON(409, `{"code":409,"message":"Sandbox \"x\" is being snapshotted"}`)
		api := newFakeAPI(t, busy, busy, answerText(204, ""))
		require.NoError(t, api.client(t).Refresh(t.Context(), apiTestID, time.Minute))
		require.Len(t, api.requests(), 3)
		api = newFakeAPI(t, busy)
		requireKinds(t, api.client(t, noRetries).Refresh(t.Context(), apiTestID, time.Minute), e2b.ErrConflict)
	})
}
