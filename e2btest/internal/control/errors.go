package control

import (
	"fmt"
	"net/http"
)

// An Error is an answer of the control plane that refuses a request.
type Error struct {
	Status  int    // of HTTP
	Message string // empty: the answer has no body
	Code    string // error_code; only some errors have one
}

// Error makes Error an error.
func (e *Error) Error() string {
	return fmt.Sprintf("%d %s", e.Status, e.Message)
}

func fail(status int, message string) *Error {
	return &Error{Status: status, Message: message}
}

var (
	// errClosed answers what comes while the server is being closed.
	errClosed = fail(http.StatusServiceUnavailable, "Service is unavailable")

	// errWaited answers a request whose context ended while it waited: the 408
	// without a body that E2B sends after its own limit. A client that has gone
	// away does not see it.
	errWaited = &Error{Status: http.StatusRequestTimeout}
)
