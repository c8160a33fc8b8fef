package e2b_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
)

const testTeam = "00000000-0000-4000-8000-000000000001"

const metricBody = `{"timestamp":"2026-01-02T03:04:05.5Z","timestampUnix":1767323045,"cpuCount":2,"cpuUsedPct":12.5,` +
	`"memUsed":1000000,"memTotal":536870912,"memCache":2000000,"diskUsed":3000000,"diskTotal":5000000000000}`

var testMetric = e2b.Metric{
	Time: at("2026-01-02T03:04:05Z"), CPUCount: 2, CPUUsedPercent: 12.5, MemoryUsedBytes: 1e6, MemoryTotalBytes: 512 << 20,
	MemoryCacheBytes: 2e6, DiskUsedBytes: 3e6, DiskTotalBytes: 5e12,
}

var (
	metricsOp = controlOp{"metrics", apiTestID, answerJSON(200, "[]"), func(ctx context.Context, c *e2b.Client) error {
		_, err := c.Metrics(ctx, apiTestID, nil)
		return err
	}}
	metricsOfOp = controlOp{"metrics of sandboxes", "", answerJSON(200, `{"sandboxes":{}}`), func(ctx context.Context, c *e2b.Client) error {
		_, err := c.MetricsOf(ctx, []string{apiTestID})
		return err
	}}
	teamMetricsOp = controlOp{"team metrics", "", answerJSON(200, "[]"), func(ctx context.Context, c *e2b.Client) error {
		_, err := c.TeamMetrics(ctx, testTeam, nil)
		return err
	}}
	teamMaxOp = controlOp{"team metrics", "", answerJSON(200, "{}"), func(ctx context.Context, c *e2b.Client) error {
		_, _, err := c.TeamMetricsMax(ctx, testTeam, e2b.MetricConcurrentSandboxes, nil)
		return err
	}}
)

// getting is a request without a body, with a query of names and values in turn.
func getting(path string, query ...string) wantRequest { return sendListTo(path, query...) }

// metricsCalls are the recorded exchanges about metrics.
func metricsCalls() []recordedCall {
	of := func(file string, ids []string, sent string, want any) recordedCall {
		return recordedCall{
			file: file, op: "metrics of sandboxes", sent: []wantRequest{getting("/sandboxes/metrics", "sandbox_ids", sent)}, want: want,
			call: func(ctx context.Context, c *e2b.Client) (any, error) { return c.MetricsOf(ctx, ids) },
		}
	}
	single := func(file string, opts *e2b.MetricsOptions, want any, query ...string) recordedCall {
		return recordedCall{
			file: file, op: "metrics", sent: []wantRequest{getting("/sandboxes/"+apiTestID+"/metrics", query...)}, want: want,
			call: func(ctx context.Context, c *e2b.Client) (any, error) { return c.Metrics(ctx, apiTestID, opts) },
		}
	}
	largest := func(file string, want any) recordedCall {
		return recordedCall{
			file: file, op: "team metrics", want: want,
			sent: []wantRequest{getting("/teams/"+testTeam+"/metrics/max", "metric", "concurrent_sandboxes")},
			call: func(ctx context.Context, c *e2b.Client) (any, error) {
				value, when, err := c.TeamMetricsMax(ctx, testTeam, e2b.MetricConcurrentSandboxes, nil)
				return []any{value, when.IsZero()}, err
			},
		}
	}
	refuseMax := func(ctx context.Context, c *e2b.Client) error {
		_, _, err := c.TeamMetricsMax(ctx, testTeam, "", nil)
		return err
	}
	one := []string{apiTestID}
	return []recordedCall{
		single("metrics-unknown", nil, []e2b.Metric{}),
		single("metrics-bad-range-400", &e2b.MetricsOptions{Start: time.Unix(200, 0), End: time.Unix(200, 0)}, badRequest("Invalid time range for metrics"), "start", "200", "end", "200").
			refusing(func(ctx context.Context, c *e2b.Client) error {
				_, err := c.Metrics(ctx, apiTestID, &e2b.MetricsOptions{Start: time.Unix(200, 0), End: time.Unix(100, 0)})
				return err
			}),
		of("metrics-many", []string{apiTestID, "isandbox0000000000002"}, apiTestID+",isandbox0000000000002", map[string]e2b.Metric{}),
		// What the SDK does not send: it asks in several requests, and for each once.
		of("metrics-many-101-400", one, apiTestID, badSchema(`parameter "sandbox_ids" in query has an error: maximum number of items is 100`)),
		of("metrics-many-duplicate-400", []string{apiTestID, apiTestID}, apiTestID, badSchema(`parameter "sandbox_ids" in query has an error: duplicate items found`)),
		of("metrics-many-missing-400", one, apiTestID, badSchema(`parameter "sandbox_ids" in query has an error: value is required but missing`)),
		largest("team-metrics-max", []any{0.0, true}),
		largest("team-metrics-max-missing-metric-400", badSchema(`parameter "metric" in query has an error: value is required but missing`)).refusing(refuseMax),
	}
}

// TestMetrics reads what servers say of a sandbox, as far as they say it.
func TestMetrics(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		body string
		want []e2b.Metric
	}{
		"all":                 {"[" + metricBody + "," + metricBody + "]", []e2b.Metric{testMetric, testMetric}},
		"none":                {" [ ] ", []e2b.Metric{}},
		"nothing said":        {`[{}]`, []e2b.Metric{{}}},
		"nulls":               {`[{"timestamp":null,"timestampUnix":null,"cpuUsedPct":null,"memUsed":null}]`, []e2b.Metric{{}}},
		"an older server":     {`[{"timestamp":"2026-01-02T03:04:05Z","cpuCount":1}]`, []e2b.Metric{{Time: at("2026-01-02T03:04:05Z"), CPUCount: 1}}},
		"fields nobody knows": {`[{"timestampUnix":0,"gpu":[1]}]`, []e2b.Metric{{Time: time.Unix(0, 0).UTC()}}},
		"before 1970":         {`[{"timestampUnix":-1}]`, []e2b.Metric{{Time: time.Unix(-1, 0).UTC()}}},
	} {
		api := newFakeAPI(t, answerJSON(200, row.body), answerJSON(200, row.body))
		c := api.client(t)
		got, err := c.Metrics(t.Context(), apiTestID, nil)
		require.NoError(t, err, name)
		require.Equal(t, row.want, got, name)
		got, err = handleOf(t, api).Metrics(t.Context(), &e2b.MetricsOptions{})
		require.NoError(t, err, name)
		require.Equal(t, row.want, got, name)
		require.Equal(t, []string{"GET /sandboxes/" + apiTestID + "/metrics", "GET /sandboxes/" + apiTestID + "/metrics"}, api.lines())
	}
}

// TestI4NoStartIsSent unless there is one: servers then begin with the sandbox.
func TestI4NoStartIsSent(t *testing.T) {
	t.Parallel()
	second := time.Unix(100, 0)
	for _, row := range []struct {
		opts *e2b.MetricsOptions
		want url.Values
	}{
		{nil, url.Values{}},
		{&e2b.MetricsOptions{}, url.Values{}},
		{&e2b.MetricsOptions{Start: second}, url.Values{"start": {"100"}}},
		{&e2b.MetricsOptions{End: second}, url.Values{"end": {"100"}}},
		{&e2b.MetricsOptions{Start: second.Add(999 * time.Millisecond), End: second.Add(time.Second)}, url.Values{"start": {"100"}, "end": {"101"}}},
		{&e2b.MetricsOptions{Start: second.Add(1), End: second.Add(1)}, url.Values{"start": {"100"}, "end": {"101"}}},
		{&e2b.MetricsOptions{Start: time.Unix(0, 0), End: time.Unix(0, 0)}, url.Values{"start": {"0"}, "end": {"0"}}},
	} {
		api := newFakeAPI(t, answerJSON(200, "[]"), answerJSON(200, "[]"), answerJSON(200, "{}"))
		c := api.client(t)
		_, err := c.Metrics(t.Context(), apiTestID, row.opts)
		require.NoError(t, err)
		_, err = c.TeamMetrics(t.Context(), testTeam, row.opts)
		require.NoError(t, err)
		_, _, err = c.TeamMetricsMax(t.Context(), testTeam, e2b.MetricSandboxStartRate, row.opts)
		require.NoError(t, err)
		require.Equal(t, []string{"GET /sandboxes/" + apiTestID + "/metrics", "GET /teams/" + testTeam + "/metrics", "GET /teams/" + testTeam + "/metrics/max"}, api.lines())
		for i, r := range api.requests() {
			q := decodedQuery(t, r.Query)
			if i == 2 {
				require.Equal(t, "sandbox_start_rate", q.Get("metric"))
				q.Del("metric")
			}
			require.Equal(t, row.want, q)
		}
	}
}

// TestBadMetricsArguments are refused.
func TestBadMetricsArguments(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	c := api.client(t)
	for name, opts := range map[string]*e2b.MetricsOptions{
		"Start": {Start: time.Unix(-1, 0)}, "End": {End: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"End is before Start": {Start: time.Unix(2, 0), End: time.Unix(1, 0)},
	} {
		_, err := c.Metrics(t.Context(), apiTestID, opts)
		requireRefused(t, api, err)
		require.ErrorContains(t, err, name)
		_, err = c.TeamMetrics(t.Context(), testTeam, opts)
		requireRefused(t, api, err)
		_, _, err = c.TeamMetricsMax(t.Context(), testTeam, e2b.MetricConcurrentSandboxes, opts)
		requireRefused(t, api, err)
	}
	for _, id := range []string{"", "a/b", "..", "a,b", strings.Repeat("a", 64)} {
		_, err := c.Metrics(t.Context(), id, nil)
		requireRefused(t, api, err)
		_, err = c.MetricsOf(t.Context(), []string{apiTestID, id})
		requireRefused(t, api, err)
		_, err = c.TeamMetrics(t.Context(), id, nil)
		requireRefused(t, api, err)
		_, _, err = c.TeamMetricsMax(t.Context(), id, e2b.MetricConcurrentSandboxes, nil)
		requireRefused(t, api, err)
	}
	_, _, err := c.TeamMetricsMax(t.Context(), testTeam, "cpu", nil)
	requireRefused(t, api, err)
}

// TestMetricsOf asks for many, a hundred at a time and each once.
func TestMetricsOf(t *testing.T) {
	t.Parallel()
	answer := func(r *http.Request) (*http.Response, error) {
		var parts []string
		for id := range strings.SplitSeq(r.URL.Query().Get("sandbox_ids"), ",") {
			switch id {
			case "i7": // has none
			case "i8":
				parts = append(parts, `"i8":null`)
			case "i9": // in the old form
				parts = append(parts, `"i9-6532622b":`+metricBody)
			default:
				parts = append(parts, fmt.Sprintf("%q:%s", id, metricBody))
			}
		}
		parts = append(parts, `"iother":`+metricBody) // which nobody asked for
		return answerJSON(200, `{"sandboxes":{`+strings.Join(parts, ",")+`}}`)(r)
	}
	var ids []string
	for i := range 250 {
		ids = append(ids, fmt.Sprintf("i%d", i), fmt.Sprintf("i%d", i))
	}
	ids = append(ids, "i5-6532622b")
	api := newFakeAPI(t, answer, answer, answer)
	got, err := api.client(t).MetricsOf(t.Context(), ids)
	require.NoError(t, err)
	require.Len(t, got, 249)
	for _, id := range []string{"i0", "i9", "i5", "i5-6532622b", "i249"} {
		require.Equal(t, testMetric, got[id], id)
	}
	for _, id := range []string{"i7", "i8", "iother"} {
		require.NotContains(t, got, id)
	}
	var sizes []int
	seen := map[string]bool{}
	for _, r := range api.requests() {
		asked := strings.Split(decodedQuery(t, r.Query).Get("sandbox_ids"), ",")
		sizes = append(sizes, len(asked))
		for _, id := range asked {
			require.False(t, seen[id], "%s twice", id)
			seen[id] = true
		}
	}
	require.Equal(t, []int{100, 100, 50}, sizes)

	none, err := newFakeAPI(t).client(t).MetricsOf(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, map[string]e2b.Metric{}, none, "nobody is asked for nothing")

	api = newFakeAPI(t, answer, answerJSON(500, `{"message":"Failed to fetch"}`))
	got, err = api.client(t, noRetries).MetricsOf(t.Context(), ids)
	require.Nil(t, got, "half a result looks like a whole one")
	require.Equal(t, 500, requireAPIError(t, err).StatusCode)

	// An old server takes the route for that of a sandbox.
	api = newFakeAPI(t, answerJSON(404, `{"code":404,"message":"Sandbox \"metrics\" doesn't exist or you don't have access to it"}`))
	_, err = api.client(t).MetricsOf(t.Context(), []string{"i1"})
	requireKinds(t, err, e2b.ErrNotSupported)
}

// TestTeamMetrics of an API key's own team.
func TestTeamMetrics(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t,
		answerJSON(200, `[{"timestamp":"2026-01-02T03:04:05Z","timestampUnix":1767323045,"concurrentSandboxes":3,"sandboxStartRate":0.25},{}]`),
		answerJSON(200, `{"timestampUnix":1767323045,"value":7.5}`),
		answerJSON(403, `{"code":403,"message":"You (a) are not authorized to access this team's (b) metrics"}`))
	c := api.client(t)
	list, err := c.TeamMetrics(t.Context(), testTeam, nil)
	require.NoError(t, err)
	require.Equal(t, []e2b.TeamMetric{{Time: at("2026-01-02T03:04:05Z"), ConcurrentSandboxes: 3, SandboxStartsPerSecond: 0.25}, {}}, list)
	value, when, err := c.TeamMetricsMax(t.Context(), testTeam, e2b.MetricSandboxStartRate, nil)
	require.NoError(t, err)
	require.Equal(t, 7.5, value)
	require.Equal(t, at("2026-01-02T03:04:05Z"), when)
	_, err = c.TeamMetrics(t.Context(), testTeam, nil)
	requireKinds(t, err, e2b.ErrForbidden)
}

// TestMetricsThatCannotBeRead are errors, and never nothing.
func TestMetricsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		op     controlOp
		bodies []string
	}{
		{metricsOp, []string{`null`, `{}`, `""`, ``, `[1]`, `[{"memUsed":"1"}]`, `[{"timestamp":"today"}]`}},
		{metricsOfOp, []string{`null`, `[]`, `{}`, ``, `{"sandboxes":[]}`, `{"sandboxes":{"i1":1}}`}},
		{teamMetricsOp, []string{`null`, `{}`, `[[]]`}},
		{teamMaxOp, []string{`null`, `[]`, `{"value":"1"}`}},
	} {
		for _, body := range row.bodies {
			err := row.op.call(t.Context(), newFakeAPI(t, answerJSON(200, body)).client(t))
			requireKinds(t, err)
			require.Equal(t, 200, requireAPIError(t, err).StatusCode, "%s: %s", row.op.name, body)
		}
	}
	got, err := newFakeAPI(t, answerJSON(200, `{"sandboxes":null}`)).client(t).MetricsOf(t.Context(), []string{"i1"})
	require.NoError(t, err, "null is how Go writes an empty map")
	require.Empty(t, got)
}

// USERS.md I3: right after the creation there is nothing, and no error.
func TestI3MetricsTakeSeconds(t *testing.T) {
	t.Parallel()
	server, client := e2btest.New(t, nil)
	sbx, err := client.Create(t.Context(), nil)
	require.NoError(t, err)
	got, err := sbx.Metrics(t.Context(), &e2b.MetricsOptions{End: time.Now()})
	require.NoError(t, err)
	require.Equal(t, []e2b.Metric{}, got)
	server.Advance(10 * time.Second)
	got, err = sbx.Metrics(t.Context(), nil)
	require.NoError(t, err)
	require.NotEmpty(t, got)
	newest, err := client.MetricsOf(t.Context(), []string{sbx.ID(), "iunknown"})
	require.NoError(t, err)
	require.Equal(t, map[string]e2b.Metric{sbx.ID(): got[len(got)-1]}, newest)
}

// USERS.md I4: without a start, the points of the whole life come.
func TestI4MetricsSinceTheStart(t *testing.T) {
	t.Parallel()
	server, client := e2btest.New(t, nil)
	sbx, err := client.Create(t.Context(), &e2b.CreateOptions{Timeout: 3 * time.Hour})
	require.NoError(t, err)
	server.Advance(2 * time.Hour)
	got, err := sbx.Metrics(t.Context(), nil)
	require.NoError(t, err)
	now := time.Now().Add(2 * time.Hour)
	for _, ago := range []time.Duration{90 * time.Minute, 10 * time.Minute} {
		require.True(t, slices.ContainsFunc(got, func(m e2b.Metric) bool { return now.Add(-ago).Sub(m.Time).Abs() < time.Minute }), "none %v ago", ago)
	}
	require.True(t, slices.IsSortedFunc(got, func(a, b e2b.Metric) int { return a.Time.Compare(b.Time) }), "oldest first")
}
