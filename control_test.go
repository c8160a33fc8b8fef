package e2b_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jarcoal/httpmock"
	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

const (
	apiTestKey  = "e2b_00000000000000000000000000000000"
	apiTestURL  = "https://api.e2b.test"
	apiTestID   = "isandbox0000000000001"
	envdTestKey = "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1"
	portTestKey = "a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2"
)

// createdBody is the least that a create or connect answers.
const createdBody = `{"sandboxID":"` + apiTestID + `","templateID":"rki5dems9wqfm4r03t7g","clientID":"6532622b","envdVersion":"0.6.13","envdAccessToken":"` + envdTestKey + `"}`

const sandboxMissing = `{"code":404,"message":"Sandbox \"` + apiTestID + `\" doesn't exist or you don't have access to it"}`

const routeMissing = `{"code":404,"message":"validation error: no matching operation was found"}`

// infoBody describes a sandbox in a state.
func infoBody(state e2b.State) string {
	return fmt.Sprintf(`{"sandboxID":%q,"templateID":"base","state":%q,"cpuCount":2,"memoryMB":512,"diskSizeMB":1982,"envdVersion":"0.6.13","startedAt":"2026-01-02T03:04:05Z","endAt":"2026-01-02T03:09:05Z"}`, apiTestID, state)
}

// A sentRequest is what a client sent, and when.
type sentRequest struct {
	Method string
	Scheme string
	Host   string
	Path   string // escaped
	Query  string
	Header http.Header
	Body   string
	At     time.Time
}

// An apiAnswer answers one request.
type apiAnswer func(*http.Request) (*http.Response, error)

// A fakeAPI is a control plane that gives a list of answers in order, and keeps
// what it was asked. A request beyond the list fails the test.
type fakeAPI struct {
	*httpmock.MockTransport

	t       testing.TB
	mu      sync.Mutex
	answers []apiAnswer
	sent    []sentRequest
}

func newFakeAPI(tb testing.TB, answers ...apiAnswer) *fakeAPI {
	tb.Helper()
	a := &fakeAPI{MockTransport: httpmock.NewMockTransport(), t: tb, answers: answers}
	a.RegisterNoResponder(a.respond)
	return a
}

func (a *fakeAPI) respond(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	a.mu.Lock()
	a.sent = append(a.sent, sentRequest{
		Method: r.Method, Scheme: r.URL.Scheme, Host: r.URL.Host, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery,
		Header: r.Header.Clone(), Body: string(body), At: time.Now(),
	})
	var next apiAnswer
	if len(a.answers) > 0 {
		next, a.answers = a.answers[0], a.answers[1:]
	}
	a.mu.Unlock()
	if next == nil {
		a.t.Errorf("request beyond the answers of the test: %s %s", r.Method, r.URL)
		return nil, errors.New("no answer left")
	}
	resp, err := next(r)
	if resp != nil {
		resp.Request = r
	}
	return resp, err
}

// requests returns what was sent so far.
func (a *fakeAPI) requests() []sentRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.sent)
}

// lines returns method and path of what was sent so far.
func (a *fakeAPI) lines() []string {
	var lines []string
	for _, r := range a.requests() {
		lines = append(lines, r.Method+" "+r.Path)
	}
	return lines
}

// gaps returns the times between the requests.
func (a *fakeAPI) gaps() []time.Duration {
	sent := a.requests()
	var gaps []time.Duration
	for i := 1; i < len(sent); i++ {
		gaps = append(gaps, sent[i].At.Sub(sent[i-1].At))
	}
	return gaps
}

// client returns a client of a alone.
func (a *fakeAPI) client(tb testing.TB, set ...func(*e2b.ClientOptions)) *e2b.Client {
	tb.Helper()
	o := &e2b.ClientOptions{APIKey: apiTestKey, Domain: "e2b.test", APIURL: apiTestURL, Transport: a}
	for _, f := range set {
		f(o)
	}
	c, err := e2b.NewClient(o)
	require.NoError(tb, err)
	return c
}

func noRetries(o *e2b.ClientOptions) { o.MaxRetries = -1 }

// answerJSON answers with a JSON body. header holds names and values in turn.
func answerJSON(status int, body string, header ...string) apiAnswer {
	return answerText(status, body, append([]string{"Content-Type", "application/json; charset=utf-8"}, header...)...)
}

func answerText(status int, body string, header ...string) apiAnswer {
	return func(*http.Request) (*http.Response, error) {
		resp := httpmock.NewStringResponse(status, body)
		for i := 0; i < len(header); i += 2 {
			resp.Header.Set(header[i], header[i+1])
		}
		return resp, nil
	}
}

// answerError breaks the connection.
func answerError(err error) apiAnswer {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

// answerNever answers only when the request is given up.
func answerNever(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// answerAfter answers late.
func answerAfter(d time.Duration, answer apiAnswer) apiAnswer {
	return func(r *http.Request) (*http.Response, error) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-timer.C:
			return answer(r)
		}
	}
}

// answerEndless answers with a body that begins and goes no further.
func answerEndless(status int, begin string) apiAnswer {
	return func(r *http.Request) (*http.Response, error) {
		body := io.MultiReader(strings.NewReader(begin), readerFunc(func([]byte) (int, error) {
			<-r.Context().Done()
			return 0, r.Context().Err()
		}))
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(body), ContentLength: -1}, nil
	}
}

// answerCut answers with a body that breaks off.
func answerCut(status int, begin string) apiAnswer {
	return func(*http.Request) (*http.Response, error) {
		body := io.MultiReader(strings.NewReader(begin), readerFunc(func([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }))
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(body), ContentLength: -1}, nil
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

var (
	// errNoConnection is how a connection that could not be made looks.
	errNoConnection = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	// errConnectionLost is how one looks that broke after it was made.
	errConnectionLost = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
)

// errorKinds are all that an error of the SDK can be told by.
var errorKinds = map[string]error{
	"ErrNoAPIKey": e2b.ErrNoAPIKey, "ErrInvalidArgument": e2b.ErrInvalidArgument,
	"ErrUnauthenticated": e2b.ErrUnauthenticated, "ErrForbidden": e2b.ErrForbidden,
	"ErrSandboxNotFound": e2b.ErrSandboxNotFound, "ErrSandboxNotRunning": e2b.ErrSandboxNotRunning,
	"ErrPortClosed": e2b.ErrPortClosed, "ErrProcessNotFound": e2b.ErrProcessNotFound, "ErrNotFound": e2b.ErrNotFound,
	"ErrConflict": e2b.ErrConflict, "ErrRateLimited": e2b.ErrRateLimited, "ErrQuotaExceeded": e2b.ErrQuotaExceeded,
	"ErrServiceBusy": e2b.ErrServiceBusy, "ErrRequestTimeout": e2b.ErrRequestTimeout,
	"ErrCommandTimeout": e2b.ErrCommandTimeout, "ErrStreamInterrupted": e2b.ErrStreamInterrupted,
	"ErrOutcomeUnknown": e2b.ErrOutcomeUnknown, "ErrInterpreter": e2b.ErrInterpreter, "ErrNoSpace": e2b.ErrNoSpace,
	"ErrNotSupported": e2b.ErrNotSupported, "ErrClosed": e2b.ErrClosed,
	"fs.ErrNotExist": fs.ErrNotExist, "fs.ErrExist": fs.ErrExist, "fs.ErrPermission": fs.ErrPermission,
	"context.Canceled": context.Canceled, "context.DeadlineExceeded": context.DeadlineExceeded,
}

// requireKinds requires that err is of these kinds and of no other.
func requireKinds(tb testing.TB, err error, kinds ...error) {
	tb.Helper()
	require.Error(tb, err)
	for name, kind := range errorKinds {
		require.Equal(tb, slices.Contains(kinds, kind), errors.Is(err, kind), "errors.Is(err, %s) of: %v", name, err)
	}
}

// requireAPIError returns the APIError in err.
func requireAPIError(tb testing.TB, err error) *e2b.APIError {
	tb.Helper()
	var api *e2b.APIError
	require.ErrorAs(tb, err, &api)
	return api
}

// requireRefused requires that a call was refused before any request.
func requireRefused(tb testing.TB, a *fakeAPI, err error) {
	tb.Helper()
	requireKinds(tb, err, e2b.ErrInvalidArgument)
	require.Empty(tb, a.requests(), "sent before it was refused")
	var api *e2b.APIError
	require.NotErrorAs(tb, err, &api, "no server said this")
}

// requireNoSecret requires that nothing which can be printed of err holds secret.
func requireNoSecret(tb testing.TB, err error, secret string) {
	tb.Helper()
	require.NotEmpty(tb, secret)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		require.NotContains(tb, fmt.Sprintf(verb, err), secret)
	}
	if api, ok := errors.AsType[*e2b.APIError](err); ok {
		for _, verb := range []string{"%v", "%+v", "%#v"} {
			require.NotContains(tb, fmt.Sprintf(verb, *api), secret)
		}
	}
}

// A sandboxView is what a handle shows of itself.
type sandboxView struct {
	ID, Domain, EnvdVersion     string
	EnvdToken, TrafficToken     string
	Resumed                     bool
	Lifetime                    time.Duration
	RecordDomain, RecordVersion string
}

func viewOf(s *e2b.Sandbox) sandboxView {
	r := s.Record()
	return sandboxView{
		ID: s.ID(), Domain: s.Domain(), EnvdVersion: s.EnvdVersion(),
		EnvdToken: r.EnvdAccessToken.Reveal(), TrafficToken: s.TrafficAccessToken().Reveal(),
		Resumed: s.Resumed(), Lifetime: r.Timeout, RecordDomain: r.Domain, RecordVersion: r.EnvdVersion,
	}
}

// at reads a time.
func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		panic(err)
	}
	return t
}

func decodedQuery(tb testing.TB, s string) url.Values {
	tb.Helper()
	q, err := url.ParseQuery(s)
	require.NoError(tb, err)
	return q
}

// discardTransport answers every request with one body, for benchmarks.
func discardTransport(status int, body []byte) *httpmock.MockTransport {
	m := httpmock.NewMockTransport()
	m.RegisterNoResponder(func(*http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
		}, nil
	})
	return m
}

// TestRouteSwitch goes over to the newer routes where the older ones are
// missing, however a server says so, and remembers it.
func TestRouteSwitch(t *testing.T) {
	t.Parallel()
	for name, missing := range map[string]apiAnswer{
		"the recorded one":   answerJSON(404, routeMissing),
		"the other":          answerJSON(404, `{"code":404,"message":"validation error: method not allowed"}`),
		"404 in text":        answerText(404, "404 page not found\n", "Content-Type", "text/plain"),
		"404 of a framework": answerJSON(404, `{"detail":"Not Found"}`),
		"404 with nothing":   answerText(404, ""),
		"405":                answerText(405, ""),
		"410":                answerJSON(410, `{"message":"use v2"}`),
		"501":                answerText(501, "not implemented"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ok := answerJSON(201, createdBody)
			api := newFakeAPI(t, missing, ok, ok, missing, ok, ok)
			c := api.client(t)
			for range 2 {
				_, err := c.Create(t.Context(), &e2b.CreateOptions{NoToken: true, Timeout: time.Minute})
				require.NoError(t, err)
			}
			for range 2 {
				sbx, err := c.Connect(t.Context(), apiTestID, &e2b.ConnectOptions{OnResume: e2b.OnResume{Reboot: true}})
				require.NoError(t, err)
				require.True(t, sbx.Resumed())
			}
			connect := "/sandboxes/" + apiTestID + "/connect"
			require.Equal(t, []string{
				"POST /sandboxes", "POST /v2/sandboxes", "POST /v2/sandboxes",
				"POST " + connect, "POST /v2" + connect, "POST /v2" + connect,
			}, api.lines())
			sent := api.requests()
			require.JSONEq(t, `{"templateID":"base","timeout":60,"secure":true}`, sent[0].Body)
			require.JSONEq(t, `{"templateID":"base","timeout":60}`, sent[1].Body, "secure is gone")
			require.JSONEq(t, sent[1].Body, sent[2].Body)
			require.JSONEq(t, `{"timeout":300,"memory":false}`, sent[3].Body)
			require.JSONEq(t, sent[3].Body, sent[4].Body)
		})
	}
}

// TestRouteSwitchKeepsTheToken sends the same token to both routes.
func TestRouteSwitchKeepsTheToken(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, answerJSON(404, routeMissing), answerText(502, ""))
	_, err := api.client(t).Create(t.Context(), nil)
	requireKinds(t, err, e2b.ErrOutcomeUnknown)
	u, ok := errors.AsType[*e2b.OutcomeUnknownError](err)
	require.True(t, ok)
	for _, r := range api.requests() {
		require.Equal(t, u.CreateToken, sentMetadata(t, r)["e2b_go_create_token"])
	}
	require.Len(t, api.requests(), 2)
}

// TestNoRouteSwitch after an answer about the sandbox or the template.
func TestNoRouteSwitch(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		op   controlOp
		body string
		kind error
	}{
		{createOp, `{"code":404,"message":"template 'x' not found"}`, e2b.ErrNotFound},
		{createOp, `{"code":404,"message":"tag 'v9' does not exist for template 'x'"}`, e2b.ErrNotFound},
		{connectOp, sandboxMissing, e2b.ErrSandboxNotFound},
		{connectOp, `sandbox is not here`, e2b.ErrSandboxNotFound},
	} {
		api := newFakeAPI(t, answerText(404, row.body))
		requireKinds(t, row.op.call(t.Context(), api.client(t)), row.kind)
		require.Len(t, api.requests(), 1, row.body)
	}
}

// TestNoRouteAtAll is for servers that have neither.
func TestNoRouteAtAll(t *testing.T) {
	t.Parallel()
	missing := answerJSON(404, routeMissing)
	for _, op := range []controlOp{createOp, connectOp} {
		api := newFakeAPI(t, missing, missing, missing, missing)
		c := api.client(t)
		for range 2 { // nothing is remembered
			err := op.call(t.Context(), c)
			requireKinds(t, err, e2b.ErrNotSupported)
			require.Equal(t, 404, requireAPIError(t, err).StatusCode)
		}
		require.Len(t, api.requests(), 4)
	}
}

// TestInsecureNeedsTheOldRoute since the new one has no such thing.
func TestInsecureNeedsTheOldRoute(t *testing.T) {
	t.Parallel()
	insecure := &e2b.CreateOptions{Insecure: true}
	ok := answerJSON(201, createdBody)
	missing := answerJSON(404, routeMissing)
	api := newFakeAPI(t, missing, missing, ok)
	c := api.client(t)
	_, err := c.Create(t.Context(), insecure)
	requireKinds(t, err, e2b.ErrNotSupported)
	require.Equal(t, []string{"POST /sandboxes"}, api.lines(), "nothing secure was made instead")
	_, err = c.Create(t.Context(), nil)
	require.NoError(t, err)
	_, err = c.Create(t.Context(), insecure)
	requireKinds(t, err, e2b.ErrNotSupported)
	require.Equal(t, []string{"POST /sandboxes", "POST /sandboxes", "POST /v2/sandboxes"}, api.lines(), "now it is known without asking")
}

// TestUserF6EnvironmentAndOptions: the option, else the environment, else E2B's.
func TestUserF6EnvironmentAndOptions(t *testing.T) {
	set := func(t *testing.T, key, domain, apiURL, sandboxURL string) {
		t.Helper()
		t.Setenv("E2B_API_KEY", key)
		t.Setenv("E2B_DOMAIN", domain)
		t.Setenv("E2B_API_URL", apiURL)
		t.Setenv("E2B_SANDBOX_URL", sandboxURL)
	}
	for _, row := range []struct {
		name string
		env  [4]string // key, domain, API URL, sandbox URL
		opts e2b.ClientOptions
		key  string
		url  string
		host string // of port 3000
	}{
		{name: "nothing but a key", env: [4]string{"env-key"}, key: "env-key", url: "https://api.e2b.app/sandboxes", host: "3000-" + apiTestID + ".e2b.app"},
		{name: "option key", env: [4]string{"env-key"}, opts: e2b.ClientOptions{APIKey: "opt-key"}, key: "opt-key", url: "https://api.e2b.app/sandboxes", host: "3000-" + apiTestID + ".e2b.app"},
		{name: "environment domain", env: [4]string{"k", "env.test"}, key: "k", url: "https://api.env.test/sandboxes", host: "3000-" + apiTestID + ".env.test"},
		{name: "option domain", env: [4]string{"k", "env.test"}, opts: e2b.ClientOptions{Domain: "opt.test"}, key: "k", url: "https://api.opt.test/sandboxes", host: "3000-" + apiTestID + ".opt.test"},
		{name: "domain with a port", env: [4]string{"k"}, opts: e2b.ClientOptions{Domain: "opt.test:8443"}, key: "k", url: "https://api.opt.test:8443/sandboxes", host: "3000-" + apiTestID + ".opt.test:8443"},
		{name: "environment API URL", env: [4]string{"k", "env.test", "http://localhost:3000"}, key: "k", url: "http://localhost:3000/sandboxes", host: "3000-" + apiTestID + ".env.test"},
		{
			name: "option API URL", env: [4]string{"k", "", "http://localhost:3000"}, opts: e2b.ClientOptions{APIURL: "https://own.test/base/"},
			key: "k", url: "https://own.test/base/sandboxes", host: "3000-" + apiTestID + ".e2b.app",
		},
		{name: "sandbox URL", env: [4]string{"k", "", "", "http://localhost:3002"}, key: "k", url: "https://api.e2b.app/sandboxes", host: "3000-" + apiTestID + ".e2b.app"},
	} {
		t.Run(row.name, func(t *testing.T) {
			set(t, row.env[0], row.env[1], row.env[2], row.env[3])
			api := newFakeAPI(t, answerJSON(201, createdBody))
			row.opts.Transport = api
			c, err := e2b.NewClient(&row.opts)
			require.NoError(t, err)
			set(t, "late", "late.test", "http://late.test", "http://late.test") // too late
			sbx, err := c.Create(t.Context(), nil)
			require.NoError(t, err)
			r := api.requests()[0]
			require.Equal(t, row.url, r.Scheme+"://"+r.Host+r.Path)
			require.Equal(t, row.key, r.Header.Get("X-API-Key"))
			require.Equal(t, row.host, sbx.Host(3000))
		})
	}
	t.Run("bad ones are refused wherever they come from", func(t *testing.T) {
		for _, env := range [][4]string{{"", "", "", ""}, {"k\n", "", "", ""}, {"k", "a/b", "", ""}, {"k", "", "localhost", ""}, {"k", "", "", "ftp://x"}} {
			set(t, env[0], env[1], env[2], env[3])
			_, err := e2b.NewClient(nil)
			require.Error(t, err, "%q", env)
		}
	})
}

// TestUserF1F3AnyKey is sent as it is, whatever its form.
func TestUserF1F3AnyKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"sk-Abc.123", "0123456789abcdef", "e2b_zzzz", "a b", "Ünicode", strings.Repeat("k", 5000), `"`} {
		api := newFakeAPI(t, answerText(204, ""))
		_, err := api.client(t, func(o *e2b.ClientOptions) { o.APIKey = key }).Kill(t.Context(), apiTestID)
		require.NoError(t, err)
		require.Equal(t, []string{key}, api.requests()[0].Header.Values("X-API-Key"))
	}
}

// TestUserF2MalformedKey keeps the server's words and hides the key.
func TestUserF2MalformedKey(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, answerJSON(401, `{"code":401,"message":"authorization header is malformed: sk-Abc.123"}`))
	_, err := api.client(t, func(o *e2b.ClientOptions) { o.APIKey = "sk-Abc.123" }).Info(t.Context(), apiTestID)
	requireKinds(t, err, e2b.ErrUnauthenticated)
	require.Contains(t, err.Error(), "authorization header is malformed")
	requireNoSecret(t, err, "sk-Abc.123")
}

// TestUserF5F8EveryCallGoesToTheAPIURL and through the one transport.
func TestUserF5F8EveryCallGoesToTheAPIURL(t *testing.T) {
	t.Parallel()
	created, done, info := answerJSON(201, createdBody), answerText(204, ""), answerJSON(200, infoBody(e2b.StateRunning))
	api := newFakeAPI(t, created, created, created, created, done, done, done, done, info, info, done, done, answerJSON(200, "[]"), answerJSON(200, "[]"))
	c := api.client(t, func(o *e2b.ClientOptions) {
		o.APIURL, o.Domain = "http://127.0.0.1:3000/base", "elsewhere.test"
		o.Headers = http.Header{"x-team": {"a"}}
		o.UserAgent = "agent/1"
	})
	ctx := t.Context()
	sbx, err := c.Create(ctx, nil)
	require.NoError(t, err)
	_, err = c.BetaCreate(ctx, nil)
	require.NoError(t, err)
	_, err = c.Connect(ctx, apiTestID, nil)
	require.NoError(t, err)
	require.NoError(t, sbx.Connect(ctx, nil))
	for _, pause := range []func() (bool, error){
		func() (bool, error) { return c.Pause(ctx, apiTestID, nil) }, func() (bool, error) { return c.BetaPause(ctx, apiTestID) },
		func() (bool, error) { return sbx.Pause(ctx, nil) }, func() (bool, error) { return sbx.BetaPause(ctx) },
	} {
		_, err = pause()
		require.NoError(t, err)
	}
	_, err = sbx.Info(ctx)
	require.NoError(t, err)
	running, err := sbx.IsRunning(ctx)
	require.NoError(t, err)
	require.True(t, running)
	require.NoError(t, sbx.SetTimeout(ctx, time.Minute))
	_, err = sbx.Kill(ctx)
	require.NoError(t, err)
	_, err = c.ListPage(ctx, nil)
	require.NoError(t, err)
	ids, err := collect(t, c.List(ctx, nil))
	require.NoError(t, err)
	require.Empty(t, ids)
	sent := api.requests()
	require.Len(t, sent, 14)
	for _, r := range sent {
		require.Equal(t, "http://127.0.0.1:3000", r.Scheme+"://"+r.Host)
		require.True(t, strings.HasPrefix(r.Path, "/base/"), r.Path)
		require.Equal(t, []string{"a"}, r.Header.Values("X-Team"))
		require.Equal(t, "agent/1 e2b-go/"+e2b.Version, r.Header.Get("User-Agent"))
		require.Equal(t, []string{apiTestKey}, r.Header.Values("X-API-Key"))
	}
}

// TestUserF7Domain: the server's, else the client's.
func TestUserF7Domain(t *testing.T) {
	t.Parallel()
	for domain, host := range map[string]string{
		`null`: "3000-" + apiTestID + ".x.test", `""`: "3000-" + apiTestID + ".x.test", `"c.test"`: "3000-" + apiTestID + ".c.test",
	} {
		body := strings.Replace(createdBody, `"clientID"`, `"domain":`+domain+`,"clientID"`, 1)
		api := newFakeAPI(t, answerJSON(201, body), answerJSON(200, body), answerJSON(200, createdBody))
		c := api.client(t, func(o *e2b.ClientOptions) { o.Domain = "x.test" })
		created, err := c.Create(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, host, created.Host(3000))
		connected, err := c.Connect(t.Context(), apiTestID, nil)
		require.NoError(t, err)
		require.Equal(t, host, connected.Host(3000))
		restored, err := c.FromRecord(created.Record())
		require.NoError(t, err)
		require.Equal(t, host, restored.Host(3000))
		require.NoError(t, connected.Connect(t.Context(), nil))
		require.Equal(t, "3000-"+apiTestID+".x.test", connected.Host(3000), "a connect renews it")
	}
}

// TestUserF14ConnectKeepsTokens wakes by POST and takes over what it answers.
func TestUserF14ConnectKeepsTokens(t *testing.T) {
	t.Parallel()
	renewed := strings.NewReplacer(envdTestKey, "new-envd", "0.6.13", "0.7.0", `"clientID"`, `"trafficAccessToken":"`+portTestKey+`","clientID"`).Replace(createdBody)
	api := newFakeAPI(t, answerJSON(200, createdBody), answerJSON(201, renewed), answerJSON(404, sandboxMissing))
	c := api.client(t)
	sbx, err := c.Connect(t.Context(), apiTestID, &e2b.ConnectOptions{Timeout: 7 * time.Minute})
	require.NoError(t, err)
	require.False(t, sbx.Resumed())
	require.True(t, sbx.TrafficAccessToken().IsZero())
	require.NoError(t, sbx.Connect(t.Context(), nil))
	want := handleView(func(v *sandboxView) {
		v.EnvdVersion, v.RecordVersion, v.EnvdToken, v.TrafficToken = "0.7.0", "0.7.0", "new-envd", portTestKey
		v.Resumed, v.Lifetime = true, 7*time.Minute
	})
	require.Equal(t, want, viewOf(sbx))
	require.ErrorIs(t, sbx.Connect(t.Context(), nil), e2b.ErrSandboxNotFound)
	require.Equal(t, want, viewOf(sbx), "a failed connect changes nothing")
	require.Equal(t, "POST", api.requests()[1].Method)
}

// TestUserB1B11Lifetime: a connect sends one request, and the handle's own
// lifetime unless another is given.
func TestUserB1B11Lifetime(t *testing.T) {
	t.Parallel()
	ok := answerJSON(200, createdBody)
	api := newFakeAPI(t, answerJSON(201, createdBody), ok, ok, ok, ok, ok, ok)
	c := api.client(t, func(o *e2b.ClientOptions) { o.SandboxTimeout = 10 * time.Minute })
	sbx, err := c.Create(t.Context(), &e2b.CreateOptions{Timeout: time.Hour, NoToken: true})
	require.NoError(t, err)
	require.NoError(t, sbx.Connect(t.Context(), nil))
	require.NoError(t, sbx.Connect(t.Context(), &e2b.ConnectOptions{Timeout: 30 * time.Minute}))
	require.NoError(t, sbx.Connect(t.Context(), nil))
	restored, err := c.FromRecord(sbx.Record())
	require.NoError(t, err)
	require.NoError(t, restored.Connect(t.Context(), nil))
	_, err = c.Connect(t.Context(), apiTestID, nil)
	require.NoError(t, err)
	bare, err := c.FromRecord(e2b.Record{SandboxID: apiTestID})
	require.NoError(t, err)
	require.NoError(t, bare.Connect(t.Context(), nil))
	var bodies []string
	for _, r := range api.requests()[1:] {
		bodies = append(bodies, r.Body)
	}
	require.Equal(t, []string{
		`{"timeout":3600}`, `{"timeout":1800}`, `{"timeout":1800}`, `{"timeout":1800}`, `{"timeout":600}`, `{"timeout":600}`,
	}, bodies)
}

// TestUserD6A20LifecycleIsSentWhenAskedFor and not otherwise.
func TestUserD6A20LifecycleIsSentWhenAskedFor(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	for _, row := range []struct {
		opts *e2b.CreateOptions
		body string
	}{
		{&e2b.CreateOptions{NoToken: true}, `{"templateID":"base","timeout":300,"secure":true}`},
		{&e2b.CreateOptions{NoToken: true, OnTimeout: e2b.TimeoutKill}, `{"templateID":"base","timeout":300,"secure":true,"autoPause":false}`},
		{&e2b.CreateOptions{NoToken: true, OnTimeout: e2b.TimeoutPause}, `{"templateID":"base","timeout":300,"secure":true,"autoPause":true}`},
		{&e2b.CreateOptions{NoToken: true, OnTimeout: e2b.TimeoutPauseFilesystem}, `{"templateID":"base","timeout":300,"secure":true,"autoPause":true,"autoPauseMemory":false}`},
		{&e2b.CreateOptions{NoToken: true, OnTimeout: e2b.TimeoutPause, AutoResume: &yes}, `{"templateID":"base","timeout":300,"secure":true,"autoPause":true,"autoResume":{"enabled":true}}`},
		{&e2b.CreateOptions{NoToken: true, AutoResume: &no}, `{"templateID":"base","timeout":300,"secure":true,"autoResume":{"enabled":false}}`},
		{&e2b.CreateOptions{NoToken: true, Network: &e2b.Network{AllowPublicTraffic: &yes}}, `{"templateID":"base","timeout":300,"secure":true,"network":{"allowPublicTraffic":true}}`},
		{&e2b.CreateOptions{NoToken: true, Metadata: map[string]string{}, Env: map[string]string{}}, `{"templateID":"base","timeout":300,"secure":true}`},
	} {
		api := newFakeAPI(t, answerJSON(201, createdBody))
		_, err := api.client(t).Create(t.Context(), row.opts)
		require.NoError(t, err)
		require.JSONEq(t, row.body, api.requests()[0].Body)
	}
}

// TestBetaCreate is Create, with fewer options.
func TestBetaCreate(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		opts *e2b.BetaCreateOptions
		body string
	}{
		{nil, `{"templateID":"base","timeout":300,"secure":true}`},
		{&e2b.BetaCreateOptions{}, `{"templateID":"base","timeout":300,"secure":true}`},
		{&e2b.BetaCreateOptions{AutoPause: true}, `{"templateID":"base","timeout":300,"secure":true,"autoPause":true}`},
		{
			&e2b.BetaCreateOptions{
				Template: "t", Timeout: time.Minute, AutoPause: true, Metadata: map[string]string{"a": "1"}, Env: map[string]string{"B": "2"},
				Insecure: true, NoInternet: true,
			},
			`{"templateID":"t","timeout":60,"autoPause":true,"metadata":{"a":"1"},"envVars":{"B":"2"},"allow_internet_access":false}`,
		},
	} {
		api := newFakeAPI(t, answerJSON(201, createdBody))
		_, err := api.client(t).BetaCreate(t.Context(), row.opts)
		require.NoError(t, err)
		var body map[string]any
		require.NoError(t, json.Unmarshal([]byte(api.requests()[0].Body), &body))
		metadata, ok := body["metadata"].(map[string]any)
		require.True(t, ok)
		require.NotEmpty(t, metadata["e2b_go_create_token"])
		if delete(metadata, "e2b_go_create_token"); len(metadata) == 0 {
			delete(body, "metadata")
		}
		got, err := json.Marshal(body)
		require.NoError(t, err)
		require.JSONEq(t, row.body, string(got))
	}
}

// TestUserB5RoundsUp to whole seconds.
func TestUserB5RoundsUp(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		1: `1`, time.Second: `1`, 1500 * time.Millisecond: `2`, 2*time.Second + 1: `3`, math.MaxInt64: `2147483647`,
	} {
		api := newFakeAPI(t, answerJSON(201, createdBody), answerJSON(200, createdBody), answerText(204, ""))
		c := api.client(t)
		_, err := c.Create(t.Context(), &e2b.CreateOptions{Timeout: d, NoToken: true})
		require.NoError(t, err)
		_, err = c.Connect(t.Context(), apiTestID, &e2b.ConnectOptions{Timeout: d})
		require.NoError(t, err)
		require.NoError(t, c.SetTimeout(t.Context(), apiTestID, d))
		for _, r := range api.requests() {
			require.Regexp(t, `"timeout":`+want+`[,}]`, r.Body)
		}
	}
}

// A redirectingServer answers everything with a redirect, and keeps the keys
// that it saw.
type redirectingServer struct {
	*httptest.Server

	mu     sync.Mutex
	to     string
	status int
	seen   []string // method, path and key
}

func (s *redirectingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, r.Method+" "+r.URL.Path+" "+r.Header.Get("X-API-Key"))
	if s.to == "" || strings.HasPrefix(r.URL.Path, "/moved") {
		writeNothing(w, r)
		return
	}
	http.Redirect(w, r, s.to+r.URL.Path, s.status)
}

// writeNothing answers whatever was asked with success.
func writeNothing(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = io.WriteString(w, createdBody)
}

func (s *redirectingServer) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// TestRedirects are followed on the same host, and nowhere else does the key go.
func TestRedirects(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			other := new(redirectingServer)
			other.Server = httptest.NewServer(other)
			t.Cleanup(other.Close)
			first := &redirectingServer{status: status, to: other.URL}
			first.Server = httptest.NewServer(first)
			t.Cleanup(first.Close)
			secure := &redirectingServer{status: status}
			secure.Server = httptest.NewUnstartedServer(secure)
			secure.StartTLS()
			t.Cleanup(secure.Close)
			secure.to = strings.Replace(secure.URL, "https:", "http:", 1)

			for _, s := range []*redirectingServer{first, secure} {
				c, err := e2b.NewClient(&e2b.ClientOptions{APIKey: apiTestKey, APIURL: s.URL, Transport: s.Client().Transport})
				require.NoError(t, err)
				t.Cleanup(c.CloseIdleConnections)
				for _, op := range allOps() {
					before := len(s.requests())
					err := op.call(t.Context(), c)
					requireKinds(t, err)
					require.ErrorContains(t, err, "refused a redirect")
					require.Len(t, s.requests(), before+1, "asked again, which changes nothing")
				}
			}
			require.Empty(t, other.requests())

			same := &redirectingServer{status: status, to: "/moved"}
			same.Server = httptest.NewServer(same)
			t.Cleanup(same.Close)
			c, err := e2b.NewClient(&e2b.ClientOptions{APIKey: apiTestKey, APIURL: same.URL})
			require.NoError(t, err)
			t.Cleanup(c.CloseIdleConnections)
			_, err = c.Info(t.Context(), apiTestID)
			require.NoError(t, err)
			killed, err := c.Kill(t.Context(), apiTestID)
			_, connectErr := c.Connect(t.Context(), apiTestID, nil)
			path := "/sandboxes/" + apiTestID
			want := []string{"GET " + path, "GET /moved" + path, "DELETE " + path}
			if status >= 307 {
				require.NoError(t, err)
				require.True(t, killed)
				require.NoError(t, connectErr)
				want = append(want, "DELETE /moved"+path, "POST "+path+"/connect", "POST /moved"+path+"/connect")
			} else {
				// A GET of the sandbox would look like a kill that worked.
				require.ErrorContains(t, err, "refused a redirect")
				require.False(t, killed)
				require.ErrorContains(t, connectErr, "refused a redirect")
				want = append(want, "POST "+path+"/connect")
			}
			for i := range want {
				want[i] += " " + apiTestKey
			}
			require.Equal(t, want, same.requests())
		})
	}
}

// TestLogger gets one record per request, without a secret.
func TestLogger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		api := newFakeAPI(t, answerText(503, ""), answerJSON(201, createdBody), answerError(errConnectionLost), answerJSON(200, "[]"))
		c := api.client(t, func(o *e2b.ClientOptions) {
			o.Logger = slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
			o.Headers = http.Header{"Authorization": {"Bearer header-secret"}}
		})
		_, err := c.Create(t.Context(), &e2b.CreateOptions{Env: map[string]string{"A": "env-secret"}, Metadata: map[string]string{"a": "metadata-secret"}})
		require.NoError(t, err)
		_, err = c.ListPage(t.Context(), &e2b.ListOptions{Metadata: map[string]string{"a": "metadata-secret"}, PageToken: "page-secret"})
		require.NoError(t, err)
		require.Equal(t, 4, strings.Count(out.String(), "\n"))
		for _, s := range []string{`"method":"POST"`, `"path":"/sandboxes"`, `"path":"/v2/sandboxes"`, `"status":503`, `"status":201`, `"error":`, `"level":"DEBUG"`} {
			require.Contains(t, out.String(), s)
		}
		for _, s := range []string{apiTestKey, envdTestKey, "secret"} {
			require.NotContains(t, out.String(), s)
		}
	})
}

func BenchmarkConnect(b *testing.B) { benchmarkOp(b, 200, createdBody, connectOp) }

func BenchmarkInfo(b *testing.B) { benchmarkOp(b, 200, infoBody(e2b.StateRunning), infoOp) }

func BenchmarkListPage(b *testing.B) {
	items := strings.Repeat(infoBody(e2b.StateRunning)+",", 99) + infoBody(e2b.StatePaused)
	benchmarkOp(b, 200, "["+items+"]", listOp)
}

// benchmarkOp measures a call without a network.
func benchmarkOp(b *testing.B, status int, body string, op controlOp) {
	b.Helper()
	c, err := e2b.NewClient(&e2b.ClientOptions{APIKey: apiTestKey, APIURL: apiTestURL, Transport: discardTransport(status, []byte(body))})
	require.NoError(b, err)
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if err := op.call(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
}
