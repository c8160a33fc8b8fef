package e2b

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-09a7379d/e2b-go/internal/controlapi"
)

// LogLevel is how much a log entry matters. A value that this SDK does not know is
// kept as the server sent it.
//
// See https://e2b.dev/docs/api-reference.
type LogLevel string

// The levels, the least first.
const (
	LogDebug LogLevel = "debug"
	LogInfo  LogLevel = "info"
	LogWarn  LogLevel = "warn"
	LogError LogLevel = "error"
)

// A LogEntry is an entry in the log of a sandbox.
//
// See https://e2b.dev/docs/api-reference.
type LogEntry struct {
	Time    time.Time
	Level   LogLevel
	Message string
	Fields  map[string]string // what belongs to it besides the message
}

// LogOptions selects and orders log entries. The zero value selects all that the
// server keeps, the oldest first.
//
// See https://e2b.dev/docs/api-reference.
type LogOptions struct {
	After   time.Time // none from before this time; zero: no limit
	Before  time.Time // none from this time on; zero: no limit
	Reverse bool      // the newest first
	Level   LogLevel  // none below it; "": all
	Search  string    // only messages that contain it, where case counts; at most 256 characters; "": all
	// PageSize is how many entries one request asks for, 1 to 1000; 0 means 1000.
	PageSize int
}

// FollowOptions selects the log entries to follow. The zero value selects all,
// beginning with the oldest that the server keeps.
//
// See https://e2b.dev/docs/api-reference.
type FollowOptions struct {
	After  time.Time // none from before this time; zero: from the oldest on
	Level  LogLevel  // as in LogOptions
	Search string    // as in LogOptions
	// Interval is how long to wait before the server is asked again; 0 means 2 s.
	Interval time.Duration
}

var opLogs = operation{name: "logs", notFound: ErrSandboxNotFound}

// Logs returns the entries in the log of a sandbox: what E2B tells of it, not the
// output of commands. They are kept for 7 days, also those of a sandbox that is
// gone; one that nobody knows has none. opts may be nil.
//
// The server is asked page by page, as far as the entries are ranged over. They
// may be ranged over again, from the start. The last pair may be an error. ctx
// bounds the whole range.
//
// Errors: ErrInvalidArgument, ErrUnauthenticated, ErrNotSupported (the server has
// no logs, or an old form of them that has no Reverse, Level and Search).
//
// See https://e2b.dev/docs/api-reference.
func (c *Client) Logs(ctx context.Context, id string, opts *LogOptions) iter.Seq2[LogEntry, error] {
	var o LogOptions
	if opts != nil {
		o = *opts
	}
	return func(yield func(LogEntry, error) bool) {
		r, err := c.readLog(id, &o)
		for err == nil && !r.end {
			var page []LogEntry
			if page, err = r.next(ctx); err != nil {
				break
			}
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
			}
		}
		if err != nil {
			yield(LogEntry{}, err)
		}
	}
}

// Logs is Client.Logs for this sandbox, with the same errors. It does not wake it.
//
// See https://e2b.dev/docs/api-reference.
func (s *Sandbox) Logs(ctx context.Context, opts *LogOptions) iter.Seq2[LogEntry, error] {
	return s.client.Logs(ctx, s.id, opts)
}

// FollowLogs is Logs, the oldest entry first, and then goes on with those that come,
// also when the sandbox has been paused or is gone: it ends with ctx, whose error is
// in the last pair, or with another error. Each entry comes once, also when many
// have the same time. One that reaches the log late, with an older time than one
// that was there already, may be missed. opts may be nil.
//
// Errors: as Logs.
//
// See https://e2b.dev/docs/api-reference.
func (c *Client) FollowLogs(ctx context.Context, id string, opts *FollowOptions) iter.Seq2[LogEntry, error] {
	var o FollowOptions
	if opts != nil {
		o = *opts
	}
	return func(yield func(LogEntry, error) bool) {
		if err := c.follow(ctx, id, &o, yield); err != nil {
			yield(LogEntry{}, err)
		}
	}
}

// FollowLogs is Client.FollowLogs for this sandbox, with the same errors. It does
// not wake it.
//
// See https://e2b.dev/docs/api-reference.
func (s *Sandbox) FollowLogs(ctx context.Context, opts *FollowOptions) iter.Seq2[LogEntry, error] {
	return s.client.FollowLogs(ctx, s.id, opts)
}

const followInterval = 2 * time.Second

// follow returns nil when yield wants no more.
func (c *Client) follow(ctx context.Context, id string, o *FollowOptions, yield func(LogEntry, error) bool) error {
	wait := o.Interval
	switch {
	case wait < 0:
		return invalid(opLogs.name, "Interval", "is negative")
	case wait == 0:
		wait = followInterval
	}
	r, err := c.readLog(id, &LogOptions{After: o.After, Level: o.Level, Search: o.Search})
	if err != nil {
		return err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return &opError{op: opLogs.name, sandboxID: r.id, errs: []error{ctx.Err()}}
		case <-timer.C:
		}
		page, err := r.next(ctx)
		if err != nil {
			return err
		}
		for _, e := range page {
			if !yield(e, nil) {
				return nil
			}
		}
		if r.end {
			timer.Reset(wait)
		} else {
			timer.Reset(0)
		}
	}
}

// A logReader reads a log page by page. A cursor has milliseconds, so a page begins
// with entries that the one before had already.
type logReader struct {
	c    *Client
	id   string
	o    *LogOptions
	q    controlapi.LogQuery
	seen map[string]sighting // what the next page has again
	end  bool                // there was no more after the latest page
}

// A sighting is how often an entry was there: nothing else tells two equal ones
// apart.
type sighting struct {
	at    time.Time
	times int
}

func (c *Client) readLog(id string, o *LogOptions) (*logReader, error) {
	id, err := sandboxID(opLogs.name, id)
	if err != nil {
		return nil, err
	}
	refuse := func(arg, format string, args ...any) (*logReader, error) {
		return nil, invalid(opLogs.name, arg, format, args...)
	}
	if err := checkInterval(opLogs, "After", "Before", o.After, o.Before); err != nil {
		return nil, err
	}
	switch o.Level {
	case "", LogDebug, LogInfo, LogWarn, LogError:
	default:
		return refuse("Level", "is none: %.40q", o.Level)
	}
	switch {
	case !utf8.ValidString(o.Search):
		return refuse("Search", "is not UTF-8")
	case utf8.RuneCountInString(o.Search) > 256:
		return refuse("Search", "has more than 256 characters")
	case o.PageSize < 0 || o.PageSize > controlapi.MaxLogPage:
		return refuse("PageSize", "must be 1 to %d, or 0 for %d: %d", controlapi.MaxLogPage, controlapi.MaxLogPage, o.PageSize)
	}
	r := &logReader{c: c, id: id, o: o, seen: make(map[string]sighting)}
	r.q = controlapi.LogQuery{Limit: o.PageSize, Backward: o.Reverse, Level: string(o.Level), Search: o.Search}
	if r.q.Limit == 0 {
		r.q.Limit = controlapi.MaxLogPage
	}
	switch {
	case o.Reverse && !o.Before.IsZero():
		r.q.Cursor = new(o.Before.UnixMilli() + 1)
	case !o.Reverse && !o.After.IsZero():
		r.q.Cursor = new(o.After.UnixMilli())
	}
	return r, nil
}

// next returns the entries of a page that did not come before.
func (r *logReader) next(ctx context.Context) ([]LogEntry, error) {
	limit := r.q.Limit
	for {
		q := r.q
		q.Limit = limit
		page, err := r.c.api.Logs(ctx, r.id, q)
		if err != nil {
			return nil, controlError(ctx, opLogs, r.id, err)
		}
		fresh, past := r.take(page)
		full := len(page) >= limit
		switch {
		case past:
			r.end = true
		case len(fresh) > 0:
			// A server may count entries which Level and Search then exclude.
			r.end = !full && q.Level == "" && q.Search == ""
		case !full:
			r.end = true
		case limit < controlapi.MaxLogPage: // all of it is of one millisecond
			limit = controlapi.MaxLogPage
			continue
		default:
			err := fmt.Errorf("the server gives the same %d entries again: there are more in one millisecond, or it knows no cursor", limit)
			return nil, &opError{op: opLogs.name, sandboxID: r.id, errs: []error{err}}
		}
		return fresh, nil
	}
}

// take returns what is new in a page, and whether the page reaches past the wanted
// times. It moves the cursor to the last entry.
func (r *logReader) take(page []controlapi.LogEntry) (fresh []LogEntry, past bool) {
	slices.SortStableFunc(page, func(a, b controlapi.LogEntry) int {
		if r.q.Backward {
			a, b = b, a
		}
		return a.Timestamp.Compare(b.Timestamp.Time)
	})
	here := make(map[string]sighting)
	for i := range page {
		e := &page[i]
		at := e.Timestamp.Time
		if r.behind(at) {
			continue // the server gave more than it was asked for
		}
		key := logKey(e)
		times := here[key].times + 1
		here[key] = sighting{at, times}
		early := !r.o.After.IsZero() && at.Before(r.o.After)
		late := !r.o.Before.IsZero() && !at.Before(r.o.Before)
		past = past || early && r.q.Backward || late && !r.q.Backward
		if times > r.seen[key].times && !early && !late {
			fresh = append(fresh, LogEntry{Time: at, Level: LogLevel(e.Level), Message: e.Message, Fields: e.Fields})
		}
	}
	if len(page) > 0 {
		r.moveTo(page[len(page)-1].Timestamp.Time)
	}
	for key, s := range here {
		if s.times > r.seen[key].times {
			r.seen[key] = s
		}
	}
	maps.DeleteFunc(r.seen, func(_ string, s sighting) bool { return r.behind(s.at) })
	return fresh, past
}

// behind reports whether an entry of that time comes before the cursor.
func (r *logReader) behind(t time.Time) bool {
	if r.q.Cursor == nil {
		return false
	}
	cursor := time.UnixMilli(*r.q.Cursor)
	if r.q.Backward {
		return t.After(cursor)
	}
	return t.Before(cursor)
}

// moveTo lets the next page begin with the millisecond of t, all of which it has,
// whether or not the server counts the cursor itself in.
func (r *logReader) moveTo(t time.Time) {
	if t.IsZero() || r.behind(t) {
		return
	}
	cursor := t.UnixMilli()
	if r.q.Backward {
		cursor++
		if r.q.Cursor != nil {
			cursor = min(cursor, *r.q.Cursor)
		}
	}
	r.q.Cursor = &cursor
}

// logKey has all that tells an entry from others.
func logKey(e *controlapi.LogEntry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %q %q", e.Timestamp.UnixNano(), e.Level, e.Message)
	for _, name := range slices.Sorted(maps.Keys(e.Fields)) {
		fmt.Fprintf(&b, " %q %q", name, e.Fields[name])
	}
	return b.String()
}
