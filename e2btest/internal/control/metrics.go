package control

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A stretch is a time in which a sandbox ran.
type stretch struct{ from, to time.Time }

// stretches are those of a history up to now.
func stretches(events []event, now time.Time) []stretch {
	var out []stretch
	for i, e := range events {
		if !e.what.runs() {
			continue
		}
		to := now
		if i+1 < len(events) {
			to = events[i+1].at
		}
		out = append(out, stretch{e.at, to})
	}
	return out
}

// minStep is how far apart points are at least.
const minStep = 5 * time.Second

// stepOf is how far apart points are that span a time.
func stepOf(span time.Duration) time.Duration {
	const day = 24 * time.Hour
	switch {
	case span < time.Hour:
		return minStep
	case span < 6*time.Hour:
		return 30 * time.Second
	case span < 12*time.Hour:
		return time.Minute
	case span < day:
		return 2 * time.Minute
	case span < 7*day:
		return 5 * time.Minute
	}
	return 15 * time.Minute
}

type stamp struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
}

func stampOf(t time.Time) stamp {
	t = t.UTC().Truncate(time.Second)
	return stamp{t, t.Unix()}
}

type metricView struct {
	stamp
	CPUCount   int     `json:"cpuCount"`
	CPUUsedPct float64 `json:"cpuUsedPct"`
	DiskTotal  int64   `json:"diskTotal"`
	DiskUsed   int64   `json:"diskUsed"`
	MemCache   int64   `json:"memCache"`
	MemTotal   int64   `json:"memTotal"`
	MemUsed    int64   `json:"memUsed"`
}

// metricAt is a point.
func metricAt(at time.Time, v sample) metricView {
	const mib = 1 << 20
	return metricView{
		stamp: stampOf(at), CPUCount: cpuCount, CPUUsedPct: v.cpuPct,
		DiskTotal: diskSizeMB * mib, DiskUsed: v.disk,
		MemTotal: memoryMB * mib, MemUsed: v.memory, MemCache: v.cache,
	}
}

// points are those of a sandbox within a time: the first one comes a step after it
// has begun to run. Each tells the newest of what was measured before the next, or
// else of what was measured last.
func points(runs []stretch, samples []sample, from, to time.Time) []metricView {
	step := stepOf(to.Sub(from))
	list := []metricView{}
	for _, r := range runs {
		var last sample
		for at := r.from; !at.After(r.to); at = at.Add(step) {
			for len(samples) > 0 && samples[0].at.Before(at.Add(step)) {
				if !samples[0].at.Before(r.from) {
					last = samples[0]
				}
				samples = samples[1:]
			}
			if unix := at.Unix(); at.After(r.from) && unix >= from.Unix() && unix <= to.Unix() {
				list = append(list, metricAt(at, last))
			}
		}
	}
	return list
}

// interval reads the times of a request for metrics. Without a start it begins at
// first.
func (s *Server) interval(c *call, first time.Time) (from, to time.Time, _ *Error) {
	start, hasStart, err := c.integer("start", 0, 0)
	if err != nil {
		return from, to, err
	}
	end, hasEnd, err := c.integer("end", 0, 0)
	if err != nil {
		return from, to, err
	}
	from, to = first, s.clock.Now()
	if hasStart {
		from = time.Unix(start, 0)
	}
	if hasEnd {
		to = time.Unix(end, 0)
	}
	if from.After(to) && (hasStart || hasEnd) {
		return from, to, fail(http.StatusBadRequest, "Invalid time range for metrics")
	}
	return from, to, nil
}

func (s *Server) handleMetrics(c *call) (*response, *Error) {
	id, err := c.id()
	if err != nil {
		return nil, err
	}
	s.measure(func(sb *runningSandbox) bool { return sb.team == c.team && sb.id == id })
	now := s.clock.Now()
	events, samples := s.measuredOf(c.team, id)
	first := now.Add(-retention)
	if len(events) > 0 && events[0].at.After(first) {
		first = events[0].at
	}
	from, to, err := s.interval(c, first)
	if err != nil {
		return nil, err
	}
	if oldest := now.Add(-retention); from.Before(oldest) {
		from = oldest
	}
	return &response{status: http.StatusOK, body: points(stretches(events, now), samples, from, to)}, nil
}

const maxMetricsIDs = 100

// handleMetricsOf answers with the newest points of sandboxes that run.
func (s *Server) handleMetricsOf(c *call) (*response, *Error) {
	refuse := func(reason string) (*response, *Error) { return nil, queryError("sandbox_ids", reason) }
	values, has := c.query["sandbox_ids"]
	if !has || values[0] == "" {
		return refuse("value is required but missing")
	}
	ids := strings.Split(values[0], ",")
	unique := slices.Clone(ids)
	slices.Sort(unique)
	switch {
	case len(ids) > maxMetricsIDs:
		return refuse(fmt.Sprintf("maximum number of items is %d", maxMetricsIDs))
	case len(slices.Compact(unique)) < len(ids):
		return refuse("duplicate items found")
	}
	asked := make(map[string]bool)
	for _, raw := range ids {
		c.rawID = raw
		id, err := c.id()
		if err != nil {
			return nil, err
		}
		asked[id] = true
	}
	s.measure(func(sb *runningSandbox) bool { return sb.team == c.team && asked[sb.id] })
	now := s.clock.Now()
	found := make(map[string]metricView)
	for id := range asked {
		events, samples := s.measuredOf(c.team, id)
		if len(events) == 0 || !events[len(events)-1].what.runs() {
			continue
		}
		run := stretch{events[len(events)-1].at, now}
		if ran := now.Sub(run.from).Truncate(minStep); ran > 0 {
			var last sample
			if n := len(samples); n > 0 && !samples[n-1].at.Before(run.from) {
				last = samples[n-1]
			}
			found[id] = metricAt(run.from.Add(ran), last)
		}
	}
	body := struct {
		Sandboxes map[string]metricView `json:"sandboxes"`
	}{found}
	return &response{status: http.StatusOK, body: body}, nil
}

type teamMetricView struct {
	stamp
	ConcurrentSandboxes int     `json:"concurrentSandboxes"`
	SandboxStartRate    float64 `json:"sandboxStartRate"`
}

// teamPoints are the metrics of a team within the time that is asked for.
func (s *Server) teamPoints(c *call) ([]teamMetricView, *Error) {
	now := s.clock.Now()
	from, to, err := s.interval(c, now.Add(-retention))
	if err != nil {
		return nil, err
	}
	if c.rawID != c.team.ID {
		return nil, fail(http.StatusForbidden, fmt.Sprintf("You (%s) are not authorized to access this team's (%s) metrics", c.team.ID, c.rawID))
	}
	var runs []stretch
	var starts []time.Time
	s.mu.Lock()
	for _, h := range s.histories {
		if h.team != c.team {
			continue
		}
		runs = append(runs, stretches(h.events, now)...)
		if h.events[0].what == created {
			starts = append(starts, h.events[0].at)
		}
	}
	s.mu.Unlock()
	list := []teamMetricView{}
	if len(runs) == 0 {
		return list, nil
	}
	first := slices.MinFunc(runs, func(a, b stretch) int { return a.from.Compare(b.from) }).from
	step := stepOf(to.Sub(from))
	if to.After(now) {
		to = now
	}
	for at := first.Add(step); !at.After(to); at = at.Add(step) {
		if at.Before(from) {
			continue
		}
		p := teamMetricView{stamp: stampOf(at)}
		for _, r := range runs {
			if !r.from.After(at) && (r.to.After(at) || r.to.Equal(now)) {
				p.ConcurrentSandboxes++
			}
		}
		for _, t := range starts {
			if !t.Before(at.Add(-step)) && t.Before(at) {
				p.SandboxStartRate += 1 / step.Seconds()
			}
		}
		list = append(list, p)
	}
	return list, nil
}

func (s *Server) handleTeamMetrics(c *call) (*response, *Error) {
	list, err := s.teamPoints(c)
	if err != nil {
		return nil, err
	}
	return &response{status: http.StatusOK, body: list}, nil
}

func (s *Server) handleTeamMetricsMax(c *call) (*response, *Error) {
	if _, has := c.query["metric"]; !has {
		return nil, queryError("metric", "value is required but missing")
	}
	metric, err := c.oneOf("metric", []string{"concurrent_sandboxes", "sandbox_start_rate"})
	if err != nil {
		return nil, err
	}
	list, err := s.teamPoints(c)
	if err != nil {
		return nil, err
	}
	body := struct {
		stamp
		Value float64 `json:"value"`
	}{stamp: stampOf(time.Time{})}
	for _, p := range list {
		value := float64(p.ConcurrentSandboxes)
		if metric == "sandbox_start_rate" {
			value = p.SandboxStartRate
		}
		if value > body.Value {
			body.stamp, body.Value = p.stamp, value
		}
	}
	return &response{status: http.StatusOK, body: body}, nil
}
