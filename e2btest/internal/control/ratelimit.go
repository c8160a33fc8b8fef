package control

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A RateLimit bounds how often each team can ask for a route: Requests at once, and
// as many again within Per.
type RateLimit struct {
	Matches  func(*http.Request) bool
	Requests int
	Per      time.Duration
}

// rateLimits are those of a server. The first one that matches a request counts it,
// for each team and route by itself.
type rateLimits struct {
	limits []RateLimit

	mu   sync.Mutex
	full map[rateKey]time.Time // when all Requests are possible again
}

type rateKey struct {
	limit int
	team  *Team
	route *route
}

// take counts a request and describes its limit in h. It refuses one that is too
// many.
func (l *rateLimits) take(h http.Header, r *http.Request, team *Team, found *route, now time.Time) *Error {
	for i := range l.limits {
		if limit := &l.limits[i]; limit.Matches(r) {
			return l.count(h, limit, rateKey{i, team, found}, now)
		}
	}
	return nil
}

func (l *rateLimits) count(h http.Header, limit *RateLimit, key rateKey, now time.Time) *Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	each := max(1, limit.Per/time.Duration(limit.Requests))
	full := l.full[key]
	if full.Before(now) {
		full = now
	}
	missing := full.Sub(now) + each // of the time that stands for all Requests
	spare := each*time.Duration(limit.Requests) - missing
	if spare < 0 {
		missing -= each
		h.Set("Retry-After", strconv.Itoa(max(1, int(-spare/time.Second))))
	} else {
		l.full[key] = full.Add(each)
	}
	h.Set("Ratelimit-Limit", strconv.Itoa(limit.Requests))
	h.Set("Ratelimit-Remaining", strconv.Itoa(int(max(0, spare)/each)))
	h.Set("Ratelimit-Reset", strconv.Itoa(int((missing+time.Second-1)/time.Second)))
	if spare < 0 {
		return fail(http.StatusTooManyRequests, "Rate limit exceeded")
	}
	return nil
}
