package e2b

import (
	"context"
	"slices"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/controlapi"
)

// A Metric is one measurement of a sandbox.
//
// See https://e2b.dev/docs/sandbox/metrics.
type Metric struct {
	Time             time.Time // to the second; zero: unknown
	CPUCount         int       // processors
	CPUUsedPercent   float64   // of all its processors together: 100 is all of them busy
	MemoryUsedBytes  int64
	MemoryTotalBytes int64
	MemoryCacheBytes int64 // of files; can be freed
	DiskUsedBytes    int64
	DiskTotalBytes   int64
}

// MetricsOptions selects measurements by their time. The zero value leaves the
// choice to the server. What goes out are whole seconds: Start is rounded down and
// End up, so that nothing in between is left out.
//
// See https://e2b.dev/docs/sandbox/metrics.
type MetricsOptions struct {
	Start, End time.Time // between 1970 and 9999; zero: not sent
}

func (o *MetricsOptions) check(op operation) (start, end time.Time, err error) {
	if o == nil {
		return start, end, nil
	}
	return o.Start, o.End, checkInterval(op, "Start", "End", o.Start, o.End)
}

var (
	opMetrics     = operation{name: "metrics", notFound: ErrSandboxNotFound}
	opMetricsOf   = operation{name: "metrics of sandboxes"} // it is asked for no one sandbox
	opTeamMetrics = operation{name: "team metrics"}
)

// Metrics returns the measurements of a sandbox, oldest first: one each 5 s, fewer
// where they span more than an hour. The first one takes some seconds to come;
// until then, and for a sandbox that nobody knows, the result is empty and no
// error. opts may be nil.
//
// Errors: ErrInvalidArgument, ErrUnauthenticated, ErrNotSupported (the server has
// no metrics).
//
// See https://e2b.dev/docs/sandbox/metrics.
func (c *Client) Metrics(ctx context.Context, id string, opts *MetricsOptions) ([]Metric, error) {
	id, err := sandboxID(opMetrics.name, id)
	if err != nil {
		return nil, err
	}
	start, end, err := opts.check(opMetrics)
	if err != nil {
		return nil, err
	}
	list, err := c.api.Metrics(ctx, id, start, end)
	if err != nil {
		return nil, controlError(ctx, opMetrics, id, err)
	}
	out := make([]Metric, len(list))
	for i := range list {
		out[i] = metricOf(&list[i])
	}
	return out, nil
}

// Metrics is Client.Metrics for this sandbox, with the same errors. It does not
// wake it.
//
// See https://e2b.dev/docs/sandbox/metrics.
func (s *Sandbox) Metrics(ctx context.Context, opts *MetricsOptions) ([]Metric, error) {
	return s.client.Metrics(ctx, s.id, opts)
}

// MetricsOf returns the newest measurement of each of many sandboxes, by the IDs
// as they were given. Sandboxes without one, as those that are paused, new or not
// known, are not in the result. 100 sandboxes are one request, more are several,
// one after the other, and ctx bounds them all. If one fails, there is no result.
//
// Errors: as Metrics.
//
// See https://e2b.dev/docs/sandbox/metrics.
func (c *Client) MetricsOf(ctx context.Context, ids []string) (map[string]Metric, error) {
	given := make(map[string][]string, len(ids)) // by the short form
	short := make([]string, 0, len(ids))         // each once
	for _, id := range ids {
		s, err := sandboxID(opMetricsOf.name, id)
		if err != nil {
			return nil, err
		}
		if given[s] == nil {
			short = append(short, s)
		}
		given[s] = append(given[s], id)
	}
	out := make(map[string]Metric, len(ids))
	for part := range slices.Chunk(short, controlapi.MaxMetricsIDs) {
		found, err := c.api.MetricsOf(ctx, part)
		if err != nil {
			return nil, controlError(ctx, opMetricsOf, "", err)
		}
		for id, m := range found {
			if m == nil {
				continue
			}
			for _, id := range given[controlapi.ShortID(id)] {
				out[id] = metricOf(m)
			}
		}
	}
	return out, nil
}

func metricOf(m *controlapi.Metric) Metric {
	return Metric{
		Time: m.At(), CPUCount: m.CPUCount, CPUUsedPercent: m.CPUUsedPct,
		MemoryUsedBytes: m.MemUsed, MemoryTotalBytes: m.MemTotal, MemoryCacheBytes: m.MemCache,
		DiskUsedBytes: m.DiskUsed, DiskTotalBytes: m.DiskTotal,
	}
}

// A TeamMetric is one measurement of what a team runs.
//
// See https://e2b.dev/docs/api-reference.
type TeamMetric struct {
	Time                   time.Time // to the second; zero: unknown
	ConcurrentSandboxes    int       // that run at the same time
	SandboxStartsPerSecond float64
}

// TeamMetrics returns the measurements of the team with that ID, which is shown in
// E2B's dashboard: no call tells the team of an API key. Without times the server
// gives those of the last 7 days. opts may be nil.
//
// Errors: ErrInvalidArgument, ErrUnauthenticated, ErrForbidden (it is not the
// team of the API key), ErrNotSupported.
//
// See https://e2b.dev/docs/api-reference.
func (c *Client) TeamMetrics(ctx context.Context, teamID string, opts *MetricsOptions) ([]TeamMetric, error) {
	start, end, err := checkTeam(teamID, opts)
	if err != nil {
		return nil, err
	}
	list, err := c.api.TeamMetrics(ctx, teamID, start, end)
	if err != nil {
		return nil, controlError(ctx, opTeamMetrics, "", err)
	}
	out := make([]TeamMetric, len(list))
	for i, m := range list {
		out[i] = TeamMetric{m.At(), m.ConcurrentSandboxes, m.SandboxStartRate}
	}
	return out, nil
}

// TeamMetricName names what is measured of a team.
//
// See https://e2b.dev/docs/api-reference.
type TeamMetricName string

// What is measured of a team.
const (
	MetricConcurrentSandboxes TeamMetricName = "concurrent_sandboxes" // how many run at the same time
	MetricSandboxStartRate    TeamMetricName = "sandbox_start_rate"   // how many start each second
)

// TeamMetricsMax returns the largest value that a metric of a team had, and when.
// The time is zero if nothing was measured. Team, times and opts are those of
// TeamMetrics.
//
// Errors: as TeamMetrics.
//
// See https://e2b.dev/docs/api-reference.
func (c *Client) TeamMetricsMax(ctx context.Context, teamID string, metric TeamMetricName, opts *MetricsOptions) (float64, time.Time, error) {
	start, end, err := checkTeam(teamID, opts)
	if err != nil {
		return 0, time.Time{}, err
	}
	if metric != MetricConcurrentSandboxes && metric != MetricSandboxStartRate {
		return 0, time.Time{}, invalid(opTeamMetrics.name, "metric", "is none: %.40q", metric)
	}
	m, err := c.api.TeamMetricsMax(ctx, teamID, string(metric), start, end)
	if err != nil {
		return 0, time.Time{}, controlError(ctx, opTeamMetrics, "", err)
	}
	return m.Value, m.At(), nil
}

func checkTeam(id string, opts *MetricsOptions) (start, end time.Time, err error) {
	if !validID(id) {
		return start, end, invalid(opTeamMetrics.name, "team ID", "must be 1 to 63 letters, digits, - or _: %.80q", id)
	}
	return opts.check(opTeamMetrics)
}

// checkInterval refuses times that cannot be sent, and an end before the start.
func checkInterval(op operation, from, to string, start, end time.Time) error {
	for name, t := range map[string]time.Time{from: start, to: end} {
		if !t.IsZero() && (t.Unix() < 0 || t.Year() > 9999) {
			return invalid(op.name, name, "is not between 1970 and 9999: %v", t)
		}
	}
	if !start.IsZero() && !end.IsZero() && end.Before(start) {
		return invalid(op.name, to, "is before %s", from)
	}
	return nil
}
