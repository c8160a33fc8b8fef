package e2b_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

// Each wait is up to an eighth shorter than this.
var fullWaits = []time.Duration{400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond}

// requireBackoff requires waits that double.
func requireBackoff(t *testing.T, gaps []time.Duration) {
	t.Helper()
	require.LessOrEqual(t, len(gaps), len(fullWaits))
	for i, gap := range gaps {
		require.LessOrEqual(t, gap, fullWaits[i])
		require.GreaterOrEqual(t, gap, fullWaits[i]*7/8)
	}
}

// TestRetryTable says for each call and each answer whether it is repeated.
func TestRetryTable(t *testing.T) {
	t.Parallel()
	const message = `{"code":0,"message":"the server's words"}`
	all := allOps()
	create := []controlOp{createOp, snapshotOp, forkOp, createVolumeOp, createSecretOp, updateSecretOp}
	safe := []controlOp{
		connectOp, pauseOp, killOp, timeoutOp, infoOp, listOp, snapshotsOp, deleteSnapshotOp,
		refreshOp, metricsOp, metricsOfOp, teamMetricsOp, teamMaxOp, logsOp, volumeOp, volumesOp, deleteVolumeOp, secretOp, secretsOp, deleteSecretOp,
	}
	waits := []controlOp{connectOp, timeoutOp, refreshOp}
	never := []controlOp{createOp, pauseOp, killOp, infoOp, listOp, snapshotOp, forkOp, snapshotsOp, deleteSnapshotOp, metricsOp, logsOp, createVolumeOp, deleteVolumeOp, updateSecretOp}
	for _, row := range []struct {
		name   string
		ops    []controlOp
		answer apiAnswer
		wait   time.Duration // -1: it doubles
		again  bool
	}{
		{name: "429 with Retry-After", ops: all, answer: answerJSON(429, message, "Retry-After", "7"), wait: 7 * time.Second, again: true},
		{name: "429 with Retry-After 0", ops: all, answer: answerJSON(429, message, "Retry-After", "0"), again: true},
		{name: "429 with the longest Retry-After", ops: all, answer: answerJSON(429, message, "Retry-After", "60"), wait: time.Minute, again: true},
		{name: "429 with a longer one", ops: all, answer: answerJSON(429, message, "Retry-After", "61")},
		{name: "429 without", ops: all, answer: answerJSON(429, message)},
		{name: "429 with a negative one", ops: all, answer: answerJSON(429, message, "Retry-After", "-1")},
		{name: "429 with a fraction", ops: all, answer: answerJSON(429, message, "Retry-After", "1.5")},
		{name: "429 with junk", ops: all, answer: answerJSON(429, message, "Retry-After", "abc")},
		{name: "429 with a date", ops: all, answer: answerJSON(429, message, "Retry-After", "Wed, 21 Oct 2099 07:28:00 GMT")},
		{name: "429 that shall be repeated", ops: all, answer: answerJSON(429, message, "Should-Retry", "true"), wait: -1, again: true},
		{name: "429 that shall not", ops: all, answer: answerJSON(429, message, "Should-Retry", "false", "Retry-After", "1")},
		{name: "503", ops: all, answer: answerJSON(503, message), wait: -1, again: true},
		{name: "503 with Retry-After", ops: all, answer: answerJSON(503, message, "Retry-After", "3"), wait: 3 * time.Second, again: true},
		{name: "503 that comes back in an hour", ops: all, answer: answerJSON(503, message, "Retry-After", "3600")},
		{name: "503 that shall not be repeated", ops: all, answer: answerJSON(503, message, "Should-Retry", "FALSE")},
		{name: "408 of what is safe", ops: safe, answer: answerText(408, ""), wait: -1, again: true},
		{name: "502 of what is safe", ops: safe, answer: answerJSON(502, message), wait: -1, again: true},
		{name: "504 of what is safe", ops: safe, answer: answerJSON(504, message), wait: -1, again: true},
		{name: "504 with a code of what is safe", ops: safe, answer: answerJSON(504, `{"error_code":"sandbox_placement_timeout"}`), wait: -1, again: true},
		{name: "502 of what is safe and shall not", ops: safe, answer: answerJSON(502, message, "Should-Retry", "false")},
		{name: "408 of create", ops: create, answer: answerText(408, "")},
		{name: "502 of create", ops: create, answer: answerJSON(502, message)},
		{name: "504 of create", ops: create, answer: answerJSON(504, message)},
		{name: "504 with a code of create", ops: create, answer: answerJSON(504, `{"error_code":"sandbox_placement_timeout"}`)},
		{name: "500 of create that shall be repeated", ops: create, answer: answerJSON(500, message, "Should-Retry", "true"), wait: -1, again: true},
		{name: "500", ops: all, answer: answerJSON(500, message)},
		{name: "500 that shall be repeated", ops: all, answer: answerJSON(500, message, "Should-Retry", "True"), wait: -1, again: true},
		{name: "400", ops: all, answer: answerJSON(400, message)},
		{name: "400 with junk in Should-Retry", ops: all, answer: answerJSON(400, message, "Should-Retry", "maybe")},
		{name: "401", ops: all, answer: answerJSON(401, message)},
		{name: "403", ops: all, answer: answerJSON(403, message)},
		{name: "409 of what waits for a change of state", ops: waits, answer: answerJSON(409, message), wait: -1, again: true},
		{name: "409 of anything else", ops: never, answer: answerJSON(409, message)},
		{name: "no connection", ops: all, answer: answerError(errNoConnection), wait: -1, again: true},
		{name: "connection lost, of what is safe", ops: safe, answer: answerError(errConnectionLost), wait: -1, again: true},
		{name: "connection lost, of create", ops: create, answer: answerError(errConnectionLost)},
		{name: "answer cut off, of what is safe", ops: []controlOp{connectOp, infoOp, listOp, snapshotsOp}, answer: answerCut(200, "["), wait: -1, again: true},
		{name: "answer cut off, of create", ops: create, answer: answerCut(201, "{")},
	} {
		for _, op := range row.ops {
			t.Run(row.name+"/"+op.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					if !row.again {
						api := newFakeAPI(t, row.answer)
						require.Error(t, op.call(t.Context(), api.client(t)))
						require.Len(t, api.requests(), 1)
						return
					}
					// Twice, and then it goes well.
					api := newFakeAPI(t, row.answer, row.answer, op.ok)
					require.NoError(t, op.call(t.Context(), api.client(t)))
					sent := api.requests()
					require.Len(t, sent, 3)
					for _, r := range sent[1:] {
						r.At = sent[0].At
						require.Equal(t, sent[0], r, "a repeat is the same request")
					}
					if row.wait < 0 {
						requireBackoff(t, api.gaps())
					} else {
						require.Equal(t, []time.Duration{row.wait, row.wait}, api.gaps())
					}
					// It gives up in the end, and says how often it tried.
					api = newFakeAPI(t, row.answer, row.answer, row.answer, row.answer)
					err := op.call(t.Context(), api.client(t))
					require.Error(t, err)
					require.Len(t, api.requests(), 4)
					if e, ok := errors.AsType[*e2b.APIError](err); ok {
						require.Equal(t, 4, e.Attempts)
						require.Contains(t, err.Error(), "4 attempts")
					}
					// None, if none is wanted.
					api = newFakeAPI(t, row.answer)
					require.Error(t, op.call(t.Context(), api.client(t, noRetries)))
					require.Len(t, api.requests(), 1)
				})
			})
		}
	}
}

func TestMaxRetries(t *testing.T) {
	t.Parallel()
	for retries, attempts := range map[int]int{0: 1 + e2b.DefaultMaxRetries, 1: 2, 2: 3, -1: 1, -7: 1} {
		synctest.Test(t, func(t *testing.T) {
			var answers []apiAnswer
			for range attempts {
				answers = append(answers, answerJSON(503, `{}`))
			}
			api := newFakeAPI(t, answers...)
			_, err := api.client(t, func(o *e2b.ClientOptions) { o.MaxRetries = retries }).Info(t.Context(), apiTestID)
			requireKinds(t, err, e2b.ErrServiceBusy)
			require.Equal(t, attempts, requireAPIError(t, err).Attempts)
			require.Len(t, api.requests(), attempts)
		})
	}
}

// TestUserA10ConnectDuringATransition waits for it, inside ctx.
func TestUserA10ConnectDuringATransition(t *testing.T) {
	t.Parallel()
	busy := answerJSON(409, `{"code":409,"message":"Sandbox \"x\" is being paused"}`)
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t, busy, busy, answerJSON(201, createdBody))
		sbx, err := api.client(t).Connect(t.Context(), apiTestID, nil)
		require.NoError(t, err)
		require.True(t, sbx.Resumed())
		require.Len(t, api.requests(), 3)
	})
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t, busy)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := api.client(t).Connect(ctx, apiTestID, nil)
		require.Equal(t, 50*time.Millisecond, time.Since(start))
		requireKinds(t, err, context.DeadlineExceeded, e2b.ErrConflict)
		e := requireAPIError(t, err)
		require.Equal(t, 409, e.StatusCode, "the last answer is told")
		require.Equal(t, 1, e.Attempts)
		require.Contains(t, err.Error(), "is being paused")
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		err := newFakeAPI(t, busy).client(t).SetTimeout(ctx, apiTestID, time.Minute)
		requireKinds(t, err, context.Canceled, e2b.ErrConflict)
	})
}

// TestUserA11PauseThatFinishesLate is one that a compatible server carries out
// for two more seconds after it answered.
func TestUserA11PauseThatFinishesLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		api := newFakeAPI(t)
		answer := func(r *http.Request) (*http.Response, error) {
			if time.Since(start) < 2*time.Second {
				return answerJSON(409, `{"message":"Sandbox \"x\" is being paused"}`)(r)
			}
			return answerJSON(201, createdBody)(r)
		}
		api.answers = []apiAnswer{answerText(204, ""), answer, answer, answer, answer}
		c := api.client(t)
		paused, err := c.Pause(t.Context(), apiTestID, nil)
		require.NoError(t, err)
		require.True(t, paused)
		_, err = c.Connect(t.Context(), apiTestID, nil)
		require.NoError(t, err)
		require.Less(t, time.Since(start), 3*time.Second)
	})
}

// TestUserA14BusyForEver ends, and says how often it tried.
func TestUserA14BusyForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		busy := answerJSON(503, `{"code":503,"message":"no room"}`)
		api := newFakeAPI(t, busy, busy, busy, busy)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := api.client(t).Connect(ctx, apiTestID, nil)
		requireKinds(t, err, e2b.ErrServiceBusy)
		require.Contains(t, err.Error(), "4 attempts")
		require.NoError(t, ctx.Err())
		requireBackoff(t, api.gaps())
	})
}

// TestUserA15GatewayTimeout is text in between, and repeated.
func TestUserA15GatewayTimeout(t *testing.T) {
	t.Parallel()
	late := answerText(504, "upstream request timeout", "Content-Type", "text/plain")
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t, late, answerJSON(201, createdBody))
		_, err := api.client(t).Connect(t.Context(), apiTestID, nil)
		require.NoError(t, err)
		require.Len(t, api.requests(), 2)
	})
	_, err := newFakeAPI(t, late).client(t, noRetries).Connect(t.Context(), apiTestID, nil)
	requireKinds(t, err)
	e := requireAPIError(t, err)
	require.Equal(t, 504, e.StatusCode)
	require.Equal(t, "upstream request timeout", e.Message)
}

// TestUserA16SlowConnect takes longer than RequestTimeout, and less than ctx.
func TestUserA16SlowConnect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := answerAfter(100*time.Second, answerJSON(201, createdBody))
		ctx, cancel := context.WithTimeout(t.Context(), 120*time.Second)
		defer cancel()
		_, err := newFakeAPI(t, slow).client(t).Connect(ctx, apiTestID, nil)
		require.NoError(t, err)

		start := time.Now()
		_, err = newFakeAPI(t, slow).client(t, noRetries).Connect(t.Context(), apiTestID, nil)
		requireKinds(t, err, e2b.ErrRequestTimeout)
		require.Equal(t, e2b.DefaultRequestTimeout, time.Since(start))

		_, err = newFakeAPI(t, slow).client(t, func(o *e2b.ClientOptions) { o.RequestTimeout = -1 }).Connect(t.Context(), apiTestID, nil)
		require.NoError(t, err, "no limit")
	})
}

// TestRequestTimeoutIsPerAttempt is not one for the call.
func TestRequestTimeoutIsPerAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t, answerNever, answerNever, answerAfter(9*time.Second, answerJSON(200, createdBody)))
		_, err := api.client(t, func(o *e2b.ClientOptions) { o.RequestTimeout = 10 * time.Second }).Connect(t.Context(), apiTestID, nil)
		require.NoError(t, err)
		require.Len(t, api.requests(), 3)
		for i, gap := range api.gaps() {
			require.GreaterOrEqual(t, gap, 10*time.Second+fullWaits[i]*7/8)
			require.LessOrEqual(t, gap, 10*time.Second+fullWaits[i])
		}
	})
}

// TestUserE1RateLimits has both kinds.
func TestUserE1RateLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t, answerRecorded(t, "create-quota-429"))
		_, err := api.client(t).Create(t.Context(), nil)
		requireKinds(t, err, e2b.ErrRateLimited, e2b.ErrQuotaExceeded)
		require.Zero(t, requireAPIError(t, err).RetryAfter)
		require.Contains(t, err.Error(), "you have reached the maximum number")

		api = newFakeAPI(t, answerJSON(429, `{}`, "Retry-After", "1"), answerJSON(201, createdBody))
		_, err = api.client(t).Create(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, []time.Duration{time.Second}, api.gaps())

		api = newFakeAPI(t, answerRecorded(t, "rate-limit-429"), answerRecorded(t, "rate-limit-headers-204"))
		require.NoError(t, api.client(t).SetTimeout(t.Context(), apiTestID, time.Minute))
		require.Equal(t, []time.Duration{4 * time.Second}, api.gaps())
	})
}

// TestUserE3RetryAfterBeyondCtx returns at once.
func TestUserE3RetryAfterBeyondCtx(t *testing.T) {
	t.Parallel()
	for _, after := range []string{"30", "5", "-1", "abc", "Wed, 21 Oct 2099 07:28:00 GMT"} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			start := time.Now()
			_, err := newFakeAPI(t, answerJSON(429, `{}`, "Retry-After", after)).client(t).Create(ctx, nil)
			require.ErrorIs(t, err, e2b.ErrRateLimited)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.Zero(t, time.Since(start), after)
		})
	}
}

// TestUserD2ContextErrorsStay holds for every call, whether ctx ends in an
// attempt or in the wait after one.
func TestUserD2ContextErrorsStay(t *testing.T) {
	t.Parallel()
	for _, op := range allOps() {
		for name, answer := range map[string]apiAnswer{"attempt": answerNever, "wait": answerJSON(503, `{}`), "body": answerEndless(200, "[")} {
			t.Run(op.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					defer cancel()
					err := op.call(ctx, newFakeAPI(t, answer).client(t))
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.NotErrorIs(t, err, e2b.ErrRequestTimeout)
					ctx, cancel = context.WithCancel(t.Context())
					time.AfterFunc(100*time.Millisecond, cancel)
					err = op.call(ctx, newFakeAPI(t, answer).client(t))
					require.ErrorIs(t, err, context.Canceled)
					require.NotErrorIs(t, err, context.DeadlineExceeded)
					require.Equal(t, op.creates() && name != "wait", errors.Is(err, e2b.ErrOutcomeUnknown))
				})
			})
		}
	}
}

// TestLimitsOfOthersAreNoDeadline covers a timeout below, as of a dialer: it is
// neither the caller's nor ours.
func TestLimitsOfOthersAreNoDeadline(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{
		context.DeadlineExceeded, context.Canceled, fmt.Errorf("dial: %w", context.DeadlineExceeded),
		&net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded},
	} {
		_, err := newFakeAPI(t, answerError(cause)).client(t, noRetries).Info(t.Context(), apiTestID)
		requireKinds(t, err)
		require.Contains(t, err.Error(), strings.TrimPrefix(cause.Error(), "e2b"))
	}
}

// TestCallWithEndedContext sends nothing, so nothing can have come of it.
func TestCallWithEndedContext(t *testing.T) {
	t.Parallel()
	for _, op := range allOps() {
		api := newFakeAPI(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		requireKinds(t, op.call(ctx, api.client(t)), context.Canceled)
		require.Empty(t, api.requests())
	}
}

// TestRepeatedPauseAndKill report what they did, also when the answer to it was
// lost.
func TestRepeatedPauseAndKill(t *testing.T) {
	t.Parallel()
	paused := answerJSON(409, `{"message":"Error pausing sandbox - sandbox 'x' is already paused"}`)
	missing := answerJSON(404, sandboxMissing)
	for _, row := range []struct {
		name  string
		first apiAnswer
		did   bool
	}{
		{"connection lost", answerError(errConnectionLost), true},
		{"408", answerText(408, ""), true},
		{"502", answerText(502, ""), true},
		{"504", answerText(504, ""), true},
		{"no connection", answerError(errNoConnection), false},
		{"503", answerText(503, ""), false},
		{"429", answerText(429, "", "Retry-After", "1"), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				did, err := newFakeAPI(t, row.first, paused).client(t).Pause(t.Context(), apiTestID, nil)
				require.NoError(t, err)
				require.Equal(t, row.did, did)
				did, err = newFakeAPI(t, row.first, missing).client(t).Kill(t.Context(), apiTestID)
				require.NoError(t, err)
				require.Equal(t, row.did, did)
				// A pause of a sandbox that is not there stays an error.
				_, err = newFakeAPI(t, row.first, missing).client(t).Pause(t.Context(), apiTestID, nil)
				requireKinds(t, err, e2b.ErrSandboxNotFound)
			})
		})
	}
}

// sentMetadata is the metadata in the body of a create.
func sentMetadata(tb testing.TB, r sentRequest) map[string]string {
	tb.Helper()
	var body struct {
		Metadata map[string]string `json:"metadata"`
	}
	require.NoError(tb, json.Unmarshal([]byte(r.Body), &body))
	return body.Metadata
}

// TestOutcomeUnknown has each way in which a create may have worked without our
// learning of it, and those in which it has not.
func TestOutcomeUnknown(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		answer  apiAnswer
		unknown bool
		kinds   []error
	}{
		{name: "connection lost", answer: answerError(errConnectionLost), unknown: true},
		{name: "answer cut off", answer: answerCut(201, createdBody[:20]), unknown: true},
		{name: "no answer in time", answer: answerNever, unknown: true, kinds: []error{e2b.ErrRequestTimeout}},
		{name: "408", answer: answerText(408, ""), unknown: true},
		{name: "502", answer: answerText(502, "Bad Gateway"), unknown: true},
		{name: "502 with a code", answer: answerJSON(502, `{"error_code":"x"}`), unknown: true},
		{name: "504", answer: answerText(504, "upstream request timeout"), unknown: true},
		{name: "201 without JSON", answer: answerText(201, "<html>"), unknown: true},
		{name: "201 with half of it", answer: answerJSON(201, createdBody[:20]), unknown: true},
		{name: "201 without a sandbox", answer: answerJSON(201, `{}`), unknown: true},
		{name: "201 with null", answer: answerJSON(201, `null`), unknown: true},
		{name: "201 with no ID", answer: answerJSON(201, strings.Replace(createdBody, apiTestID, "../x", 1)), unknown: true},
		{name: "201 with no domain", answer: answerJSON(201, strings.Replace(createdBody, `"clientID"`, `"domain":"evil.test/","clientID"`, 1)), unknown: true},
		{name: "504 with a code", answer: answerJSON(504, `{"error_code":"sandbox_placement_timeout"}`)},
		{name: "no connection", answer: answerError(errNoConnection)},
		{name: "500", answer: answerText(500, "")},
		{name: "503", answer: answerText(503, ""), kinds: []error{e2b.ErrServiceBusy}},
		{name: "400", answer: answerText(400, ""), kinds: []error{e2b.ErrInvalidArgument}},
		{name: "a redirect", answer: answerText(307, "", "Location", "https://elsewhere.test/sandboxes")},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := newFakeAPI(t, row.answer)
				_, err := api.client(t, noRetries).Create(t.Context(), &e2b.CreateOptions{Metadata: map[string]string{"a": "1"}})
				sent := api.requests()
				require.Len(t, sent, 1)
				kinds := row.kinds
				if row.unknown {
					kinds = append(kinds, e2b.ErrOutcomeUnknown)
				}
				requireKinds(t, err, kinds...)
				u, is := errors.AsType[*e2b.OutcomeUnknownError](err)
				require.Equal(t, row.unknown, is)
				if !row.unknown {
					return
				}
				metadata := sentMetadata(t, sent[0])
				require.Equal(t, "1", metadata["a"])
				require.NotEmpty(t, u.CreateToken)
				require.Equal(t, metadata["e2b_go_create_token"], u.CreateToken)
				require.Contains(t, err.Error(), u.CreateToken)

				// Without a token there is none to tell.
				api = newFakeAPI(t, row.answer)
				_, err = api.client(t, noRetries).Create(t.Context(), &e2b.CreateOptions{NoToken: true})
				u, is = errors.AsType[*e2b.OutcomeUnknownError](err)
				require.True(t, is)
				require.Empty(t, u.CreateToken)
				require.NotContains(t, api.requests()[0].Body, "e2b_go_create_token")
				require.NotContains(t, err.Error(), "e2b_go_create_token")
			})
		})
	}
}

// TestOutcomeStaysUnknown after an attempt whose answer was lost, whatever a
// later one says.
func TestOutcomeStaysUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t, answerText(502, "", "Should-Retry", "true"), answerText(400, ""))
		_, err := api.client(t).Create(t.Context(), nil)
		requireKinds(t, err, e2b.ErrOutcomeUnknown, e2b.ErrInvalidArgument)
		require.Equal(t, 2, requireAPIError(t, err).Attempts)
	})
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t, answerText(503, ""), answerText(201, ""))
		_, err := api.client(t).Create(t.Context(), nil)
		requireKinds(t, err, e2b.ErrOutcomeUnknown)
		require.Equal(t, 2, requireAPIError(t, err).Attempts, "a busy server counts, too")
	})
}

// TestCreateTokenIsNew in every create, and the same in its repeats.
func TestCreateTokenIsNew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ok := answerJSON(201, createdBody)
		api := newFakeAPI(t, ok, answerText(503, ""), ok)
		c := api.client(t)
		for range 2 {
			_, err := c.Create(t.Context(), nil)
			require.NoError(t, err)
		}
		var tokens []string
		for _, r := range api.requests() {
			tokens = append(tokens, sentMetadata(t, r)["e2b_go_create_token"])
		}
		require.Len(t, tokens, 3)
		require.GreaterOrEqual(t, len(tokens[0]), 26)
		require.NotEqual(t, tokens[0], tokens[1])
		require.Equal(t, tokens[1], tokens[2])
	})
}

// TestConnectionsAreReused also when the client gives up, which makes
// go-retryablehttp drop its pool.
func TestConnectionsAreReused(t *testing.T) {
	t.Parallel()
	var opened, requests atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch requests.Add(1) % 5 {
		case 0:
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, strings.Repeat("busy ", 1000))
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
		case 2:
			http.Error(w, sandboxMissing, http.StatusNotFound)
		case 3:
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	c, err := e2b.NewClient(&e2b.ClientOptions{APIKey: apiTestKey, APIURL: srv.URL, MaxRetries: 1})
	require.NoError(t, err)
	t.Cleanup(c.CloseIdleConnections)
	failed := 0
	for range 20 {
		if _, err := c.Pause(t.Context(), apiTestID, nil); err != nil {
			failed++
		}
	}
	require.Greater(t, failed, 10, "most of these calls give up")
	require.Equal(t, int64(1), opened.Load(), "connections for %d requests", requests.Load())
}

// TestConnectionRefusedIsRepeated below a real http.Transport.
func TestConnectionRefusedIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		c, err := e2b.NewClient(&e2b.ClientOptions{
			APIKey: apiTestKey, APIURL: apiTestURL, MaxRetries: 1,
			Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
				dials++
				return nil, errNoConnection
			}},
		})
		require.NoError(t, err)
		_, err = c.Create(t.Context(), nil)
		requireKinds(t, err)
		require.ErrorIs(t, err, errNoConnection.Err)
		require.Equal(t, 2, dials)
	})
}
