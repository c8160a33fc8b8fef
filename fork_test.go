package e2b_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

var forkOp = controlOp{"fork", apiTestID, answerJSON(201, forksBody(2)), func(ctx context.Context, c *e2b.Client) error {
	_, err := c.Fork(ctx, apiTestID, nil)
	return err
}}

// forksBody is the answer with the forks of these numbers.
func forksBody(numbers ...int) string {
	var entries []string
	for _, n := range numbers {
		entries = append(entries, `{"sandbox":`+strings.Replace(createdBody, apiTestID, fmt.Sprintf("isandbox%013d", n), 1)+`}`)
	}
	return "[" + strings.Join(entries, ",") + "]"
}

func sendFork(body string) wantRequest {
	return wantRequest{method: http.MethodPost, path: "/sandboxes/" + apiTestID + "/fork", body: body}
}

func forking(file string, opts e2b.ForkOptions, body string, want any) recordedCall {
	return recordedCall{
		file: file, op: "fork", sent: []wantRequest{sendFork(body)}, want: want,
		call: func(ctx context.Context, c *e2b.Client) (any, error) {
			results, err := c.Fork(ctx, apiTestID, &opts)
			if err != nil {
				return nil, err
			}
			var views []sandboxView
			for _, r := range results {
				if r.Err != nil {
					return nil, r.Err
				}
				views = append(views, viewOf(r.Sandbox))
			}
			return views, nil
		},
	}
}

// forkCalls are the rows about forks.
func forkCalls() []recordedCall {
	const everything = `{"timeout":300}`
	plain := e2b.ForkOptions{}
	fork := func(n int, token string, life time.Duration) sandboxView {
		return handleView(livesFor(life), func(v *sandboxView) { v.ID, v.EnvdToken = fmt.Sprintf("isandbox%013d", n), token })
	}
	fails := func(status int, text string, kinds ...error) wantError {
		return failsWith(status, "Sandbox '"+apiTestID+"' "+text, kinds...)
	}
	paused := fails(409, "is paused and cannot be forked; resume it first", e2b.ErrSandboxNotRunning)
	paused.state = e2b.StatePaused
	count := func(text string) wantError {
		return badSchema(`request body has an error: doesn't match schema #/components/schemas/SandboxForkRequest: Error at "/count": number must be at ` + text)
	}
	refusing := func(opts e2b.ForkOptions) func(context.Context, *e2b.Client) error {
		return func(ctx context.Context, c *e2b.Client) error {
			_, err := c.Fork(ctx, apiTestID, &opts)
			return err
		}
	}
	return []recordedCall{
		forking("fork-201", e2b.ForkOptions{Count: 2, Timeout: time.Minute}, `{"timeout":60,"count":2}`,
			[]sandboxView{fork(2, envdTestKey, time.Minute), fork(3, portTestKey, time.Minute)}),
		forking("fork-no-body-201", plain, everything, []sandboxView{fork(2, envdTestKey, 5*time.Minute)}),
		forking("fork-count-101-400", e2b.ForkOptions{Count: 100}, `{"timeout":300,"count":100}`, count("most 100")).
			refusing(refusing(e2b.ForkOptions{Count: 101})),
		forking("fork-count-zero-400", plain, everything, count("least 1")).refusing(refusing(e2b.ForkOptions{Count: -1})),
		forking("fork-count-limit-400", e2b.ForkOptions{Count: 100}, `{"timeout":300,"count":100}`,
			badRequest("Count must be lower than the maximum number of concurrent sandboxes (100)")),
		forking("fork-quota-400", e2b.ForkOptions{Count: 2}, `{"timeout":300,"count":2}`,
			badRequest("Count must be lower than the maximum number of concurrent sandboxes (2)")),
		forking("fork-timeout-zero-400", plain, everything, badRequest("Timeout must be greater than 0")).
			refusing(refusing(e2b.ForkOptions{Timeout: -1})),
		forking("fork-node-busy-503", plain, everything,
			fails(503, "cannot be forked right now because its node is busy, please retry", e2b.ErrServiceBusy)),
		forking("fork-paused-409", plain, everything, paused),
		forking("resuming-fork-409", plain, everything, paused),
		forking("killing-fork-409", plain, everything, fails(409, "cannot be forked while in 'killing' state", e2b.ErrConflict)),
		forking("snapshotting-fork-409", plain, everything, fails(409, "cannot be forked while in 'snapshotting' state", e2b.ErrConflict)),
		forking("fork-unknown-404", plain, everything, sandboxUnknown).
			answeredBy("fork-unknown-404", "info-killed-404").sending(sendFork(everything), sendInfo()),
	}
}

// TestForkResults reads each entry for itself.
func TestForkResults(t *testing.T) {
	t.Parallel()
	entry := func(code, message string) string {
		return `{"error":{"code":` + code + `,"message":"` + message + `"}}`
	}
	good := strings.Trim(forksBody(2), "[]")
	for _, row := range []struct {
		name   string
		entry  string
		status int
		kinds  []error
		text   string
	}{
		{name: "a sandbox", entry: good},
		{name: "a sandbox with null beside it", entry: strings.Replace(good, `{"sandbox"`, `{"error":null,"sandbox"`, 1)},
		{name: "a sandbox with a long ID", entry: strings.Replace(good, "02\"", "02-6532622b\"", 1)},
		{
			name: "quota", entry: entry("429", "you have reached the maximum number of concurrent E2B sandboxes (2)"), status: 429,
			kinds: []error{e2b.ErrQuotaExceeded, e2b.ErrRateLimited}, text: "you have reached the maximum number of concurrent E2B sandboxes (2)",
		},
		{name: "no capacity", entry: entry("503", "Failed to place sandbox"), status: 503, kinds: []error{e2b.ErrServiceBusy}, text: "Failed to place sandbox"},
		{name: "placement timed out, and the server says so", entry: entry("504", "placement timed out"), status: 504, text: "placement timed out"},
		{name: "500", entry: entry("500", "Failed to place sandbox"), status: 500, text: "Failed to place sandbox"},
		{name: "400", entry: entry("400", "no"), status: 400, kinds: []error{e2b.ErrInvalidArgument}, text: "no"},
		{name: "409", entry: entry("409", "no"), status: 409, kinds: []error{e2b.ErrConflict}, text: "no"},
		{name: "an error beside null", entry: `{"sandbox":null,"error":{"code":503,"message":"busy"}}`, status: 503, kinds: []error{e2b.ErrServiceBusy}, text: "busy"},
		{name: "an error without a code", entry: `{"error":{"message":"odd"}}`, text: "odd"},
		{name: "an error with a word for a code", entry: entry(`"busy"`, "odd"), text: "odd"},
		{name: "the key in the text", entry: entry("500", "key "+apiTestKey), status: 500, text: "key [redacted]"},
		{name: "a text on two lines", entry: entry("500", `a\nb`), status: 500, text: "a b"},
		{name: "nothing", entry: `{}`, status: 201, kinds: []error{e2b.ErrOutcomeUnknown}, text: "a result without sandbox and error"},
		{name: "two nulls", entry: `{"sandbox":null,"error":null}`, status: 201, kinds: []error{e2b.ErrOutcomeUnknown}, text: "without sandbox and error"},
		{name: "null", entry: `null`, status: 201, kinds: []error{e2b.ErrOutcomeUnknown}, text: "without sandbox and error"},
		{name: "a number", entry: `7`, status: 201, kinds: []error{e2b.ErrOutcomeUnknown}, text: "cannot be read"},
		{name: "an error that is a text", entry: `{"error":"no"}`, status: 201, kinds: []error{e2b.ErrOutcomeUnknown}, text: "without sandbox and error"},
		{name: "a sandbox that is a text", entry: `{"sandbox":"` + envdTestKey + `"}`, status: 201, kinds: []error{e2b.ErrOutcomeUnknown}, text: "cannot be read"},
		{name: "a sandbox without an ID", entry: `{"sandbox":{}}`, kinds: []error{e2b.ErrOutcomeUnknown}, text: "names no sandbox"},
		{name: "a sandbox with a path for an ID", entry: strings.Replace(good, "isandbox", "../", 1), kinds: []error{e2b.ErrOutcomeUnknown}, text: "names no sandbox"},
		{name: "a sandbox with a path for a domain", entry: strings.Replace(good, `"clientID"`, `"domain":"evil.test/","clientID"`, 1), kinds: []error{e2b.ErrOutcomeUnknown}, text: "names no domain"},
		{name: "the sandbox itself", entry: `{"sandbox":` + createdBody + `}`, kinds: []error{e2b.ErrOutcomeUnknown}, text: "names the sandbox itself"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			body := "[" + strings.Trim(forksBody(7), "[]") + "," + row.entry + "," + strings.Trim(forksBody(8), "[]") + "]"
			api := newFakeAPI(t, answerJSON(201, body, "X-Request-ID", "request-1"))
			results, err := handleOf(t, api).Fork(t.Context(), &e2b.ForkOptions{Count: 3})
			require.NoError(t, err)
			require.JSONEq(t, `{"timeout":420,"count":3}`, api.requests()[0].Body, "the lifetime is that of the handle")
			require.Len(t, results, 3)
			require.NoError(t, results[0].Err)
			require.Equal(t, "isandbox0000000000007", results[0].Sandbox.ID())
			require.NoError(t, results[2].Err)
			require.Equal(t, "isandbox0000000000008", results[2].Sandbox.ID())
			require.NotSame(t, results[0].Sandbox, results[2].Sandbox)
			got := results[1]
			if row.text == "" {
				require.NoError(t, got.Err)
				require.Equal(t, handleView(livesFor(7*time.Minute), func(v *sandboxView) { v.ID = "isandbox0000000000002" }), viewOf(got.Sandbox))
				return
			}
			require.Nil(t, got.Sandbox)
			requireKinds(t, got.Err, row.kinds...)
			require.ErrorContains(t, got.Err, row.text)
			requireNoSecret(t, got.Err, envdTestKey)
			requireNoSecret(t, got.Err, apiTestKey)
			if api, ok := errors.AsType[*e2b.APIError](got.Err); ok {
				require.Equal(t, row.status, api.StatusCode)
				require.Equal(t, "fork", api.Op)
				require.Equal(t, apiTestID, api.SandboxID)
				require.Equal(t, "request-1", api.RequestID)
				require.Equal(t, 1, api.Attempts)
			} else {
				require.Zero(t, row.status)
			}
		})
	}
}

// TestForkHasAsManyResultsAsAskedFor even where the answer has fewer; more are
// not dropped: they cost money.
func TestForkHasAsManyResultsAsAskedFor(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		count, answered, unknown int
	}{{0, 1, 0}, {0, 0, 1}, {1, 1, 0}, {3, 1, 2}, {2, 0, 2}, {1, 3, 0}, {100, 100, 0}} {
		var numbers []int
		for i := range row.answered {
			numbers = append(numbers, i+2)
		}
		api := newFakeAPI(t, answerJSON(201, forksBody(numbers...)))
		results, err := api.client(t).Fork(t.Context(), apiTestID, &e2b.ForkOptions{Count: row.count})
		require.NoError(t, err)
		require.Len(t, results, row.answered+row.unknown)
		for i, r := range results {
			if i < row.answered {
				require.NoError(t, r.Err)
				require.NotNil(t, r.Sandbox)
				continue
			}
			require.Nil(t, r.Sandbox)
			requireKinds(t, r.Err, e2b.ErrOutcomeUnknown)
			require.ErrorContains(t, r.Err, "too few results")
		}
	}
}

// TestForkArguments are checked before anything is sent.
func TestForkArguments(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	for arg, opts := range map[string]*e2b.ForkOptions{"Count must": {Count: 101}, "Count": {Count: -1}, "Timeout": {Timeout: -time.Second}} {
		_, err := handleOf(t, api).Fork(t.Context(), opts)
		requireRefused(t, api, err)
		require.ErrorContains(t, err, arg)
	}
}

// TestForkedMetadataHasNoToken although forks inherit it.
func TestForkedMetadataHasNoToken(t *testing.T) {
	t.Parallel()
	info := strings.Replace(infoBody(e2b.StateRunning), `"state"`, `"metadata":{"a":"1","e2b_go_create_token":"t"},"state"`, 1)
	api := newFakeAPI(t, answerJSON(201, forksBody(2)), answerJSON(200, info), answerJSON(200, "["+info+"]"))
	c := api.client(t)
	results, err := c.Fork(t.Context(), apiTestID, nil)
	require.NoError(t, err)
	got, err := results[0].Sandbox.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "1"}, got.Metadata)
	page, err := c.ListPage(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "1"}, page.Items[0].Metadata)
	require.Equal(t, "/sandboxes/isandbox0000000000002", api.requests()[1].Path)
}
