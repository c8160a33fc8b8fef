package control

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A happening is a turn in the life of a sandbox.
type happening string

const (
	created happening = "created"
	stopped happening = "paused"
	resumed happening = "resumed"
	ended   happening = "killed"
)

// runs reports whether the sandbox runs from then on.
func (h happening) runs() bool { return h == created || h == resumed }

// A history is what became of a sandbox. It outlives it.
type history struct {
	team   *Team
	events []event // oldest first
	gauge  gauge
}

type event struct {
	at   time.Time
	what happening
}

// retention is how long logs and metrics are kept.
const retention = 7 * 24 * time.Hour

// noteLocked adds to the history of a sandbox. It drops the histories of sandboxes
// that are gone and ended before what is kept.
func (s *Server) noteLocked(c *settings, at time.Time, what happening) {
	h := s.histories[c.id]
	if h == nil {
		h = &history{team: c.team}
		s.histories[c.id] = h
	}
	h.events = append(h.events, event{at, what})
	if at.Sub(s.pruned) < time.Hour {
		return // not for each of many sandboxes
	}
	s.pruned = at
	for id, h := range s.histories {
		last := h.events[len(h.events)-1]
		if s.live[id] == nil && s.stored[id] == nil && at.Sub(last.at) > retention {
			delete(s.histories, id)
		}
	}
}

// historyOf returns the events of a sandbox of the team, none for an unknown one.
func (s *Server) historyOf(team *Team, id string) []event {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.histories[id]; h != nil && h.team == team {
		return slices.Clone(h.events)
	}
	return nil
}

type logEntryView struct {
	Fields    map[string]string `json:"fields"`
	Level     string            `json:"level"`
	Message   string            `json:"message"`
	Timestamp time.Time         `json:"timestamp"`
}

type logLineView struct {
	Line      string    `json:"line"`
	Timestamp time.Time `json:"timestamp"`
}

// logOf is the log of a sandbox, as far as it is kept, oldest first.
func (s *Server) logOf(team *Team, id string) []logEntryView {
	oldest := s.clock.Now().Add(-retention)
	entries := []logEntryView{}
	for _, e := range s.historyOf(team, id) {
		if e.at.Before(oldest) {
			continue
		}
		entries = append(entries, logEntryView{
			Fields: map[string]string{"event": "sandbox.lifecycle." + string(e.what), "sandboxID": id},
			Level:  "info", Message: "Sandbox " + string(e.what), Timestamp: e.at.UTC(),
		})
	}
	return entries
}

const maxLogs = 1000

var (
	logLevels     = []string{"debug", "info", "warn", "error"}
	logDirections = []string{"forward", "backward"}
)

func (s *Server) handleLogs(c *call) (*response, *Error) {
	cursor, hasCursor, err := c.integer("cursor", 0, 0)
	if err != nil {
		return nil, err
	}
	limit, hasLimit, err := c.integer("limit", 0, maxLogs)
	if err != nil {
		return nil, err
	}
	if !hasLimit {
		limit = maxLogs
	}
	direction, err := c.oneOf("direction", logDirections)
	if err != nil {
		return nil, err
	}
	level, err := c.oneOf("level", logLevels)
	if err != nil {
		return nil, err
	}
	search := c.query.Get("search")
	if len([]rune(search)) > 256 {
		return nil, queryError("search", "maximum string length is 256")
	}
	id, err := c.id()
	if err != nil {
		return nil, err
	}
	forward := direction == "forward"
	entries := slices.DeleteFunc(s.logOf(c.team, id), func(e logEntryView) bool {
		at := time.UnixMilli(cursor)
		return hasCursor && (forward && e.Timestamp.Before(at) || !forward && e.Timestamp.After(at)) ||
			slices.Index(logLevels, e.Level) < slices.Index(logLevels, level) || !strings.Contains(e.Message, search)
	})
	if !forward {
		slices.Reverse(entries)
	}
	body := struct {
		Logs []logEntryView `json:"logs"`
	}{entries[:min(int64(len(entries)), limit)]}
	return &response{status: http.StatusOK, body: body}, nil
}

func (s *Server) handleLogsV1(c *call) (*response, *Error) {
	start, _, err := c.integer("start", 0, 0)
	if err != nil {
		return nil, err
	}
	limit, hasLimit, err := c.integer("limit", 0, 0)
	if err != nil {
		return nil, err
	}
	if !hasLimit {
		limit = maxLogs
	}
	id, err := c.id()
	if err != nil {
		return nil, err
	}
	entries := slices.DeleteFunc(s.logOf(c.team, id), func(e logEntryView) bool { return e.Timestamp.Before(time.UnixMilli(start)) })
	entries = entries[:min(int64(len(entries)), limit)]
	lines := make([]logLineView, len(entries))
	for i, e := range entries {
		lines[i] = logLineView{e.Message, e.Timestamp}
	}
	body := struct {
		Entries []logEntryView `json:"logEntries"`
		Logs    []logLineView  `json:"logs"`
	}{entries, lines}
	return &response{status: http.StatusOK, body: body}, nil
}

// integer reads an optional parameter of the query. A maximum of 0 is none.
func (c *call) integer(name string, minimum, maximum int64) (n int64, has bool, _ *Error) {
	values, has := c.query[name]
	if !has {
		return 0, false, nil
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	switch {
	case err != nil:
		return 0, false, queryError(name, fmt.Sprintf("value %s: an invalid integer: invalid syntax", values[0]))
	case n < minimum:
		return 0, false, queryError(name, fmt.Sprintf("number must be at least %d", minimum))
	case maximum > 0 && n > maximum:
		return 0, false, queryError(name, fmt.Sprintf("number must be at most %d", maximum))
	}
	return n, true, nil
}

// oneOf reads an optional parameter of the query that has one of these values.
func (c *call) oneOf(name string, allowed []string) (string, *Error) {
	values, has := c.query[name]
	if has && !slices.Contains(allowed, values[0]) {
		return "", queryError(name, `value is not one of the allowed values ["`+strings.Join(allowed, `","`)+`"]`)
	}
	return c.query.Get(name), nil
}
