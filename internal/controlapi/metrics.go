package controlapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Stamp is when something was measured, as metrics say it twice.
type Stamp struct {
	Timestamp     Time   `json:"timestamp"` // deprecated
	TimestampUnix *int64 `json:"timestampUnix"`
}

// At returns the time, the zero Time where there is none.
func (s Stamp) At() time.Time {
	if s.TimestampUnix != nil {
		return time.Unix(*s.TimestampUnix, 0).UTC()
	}
	return s.Timestamp.Time
}

// Metric is one measurement of a sandbox.
type Metric struct {
	Stamp
	CPUCount   int     `json:"cpuCount"`
	CPUUsedPct float64 `json:"cpuUsedPct"`
	MemUsed    int64   `json:"memUsed"`
	MemTotal   int64   `json:"memTotal"`
	MemCache   int64   `json:"memCache"`
	DiskUsed   int64   `json:"diskUsed"`
	DiskTotal  int64   `json:"diskTotal"`
}

// TeamMetric is one measurement of a team.
type TeamMetric struct {
	Stamp
	ConcurrentSandboxes int     `json:"concurrentSandboxes"`
	SandboxStartRate    float64 `json:"sandboxStartRate"`
}

// MaxTeamMetric is the largest of many.
type MaxTeamMetric struct {
	Stamp
	Value float64 `json:"value"`
}

// interval asks for whole seconds that have all of the time from start to end.
func interval(start, end time.Time) url.Values {
	v := url.Values{}
	if !start.IsZero() {
		v.Set("start", strconv.FormatInt(start.Unix(), 10))
	}
	if !end.IsZero() {
		s := end.Unix()
		if end.Nanosecond() > 0 {
			s++
		}
		v.Set("end", strconv.FormatInt(s, 10))
	}
	return v
}

// Metrics returns what was measured of a sandbox. A zero time is not sent.
func (c *Client) Metrics(ctx context.Context, id string, start, end time.Time) ([]Metric, error) {
	a, err := c.do(ctx, request{method: http.MethodGet, segments: []string{"sandboxes", id, "metrics"}, query: interval(start, end), safe: true})
	if err != nil {
		return nil, err
	}
	var out []Metric
	return out, a.array(&out)
}

// MaxMetricsIDs is how many sandboxes one request for their metrics may name.
const MaxMetricsIDs = 100

// MetricsOf returns the newest measurement of each of at most MaxMetricsIDs different
// sandboxes, nil or nothing where there is none.
func (c *Client) MetricsOf(ctx context.Context, ids []string) (map[string]*Metric, error) {
	query := url.Values{"sandbox_ids": {strings.Join(ids, ",")}}
	a, err := c.do(ctx, request{method: http.MethodGet, segments: []string{"sandboxes", "metrics"}, query: query, safe: true})
	if err != nil {
		return nil, err
	}
	var body struct {
		Sandboxes json.RawMessage `json:"sandboxes"`
	}
	if err := a.decode(&body); err != nil {
		return nil, err
	}
	if body.Sandboxes == nil {
		return nil, a.bad(errors.New("it has no sandboxes"))
	}
	var out map[string]*Metric
	if err := json.Unmarshal(body.Sandboxes, &out); err != nil {
		return nil, a.bad(err)
	}
	return out, nil
}

// TeamMetrics returns what was measured of a team.
func (c *Client) TeamMetrics(ctx context.Context, team string, start, end time.Time) ([]TeamMetric, error) {
	a, err := c.do(ctx, request{method: http.MethodGet, segments: []string{"teams", team, "metrics"}, query: interval(start, end), safe: true})
	if err != nil {
		return nil, err
	}
	var out []TeamMetric
	return out, a.array(&out)
}

// TeamMetricsMax returns the largest value of a metric of a team.
func (c *Client) TeamMetricsMax(ctx context.Context, team, metric string, start, end time.Time) (*MaxTeamMetric, error) {
	query := interval(start, end)
	query.Set("metric", metric)
	a, err := c.do(ctx, request{method: http.MethodGet, segments: []string{"teams", team, "metrics", "max"}, query: query, safe: true})
	if err != nil {
		return nil, err
	}
	var out MaxTeamMetric
	return &out, a.decode(&out)
}
