package e2b_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
)

// networkCalls are the recorded exchanges that change the network.
func networkCalls() []recordedCall {
	send := func(body string) wantRequest {
		return wantRequest{method: http.MethodPut, path: "/sandboxes/" + apiTestID + "/network", body: body}
	}
	setting := func(file string, n *e2b.Network, body string, want any) recordedCall {
		return recordedCall{
			file: file, op: "set network", sent: []wantRequest{send(body)}, want: want,
			call: func(ctx context.Context, c *e2b.Client) (any, error) {
				s, err := c.FromRecord(e2b.Record{SandboxID: apiTestID, EnvdVersion: fakeEnvd})
				if err != nil {
					return nil, err
				}
				return nil, s.SetNetwork(ctx, n, nil)
			},
		}
	}
	refused := func(n e2b.Network) func(context.Context, *e2b.Client) error {
		return func(ctx context.Context, c *e2b.Client) error {
			s, err := c.FromRecord(e2b.Record{SandboxID: apiTestID, EnvdVersion: fakeEnvd})
			if err != nil {
				return err
			}
			return s.SetNetwork(ctx, &n, nil)
		}
	}
	one := &e2b.Network{AllowOut: []string{"1.1.1.1"}, DenyOut: []string{e2b.AllTraffic}}
	all := `{"allow_internet_access":true}`
	return []recordedCall{
		setting("network-204", one, `{"allowOut":["1.1.1.1"],"denyOut":["0.0.0.0/0"],"allow_internet_access":true}`, nil),
		setting("network-bad-deny-400", one, `{"allowOut":["1.1.1.1"],"denyOut":["0.0.0.0/0"],"allow_internet_access":true}`,
			badRequest("invalid denied CIDR nope")).refusing(refused(e2b.Network{DenyOut: []string{"nope"}})),
		setting("network-domain-400", one, `{"allowOut":["1.1.1.1"],"denyOut":["0.0.0.0/0"],"allow_internet_access":true}`,
			badRequest("When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out to block all other traffic.")).
			refusing(refused(e2b.Network{AllowOut: []string{"example.com"}})),
		setting("network-paused-404", nil, all, wantError{
			kinds: []error{e2b.ErrSandboxNotRunning}, status: 404, message: sandboxUnknown.message, state: e2b.StatePaused,
		}).answeredBy("network-paused-404", "info-paused").sending(send(all), sendInfo()),
		setting("network-unknown-404", nil, all, sandboxUnknown).
			answeredBy("network-unknown-404", "info-killed-404").sending(send(all), sendInfo()),
		setting("killing-network-409", nil, all, failsWith(409, `Sandbox "`+apiTestID+`" is being killed`, e2b.ErrConflict)),
	}
}

// What SetNetwork and Create refuse, they refuse before any request.
func TestNetworkRefused(t *testing.T) {
	t.Parallel()
	yes := true
	api := newFakeAPI(t)
	sbx := handleOf(t, api)
	for says, n := range map[string]*e2b.Network{
		"Domains can be allowed only":  {DenyOut: []string{"example.com"}},
		"DenyOut must have AllTraffic": {AllowOut: []string{"*.example.com"}, DenyOut: []string{"10.0.0.0/8"}},
		"no address, CIDR or domain":   {AllowOut: []string{""}},
		"HTTPSPorts":                   {HTTPSPorts: []int{49983}},
		"EgressProxy.Address":          {EgressProxy: &e2b.EgressProxy{}},
		"header":                       {Rules: map[string][]e2b.NetworkRule{"a.b": {{Headers: map[string]string{"X": "s3cr3t\n"}}}}},
		"header that":                  {Rules: map[string][]e2b.NetworkRule{"a.b": {{Headers: map[string]string{"a b": "x"}}}}},
	} {
		_, err := api.client(t).Create(t.Context(), &e2b.CreateOptions{Network: n})
		requireKinds(t, err, e2b.ErrInvalidArgument)
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), "s3cr3t")
		requireKinds(t, sbx.SetNetwork(t.Context(), n, nil), e2b.ErrInvalidArgument)
	}
	for _, n := range []*e2b.Network{{AllowPublicTraffic: &yes}, {MaskRequestHost: "x"}, {HTTPSPorts: []int{8443}}} {
		requireKinds(t, sbx.SetNetwork(t.Context(), n, nil), e2b.ErrInvalidArgument)
	}
	requireKinds(t, sbx.UpdateNetwork(t.Context(), nil), e2b.ErrInvalidArgument)
	require.Empty(t, api.requests())
}

// A rule may name only tokens that the sandbox gets.
func TestIAM(t *testing.T) {
	t.Parallel()
	rules := func(value string) *e2b.Network {
		return &e2b.Network{Rules: map[string][]e2b.NetworkRule{"api.example.com": {{Headers: map[string]string{"Authorization": value}}}}}
	}
	api := newFakeAPI(t, answerText(201, `{"sandboxID":"i1","envdVersion":"0.6.13"}`))
	c := api.client(t)
	for _, o := range []e2b.CreateOptions{
		{Network: rules("Bearer " + e2b.IAMPlaceholder("aws"))},
		{Network: rules(e2b.IAMPlaceholder("aws") + e2b.IAMPlaceholder("other")), IAM: map[string]e2b.IAMToken{"aws": {Audience: "a"}}},
		{IAM: map[string]e2b.IAMToken{"a}": {Audience: "a"}}},
		{IAM: map[string]e2b.IAMToken{"": {Audience: "a"}}},
		{IAM: map[string]e2b.IAMToken{"aws": {}}},
	} {
		_, err := c.Create(t.Context(), &o)
		requireKinds(t, err, e2b.ErrInvalidArgument)
	}
	require.Empty(t, api.requests())
	_, err := c.Create(t.Context(), &e2b.CreateOptions{
		NoToken: true, Network: rules("Bearer " + e2b.IAMPlaceholder("aws") + e2b.SecretPlaceholder("key")), IAM: map[string]e2b.IAMToken{"aws": {Audience: "sts"}},
	})
	require.NoError(t, err)
	require.JSONEq(t, `{"templateID":"base","timeout":300,"secure":true,"iam":{"tokens":{"aws":{"audience":"sts","tokenType":"JWT-SVID"}}},`+
		`"network":{"rules":{"api.example.com":[{"transform":{"headers":{"Authorization":"Bearer ${e2b.identity.tokens.aws}${e2b.secrets.key}"}}}]}}}`, api.requests()[0].Body)
}

// USERS.md J3: what change does not touch stays, the internet access too.
func TestJ3UpdateNetwork(t *testing.T) {
	t.Parallel()
	const stored = `"network":{"allowOut":["1.1.1.1"],"denyOut":["0.0.0.0/0"],"allowPublicTraffic":false,"egressProxy":{"address":"p:1","username":"u"},` +
		`"rules":{"a.b":[{"transform":{"headers":{"X":"s3cr3t"}}}]}}`
	info := func(more string) apiAnswer {
		return answerText(200, `{"sandboxID":"`+apiTestID+`","state":"running"`+more+`}`)
	}
	api := newFakeAPI(t,
		info(`,"allowInternetAccess":false,`+stored), answerText(204, ""),
		info(""), answerText(204, ""),
		info(","+stored), info(","+stored), info(","+stored), answerText(200, `{"sandboxID":"`+apiTestID+`","state":"paused"}`),
		info(","+stored), answerText(204, ""),
	)
	sbx := handleOf(t, api)
	require.NoError(t, sbx.UpdateNetwork(t.Context(), func(n *e2b.Network) { n.EgressProxy = nil }))
	require.JSONEq(t, `{"allowOut":["1.1.1.1"],"denyOut":["0.0.0.0/0"],"allow_internet_access":false,"rules":{"a.b":[{"transform":{"headers":{"X":"s3cr3t"}}}]}}`,
		api.requests()[1].Body)
	require.NoError(t, sbx.UpdateNetwork(t.Context(), func(n *e2b.Network) { n.DenyOut = append(n.DenyOut, "10.0.0.0/8") }))
	require.JSONEq(t, `{"denyOut":["10.0.0.0/8"]}`, api.requests()[3].Body)

	err := sbx.UpdateNetwork(t.Context(), func(*e2b.Network) {})
	requireKinds(t, err, e2b.ErrInvalidArgument)
	require.ErrorContains(t, err, "EgressProxy.Password")
	requireKinds(t, sbx.UpdateNetwork(t.Context(), func(n *e2b.Network) { n.AllowPublicTraffic = nil }), e2b.ErrInvalidArgument)
	requireKinds(t, sbx.UpdateNetwork(t.Context(), func(n *e2b.Network) { *n.AllowPublicTraffic = true }), e2b.ErrInvalidArgument)
	requireKinds(t, sbx.UpdateNetwork(t.Context(), func(*e2b.Network) {}), e2b.ErrSandboxNotRunning)
	require.Len(t, api.requests(), 8)
	require.NoError(t, sbx.UpdateNetwork(t.Context(), func(n *e2b.Network) { n.EgressProxy.Password = e2b.NewToken("again") }))
	require.Contains(t, api.requests()[9].Body, `"password":"again"`)
}

// SetNetwork says all that it sets, also that there is internet access.
func TestSetNetwork(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, answerText(204, ""), answerText(204, ""))
	sbx := handleOf(t, api)
	require.NoError(t, sbx.SetNetwork(t.Context(), nil, nil))
	require.NoError(t, sbx.SetNetwork(t.Context(), &e2b.Network{}, &e2b.SetNetworkOptions{NoInternet: true}))
	require.JSONEq(t, `{"allow_internet_access":true}`, api.requests()[0].Body)
	require.JSONEq(t, `{"allow_internet_access":false}`, api.requests()[1].Body)
}

// A rule may hold a key, and shows none.
func TestNetworkRuleShowsNoValue(t *testing.T) {
	t.Parallel()
	o := e2b.CreateOptions{Network: &e2b.Network{Rules: map[string][]e2b.NetworkRule{"a.b": {{Headers: map[string]string{"X-Key": "s3cr3t", "A": "s3cr3t"}}}}}}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		for _, v := range []any{o.Network.Rules, *o.Network, o.Network.Rules["a.b"][0]} {
			text := fmt.Sprintf(verb, v)
			require.NotContains(t, text, "s3cr3t", verb)
			require.Contains(t, text, "A,X-Key", verb)
		}
	}
}

// What a server repeats of a request shows none of the secrets in it, and neither
// does a log.
func TestEchoedSecrets(t *testing.T) {
	t.Parallel()
	n := &e2b.Network{
		Rules:       map[string][]e2b.NetworkRule{"a.b": {{Headers: map[string]string{"X": "s3cr3t-header"}}}},
		EgressProxy: &e2b.EgressProxy{Address: "p:1", Username: "u", Password: e2b.NewToken("s3cr3t-proxy")},
	}
	echo := func(r *http.Request) (*http.Response, error) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal("bad request: " + string(b))
		if err != nil {
			return nil, err
		}
		return answerJSON(400, `{"code":400,"message":`+string(text)+`}`)(r)
	}
	api := newFakeAPI(t, echo, echo)
	o := e2b.CreateOptions{
		Network: n, Env: map[string]string{"KEY": "s3cr3t-variable"}, MCP: map[string]any{"x": map[string]string{"key": "s3cr3t-mcp"}},
	}
	_, err := api.client(t).Create(t.Context(), &o)
	requireKinds(t, err, e2b.ErrInvalidArgument)
	require.NotContains(t, err.Error(), "s3cr3t")
	err = handleOf(t, api).SetNetwork(t.Context(), n, nil)
	requireKinds(t, err, e2b.ErrInvalidArgument)
	require.NotContains(t, err.Error(), "s3cr3t")

	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	log.Info("x", "options", o, "network", *n, "proxy", *n.EgressProxy, "rule", n.Rules["a.b"][0], "volume", e2b.Volume{Token: e2b.NewToken("s3cr3t-volume")})
	require.NotContains(t, out.String(), "s3cr3t")
	require.Contains(t, out.String(), "p:1")
}

// USERS.md J1: what may be reached is shown as it was asked for.
func TestUserJ1AllowedDomain(t *testing.T) {
	t.Parallel()
	_, client := e2btest.New(t, nil)
	want := &e2b.Network{AllowOut: []string{"example.com"}, DenyOut: []string{e2b.AllTraffic}}
	sbx, err := client.Create(t.Context(), &e2b.CreateOptions{Network: want})
	require.NoError(t, err)
	info, err := sbx.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, info.Network)
}
