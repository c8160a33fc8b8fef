package controlapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// LogEntry is a line of a sandbox's log.
type LogEntry struct {
	Timestamp Time      `json:"timestamp"`
	Level     string    `json:"level"`
	Message   string    `json:"message"`
	Fields    LogFields `json:"fields"`
}

// LogFields are texts. A value that is none is kept as its JSON.
type LogFields map[string]string

// UnmarshalJSON reads an object, or null.
func (f *LogFields) UnmarshalJSON(b []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	if *f = nil; len(raw) == 0 {
		return nil
	}
	*f = make(LogFields, len(raw))
	for name, value := range raw {
		var s string
		if len(value) == 0 || value[0] != '"' || json.Unmarshal(value, &s) != nil {
			s = string(value)
		}
		(*f)[name] = s
	}
	return nil
}

// MaxLogPage is how many entries one answer can have.
const MaxLogPage = 1000

// LogQuery selects entries of a log.
type LogQuery struct {
	Cursor   *int64 // milliseconds since 1970; nil: the server's choice
	Limit    int    // 1 to MaxLogPage
	Backward bool
	Level    string // "": all
	Search   string
}

// ErrLogsV1 is returned when a server's only route for logs has no way to say what
// was asked for. The error says what.
var ErrLogsV1 = errors.New("this server has only the old logs")

// Logs returns the entries from the cursor on, the server's first ones first.
func (c *Client) Logs(ctx context.Context, id string, q LogQuery) ([]LogEntry, error) {
	v2 := func() (*answer, error) {
		return c.do(ctx, request{method: http.MethodGet, segments: []string{"v2", "sandboxes", id, "logs"}, query: q.values(), safe: true})
	}
	v1 := func() (*answer, error) {
		if what := q.beyondV1(); what != "" {
			return nil, &OutcomeError{Err: fmt.Errorf("%w: %s", ErrLogsV1, what)}
		}
		return c.do(ctx, request{method: http.MethodGet, segments: []string{"sandboxes", id, "logs"}, query: q.valuesV1(), safe: true})
	}
	a, err := c.logs.do(v2, v1)
	if err != nil {
		return nil, err
	}
	return a.logs()
}

// logs reads the entries of either route.
func (a *answer) logs() ([]LogEntry, error) {
	var body struct {
		Logs    json.RawMessage `json:"logs"`
		Entries []LogEntry      `json:"logEntries"` // of the old route, whose logs are plain lines
	}
	if err := a.decode(&body); err != nil {
		return nil, err
	}
	switch {
	case body.Logs == nil:
		return nil, a.bad(errors.New("it has no logs"))
	case len(body.Entries) > 0:
		return body.Entries, nil
	}
	var lines []struct {
		LogEntry
		Line string `json:"line"`
	}
	if err := json.Unmarshal(body.Logs, &lines); err != nil {
		return nil, a.bad(err)
	}
	out := make([]LogEntry, len(lines))
	for i, l := range lines {
		if out[i] = l.LogEntry; l.Message == "" {
			out[i].Message = l.Line
		}
	}
	return out, nil
}

func (q LogQuery) values() url.Values {
	v := url.Values{"direction": {"forward"}, "limit": {strconv.Itoa(q.Limit)}}
	if q.Backward {
		v.Set("direction", "backward")
	}
	if q.Cursor != nil {
		v.Set("cursor", strconv.FormatInt(*q.Cursor, 10))
	}
	if q.Level != "" {
		v.Set("level", q.Level)
	}
	if q.Search != "" {
		v.Set("search", q.Search)
	}
	return v
}

func (q LogQuery) valuesV1() url.Values {
	v := url.Values{"limit": {strconv.Itoa(q.Limit)}}
	if q.Cursor != nil {
		v.Set("start", strconv.FormatInt(*q.Cursor, 10))
	}
	return v
}

// beyondV1 names what the first form of the logs cannot do.
func (q LogQuery) beyondV1() string {
	switch {
	case q.Backward:
		return "they begin with the oldest entry"
	case q.Level != "":
		return "they have no filter by level"
	case q.Search != "":
		return "they cannot be searched"
	}
	return ""
}
