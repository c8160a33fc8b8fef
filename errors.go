package e2b

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/seed-09a7379d/e2b-go/internal/controlapi"
	"github.com/seed-09a7379d/e2b-go/internal/envd"
	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// The kinds of error, for errors.Is. They exclude each other unless their
// comment says otherwise. Besides them, errors of files match fs.ErrNotExist,
// fs.ErrExist and fs.ErrPermission, and an error after the end of the caller's
// ctx matches that ctx's own error: context.Canceled, or
// context.DeadlineExceeded, which nothing else matches.
var (
	// ErrNoAPIKey means that neither ClientOptions.APIKey nor $E2B_API_KEY is set.
	ErrNoAPIKey = errors.New("no API key")
	// ErrInvalidArgument means that the SDK refused an argument before any
	// request, or the server did (status 400).
	ErrInvalidArgument = errors.New("invalid argument")
	// ErrUnauthenticated means that the key or token was not accepted (status 401).
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrForbidden means that the key is known and may not do this (status 403).
	ErrForbidden = errors.New("forbidden")
	// ErrSandboxNotFound means that the control plane does not know the sandbox,
	// or that it belongs to another team: the two cannot be told apart. What a
	// paused sandbox kept may have been deleted.
	ErrSandboxNotFound = errors.New("sandbox not found")
	// ErrSandboxNotRunning means that a call needs a running sandbox and this one
	// is paused or gone. Connect resumes a paused one; ErrSandboxNotFound from it
	// means that it is gone.
	ErrSandboxNotRunning = errors.New("sandbox not running")
	// ErrPortClosed means that the sandbox runs and nothing in it listens on the port.
	ErrPortClosed = errors.New("port not open")
	// ErrProcessNotFound means that no process in the sandbox has the PID.
	ErrProcessNotFound = errors.New("process not found")
	// ErrNotFound means that something else does not exist: a template, a
	// snapshot, a volume, a secret, a code context.
	ErrNotFound = errors.New("not found")
	// ErrConflict means that the sandbox was changing its state, and went on doing
	// so through all repeats (status 409), that a snapshot is in use, or that a secret
	// cannot be changed or its name is taken.
	ErrConflict = errors.New("conflict")
	// ErrRateLimited means that there were too many requests, or too many of
	// something (status 429).
	ErrRateLimited = errors.New("rate limited")
	// ErrQuotaExceeded means a limit that time alone does not lift, but the end of
	// something does: of a sandbox of the account, or of a connection where one sandbox
	// has too many (status 429 without Retry-After). Such an
	// error matches ErrRateLimited too.
	ErrQuotaExceeded = errors.New("quota exceeded")
	// ErrServiceBusy means that the service could not take the request, and that
	// nothing was changed (status 503).
	ErrServiceBusy = errors.New("service busy")
	// ErrRequestTimeout means that ClientOptions.RequestTimeout passed.
	ErrRequestTimeout = errors.New("request timeout")
	// ErrCommandTimeout means that RunOptions.Timeout or CodeOptions.Timeout passed.
	ErrCommandTimeout = errors.New("command timeout")
	// ErrStreamInterrupted means that a stream ended before what it carries did.
	ErrStreamInterrupted = errors.New("stream interrupted")
	// ErrOutcomeUnknown means that the answer to a call that makes something was lost:
	// a sandbox, a snapshot, a volume or a secret may exist. The error matches its cause
	// too, and is an *OutcomeUnknownError.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrInterpreter means that the code interpreter failed, not the code: its
	// kernel died or was restarted.
	ErrInterpreter = errors.New("interpreter failure")
	// ErrNoSpace means that the sandbox's disk is full (status 507).
	ErrNoSpace = errors.New("no space left in the sandbox")
	// ErrNotSupported means that the server, or the sandbox's envd, is too old for
	// the call, or does not have it.
	ErrNotSupported = errors.New("not supported")
	// ErrClosed means that the handle was closed.
	ErrClosed = errors.New("closed")
)

// APIError is an answer of E2B that is not a success. errors.As finds it under
// every error that came from a server. Its text holds no key and no token.
type APIError struct {
	Op         string        // what was called, as "connect"
	SandboxID  string        // "" where it is about none
	StatusCode int           // of HTTP; 0 where the answer is an error of envd's RPC protocol, whose word is in Code
	Code       string        // the server's own word for the error, if it has one
	Message    string        // the server's text, on one line, at most 300 bytes: a longer one lacks its middle
	RequestID  string        // for E2B's support
	RetryAfter time.Duration // how long the server asks to wait; 0: it does not say
	Attempts   int           // requests made for the call
	State      State         // of the sandbox, where the SDK learned it; "" otherwise

	kinds []error
}

// Error returns the call, the sandbox, the server's text and the status.
func (e *APIError) Error() string {
	var b strings.Builder
	b.WriteString(prefix(e.Op, e.SandboxID))
	if len(e.kinds) > 0 {
		fmt.Fprintf(&b, ": %v", e.kinds[0])
	}
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	var facts []string
	if e.StatusCode != 0 {
		facts = append(facts, fmt.Sprintf("status %d", e.StatusCode))
	}
	if e.Code != "" {
		facts = append(facts, "code "+e.Code)
	}
	if e.State != "" {
		facts = append(facts, "sandbox is "+string(e.State))
	}
	if e.RetryAfter > 0 {
		facts = append(facts, "retry after "+e.RetryAfter.String())
	}
	if e.Attempts > 1 {
		facts = append(facts, fmt.Sprintf("%d attempts", e.Attempts))
	}
	if e.RequestID != "" {
		facts = append(facts, "request "+e.RequestID)
	}
	if e.Op == opCode.name && errors.Is(e, ErrPortClosed) {
		facts = append(facts, "the template may have no code interpreter")
	}
	if len(facts) > 0 {
		b.WriteString(" (" + strings.Join(facts, ", ") + ")")
	}
	return b.String()
}

// Unwrap returns the kinds of the error.
func (e *APIError) Unwrap() []error { return e.kinds }

// OutcomeUnknownError says that a call may have made a sandbox, a snapshot, a volume
// or a secret without our learning of it. It matches ErrOutcomeUnknown and whatever
// Err matches.
type OutcomeUnknownError struct {
	// CreateToken is the value of the metadata key CreateTokenKey of the sandbox, if
	// there is one, by which List finds it. "" with CreateOptions.NoToken, and for what is not
	// a create.
	CreateToken string
	// Err is why the answer is missing.
	Err error

	made string // what there may be; "" for a sandbox
}

// Error returns the cause, and the token.
func (e *OutcomeUnknownError) Error() string {
	s := fmt.Sprintf("%v: %s may have been created", e.Err, cmp.Or(e.made, "a sandbox"))
	if e.CreateToken != "" {
		s += " with " + CreateTokenKey + "=" + e.CreateToken
	}
	return s
}

// Unwrap returns the cause and ErrOutcomeUnknown.
func (e *OutcomeUnknownError) Unwrap() []error { return []error{e.Err, ErrOutcomeUnknown} }

// ExitError is a command that ran and did not end with status 0.
type ExitError struct {
	PID      int
	ExitCode int    // -1 where a signal ended it
	Signal   string // its name, as "killed"; "" otherwise
	Reason   string // envd's words, as "exit status 3"
	Stderr   []byte // the last 4 KiB of the standard error, wherever it went
}

// Error returns envd's words and the last line of the standard error.
func (e *ExitError) Error() string {
	s := fmt.Sprintf("e2b: command (pid %d): %s", e.PID, e.Reason)
	if tail := strings.TrimSpace(string(e.Stderr)); tail != "" {
		tail = tail[strings.LastIndexByte(tail, '\n')+1:]
		s += ": " + transport.Clean(tail, false)
	}
	return s
}

// opError is a call that failed without an answer: ctx ended, the connection
// broke, or the SDK refused it.
type opError struct {
	op, sandboxID string
	detail        string
	errs          []error // kinds and causes, for errors.Is
}

func (e *opError) Error() string {
	var b strings.Builder
	b.WriteString(prefix(e.op, e.sandboxID))
	for _, err := range e.errs {
		if api, ok := err.(*APIError); ok { //nolint:errorlint // our own list
			fmt.Fprintf(&b, "; last answer: %d %s", api.StatusCode, api.Message)
			continue
		}
		fmt.Fprintf(&b, ": %v", err)
	}
	if e.detail != "" {
		b.WriteString(": " + e.detail)
	}
	return b.String()
}

func (e *opError) Unwrap() []error { return e.errs }

func prefix(op, sandboxID string) string {
	if sandboxID == "" {
		return "e2b: " + op
	}
	return "e2b: " + op + " " + sandboxID
}

// invalid refuses an argument by name.
func invalid(op, arg, format string, args ...any) error {
	return &opError{op: op, detail: arg + " " + fmt.Sprintf(format, args...), errs: []error{ErrInvalidArgument}}
}

// operation is a call as the error table sees it.
type operation struct {
	name     string
	notFound error  // what does not exist when the server says "not found"
	creates  string // what a lost answer may leave behind, as "a sandbox"
	timeout  bool   // the server keeps a limit for it, so deadline_exceeded is that limit
	files    bool
	code     bool
}

// statusKinds is the error table for answers told by their HTTP status, which
// wins over any code in the body.
func statusKinds(op operation, e *transport.StatusError) []error {
	switch e.StatusCode {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		if strings.HasPrefix(e.Message, "cannot delete template") && strings.HasSuffix(e.Message, "sandboxes using it") {
			return []error{ErrConflict}
		}
		return []error{ErrInvalidArgument}
	case http.StatusUnauthorized:
		return []error{ErrUnauthenticated}
	case http.StatusForbidden:
		return []error{ErrForbidden}
	case http.StatusNotFound:
		missing := controlapi.RouteMissing(e)
		switch {
		case op.files:
			missing = !e.JSON // the text of an answer in JSON quotes the path
		case op.code:
			missing = !strings.HasPrefix(e.Message, "Context ")
		}
		if op.notFound == nil || missing || e.Proxy {
			return []error{ErrNotSupported}
		}
		return []error{op.notFound}
	case http.StatusMethodNotAllowed, http.StatusNotImplemented, http.StatusUnsupportedMediaType:
		return []error{ErrNotSupported}
	case http.StatusConflict:
		if strings.Contains(e.Message, "is paused and cannot be forked") {
			return []error{ErrSandboxNotRunning}
		}
		return []error{ErrConflict}
	case http.StatusTooManyRequests:
		if e.HasRetry {
			return []error{ErrRateLimited}
		}
		return []error{ErrQuotaExceeded, ErrRateLimited}
	case http.StatusBadGateway:
		switch {
		case e.SandboxGone():
			return []error{ErrSandboxNotRunning}
		case e.PortClosed():
			return []error{ErrPortClosed}
		}
	case http.StatusServiceUnavailable:
		return []error{ErrServiceBusy}
	case http.StatusInsufficientStorage:
		return []error{ErrNoSpace}
	case http.StatusInternalServerError:
		switch {
		case op.files:
			return fileKinds(e.Message)
		case op.code && strings.Contains(e.Message, "kernel is not available"):
			return []error{ErrNotSupported}
		case op.code && !e.Proxy:
			return []error{ErrInterpreter}
		}
	}
	return nil
}

// codeKinds is the error table for answers of envd's RPC protocol.
func codeKinds(op operation, code connect.Code, message string) []error {
	switch code {
	case connect.CodeNotFound:
		if op.notFound != nil {
			return []error{op.notFound}
		}
	case connect.CodeAlreadyExists:
		return []error{fs.ErrExist}
	case connect.CodeInvalidArgument, connect.CodeOutOfRange, connect.CodeFailedPrecondition:
		return []error{ErrInvalidArgument}
	case connect.CodeUnauthenticated:
		return []error{ErrUnauthenticated}
	case connect.CodePermissionDenied:
		if op.files {
			return []error{fs.ErrPermission}
		}
		return []error{ErrForbidden}
	case connect.CodeResourceExhausted:
		return []error{ErrRateLimited}
	case connect.CodeUnimplemented:
		return []error{ErrNotSupported}
	case connect.CodeUnavailable:
		return []error{ErrServiceBusy}
	case connect.CodeAborted:
		return []error{ErrConflict}
	case connect.CodeDeadlineExceeded:
		if op.timeout {
			return []error{ErrCommandTimeout}
		}
	case connect.CodeInternal, connect.CodeUnknown:
		if op.files {
			return fileKinds(message)
		}
	}
	return nil
}

// fileErrnos are the words of the kernel at the end of envd's internal errors about
// files, which have one code for everything.
var fileErrnos = []struct {
	text  string
	kinds []error
}{
	{"not a directory", []error{fs.ErrNotExist}}, // a parent is a file, so there is nothing at the path
	{"permission denied", []error{fs.ErrPermission}},
	{"operation not permitted", []error{fs.ErrPermission}},
	{"read-only file system", []error{fs.ErrPermission}},
	{"no space left on device", []error{ErrNoSpace}},
	{"disk quota exceeded", []error{ErrNoSpace}},
	{"file exists", []error{fs.ErrExist}},
	{"file name too long", []error{ErrInvalidArgument}},
	{"invalid argument", []error{ErrInvalidArgument}},
	{"invalid UTF-8", []error{ErrNotSupported}}, // a name in a directory, which no message of envd can hold
	{"too many open files", []error{ErrQuotaExceeded, ErrRateLimited}},
}

// fileKinds reads envd's internal errors about files. What stands before the end
// may be the name of a file.
func fileKinds(message string) []error {
	for _, errno := range fileErrnos {
		if strings.HasSuffix(message, errno.text) {
			return errno.kinds
		}
	}
	if strings.Contains(message, "path is a file: ") {
		return []error{fs.ErrNotExist}
	}
	return nil
}

func newAPIError(op operation, id string, e *transport.StatusError, attempts int) *APIError {
	return &APIError{
		Op: op.name, SandboxID: id, StatusCode: e.StatusCode, Code: e.Code, Message: e.Message,
		RequestID: e.RequestID, RetryAfter: e.RetryAfter, Attempts: attempts, kinds: statusKinds(op, e),
	}
}

// controlError turns an error of the control plane's client into one of ours.
func controlError(ctx context.Context, op operation, id string, err error) error {
	if err == nil {
		return nil
	}
	o, ok := errors.AsType[*controlapi.OutcomeError](err)
	if !ok {
		o = &controlapi.OutcomeError{Attempts: 1, Err: err}
	}
	var out error
	status, isStatus := errors.AsType[*transport.StatusError](o.Err)
	bad, isBad := errors.AsType[*controlapi.BadAnswerError](o.Err)
	switch {
	case errors.Is(o.Err, controlapi.ErrNoRoute), errors.Is(o.Err, controlapi.ErrAlwaysSecure), errors.Is(o.Err, controlapi.ErrListV1),
		errors.Is(o.Err, controlapi.ErrLogsV1):
		e := &opError{op: op.name, sandboxID: id, detail: o.Err.Error(), errs: []error{ErrNotSupported}}
		if isStatus {
			e.detail = controlapi.ErrNoRoute.Error()
			e.errs = append(e.errs, newAPIError(op, id, status, o.Attempts))
		}
		out = e
	case isStatus:
		out = newAPIError(op, id, status, o.Attempts)
	case isBad:
		out = &APIError{Op: op.name, SandboxID: id, StatusCode: bad.Status, Message: bad.Error(), RequestID: bad.RequestID, Attempts: o.Attempts}
	default:
		e := &opError{op: op.name, sandboxID: id, errs: []error{broken(ctx, o.Err)}}
		if ctx.Err() == nil && o.Attempts > 1 {
			e.detail = fmt.Sprintf("no answer to %d attempts", o.Attempts)
		}
		if o.Last != nil && ctx.Err() != nil { // what it was waiting out
			e.errs = append(e.errs, newAPIError(op, id, o.Last, o.Attempts))
		}
		out = e
	}
	if op.creates != "" && o.Ambiguous {
		out = &OutcomeUnknownError{Err: out, made: op.creates}
	}
	return out
}

// broken is the cause of a call that got no answer: the caller's ctx if that
// has ended, our own limit, or what happened to the connection.
func broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, transport.ErrTimeout) {
		return ErrRequestTimeout
	}
	err = transport.Cause(err)
	if ce, ok := errors.AsType[*connect.Error](err); ok && !connect.IsWireError(err) && ce.Unwrap() != nil {
		err = transport.Cause(ce.Unwrap()) // its code is a guess about what is below
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		// A limit that is not the caller's, as that of a dialer, must not look like it.
		return errors.New(transport.Clean(err.Error(), false))
	}
	return err
}

// errCut ends the streams of a handle that its owner pauses or kills.
var errCut = errors.New("the handle's owner paused or killed the sandbox")

// dataError turns an error of the data plane into one of ours. opened says that
// the call had begun to be carried out, so that what became of it depends on the
// sandbox, which is then asked for at the control plane: asking envd would wake
// a sandbox that resumes on traffic.
func (s *Sandbox) dataError(ctx context.Context, op operation, err error, opened bool) error {
	if err == nil {
		return nil
	}
	plain := func(errs ...error) error { return &opError{op: op.name, sandboxID: s.id, errs: errs} }
	if status, ok := errors.AsType[*transport.StatusError](err); ok {
		return newAPIError(op, s.id, status, 1)
	}
	if ce, ok := errors.AsType[*connect.Error](err); ok && connect.IsWireError(err) {
		message := s.said(ce)
		after, _ := transport.RetryAfter(ce.Meta())
		return &APIError{
			Op: op.name, SandboxID: s.id, Code: ce.Code().String(), Message: message, Attempts: 1,
			RequestID: transport.RequestID(ce.Meta()), RetryAfter: after,
			kinds: codeKinds(op, ce.Code(), message),
		}
	}
	switch {
	case errors.Is(err, errCut):
		return plain(ErrSandboxNotRunning)
	case errors.Is(err, ErrClosed):
		return plain(ErrClosed)
	case errors.Is(err, ErrCommandTimeout):
		return plain(ErrCommandTimeout)
	}
	if sink, ok := errors.AsType[*envd.SinkError](err); ok {
		return plain(sink)
	}
	if source, ok := errors.AsType[*transport.SourceError](err); ok && ctx.Err() == nil {
		return plain(source)
	}
	if ctx.Err() != nil || errors.Is(err, transport.ErrTimeout) || !opened && !lost(err) {
		return plain(broken(ctx, err))
	}
	out, _ := s.interrupted(ctx, op, err)
	return out
}

// said is the text of envd's error, fit to be shown.
func (s *Sandbox) said(e *connect.Error) string {
	text := e.Message()
	if token := s.state.Load().envdToken; !token.IsZero() {
		text = strings.ReplaceAll(text, token.Reveal(), token.String())
	}
	return transport.Clean(text, false)
}

// lost reports an error after which a request may have been carried out.
func lost(err error) bool {
	var d transport.Delivery // without a trace only the error itself can tell
	return !d.NotSent(err) && !errors.Is(err, transport.ErrRedirect)
}

// stateGone is what probe returns for a sandbox that does not exist.
const stateGone State = "gone"

const probeTimeout = 5 * time.Second

// probe asks the control plane for the sandbox's state.
func (s *Sandbox) probe(ctx context.Context) (State, bool) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	d, err := s.client.api.Info(ctx, s.id)
	switch {
	case err == nil:
		return State(d.State), true
	case errors.Is(controlError(ctx, opInfo, s.id, err), ErrSandboxNotFound):
		return stateGone, true
	}
	return "", false
}

func isWire(err error) bool {
	_, ok := errors.AsType[*connect.Error](err)
	return ok && connect.IsWireError(err)
}

// interrupted is the error for a call that was cut off, and whether the sandbox
// is known to run still.
func (s *Sandbox) interrupted(ctx context.Context, op operation, err error) (error, bool) {
	state, known := s.probe(ctx)
	if known && state != StateRunning {
		e := &APIError{Op: op.name, SandboxID: s.id, State: state, Attempts: 1, kinds: []error{ErrSandboxNotRunning}}
		if state == stateGone {
			e.State, e.Message = "", "the control plane does not know it any more"
		}
		return e, false
	}
	if ce, ok := errors.AsType[*connect.Error](err); ok && connect.IsWireError(err) {
		err = fmt.Errorf("%v: %s", ce.Code(), s.said(ce))
	}
	return &opError{op: op.name, sandboxID: s.id, errs: []error{ErrStreamInterrupted, broken(ctx, err)}}, known
}
