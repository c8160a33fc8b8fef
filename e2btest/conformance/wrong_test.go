//go:build linux

package conformance_test

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest"
	"github.com/seed-09a7379d/e2b-go/e2btest/conformance"
)

func get(t *testing.T, s *e2btest.Server, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.APIURL()+path, nil)
	require.NoError(t, err)
	req.Header.Set("X-API-Key", s.APIKey())
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(b)
}

// A seen is a part of what a check expected and of what it saw.
type seen struct{ expected, saw string }

// Servers that are wrong in one way, and the checks that have to notice. All others
// of those that were run have to pass.
var wrongServers = []struct {
	name   string
	fault  e2btest.Fault
	checks string
	want   map[string]seen
}{
	{
		"another status",
		e2btest.Fault{Method: "PATCH", Status: 405, Body: "{}"},
		"^errors/",
		map[string]seen{"errors/wrong-method": {"PATCH /sandboxes/i0000000000000000conf: 404", "405 {}"}},
	},
	{
		"another message",
		e2btest.Fault{Method: "GET", Path: "/v2/sandboxes", Fields: map[string]string{"message": "no"}},
		"^errors/",
		map[string]seen{
			"errors/no-key":             {`"code":401 and "message":"authorization header is missing"`, `401 {"code":401,"message":"no"}`},
			"errors/key-without-prefix": {`"message":"authorization header is malformed"`, `"message":"no"`},
			"errors/key-not-hex":        {`Invalid API key format`, `"message":"no"`},
			"errors/unknown-key":        {`Cannot get the team for the given API key`, `"message":"no"`},
		},
	},
	{
		"all with any key",
		e2btest.Fault{Path: "/v2/sandboxes", Status: 200, Body: "[]"},
		"^errors/",
		map[string]seen{
			"errors/no-key":             {"GET /v2/sandboxes: 401", "200 []"},
			"errors/key-without-prefix": {"GET /v2/sandboxes: 401", "200 []"},
			"errors/key-not-hex":        {"GET /v2/sandboxes: 401", "200 []"},
			"errors/unknown-key":        {"GET /v2/sandboxes: 401", "200 []"},
		},
	},
	{
		"timeouts that are not set",
		e2btest.Fault{Path: "/sandboxes/{id}/timeout", Status: 204},
		"^lifecycle/(set-timeout|connect-extends|kill|create)",
		map[string]seen{"lifecycle/set-timeout": {"a timeout set to 300 s: endAt about 5m0s later than startedAt", "1m40s"}},
	},
	{
		"a pause that is none",
		e2btest.Fault{Path: "/sandboxes/{id}/pause", Status: 204},
		"^lifecycle/(pause|kill-paused|info)$",
		map[string]seen{"lifecycle/pause": {"the field state: \"paused\"", "running"}},
	},
	{
		"no pages",
		e2btest.Fault{Path: "/v2/sandboxes", RemoveHeader: []string{"X-Next-Token"}},
		"^list/",
		map[string]seen{"list/pages": {"the header X-Next-Token", "no such header"}},
	},
	{
		"no filter by state",
		e2btest.Fault{Path: "/v2/sandboxes", IgnoreQuery: []string{"state"}},
		"^list/",
		map[string]seen{
			"list/item":      {"the list of", `" "`},
			"list/state":     {"the list of", `" "`},
			"list/metadata":  {"the list of", `" "`},
			"list/template":  {"the list of", `" "`},
			"list/bad-query": {"400", "200"},
		},
	},
	{
		"a plain proxy",
		e2btest.Fault{Port: 4, Status: 502, Body: "bad gateway"},
		"^(proxy|network)/",
		map[string]seen{
			"proxy/closed-port":   {"JSON", "502 bad gateway"},
			"proxy/by-host":       {"JSON", "502 bad gateway"},
			"proxy/traffic-token": {"403", "502 bad gateway"},
		},
	},
	{
		"no JSON codec of streams",
		e2btest.Fault{ContentType: "connect+json", Status: 415},
		"^envd/(start|exit|list|pty)",
		map[string]seen{
			"envd/start-json": {"200 with a stream in json", "415"},
			"envd/exit-codes": {"200 with a stream in json", "415"},
			"envd/pty-input":  {"200 with a stream in json", "415"},
		},
	},
	{
		"streams that break off",
		e2btest.Fault{Path: "/process.Process/Start", Cut: e2btest.CutMessage, CutAfter: 1},
		"^envd/(start-proto|unary-proto|health|metrics)$",
		map[string]seen{"envd/start-proto": {"a stream that goes on to its end", "EOF"}},
	},
	{
		"no token asked for",
		e2btest.Fault{Port: 49983, Path: "/envs", Status: 200, Body: `{"E2B_SANDBOX":"true"}`},
		"^envd/(auth|metrics|health)$",
		map[string]seen{"envd/auth": {"GET /envs: 401", "200"}},
	},
	{
		"a header of downloads that is missing",
		e2btest.Fault{Path: "/files", RemoveHeader: []string{"Content-Range"}},
		"^files/(range|write-read|gzip|errors)$",
		map[string]seen{"files/range": {"the header Content-Range: bytes 2-4/10", "Content-Range: "}},
	},
	{
		"signatures that are not checked",
		e2btest.Fault{Method: "GET", Path: "/files", Skip: 3, Status: 200, Body: "signed"},
		"^files/signature$",
		map[string]seen{"files/signature": {"401", "200 signed"}},
	},
	{
		"code without an end",
		e2btest.Fault{Path: "/execute", Cut: e2btest.CutMessage, CutAfter: 2},
		"^interpreter/(output|health|contexts|bad-requests)$",
		map[string]seen{
			"interpreter/output":   {"lines until end_of_execution", "EOF"},
			"interpreter/contexts": {"lines until end_of_execution", "EOF"},
		},
	},
}

func TestWrongServersFail(t *testing.T) {
	for _, wrong := range wrongServers {
		t.Run(wrong.name, func(t *testing.T) {
			server, _ := e2btest.New(t, &e2btest.Options{Faults: []e2btest.Fault{wrong.fault}})
			report := run(t, server, wrong.checks)
			require.Equal(t, slices.Sorted(maps.Keys(wrong.want)), with(report, conformance.Fail), text(t, report))
			require.Empty(t, with(report, conformance.NotRun), text(t, report))
			require.False(t, report.OK())
			for _, res := range report.Results {
				if res.Outcome == conformance.Fail {
					require.Contains(t, res.Expected, wrong.want[res.Name].expected, res.Name)
					require.Contains(t, res.Seen, wrong.want[res.Name].saw, res.Name)
				}
			}
			require.Empty(t, report.Left)
			for _, sandbox := range server.Sandboxes() {
				require.Equal(t, "gone", sandbox.State, sandbox.ID)
			}
		})
	}
}

// What the server does not give away is in the report.
func TestLeftBehind(t *testing.T) {
	server, _ := e2btest.New(t, &e2btest.Options{Faults: []e2btest.Fault{{Method: "DELETE", Path: "/sandboxes/{id}", Status: 204}}})
	report := run(t, server, "^lifecycle/kill$")
	require.Equal(t, []string{"lifecycle/kill"}, with(report, conformance.Fail))
	require.Contains(t, report.Results[0].Seen, "200")
	require.Equal(t, []string{"/sandboxes/" + server.Sandboxes()[0].ID}, report.Left)
	require.False(t, report.OK())
	require.Contains(t, text(t, report), "left behind  /sandboxes/")
}

// A sandbox is removed although the answer to its creation never came.
func TestLostSandboxIsRemoved(t *testing.T) {
	server, _ := e2btest.New(t, &e2btest.Options{Faults: []e2btest.Fault{{Method: "POST", Path: "/sandboxes", Skip: 1, Cut: e2btest.CutAnswer}}})
	report := run(t, server, "^lifecycle/info$")
	require.Equal(t, []string{"lifecycle/info"}, with(report, conformance.Fail))
	require.Equal(t, "a sandbox", report.Results[0].Expected)
	require.Len(t, server.Sandboxes(), 1)
	nothingLeft(t, server)
}

// A snapshot as well.
func TestLostSnapshotIsRemoved(t *testing.T) {
	server, _ := e2btest.New(t, &e2btest.Options{Faults: []e2btest.Fault{{Method: "POST", Path: "/sandboxes/{id}/snapshots", Cut: e2btest.CutAnswer}}})
	report := run(t, server, "^snapshots/unnamed$")
	require.Equal(t, []string{"snapshots/unnamed"}, with(report, conformance.Fail))
	nothingLeft(t, server)
}
