package control

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Routes says which of the twin routes for create and connect exist.
type Routes uint8

// Servers before September 2026 know the first ones only; clients have to get
// along with both kinds.
const (
	AllRoutes Routes = iota
	V1Routes         // POST /sandboxes and POST /sandboxes/{id}/connect
	V2Routes         // POST /v2/sandboxes and POST /v2/sandboxes/{id}/connect
)

// A route is one operation of the API.
type route struct {
	method   string
	path     []string // {} stands for the sandbox ID
	changes  bool     // refused to a blocked team
	body     *schema  // nil: a body is ignored
	required bool     // the body is
	bad      string   // what a wrong body is refused with; "": the validator's words
	handle   func(*Server, *call) (*response, *Error)
}

// A call is an authenticated and validated request.
type call struct {
	ctx   context.Context
	team  *Team
	rawID string // as sent
	query url.Values
	body  []byte // nil: absent
}

// A response is a successful answer.
type response struct {
	status int
	header map[string]string
	body   any // nil: none
}

func newRoute(method, path string, handle func(*Server, *call) (*response, *Error)) route {
	return route{method: method, path: strings.Split(path, "/"), handle: handle}
}

func (r route) takes(body *schema, required bool) route {
	r.body, r.required = body, required
	return r
}

// saying gives wrong bodies one text.
func (r route) saying(bad string) route {
	r.bad = bad
	return r
}

func (r route) changing() route {
	r.changes = true
	return r
}

// routesOf lists the routes of the API.
func routesOf(which Routes) []route {
	routes := []route{
		newRoute("GET", "sandboxes", (*Server).handleListV1),
		newRoute("GET", "v2/sandboxes", (*Server).handleList),
		newRoute("GET", "sandboxes/metrics", (*Server).handleMetricsOf), // before that of a sandbox called so
		newRoute("GET", "sandboxes/{}", (*Server).handleInfo),
		newRoute("GET", "sandboxes/{}/metrics", (*Server).handleMetrics),
		newRoute("GET", "sandboxes/{}/logs", (*Server).handleLogsV1),
		newRoute("GET", "v2/sandboxes/{}/logs", (*Server).handleLogs),
		newRoute("GET", "teams/{}/metrics", (*Server).handleTeamMetrics),
		newRoute("GET", "teams/{}/metrics/max", (*Server).handleTeamMetricsMax),
		newRoute("GET", "volumes", (*Server).handleVolumes),
		newRoute("POST", "volumes", (*Server).handleCreateVolume).takes(volumeSchema, true).changing(),
		newRoute("GET", "volumes/{}", (*Server).handleVolume),
		newRoute("DELETE", "volumes/{}", (*Server).handleDeleteVolume),
		newRoute("GET", "secrets", aboutSecrets((*Server).handleSecrets)),
		newRoute("POST", "secrets", aboutSecrets((*Server).handleCreateSecret)).takes(newSecretSchema, true).saying(badSecret).changing(),
		newRoute("GET", "secrets/{}", aboutSecrets((*Server).handleSecret)),
		newRoute("POST", "secrets/{}", aboutSecrets((*Server).handleUpdateSecret)).takes(updateSecretSchema, true).saying(badSecret).changing(),
		newRoute("DELETE", "secrets/{}", aboutSecrets((*Server).handleDeleteSecret)),
		newRoute("DELETE", "sandboxes/{}", (*Server).handleKill),
		newRoute("POST", "sandboxes/{}/resume", (*Server).handleResume).takes(resumeSchema, false).changing(),
		newRoute("POST", "sandboxes/{}/pause", (*Server).handlePause).takes(pauseSchema, false).changing(),
		newRoute("POST", "sandboxes/{}/timeout", (*Server).handleTimeout).takes(timeoutSchema, false).changing(),
		newRoute("POST", "sandboxes/{}/refreshes", (*Server).handleRefresh).takes(refreshSchema, false).changing(),
		newRoute("PUT", "sandboxes/{}/network", (*Server).handleNetwork).takes(networkUpdateSchema, true).changing(),
		newRoute("POST", "sandboxes/{}/snapshots", (*Server).handleSnapshot).takes(snapshotSchema, true).changing(),
		newRoute("POST", "sandboxes/{}/fork", (*Server).handleFork).takes(forkSchema, false).changing(),
		newRoute("GET", "snapshots", (*Server).handleSnapshots),
		newRoute("DELETE", "templates/{}", (*Server).handleDeleteTemplate),
	}
	if which != V2Routes {
		routes = append(routes,
			newRoute("POST", "sandboxes", (*Server).handleCreateV1).takes(createSchemaV1, true).changing(),
			newRoute("POST", "sandboxes/{}/connect", (*Server).handleConnectV1).takes(connectSchemaV1, true).changing())
	}
	if which != V1Routes {
		routes = append(routes,
			newRoute("POST", "v2/sandboxes", (*Server).handleCreateV2).takes(createSchemaV2, true).changing(),
			newRoute("POST", "v2/sandboxes/{}/connect", (*Server).handleConnectV2).takes(connectSchemaV2, false).changing())
	}
	return routes
}

// A RoutePattern is a method and a path, in which {id} stands for one segment.
type RoutePattern struct{ Method, Path string }

// RoutePatterns are those of all routes, of all generations.
func RoutePatterns() []RoutePattern {
	patterns := []RoutePattern{{http.MethodGet, "/health"}}
	for _, r := range routesOf(AllRoutes) {
		patterns = append(patterns, RoutePattern{r.method, "/" + strings.ReplaceAll(strings.Join(r.path, "/"), "{}", "{id}")})
	}
	return patterns
}

// match reports whether the route has that path, split at its slashes, and
// returns the sandbox ID in it.
func (r *route) match(path []string) (id string, ok bool) {
	if len(path) != len(r.path) {
		return "", false
	}
	for i, segment := range r.path {
		switch {
		case segment == "{}":
			unescaped, err := url.PathUnescape(path[i])
			if err != nil {
				return "", false
			}
			id = unescaped
		case segment != path[i]:
			return "", false
		}
	}
	return id, true
}

// find returns the route of a request, or the text of the 404 that E2B gives
// where there is none, also for a wrong method.
func (s *Server) find(r *http.Request) (found *route, id, missing string) {
	path := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	missing = "no matching operation was found"
	for i := range s.routes {
		if id, ok := s.routes[i].match(path); ok {
			if s.routes[i].method == r.Method {
				return &s.routes[i], id, ""
			}
			missing = "method not allowed"
		}
	}
	return nil, "", missing
}

// ServeHTTP answers a request of the REST API.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && r.URL.Path == "/health" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("Health check successful")) // a client that has gone is no error of ours
		return
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	secrets := first == "secrets"
	if secrets {
		w.Header().Set("Cache-Control", "no-store")
	}
	resp, err := s.serve(w, r)
	if err != nil {
		if secrets {
			err = refusedSecrets(err)
		}
		s.log.DebugContext(r.Context(), "refused", "method", r.Method, "path", r.URL.Path, "status", err.Status, "message", err.Message)
		writeError(w, err)
		return
	}
	for name, value := range resp.header {
		w.Header().Set(name, value)
	}
	writeJSON(w, resp.status, resp.body)
}

// serve takes a request through the steps in E2B's order: route, key, schema, rate
// limit, handler.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) (*response, *Error) {
	found, id, missing := s.find(r)
	if found == nil {
		level := slog.LevelWarn
		if s.rootPage && r.URL.Path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			level = slog.LevelDebug
		}
		s.log.Log(r.Context(), level, "the emulator has no such route", "method", r.Method, "path", r.URL.Path)
		return nil, fail(http.StatusNotFound, "validation error: "+missing)
	}
	team, err := s.authenticate(r.Header)
	if err != nil {
		return nil, err
	}
	if team.Blocked != "" && found.changes {
		return nil, fail(http.StatusForbidden, "team is blocked: "+team.Blocked)
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestLimit)
	defer cancel()
	c := &call{ctx: ctx, team: team, rawID: id, query: r.URL.Query()}
	if found.body != nil {
		if c.body, err = readBody(w, r, found.body, found.required); err != nil {
			if found.bad != "" {
				err = fail(http.StatusBadRequest, found.bad)
			}
			return nil, err
		}
	}
	if err := s.limits.take(w.Header(), r, team, found, s.clock.Now()); err != nil {
		return nil, err
	}
	resp, err := found.handle(s, c)
	if found.method != http.MethodGet {
		s.saveChanges()
	}
	return resp, err
}

func writeError(w http.ResponseWriter, err *Error) {
	if err.Message == "" {
		w.WriteHeader(err.Status)
		return
	}
	body := struct {
		Code      int    `json:"code"`
		ErrorCode string `json:"error_code,omitempty"`
		Message   string `json:"message"`
	}{err.Status, err.Code, err.Message}
	writeJSON(w, err.Status, body)
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	if body == nil {
		w.WriteHeader(status)
		return
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(bytes.TrimSuffix(b.Bytes(), []byte("\n"))) // a client that has gone is no error of ours
}

var sandboxID = regexp.MustCompile(`^([a-z0-9]+)(?:-[a-z0-9]+)?$`)

// id is the short form of the sandbox ID.
func (c *call) id() (string, *Error) {
	m := sandboxID.FindStringSubmatch(c.rawID)
	if m == nil {
		return "", fail(http.StatusBadRequest, "Invalid sandbox ID")
	}
	return m[1], nil
}

func (s *Server) handleCreateV1(c *call) (*response, *Error) {
	return s.handleCreate(c, 15*time.Second, false)
}

func (s *Server) handleCreateV2(c *call) (*response, *Error) {
	return s.handleCreate(c, 300*time.Second, true)
}

func (s *Server) handleCreate(c *call, timeout time.Duration, secure bool) (*response, *Error) {
	var body createBody
	if err := decode(c.body, &body); err != nil {
		return nil, err
	}
	template, from, err := s.template(c.team, body.TemplateID)
	if err != nil {
		return nil, err
	}
	sb := &settings{
		team: c.team, template: template, base: template.alias(), envd: template.EnvdVersion, env: body.EnvVars, metadata: body.Metadata, timeout: body.Timeout.or(timeout),
		autoPause: body.AutoPause, autoPauseMemory: body.AutoPauseMemory == nil || *body.AutoPauseMemory,
		autoResume: body.AutoResume.Enabled, secure: body.Secure || secure,
		allowInternet: body.AllowInternetAccess, network: body.Network, volumes: body.VolumeMounts,
	}
	if from != nil {
		sb.base, sb.envd, sb.env = from.from.base, from.from.envd, from.from.envWith(body.EnvVars)
	}
	if err := sb.check(&body); err != nil {
		return nil, err
	}
	if err := s.checkMounts(c.team, body.VolumeMounts); err != nil {
		return nil, err
	}
	if err := s.create(c.ctx, sb, from); err != nil {
		return nil, err
	}
	return &response{status: http.StatusCreated, body: s.view(sb)}, nil
}

// check applies the rules of create that go beyond the schema.
func (c *settings) check(body *createBody) *Error {
	if err := checkNewTimeout(c.team, c.timeout); err != nil {
		return err
	}
	switch {
	case !c.autoPauseMemory && !c.autoPause:
		return fail(http.StatusBadRequest, "autoPauseMemory=false only applies when autoPause is true.")
	case !c.autoPauseMemory && c.autoResume:
		return fail(http.StatusBadRequest, "autoPauseMemory=false (filesystem-only auto-pause) cannot be combined with autoResume: "+
			"a filesystem-only snapshot cannot be auto-resumed by traffic and must be resumed explicitly.")
	case c.secure && VersionBefore(c.envd, "0.2.0"):
		return fail(http.StatusBadRequest, "Template is not compatible with secured access. "+
			"Please visit https://e2b.dev/docs/sandbox/secured-access for more information.")
	}
	if c.network != nil {
		if err := c.network.check(); err != nil {
			return err
		}
	}
	if c.private() && !c.secure {
		return fail(http.StatusBadRequest, "You cannot create a sandbox without public access unless you enable secure envd access via 'secure' flag.")
	}
	if len(body.IAM.Tokens) > 0 {
		return fail(http.StatusBadRequest, "Sandbox IAM workload tokens are not available for your team.")
	}
	return nil
}

// checkNewTimeout is for requests that demand more than zero, although the
// schema allows zero.
func checkNewTimeout(team *Team, timeout time.Duration) *Error {
	if timeout <= 0 {
		return fail(http.StatusBadRequest, "Timeout must be greater than 0")
	}
	return team.checkTimeout(timeout)
}

func (s *Server) handleConnectV1(c *call) (*response, *Error) {
	return s.handleConnect(c, 0) // the schema demands one
}

func (s *Server) handleConnectV2(c *call) (*response, *Error) {
	return s.handleConnect(c, 300*time.Second)
}

func (s *Server) handleConnect(c *call, timeout time.Duration) (*response, *Error) {
	var body resumeBody
	if err := decode(c.body, &body); err != nil {
		return nil, err
	}
	opts := resumeOptions{timeout: body.Timeout.or(timeout), reboot: body.Memory != nil && !*body.Memory}
	if err := c.team.checkTimeout(opts.timeout); err != nil {
		return nil, err
	}
	id, err := c.id()
	if err != nil {
		return nil, err
	}
	sb, resumed, err := s.connect(c.ctx, c.team, id, opts)
	if err != nil {
		return nil, err
	}
	status := http.StatusOK
	if resumed {
		status = http.StatusCreated
	}
	return &response{status: status, body: s.view(sb)}, nil
}

func (s *Server) handleResume(c *call) (*response, *Error) {
	var body resumeBody
	if err := decode(c.body, &body); err != nil {
		return nil, err
	}
	opts := resumeOptions{
		timeout: body.Timeout.or(15 * time.Second), reboot: body.Memory != nil && !*body.Memory, autoPause: body.AutoPause,
	}
	if err := checkNewTimeout(c.team, opts.timeout); err != nil {
		return nil, err
	}
	id, err := c.id()
	if err != nil {
		return nil, err
	}
	sb, err := s.resume(c.ctx, c.team, id, opts)
	if err != nil {
		return nil, err
	}
	return &response{status: http.StatusCreated, body: s.view(sb)}, nil
}

func (s *Server) handlePause(c *call) (*response, *Error) {
	var body pauseBody
	if err := decode(c.body, &body); err != nil {
		return nil, err
	}
	id, err := c.id()
	if err != nil {
		return nil, err
	}
	return noContent(s.pause(c.ctx, c.team, id, body.Memory == nil || *body.Memory))
}

func (s *Server) handleKill(c *call) (*response, *Error) {
	id, err := c.id()
	if err != nil {
		return nil, err
	}
	return noContent(s.kill(c.ctx, c.team, id))
}

// handleTimeout takes an absent body for zero, which ends the sandbox at once:
// so does E2B.
func (s *Server) handleTimeout(c *call) (*response, *Error) {
	return s.handleSetTimeout(c, false, func(body *timeoutBody) time.Duration { return body.Timeout.or(0) })
}

func (s *Server) handleRefresh(c *call) (*response, *Error) {
	const least = 15 * time.Second
	return s.handleSetTimeout(c, true, func(body *timeoutBody) time.Duration { return max(least, body.Duration.or(least)) })
}

func (s *Server) handleSetTimeout(c *call, onlyExtend bool, timeout func(*timeoutBody) time.Duration) (*response, *Error) {
	var body timeoutBody
	if err := decode(c.body, &body); err != nil {
		return nil, err
	}
	id, err := c.id()
	if err != nil {
		return nil, err
	}
	return noContent(s.setTimeout(c.team, id, timeout(&body), onlyExtend))
}

func noContent(err *Error) (*response, *Error) {
	if err != nil {
		return nil, err
	}
	return &response{status: http.StatusNoContent}, nil
}

func (s *Server) handleInfo(c *call) (*response, *Error) {
	id, err := c.id()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sb := s.live[id]; sb != nil && sb.team == c.team {
		if state := views[sb.state].info; state != "" {
			return &response{status: http.StatusOK, body: s.detail(sb.settings, sb.listed(state))}, nil
		}
	} else if snap := s.stored[id]; snap != nil && snap.team == c.team {
		listed := snap.listed()
		listed.VolumeMounts = nil
		return &response{status: http.StatusOK, body: s.detail(snap.settings, listed)}, nil
	}
	return nil, notFound.refusal(c.rawID) // this route shows the ID as it was sent
}

func (s *Server) handleList(c *call) (*response, *Error) {
	query, err := parseListQuery(c.query)
	if err != nil {
		return nil, err
	}
	items, nextToken, total := s.list(c.team, query)
	resp := &response{status: http.StatusOK, header: make(map[string]string), body: nonNil(items)}
	if nextToken != "" {
		resp.header["X-Next-Token"] = nextToken
	}
	if query.running {
		resp.header["X-Total-Running"] = strconv.Itoa(total)
	}
	return resp, nil
}

func (s *Server) handleListV1(c *call) (*response, *Error) {
	query := &listQuery{running: true, limit: int(^uint(0) >> 1)}
	if metadata, ok := c.query["metadata"]; ok {
		var err error
		if query.metadata, err = parseMetadata(metadata[0]); err != nil {
			return nil, fail(http.StatusBadRequest, "Error parsing metadata: "+err.Error())
		}
	}
	items, _, _ := s.list(c.team, query)
	return &response{status: http.StatusOK, body: nonNil(items)}, nil
}

// nonNil makes an empty list [] and not null.
func nonNil[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}
