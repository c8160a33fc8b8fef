package control

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Team owns sandboxes. To it, those of other teams look unknown.
type Team struct {
	ID           string
	Slug         string // namespace of its templates
	Keys         []string
	Banned       bool          // refused everywhere
	Blocked      string        // why it may only read and delete; empty: it is not blocked
	MaxLength    time.Duration // limit of a sandbox's life without a pause
	MaxSandboxes int           // that may run at the same time
	NoReboot     bool          // connect with memory false is refused for snapshots with memory
	NoSecrets    bool          // secrets are refused
}

// hours is MaxLength as the error messages spell it.
func (t *Team) hours() string {
	return strconv.FormatFloat(t.MaxLength.Hours(), 'f', -1, 64)
}

func (t *Team) checkTimeout(d time.Duration) *Error {
	if d > t.MaxLength {
		return fail(http.StatusBadRequest, fmt.Sprintf("Timeout cannot be greater than %s hours", t.hours()))
	}
	return nil
}

func (t *Team) quotaError() *Error {
	return fail(http.StatusTooManyRequests, fmt.Sprintf("you have reached the maximum number of concurrent E2B sandboxes (%d). "+
		"If you need more, please visit 'https://e2b.dev/docs/billing'", t.MaxSandboxes))
}

const invalidKey = "Invalid API key, please visit https://e2b.dev/docs/api-key for more information.\n"

// authenticate finds the team of a request. A key that was configured is right
// whatever it looks like; the format matters for the error alone.
func (s *Server) authenticate(h http.Header) (*Team, *Error) {
	key := h.Get("X-API-Key")
	if key == "" {
		return nil, fail(http.StatusUnauthorized, "authorization header is missing")
	}
	team, ok := s.keys[key]
	if !ok {
		digits, prefixed := strings.CutPrefix(key, "e2b_")
		switch {
		case !prefixed:
			return nil, fail(http.StatusUnauthorized, "authorization header is malformed")
		case strings.Trim(digits, "0123456789abcdefABCDEF") != "":
			return nil, fail(http.StatusUnauthorized, invalidKey+"Invalid API key format")
		}
		return nil, fail(http.StatusUnauthorized, invalidKey+"Cannot get the team for the given API key")
	}
	if team.Banned {
		return nil, fail(http.StatusForbidden, "team is banned")
	}
	return team, nil
}
