package e2b_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

// TestBadIDs are refused by every call that takes one.
func TestBadIDs(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	c := api.client(t)
	for _, id := range []string{
		"", "../x", "a/b", "a b", "a\n", "\na", "a\x00", ".", "..", "%2e", "a?b", "a#b", "a;b", "a:b", "a,b", "ü", "-x", "-",
		strings.Repeat("a", 64), strings.Repeat("a", 1<<20),
	} {
		for name, call := range map[string]func(context.Context) error{
			"connect":     func(ctx context.Context) error { _, err := c.Connect(ctx, id, nil); return err },
			"pause":       func(ctx context.Context) error { _, err := c.Pause(ctx, id, nil); return err },
			"beta pause":  func(ctx context.Context) error { _, err := c.BetaPause(ctx, id); return err },
			"kill":        func(ctx context.Context) error { _, err := c.Kill(ctx, id); return err },
			"set timeout": func(ctx context.Context) error { return c.SetTimeout(ctx, id, time.Minute) },
			"info":        func(ctx context.Context) error { _, err := c.Info(ctx, id); return err },
			"is running":  func(ctx context.Context) error { _, err := c.IsRunning(ctx, id); return err },
			"snapshot":    func(ctx context.Context) error { _, err := c.Snapshot(ctx, id, nil); return err },
			"fork":        func(ctx context.Context) error { _, err := c.Fork(ctx, id, nil); return err },
			"from record": func(context.Context) error { _, err := c.FromRecord(e2b.Record{SandboxID: id}); return err },
		} {
			err := call(t.Context())
			requireRefused(t, api, err)
			require.Contains(t, err.Error(), "sandbox ID", "%s of %.80q", name, id)
			require.Less(t, len(err.Error()), 400)
			require.NotContains(t, err.Error(), "\n")
		}
	}
}

// TestGoodIDs are sent, the long form without its second half.
func TestGoodIDs(t *testing.T) {
	t.Parallel()
	for id, sent := range map[string]string{
		"a": "a", "isandbox0000000000001": "isandbox0000000000001", "A_b": "A_b", "i1-6532622b": "i1",
		// Half of one would name another sandbox.
		"550e8400-e29b-41d4-a716-446655440000": "550e8400-e29b-41d4-a716-446655440000", "a-b-c": "a-b-c", "a-": "a-",
		strings.Repeat("a", 63): strings.Repeat("a", 63),
	} {
		api := newFakeAPI(t, answerText(204, ""))
		_, err := api.client(t).Kill(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, []string{"DELETE /sandboxes/" + sent}, api.lines())
	}
}

func TestBadClientOptions(t *testing.T) {
	t.Setenv("E2B_API_KEY", "")
	const secret = "s3cr3t"
	for name, opts := range map[string]*e2b.ClientOptions{
		"key with a line":          {APIKey: secret + "\n"},
		"key with a header":        {APIKey: secret + "\r\nX-Other: 1"},
		"key with spaces around":   {APIKey: " " + secret},
		"key with a zero":          {APIKey: secret + "\x00"},
		"domain with a path":       {APIKey: secret, Domain: "e2b.test/a"},
		"domain with a scheme":     {APIKey: secret, Domain: "https://e2b.test"},
		"domain with a user":       {APIKey: secret, Domain: "user@e2b.test"},
		"domain with a query":      {APIKey: secret, Domain: "e2b.test?a"},
		"domain that is too long":  {APIKey: secret, Domain: strings.Repeat("a.", 200) + "test"},
		"domain with a space":      {APIKey: secret, Domain: "e2b .test"},
		"domain with a line":       {APIKey: secret, Domain: "e2b.test\n"},
		"API URL without a scheme": {APIKey: secret, APIURL: "api.e2b.test"},
		"API URL of files":         {APIKey: secret, APIURL: "file:///etc"},
		"API URL with a user":      {APIKey: secret, APIURL: "https://user:" + secret + "@e2b.test"},
		"API URL with a query":     {APIKey: secret, APIURL: "https://e2b.test?key=" + secret},
		"API URL without a host":   {APIKey: secret, APIURL: "https:///" + secret},
		"API URL that is none":     {APIKey: secret, APIURL: "https://e2b.test:" + secret},
		"sandbox URL with a user":  {APIKey: secret, SandboxURL: "https://" + secret + "@e2b.test"},
		"sandbox URL by itself":    {APIKey: secret, SandboxURL: "localhost:3000"},
		"negative lifetime":        {APIKey: secret, SandboxTimeout: -1},
		"header with a line":       {APIKey: secret, Headers: http.Header{"A": {"b\n" + secret}}},
		"header name with a space": {APIKey: secret, Headers: http.Header{"A b": {secret}}},
		"header without a name":    {APIKey: secret, Headers: http.Header{"": {secret}}},
		"agent with a line":        {APIKey: secret, UserAgent: "a\n" + secret},
	} {
		t.Run(name, func(t *testing.T) {
			api := newFakeAPI(t)
			opts.Transport = api
			c, err := e2b.NewClient(opts)
			require.Nil(t, c)
			requireRefused(t, api, err)
			requireNoSecret(t, err, secret)
			require.NotContains(t, err.Error(), "\n")
		})
	}
	for _, opts := range []*e2b.ClientOptions{nil, {}} {
		_, err := e2b.NewClient(opts)
		requireKinds(t, err, e2b.ErrNoAPIKey)
		require.Contains(t, err.Error(), "E2B_API_KEY")
	}
}

func TestBadCreateOptions(t *testing.T) {
	t.Parallel()
	yes := true
	for name, opts := range map[string]*e2b.CreateOptions{
		"negative lifetime":                   {Timeout: -1},
		"no such action":                      {OnTimeout: 7},
		"negative action":                     {OnTimeout: -1},
		"auto-resume without pause":           {AutoResume: &yes},
		"auto-resume with kill":               {AutoResume: &yes, OnTimeout: e2b.TimeoutKill},
		"auto-resume with files only":         {AutoResume: &yes, OnTimeout: e2b.TimeoutPauseFilesystem},
		"the reserved key":                    {Metadata: map[string]string{"e2b_go_create_token": "mine"}},
		"the reserved key without a token":    {NoToken: true, Metadata: map[string]string{"e2b_go_create_token": ""}},
		"metadata that is not UTF-8":          {Metadata: map[string]string{"a": "s3cr3t\xff"}},
		"a metadata key that is not UTF-8":    {Metadata: map[string]string{"\xff": "a"}},
		"a variable that is not UTF-8":        {Env: map[string]string{"A": "s3cr3t\xff"}},
		"a template that is not UTF-8":        {Template: "\xff"},
		"a variable without a name":           {Env: map[string]string{"": "a"}},
		"a variable with = in its name":       {Env: map[string]string{"A=B": "a"}},
		"a variable with a zero in its name":  {Env: map[string]string{"A\x00": "a"}},
		"a variable with a zero in its value": {Env: map[string]string{"A": "s3cr3t\x00"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t)
			_, err := api.client(t).Create(t.Context(), opts)
			requireRefused(t, api, err)
			require.NotContains(t, err.Error(), "s3cr3t")
		})
	}
	api := newFakeAPI(t)
	_, err := api.client(t).BetaCreate(t.Context(), &e2b.BetaCreateOptions{Timeout: -1})
	requireRefused(t, api, err)
}

// TestUserB5B6BadTimeouts would end a sandbox at once.
func TestUserB5B6BadTimeouts(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	c := api.client(t)
	sbx, err := c.FromRecord(e2b.Record{SandboxID: apiTestID})
	require.NoError(t, err)
	for _, d := range []time.Duration{0, -1, -time.Hour} {
		err := c.SetTimeout(t.Context(), apiTestID, d)
		requireRefused(t, api, err)
		require.Contains(t, err.Error(), "Kill or Pause")
		requireRefused(t, api, sbx.SetTimeout(t.Context(), d))
	}
	for _, d := range []time.Duration{-1, -time.Hour} {
		_, err := c.Connect(t.Context(), apiTestID, &e2b.ConnectOptions{Timeout: d})
		requireRefused(t, api, err)
		requireRefused(t, api, sbx.Connect(t.Context(), &e2b.ConnectOptions{Timeout: d}))
		_, err = c.FromRecord(e2b.Record{SandboxID: apiTestID, Timeout: d})
		requireRefused(t, api, err)
	}
}

func TestBadListOptions(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]*e2b.ListOptions{
		"page too large":  {PageSize: 101},
		"negative page":   {PageSize: -1},
		"no such state":   {States: []e2b.State{e2b.StateRunning, "hibernating"}},
		"an empty state":  {States: []e2b.State{""}},
		"states with a ,": {States: []e2b.State{"running,paused"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t)
			c := api.client(t)
			_, err := c.ListPage(t.Context(), opts)
			requireRefused(t, api, err)
			n := 0
			for info, err := range c.List(t.Context(), opts) {
				n++
				require.Zero(t, info)
				requireRefused(t, api, err)
			}
			require.Equal(t, 1, n)
		})
	}
}

func TestBadRecords(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	c := api.client(t)
	for name, r := range map[string]e2b.Record{
		"no ID":                         {},
		"domain with a path":            {SandboxID: "i1", Domain: "evil.test/"},
		"domain with a user":            {SandboxID: "i1", Domain: "x@evil.test"},
		"envd token with a line":        {SandboxID: "i1", EnvdAccessToken: e2b.NewToken("s3cr3t\nX-Other: 1")},
		"traffic token with a zero":     {SandboxID: "i1", TrafficAccessToken: e2b.NewToken("s3cr3t\x00")},
		"negative lifetime":             {SandboxID: "i1", Timeout: -1},
		"an ID that climbs":             {SandboxID: "../../secrets"},
		"a domain that is no host name": {SandboxID: "i1", Domain: "a\nb"},
	} {
		_, err := c.FromRecord(r)
		requireRefused(t, api, err)
		require.NotContains(t, err.Error(), "s3cr3t", name)
	}
}

// TestNilOptions are the defaults.
func TestNilOptions(t *testing.T) {
	t.Parallel()
	ok := answerJSON(201, createdBody)
	api := newFakeAPI(t, ok, ok, ok, ok, answerText(204, ""), answerText(204, ""), answerJSON(200, "[]"), answerJSON(200, "[]"))
	c := api.client(t)
	ctx := t.Context()
	sbx, err := c.Create(ctx, nil)
	require.NoError(t, err)
	_, err = c.BetaCreate(ctx, nil)
	require.NoError(t, err)
	_, err = c.Connect(ctx, apiTestID, nil)
	require.NoError(t, err)
	require.NoError(t, sbx.Connect(ctx, nil))
	_, err = c.Pause(ctx, apiTestID, nil)
	require.NoError(t, err)
	_, err = sbx.Pause(ctx, nil)
	require.NoError(t, err)
	_, err = c.ListPage(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, slices.Collect(seqKeys(c.List(ctx, nil))))
	for _, r := range api.requests()[:2] {
		require.Equal(t, []string{"e2b_go_create_token"}, slices.Collect(maps.Keys(sentMetadata(t, r))))
	}
	require.Empty(t, api.requests()[6].Query)
	require.Empty(t, api.requests()[7].Query)
}

// TestOptionsAreNotWrittenTo nor kept.
func TestOptionsAreNotWrittenTo(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	newOpts := func() *e2b.CreateOptions {
		return &e2b.CreateOptions{
			Timeout: time.Minute, OnTimeout: e2b.TimeoutPause, AutoResume: &yes,
			Metadata: map[string]string{"a": "1"}, Env: map[string]string{"B": "2"},
			Network: &e2b.Network{AllowOut: []string{"1.1.1.1"}, DenyOut: []string{"0.0.0.0/0"}, AllowPublicTraffic: &no, MaskRequestHost: "x"},
		}
	}
	ok := answerJSON(201, createdBody)
	api := newFakeAPI(t, ok, ok, answerJSON(200, "[]"), answerJSON(200, "[]"), answerText(204, ""))
	clientOpts := &e2b.ClientOptions{APIKey: apiTestKey, APIURL: apiTestURL, Transport: api, Headers: http.Header{"X-Mine": {"a"}}}
	before := *clientOpts
	c, err := e2b.NewClient(clientOpts)
	require.NoError(t, err)
	require.Equal(t, before, *clientOpts)
	clientOpts.Headers["X-Mine"][0] = "changed"
	clientOpts.Headers.Set("X-Late", "b")
	clientOpts.APIKey = "changed"

	opts := newOpts()
	_, err = c.Create(t.Context(), opts)
	require.NoError(t, err)
	require.Equal(t, newOpts(), opts)
	beta := &e2b.BetaCreateOptions{Metadata: map[string]string{"a": "1"}, Env: map[string]string{}}
	_, err = c.BetaCreate(t.Context(), beta)
	require.NoError(t, err)
	require.Equal(t, &e2b.BetaCreateOptions{Metadata: map[string]string{"a": "1"}, Env: map[string]string{}}, beta)

	list := &e2b.ListOptions{States: []e2b.State{e2b.StateRunning}, Metadata: map[string]string{"a": "1"}}
	seq := c.List(t.Context(), list)
	list.States[0], list.Metadata["a"], list.PageToken = e2b.StatePaused, "2", "x"
	for range 2 {
		require.Empty(t, slices.Collect(seqKeys(seq)))
	}
	require.Equal(t, &e2b.ListOptions{States: []e2b.State{e2b.StatePaused}, Metadata: map[string]string{"a": "2"}, PageToken: "x"}, list)
	pause := &e2b.PauseOptions{DropMemory: true}
	_, err = c.Pause(t.Context(), apiTestID, pause)
	require.NoError(t, err)
	require.Equal(t, &e2b.PauseOptions{DropMemory: true}, pause)

	for _, r := range api.requests() {
		require.Equal(t, []string{"a"}, r.Header.Values("X-Mine"))
		require.Empty(t, r.Header.Values("X-Late"))
		require.Equal(t, apiTestKey, r.Header.Get("X-API-Key"))
		if r.Method == http.MethodGet {
			q := decodedQuery(t, r.Query)
			require.Equal(t, "running", q.Get("state"))
			require.Equal(t, "a=1", q.Get("metadata"))
		}
	}
}

// TestHeadersInAnyCase do not stand beside the SDK's own.
func TestHeadersInAnyCase(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, answerText(204, ""))
	c := api.client(t, func(o *e2b.ClientOptions) {
		o.Headers = http.Header{"x-api-key": {"other"}, "accept": {"text/html"}, "USER-AGENT": {"other"}, "x-team": {"a", "b"}}
	})
	_, err := c.Kill(t.Context(), apiTestID)
	require.NoError(t, err)
	require.Equal(t, http.Header{
		"X-Api-Key": {apiTestKey}, "Accept": {"application/json"}, "User-Agent": {"e2b-go/" + e2b.Version}, "X-Team": {"a", "b"},
	}, api.requests()[0].Header)
}

func TestTimeoutActionNames(t *testing.T) {
	t.Parallel()
	for action, name := range map[e2b.TimeoutAction]string{
		e2b.TimeoutDefault: "default", e2b.TimeoutKill: "kill", e2b.TimeoutPause: "pause", e2b.TimeoutPauseFilesystem: "pause filesystem", 7: "TimeoutAction(7)",
	} {
		require.Equal(t, name, fmt.Sprint(action))
	}
}
