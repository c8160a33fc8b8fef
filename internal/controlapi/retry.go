package controlapi

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

const (
	// firstWait doubles from one attempt to the next. Three waits reach over the
	// two seconds in which a compatible server may still finish a pause.
	firstWait = 400 * time.Millisecond
	maxWait   = 60 * time.Second
)

// checkRetry decides after every attempt whether there may be another one.
// retryablehttp itself bounds their number.
func checkRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	st := callOf(ctx)
	st.attempts++
	if err != nil {
		if permanent(err) {
			return false, err // an answer after all, and no success
		}
		if ctx.Err() != nil {
			err = nil // net/http returns the cause of ctx, as that of a dial which failed elsewhere
		}
		notSent := !st.sent || st.delivery.NotSent(err)
		if !notSent {
			st.ambiguous = true
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		return notSent || st.safe, nil
	}
	if resp.StatusCode < 300 {
		return false, nil
	}
	if outcomeUnknown(st.last) {
		st.ambiguous = true
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return st.repeats(ctx, resp), nil
}

// repeats is the retry rule for an answer.
func (st *call) repeats(ctx context.Context, resp *http.Response) bool {
	after, hasAfter := transport.RetryAfter(resp.Header)
	if hasAfter && !fits(ctx, after) {
		return false
	}
	switch strings.ToLower(resp.Header.Get("Should-Retry")) {
	case "true":
		return true
	case "false":
		return false
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		// Without the header it is a quota, which waiting does not lift.
		return hasAfter
	case http.StatusServiceUnavailable:
		return true
	case http.StatusBadGateway, http.StatusGatewayTimeout, http.StatusRequestTimeout:
		return st.safe
	case http.StatusConflict:
		return st.busy
	}
	return false
}

// fits reports whether a wait can be over before the caller's ctx is.
func fits(ctx context.Context, wait time.Duration) bool {
	if wait > maxWait {
		return false
	}
	deadline, has := ctx.Deadline()
	return !has || wait < time.Until(deadline)
}

// permanent tells errors that every further attempt would meet again.
func permanent(err error) bool {
	return errors.Is(err, transport.ErrRedirect)
}

// outcomeUnknown reports an answer that leaves open whether the request was
// carried out.
func outcomeUnknown(e *transport.StatusError) bool {
	switch e.StatusCode {
	case http.StatusRequestTimeout, http.StatusBadGateway:
		return true
	case http.StatusGatewayTimeout:
		return e.Code == "" // with a code it comes from the server that gave up, not from one in between
	}
	return false
}

// backoff is how long to wait before the next attempt.
func backoff(_, _ time.Duration, attempt int, resp *http.Response) time.Duration {
	if resp != nil {
		if after, ok := transport.RetryAfter(resp.Header); ok {
			return after
		}
	}
	wait := min(firstWait<<min(attempt, 10), maxWait)
	// A little less, so that clients that failed together do not return together.
	return wait - time.Duration(rand.Int64N(int64(wait)/8)) //nolint:gosec // no secret
}

// mayBeMissing reports an answer which may say that the server does not know the
// route: one that is not about the sandbox or template to which the route leads.
func mayBeMissing(err error) bool {
	e, ok := errors.AsType[*transport.StatusError](err)
	if !ok {
		return false
	}
	switch e.StatusCode {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone, http.StatusNotImplemented:
		return !AboutSandbox(e.Message)
	}
	return false
}

// AboutSandbox reports whether the text of an error is about a sandbox or a
// template, and so not about the route to it.
func AboutSandbox(message string) bool {
	// Some servers repeat the path.
	text := strings.ReplaceAll(strings.ToLower(message), "/sandboxes", "")
	return strings.Contains(text, "sandbox") || strings.Contains(text, "template")
}

// routeMissing reports an answer which says so for certain: a 404 in JSON with
// other words than the router's may be what a server says of an unknown sandbox.
func routeMissing(err error) bool {
	e, ok := errors.AsType[*transport.StatusError](err)
	return ok && RouteMissing(e)
}

// RouteMissing reports whether e says for certain that the server does not know
// the route.
func RouteMissing(e *transport.StatusError) bool {
	if !mayBeMissing(e) {
		return false
	}
	return e.StatusCode != http.StatusNotFound || !e.JSON ||
		strings.Contains(e.Message, "no matching operation was found") ||
		strings.Contains(e.Message, "method not allowed")
}
