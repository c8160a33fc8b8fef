//go:build linux || darwin

package e2btest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
)

// newFaulty starts a server with faults, and a client of it.
func newFaulty(t *testing.T, faults ...e2btest.Fault) (*e2btest.Server, *e2b.Client) {
	t.Helper()
	return e2btest.New(t, &e2btest.Options{Faults: faults})
}

// overHTTP2 returns a client that speaks HTTP/2 where it can.
func overHTTP2(t *testing.T, server *e2btest.Server) *e2b.Client {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	opts := server.ClientOptions()
	opts.Transport = transport
	client, err := e2b.NewClient(opts)
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	return client
}

func create(t *testing.T, client *e2b.Client) *e2b.Sandbox {
	t.Helper()
	sbx, err := client.Create(t.Context(), nil)
	require.NoError(t, err)
	return sbx
}

// all lists the IDs of all sandboxes.
func all(t *testing.T, client *e2b.Client) []string {
	t.Helper()
	ids := []string{}
	for info, err := range client.List(t.Context(), nil) {
		require.NoError(t, err)
		ids = append(ids, info.ID)
	}
	return ids
}

func fired(server *e2btest.Server) []int {
	var n []int
	for _, in := range server.Faults() {
		n = append(n, in.Fired)
	}
	return n
}

func TestFaultsOfTheAPI(t *testing.T) {
	t.Parallel()
	creates := func(f e2btest.Fault) e2btest.Fault {
		f.Method, f.Path, f.Times = "POST", "/sandboxes", 1
		return f
	}
	header := func(name, value string) http.Header { return http.Header{name: {value}} }
	for name, c := range map[string]struct {
		fault    e2btest.Fault
		want     []error
		attempts int
		made     int
	}{
		"busy": {fault: creates(e2btest.Fault{Status: 503}), attempts: 2, made: 1},
		"rate limit": {
			fault: creates(e2btest.Fault{Status: 429, Header: header("retry-after", "0"), Body: `{"code":429,"message":"slow down"}`}), attempts: 2, made: 1,
		},
		"quota": {fault: creates(e2btest.Fault{Status: 429}), want: []error{e2b.ErrQuotaExceeded, e2b.ErrRateLimited}, attempts: 1},
		"bad gateway, not carried out": {
			fault: creates(e2btest.Fault{Status: 502, Body: "<html>502</html>"}), want: []error{e2b.ErrOutcomeUnknown}, attempts: 1,
		},
		"bad gateway, carried out": {
			fault: creates(e2btest.Fault{Status: 502, Body: "<html>502</html>", Commit: true}), want: []error{e2b.ErrOutcomeUnknown}, attempts: 1, made: 1,
		},
		"timeout without a text": {fault: creates(e2btest.Fault{Status: 408}), want: []error{e2b.ErrOutcomeUnknown}, attempts: 1},
		"cut before the request": {fault: creates(e2btest.Fault{Cut: e2btest.CutRequest}), want: []error{e2b.ErrOutcomeUnknown}, attempts: 1},
		"cut before the answer":  {fault: creates(e2btest.Fault{Cut: e2btest.CutAnswer}), want: []error{e2b.ErrOutcomeUnknown}, attempts: 1, made: 1},
		"cut in the answer": {
			fault: creates(e2btest.Fault{Cut: e2btest.CutBody, CutAfter: 20}), want: []error{e2b.ErrOutcomeUnknown}, attempts: 1, made: 1,
		},
		"slow":          {fault: creates(e2btest.Fault{DelayBefore: time.Millisecond, DelayAfter: time.Millisecond}), attempts: 1, made: 1},
		"no such route": {fault: creates(e2btest.Fault{Status: 404, Body: `{"code":404,"message":"validation error: no matching operation was found"}`}), attempts: 1, made: 1},
	} {
		check := func(t *testing.T, http2 bool) {
			t.Helper()
			t.Parallel()
			server, client := newFaulty(t, c.fault)
			if http2 {
				client = overHTTP2(t, server)
			}
			sbx, err := client.Create(t.Context(), nil)
			if c.want == nil {
				require.NoError(t, err)
				require.NotNil(t, sbx)
			}
			for _, want := range c.want {
				require.ErrorIs(t, err, want)
			}
			attempts := 0
			for _, r := range server.Requests() {
				if r.Path == "/sandboxes" && r.Method == http.MethodPost {
					attempts++
					require.NotEmpty(t, r.Body)
				}
			}
			require.Equal(t, c.attempts, attempts)
			require.Equal(t, []int{1}, fired(server))
			require.Len(t, all(t, client), c.made)
		}
		t.Run(name, func(t *testing.T) { check(t, false) })
		t.Run(name+", HTTP/2", func(t *testing.T) { check(t, true) })
	}
}

func TestStalledCreateMakesASandbox(t *testing.T) {
	t.Parallel()
	_, client := newFaulty(t, e2btest.Fault{Method: "POST", Path: "/sandboxes", Stall: true})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := client.Create(ctx, nil)
		failed <- err
	}()
	require.Eventually(t, func() bool { return len(all(t, client)) == 1 }, 20*time.Second, 10*time.Millisecond)
	cancel()
	err := <-failed
	require.ErrorIs(t, err, e2b.ErrOutcomeUnknown)
	require.ErrorIs(t, err, context.Canceled)
}

func TestCloseEndsStallsAndDelays(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]e2btest.Fault{
		"stall":        {Method: "POST", Stall: true},
		"delay before": {Method: "POST", DelayBefore: time.Hour},
		"delay after":  {Method: "POST", DelayAfter: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, client := newFaulty(t, fault)
			failed := make(chan error, 1)
			go func() {
				_, err := client.Create(t.Context(), nil)
				failed <- err
			}()
			require.Eventually(t, func() bool { return server.Faults()[0].Fired == 1 }, 20*time.Second, time.Millisecond)
			require.NoError(t, server.Close())
			require.ErrorIs(t, <-failed, e2b.ErrOutcomeUnknown)
		})
	}
}

func TestDelayEndsWithItsClient(t *testing.T) {
	t.Parallel()
	server, client := newFaulty(t, e2btest.Fault{Path: "/sandboxes/{id}/pause", DelayBefore: time.Hour})
	sbx := create(t, client)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := sbx.Pause(ctx, nil)
		failed <- err
	}()
	require.Eventually(t, func() bool { return server.Faults()[0].Fired == 1 }, 20*time.Second, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	info, err := client.Info(t.Context(), sbx.ID())
	require.NoError(t, err)
	require.Equal(t, e2b.StateRunning, info.State)
}

func TestKilledButKept(t *testing.T) {
	t.Parallel()
	server, client := newFaulty(t)
	sbx := create(t, client)
	remove := server.Inject(e2btest.Fault{Method: "DELETE", Path: "/sandboxes/{id}", Sandbox: sbx.ID(), Status: 204})
	killed, err := sbx.Kill(t.Context())
	require.NoError(t, err)
	require.True(t, killed)
	require.Equal(t, []string{sbx.ID()}, all(t, client))
	remove()
	require.Empty(t, server.Faults())
	_, err = client.Kill(t.Context(), sbx.ID())
	require.NoError(t, err)
	require.Empty(t, all(t, client))
}

func TestFaultsOfLists(t *testing.T) {
	t.Parallel()
	server, client := newFaulty(t)
	for range 2 {
		create(t, client)
	}
	one := &e2b.ListOptions{PageSize: 1}
	count := func(opts *e2b.ListOptions) (n int, err error) {
		for _, err = range client.List(t.Context(), opts) {
			if err == nil {
				n++
			}
		}
		return n, err
	}
	n, err := count(one)
	require.NoError(t, err)
	require.Equal(t, 2, n)

	remove := server.Inject(e2btest.Fault{RemoveHeader: []string{"x-next-token"}})
	n, err = count(one)
	require.NoError(t, err)
	require.Equal(t, 1, n, "the list ends without the header")
	remove()

	remove = server.Inject(e2btest.Fault{IgnoreQuery: []string{"nextToken"}})
	n, err = count(one)
	require.ErrorContains(t, err, "repeats a page")
	require.Equal(t, 1, n)
	remove()

	none := &e2b.ListOptions{Metadata: map[string]string{"no": "such"}}
	n, err = count(none)
	require.NoError(t, err)
	require.Zero(t, n)
	server.Inject(e2btest.Fault{Path: "/v2/sandboxes", IgnoreQuery: []string{"*"}})
	n, err = count(none)
	require.NoError(t, err)
	require.Equal(t, 2, n, "the filter has no effect")
}

func TestFaultsOfStreams(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		server, client := newFaulty(t)
		if http2 {
			client = overHTTP2(t, server)
		}
		breakStreams(t, server, client)
	}
}

func breakStreams(t *testing.T, server *e2btest.Server, client *e2b.Client) {
	t.Helper()
	sbx := create(t, client)
	start := func(cut e2btest.CutPoint, after int64) e2btest.Fault {
		return e2btest.Fault{Path: "/process.Process/Start", Cut: cut, CutAfter: after, Times: 1}
	}

	server.Inject(start(e2btest.CutMessage, 1))
	proc, err := sbx.Commands.Start(t.Context(), "cat", &e2b.RunOptions{KeepStdin: true})
	require.NoError(t, err)
	require.Equal(t, []int{1}, fired(server))
	_, err = proc.Write([]byte("x\n")) // its echo is the message that is cut
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(server.Requests(), func(r e2btest.Request) bool {
			return r.Path == "/process.Process/Connect" && r.Status == 200
		})
	}, 20*time.Second, 10*time.Millisecond, "the SDK joins the command again")
	require.NoError(t, proc.CloseStdin())
	res, err := proc.Wait(t.Context())
	require.ErrorIs(t, err, e2b.ErrStreamInterrupted)
	require.True(t, res.Incomplete)
	require.Zero(t, res.ExitCode)

	server.Inject(start(e2btest.CutBody, 3)) // within the event that tells the PID
	_, err = sbx.Commands.Run(t.Context(), "true", nil)
	require.ErrorIs(t, err, e2b.ErrStreamInterrupted)

	// What begins again afterwards is whole.
	res, err = sbx.Commands.Run(t.Context(), "echo hello", nil)
	require.NoError(t, err)
	require.Equal(t, "hello\n", string(res.Stdout))
}

func TestFaultsOfCode(t *testing.T) {
	t.Parallel()
	server, client := newFaulty(t)
	sbx, err := client.Create(t.Context(), &e2b.CreateOptions{Template: "code-interpreter"})
	require.NoError(t, err)
	bash := &e2b.CodeOptions{Language: "bash"}
	exec, err := sbx.RunCode(t.Context(), "echo hello", bash)
	require.NoError(t, err)
	require.Nil(t, exec.Error)

	server.Inject(e2btest.Fault{Port: 49999, Path: "/execute", Cut: e2btest.CutMessage, Times: 1})
	_, err = sbx.RunCode(t.Context(), "echo hello", bash)
	require.ErrorIs(t, err, e2b.ErrStreamInterrupted)
	server.Inject(e2btest.Fault{Port: 49999, Status: 502, Body: "<html>", Times: 1})
	_, err = sbx.RunCode(t.Context(), "echo hello", bash)
	api, ok := errors.AsType[*e2b.APIError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, 502, api.StatusCode)
	require.Equal(t, []int{1, 1}, fired(server))
	_, err = sbx.RunCode(t.Context(), "echo hello", bash)
	require.NoError(t, err)
}

func TestFaultsOfFiles(t *testing.T) {
	t.Parallel()
	server, client := newFaulty(t)
	sbx := create(t, client)
	data := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	require.NoError(t, sbx.Files.Write(t.Context(), "/data/big", data, nil))
	// A file that has just changed is read anew and not resumed: it may change again
	// within the second.
	_, err := sbx.Commands.Run(t.Context(), "touch -d '2020-01-01' /data/big", nil)
	require.NoError(t, err)

	server.Inject(e2btest.Fault{Method: "GET", Path: "/files", Cut: e2btest.CutBody, CutAfter: 300_000, Times: 2})
	got, err := sbx.Files.Read(t.Context(), "/data/big", nil)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
	require.Equal(t, []int{2}, fired(server))
	var ranges []string
	for _, r := range server.Requests() {
		if r.Path == "/files" && r.Method == http.MethodGet {
			ranges = append(ranges, r.Header.Get("Range"))
		}
	}
	require.Equal(t, []string{"", "bytes=300000-", "bytes=600000-"}, ranges)

	server.Inject(e2btest.Fault{Method: "POST", Path: "/files", Status: 507, Body: `{"code":507,"message":"no space left"}`})
	require.ErrorIs(t, sbx.Files.Write(t.Context(), "/data/other", data, nil), e2b.ErrNoSpace)
}

func TestEnvdWithoutProtobuf(t *testing.T) {
	t.Parallel()
	server, client := newFaulty(t, e2btest.Fault{Port: 49983, ContentType: "proto", Status: 415})
	sbx := create(t, client)
	_, err := sbx.Commands.Run(t.Context(), "true", nil)
	require.ErrorIs(t, err, e2b.ErrNotSupported)

	opts := server.ClientOptions()
	opts.JSON = true
	client, err = e2b.NewClient(opts)
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	sbx, err = client.Connect(t.Context(), sbx.ID(), nil)
	require.NoError(t, err)
	_, err = sbx.Commands.Run(t.Context(), "true", nil)
	require.NoError(t, err)
}

func TestVersionOfEnvd(t *testing.T) {
	t.Parallel()
	_, client := newFaulty(t, e2btest.Fault{Fields: map[string]string{"envdVersion": "0.1.0"}})
	sbx := create(t, client)
	info, err := sbx.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, "0.1.0", info.EnvdVersion)
	_, err = sbx.Commands.Run(t.Context(), "cat", &e2b.RunOptions{Stdin: strings.NewReader("x")})
	require.ErrorIs(t, err, e2b.ErrNotSupported)
}

// ask sends a request that the emulator refuses by itself.
func ask(t *testing.T, method, url string, header ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp
}

func TestWhichRequestsAFaultHits(t *testing.T) {
	t.Parallel()
	server, _ := newFaulty(t)
	hit := func(f e2btest.Fault, method, url string, header ...string) bool {
		f.Status = 599
		defer server.Inject(f)()
		return ask(t, method, url, header...).StatusCode == 599
	}
	api, sandbox := server.APIURL(), server.SandboxURL()
	routed := []string{"E2b-Sandbox-Id", "i1", "E2b-Sandbox-Port", "8080"}
	named := []string{"Host", "8080-i1.localhost:1"}
	for _, c := range []struct {
		fault  e2btest.Fault
		method string
		url    string
		header []string
		want   bool
	}{
		{e2btest.Fault{}, "GET", api + "/", nil, true},
		{e2btest.Fault{}, "GET", sandbox, nil, true},
		{e2btest.Fault{Method: "POST"}, "GET", api + "/x", nil, false},
		{e2btest.Fault{Path: "/sandboxes/{id}"}, "GET", api + "/sandboxes/i1?x=1", nil, true},
		{e2btest.Fault{Path: "/sandboxes/{id}"}, "GET", api + "/sandboxes/", nil, false},
		{e2btest.Fault{Path: "/sandboxes/{id}"}, "GET", api + "/sandboxes/i1/pause", nil, false},
		{e2btest.Fault{Path: "/sandboxes/{id}"}, "GET", api + "/sandboxes/a%2Fb", nil, true},
		{e2btest.Fault{Sandbox: "i1"}, "GET", api + "/v2/sandboxes/i1/logs", nil, true},
		{e2btest.Fault{Sandbox: "i1"}, "GET", api + "/sandboxes/i1-6532622b", nil, true},
		{e2btest.Fault{Sandbox: "i1"}, "GET", api + "/sandboxes/i2", nil, false},
		{e2btest.Fault{Sandbox: "i1"}, "GET", api + "/sandboxes", nil, false},
		{e2btest.Fault{Sandbox: "i1", Port: 8080}, "GET", sandbox, routed, true},
		{e2btest.Fault{Sandbox: "i1", Port: 8080}, "GET", sandbox, named, true},
		{e2btest.Fault{Sandbox: "i2"}, "GET", sandbox, routed, false},
		{e2btest.Fault{Port: 80}, "GET", sandbox, named, false},
		{e2btest.Fault{Port: 8080}, "GET", api + "/sandboxes/i1", routed, false},
		{e2btest.Fault{ContentType: "proto"}, "GET", api + "/x", []string{"Content-Type", "application/proto"}, true},
		{e2btest.Fault{ContentType: "proto"}, "GET", api + "/x", []string{"Content-Type", "application/json"}, false},
	} {
		require.Equal(t, c.want, hit(c.fault, c.method, c.url, c.header...), "%v: %s %s %v", c.fault, c.method, c.url, c.header)
	}
}

func TestOrderAndNumberOfFaults(t *testing.T) {
	t.Parallel()
	server, _ := newFaulty(t, e2btest.Fault{ClockSkew: -time.Hour, Header: http.Header{"x-a": {"1"}}})
	remove := server.Inject(
		e2btest.Fault{Status: 501, Skip: 1, Times: 2},
		e2btest.Fault{Status: 502, Skip: 1, Header: http.Header{"X-B": {"2"}}},
	)
	var statuses []int
	for range 5 {
		resp := ask(t, http.MethodGet, server.APIURL()+"/x")
		statuses = append(statuses, resp.StatusCode)
		require.Equal(t, "1", resp.Header.Get("X-A"))
		date, err := http.ParseTime(resp.Header.Get("Date"))
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(-time.Hour), date, time.Minute)
	}
	require.Equal(t, []int{404, 501, 501, 502, 502}, statuses)
	got := server.Faults()
	require.Len(t, got, 3)
	require.Equal(t, []int{5, 2, 2}, fired(server))
	require.Equal(t, []int{5, 5, 3}, []int{got[0].Seen, got[1].Seen, got[2].Seen}, "one that answers hides the request from those behind it")
	got[2].Fault.Header.Set("X-B", "changed")
	require.Equal(t, "2", server.Faults()[2].Fault.Header.Get("X-B"), "a copy")
	remove()
	remove()
	require.Len(t, server.Faults(), 1)
	require.Equal(t, 404, ask(t, http.MethodGet, server.APIURL()+"/x").StatusCode)
}

func TestFaultsAreData(t *testing.T) {
	t.Parallel()
	f := e2btest.Fault{
		Method: "POST", Path: "/sandboxes/{id}/pause", Port: 1, Sandbox: "i1", ContentType: "json", Skip: 1, Times: 2,
		DelayBefore: 1500 * time.Millisecond, DelayAfter: time.Nanosecond, ClockSkew: -time.Hour, Status: 502, Commit: true,
		Body: "<html>", Header: http.Header{"Retry-After": {"1"}}, RemoveHeader: []string{"Date"},
		Fields: map[string]string{"state": "odd"}, IgnoreQuery: []string{"*"}, Cut: e2btest.CutMessage, CutAfter: 7,
	}
	var again e2btest.Fault
	require.NoError(t, json.Unmarshal([]byte(f.String()), &again))
	require.Equal(t, f, again)
	require.JSONEq(t, `{"path":"/files","delayBefore":"1.5s","cut":"body"}`,
		e2btest.Fault{Path: "/files", DelayBefore: 1500 * time.Millisecond, Cut: e2btest.CutBody}.String())
	require.Equal(t, `{"status":502,"body":"<html>"}`, e2btest.Fault{Status: 502, Body: "<html>"}.String())
	for text, want := range map[string]string{
		`{"delay":"1s"}`:      "unknown field",
		`{"delayBefore":"1"}`: "missing unit",
		`{"cut":"cake"}`:      `no point of a cut "cake"`,
		`{"status":99}`:       "not between 200 and 599",
		`{}`:                  "does nothing",
	} {
		require.ErrorContains(t, json.Unmarshal([]byte(text), &again), want)
	}
	require.Equal(t, "CutPoint(9)", e2btest.CutPoint(9).String())
}

func TestFaultsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	server, _ := newFaulty(t)
	for want, f := range map[string]e2btest.Fault{
		"a slash":             {Path: "files", Status: 500},
		"below zero":          {DelayAfter: -1},
		"between 200 and 599": {Status: 101},
		"need a Status":       {Body: "x", Stall: true},
		"cut is unknown":      {Cut: 9},
		"CutAfter needs":      {Cut: e2btest.CutAnswer, CutAfter: 1},
		"only one":            {Stall: true, Cut: e2btest.CutBody},
		"there can be":        {Status: 500, Cut: e2btest.CutRequest},
		"it does nothing":     {Method: "GET", Skip: 1},

		`"post" is no method of HTTP`:  {Method: "post", Status: 500},
		`"CREATE" is no method`:        {Method: "CREATE", Status: 500},
		`"*" in its path`:              {Path: "/sandboxes/*", Status: 500},
		`":id" in its path`:            {Path: "/sandboxes/:id", Status: 500},
		`"*.txt" in its path`:          {To: e2btest.ToSandboxes, Path: "/web/*.txt", Status: 500},
		`would have "sandboxes%3Fa=b"`: {Path: "/sandboxes?a=b", Status: 500},
		`would have "%7Bid"`:           {Path: "/sandboxes/{id", Status: 500},
		`would have "a%20b"`:           {Port: 80, Path: "/a b", Status: 500},
		`invalid URL escape "%zz"`:     {Port: 80, Path: "/%zz", Status: 500},
		"do not name a Sandbox":        {Path: "/v2/sandboxes", Sandbox: "i1", Status: 500},
		"its To is api":                {To: e2btest.ToAPI, Port: 80, Status: 500},

		"there is no route /sandbox/{id}, but /sandboxes/{id}; for a server of your own": {Path: "/sandbox/{id}", Status: 500},
		"there is no route /sandboxes/, but /sandboxes":                                  {Path: "/sandboxes/", Status: 500},
		"there is no route /v1/sandboxes/{id}/pause, but /sandboxes/{id}/pause":          {To: e2btest.ToAPI, Path: "/v1/sandboxes/{id}/pause", Status: 500},
		"there is no route /file, but /files":                                            {Port: 49983, Path: "/file", Status: 500},
		"there is no route /process.Process/start, but /process.Process/Start":           {Path: "/process.Process/start", Status: 500},
		"there is no route /greetings: a path looks like /sandboxes/{id}/pause; for":     {Path: "/greetings", Status: 500},
		"there is no route PUT /sandboxes/{id}, but GET and DELETE":                      {Method: "PUT", Path: "/sandboxes/{id}", Status: 500},
		"there is no route GET /process.Process/CloseStdin, but POST":                    {Method: "GET", Port: 49983, Path: "/process.Process/CloseStdin", Status: 500},
	} {
		_, err := e2btest.NewServer(&e2btest.Options{Faults: []e2btest.Fault{f}})
		require.ErrorContains(t, err, want, want)
		func() {
			defer func() { require.Contains(t, recover(), want) }()
			server.Inject(f)
		}()
	}
	require.Empty(t, server.Faults())
}

// TestFaultsOfAllRoutes takes a fault for each route, of each generation, and for
// servers that nobody knows.
func TestFaultsOfAllRoutes(t *testing.T) {
	t.Parallel()
	server, _ := newFaulty(t)
	for _, f := range []e2btest.Fault{
		{Method: "POST", Path: "/sandboxes"},
		{Method: "POST", Path: "/v2/sandboxes"},
		{Method: "POST", Path: "/sandboxes/i1/connect"},
		{Method: "POST", Path: "/v2/sandboxes/{id}/connect", Sandbox: "i1"},
		{Method: "GET", Path: "/v2/sandboxes/{id}/{what}"},
		{Method: "GET", Path: "/{a}/{b}/{c}/{d}"},
		{Method: "GET", Path: "/teams/{id}/metrics/max", To: e2btest.ToAPI},
		{Method: "PUT", Path: "/volumecontent/{id}/file"},
		{Method: "GET", Path: "/health"},
		{Method: "GET", Path: "/health", Sandbox: "i1"},
		{Path: "/files", Sandbox: "i1"},
		{Method: "OPTIONS", Path: "/files"},
		{Path: "/templates/{}"},
		{Path: "/process.Process/{method}"},
		{Path: "/filesystem.Filesystem/WatchDir", Port: 49983},
		{Path: "/contexts/{id}/restart"},
		{Path: "/execute", Port: 49999},
		{Path: "/", Port: 8080},
		{Method: "GET", Path: "/any/thing/%C3%BC%2F", To: e2btest.ToSandboxes},
		{Method: "GET", Path: "/sandboxes/", Port: 8080},
	} {
		f.Status = 500
		require.NotPanics(t, func() { server.Inject(f)() }, f)
	}
}

// A logTB keeps what New logs.
type logTB struct {
	e2btest.TB
	log []string
}

func (l *logTB) Logf(format string, args ...any) { l.log = append(l.log, fmt.Sprintf(format, args...)) }

func TestFaultsThatNeverFired(t *testing.T) {
	t.Parallel()
	log := new(logTB)
	t.Run("a test", func(t *testing.T) {
		log.TB = t
		_, client := e2btest.New(log, &e2btest.Options{
			Run:    func(context.Context, *e2btest.Command) int { return 0 },
			Faults: []e2btest.Fault{{Path: "/v2/sandboxes", DelayAfter: 1}, {Path: "/sandboxes", DelayAfter: 1}},
		})
		create(t, client)
		require.Empty(t, log.log)
	})
	require.Equal(t, []string{`e2btest: this fault never fired: {"path":"/v2/sandboxes","delayAfter":"1ns"}`}, log.log)
}

func TestRandomFaultsComeFromTheirSeed(t *testing.T) {
	t.Parallel()
	faults := e2btest.RandomFaults(7, 500)
	require.Equal(t, faults, e2btest.RandomFaults(7, 500))
	require.NotEqual(t, faults, e2btest.RandomFaults(8, 500))
	require.Empty(t, e2btest.RandomFaults(7, -1))
	for _, f := range faults {
		var again e2btest.Fault
		require.NoError(t, json.Unmarshal([]byte(f.String()), &again))
		require.Equal(t, f, again)
		require.LessOrEqual(t, f.DelayBefore+f.DelayAfter, 50*time.Millisecond)
		require.Equal(t, 1, f.Times)
		require.False(t, f.Stall)
	}
	require.Equal(t, []string{
		`{"path":"/process.Process/{method}","skip":2,"times":1,"cut":"request"}`,
		`{"path":"/sandboxes/{id}","skip":7,"times":1,"cut":"message","cutAfter":3}`,
	}, []string{faults[1].String(), faults[2].String()}, "what a seed stands for stays")
}

// Whatever happens, each call ends, and the sandbox is as it was when the faults are
// over.
func TestLifeUnderRandomFaults(t *testing.T) {
	t.Parallel()
	server, client := newFaulty(t)
	sbx := create(t, client)
	remove := server.Inject(e2btest.RandomFaults(1, 40)...)
	for range 5 {
		_, _ = sbx.Info(t.Context())
		_, _ = sbx.Commands.Run(t.Context(), "echo x", nil)
		_ = sbx.Files.Write(t.Context(), "/data/x", []byte("x"), nil)
		_, _ = sbx.Files.Read(t.Context(), "/data/x", nil)
	}
	hits := 0
	for _, n := range fired(server) {
		hits += n
	}
	require.Positive(t, hits)
	remove()
	require.NoError(t, sbx.Files.Write(t.Context(), "/data/x", []byte("y"), nil))
	res, err := sbx.Commands.Run(t.Context(), "cat /data/x", nil)
	require.NoError(t, err)
	require.Equal(t, "y", string(res.Stdout))
}

func TestFaultsLogNoSecret(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	opts := &e2btest.Options{
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Faults: []e2btest.Fault{{Cut: e2btest.CutAnswer}},
	}
	server, err := e2btest.NewServer(opts)
	require.NoError(t, err)
	client, err := e2b.NewClient(server.ClientOptions())
	require.NoError(t, err)
	_, err = client.Create(t.Context(), nil)
	require.ErrorIs(t, err, e2b.ErrOutcomeUnknown)
	client.CloseIdleConnections()
	require.NoError(t, server.Close())
	require.Contains(t, log.String(), "a fault hits")
	require.NotContains(t, log.String(), server.APIKey())
}

func ExampleServer_Inject() {
	server, err := e2btest.NewServer(nil) // in a test: e2btest.New(t, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() {
		if err := server.Close(); err != nil {
			fmt.Println(err)
		}
	}()
	client, err := e2b.NewClient(server.ClientOptions())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.CloseIdleConnections()

	// The sandbox is made, and its answer lost.
	remove := server.Inject(e2btest.Fault{Method: "POST", Path: "/sandboxes", Cut: e2btest.CutAnswer})
	_, err = client.Create(context.Background(), nil)
	fmt.Println("unknown:", errors.Is(err, e2b.ErrOutcomeUnknown))
	fmt.Println("sandboxes:", len(server.Sandboxes()))
	for _, f := range server.Faults() {
		fmt.Println(f.Fired, f.Fault)
	}
	remove()
	// Output:
	// unknown: true
	// sandboxes: 1
	// 1 {"method":"POST","path":"/sandboxes","cut":"answer"}
}
