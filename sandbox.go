package e2b

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/seed-09a7379d/e2b-go/internal/controlapi"
	"github.com/seed-09a7379d/e2b-go/internal/envd"
	"github.com/seed-09a7379d/e2b-go/internal/interpreter"
	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// The ports that every sandbox has of its own.
const (
	envdPort        = 49983
	interpreterPort = 49999
)

// DefaultTemplate is the template of a sandbox when CreateOptions name none. It
// has no code interpreter; "code-interpreter" has.
const DefaultTemplate = "base"

// CreateTokenKey is the metadata key by which a sandbox is found whose creation was
// not answered: see OutcomeUnknownError. Info and List show the other keys alone.
const CreateTokenKey = "e2b_go_create_token" //nolint:gosec // the name of a metadata key

// TimeoutAction is what happens to a sandbox at the end of its lifetime.
type TimeoutAction int

// What can happen at the end of a lifetime.
const (
	TimeoutDefault         TimeoutAction = iota // the server's choice: kill
	TimeoutKill                                 // the sandbox is gone; one that was paused before is paused again, as it was then
	TimeoutPause                                // paused with files and memory, as by Pause
	TimeoutPauseFilesystem                      // paused with files only: processes end
)

// String returns the action's name.
func (a TimeoutAction) String() string {
	switch a {
	case TimeoutDefault:
		return "default"
	case TimeoutKill:
		return "kill"
	case TimeoutPause:
		return "pause"
	case TimeoutPauseFilesystem:
		return "pause filesystem"
	}
	return "TimeoutAction(" + strconv.Itoa(int(a)) + ")"
}

// CreateOptions describes a sandbox to create. What is not set is not sent,
// except the lifetime, that envd be secured, and the create token.
type CreateOptions struct {
	// Template is the name or ID of a template or a snapshot, each also with a
	// :tag; "" means "base". A sandbox from a snapshot begins with its files, and
	// with its memory and processes unless it was taken without.
	Template string
	// Timeout is the lifetime, counted from the answer; 0 means
	// ClientOptions.SandboxTimeout. Whole seconds go out, rounded up. Use of the sandbox
	// does not extend it: Refresh, Connect and SetTimeout do. One beyond the account's
	// limit is ErrInvalidArgument.
	Timeout time.Duration
	// OnTimeout says what happens at the end of the lifetime, also in the middle of a
	// command.
	OnTimeout TimeoutAction
	// AutoResume says whether inbound traffic wakes the sandbox when it is paused.
	// True needs OnTimeout: TimeoutPause; the lifetime is then as at the creation,
	// and at least 5 min. nil leaves it to the server: no.
	AutoResume *bool

	Metadata map[string]string // shown by Info, and what List can ask for
	Env      map[string]string // of all commands and code in the sandbox

	// Insecure leaves envd open to everyone who knows the sandbox's ID. It is not
	// about TLS.
	Insecure bool
	// NoInternet cuts the sandbox off from the internet.
	NoInternet bool
	// NoToken leaves out the metadata key CreateTokenKey, by which a sandbox
	// can be found whose creation was not answered.
	NoToken bool
	// Network limits the traffic of the sandbox; nil means no limits.
	Network *Network
	// Volumes are mounted in the sandbox: for each absolute path the name of the
	// volume. See CreateVolume.
	Volumes map[string]string
	// IAM are the workload tokens that Network.Rules may name, by IAMPlaceholder. E2B
	// turns them on per team, and takes at most 5.
	IAM map[string]IAMToken
	// MCP configures the gateway to Model Context Protocol servers, by the names of
	// these, which is then started in the sandbox: see Sandbox.MCPURL. The default
	// Template is then "mcp-gateway". The values are secrets: no error shows them.
	MCP map[string]any
}

// LogValue returns the kind of sandbox that o asks for. Variables, rules and
// configurations, which may hold secrets, are left out.
func (o CreateOptions) LogValue() slog.Value {
	return slog.GroupValue(slog.String("template", o.Template), slog.Duration("timeout", o.Timeout), slog.String("on_timeout", o.OnTimeout.String()))
}

// A Sandbox is a handle for one sandbox: it does not own it. Dropping a handle
// does nothing; the sandbox lives until it is killed or its lifetime ends. A
// Sandbox is safe for concurrent use, and one made by Create, Connect or
// FromRecord stays usable over any number of pauses.
type Sandbox struct {
	Commands *Commands // runs commands
	Files    *Files    // reads and writes files
	PTY      *PTY      // starts terminals

	client *Client
	id     string
	state  atomic.Pointer[handle]
	gate   atomic.Pointer[streamGate]

	mcpToken atomic.Pointer[Token] // nil: not known
}

// handle is what a connect renews, as a whole.
type handle struct {
	domain       string // "" on servers that do not say
	version      string
	envdToken    Token
	trafficToken Token
	lifetime     time.Duration
	resumed      bool

	envd *envd.Client
	code *interpreter.Client
}

// streamGate ends all streams that began under it.
type streamGate struct {
	ctx   context.Context
	close context.CancelCauseFunc
}

func newGate() *streamGate {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &streamGate{ctx, cancel}
}

// cut ends the handle's own streams: a pause or kill would leave them hanging
// until their connection is noticed to be dead.
func (s *Sandbox) cut() { s.gate.Swap(newGate()).close(errCut) }

func (s *Sandbox) init(h *handle) {
	s.Commands = &Commands{s}
	s.Files = &Files{s}
	s.PTY = &PTY{s}
	s.gate.Store(newGate())
	s.renew(h)
}

// renew takes over what a connect answered.
func (s *Sandbox) renew(h *handle) {
	c := s.client
	header := func(port int) http.Header {
		v := http.Header{}
		v.Set("User-Agent", c.userAgent)
		// The proxy answers in HTML to what looks like a browser, as "knowledge"
		// does by the "edge" in it.
		v.Set("Accept", "application/json")
		v.Set(transport.HeaderSandboxID, s.id)
		v.Set(transport.HeaderSandboxPort, strconv.Itoa(port))
		if !h.envdToken.IsZero() {
			v.Set(transport.HeaderEnvdToken, h.envdToken.Reveal())
		}
		return v
	}
	h.envd = c.envdPlane(s.id, h.domain).Client(header(envdPort))
	ih := header(interpreterPort)
	if !h.trafficToken.IsZero() {
		ih.Set(transport.HeaderTrafficToken, h.trafficToken.Reveal())
	}
	h.code = interpreter.New(interpreter.Config{
		BaseURL: c.planeURL(s.id, h.domain, interpreterPort), Header: ih, Transport: c.http1,
	})
	s.state.Store(h)
}

// envdPlane returns the plane of a sandbox's envd, which those sandboxes share
// that are reached through one URL.
func (c *Client) envdPlane(id, domain string) *envd.Plane {
	base := c.planeURL(id, domain, envdPort)
	if plane, ok := c.planes.Load(base.String()); ok {
		return plane.(*envd.Plane) //nolint:forcetypeassert,errcheck // stored below
	}
	plane := envd.New(envd.Config{BaseURL: base, Transport: c.main, JSON: c.json})
	if !strings.Contains(base.Host, id) { // one of its own would stay for ever
		c.planes.Store(base.String(), plane)
	}
	return plane
}

// planeURL is where one of the sandbox's own ports is reached.
func (c *Client) planeURL(id, domain string, port int) *url.URL {
	if c.sandboxURL != nil {
		return c.sandboxURL // the routing headers tell sandbox and port
	}
	domain = c.domainOr(domain)
	if port == envdPort && (domain == "e2b.app" || domain == "e2b.dev") {
		// E2B's own domains have one host for all sandboxes, and so one pool of
		// connections.
		return &url.URL{Scheme: "https", Host: "sandbox." + domain}
	}
	return &url.URL{Scheme: "https", Host: hostName(id, domain, port)}
}

func hostName(id, domain string, port int) string {
	return strconv.Itoa(port) + "-" + id + "." + domain
}

func (c *Client) domainOr(domain string) string {
	if domain != "" {
		return domain
	}
	return c.domain
}

func (c *Client) lifetimeOr(d time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return c.lifetime
}

// handleOf checks an answer and makes what a Sandbox holds of it.
func (c *Client) handleOf(a *controlapi.Sandbox, lifetime time.Duration, resumed bool) (*handle, error) {
	switch {
	case !validID(a.SandboxID):
		return nil, fmt.Errorf("the answer names no sandbox: %.80q", a.SandboxID)
	case a.Domain != "" && !validDomain(a.Domain):
		return nil, fmt.Errorf("the answer names no domain for the sandbox %s: %.80q", a.SandboxID, a.Domain)
	case !transport.ValidHeader(a.EnvdAccessToken), !transport.ValidHeader(a.TrafficAccessToken):
		return nil, fmt.Errorf("the answer has a token with control characters for the sandbox %s", a.SandboxID)
	}
	return &handle{
		domain: a.Domain, version: a.EnvdVersion,
		envdToken: NewToken(a.EnvdAccessToken), trafficToken: NewToken(a.TrafficAccessToken),
		lifetime: lifetime, resumed: resumed,
	}, nil
}

// ID returns the sandbox's ID, by which Connect finds it again.
func (s *Sandbox) ID() string { return s.id }

// Domain returns the domain under which the sandbox's ports are reached: the
// server's, else ClientOptions.Domain.
func (s *Sandbox) Domain() string { return s.client.domainOr(s.state.Load().domain) }

// EnvdVersion returns the version of the daemon in the sandbox, as at the last
// connect.
func (s *Sandbox) EnvdVersion() string { return s.state.Load().version }

// Host returns the public host name of a port in the sandbox, without a scheme.
func (s *Sandbox) Host(port int) string { return hostName(s.id, s.Domain(), port) }

// TrafficAccessToken returns the token that the ports of a sandbox without
// public traffic ask for in the header e2b-traffic-access-token; zero otherwise.
func (s *Sandbox) TrafficAccessToken() Token { return s.state.Load().trafficToken }

// Resumed reports whether the Connect that made or last renewed this handle woke
// the sandbox.
func (s *Sandbox) Resumed() bool { return s.state.Load().resumed }

// String names the sandbox.
func (s *Sandbox) String() string { return "e2b sandbox " + s.id }

var (
	opCreate     = operation{name: "create", notFound: ErrNotFound, creates: "a sandbox"}
	opKill       = operation{name: "kill", notFound: ErrSandboxNotFound}
	opInfo       = operation{name: "info", notFound: ErrSandboxNotFound}
	opSetTimeout = operation{name: "set timeout", notFound: ErrSandboxNotFound}
	opRefresh    = operation{name: "refresh", notFound: ErrSandboxNotFound}
)

// Create starts a sandbox and returns when it runs. ctx bounds everything; opts
// may be nil.
//
// A create whose answer was lost is not repeated, since it could start a second
// sandbox: the error then is an *OutcomeUnknownError and matches
// ErrOutcomeUnknown.
//
// Errors: ErrInvalidArgument, ErrUnauthenticated, ErrForbidden, ErrNotFound (no
// such template), ErrQuotaExceeded, ErrRateLimited, ErrServiceBusy,
// ErrOutcomeUnknown, ErrNotSupported (Insecure on a server that secures every
// sandbox).
//
// See https://e2b.dev/docs/sandbox.
func (c *Client) Create(ctx context.Context, opts *CreateOptions) (*Sandbox, error) {
	var o CreateOptions
	if opts != nil {
		o = *opts
	}
	body, token, err := o.wire()
	if err != nil {
		return nil, err
	}
	gateway, err := mcpConfig(opCreate.name, o.MCP)
	if err != nil {
		return nil, err
	}
	lifetime := c.lifetimeOr(o.Timeout)
	a, err := c.api.Create(ctx, body, lifetime)
	if err == nil {
		var h *handle
		if h, err = c.handleOf(a, lifetime, false); err == nil {
			s := &Sandbox{client: c, id: a.SandboxID}
			s.init(h)
			if gateway != nil {
				if err := s.startMCP(ctx, gateway); err != nil {
					return nil, err
				}
			}
			return s, nil
		}
		err = &controlapi.OutcomeError{Attempts: 1, Ambiguous: true, Err: err}
	}
	err = controlError(ctx, opCreate, "", err)
	if unknown, ok := errors.AsType[*OutcomeUnknownError](err); ok {
		unknown.CreateToken = token
	}
	return nil, err
}

// wire checks the options and turns them into a body. The returned token is ""
// if the sandbox gets none.
func (o *CreateOptions) wire() (body controlapi.NewSandbox, token string, err error) {
	const op = "create"
	t, f := true, false
	body = controlapi.NewSandbox{
		TemplateID: o.Template,
		Secure:     !o.Insecure,
		Metadata:   maps.Clone(o.Metadata),
		EnvVars:    o.Env,
	}
	if body.TemplateID == "" {
		body.TemplateID = DefaultTemplate
	}
	if o.Timeout < 0 {
		return body, "", invalid(op, "Timeout", "is negative")
	}
	switch o.OnTimeout {
	case TimeoutDefault:
	case TimeoutKill:
		body.AutoPause = &f
	case TimeoutPause:
		body.AutoPause = &t
	case TimeoutPauseFilesystem:
		body.AutoPause, body.AutoPauseMemory = &t, &f
	default:
		return body, "", invalid(op, "OnTimeout", "is no action: %d", int(o.OnTimeout))
	}
	if o.AutoResume != nil {
		if *o.AutoResume && o.OnTimeout != TimeoutPause {
			return body, "", invalid(op, "AutoResume", "needs OnTimeout: TimeoutPause")
		}
		body.AutoResume = &controlapi.AutoResume{Enabled: *o.AutoResume}
	}
	if o.NoInternet {
		body.AllowInternetAccess = &f
	}
	if err := o.Network.check(op, o.IAM); err != nil {
		return body, "", err
	}
	body.Network = o.Network.wire()
	if body.IAM, err = iamOf(op, o.IAM); err != nil {
		return body, "", err
	}
	if body.MCP = o.MCP; o.MCP != nil && o.Template == "" {
		body.TemplateID = mcpTemplate
	}
	if body.VolumeMounts, err = mountsOf(op, o.Volumes); err != nil {
		return body, "", err
	}
	if name, ok := badEnv(o.Env); ok {
		return body, "", invalid(op, "Env", "has a name or value that no process can have: %.40q", name)
	}
	if err := validText(op, o.Env, argument{"Template", o.Template}); err != nil {
		return body, "", err
	}
	for key, value := range o.Metadata {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return body, "", invalid(op, "Metadata", "has a key or value that is not UTF-8: %.40q", key)
		}
	}
	if _, has := o.Metadata[CreateTokenKey]; has {
		return body, "", invalid(op, "Metadata", "uses the reserved key %s", CreateTokenKey)
	}
	if !o.NoToken {
		token = rand.Text()
		if body.Metadata == nil {
			body.Metadata = make(map[string]string, 1)
		}
		body.Metadata[CreateTokenKey] = token
	}
	return body, token, nil
}

// badEnv finds a variable that the kernel would refuse, or split elsewhere.
func badEnv(env map[string]string) (string, bool) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(env[name], "\x00") {
			return name, true
		}
	}
	return "", false
}

// Kill ends a sandbox, running or paused, and deletes what it kept. It returns
// false when there was no such sandbox any more; see Client.Connect for what
// else that may mean. Snapshots made of it stay.
//
// Killing a sandbox while a Connect of it is under way may fail to end it: wait
// for the Connect first.
//
// Errors: ErrInvalidArgument, ErrUnauthenticated, ErrRateLimited.
//
// See https://e2b.dev/docs/sandbox.
func (c *Client) Kill(ctx context.Context, id string) (bool, error) {
	id, err := sandboxID(opKill.name, id)
	if err != nil {
		return false, err
	}
	killed, err := c.api.Kill(ctx, id)
	if err == nil {
		c.contexts.forget(id)
	}
	return killed, controlError(ctx, opKill, id, err)
}

// Kill is Client.Kill for this sandbox, with the same errors. The handle's own
// streams end first, with ErrSandboxNotRunning.
//
// See https://e2b.dev/docs/sandbox.
func (s *Sandbox) Kill(ctx context.Context) (bool, error) {
	if ctx.Err() == nil {
		s.cut()
	}
	return s.client.Kill(ctx, s.id)
}

// SetTimeout sets how long a running sandbox lives from now, longer or shorter
// than before. Whole seconds go out, rounded up; the server cuts what is beyond
// the longest lifetime of the account.
//
// Errors: ErrInvalidArgument (also for d ≤ 0: use Kill or Pause),
// ErrSandboxNotFound, ErrSandboxNotRunning (it is paused; APIError.State says
// so), ErrConflict, ErrUnauthenticated, ErrForbidden (the team is blocked),
// ErrRateLimited.
//
// See https://e2b.dev/docs/sandbox.
func (c *Client) SetTimeout(ctx context.Context, id string, d time.Duration) error {
	id, err := sandboxID(opSetTimeout.name, id)
	if err != nil {
		return err
	}
	if d <= 0 {
		return invalid(opSetTimeout.name, "timeout", "must be positive: a sandbox is ended with Kill or Pause")
	}
	err = controlError(ctx, opSetTimeout, id, c.api.SetTimeout(ctx, id, d))
	return c.pausedOrGone(ctx, err, id)
}

// pausedOrGone tells a paused sandbox, for which some routes say "not found",
// from one that does not exist, and both from a route that does not.
func (c *Client) pausedOrGone(ctx context.Context, err error, id string) error {
	api, ok := errors.AsType[*APIError](err)
	if !ok || !errors.Is(err, ErrSandboxNotFound) || errors.Is(err, ErrOutcomeUnknown) {
		return err
	}
	d, infoErr := c.api.Info(ctx, id)
	if infoErr != nil {
		return err
	}
	out := *api
	switch {
	case State(d.State) == StatePaused:
		out.State, out.kinds = StatePaused, []error{ErrSandboxNotRunning}
	case State(d.State) == StateRunning && !controlapi.AboutSandbox(api.Message):
		out.kinds = []error{ErrNotSupported}
	default:
		return err
	}
	return &out
}

// SetTimeout is Client.SetTimeout for this sandbox, with the same errors.
//
// See https://e2b.dev/docs/sandbox.
func (s *Sandbox) SetTimeout(ctx context.Context, d time.Duration) error {
	return s.client.SetTimeout(ctx, s.id, d)
}

// Refresh makes sure that a running sandbox lives for d from now. It never shortens
// a life, as SetTimeout does. Whole seconds go out, rounded up, at most an hour;
// the server makes less than 15 s into 15 s.
//
// Errors: ErrInvalidArgument (also for d ≤ 0 and for more than an hour),
// ErrNotSupported, and as SetTimeout.
//
// See https://e2b.dev/docs/sandbox.
func (c *Client) Refresh(ctx context.Context, id string, d time.Duration) error {
	id, err := sandboxID(opRefresh.name, id)
	if err != nil {
		return err
	}
	if d <= 0 || d > time.Hour {
		return invalid(opRefresh.name, "duration", "must be positive and at most 1h: %v", d)
	}
	err = controlError(ctx, opRefresh, id, c.api.Refresh(ctx, id, d))
	return c.pausedOrGone(ctx, err, id)
}

// Refresh is Client.Refresh for this sandbox, with the same errors.
//
// See https://e2b.dev/docs/sandbox.
func (s *Sandbox) Refresh(ctx context.Context, d time.Duration) error {
	return s.client.Refresh(ctx, s.id, d)
}

// Info describes a sandbox, running or paused. It does not wake it.
//
// Errors: ErrInvalidArgument, ErrSandboxNotFound, ErrUnauthenticated.
//
// See https://e2b.dev/docs/sandbox.
func (c *Client) Info(ctx context.Context, id string) (*SandboxInfo, error) {
	id, err := sandboxID(opInfo.name, id)
	if err != nil {
		return nil, err
	}
	d, err := c.api.Info(ctx, id)
	if err != nil {
		return nil, controlError(ctx, opInfo, id, err)
	}
	info := infoOf(d)
	return &info, nil
}

// Info is Client.Info for this sandbox, with the same errors.
//
// See https://e2b.dev/docs/sandbox.
func (s *Sandbox) Info(ctx context.Context) (*SandboxInfo, error) { return s.client.Info(ctx, s.id) }

// IsRunning reports whether a sandbox runs; a paused one and one that does not
// exist do not. It asks the control plane, never the sandbox, since traffic could
// wake it.
//
// Errors: as Info, except ErrSandboxNotFound.
//
// See https://e2b.dev/docs/sandbox.
func (c *Client) IsRunning(ctx context.Context, id string) (bool, error) {
	info, err := c.Info(ctx, id)
	if errors.Is(err, ErrSandboxNotFound) {
		return false, nil
	}
	return err == nil && info.State == StateRunning, err
}

// IsRunning is Client.IsRunning for this sandbox, with the same errors.
//
// See https://e2b.dev/docs/sandbox.
func (s *Sandbox) IsRunning(ctx context.Context) (bool, error) {
	return s.client.IsRunning(ctx, s.id)
}

// sandboxID checks an ID that a caller gave. The old long form is cut to the
// short one.
func sandboxID(op, id string) (string, error) {
	if !validID(id) {
		return "", invalid(op, "sandbox ID", "must be 1 to 63 letters, digits, - or _: %.80q", id)
	}
	if id[0] == '-' {
		return "", invalid(op, "sandbox ID", "begins with a dash: %.80q", id)
	}
	return controlapi.ShortID(id), nil
}

func validID(id string) bool {
	if id == "" || len(id) > 63 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}
