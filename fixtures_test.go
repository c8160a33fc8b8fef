package e2b_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

const exchangeDir = "testdata/control-plane"

// An exchange is a recorded request and its answer.
type exchange struct {
	Request struct {
		To      string            `json:"to"`
		Method  string            `json:"method"`
		Path    string            `json:"path"`
		Query   string            `json:"query"`
		Headers map[string]string `json:"headers"`
	} `json:"request"`
	Response struct {
		Status  int               `json:"status"`
		Headers map[string]string `json:"headers"`
		Body    json.RawMessage   `json:"body"` // JSON, null for none, or a string for text
	} `json:"response"`
}

func readExchange(tb testing.TB, name string) *exchange {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join(exchangeDir, name+".json"))
	require.NoError(tb, err)
	e := new(exchange)
	require.NoError(tb, json.Unmarshal(b, e))
	return e
}

func (e *exchange) body(tb testing.TB) string {
	tb.Helper()
	if len(e.Response.Body) == 0 || string(e.Response.Body) == "null" {
		return ""
	}
	if e.Response.Body[0] != '"' {
		return string(e.Response.Body)
	}
	var text string
	require.NoError(tb, json.Unmarshal(e.Response.Body, &text))
	return text
}

// answer is the recorded answer as it was.
func (e *exchange) answer(tb testing.TB) apiAnswer {
	tb.Helper()
	var header []string
	for name, value := range e.Response.Headers {
		header = append(header, name, value)
	}
	return answerText(e.Response.Status, e.body(tb), header...)
}

func answerRecorded(tb testing.TB, name string) apiAnswer {
	tb.Helper()
	return readExchange(tb, name).answer(tb)
}

// A wantRequest is a request that the SDK must send, to the letter.
type wantRequest struct {
	method, path string
	query        url.Values
	body         string // JSON; "" for none
}

func sendCreate(body string) wantRequest {
	return wantRequest{method: http.MethodPost, path: "/sandboxes", body: body}
}

func sendCreateV2(body string) wantRequest {
	return wantRequest{method: http.MethodPost, path: "/v2/sandboxes", body: body}
}

func sendConnect(body string) wantRequest {
	return wantRequest{method: http.MethodPost, path: "/sandboxes/" + apiTestID + "/connect", body: body}
}

func sendPause(body string) wantRequest {
	return wantRequest{method: http.MethodPost, path: "/sandboxes/" + apiTestID + "/pause", body: body}
}

func sendTimeout(body string) wantRequest {
	return wantRequest{method: http.MethodPost, path: "/sandboxes/" + apiTestID + "/timeout", body: body}
}

func sendKill() wantRequest {
	return wantRequest{method: http.MethodDelete, path: "/sandboxes/" + apiTestID}
}

func sendInfo() wantRequest {
	return wantRequest{method: http.MethodGet, path: "/sandboxes/" + apiTestID}
}

// sendList is a list with a query of names and values in turn.
func sendList(query ...string) wantRequest { return sendListTo("/v2/sandboxes", query...) }

func sendListTo(path string, query ...string) wantRequest {
	q := url.Values{}
	for i := 0; i < len(query); i += 2 {
		q.Set(query[i], query[i+1])
	}
	return wantRequest{method: http.MethodGet, path: path, query: q}
}

func requireSent(t *testing.T, want wantRequest, key string, got sentRequest) {
	t.Helper()
	require.Equal(t, want.method, got.Method)
	require.Equal(t, apiTestURL, got.Scheme+"://"+got.Host)
	require.Equal(t, want.path, got.Path)
	if want.query == nil {
		want.query = url.Values{}
	}
	require.Equal(t, want.query, decodedQuery(t, got.Query))
	header := http.Header{
		"X-Api-Key":  {key},
		"Accept":     {"application/json"},
		"User-Agent": {"e2b-go/" + e2b.Version},
	}
	if want.body != "" {
		header.Set("Content-Type", "application/json")
		require.JSONEq(t, want.body, got.Body)
	} else {
		require.Empty(t, got.Body)
	}
	require.Equal(t, header, got.Header)
}

// A wantError is how a call must fail.
type wantError struct {
	kinds         []error
	status        int
	code, message string
	state         e2b.State
}

// failsWith is a wantError without what is rare.
func failsWith(status int, message string, kinds ...error) wantError {
	return wantError{kinds: kinds, status: status, message: message}
}

var sandboxUnknown = failsWith(404, `Sandbox "`+apiTestID+`" doesn't exist or you don't have access to it`, e2b.ErrSandboxNotFound)

func quotaReached() wantError {
	return failsWith(429,
		"you have reached the maximum number of concurrent E2B sandboxes (2). If you need more, please visit 'https://e2b.dev/docs/billing'",
		e2b.ErrQuotaExceeded, e2b.ErrRateLimited)
}

func badRequest(message string) wantError { return failsWith(400, message, e2b.ErrInvalidArgument) }

func badSchema(message string) wantError {
	return badRequest("validation error: error in openapi3filter.RequestError: " + message)
}

// A recordedCall is one call of the SDK that a recorded exchange answers.
type recordedCall struct {
	file string
	op   string
	call func(context.Context, *e2b.Client) (any, error)
	// answers are the files that answer the requests in turn; nil for file alone.
	answers []string
	sent    []wantRequest
	want    any // the value, or a wantError
	// refused makes the recorded request, where the SDK can be asked for it but
	// does not send it. call is then one to which the server could say the same.
	refused func(context.Context, *e2b.Client) error
}

// refusing adds to a call that the recorded request itself is refused.
func (r recordedCall) refusing(f func(context.Context, *e2b.Client) error) recordedCall {
	r.refused = f
	return r
}

// answeredBy adds to a call that other files answer requests of it, too.
func (r recordedCall) answeredBy(files ...string) recordedCall {
	r.answers = files
	return r
}

// sending replaces the requests of a call.
func (r recordedCall) sending(requests ...wantRequest) recordedCall {
	r.sent = requests
	return r
}

func viewOrError(s *e2b.Sandbox, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return viewOf(s), nil
}

// creating creates without a token, which has a test of its own.
func creating(file string, opts e2b.CreateOptions, body string, want any) recordedCall {
	opts.NoToken = true
	return recordedCall{
		file: file, op: "create", sent: []wantRequest{sendCreate(body)}, want: want,
		call: func(ctx context.Context, c *e2b.Client) (any, error) { return viewOrError(c.Create(ctx, &opts)) },
	}
}

// creatingBase creates as plainly as possible.
func creatingBase(file string, want any) recordedCall {
	return creating(file, e2b.CreateOptions{}, `{"templateID":"base","timeout":300,"secure":true}`, want)
}

func connecting(file string, opts e2b.ConnectOptions, body string, want any) recordedCall {
	return recordedCall{
		file: file, op: "connect", sent: []wantRequest{sendConnect(body)}, want: want,
		call: func(ctx context.Context, c *e2b.Client) (any, error) {
			return viewOrError(c.Connect(ctx, apiTestID, &opts))
		},
	}
}

// connectingMinute connects for a minute.
func connectingMinute(file string, want any) recordedCall {
	return connecting(file, e2b.ConnectOptions{Timeout: time.Minute}, `{"timeout":60}`, want)
}

func pausing(file string, want any) recordedCall {
	return recordedCall{
		file: file, op: "pause", sent: []wantRequest{sendPause(`{}`)}, want: want,
		call: func(ctx context.Context, c *e2b.Client) (any, error) { return c.Pause(ctx, apiTestID, nil) },
	}
}

func killing(file string, want any) recordedCall {
	return recordedCall{
		file: file, op: "kill", sent: []wantRequest{sendKill()}, want: want,
		call: func(ctx context.Context, c *e2b.Client) (any, error) { return c.Kill(ctx, apiTestID) },
	}
}

func settingTimeout(file string, d time.Duration, body string, want any) recordedCall {
	return recordedCall{
		file: file, op: "set timeout", sent: []wantRequest{sendTimeout(body)}, want: want,
		call: func(ctx context.Context, c *e2b.Client) (any, error) { return nil, c.SetTimeout(ctx, apiTestID, d) },
	}
}

// settingMinute sets a minute.
func settingMinute(file string, want any) recordedCall {
	return settingTimeout(file, time.Minute, `{"timeout":60}`, want)
}

func asking(file string, want any) recordedCall {
	return recordedCall{
		file: file, op: "info", sent: []wantRequest{sendInfo()}, want: want,
		call: func(ctx context.Context, c *e2b.Client) (any, error) {
			info, err := c.Info(ctx, apiTestID)
			if err != nil {
				return nil, err
			}
			return *info, nil
		},
	}
}

func listing(file string, opts e2b.ListOptions, sent wantRequest, want any) recordedCall {
	return recordedCall{
		file: file, op: "list", sent: []wantRequest{sent}, want: want,
		call: func(ctx context.Context, c *e2b.Client) (any, error) {
			page, err := c.ListPage(ctx, &opts)
			if err != nil {
				return nil, err
			}
			return *page, nil
		},
	}
}

// handleView is the handle that creates and connects answer.
func handleView(change ...func(*sandboxView)) sandboxView {
	v := sandboxView{
		ID: apiTestID, Domain: "e2b.test", EnvdVersion: "0.6.13", RecordVersion: "0.6.13",
		EnvdToken: envdTestKey, Lifetime: 5 * time.Minute,
	}
	for _, f := range change {
		f(&v)
	}
	return v
}

func insecureView(v *sandboxView) { v.EnvdToken = "" }

func resumedView(v *sandboxView) { v.Resumed = true }

func livesFor(d time.Duration) func(*sandboxView) {
	return func(v *sandboxView) { v.Lifetime = d }
}

// detailOf is a sandbox as info shows it.
func detailOf(state e2b.State, started, ends string, change ...func(*e2b.SandboxInfo)) e2b.SandboxInfo {
	i := e2b.SandboxInfo{
		ID: apiTestID, TemplateID: "rki5dems9wqfm4r03t7g", Alias: "base", State: state,
		StartedAt: at("2026-01-02T03:0" + started + "Z"), EndAt: at("2026-01-0" + ends + "Z"),
		CPUCount: 2, MemoryMiB: 512, DiskMiB: 1982, EnvdVersion: "0.6.13", OnTimeout: e2b.TimeoutKill,
	}
	for _, f := range change {
		f(&i)
	}
	return i
}

func pausesItself(i *e2b.SandboxInfo) { i.OnTimeout = e2b.TimeoutPause }

func resumesItself(i *e2b.SandboxInfo) { i.AutoResume = true }

// withFull has what the sandbox of create-full was created with.
func withFull(i *e2b.SandboxInfo) {
	i.AllowInternet, i.AutoResume = new(bool), true
	i.Metadata = map[string]string{"app": "prod", "user": "abc"}
}

func withMetadata(m map[string]string) func(*e2b.SandboxInfo) {
	return func(i *e2b.SandboxInfo) { i.Metadata = m }
}

func withNetwork(allow, deny []string) func(*e2b.SandboxInfo) {
	return func(i *e2b.SandboxInfo) {
		i.Network = &e2b.Network{AllowOut: allow, DenyOut: deny, AllowPublicTraffic: new(bool), MaskRequestHost: "localhost:${PORT}"}
	}
}

// itemOf is a sandbox as the lists of the recordings show it: the n-th created
// of five, of which the first two were paused.
func itemOf(id, n string) e2b.SandboxInfo {
	times := map[string][2]string{
		"0": {"4:05.017678", "2T03:04:05.229262"},
		"1": {"4:05.066356", "2T03:04:05.240322"},
		"2": {"4:05.115766729", "2T03:14:05.115766729"},
		"3": {"4:05.165196987", "2T03:14:05.165196987"},
		"4": {"4:05.205458539", "2T03:14:05.205458539"},
	}[n]
	state := e2b.StateRunning
	if n < "2" {
		state = e2b.StatePaused
	}
	return detailOf(state, times[0], times[1], func(i *e2b.SandboxInfo) {
		i.ID = "isandbox000000000000" + id
		i.OnTimeout = e2b.TimeoutDefault // lists do not tell
		i.Metadata = map[string]string{"list": "yes", "n": n, "odd": "a&b=c d+e%f/ü"}
	})
}

func pageOf(next string, items ...e2b.SandboxInfo) e2b.Page[e2b.SandboxInfo] {
	if items == nil {
		items = []e2b.SandboxInfo{}
	}
	return e2b.Page[e2b.SandboxInfo]{Items: items, NextToken: next}
}

// The page tokens of the recordings, by what they stand behind.
const (
	tokenAfter0 = "MjAyNi0wMS0wMlQwMzowNDowNS4yMDU0NThaX19pc2FuZGJveDAwMDAwMDAwMDAwMDE="
	tokenAfter1 = "MjAyNi0wMS0wMlQwMzowNDowNS4xNjUxOTZaX19pc2FuZGJveDAwMDAwMDAwMDAwMDE="
	tokenAfter2 = "MjAyNi0wMS0wMlQwMzowNDowNS4wNjYzNTZaX19pc2FuZGJveDAwMDAwMDAwMDAwMDI="
	tokenFor3   = "MjAyNi0wMS0wMlQwMzowNDowNS4wNjYzNTZaX19pc2FuZGJveDAwMDAwMDAwMDAwMDE="
	tokenAsc    = "MjAyNi0wMS0wMlQwMzowNDowNS4wNjYzNTZaX19pc2FuZGJveDAwMDAwMDAwMDAwMDFfX2FzYw=="
)

// recordedCalls has a row for every recorded exchange whose route the SDK has.
func recordedCalls() []recordedCall {
	return slices.Concat(lifecycleCalls(), snapshotCalls(), forkCalls(), metricsCalls(), refreshCalls(), logCalls(), volumeCalls(), secretCalls(), networkCalls())
}

// lifecycleCalls are the rows about single sandboxes and their list.
func lifecycleCalls() []recordedCall {
	yes, no := true, false
	unauthenticated := func(message string) wantError { return failsWith(401, message, e2b.ErrUnauthenticated) }
	invalidKey := "Invalid API key, please visit https://e2b.dev/docs/api-key for more information. "
	noTemplate := func(message string) wantError { return failsWith(404, message, e2b.ErrNotFound) }
	busy := func(what string) wantError {
		return failsWith(409, `Sandbox "`+apiTestID+`" is being `+what, e2b.ErrConflict)
	}
	noRoute := func(message string) wantError {
		return failsWith(404, "validation error: "+message, e2b.ErrNotSupported)
	}
	full := e2b.CreateOptions{
		Timeout: 10 * time.Minute, OnTimeout: e2b.TimeoutPause, AutoResume: &yes, NoInternet: true,
		Metadata: map[string]string{"user": "abc", "app": "prod"}, Env: map[string]string{"FOO": "bar"},
	}
	both := []e2b.State{e2b.StateRunning, e2b.StatePaused}
	odd := map[string]string{"odd": "a&b=c d+e%f/ü"}
	oddTwice := "odd=a%2526b%253Dc%2Bd%252Be%2525f%252F%25C3%25BC"

	return []recordedCall{
		// Who asks.
		creatingBase("auth-bad-key-and-bad-body", unauthenticated(invalidKey+"Cannot get the team for the given API key")),
		listing("auth-banned-list", e2b.ListOptions{}, sendList(), failsWith(403, "team is banned", e2b.ErrForbidden)),
		creatingBase("auth-blocked-create", failsWith(403, "team is blocked: payment failed", e2b.ErrForbidden)),
		creatingBase("auth-missing", unauthenticated("authorization header is missing")),
		creatingBase("auth-no-prefix", unauthenticated("authorization header is malformed")),
		creatingBase("auth-not-hex", unauthenticated(invalidKey+"Invalid API key format")),
		creatingBase("auth-unknown-key", unauthenticated(invalidKey+"Cannot get the team for the given API key")),

		// Create.
		creating("create-default", e2b.CreateOptions{Insecure: true}, `{"templateID":"base","timeout":300}`, handleView(insecureView)),
		creating("create-code-interpreter", e2b.CreateOptions{Template: "code-interpreter-v1", Timeout: time.Minute},
			`{"templateID":"code-interpreter-v1","timeout":60,"secure":true}`, handleView(livesFor(time.Minute))),
		creating("create-full", full,
			`{"templateID":"base","timeout":600,"secure":true,"autoPause":true,"autoResume":{"enabled":true},
			 "metadata":{"user":"abc","app":"prod"},"envVars":{"FOO":"bar"},"allow_internet_access":false}`,
			handleView(livesFor(10*time.Minute))),
		creating("create-private", e2b.CreateOptions{
			Timeout: 10 * time.Minute, OnTimeout: e2b.TimeoutPause,
			Network: &e2b.Network{
				AllowPublicTraffic: &no, DenyOut: []string{"0.0.0.0/0"}, AllowOut: []string{"example.com", "8.8.8.8"},
				MaskRequestHost: "localhost:${PORT}",
			},
		}, `{"templateID":"base","timeout":600,"secure":true,"autoPause":true,"network":{"allowPublicTraffic":false,
			 "denyOut":["0.0.0.0/0"],"allowOut":["example.com","8.8.8.8"],"maskRequestHost":"localhost:${PORT}"}}`,
			handleView(livesFor(10*time.Minute), func(v *sandboxView) { v.TrafficToken = portTestKey })),
		creating("create-from-snapshot-named", e2b.CreateOptions{Template: "local-dev-team/rig-snap:v1", Timeout: time.Minute, Insecure: true},
			`{"templateID":"local-dev-team/rig-snap:v1","timeout":60}`, handleView(insecureView, livesFor(time.Minute))),
		creating("create-from-snapshot-unnamed", e2b.CreateOptions{Template: "template000000000001:default", Timeout: time.Minute, Insecure: true},
			`{"templateID":"template000000000001:default","timeout":60}`, handleView(insecureView, livesFor(time.Minute))),
		creating("create-autopausememory-with-autoresume", e2b.CreateOptions{OnTimeout: e2b.TimeoutPauseFilesystem},
			`{"templateID":"base","timeout":300,"secure":true,"autoPause":true,"autoPauseMemory":false}`,
			badRequest("autoPauseMemory=false (filesystem-only auto-pause) cannot be combined with autoResume: a filesystem-only snapshot cannot be auto-resumed by traffic and must be resumed explicitly.")).
			refusing(func(ctx context.Context, c *e2b.Client) error {
				_, err := c.Create(ctx, &e2b.CreateOptions{OnTimeout: e2b.TimeoutPauseFilesystem, AutoResume: &yes})
				return err
			}),
		// The options cannot say autoPauseMemory without autoPause.
		creating("create-autopausememory-without-autopause", e2b.CreateOptions{OnTimeout: e2b.TimeoutKill, AutoResume: &no},
			`{"templateID":"base","timeout":300,"secure":true,"autoPause":false,"autoResume":{"enabled":false}}`,
			badRequest("autoPauseMemory=false only applies when autoPause is true.")),
		creating("create-bad-template-name", e2b.CreateOptions{Template: "not valid!"}, `{"templateID":"not valid!","timeout":300,"secure":true}`,
			badRequest("Invalid template reference: invalid template ID: not valid!")),
		creating("create-foreign-private-template", e2b.CreateOptions{Template: "p2nd0000000000000000"},
			`{"templateID":"p2nd0000000000000000","timeout":300,"secure":true}`, noTemplate("template 'p2nd0000000000000000' not found")),
		creating("create-unknown-namespaced", e2b.CreateOptions{Template: "nobody/no-such-template"},
			`{"templateID":"nobody/no-such-template","timeout":300,"secure":true}`, noTemplate("template 'nobody/no-such-template' not found")),
		creating("create-unknown-tag", e2b.CreateOptions{Template: "base:v9"}, `{"templateID":"base:v9","timeout":300,"secure":true}`,
			noTemplate("tag 'v9' does not exist for template 'base'")),
		creating("create-unknown-template", e2b.CreateOptions{Template: "no-such-template"},
			`{"templateID":"no-such-template","timeout":300,"secure":true}`, noTemplate("template 'no-such-template' not found")),
		creating("create-template-without-build", e2b.CreateOptions{Template: "no-build"}, `{"templateID":"no-build","timeout":300,"secure":true}`,
			noTemplate("tag 'default' does not exist for template 'no-build'")),
		creating("create-old-envd-secure", e2b.CreateOptions{Template: "old-envd"}, `{"templateID":"old-envd","timeout":300,"secure":true}`,
			badRequest("Template is not compatible with secured access. Please visit https://e2b.dev/docs/sandbox/secured-access for more information.")),
		creating("create-private-not-secure", e2b.CreateOptions{Insecure: true, Network: &e2b.Network{AllowPublicTraffic: &no}},
			`{"templateID":"base","timeout":300,"network":{"allowPublicTraffic":false}}`,
			badRequest("You cannot create a sandbox without public access unless you enable secure envd access via 'secure' flag.")),
		creating("create-network-bad-deny", e2b.CreateOptions{Network: &e2b.Network{DenyOut: []string{"1.1.1.1"}}},
			`{"templateID":"base","timeout":300,"secure":true,"network":{"denyOut":["1.1.1.1"]}}`, badRequest("invalid denied CIDR example.com")).
			refusing(func(ctx context.Context, c *e2b.Client) error {
				_, err := c.Create(ctx, &e2b.CreateOptions{Network: &e2b.Network{DenyOut: []string{"example.com"}}})
				return err
			}),
		creating("create-network-domain-without-deny", e2b.CreateOptions{Network: &e2b.Network{AllowOut: []string{"1.1.1.1"}}},
			`{"templateID":"base","timeout":300,"secure":true,"network":{"allowOut":["1.1.1.1"]}}`,
			badRequest("When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out to block all other traffic.")).
			refusing(func(ctx context.Context, c *e2b.Client) error {
				_, err := c.Create(ctx, &e2b.CreateOptions{Network: &e2b.Network{AllowOut: []string{"example.com"}}})
				return err
			}),
		creating("create-timeout-negative", e2b.CreateOptions{Timeout: time.Second}, `{"templateID":"base","timeout":1,"secure":true}`,
			badSchema(`request body has an error: doesn't match schema #/components/schemas/NewSandbox: Error at "/timeout": number must be at least 0`)).
			refusing(func(ctx context.Context, c *e2b.Client) error {
				_, err := c.Create(ctx, &e2b.CreateOptions{Timeout: -time.Second})
				return err
			}),
		creating("create-timeout-too-large", e2b.CreateOptions{Timeout: 24*time.Hour + time.Second},
			`{"templateID":"base","timeout":86401,"secure":true}`, badRequest("Timeout cannot be greater than 24 hours")),
		// No option sends a zero: it stands for the default.
		creatingBase("create-timeout-zero", badRequest("Timeout must be greater than 0")),
		creatingBase("create-quota-429", quotaReached()),
		creatingBase("create-node-fails-500", wantError{
			status: 500, code: "sandbox_create_failed",
			message: "Failed to place sandbox: sandbox creation failed on 1 node(s), please retry; if the problem persists, contact us",
		}),
		creatingBase("create-node-precondition-500", wantError{
			status: 500, code: "sandbox_create_failed", message: "Failed to place sandbox: injected FailedPrecondition",
		}),
		creatingBase("create-nodes-full-504", wantError{
			status: 504, code: "sandbox_placement_timeout", message: "Failed to place sandbox: placement timed out after 1 attempt(s), please retry",
		}),
		creatingBase("create-placement-timeout-504", wantError{
			status: 504, code: "sandbox_placement_timeout", message: "Failed to place sandbox: placement timed out after 1 attempt(s), please retry",
		}),
		// Bodies that the SDK cannot be made to send.
		creatingBase("create-broken-json", badSchema("request body has an error: failed to decode request body: unexpected EOF")),
		creatingBase("create-missing-template", badSchema(`request body has an error: doesn't match schema #/components/schemas/NewSandbox: Error at "/templateID": property "templateID" is missing`)),
		creatingBase("create-no-body", badSchema("request body has an error: value is required but missing")),
		creatingBase("create-nulls-400", badSchema(`request body has an error: doesn't match schema #/components/schemas/NewSandbox: Error at "/envVars": Value is not nullable`)),
		creating("create-volume-unknown", e2b.CreateOptions{Volumes: map[string]string{"/mnt/y": "nope", "/mnt/x": "nope"}},
			`{"templateID":"base","timeout":300,"secure":true,"volumeMounts":[{"name":"nope","path":"/mnt/x"},{"name":"nope","path":"/mnt/y"}]}`,
			badRequest("invalid mounts: - volume mount #0: volume 'nope' not found - volume mount #1: volume 'nope' not found")).
			refusing(func(ctx context.Context, c *e2b.Client) error {
				_, err := c.Create(ctx, &e2b.CreateOptions{Volumes: map[string]string{"/mnt/x": "nope", "rel": "nope"}})
				return err
			}),
		creatingBase("create-wrong-type", badSchema(`request body has an error: doesn't match schema #/components/schemas/NewSandbox: Error at "/timeout": value must be an integer`)),

		// Connect.
		connecting("connect-running-200", e2b.ConnectOptions{Timeout: 15 * time.Minute}, `{"timeout":900}`, handleView(livesFor(15*time.Minute))),
		connecting("connect-running-shorter-ignored", e2b.ConnectOptions{Timeout: 10 * time.Second}, `{"timeout":10}`, handleView(livesFor(10*time.Second))),
		connecting("connect-paused-201", e2b.ConnectOptions{}, `{"timeout":300}`, handleView(resumedView)),
		connecting("connect-slow-201", e2b.ConnectOptions{Timeout: 5 * time.Minute}, `{"timeout":300}`, handleView(resumedView, insecureView)),
		connecting("pausing-connect-waits-201", e2b.ConnectOptions{}, `{"timeout":300}`, handleView(resumedView, insecureView)),
		connecting("connect-paused-memory-false-201", e2b.ConnectOptions{Timeout: time.Minute, OnResume: e2b.OnResume{Reboot: true}},
			`{"timeout":60,"memory":false}`, handleView(resumedView, insecureView, livesFor(time.Minute))),
		connecting("connect-paused-memory-false-disabled", e2b.ConnectOptions{Timeout: time.Minute, OnResume: e2b.OnResume{Reboot: true}},
			`{"timeout":60,"memory":false}`, wantError{
				kinds: []error{e2b.ErrInvalidArgument}, status: 400, code: "sandbox_memory_override_disabled",
				message: "Resuming without memory (memory: false) is not enabled for this team; a plain resume still restores memory",
			}),
		connectingMinute("connect-timeout-killed-but-paused-before", handleView(resumedView, insecureView, livesFor(time.Minute))),
		// The long form of an ID is cut to the short one.
		{
			file: "connect-long-id", op: "connect", sent: []wantRequest{sendConnect(`{"timeout":60}`)}, want: handleView(livesFor(time.Minute)),
			call: func(ctx context.Context, c *e2b.Client) (any, error) {
				return viewOrError(c.Connect(ctx, apiTestID+"-6532622b", &e2b.ConnectOptions{Timeout: time.Minute}))
			},
		},
		connectingMinute("connect-bad-id", badRequest("Invalid sandbox ID")).
			refusing(func(ctx context.Context, c *e2b.Client) error {
				_, err := c.Connect(ctx, "Not An Id", nil)
				return err
			}),
		connectingMinute("connect-max-length-exceeded-400", badRequest("Max instance length exceeded")),
		connectingMinute("connect-unknown-404", sandboxUnknown),
		connectingMinute("connect-paused-foreign-404", sandboxUnknown),
		connectingMinute("connect-quota-429", quotaReached()),
		connectingMinute("killing-connect-409", busy("killed")),
		connecting("connect-timeout-too-large", e2b.ConnectOptions{Timeout: 24*time.Hour + time.Second}, `{"timeout":86401}`,
			badRequest("Timeout cannot be greater than 24 hours")),
		connecting("connect-timeout-too-large-unknown-sandbox", e2b.ConnectOptions{Timeout: 24*time.Hour + time.Second}, `{"timeout":86401}`,
			badRequest("Timeout cannot be greater than 24 hours")),
		// No option sends a zero or leaves the timeout out: it would resume a
		// sandbox that ends at once, or be refused.
		connecting("connect-paused-timeout-zero-201", e2b.ConnectOptions{}, `{"timeout":300}`, handleView(resumedView, insecureView)),
		connecting("connect-running-timeout-zero", e2b.ConnectOptions{}, `{"timeout":300}`, handleView()),
		connecting("connect-no-body", e2b.ConnectOptions{}, `{"timeout":300}`, badSchema("request body has an error: value is required but missing")),
		connecting("connect-timeout-missing", e2b.ConnectOptions{}, `{"timeout":300}`,
			badSchema(`request body has an error: doesn't match schema #/components/schemas/ConnectSandbox: Error at "/timeout": property "timeout" is missing`)),

		// Pause.
		pausing("pause-204", true),
		pausing("pause-again-409", false),
		{
			file: "pause-filesystem-only-204", op: "pause", sent: []wantRequest{sendPause(`{"memory":false}`)}, want: true,
			call: func(ctx context.Context, c *e2b.Client) (any, error) {
				return c.Pause(ctx, apiTestID, &e2b.PauseOptions{DropMemory: true})
			},
		},
		{
			file: "pause-second-204", op: "pause", sent: []wantRequest{sendPause(`{}`)}, want: true,
			call: func(ctx context.Context, c *e2b.Client) (any, error) { return c.BetaPause(ctx, apiTestID) },
		},
		pausing("pause-very-slow", true),
		pausing("pausing-pause-joins-204", true),
		pausing("snapshotting-pause-waits-204", true),
		pausing("resuming-pause-409", false),
		pausing("killing-pause", false),
		pausing("pause-foreign-404", sandboxUnknown),
		pausing("pause-killed-404", sandboxUnknown),
		pausing("pause-node-fails-500", failsWith(500, "Error pausing sandbox")),

		// Kill.
		killing("kill-204", true),
		killing("pausing-kill-waits-204", true),
		killing("resuming-kill-204", true),
		killing("snapshotting-kill-waits-204", true),
		killing("kill-bad-id-400", badRequest("Invalid sandbox ID")).
			refusing(func(ctx context.Context, c *e2b.Client) error {
				_, err := c.Kill(ctx, "a/b-c")
				return err
			}),

		// Timeout.
		settingTimeout("timeout-204", 2*time.Minute, `{"timeout":120}`, nil),
		settingTimeout("timeout-too-large-clamped-204", 240*time.Hour, `{"timeout":864000}`, nil),
		settingMinute("timeout-max-length-exceeded-400", badRequest("Max instance length exceeded")),
		settingMinute("killing-timeout-409", busy("killed")),
		settingMinute("pausing-timeout-409", busy("paused")),
		settingMinute("snapshotting-timeout-409", busy("snapshotted")),
		settingMinute("timeout-unknown-404", sandboxUnknown).
			answeredBy("timeout-unknown-404", "info-killed-404").sending(sendTimeout(`{"timeout":60}`), sendInfo()),
		settingMinute("timeout-paused-404", wantError{
			kinds: []error{e2b.ErrSandboxNotRunning}, status: 404, message: sandboxUnknown.message, state: e2b.StatePaused,
		}).answeredBy("timeout-paused-404", "info-paused").sending(sendTimeout(`{"timeout":60}`), sendInfo()),
		settingMinute("resuming-timeout-404", wantError{
			kinds: []error{e2b.ErrSandboxNotRunning}, status: 404, message: sandboxUnknown.message, state: e2b.StatePaused,
		}).answeredBy("resuming-timeout-404", "resuming-info").sending(sendTimeout(`{"timeout":60}`), sendInfo()),
		settingMinute("timeout-zero-204", nil).refusing(func(ctx context.Context, c *e2b.Client) error {
			return c.SetTimeout(ctx, apiTestID, 0)
		}),
		settingMinute("timeout-negative-400", badSchema(`request body has an error: doesn't match schema #/components/schemas/SandboxTimeoutRequest: Error at "/timeout": number must be at least 0`)).
			refusing(func(ctx context.Context, c *e2b.Client) error { return c.SetTimeout(ctx, apiTestID, -time.Second) }),
		// There is always a body, and whole seconds in it.
		settingMinute("timeout-no-body-204-kills", nil),
		settingMinute("timeout-missing-400", badSchema(`request body has an error: doesn't match schema #/components/schemas/SandboxTimeoutRequest: Error at "/timeout": property "timeout" is missing`)),
		settingTimeout("timeout-wrong-type-400", 1500*time.Millisecond, `{"timeout":2}`,
			badSchema(`request body has an error: doesn't match schema #/components/schemas/SandboxTimeoutRequest: Error at "/timeout": value must be an integer`)),

		// Info.
		asking("info-default", detailOf("running", "4:05.404457276", "2T03:04:20.404457276")),
		asking("info-full", detailOf("running", "4:05.44537947", "2T03:14:05.44537947", withFull, pausesItself)),
		asking("info-private", detailOf("running", "4:05.475069752", "2T03:14:05.475069752", pausesItself,
			withNetwork([]string{"example.com", "8.8.8.8"}, []string{"0.0.0.0/0"}))),
		asking("info-with-volume", detailOf("running", "4:05.807851668", "2T03:05:05.807851668", func(i *e2b.SandboxInfo) {
			i.Volumes = map[string]string{"/mnt/data": "rigvol"}
		})),
		asking("info-after-connect-extended", detailOf("running", "4:05.44537947", "2T03:19:05.602126578", withFull, pausesItself)),
		asking("info-after-connect-shorter", detailOf("running", "4:05.44537947", "2T03:19:05.602126578", withFull, pausesItself)),
		asking("info-after-network", detailOf("running", "4:05.475069752", "2T03:14:05.475069752", pausesItself,
			withNetwork([]string{"1.1.1.1"}, []string{"0.0.0.0/0"}))),
		asking("info-after-network-empty", detailOf("running", "4:05.475069752", "2T03:14:05.475069752", pausesItself, withNetwork(nil, nil))),
		asking("info-after-timeout", detailOf("running", "4:05.74237559", "2T03:06:05.831496511", withFull)),
		asking("info-after-timeout-clamped", detailOf("running", "4:05.74237559", "3T03:04:05.74237559", withFull)),
		asking("info-resumed-default-timeout", detailOf("running", "4:05.74237559", "2T03:04:20.74237559", withFull)),
		asking("info-paused", detailOf("paused", "4:05.445379", "2T03:04:05.638321", withFull, pausesItself)),
		asking("info-resumed", detailOf("running", "4:05.680732053", "2T03:09:05.680732053", withFull, pausesItself)),
		asking("info-auto-resumed", detailOf("running", "4:05.702481103", "2T03:14:05.702481103", withFull, pausesItself)),
		asking("info-paused-filesystem-only", detailOf("paused", "4:05.772997", "2T03:04:05.776614")),
		asking("info-auto-paused", detailOf("paused", "4:02.982681", "2T03:04:05.020313", pausesItself)),
		asking("info-auto-paused-twice", detailOf("paused", "4:03.053294", "2T03:04:05.070408", pausesItself)),
		asking("info-auto-paused-reconnected", detailOf("running", "4:05.053294704", "2T03:04:07.053294704", pausesItself)),
		asking("info-timeout-killed-but-paused-before", detailOf("paused", "4:02.244251", "2T03:04:02.24678")),
		asking("info-killed-while-resuming", detailOf("running", "4:05.755957413", "2T03:05:05.755957413")),
		asking("info-snapshotted-sandbox", detailOf("running", "4:05.383267847", "2T03:14:05.383267847", withMetadata(map[string]string{"m": "1"}))),
		asking("fork-info", detailOf("running", "4:05.747448024", "2T03:04:20.747448024", withMetadata(map[string]string{"m": "1"}))),
		asking("resuming-info", detailOf("paused", "4:02.151636", "2T03:04:02.163716", resumesItself)),
		asking("resuming-info-after-join", detailOf("running", "4:05.705822998", "2T03:09:05.705822998", resumesItself)),
		asking("snapshotting-info", detailOf("running", "4:04.926477762", "2T03:14:04.926477762")),
		asking("info-killed-404", sandboxUnknown),
		asking("info-after-failed-pause", sandboxUnknown),
		asking("info-after-failed-snapshot", sandboxUnknown),
		asking("info-after-timeout-kill-404", sandboxUnknown),
		asking("info-after-timeout-no-body", sandboxUnknown),
		asking("killing-info-404", sandboxUnknown),
		asking("resuming-info-after-kill", sandboxUnknown),
		{
			file: "info-long-id-404", op: "info", sent: []wantRequest{sendInfo()},
			want: failsWith(404, `Sandbox "`+apiTestID+`-6532622b" doesn't exist or you don't have access to it`, e2b.ErrSandboxNotFound),
			call: func(ctx context.Context, c *e2b.Client) (any, error) { return c.Info(ctx, apiTestID+"-6532622b") },
		},

		// List.
		listing("list-v2-page-1", e2b.ListOptions{PageSize: 2}, sendList("limit", "2"), pageOf(tokenAfter1, itemOf("2", "4"), itemOf("1", "3"))),
		listing("list-v2-page-2", e2b.ListOptions{PageSize: 2, PageToken: tokenAfter1}, sendList("limit", "2", "nextToken", tokenAfter1),
			pageOf(tokenAfter2, itemOf("3", "2"), itemOf("2", "1"))),
		listing("list-v2-token-unescaped", e2b.ListOptions{PageSize: 2, PageToken: tokenAfter1}, sendList("limit", "2", "nextToken", tokenAfter1),
			pageOf(tokenAfter2, itemOf("3", "2"), itemOf("2", "1"))),
		listing("list-v2-page-3-last", e2b.ListOptions{PageSize: 2, PageToken: tokenFor3}, sendList("limit", "2", "nextToken", tokenFor3),
			pageOf("", itemOf("2", "0"))),
		listing("list-v2-asc", e2b.ListOptions{Ascending: true, PageSize: 2}, sendList("order", "asc", "limit", "2"),
			pageOf(tokenAsc, itemOf("2", "0"), itemOf("1", "1"))),
		listing("list-v2-both-states", e2b.ListOptions{States: both, PageSize: 1}, sendList("state", "running,paused", "limit", "1"),
			pageOf(tokenAfter0, itemOf("1", "4"))),
		listing("list-v2-running", e2b.ListOptions{States: both[:1]}, sendList("state", "running"),
			pageOf("", itemOf("1", "4"), itemOf("2", "3"), itemOf("3", "2"))),
		listing("list-v2-paused", e2b.ListOptions{States: both[1:]}, sendList("state", "paused"), pageOf("", itemOf("1", "1"), itemOf("2", "0"))),
		listing("killing-list-paused", e2b.ListOptions{States: both[1:], PageSize: 100}, sendList("state", "paused", "limit", "100"),
			pageOf("", detailOf("paused", "3:57.926477", "2T03:04:05.517602", func(i *e2b.SandboxInfo) { i.OnTimeout = e2b.TimeoutDefault }))),
		listing("pausing-list-paused", e2b.ListOptions{States: both[1:], PageSize: 1}, sendList("state", "paused", "limit", "1"),
			pageOf("", detailOf("paused", "4:05.151636371", "2T03:04:05.162986468", func(i *e2b.SandboxInfo) { i.OnTimeout = e2b.TimeoutDefault }))),
		listing("list-v2-metadata", e2b.ListOptions{Metadata: map[string]string{"n": "3", "list": "yes"}}, sendList("metadata", "list=yes&n=3"),
			pageOf("", itemOf("1", "3"))),
		listing("list-v2-metadata-plain-twice", e2b.ListOptions{Metadata: map[string]string{"n": "3"}}, sendList("metadata", "n=3"),
			pageOf("", itemOf("1", "3"))),
		listing("list-v2-metadata-none", e2b.ListOptions{Metadata: map[string]string{"list": "no"}}, sendList("metadata", "list=no"), pageOf("")),
		listing("list-v2-metadata-odd-twice", e2b.ListOptions{Metadata: odd, PageSize: 1}, sendList("metadata", oddTwice, "limit", "1"),
			pageOf(tokenAfter0, itemOf("1", "4"))),
		listing("list-v2-template", e2b.ListOptions{Template: "base", PageSize: 1}, sendList("template", "base", "limit", "1"),
			pageOf(tokenAfter0, itemOf("1", "4"))),
		listing("list-v2-template-unknown", e2b.ListOptions{Template: "nope"}, sendList("template", "nope"), pageOf("")),
		listing("list-v2-started-after", e2b.ListOptions{StartedAfter: at("2098-02-03T10:12:43Z")}, sendList("startedAfter", "2098-02-03T10:12:43Z"), pageOf("")),
		listing("list-v2-token-bad-400", e2b.ListOptions{PageToken: "garbage"}, sendList("nextToken", "garbage"), badRequest("Invalid next token")),
		listing("list-v2-token-other-order-400", e2b.ListOptions{Ascending: true, PageSize: 2, PageToken: tokenAfter1},
			sendList("order", "asc", "limit", "2", "nextToken", tokenAfter1), badRequest("Invalid next token")),
		listing("list-v2-limit-101", e2b.ListOptions{PageSize: 100}, sendList("limit", "100"),
			badSchema(`parameter "limit" in query has an error: number must be at most 100`)).
			refusing(func(ctx context.Context, c *e2b.Client) error {
				_, err := c.ListPage(ctx, &e2b.ListOptions{PageSize: 101})
				return err
			}),
		listing("list-v2-limit-zero-400", e2b.ListOptions{}, sendList(),
			badSchema(`parameter "limit" in query has an error: number must be at least 1`)).
			refusing(func(ctx context.Context, c *e2b.Client) error {
				_, err := c.ListPage(ctx, &e2b.ListOptions{PageSize: -1})
				return err
			}),
		// Queries that the SDK cannot be made to send.
		listing("list-v2-bad-order-400", e2b.ListOptions{Ascending: true}, sendList("order", "asc"),
			badSchema(`parameter "order" in query has an error: value is not one of the allowed values ["asc","desc"]`)),
		listing("list-v2-states-repeated", e2b.ListOptions{States: both}, sendList("state", "running,paused"),
			badRequest("validation error: Invalid format for parameter state: parameter 'state' is not exploded, but is specified multiple times")),
		listing("list-v2-metadata-bad-400", e2b.ListOptions{Metadata: map[string]string{"novalue": ""}}, sendList("metadata", "novalue="),
			badRequest("Error parsing metadata")),
		listing("list-v2-metadata-empty-400", e2b.ListOptions{Metadata: map[string]string{}}, sendList(), badRequest("Error parsing metadata")),
		listing("list-v2-metadata-odd-once", e2b.ListOptions{Metadata: odd}, sendList("metadata", oddTwice), badRequest("Error parsing metadata")),
		// The old list is asked where the new one is missing.
		listing("list-v1", e2b.ListOptions{States: both[:1], Metadata: map[string]string{"n": "4"}}, wantRequest{}, pageOf("", itemOf("1", "4"))).
			answeredBy("route-unknown", "list-v1").
			sending(sendList("state", "running", "metadata", "n=4"), sendListTo("/sandboxes", "metadata", "n=4")),
		listing("list-v1-metadata-bad-400", e2b.ListOptions{States: both[:1]}, wantRequest{},
			badRequest("Error parsing metadata: error parsing metadata: invalid key value pair in query")).
			answeredBy("route-unknown", "list-v1-metadata-bad-400").
			sending(sendList("state", "running"), sendListTo("/sandboxes")),

		// Routes that a server does not have.
		asking("route-unknown", noRoute("no matching operation was found")),
		killing("route-wrong-method", noRoute("method not allowed")),
		creatingBase("route-v2-create-not-here", noRoute("method not allowed")).
			answeredBy("route-wrong-method", "route-v2-create-not-here").
			sending(sendCreate(`{"templateID":"base","timeout":300,"secure":true}`), sendCreateV2(`{"templateID":"base","timeout":300}`)),
	}
}

// unusedExchanges are recorded exchanges that share a reason.
type unusedExchanges struct {
	prefix, why string
	files       int
}

// notRecordedHere are the recorded exchanges that no call of the SDK's control
// plane meets, by the beginning of their name.
var notRecordedHere = []unusedExchanges{
	{"data-plane-", "the proxy in front of the sandboxes", 20},
	{"pausing-first-data-plane", "the proxy in front of the sandboxes", 1},
	{"pausing-second-data-plane-waits", "the proxy in front of the sandboxes", 1},
	{"health", "no call asks for the health of the API", 1},
	{"resume-", "Connect does what the deprecated resume does", 2},
	{"killing-resume", "Connect does what the deprecated resume does", 1},
	{"resuming-resume-joins-201", "Connect does what the deprecated resume does", 1},
	{"snapshotting-resume-409", "Connect does what the deprecated resume does", 1},
}

// aboutNoSandbox are the calls whose errors name none.
var aboutNoSandbox = []string{
	"create", "list", "list snapshots", "delete snapshot", "metrics of sandboxes", "team metrics",
	"create volume", "get volume", "list volumes", "delete volume",
	"create secret", "update secret", "get secret", "list secrets", "delete secret",
}

// TestRecordedExchanges makes each call, compares what was sent to the letter,
// and lets the recorded server answer.
func TestRecordedExchanges(t *testing.T) {
	t.Parallel()
	for _, row := range recordedCalls() {
		t.Run(row.file, func(t *testing.T) {
			t.Parallel()
			files := row.answers
			if files == nil {
				files = []string{row.file}
			}
			require.Contains(t, files, row.file)
			var answers []apiAnswer
			for _, f := range files {
				answers = append(answers, answerRecorded(t, f))
			}
			key := readExchange(t, row.file).Request.Headers["X-API-Key"]
			if key == "" {
				key = apiTestKey
			}
			api := newFakeAPI(t, answers...)
			c := api.client(t, noRetries, func(o *e2b.ClientOptions) { o.APIKey = key })

			if row.refused != nil {
				requireRefused(t, api, row.refused(t.Context(), c))
			}
			got, err := row.call(t.Context(), c)
			sent := api.requests()
			require.Len(t, sent, len(row.sent))
			for i, want := range row.sent {
				requireSent(t, want, key, sent[i])
			}
			want, fails := row.want.(wantError)
			if !fails {
				require.NoError(t, err)
				require.Equal(t, row.want, got)
				return
			}
			requireKinds(t, err, want.kinds...)
			e := requireAPIError(t, err)
			id := apiTestID
			if slices.Contains(aboutNoSandbox, row.op) {
				id = ""
			}
			require.Equal(t, row.op, e.Op)
			require.Equal(t, id, e.SandboxID)
			require.Equal(t, want.status, e.StatusCode)
			require.Equal(t, want.code, e.Code)
			require.Equal(t, want.message, e.Message)
			require.Equal(t, want.state, e.State)
			require.Equal(t, 1, e.Attempts)
			require.Contains(t, err.Error(), want.message)
			requireNoSecret(t, err, key)
		})
	}
}

// TestNoAPIKeyIsRefused is the recorded request without a key.
func TestNoAPIKeyIsRefused(t *testing.T) {
	t.Setenv("E2B_API_KEY", "")
	api := newFakeAPI(t)
	c, err := e2b.NewClient(&e2b.ClientOptions{Transport: api})
	require.Nil(t, c)
	requireKinds(t, err, e2b.ErrNoAPIKey)
	require.Empty(t, api.requests())
}

// TestEveryRecordedExchangeHasAPlace fails for a recorded exchange that no row
// uses, for a row without one, and for a reason that has nothing to explain.
func TestEveryRecordedExchangeHasAPlace(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(exchangeDir, "*.json"))
	require.NoError(t, err)
	require.Len(t, files, 255)
	rows := map[string]int{}
	for _, row := range recordedCalls() {
		rows[row.file]++
	}
	for name, n := range rows {
		require.Equal(t, 1, n, "rows for %s", name)
		require.FileExists(t, filepath.Join(exchangeDir, name+".json"))
	}
	left := make([]int, len(notRecordedHere))
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".json")
		if rows[name] > 0 {
			continue
		}
		i := slices.IndexFunc(notRecordedHere, func(o unusedExchanges) bool { return strings.HasPrefix(name, o.prefix) })
		if i < 0 {
			t.Errorf("no row uses %s, and no reason says why", name)
			continue
		}
		left[i]++
	}
	for i, o := range notRecordedHere {
		require.NotEmpty(t, o.why)
		require.Equal(t, o.files, left[i], "files that begin with %s", o.prefix)
	}
}
