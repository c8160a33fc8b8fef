package contract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/stretchr/testify/require"
)

// requestDifferences are the ways in which the SDK's requests go beyond the
// file.
var requestDifferences = []difference{
	{
		"POST /sandboxes/{sandboxID}/connect", "body /memory",
		"the servers take it; the file marks it as not implemented, and E2B's public copy lacks it",
	},
	{
		"POST /v2/sandboxes/{sandboxID}/connect", "body /memory",
		"as in v1",
	},
	{
		"POST /sandboxes/{sandboxID}/snapshots", "body /mode",
		"newer than the file; older servers ignore it",
	},
}

// answers names the recorded exchange that answers an operation. An operation
// that is not here does not exist on the server.
var answers = map[string]string{
	"POST /sandboxes":                     "create-default",
	"POST /sandboxes/{sandboxID}/connect": "connect-running-200",
	"POST /sandboxes/{sandboxID}/pause":   "pause-204",
	"POST /sandboxes/{sandboxID}/timeout": "timeout-204",
	"DELETE /sandboxes/{sandboxID}":       "kill-204",
	"GET /sandboxes/{sandboxID}":          "info-default",
	"GET /v2/sandboxes":                   "list-v2-page-3-last",

	"POST /sandboxes/{sandboxID}/snapshots": "snapshot-create-named-201",
	"POST /sandboxes/{sandboxID}/fork":      "fork-201",
	"GET /snapshots":                        "snapshot-list-page-2",
	"DELETE /templates/{templateID}":        "snapshot-delete-204",

	"PUT /sandboxes/{sandboxID}/network":    "network-204",
	"POST /sandboxes/{sandboxID}/refreshes": "refresh-empty-object-204",
	"GET /sandboxes/{sandboxID}/metrics":    "metrics-unknown",
	"GET /sandboxes/metrics":                "metrics-many",
	"GET /teams/{teamID}/metrics":           "metrics-unknown", // an empty list as well
	"GET /teams/{teamID}/metrics/max":       "team-metrics-max",
	"GET /v2/sandboxes/{sandboxID}/logs":    "logs-v2",
	"GET /volumes":                          "volume-list",
	"POST /volumes":                         "volume-create-201",
	"GET /volumes/{volumeID}":               "volume-get",
	"DELETE /volumes/{volumeID}":            "volume-delete-204",
	"GET /secrets":                          "metrics-unknown", // no list of secrets could be recorded
	"POST /secrets":                         "secrets-unavailable-403",
	"GET /secrets/{secretID}":               "secrets-unavailable-403",
	"POST /secrets/{secretID}":              "secrets-unavailable-403",
	"DELETE /secrets/{secretID}":            "volume-delete-204", // no success has a body
}

// onlyNew are the answers of a server that has no v1 routes any more.
var onlyNew = map[string]string{
	"POST /sandboxes":                        "route-v2-create-not-here",
	"POST /v2/sandboxes":                     "create-default",
	"POST /sandboxes/{sandboxID}/connect":    "route-unknown",
	"POST /v2/sandboxes/{sandboxID}/connect": "connect-running-200",
}

// onlyOld are the answers of a server that has no v2 list yet.
var onlyOld = map[string]string{
	"GET /v2/sandboxes": "route-unknown",
	"GET /sandboxes":    "list-v1",

	"GET /v2/sandboxes/{sandboxID}/logs": "route-unknown",
	"GET /sandboxes/{sandboxID}/logs":    "logs-v1",
}

// A checkingTransport holds every request against the file and answers it with
// a recorded exchange.
type checkingTransport struct {
	spec    *spec
	answers map[string]recordedAnswer

	mu         sync.Mutex
	operations []string
	found      []violation
}

type recordedAnswer struct {
	status int
	header http.Header
	body   []byte
}

func newCheckingTransport(t *testing.T, s *spec, other map[string]string) *checkingTransport {
	t.Helper()
	c := &checkingTransport{spec: s, answers: map[string]recordedAnswer{}}
	names := maps.Clone(answers)
	maps.Copy(names, other)
	for operation, name := range names {
		e := readExchange(t, name)
		c.answers[operation] = recordedAnswer{e.Response.Status, e.header(), e.body(t)}
	}
	return c
}

func (c *checkingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	// The check reads the body and puts it back, and a transport may not change
	// the request that it is given.
	r = r.Clone(r.Context())
	operation, found := c.spec.checkRequest(r)
	if r.Body != nil {
		defer func() { _ = r.Body.Close() }()
	}
	c.mu.Lock()
	c.operations = append(c.operations, operation)
	c.found = append(c.found, found...)
	c.mu.Unlock()
	a, ok := c.answers[operation]
	if !ok {
		return nil, fmt.Errorf("no recorded answer for %s", operation)
	}
	return &http.Response{
		Status:        fmt.Sprintf("%d %s", a.status, http.StatusText(a.status)),
		StatusCode:    a.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        a.header.Clone(),
		Body:          io.NopCloser(bytes.NewReader(a.body)),
		ContentLength: int64(len(a.body)),
		Request:       r,
	}, nil
}

// TestSDK makes the SDK send every control-plane request that it has, with
// every option, and accepts no violation but those of requestDifferences.
func TestSDK(t *testing.T) {
	s := requestSpec(t)
	const (
		id = "isandbox0000000000001" // that of the recorded answers

		create     = "POST /sandboxes"
		createV2   = "POST /v2/sandboxes"
		connect    = "POST /sandboxes/{sandboxID}/connect"
		connectV2  = "POST /v2/sandboxes/{sandboxID}/connect"
		pause      = "POST /sandboxes/{sandboxID}/pause"
		setTimeout = "POST /sandboxes/{sandboxID}/timeout"
		kill       = "DELETE /sandboxes/{sandboxID}"
		info       = "GET /sandboxes/{sandboxID}"
		list       = "GET /v2/sandboxes"
		listV1     = "GET /sandboxes"

		setNetwork   = "PUT /sandboxes/{sandboxID}/network"
		refresh      = "POST /sandboxes/{sandboxID}/refreshes"
		metrics      = "GET /sandboxes/{sandboxID}/metrics"
		metricsOf    = "GET /sandboxes/metrics"
		teamMetrics  = "GET /teams/{teamID}/metrics"
		teamMax      = "GET /teams/{teamID}/metrics/max"
		logs         = "GET /v2/sandboxes/{sandboxID}/logs"
		logsV1       = "GET /sandboxes/{sandboxID}/logs"
		listVolumes  = "GET /volumes"
		createVolume = "POST /volumes"
		getVolume    = "GET /volumes/{volumeID}"
		deleteVolume = "DELETE /volumes/{volumeID}"
		listSecrets  = "GET /secrets"
		createSecret = "POST /secrets"
		getSecret    = "GET /secrets/{secretID}"
		updateSecret = "POST /secrets/{secretID}"
		deleteSecret = "DELETE /secrets/{secretID}"
	)
	const team = "00000000-0000-4000-8000-000000000001"
	odd := map[string]string{"plain": "value", "odd & = + % ü /": "quote \" and\nnewline", "empty": ""}
	env := map[string]string{"NAME": "value", "ODD": "& = + % ü / \"\n", "EMPTY": ""}
	full := &e2b.CreateOptions{
		Template:  "code-interpreter",
		Timeout:   90*time.Second + time.Millisecond,
		OnTimeout: e2b.TimeoutPause, AutoResume: new(true),
		Metadata: odd, Env: env,
		NoInternet: true,
		Network: &e2b.Network{
			AllowOut:           []string{"example.com", "*.example.com", "192.0.2.0/24"},
			DenyOut:            []string{"0.0.0.0/0"},
			AllowPublicTraffic: new(false),
			MaskRequestHost:    "localhost:${PORT}",
			Rules:              map[string][]e2b.NetworkRule{"*.example.com": {{Headers: map[string]string{"Authorization": "Bearer " + e2b.IAMPlaceholder("aws")}}}},
			EgressProxy:        &e2b.EgressProxy{Address: "proxy.example.com:1080", Username: "u", Password: e2b.NewToken("p")},
		},
		IAM:     map[string]e2b.IAMToken{"aws": {Audience: "sts.amazonaws.com"}},
		Volumes: map[string]string{"/mnt/data": "rigvol", "/mnt/ü": "Other_1"},
	}
	withCreate := func(change func(*e2b.CreateOptions)) func(context.Context, *e2b.Client) error {
		return func(ctx context.Context, c *e2b.Client) error {
			opts := *full
			change(&opts)
			_, err := c.Create(ctx, &opts)
			return err
		}
	}
	// handle runs do with a sandbox that took no request to make.
	handle := func(do func(context.Context, *e2b.Sandbox) error) func(context.Context, *e2b.Client) error {
		return func(ctx context.Context, c *e2b.Client) error {
			sbx, err := c.FromRecord(e2b.Record{SandboxID: id, EnvdVersion: "0.6.13"})
			if err != nil {
				return err
			}
			return do(ctx, sbx)
		}
	}
	second := func(_ any, err error) error { return err }
	// forbidden is for routes of which refusals alone could be recorded.
	forbidden := func(_ any, err error) error {
		if errors.Is(err, e2b.ErrForbidden) {
			return nil
		}
		return fmt.Errorf("not the recorded refusal: %w", err)
	}
	read := func(logs iter.Seq2[e2b.LogEntry, error]) error {
		for _, err := range logs {
			if err != nil {
				return err
			}
		}
		return nil
	}
	begin, end := time.Date(2026, 11, 1, 1, 2, 3, 456, time.UTC), time.Date(2026, 11, 2, 1, 2, 3, 456, time.UTC)

	const (
		snapshot       = "POST /sandboxes/{sandboxID}/snapshots"
		fork           = "POST /sandboxes/{sandboxID}/fork"
		listSnapshots  = "GET /snapshots"
		deleteSnapshot = "DELETE /templates/{templateID}"
	)
	tests := []struct {
		name   string
		server map[string]string // answers that differ from the usual ones
		do     func(context.Context, *e2b.Client) error
		want   []string // operations, in order
	}{
		{name: "create with defaults", want: []string{create}, do: func(ctx context.Context, c *e2b.Client) error { return second(c.Create(ctx, nil)) }},
		{name: "create with all options", want: []string{create}, do: withCreate(func(*e2b.CreateOptions) {})},
		{name: "create to be killed", want: []string{create}, do: withCreate(func(o *e2b.CreateOptions) { o.OnTimeout, o.AutoResume = e2b.TimeoutKill, nil })},
		{name: "create to be paused to disk", want: []string{create}, do: withCreate(func(o *e2b.CreateOptions) { o.OnTimeout, o.AutoResume = e2b.TimeoutPauseFilesystem, nil })},
		{name: "create without auto-resume", want: []string{create}, do: withCreate(func(o *e2b.CreateOptions) { o.AutoResume = new(false) })},
		{name: "create insecure", want: []string{create}, do: withCreate(func(o *e2b.CreateOptions) { o.Insecure, o.Network = true, nil })},
		{name: "create without a token", want: []string{create}, do: withCreate(func(o *e2b.CreateOptions) { o.NoToken, o.Metadata = true, nil })},
		{name: "create for long", want: []string{create}, do: withCreate(func(o *e2b.CreateOptions) { o.Timeout = 24 * time.Hour })},
		{name: "create on a newer server", server: onlyNew, want: []string{create, createV2}, do: withCreate(func(*e2b.CreateOptions) {})},
		{name: "beta create with defaults", want: []string{create}, do: func(ctx context.Context, c *e2b.Client) error { return second(c.BetaCreate(ctx, nil)) }},
		{name: "beta create with all options", want: []string{create}, do: func(ctx context.Context, c *e2b.Client) error {
			return second(c.BetaCreate(ctx, &e2b.BetaCreateOptions{
				Template: "base", Timeout: time.Minute, AutoPause: true, Metadata: odd, Env: env, Insecure: true, NoInternet: true,
			}))
		}},
		{name: "connect with defaults", want: []string{connect}, do: func(ctx context.Context, c *e2b.Client) error { return second(c.Connect(ctx, id, nil)) }},
		{name: "connect with a long ID", want: []string{connect}, do: func(ctx context.Context, c *e2b.Client) error { return second(c.Connect(ctx, id+"-6532622b", nil)) }},
		{name: "connect with a fraction of a second", want: []string{connect}, do: func(ctx context.Context, c *e2b.Client) error {
			return second(c.Connect(ctx, id, &e2b.ConnectOptions{Timeout: time.Nanosecond}))
		}},
		{name: "connect with a reboot", want: []string{connect}, do: func(ctx context.Context, c *e2b.Client) error {
			return second(c.Connect(ctx, id, &e2b.ConnectOptions{Timeout: time.Minute, OnResume: e2b.OnResume{Reboot: true}}))
		}},
		{name: "connect on a newer server", server: onlyNew, want: []string{connect, connectV2}, do: func(ctx context.Context, c *e2b.Client) error {
			return second(c.Connect(ctx, id, &e2b.ConnectOptions{OnResume: e2b.OnResume{Reboot: true}}))
		}},
		{name: "connect a handle", want: []string{connect}, do: handle(func(ctx context.Context, s *e2b.Sandbox) error { return s.Connect(ctx, nil) })},
		{name: "pause", want: []string{pause}, do: func(ctx context.Context, c *e2b.Client) error { return second(c.Pause(ctx, id, nil)) }},
		{name: "pause without memory", want: []string{pause}, do: func(ctx context.Context, c *e2b.Client) error {
			return second(c.Pause(ctx, id, &e2b.PauseOptions{DropMemory: true}))
		}},
		{name: "pause with memory", want: []string{pause}, do: func(ctx context.Context, c *e2b.Client) error { return second(c.Pause(ctx, id, &e2b.PauseOptions{})) }},
		{name: "pause a handle", want: []string{pause}, do: handle(func(ctx context.Context, s *e2b.Sandbox) error { return second(s.Pause(ctx, nil)) })},
		{name: "beta pause", want: []string{pause}, do: func(ctx context.Context, c *e2b.Client) error { return second(c.BetaPause(ctx, id)) }},
		{name: "beta pause a handle", want: []string{pause}, do: handle(func(ctx context.Context, s *e2b.Sandbox) error { return second(s.BetaPause(ctx)) })},
		{name: "set the timeout", want: []string{setTimeout}, do: func(ctx context.Context, c *e2b.Client) error { return c.SetTimeout(ctx, id, time.Minute) }},
		{name: "set the timeout of a handle", want: []string{setTimeout}, do: handle(func(ctx context.Context, s *e2b.Sandbox) error { return s.SetTimeout(ctx, time.Nanosecond) })},
		{name: "kill", want: []string{kill}, do: func(ctx context.Context, c *e2b.Client) error { return second(c.Kill(ctx, id)) }},
		{name: "kill a handle", want: []string{kill}, do: handle(func(ctx context.Context, s *e2b.Sandbox) error { return second(s.Kill(ctx)) })},
		{name: "info", want: []string{info}, do: func(ctx context.Context, c *e2b.Client) error { return second(c.Info(ctx, id)) }},
		{name: "info of a handle", want: []string{info}, do: handle(func(ctx context.Context, s *e2b.Sandbox) error { return second(s.Info(ctx)) })},
		{name: "is running", want: []string{info}, do: func(ctx context.Context, c *e2b.Client) error { return second(c.IsRunning(ctx, id)) }},
		{name: "is running of a handle", want: []string{info}, do: handle(func(ctx context.Context, s *e2b.Sandbox) error { return second(s.IsRunning(ctx)) })},
		{name: "list page with defaults", want: []string{list}, do: func(ctx context.Context, c *e2b.Client) error { return second(c.ListPage(ctx, nil)) }},
		{name: "list page with all options", want: []string{list}, do: func(ctx context.Context, c *e2b.Client) error {
			return second(c.ListPage(ctx, &e2b.ListOptions{
				States: []e2b.State{e2b.StateRunning, e2b.StatePaused}, Metadata: odd, Template: "base",
				StartedAfter: time.Date(2026, 11, 1, 1, 2, 3, 456789123, time.FixedZone("", 3600)),
				Ascending:    true, PageSize: 100, PageToken: "MjAyNi0xMS0wMVQwMDowMDowMFpfX2lk=",
			}))
		}},
		{name: "list page of one", want: []string{list}, do: func(ctx context.Context, c *e2b.Client) error {
			return second(c.ListPage(ctx, &e2b.ListOptions{States: []e2b.State{e2b.StatePaused}, PageSize: 1}))
		}},
		{name: "list", want: []string{list}, do: func(ctx context.Context, c *e2b.Client) error {
			for _, err := range c.List(ctx, &e2b.ListOptions{Metadata: odd}) {
				if err != nil {
					return err
				}
			}
			return nil
		}},
		{name: "snapshot", want: []string{snapshot}, do: func(ctx context.Context, c *e2b.Client) error { return second(c.Snapshot(ctx, id, nil)) }},
		{name: "snapshot of a handle with all options", want: []string{snapshot}, do: handle(func(ctx context.Context, s *e2b.Sandbox) error {
			return second(s.Snapshot(ctx, &e2b.SnapshotOptions{Name: "team/name:tag", FilesystemOnly: true}))
		})},
		{name: "fork", want: []string{fork}, do: func(ctx context.Context, c *e2b.Client) error { return second(c.Fork(ctx, id, nil)) }},
		{name: "fork a handle with all options", want: []string{fork}, do: handle(func(ctx context.Context, s *e2b.Sandbox) error {
			return second(s.Fork(ctx, &e2b.ForkOptions{Count: 100, Timeout: time.Nanosecond}))
		})},
		{name: "list snapshots", want: []string{listSnapshots}, do: func(ctx context.Context, c *e2b.Client) error { return second(c.SnapshotsPage(ctx, nil)) }},
		{name: "list snapshots of a handle with all options", want: []string{listSnapshots}, do: handle(func(ctx context.Context, s *e2b.Sandbox) error {
			for _, err := range s.Snapshots(ctx, &e2b.SnapshotListOptions{Name: "team/name:tag", PageSize: 100, PageToken: "MjAyNi0xMS0wMVQwMDowMDowMFpfX2lk="}) {
				if err != nil {
					return err
				}
			}
			return nil
		})},
		{name: "delete a snapshot", want: []string{deleteSnapshot}, do: func(ctx context.Context, c *e2b.Client) error { return c.DeleteSnapshot(ctx, "team/name:tag") }},
		{name: "list on an older server", server: onlyOld, want: []string{list, listV1}, do: func(ctx context.Context, c *e2b.Client) error {
			return second(c.ListPage(ctx, &e2b.ListOptions{States: []e2b.State{e2b.StateRunning}, Metadata: odd}))
		}},
		{name: "set the network", want: []string{setNetwork, setNetwork}, do: handle(func(ctx context.Context, s *e2b.Sandbox) error {
			all := *full.Network
			all.AllowPublicTraffic, all.MaskRequestHost = nil, ""
			return errors.Join(s.SetNetwork(ctx, nil, nil), s.SetNetwork(ctx, &all, &e2b.SetNetworkOptions{NoInternet: true}))
		})},
		{name: "update the network", want: []string{info, setNetwork}, do: handle(func(ctx context.Context, s *e2b.Sandbox) error {
			return s.UpdateNetwork(ctx, func(n *e2b.Network) { n.DenyOut = []string{"10.0.0.0/8"} })
		})},
		{name: "refresh", want: []string{refresh}, do: func(ctx context.Context, c *e2b.Client) error { return c.Refresh(ctx, id, time.Nanosecond) }},
		{name: "refresh a handle for long", want: []string{refresh}, do: handle(func(ctx context.Context, s *e2b.Sandbox) error { return s.Refresh(ctx, time.Hour) })},
		{name: "metrics", want: []string{metrics}, do: func(ctx context.Context, c *e2b.Client) error { return second(c.Metrics(ctx, id, nil)) }},
		{name: "metrics of a time", want: []string{metrics}, do: handle(func(ctx context.Context, s *e2b.Sandbox) error {
			return second(s.Metrics(ctx, &e2b.MetricsOptions{Start: begin, End: end}))
		})},
		{name: "metrics of many", want: []string{metricsOf, metricsOf}, do: func(ctx context.Context, c *e2b.Client) error {
			ids := []string{id, id, id + "-6532622b"}
			for i := range 100 {
				ids = append(ids, fmt.Sprintf("i%d", i))
			}
			return second(c.MetricsOf(ctx, ids))
		}},
		{name: "metrics of the team", want: []string{teamMetrics, teamMetrics}, do: func(ctx context.Context, c *e2b.Client) error {
			return errors.Join(second(c.TeamMetrics(ctx, team, nil)), second(c.TeamMetrics(ctx, team, &e2b.MetricsOptions{Start: begin, End: end})))
		}},
		{name: "largest metric of the team", want: []string{teamMax, teamMax}, do: func(ctx context.Context, c *e2b.Client) error {
			_, _, err := c.TeamMetricsMax(ctx, team, e2b.MetricConcurrentSandboxes, nil)
			_, _, err2 := c.TeamMetricsMax(ctx, team, e2b.MetricSandboxStartRate, &e2b.MetricsOptions{Start: begin, End: end})
			return errors.Join(err, err2)
		}},
		{name: "logs with defaults", want: []string{logs}, do: func(ctx context.Context, c *e2b.Client) error { return read(c.Logs(ctx, id, nil)) }},
		{name: "logs with all options", want: []string{logs}, do: handle(func(ctx context.Context, s *e2b.Sandbox) error {
			return read(s.Logs(ctx, &e2b.LogOptions{After: begin, Before: end, Level: e2b.LogWarn, Search: strings.Repeat("ü", 256), PageSize: 1}))
		})},
		{name: "logs backward", want: []string{logs}, do: handle(func(ctx context.Context, s *e2b.Sandbox) error {
			return read(s.Logs(ctx, &e2b.LogOptions{After: begin, Before: end, Reverse: true, Level: e2b.LogDebug}))
		})},
		{name: "logs on an older server", server: onlyOld, want: []string{logs, logsV1}, do: func(ctx context.Context, c *e2b.Client) error {
			return read(c.Logs(ctx, id, &e2b.LogOptions{After: begin, PageSize: 7}))
		}},
		{name: "volumes", want: []string{createVolume, listVolumes, getVolume, deleteVolume}, do: func(ctx context.Context, c *e2b.Client) error {
			return errors.Join(second(c.CreateVolume(ctx, "rig_Vol-1")), second(c.Volumes(ctx)), second(c.Volume(ctx, team)), c.DeleteVolume(ctx, team))
		}},
		{name: "secrets", want: []string{createSecret, createSecret, updateSecret, updateSecret, getSecret, listSecrets, deleteSecret}, do: func(ctx context.Context, c *e2b.Client) error {
			value, metadata := e2b.NewToken("& = + % ü / \"\n"), &e2b.SecretOptions{Metadata: odd}
			return errors.Join(
				forbidden(c.CreateSecret(ctx, "My_Key-1", value, nil)), forbidden(c.CreateSecret(ctx, "a", value, metadata)),
				forbidden(c.UpdateSecret(ctx, "My_Key-1", value, metadata)), forbidden(c.UpdateSecret(ctx, "sec_1", value, &e2b.SecretOptions{Metadata: map[string]string{}})),
				forbidden(c.Secret(ctx, "a")), second(c.SecretsPage(ctx, &e2b.SecretListOptions{PageSize: 100, PageToken: "a=="})), c.DeleteSecret(ctx, "a"))
		}},
	}

	var found []violation
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			transport := newCheckingTransport(t, s, tt.server)
			// The URL is given, so that no environment variable can change it.
			client, err := e2b.NewClient(&e2b.ClientOptions{
				APIKey: testKey, APIURL: "https://api.e2b.app", Transport: transport, MaxRetries: -1,
			})
			require.NoError(t, err)
			require.NoError(t, tt.do(t.Context(), client))
			require.Equal(t, tt.want, transport.operations)
			for _, v := range transport.found {
				t.Logf("violation: %v", v)
			}
			found = append(found, transport.found...)
		})
	}
	open, idle := unexplained(found, requestDifferences)
	require.Empty(t, open, "requests that the file does not allow")
	require.Empty(t, idle, "differences that no request needs any more")

	// Every operation that answers has an entry for was really asked for.
	asked := map[string]bool{}
	for _, tt := range tests {
		for _, operation := range tt.want {
			asked[operation] = true
		}
	}
	checkParity(t, asked)
	for _, set := range []map[string]string{answers, onlyNew, onlyOld} {
		for operation := range set {
			require.Contains(t, slices.Collect(maps.Keys(asked)), operation)
		}
	}
}
