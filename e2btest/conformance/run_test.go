package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-09a7379d/e2b-go/e2btest/conformance"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A roundTripper answers without a network.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answered(status int, body string, headers ...string) *http.Response {
	w := &http.Response{StatusCode: status, Header: make(http.Header), Body: http.NoBody}
	w.Body = readCloser{strings.NewReader(body)}
	for i := 0; i < len(headers); i += 2 {
		w.Header.Set(headers[i], headers[i+1])
	}
	return w
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

func TestNames(t *testing.T) {
	seen := make(map[string]bool)
	for _, name := range conformance.Checks() {
		require.Regexp(t, `^[a-z]+/[a-z0-9-]+$`, name)
		require.False(t, seen[name], name)
		seen[name] = true
	}
}

func TestBadArguments(t *testing.T) {
	good := conformance.Target{APIKey: "e2b_0"}
	for want, args := range map[string]struct {
		target conformance.Target
		opts   conformance.Options
	}{
		"Target.APIKey is empty":           {},
		"Target.APIURL must begin with":    {target: conformance.Target{APIKey: "x", APIURL: "ftp://x"}},
		"Target.SandboxURL is not a URL":   {target: conformance.Target{APIKey: "x", SandboxURL: "http://%"}},
		"is not a host name":               {target: conformance.Target{APIKey: "x", Domain: "x/y"}},
		"Options.Parallel is negative":     {good, conformance.Options{Parallel: -1}},
		"Options.MaxSandboxes is negative": {good, conformance.Options{MaxSandboxes: -1}},
		"Options.Limit is negative":        {good, conformance.Options{Limit: -1}},
	} {
		report, err := conformance.Run(t.Context(), args.target, &args.opts)
		require.ErrorContains(t, err, want)
		require.Nil(t, report)
	}
}

func TestServerThatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := conformance.Target{APIKey: "e2b_0", Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			return nil, errors.New("no such host")
		})}
		opts := &conformance.Options{Checks: regexp.MustCompile("^(errors/no-key|envd/health)$")}
		report, err := conformance.Run(t.Context(), target, opts)
		require.NoError(t, err)
		require.Equal(t, 2, report.Count(conformance.Fail))
		require.Equal(t, "an answer to GET /v2/sandboxes", report.Results[0].Expected)
		require.Equal(t, "no such host", report.Results[0].Seen)
		require.Equal(t, "a sandbox that checks share", report.Results[1].Expected)
	})
}

// A sandbox that the server makes after its client has gone is removed when it is there.
func TestLateSandboxIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tag, lists, removed := "", 0, ""
		target := conformance.Target{APIKey: "e2b_0", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			switch {
			case r.Method == http.MethodPost && r.ContentLength > 2:
				var body struct{ Metadata map[string]string }
				require.NoError(t, json.NewDecoder(r.Body).Decode(&body))
				tag = body.Metadata["e2b-conformance"]
				return nil, errors.New("connection reset")
			case r.Method == http.MethodDelete:
				removed = r.URL.Path
				return answered(204, ""), nil
			case r.URL.Path == "/v2/sandboxes":
				if lists++; lists > 2 && removed == "" {
					return answered(200, `[{"sandboxID":"i0","metadata":{}},{"sandboxID":"i1","metadata":{"e2b-conformance":"`+tag+`"}}]`), nil
				}
				return answered(200, "[]"), nil
			}
			return answered(400, "{}"), nil
		})}
		report, err := conformance.Run(t.Context(), target, &conformance.Options{Checks: regexp.MustCompile("^lifecycle/kill$")})
		require.NoError(t, err)
		require.Equal(t, "/sandboxes/i1", removed)
		require.Empty(t, report.Left)
	})
}

// Without a SandboxURL sandboxes have host names, below the domain that create tells.
func TestHostNames(t *testing.T) {
	for domain, want := range map[string]string{"": "49983-i1.e2b.example", `,"domain":"own.example"`: "49983-i1.own.example"} {
		var hosts []string
		target := conformance.Target{APIKey: "e2b_0", Domain: "e2b.example", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			switch {
			case r.URL.Host != "api.e2b.example":
				hosts = append(hosts, r.URL.Scheme+"://"+r.URL.Host)
				return answered(204, "", "Cache-Control", "no-store"), nil
			case r.Method == http.MethodPost && r.ContentLength > 2:
				return answered(201, `{"sandboxID":"i1"`+domain+`}`), nil
			}
			return answered(404, `{"code":404,"message":"gone"}`), nil
		})}
		report, err := conformance.Run(t.Context(), target, &conformance.Options{Checks: regexp.MustCompile("^(envd/health|proxy/by-headers)$"), Parallel: 1})
		require.NoError(t, err)
		require.Equal(t, 1, report.Count(conformance.Pass))
		require.ElementsMatch(t, []string{"https://" + want, "https://sandbox.e2b.example", "https://sandbox.e2b.example"}, hosts)
	}
}

// What came with a newer envd is unsupported by an older one.
func TestOlderEnvd(t *testing.T) {
	for version, outcome := range map[string]conformance.Outcome{"0.5.6": conformance.Unsupported, "0.5.7": conformance.Fail, "0.10.0": conformance.Fail} {
		target := conformance.Target{APIKey: "e2b_0", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost && r.ContentLength > 2 {
				return answered(201, `{"sandboxID":"i1","envdVersion":"`+version+`"}`), nil
			}
			return answered(404, `{"code":404,"message":"gone"}`), nil
		})}
		report, err := conformance.Run(t.Context(), target, &conformance.Options{Checks: regexp.MustCompile("^files/write-read$")})
		require.NoError(t, err)
		require.Equal(t, outcome, report.Results[0].Outcome, version)
	}
}

func TestBounds(t *testing.T) {
	creations := 0
	target := conformance.Target{APIKey: "e2b_0", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPost && r.ContentLength > 2 {
			creations++
			return answered(500, "{}"), nil
		}
		return answered(400, "{}"), nil
	})}
	opts := &conformance.Options{Checks: regexp.MustCompile("^lifecycle/(kill|info|pause)$"), MaxSandboxes: 2, Parallel: 1}
	report, err := conformance.Run(t.Context(), target, opts)
	require.NoError(t, err)
	require.Equal(t, 2, creations)
	require.Equal(t, 2, report.Count(conformance.Fail))
	require.Equal(t, conformance.NotRun, report.Results[2].Outcome)
	require.Equal(t, "Options.MaxSandboxes is reached", report.Results[2].Reason)
	require.False(t, report.OK())
}

// A request that never ends is given up with the run, and what was made is removed.
func TestEndOfTheRun(t *testing.T) {
	stop := errors.New("stopped by its user")
	for name, reason := range map[string]string{"limit": "Options.Limit is over", "cancel": stop.Error()} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var removed []string
			target := conformance.Target{APIKey: "e2b_0", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				switch {
				case r.Method == http.MethodDelete:
					removed = append(removed, r.URL.Path)
					return answered(204, ""), nil
				case r.Method == http.MethodGet && r.URL.Path == "/v2/sandboxes":
					return answered(200, "[]"), nil
				case r.Method == http.MethodGet:
					if name == "cancel" {
						cancel(stop)
					}
					<-r.Context().Done()
					return nil, r.Context().Err()
				case r.ContentLength == 2: // which routes there are
					return answered(400, "{}"), nil
				}
				return answered(201, `{"sandboxID":"i1"}`), nil
			})}
			opts := &conformance.Options{Checks: regexp.MustCompile("^lifecycle/(info|set-timeout)$"), Parallel: 1, Limit: time.Minute}
			began := time.Now()
			report, err := conformance.Run(ctx, target, opts)
			require.NoError(t, err)
			require.Equal(t, 2, report.Count(conformance.NotRun))
			require.Equal(t, reason, report.Results[0].Reason)
			require.Equal(t, reason, report.Results[1].Reason)
			require.Equal(t, []string{"/sandboxes/i1"}, removed)
			if name == "limit" {
				require.Equal(t, time.Minute, time.Since(began))
			}
		})
	}
}

// A server that is asked too often is asked again when it says so.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		target := conformance.Target{APIKey: "e2b_0", Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			if requests++; requests < 3 {
				return answered(429, `{"code":429,"message":"Rate limit exceeded"}`, "Retry-After", "7"), nil
			}
			return answered(401, `{"code":401,"message":"authorization header is missing"}`), nil
		})}
		began := time.Now()
		report, err := conformance.Run(t.Context(), target, &conformance.Options{Checks: regexp.MustCompile("^errors/no-key$")})
		require.NoError(t, err)
		require.Equal(t, 1, report.Count(conformance.Pass))
		require.Equal(t, 14*time.Second, time.Since(began))
	})
}

var aReport = &conformance.Report{
	Results: []conformance.Result{
		{Name: "a/one", Area: "a", Outcome: conformance.Pass, Duration: time.Second},
		{Name: "a/two", Area: "a", Outcome: conformance.Fail, Expected: "GET /: 204", Seen: "404\nnot found\n"},
		{Name: "b/one", Area: "b", Outcome: conformance.Unsupported, Reason: "no such route"},
		{Name: "b/two", Area: "b", Outcome: conformance.NotRun, Reason: "canceled"},
	},
	Sandboxes: 3, Left: []string{"/sandboxes/i1"}, Duration: 1234 * time.Millisecond,
}

func TestReportAsText(t *testing.T) {
	var b strings.Builder
	require.NoError(t, aReport.WriteText(&b))
	require.Equal(t, `pass         a/one
fail         a/two
             expected: GET /: 204
             seen:     404
                       not found
unsupported  b/one: no such route
not run      b/two: canceled
left behind  /sandboxes/i1
4 checks in 1.2s with 3 sandboxes: 1 passed, 1 failed, 1 unsupported, 1 not run
`, b.String())
}

func TestReportAsJSON(t *testing.T) {
	text, err := json.Marshal(aReport)
	require.NoError(t, err)
	require.Contains(t, string(text), `{"name":"a/one","area":"a","outcome":"pass","duration":1000000000}`)
	read := new(conformance.Report)
	require.NoError(t, json.Unmarshal(text, read))
	require.Equal(t, aReport, read)
}

// A fakeTB notes what a test would say.
type fakeTB struct {
	ctx    context.Context
	errors []string
	logs   []string
}

func (*fakeTB) Helper() {}

func (f *fakeTB) Context() context.Context { return f.ctx }

func (f *fakeTB) Errorf(format string, args ...any) {
	f.errors = append(f.errors, fmt.Sprintf(format, args...))
}

func (f *fakeTB) Logf(format string, args ...any) {
	f.logs = append(f.logs, fmt.Sprintf(format, args...))
}

func TestInATest(t *testing.T) {
	tb := &fakeTB{ctx: t.Context()}
	conformance.Test(tb, conformance.Target{}, nil)
	require.Len(t, tb.errors, 1)
	require.Contains(t, tb.errors[0], "Target.APIKey")

	tb = &fakeTB{ctx: t.Context()}
	target := conformance.Target{APIKey: "e2b_0", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		return answered(404, `{"code":404,"message":"validation error: no matching operation was found"}`), nil
	})}
	conformance.Test(tb, target, &conformance.Options{Checks: regexp.MustCompile("^(list/bad-query|errors/unknown-route|errors/wrong-method)$")})
	require.Len(t, tb.errors, 1)
	require.Contains(t, tb.errors[0], "errors/wrong-method\nexpected: ")
	require.Contains(t, tb.errors[0], "\nseen:     404")
	require.Len(t, tb.logs, 1)
	require.Contains(t, tb.logs[0], "list/bad-query is unsupported: GET /v2/sandboxes?")
}
