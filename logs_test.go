package e2b_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

var logsOp = controlOp{"logs", apiTestID, answerJSON(200, `{"logs":[]}`), func(ctx context.Context, c *e2b.Client) error {
	for _, err := range c.Logs(ctx, apiTestID, nil) {
		if err != nil {
			return err
		}
	}
	return nil
}}

// logCalls are the recorded exchanges about logs.
func logCalls() []recordedCall {
	const path = "/sandboxes/" + apiTestID + "/logs"
	return []recordedCall{
		{
			file: "logs-v2", op: "logs", sent: []wantRequest{getting("/v2"+path, "limit", "10", "direction", "forward", "level", "info")}, want: 0,
			call: func(ctx context.Context, c *e2b.Client) (any, error) {
				got, err := readLogs(c.Logs(ctx, apiTestID, &e2b.LogOptions{PageSize: 10, Level: e2b.LogInfo}))
				return len(got), err
			},
		},
		recordedCall{
			file: "logs-v1", op: "logs", want: 0,
			call: func(ctx context.Context, c *e2b.Client) (any, error) {
				got, err := readLogs(c.Logs(ctx, apiTestID, nil))
				return len(got), err
			},
		}.answeredBy("route-unknown", "logs-v1").
			sending(getting("/v2"+path, "limit", "1000", "direction", "forward"), getting(path, "limit", "1000")),
	}
}

// readLogs ranges to the end, over at most 10,000 entries.
func readLogs(seq iter.Seq2[e2b.LogEntry, error]) (got []e2b.LogEntry, err error) {
	for e, failed := range seq {
		switch {
		case err != nil:
			return got, errors.New("a pair after the error")
		case len(got) == 10_000:
			return got, errors.New("there is no end")
		case failed != nil:
			err = failed
			continue
		}
		got = append(got, e)
	}
	return got, err
}

// A logServer has a log and answers as E2B does: cursors in milliseconds.
type logServer struct {
	mu        sync.Mutex
	entries   []logLine // oldest first
	exclusive bool      // backward, it leaves out the time of the cursor
	lateLevel bool      // it counts before it leaves out what is below the level
	requests  int
}

type logLine struct {
	Timestamp time.Time         `json:"timestamp"`
	Level     string            `json:"level"`
	Message   string            `json:"message"`
	Fields    map[string]string `json:"fields"`
}

func (s *logServer) add(at time.Time, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = append(s.entries, logLine{at, "info", message, map[string]string{"n": message}})
}

func (s *logServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests++; s.requests > 5000 {
		return nil, errors.New("too many requests")
	}
	q := r.URL.Query()
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil || limit < 1 || limit > 1000 {
		return answerJSON(400, `{"message":"limit"}`)(r)
	}
	list := slices.Clone(s.entries)
	backward := q.Get("direction") == "backward"
	if backward {
		slices.Reverse(list)
	}
	if c := q.Get("cursor"); c != "" {
		ms, err := strconv.ParseInt(c, 10, 64)
		if err != nil {
			return answerJSON(400, `{"message":"cursor"}`)(r)
		}
		cursor := time.UnixMilli(ms)
		list = slices.DeleteFunc(list, func(l logLine) bool {
			if !backward {
				return l.Timestamp.Before(cursor)
			}
			return l.Timestamp.After(cursor) || s.exclusive && l.Timestamp.Equal(cursor)
		})
	}
	unwanted := func(l logLine) bool {
		return q.Get("level") == "warn" && l.Level == "info" || !strings.Contains(l.Message, q.Get("search"))
	}
	if !s.lateLevel {
		list = slices.DeleteFunc(list, unwanted)
	}
	list = slices.DeleteFunc(list[:min(limit, len(list))], unwanted)
	body, err := json.Marshal(map[string]any{"logs": list})
	if err != nil {
		return nil, err
	}
	return answerJSON(200, string(body))(r)
}

func (s *logServer) client(t *testing.T) *e2b.Client {
	t.Helper()
	c, err := e2b.NewClient(&e2b.ClientOptions{APIKey: apiTestKey, APIURL: apiTestURL, Transport: s})
	require.NoError(t, err)
	return c
}

func messages(entries []e2b.LogEntry) []string {
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = e.Message
	}
	return out
}

// TestLogs reads entries as far as the server describes them.
func TestLogs(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, answerJSON(200, `{"logs":[
		{"timestamp":"2026-01-02T03:04:05.123456789Z","level":"warn","message":"m","fields":{"a":"1","n":2,"o":{"x":null},"z":null}},
		{"timestamp":"2026-01-02T03:04:06Z","level":"trace","message":"","fields":null},
		{"timestamp":"2026-01-02T03:04:07Z"}]}`))
	got, err := readLogs(handleOf(t, api).Logs(t.Context(), nil))
	require.NoError(t, err)
	require.Equal(t, []e2b.LogEntry{
		{Time: at("2026-01-02T03:04:05.123456789Z"), Level: e2b.LogWarn, Message: "m", Fields: map[string]string{"a": "1", "n": "2", "o": `{"x":null}`, "z": "null"}},
		{Time: at("2026-01-02T03:04:06Z"), Level: "trace"},
		{Time: at("2026-01-02T03:04:07Z")},
	}, got)
	require.Len(t, api.requests(), 1, "a page that is not full is the last")
}

// TestLogsPages goes through any log, both ways and with pages of any size, and gives
// each entry once: also those that are equal, and those of one millisecond.
func TestLogsPages(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		s := &logServer{exclusive: seed%2 == 0, lateLevel: seed%3 == 0}
		now := at("2026-01-02T03:04:05Z")
		for i := range rnd.IntN(30) {
			now = now.Add([]time.Duration{0, 0, 1, time.Microsecond, time.Millisecond, time.Second}[rnd.IntN(6)])
			message := fmt.Sprint("m", i)
			if rnd.IntN(3) == 0 {
				message = "again"
			}
			s.add(now, message)
			if rnd.IntN(2) == 0 {
				s.entries[i].Level = "warn"
			}
		}
		c := s.client(t)
		after, before := at("2026-01-02T03:04:05Z").Add(time.Duration(rnd.IntN(1500))*time.Microsecond), now.Add(-time.Duration(rnd.IntN(1500))*time.Microsecond)
		for name, o := range map[string]e2b.LogOptions{
			"all": {}, "level": {Level: e2b.LogWarn}, "search": {Search: "m"}, "after": {After: after}, "before": {Before: before},
			"between": {After: after, Before: before.Add(time.Hour), Level: e2b.LogWarn},
		} {
			var want []string
			for _, l := range s.entries {
				if (o.Level == "" || l.Level == "warn") && strings.Contains(l.Message, o.Search) &&
					!l.Timestamp.Before(o.After) && (o.Before.IsZero() || l.Timestamp.Before(o.Before)) {
					want = append(want, l.Message)
				}
			}
			for _, o.PageSize = range []int{0, 1, 2, 7} {
				if o.PageSize > 0 && s.lateLevel && (o.Level != "" || o.Search != "") {
					continue // a page with nothing in it cannot be told from the end
				}
				for _, o.Reverse = range []bool{false, true} {
					got, err := readLogs(c.Logs(t.Context(), apiTestID, &o))
					require.NoError(t, err)
					require.Equal(t, want, append([]string(nil), messages(got)...), "%s of seed %d: %+v", name, seed, o)
					slices.Reverse(want)
				}
			}
		}
	}
}

// TestLogsAsFarAsRanged asks for no page that nobody wants, and starts over.
func TestLogsAsFarAsRanged(t *testing.T) {
	t.Parallel()
	s := new(logServer)
	for i := range 10 {
		s.add(at("2026-01-02T03:04:05Z").Add(time.Duration(i)*time.Second), fmt.Sprint(i))
	}
	o := &e2b.LogOptions{PageSize: 3}
	all := s.client(t).Logs(t.Context(), apiTestID, o)
	o.PageSize = -1 // it was copied
	require.Zero(t, s.requests)
	for e, err := range all {
		require.NoError(t, err)
		require.Equal(t, "0", e.Message)
		break
	}
	require.Equal(t, 1, s.requests)
	for range 2 {
		got, err := readLogs(all)
		require.NoError(t, err)
		require.Equal(t, []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}, messages(got))
	}
}

// TestLogsOfOneMillisecond are more than any page holds: that is told, not hidden.
func TestLogsOfOneMillisecond(t *testing.T) {
	t.Parallel()
	s := new(logServer)
	for i := range 1200 {
		s.add(at("2026-01-02T03:04:05Z").Add(time.Duration(i)), fmt.Sprint(i))
	}
	got, err := readLogs(s.client(t).Logs(t.Context(), apiTestID, nil))
	requireKinds(t, err)
	require.ErrorContains(t, err, "more in one millisecond")
	require.Len(t, got, 1000)
	s.entries = s.entries[:900] // a page has room for these, but not one of 10
	got, err = readLogs(s.client(t).Logs(t.Context(), apiTestID, &e2b.LogOptions{PageSize: 10}))
	require.NoError(t, err)
	require.Len(t, got, 900)
}

// TestLogsOfAServerWithoutCursors give no entry twice, and have an end.
func TestLogsOfAServerWithoutCursors(t *testing.T) {
	t.Parallel()
	page := answerJSON(200, `{"logs":[{"timestamp":"2026-01-02T03:04:05Z","message":"a"},{"message":"no time"},
		{"timestamp":"2026-01-02T03:04:06Z","message":"b"}]}`)
	for _, o := range []e2b.LogOptions{{PageSize: 3}, {Level: e2b.LogInfo}, {Reverse: true, PageSize: 3}} {
		api := newFakeAPI(t, page, page, page)
		got, err := readLogs(api.client(t).Logs(t.Context(), apiTestID, &o))
		want := []string{"no time", "a", "b"}
		if o.Reverse {
			slices.Reverse(want)
		}
		require.Equal(t, want, messages(got))
		if err != nil {
			require.ErrorContains(t, err, "the same")
		}
		require.LessOrEqual(t, len(api.requests()), 3)
	}
}

// TestLogsOnAnOlderServer which has only one form of them.
func TestLogsOnAnOlderServer(t *testing.T) {
	t.Parallel()
	missing := answerJSON(404, routeMissing)
	lines := `"logs":[{"timestamp":"2026-01-02T03:04:05Z","line":"plain"}]`
	api := newFakeAPI(t, missing, answerJSON(200, `{`+lines+`,"logEntries":[]}`),
		answerJSON(200, `{`+lines+`,"logEntries":[{"timestamp":"2026-01-02T03:04:05Z","level":"info","message":"structured","fields":{}}]}`),
		answerJSON(200, `{`+lines+`}`))
	c := api.client(t)
	for _, want := range []string{"plain", "structured", "plain"} {
		got, err := readLogs(c.Logs(t.Context(), apiTestID, &e2b.LogOptions{After: at("2026-01-02T03:04:05Z"), PageSize: 5}))
		require.NoError(t, err)
		require.Equal(t, []string{want}, messages(got))
		require.Equal(t, at("2026-01-02T03:04:05Z"), got[0].Time)
	}
	for _, o := range []e2b.LogOptions{{Reverse: true}, {Level: e2b.LogInfo}, {Search: "a"}} {
		_, err := readLogs(c.Logs(t.Context(), apiTestID, &o))
		requireKinds(t, err, e2b.ErrNotSupported)
		require.ErrorContains(t, err, "old logs")
	}
	old := "/sandboxes/" + apiTestID + "/logs"
	require.Equal(t, []string{"GET /v2" + old, "GET " + old, "GET " + old, "GET " + old}, api.lines(), "it is remembered")
	require.Equal(t, "limit=5&start=1767323045000", api.requests()[3].Query)

	_, err := readLogs(newFakeAPI(t, missing, missing).client(t).Logs(t.Context(), apiTestID, nil))
	requireKinds(t, err, e2b.ErrNotSupported)
}

// TestBadLogArguments are refused when they are ranged over, in the one pair.
func TestBadLogArguments(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	c := api.client(t)
	for name, o := range map[string]e2b.LogOptions{
		"Level": {Level: "loud"}, "Search is not UTF-8": {Search: "\xff"}, "256 characters": {Search: strings.Repeat("ü", 257)},
		"PageSize": {PageSize: 1001}, "PageSize must": {PageSize: -1}, "After": {After: time.Unix(-1, 0)},
		"Before is before After": {After: time.Unix(2, 0), Before: time.Unix(1, 0)}, "9999": {Before: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		got, err := readLogs(c.Logs(t.Context(), apiTestID, &o))
		requireRefused(t, api, err)
		require.ErrorContains(t, err, name)
		require.Empty(t, got)
	}
	for _, o := range []e2b.FollowOptions{{Interval: -1}, {Level: "loud"}, {Search: "\xff"}, {After: time.Unix(-1, 0)}} {
		_, err := readLogs(c.FollowLogs(t.Context(), apiTestID, &o))
		requireRefused(t, api, err)
	}
	_, err := readLogs(c.Logs(t.Context(), "a/b", nil))
	requireRefused(t, api, err)
	_, err = readLogs(c.FollowLogs(t.Context(), "a/b", nil))
	requireRefused(t, api, err)
}

// TestLogErrorIsTheLastPair after what came before it.
func TestLogErrorIsTheLastPair(t *testing.T) {
	t.Parallel()
	page := answerJSON(200, `{"logs":[{"timestamp":"2026-01-02T03:04:05Z","message":"a"}]}`)
	for _, follow := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			api := newFakeAPI(t, page, answerJSON(500, `{"message":"no"}`))
			c := api.client(t, noRetries)
			seq := c.Logs(t.Context(), apiTestID, &e2b.LogOptions{PageSize: 1})
			if follow {
				seq = c.FollowLogs(t.Context(), apiTestID, nil)
			}
			got, err := readLogs(seq)
			require.Equal(t, []string{"a"}, messages(got))
			requireKinds(t, err)
			e := requireAPIError(t, err)
			require.Equal(t, 500, e.StatusCode)
			require.Equal(t, apiTestID, e.SandboxID)
		})
	}
	for _, body := range []string{`null`, `[]`, `{}`, ``, `{"logs":{}}`, `{"logs":[1]}`, `{"logs":[{"timestamp":"now"}]}`, `{"logs":[{"fields":[]}]}`} {
		_, err := readLogs(newFakeAPI(t, answerJSON(200, body)).client(t).Logs(t.Context(), apiTestID, nil))
		require.Equal(t, 200, requireAPIError(t, err).StatusCode, body)
	}
	got, err := readLogs(newFakeAPI(t, answerJSON(200, `{"logs":null}`)).client(t).Logs(t.Context(), apiTestID, nil))
	require.NoError(t, err, "null is how Go writes an empty list")
	require.Empty(t, got)
}

// TestLogsEndWithContext also while they are asked for.
func TestLogsEndWithContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := readLogs(newFakeAPI(t, answerNever).client(t).Logs(ctx, apiTestID, nil))
		requireKinds(t, err, context.DeadlineExceeded)
		_, err = readLogs(newFakeAPI(t).client(t).FollowLogs(ctx, apiTestID, nil))
		requireKinds(t, err, context.DeadlineExceeded)
	})
}

// TestFollowLogs gives each entry once, as it comes, also when it has the time of
// one that was there.
func TestFollowLogs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(logServer)
		start := time.Now()
		for i := range 1500 { // more than a page
			s.add(start.Add(time.Duration(i)*10*time.Microsecond), fmt.Sprint("old ", i))
		}
		last := start.Add(20 * time.Millisecond)
		later := func(d time.Duration, f func()) { time.AfterFunc(d, f) }
		later(3*time.Second, func() { s.add(last, "same"); s.add(last, "same"); s.add(last, "other") })
		later(5*time.Second, func() { s.add(last, "same"); s.add(last, "late") })
		later(5*time.Minute+time.Second, func() { s.add(last.Add(5*time.Minute), "much later") })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		later(10*time.Minute, cancel)

		seq := s.client(t).FollowLogs(ctx, apiTestID, nil)
		var got []string
		var times []time.Duration
		for e, err := range seq {
			if err != nil {
				requireKinds(t, err, context.Canceled)
				require.Zero(t, e)
				got = append(got, "end")
				break
			}
			if !strings.HasPrefix(e.Message, "old") {
				got = append(got, e.Message)
				times = append(times, time.Since(start))
			} else {
				require.Zero(t, time.Since(start), "nothing waits while there is more")
			}
		}
		require.Equal(t, []string{"same", "same", "other", "same", "late", "much later", "end"}, got)
		const late = 5*time.Minute + 2*time.Second
		require.Equal(t, []time.Duration{4 * time.Second, 4 * time.Second, 4 * time.Second, 6 * time.Second, 6 * time.Second, late}, times)
		require.Equal(t, 10*time.Minute, time.Since(start))
	})
}

// TestFollowLogsInterval is as given, and a break ends it at once.
func TestFollowLogsInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(logServer)
		start := time.Now()
		time.AfterFunc(time.Second, func() { s.add(time.Now(), "a") })
		seq := s.client(t).FollowLogs(t.Context(), apiTestID, &e2b.FollowOptions{Interval: time.Minute, After: start})
		for range 2 { // it starts over
			for e, err := range seq {
				require.NoError(t, err)
				require.Equal(t, "a", e.Message)
				break
			}
			require.Equal(t, time.Minute, time.Since(start))
		}
		require.Equal(t, 3, s.requests)
	})
}
