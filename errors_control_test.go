package e2b_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

// A controlOp is a call of the control plane, for tests that hold for several.
type controlOp struct {
	name string // as APIError.Op has it
	id   string // as APIError.SandboxID has it
	ok   apiAnswer
	call func(context.Context, *e2b.Client) error
}

var (
	createOp = controlOp{"create", "", answerJSON(201, createdBody), func(ctx context.Context, c *e2b.Client) error {
		_, err := c.Create(ctx, nil)
		return err
	}}
	connectOp = controlOp{"connect", apiTestID, answerJSON(200, createdBody), func(ctx context.Context, c *e2b.Client) error {
		_, err := c.Connect(ctx, apiTestID, nil)
		return err
	}}
	pauseOp = controlOp{"pause", apiTestID, answerText(204, ""), func(ctx context.Context, c *e2b.Client) error {
		_, err := c.Pause(ctx, apiTestID, nil)
		return err
	}}
	killOp = controlOp{"kill", apiTestID, answerText(204, ""), func(ctx context.Context, c *e2b.Client) error {
		_, err := c.Kill(ctx, apiTestID)
		return err
	}}
	timeoutOp = controlOp{"set timeout", apiTestID, answerText(204, ""), func(ctx context.Context, c *e2b.Client) error {
		return c.SetTimeout(ctx, apiTestID, time.Minute)
	}}
	infoOp = controlOp{"info", apiTestID, answerJSON(200, infoBody(e2b.StateRunning)), func(ctx context.Context, c *e2b.Client) error {
		_, err := c.Info(ctx, apiTestID)
		return err
	}}
	listOp = controlOp{"list", "", answerJSON(200, "[]"), func(ctx context.Context, c *e2b.Client) error {
		_, err := c.ListPage(ctx, nil)
		return err
	}}
)

func allOps() []controlOp {
	return []controlOp{
		createOp, connectOp, pauseOp, killOp, timeoutOp, infoOp, listOp, snapshotOp, forkOp, snapshotsOp, deleteSnapshotOp,
		refreshOp, metricsOp, metricsOfOp, teamMetricsOp, teamMaxOp, logsOp, createVolumeOp, volumeOp, volumesOp, deleteVolumeOp,
		createSecretOp, updateSecretOp, secretOp, secretsOp, deleteSecretOp,
	}
}

// creates says whether a lost answer of the call leaves its outcome unknown.
func (o controlOp) creates() bool {
	return slices.Contains([]string{"create", "snapshot", "fork", "create volume", "create secret", "update secret"}, o.name)
}

// answers says whether the call reads the body of its answer.
func (o controlOp) answers() bool {
	return !slices.Contains([]string{"pause", "kill", "set timeout", "refresh", "delete snapshot", "delete volume", "delete secret"}, o.name)
}

// TestErrorTable has a row for each way in which the control plane fails, and
// requires each kind that there is to match or not.
func TestErrorTable(t *testing.T) {
	t.Parallel()
	ofSandbox := []controlOp{connectOp, pauseOp, infoOp}
	const message = `{"code":0,"message":"the server's words"}`
	for _, row := range []struct {
		name   string
		ops    []controlOp // nil: all
		answer apiAnswer
		kinds  []error
		want   e2b.APIError
	}{
		{name: "400", answer: answerJSON(400, message), kinds: []error{e2b.ErrInvalidArgument}, want: e2b.APIError{StatusCode: 400}},
		{name: "422", answer: answerJSON(422, message), kinds: []error{e2b.ErrInvalidArgument}, want: e2b.APIError{StatusCode: 422}},
		{name: "401", answer: answerJSON(401, message), kinds: []error{e2b.ErrUnauthenticated}, want: e2b.APIError{StatusCode: 401}},
		{
			name: "401 wins over a code", answer: answerJSON(401, `{"code":"not_found","message":"the server's words"}`),
			kinds: []error{e2b.ErrUnauthenticated}, want: e2b.APIError{StatusCode: 401, Code: "not_found"},
		},
		{name: "403", answer: answerJSON(403, message), kinds: []error{e2b.ErrForbidden}, want: e2b.APIError{StatusCode: 403}},
		{name: "404 of a sandbox", ops: ofSandbox, answer: answerJSON(404, `{"message":"Sandbox: the server's words"}`), kinds: []error{e2b.ErrSandboxNotFound}, want: e2b.APIError{StatusCode: 404}},
		{name: "404 of a template", ops: []controlOp{createOp, deleteSnapshotOp}, answer: answerJSON(404, `{"message":"template: the server's words"}`), kinds: []error{e2b.ErrNotFound}, want: e2b.APIError{StatusCode: 404}},
		{name: "404 of a snapshot", ops: []controlOp{createOp}, answer: answerJSON(404, `{"message":"tag x of template: the server's words"}`), kinds: []error{e2b.ErrNotFound}, want: e2b.APIError{StatusCode: 404}},
		{
			name: "404 of a route", ops: []controlOp{pauseOp, killOp, infoOp, snapshotOp, forkOp, snapshotsOp, deleteSnapshotOp, refreshOp, metricsOp, metricsOfOp, teamMetricsOp, teamMaxOp, createVolumeOp, volumeOp, volumesOp, deleteVolumeOp, createSecretOp, updateSecretOp, secretOp, secretsOp, deleteSecretOp}, answer: answerJSON(404, `{"message":"method not allowed: the server's words"}`),
			kinds: []error{e2b.ErrNotSupported}, want: e2b.APIError{StatusCode: 404},
		},
		{name: "405", ops: []controlOp{pauseOp, killOp, infoOp, snapshotOp, forkOp, snapshotsOp, deleteSnapshotOp, refreshOp, metricsOp, metricsOfOp, teamMetricsOp, teamMaxOp, createVolumeOp, volumeOp, volumesOp, deleteVolumeOp, createSecretOp, updateSecretOp, secretOp, secretsOp, deleteSecretOp}, answer: answerJSON(405, message), kinds: []error{e2b.ErrNotSupported}, want: e2b.APIError{StatusCode: 405}},
		{name: "501", ops: []controlOp{pauseOp, killOp, infoOp, snapshotOp, forkOp, snapshotsOp, deleteSnapshotOp, refreshOp, metricsOp, metricsOfOp, teamMetricsOp, teamMaxOp, createVolumeOp, volumeOp, volumesOp, deleteVolumeOp, createSecretOp, updateSecretOp, secretOp, secretsOp, deleteSecretOp}, answer: answerJSON(501, message), kinds: []error{e2b.ErrNotSupported}, want: e2b.APIError{StatusCode: 501}},
		{name: "409", ops: []controlOp{connectOp, timeoutOp, pauseOp, createOp, snapshotOp, forkOp}, answer: answerJSON(409, message), kinds: []error{e2b.ErrConflict}, want: e2b.APIError{StatusCode: 409}},
		{
			name: "409 of the pause of a paused sandbox at another place", ops: []controlOp{connectOp, timeoutOp, killOp},
			answer: answerJSON(409, `{"message":"already paused: the server's words"}`), kinds: []error{e2b.ErrConflict}, want: e2b.APIError{StatusCode: 409},
		},
		{
			name: "429 with Retry-After", answer: answerJSON(429, message, "Retry-After", "7"),
			kinds: []error{e2b.ErrRateLimited}, want: e2b.APIError{StatusCode: 429, RetryAfter: 7 * time.Second},
		},
		{name: "429 without", answer: answerJSON(429, message), kinds: []error{e2b.ErrQuotaExceeded, e2b.ErrRateLimited}, want: e2b.APIError{StatusCode: 429}},
		{
			name: "429 with junk", answer: answerJSON(429, message, "Retry-After", "soon"),
			kinds: []error{e2b.ErrQuotaExceeded, e2b.ErrRateLimited}, want: e2b.APIError{StatusCode: 429},
		},
		{
			name: "503", answer: answerJSON(503, `{"message":"the server's words","error_code":"sandbox_capacity_unavailable"}`),
			kinds: []error{e2b.ErrServiceBusy}, want: e2b.APIError{StatusCode: 503, Code: "sandbox_capacity_unavailable"},
		},
		{name: "507", answer: answerJSON(507, message), kinds: []error{e2b.ErrNoSpace}, want: e2b.APIError{StatusCode: 507}},
		{name: "500", answer: answerJSON(500, message), want: e2b.APIError{StatusCode: 500}},
		{
			name: "500 with a code", answer: answerJSON(500, `{"code":500,"message":"the server's words","error_code":"internal_server_error"}`),
			want: e2b.APIError{StatusCode: 500, Code: "internal_server_error"},
		},
		{name: "408", ops: []controlOp{connectOp, pauseOp, killOp, timeoutOp, infoOp, listOp, snapshotsOp, deleteSnapshotOp, refreshOp, metricsOp, metricsOfOp, teamMetricsOp, teamMaxOp, logsOp, volumeOp, volumesOp, deleteVolumeOp, secretOp, secretsOp, deleteSecretOp}, answer: answerJSON(408, message), want: e2b.APIError{StatusCode: 408}},
		{name: "502", ops: []controlOp{connectOp, pauseOp, killOp, timeoutOp, infoOp, listOp, snapshotsOp, deleteSnapshotOp, refreshOp, metricsOp, metricsOfOp, teamMetricsOp, teamMaxOp, logsOp, volumeOp, volumesOp, deleteVolumeOp, secretOp, secretsOp, deleteSecretOp}, answer: answerJSON(502, message), want: e2b.APIError{StatusCode: 502}},
		{name: "504", ops: []controlOp{connectOp, pauseOp, killOp, timeoutOp, infoOp, listOp, snapshotsOp, deleteSnapshotOp, refreshOp, metricsOp, metricsOfOp, teamMetricsOp, teamMaxOp, logsOp, volumeOp, volumesOp, deleteVolumeOp, secretOp, secretsOp, deleteSecretOp}, answer: answerJSON(504, message), want: e2b.APIError{StatusCode: 504}},
		{
			name: "504 with a code", answer: answerJSON(504, `{"message":"the server's words","error_code":"sandbox_placement_timeout"}`),
			want: e2b.APIError{StatusCode: 504, Code: "sandbox_placement_timeout"},
		},
		{name: "create: 408", ops: []controlOp{createOp, snapshotOp, forkOp, createVolumeOp, createSecretOp, updateSecretOp}, answer: answerJSON(408, message), kinds: []error{e2b.ErrOutcomeUnknown}, want: e2b.APIError{StatusCode: 408}},
		{name: "create: 502", ops: []controlOp{createOp, snapshotOp, forkOp, createVolumeOp, createSecretOp, updateSecretOp}, answer: answerJSON(502, message), kinds: []error{e2b.ErrOutcomeUnknown}, want: e2b.APIError{StatusCode: 502}},
		{name: "create: 504", ops: []controlOp{createOp, snapshotOp, forkOp, createVolumeOp, createSecretOp, updateSecretOp}, answer: answerJSON(504, message), kinds: []error{e2b.ErrOutcomeUnknown}, want: e2b.APIError{StatusCode: 504}},
		{name: "a status nobody knows", answer: answerJSON(418, message), want: e2b.APIError{StatusCode: 418}},
		{name: "a redirect to nowhere", answer: answerJSON(302, message), want: e2b.APIError{StatusCode: 302}},
		{
			name: "a request ID", answer: answerJSON(500, message, "X-Request-ID", "request-1"),
			want: e2b.APIError{StatusCode: 500, RequestID: "request-1"},
		},
		{
			name: "a trace ID", answer: answerJSON(500, message, "X-Request-ID", "request-1", "X-E2B-Trace-ID", "trace-1"),
			want: e2b.APIError{StatusCode: 500, RequestID: "trace-1"},
		},
	} {
		ops := row.ops
		if ops == nil {
			ops = allOps()
		}
		for _, op := range ops {
			t.Run(row.name+"/"+op.name, func(t *testing.T) {
				t.Parallel()
				api := newFakeAPI(t, row.answer)
				err := op.call(t.Context(), api.client(t, noRetries))
				requireKinds(t, err, row.kinds...)
				got := requireAPIError(t, err)
				require.Equal(t, op.name, got.Op)
				require.Equal(t, op.id, got.SandboxID)
				require.Equal(t, row.want.StatusCode, got.StatusCode)
				require.Equal(t, row.want.Code, got.Code)
				require.Contains(t, got.Message, "the server's words")
				require.Equal(t, row.want.RequestID, got.RequestID)
				require.Equal(t, row.want.RetryAfter, got.RetryAfter)
				require.Equal(t, 1, got.Attempts)
				require.Empty(t, got.State)
				for _, part := range []string{"e2b: " + op.name, op.id, "the server's words", fmt.Sprint(row.want.StatusCode), row.want.RequestID, row.want.Code} {
					require.Contains(t, err.Error(), part)
				}
				require.Len(t, api.requests(), 1)
			})
		}
	}
}

// TestErrorWithoutAnswer has a row for each way of getting none: then there is
// no APIError.
func TestErrorWithoutAnswer(t *testing.T) {
	t.Parallel()
	lost := errors.New("the wire was cut")
	for _, row := range []struct {
		name   string
		answer apiAnswer
		is     error
		unsent bool
	}{
		{name: "no connection", answer: answerError(errNoConnection), is: errNoConnection.Err, unsent: true},
		{name: "connection lost", answer: answerError(errConnectionLost), is: errConnectionLost.Err},
		{name: "something else", answer: answerError(lost), is: lost},
		{name: "cut in the body", answer: answerCut(200, `{"sandboxID":`), is: io.ErrUnexpectedEOF},
	} {
		for _, op := range allOps() {
			if row.name == "cut in the body" && !op.answers() {
				continue
			}
			t.Run(row.name+"/"+op.name, func(t *testing.T) {
				t.Parallel()
				api := newFakeAPI(t, row.answer)
				err := op.call(t.Context(), api.client(t, noRetries))
				var kinds []error
				if op.creates() && !row.unsent {
					kinds = []error{e2b.ErrOutcomeUnknown}
				}
				requireKinds(t, err, kinds...)
				require.ErrorIs(t, err, row.is)
				var e *e2b.APIError
				require.NotErrorAs(t, err, &e)
				require.Contains(t, err.Error(), "e2b: "+op.name)
				require.NotContains(t, err.Error(), apiTestURL, "the URL is no part of it")
			})
		}
	}
}

// TestUserB13CausesAreTold gives one call four failures.
func TestUserB13CausesAreTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ask := func(ctx context.Context, answer apiAnswer) error {
			_, err := newFakeAPI(t, answer).client(t, noRetries).Info(ctx, apiTestID)
			return err
		}
		expiring, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		cancelled, cancel2 := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel2)
		requireKinds(t, ask(t.Context(), answerJSON(404, sandboxMissing)), e2b.ErrSandboxNotFound)
		requireKinds(t, ask(t.Context(), answerNever), e2b.ErrRequestTimeout)
		requireKinds(t, ask(expiring, answerNever), context.DeadlineExceeded)
		requireKinds(t, ask(cancelled, answerNever), context.Canceled)
	})
}

// TestUserC2HTMLErrors strips and bounds what a proxy in between says.
func TestUserC2HTMLErrors(t *testing.T) {
	t.Parallel()
	page := "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>" + strings.Repeat("<p>padding</p>\n", 1000) + "</body></html>"
	api := newFakeAPI(t, answerText(502, page, "Content-Type", "text/html"))
	_, err := api.client(t, noRetries).Info(t.Context(), apiTestID)
	e := requireAPIError(t, err)
	require.Equal(t, 502, e.StatusCode)
	require.LessOrEqual(t, len(e.Message), 300)
	require.Contains(t, e.Message, "502 Bad Gateway")
	require.NotContains(t, err.Error(), "<")
	require.Contains(t, err.Error(), "502")
}

// TestErrorBodies are bodies that are not the control plane's own.
func TestErrorBodies(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long ", 1<<18) // more than what is read of it
	for _, row := range []struct{ name, contentType, body, message string }{
		{"empty", "", "", ""},
		{"text", "text/plain", "upstream request timeout", "upstream request timeout"},
		{"long text", "text/plain", long, strings.Repeat("long ", 39) + "lo…" + strings.Repeat(" long", 20)},
		{"long JSON", "application/json", `{"message":"` + long + `"}`, `{"message":"` + strings.Repeat("long ", 37) + "…" + (strings.Repeat("long ", 20) + "lon")[3:]},
		{"long HTML", "text/html", "<b>" + long, strings.Repeat("long ", 39) + "lo…" + strings.Repeat(" long", 20)},
		{"control characters", "application/json", `{"message":"a\u0000\u001b[31mb\r\nc"}`, "a [31mb c"},
		{"no UTF-8", "text/plain", "a\xffb", "a\uFFFDb"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t, answerText(500, row.body, "Content-Type", row.contentType))
			_, err := api.client(t, noRetries).Info(t.Context(), apiTestID)
			e := requireAPIError(t, err)
			require.Equal(t, row.message, e.Message)
			require.Less(t, len(err.Error()), 500)
		})
	}
}

// TestErrorBodyIsReadInBounds counts what is read of an endless body.
func TestErrorBodyIsReadInBounds(t *testing.T) {
	t.Parallel()
	read := 0
	api := newFakeAPI(t, func(*http.Request) (*http.Response, error) {
		body := readerFunc(func(p []byte) (int, error) {
			clear(p)
			read += len(p)
			return len(p), nil
		})
		return &http.Response{StatusCode: http.StatusInternalServerError, Header: http.Header{}, Body: io.NopCloser(body)}, nil
	})
	_, err := api.client(t, noRetries).Info(t.Context(), apiTestID)
	require.Equal(t, 500, requireAPIError(t, err).StatusCode)
	require.LessOrEqual(t, read, 1<<20+1)
}

// TestErrorBodyThatNeverEnds bounds it in time: what came of it is enough.
func TestErrorBodyThatNeverEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t, answerEndless(500, "half a wo"))
		start := time.Now()
		_, err := api.client(t, noRetries, func(o *e2b.ClientOptions) { o.RequestTimeout = time.Second }).Info(t.Context(), apiTestID)
		require.Equal(t, time.Second, time.Since(start))
		requireKinds(t, err)
		e := requireAPIError(t, err)
		require.Equal(t, 500, e.StatusCode)
		require.Equal(t, "half a wo", e.Message)
	})
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t, answerEndless(200, `{"sandboxID":`))
		_, err := api.client(t, noRetries).Info(t.Context(), apiTestID)
		requireKinds(t, err, e2b.ErrRequestTimeout)
	})
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t, answerEndless(503, "bus"))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := api.client(t).Info(ctx, apiTestID)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Len(t, api.requests(), 1)
	})
}

// TestErrorShowsNoSecret echoes keys and tokens in every part of an answer.
func TestErrorShowsNoSecret(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"e2b_0123456789abcdef0123456789abcdef", "sk-Abc.123", `k<e>y&"quoted"`} {
		for _, op := range allOps() {
			for name, answer := range map[string]apiAnswer{
				"JSON":    answerJSON(401, fmt.Sprintf(`{"message":%q,"error_code":%q}`, "bad key "+key, key), "X-Request-Id", key),
				"text":    answerText(401, "bad key "+key, "Content-Type", "text/plain"),
				"HTML":    answerText(401, "<b>bad key "+strings.NewReplacer("<", "&lt;", ">", "&gt;", "&", "&amp;", `"`, "&quot;").Replace(key)+"</b>", "Content-Type", "text/html"),
				"escaped": answerJSON(401, `{"message":"bad key `+strings.NewReplacer("<", `\u003C`, ">", `\u003E`, "&", `\u0026`, `"`, `\"`, "b", `\u0062`).Replace(key)+`"}`),
			} {
				err := op.call(t.Context(), newFakeAPI(t, answer).client(t, noRetries, func(o *e2b.ClientOptions) { o.APIKey = key }))
				requireKinds(t, err, e2b.ErrUnauthenticated)
				requireNoSecret(t, err, key)
				require.Contains(t, err.Error(), "bad key", "%s of %s", name, op.name)
			}
		}
	}
}

// TestUnreadableAnswerShowsNoToken breaks an answer that has a token in it.
func TestUnreadableAnswerShowsNoToken(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		strings.Replace(createdBody, `"envdVersion":"0.6.13"`, `"envdVersion":7`, 1),
		createdBody[:len(createdBody)-1],
		createdBody + envdTestKey,
		`"` + envdTestKey + `"`,
		envdTestKey,
		strings.Replace(createdBody, apiTestID, "not/an/id", 1),
		strings.Replace(createdBody, `a1"`, `a1\n"`, 1),
	} {
		_, err := newFakeAPI(t, answerJSON(201, body)).client(t).Create(t.Context(), nil)
		requireKinds(t, err, e2b.ErrOutcomeUnknown)
		requireNoSecret(t, err, envdTestKey)
		_, err = newFakeAPI(t, answerJSON(200, body)).client(t).Connect(t.Context(), apiTestID, nil)
		requireKinds(t, err)
		requireNoSecret(t, err, envdTestKey)
	}
}

// TestUserL6RequestID is on errors of answers that could not be read, too.
func TestUserL6RequestID(t *testing.T) {
	t.Parallel()
	for _, answer := range []apiAnswer{
		answerJSON(500, `{}`, "X-E2B-Trace-ID", "trace-1"),
		answerJSON(200, `{"items":[]}`, "X-E2B-Trace-ID", "trace-1"),
		answerJSON(200, `[{"sandboxID":1}]`, "X-E2B-Trace-ID", "trace-1"),
	} {
		_, err := newFakeAPI(t, answer).client(t, noRetries).ListPage(t.Context(), nil)
		require.Equal(t, "trace-1", requireAPIError(t, err).RequestID)
		require.Contains(t, err.Error(), "trace-1")
	}
}

// TestUserA4UnknownSandbox names the sandbox and asks once.
func TestUserA4UnknownSandbox(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, answerJSON(404, sandboxMissing))
	_, err := api.client(t).Connect(t.Context(), apiTestID, nil)
	requireKinds(t, err, e2b.ErrSandboxNotFound)
	require.Contains(t, err.Error(), apiTestID)
	require.Len(t, api.requests(), 1)
}

// TestUserA3ServerErrorOnConnect creates nothing instead, and the next connect
// works.
func TestUserA3ServerErrorOnConnect(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, answerJSON(500, `{"code":500,"message":"Error when getting snapshot"}`), answerJSON(201, createdBody))
	c := api.client(t)
	_, err := c.Connect(t.Context(), apiTestID, nil)
	e := requireAPIError(t, err)
	require.Equal(t, 500, e.StatusCode)
	require.Equal(t, apiTestID, e.SandboxID)
	sbx, err := c.Connect(t.Context(), apiTestID, nil)
	require.NoError(t, err)
	require.True(t, sbx.Resumed())
	require.Equal(t, []string{"POST /sandboxes/" + apiTestID + "/connect", "POST /sandboxes/" + apiTestID + "/connect"}, api.lines())
}

// TestUserA9PauseTwice covers what servers say of a sandbox that is paused.
func TestUserA9PauseTwice(t *testing.T) {
	t.Parallel()
	already := `{"code":409,"message":"Error pausing sandbox - sandbox '` + apiTestID + `' is already paused"}`
	for _, row := range []struct {
		answer apiAnswer
		paused bool
		kinds  []error
	}{
		{answer: answerText(204, ""), paused: true},
		{answer: answerJSON(200, "{}"), paused: true},
		{answer: answerJSON(409, already)},
		{answer: answerJSON(400, already)}, // compatible servers
		{answer: answerJSON(409, `{"code":409,"message":"Sandbox 'x' cannot be paused while in 'killing' state"}`), kinds: []error{e2b.ErrConflict}},
		{answer: answerJSON(400, `{"code":400,"message":"Invalid sandbox ID"}`), kinds: []error{e2b.ErrInvalidArgument}},
	} {
		api := newFakeAPI(t, row.answer)
		paused, err := api.client(t).Pause(t.Context(), apiTestID, nil)
		require.Equal(t, row.paused, paused)
		if row.kinds == nil {
			require.NoError(t, err)
		} else {
			requireKinds(t, err, row.kinds...)
		}
		require.Len(t, api.requests(), 1)
	}
}

// TestUserC7KillOfTheDead is no error.
func TestUserC7KillOfTheDead(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, answerText(204, ""), answerJSON(404, sandboxMissing), answerJSON(500, `{"message":"Error killing sandbox"}`))
	c := api.client(t)
	killed, err := c.Kill(t.Context(), apiTestID)
	require.NoError(t, err)
	require.True(t, killed)
	killed, err = c.Kill(t.Context(), apiTestID)
	require.NoError(t, err)
	require.False(t, killed)
	killed, err = c.Kill(t.Context(), apiTestID)
	require.Equal(t, 500, requireAPIError(t, err).StatusCode)
	require.False(t, killed)
}

// TestUserC5InfoOfTheDead tells a sandbox that is gone from any other failure.
func TestUserC5InfoOfTheDead(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		answer apiAnswer
		gone   bool
	}{
		{answerJSON(404, sandboxMissing), true},
		{answerJSON(500, `{}`), false},
		{answerJSON(404, routeMissing), false},
		{answerError(errNoConnection), false},
	} {
		api := newFakeAPI(t, row.answer, row.answer)
		c := api.client(t, noRetries)
		_, err := c.Info(t.Context(), apiTestID)
		require.Error(t, err)
		require.Equal(t, row.gone, errors.Is(err, e2b.ErrSandboxNotFound))
		running, err := c.IsRunning(t.Context(), apiTestID)
		require.False(t, running)
		require.Equal(t, row.gone, err == nil)
	}
}

// TestIsRunning asks the control plane.
func TestIsRunning(t *testing.T) {
	t.Parallel()
	for state, want := range map[e2b.State]bool{e2b.StateRunning: true, e2b.StatePaused: false, "hibernating": false, "": false} {
		api := newFakeAPI(t, answerJSON(200, infoBody(state)))
		running, err := api.client(t).IsRunning(t.Context(), apiTestID)
		require.NoError(t, err)
		require.Equal(t, want, running)
		require.Equal(t, []string{"GET /sandboxes/" + apiTestID}, api.lines())
	}
}

// TestUserC9ForeignSandbox keeps the server's words, which say that it may not
// be one's own.
func TestUserC9ForeignSandbox(t *testing.T) {
	t.Parallel()
	for _, op := range []controlOp{connectOp, pauseOp, infoOp} {
		err := op.call(t.Context(), newFakeAPI(t, answerJSON(404, sandboxMissing)).client(t))
		requireKinds(t, err, e2b.ErrSandboxNotFound)
		require.Contains(t, err.Error(), "you don't have access to it")
	}
}

// TestUserB7B8TimeoutBeyondThePlan is refused by the server, in its words, and
// never cut by the SDK.
func TestUserB7B8TimeoutBeyondThePlan(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, answerJSON(400, `{"code":400,"message":"Timeout cannot be greater than 1 hours"}`))
	_, err := api.client(t).Create(t.Context(), &e2b.CreateOptions{Timeout: 24 * time.Hour, NoToken: true})
	requireKinds(t, err, e2b.ErrInvalidArgument)
	require.Equal(t, "Timeout cannot be greater than 1 hours", requireAPIError(t, err).Message)
	require.JSONEq(t, `{"templateID":"base","timeout":86400,"secure":true}`, api.requests()[0].Body)
}

// TestSetTimeoutOfAPausedSandbox asks once what the 404 means.
func TestSetTimeoutOfAPausedSandbox(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		info  apiAnswer
		kind  error
		state e2b.State
	}{
		{"paused", answerJSON(200, infoBody(e2b.StatePaused)), e2b.ErrSandboxNotRunning, e2b.StatePaused},
		{"unknown", answerJSON(404, sandboxMissing), e2b.ErrSandboxNotFound, ""},
		{"nobody says", answerJSON(500, `{}`), e2b.ErrSandboxNotFound, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t, answerJSON(404, sandboxMissing), row.info)
			err := api.client(t, noRetries).SetTimeout(t.Context(), apiTestID, time.Minute)
			requireKinds(t, err, row.kind)
			require.Equal(t, row.state, requireAPIError(t, err).State)
			require.Equal(t, "set timeout", requireAPIError(t, err).Op)
			require.Equal(t, []string{"POST /sandboxes/" + apiTestID + "/timeout", "GET /sandboxes/" + apiTestID}, api.lines())
		})
	}
}

// TestErrorText is what users read.
func TestErrorText(t *testing.T) {
	t.Parallel()
	err := &e2b.APIError{
		Op: "connect", SandboxID: "i1", StatusCode: 409, Code: "sandbox_start_in_flight", Message: "try again",
		RequestID: "r1", Attempts: 4, State: e2b.StatePaused,
	}
	require.Equal(t, "e2b: connect i1: try again (status 409, code sandbox_start_in_flight, sandbox is paused, 4 attempts, request r1)", err.Error())
	err = &e2b.APIError{Op: "create", StatusCode: 429, RetryAfter: 10 * time.Minute}
	require.Equal(t, "e2b: create (status 429, retry after 10m0s)", err.Error())
	require.Equal(t, "e2b: list", (&e2b.APIError{Op: "list"}).Error())
	unknown := &e2b.OutcomeUnknownError{CreateToken: "t1", Err: io.ErrUnexpectedEOF}
	require.Equal(t, "unexpected EOF: a sandbox may have been created with e2b_go_create_token=t1", unknown.Error())
	require.ErrorIs(t, unknown, e2b.ErrOutcomeUnknown)
	require.ErrorIs(t, unknown, io.ErrUnexpectedEOF)
}
