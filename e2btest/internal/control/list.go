package control

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A listQuery is what GET /v2/sandboxes may ask for.
type listQuery struct {
	running, paused bool
	metadata        map[string]string // nil: all
	ascending       bool
	startedAfter    time.Time
	template        string
	after           *cursor // nil: the first page
	limit           int
}

const maxPage = 100

// parseListQuery checks the parameters as the validation of the real server
// does, and then as its handler.
func parseListQuery(q url.Values) (*listQuery, *Error) {
	list := &listQuery{ascending: q.Get("order") == "asc"}
	if err := list.parseStates(q["state"]); err != nil {
		return nil, err
	}
	if order, ok := q["order"]; ok && order[0] != "asc" && order[0] != "desc" {
		return nil, queryError("order", `value is not one of the allowed values ["asc","desc"]`)
	}
	if after, ok := q["startedAfter"]; ok {
		t, err := time.Parse(time.RFC3339, after[0])
		if err != nil {
			return nil, fail(http.StatusBadRequest, fmt.Sprintf("validation error: Invalid format for parameter startedAfter: error parsing '%s' as RFC3339 time", after[0]))
		}
		list.startedAfter = micros(t)
	}
	var err *Error
	if list.limit, err = parseLimit(q); err != nil {
		return nil, err
	}

	if metadata, ok := q["metadata"]; ok {
		var err error
		if list.metadata, err = parseMetadata(metadata[0]); err != nil {
			return nil, fail(http.StatusBadRequest, "Error parsing metadata")
		}
	}
	list.template = q.Get("template")
	if strings.Contains(list.template, ":") {
		return nil, fail(http.StatusBadRequest, "Invalid template: tags are not supported here because sandboxes are not tag-scoped")
	}
	if list.after, err = parseAfter(q, list.ascending); err != nil {
		return nil, err
	}
	return list, nil
}

// parseLimit reads how many items a page may have.
func parseLimit(q url.Values) (int, *Error) {
	limit, ok := q["limit"]
	if !ok {
		return maxPage, nil
	}
	n, err := strconv.Atoi(limit[0])
	switch {
	case err != nil:
		return 0, queryError("limit", fmt.Sprintf("value %s: an invalid integer: %v", limit[0], errors.Unwrap(err)))
	case n < 1:
		return 0, queryError("limit", "number must be at least 1")
	case n > maxPage:
		return 0, queryError("limit", fmt.Sprintf("number must be at most %d", maxPage))
	}
	return n, nil
}

// parseAfter reads where a page begins; nil: at the beginning.
func parseAfter(q url.Values, ascending bool) (*cursor, *Error) {
	token := q.Get("nextToken")
	if token == "" {
		return nil, nil
	}
	after, ok := parseCursor(token, ascending)
	if !ok {
		return nil, fail(http.StatusBadRequest, "Invalid next token")
	}
	return &after, nil
}

// parseStates reads the one comma list of states.
func (list *listQuery) parseStates(values []string) *Error {
	switch len(values) {
	case 0:
		list.running, list.paused = true, true
		return nil
	case 1:
	default:
		return fail(http.StatusBadRequest, "validation error: Invalid format for parameter state: parameter 'state' is not exploded, but is specified multiple times")
	}
	for i, state := range strings.Split(values[0], ",") {
		switch state {
		case "running":
			list.running = true
		case "paused":
			list.paused = true
		default:
			bad := violation{path: "/" + strconv.Itoa(i), reason: `value is not one of the allowed values ["running","paused"]`}
			return queryError("state", bad.Error())
		}
	}
	return nil
}

// parseMetadata reads a filter. It is decoded three times: the query (by the
// caller), the whole, and each key and value. So it is on E2B, and clients
// escape for it.
func parseMetadata(s string) (map[string]string, error) {
	whole, err := url.QueryUnescape(s)
	if err != nil {
		return nil, fmt.Errorf("error parsing metadata: %w", err)
	}
	filter := make(map[string]string)
	for pair := range strings.SplitSeq(whole, "&") {
		parts := strings.Split(pair, "=")
		if len(parts) != 2 {
			return nil, errors.New("error parsing metadata: invalid key value pair in query")
		}
		key, err := url.QueryUnescape(parts[0])
		if err != nil {
			return nil, fmt.Errorf("error parsing metadata: %w", err)
		}
		value, err := url.QueryUnescape(parts[1])
		if err != nil {
			return nil, fmt.Errorf("error parsing metadata: %w", err)
		}
		filter[key] = value
	}
	return filter, nil
}

// A cursor is a place in the order of the list.
type cursor struct {
	start time.Time // with microseconds
	id    string
}

// compare orders by start, newest first, and then by ID.
func (c cursor) compare(d cursor) int {
	return cmp.Or(d.start.Compare(c.start), cmp.Compare(c.id, d.id))
}

const ascendingMark = "__asc"

func (c cursor) token(ascending bool) string {
	text := c.start.Format(time.RFC3339Nano) + "__" + c.id
	if ascending {
		text += ascendingMark
	}
	return base64.URLEncoding.EncodeToString([]byte(text))
}

// parseCursor reads a token of a list in the same order.
func parseCursor(token string, ascending bool) (cursor, bool) {
	text, err := base64.URLEncoding.DecodeString(token)
	if err != nil {
		return cursor{}, false
	}
	rest, marked := strings.CutSuffix(string(text), ascendingMark)
	start, id, ok := strings.Cut(rest, "__")
	if !ok || marked != ascending {
		return cursor{}, false
	}
	t, err := time.Parse(time.RFC3339Nano, start)
	if err != nil {
		return cursor{}, false
	}
	return cursor{t, id}, true
}

func (v listedView) cursor() cursor { return cursor{micros(v.StartedAt), v.SandboxID} }

// matches reports whether a sandbox of those settings is asked for.
func (list *listQuery) matches(c *settings, startedAt time.Time) bool {
	for key, value := range list.metadata {
		if got, ok := c.metadata[key]; !ok || got != value {
			return false
		}
	}
	if list.template != "" && list.template != c.template.ID && !slices.Contains(c.template.Aliases, list.template) {
		return false
	}
	return !micros(startedAt).Before(list.startedAfter)
}

// list returns a page of the team's sandboxes, the token of the next page, and
// how many run in all.
func (s *Server) list(team *Team, list *listQuery) (items []listedView, nextToken string, total int) {
	s.mu.Lock()
	for _, sb := range s.live {
		state := views[sb.state].listedAs
		if sb.team != team || !list.matches(sb.settings, sb.startedAt) {
			continue
		}
		if state == "running" {
			total++
		}
		if state == "running" && list.running || state == "paused" && list.paused {
			items = append(items, sb.listed(state))
		}
	}
	for id, snap := range s.stored {
		if sb := s.live[id]; sb != nil && views[sb.state].hidesSaved {
			continue
		}
		if list.paused && snap.team == team && list.matches(snap.settings, snap.startedAt) {
			items = append(items, snap.listed())
		}
	}
	s.mu.Unlock()

	items, nextToken = page(items, listedView.cursor, list.after, list.ascending, list.limit)
	return items, nextToken, total
}

// page orders all items and returns those of one page, with the token of the next.
func page[T any](items []T, at func(T) cursor, after *cursor, ascending bool, limit int) (_ []T, nextToken string) {
	order := cursor.compare
	if ascending {
		order = func(c, d cursor) int { return d.compare(c) }
	}
	slices.SortFunc(items, func(a, b T) int { return order(at(a), at(b)) })
	if after != nil {
		seen := slices.IndexFunc(items, func(item T) bool { return order(at(item), *after) > 0 })
		if seen < 0 {
			seen = len(items)
		}
		items = items[seen:]
	}
	if len(items) > limit {
		items = items[:limit]
		nextToken = at(items[limit-1]).token(ascending)
	}
	return items, nextToken
}
