package e2b_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

func fullRecord() e2b.Record {
	return e2b.Record{
		SandboxID: apiTestID, Domain: "e2b.test", EnvdVersion: "0.6.13",
		EnvdAccessToken: e2b.NewToken(envdTestKey), TrafficAccessToken: e2b.NewToken(portTestKey), Timeout: 90 * time.Second,
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	tok := e2b.NewToken("value")
	require.Equal(t, "value", tok.Reveal())
	require.False(t, tok.IsZero())
	var none e2b.Token
	require.Empty(t, none.Reveal())
	require.True(t, none.IsZero())
	require.Equal(t, none, e2b.NewToken(""))
	require.Empty(t, none.String())

	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%10s", "%t"} {
		require.Equal(t, "[redacted]", fmt.Sprintf(verb, tok), verb)
		require.Empty(t, fmt.Sprintf(verb, none), verb)
	}
	b, err := json.Marshal(map[string]e2b.Token{"a": tok, "b": none})
	require.NoError(t, err)
	require.JSONEq(t, `{"a":"value","b":""}`, string(b))
	var back map[string]e2b.Token
	require.NoError(t, json.Unmarshal(b, &back))
	require.Equal(t, "value", back["a"].Reveal())
	require.True(t, back["b"].IsZero())
	var null e2b.Token
	require.NoError(t, json.Unmarshal([]byte(`null`), &null))
	require.True(t, null.IsZero())
	for _, bad := range []string{`7`, `{"s3cr3t":1}`, `["s3cr3t"]`} {
		err := json.Unmarshal([]byte(bad), &null)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "s3cr3t")
	}
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestNothingPrintsAToken prints whatever may hold one, in every way.
func TestClientOptionsPrintNoKey(t *testing.T) {
	t.Parallel()
	opts := e2b.ClientOptions{APIKey: "s3cr3t-key", Domain: "x.test", Headers: http.Header{"Authorization": {"s3cr3t-header"}}}
	var logged bytes.Buffer
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("client", "options", opts, "pointer", &opts)
	for _, text := range []string{
		fmt.Sprintf("%v %+v %#v %s", opts, opts, opts, opts),
		fmt.Sprintf("%v %+v %#v %s", &opts, &opts, &opts, &opts),
		fmt.Sprintf("%+v", struct{ Options *e2b.ClientOptions }{&opts}.Options),
		logged.String(),
	} {
		require.NotContains(t, text, "s3cr3t")
		require.Contains(t, text, "x.test")
	}
}

func TestNothingPrintsAToken(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, answerRecorded(t, "create-private"))
	c := api.client(t, func(o *e2b.ClientOptions) { o.Transport = roundTripFunc(api.RoundTrip) })
	sbx, err := c.Create(t.Context(), nil)
	require.NoError(t, err)
	type mine struct {
		Record  e2b.Record
		Pointer *e2b.Record
		Token   e2b.Token
		Sandbox *e2b.Sandbox
		hidden  e2b.Token
		inner   struct{ Record e2b.Record }
		sandbox *e2b.Sandbox
		client  *e2b.Client
		any     any
	}
	r := sbx.Record()
	require.Equal(t, envdTestKey, r.EnvdAccessToken.Reveal())
	require.Equal(t, portTestKey, r.TrafficAccessToken.Reveal())
	m := mine{Record: r, Pointer: &r, Token: r.EnvdAccessToken, Sandbox: sbx, hidden: r.TrafficAccessToken, sandbox: sbx, client: c, any: r}
	m.inner.Record = r
	values := map[string]any{
		"token": r.EnvdAccessToken, "*token": &r.EnvdAccessToken, "record": r, "*record": &r, "sandbox": sbx, "client": c, "mine": m, "*mine": &m,
		"slice": []e2b.Record{r}, "map": map[string]e2b.Token{"a": r.EnvdAccessToken}, "any": []any{r, sbx, m},
	}
	for name, v := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%t"} {
			got := fmt.Sprintf(verb, v)
			for _, secret := range []string{envdTestKey, portTestKey, apiTestKey, fmt.Sprintf("%x", envdTestKey)} {
				require.NotContains(t, got, secret, "%s of %s", verb, name)
			}
		}
	}
	for _, name := range []string{"token", "*token", "record", "*record", "sandbox", "client"} {
		for handler, text := range logged(t, values[name]) {
			for _, secret := range []string{envdTestKey, portTestKey, apiTestKey} {
				require.NotContains(t, text, secret, "%s handler, %s", handler, name)
			}
		}
	}
	// A handler for text prints what %+v prints.
	require.NotContains(t, logged(t, m)["text"], envdTestKey)
	require.Contains(t, logged(t, r)["json"], apiTestID, "what is no secret is there")
	require.Contains(t, logged(t, r)["json"], "timeout")
	require.Equal(t, "e2b sandbox "+apiTestID, fmt.Sprint(sbx))
}

// logged returns what handlers of log/slog write of v.
func logged(t *testing.T, v any) map[string]string {
	t.Helper()
	out := map[string]string{}
	var b bytes.Buffer
	for name, h := range map[string]slog.Handler{"text": slog.NewTextHandler(&b, nil), "json": slog.NewJSONHandler(&b, nil)} {
		b.Reset()
		slog.New(h).LogAttrs(context.Background(), slog.LevelInfo, "x", slog.Any("v", v), slog.Group("g", slog.Any("v", v)))
		out[name] = b.String()
		require.NotEmpty(t, out[name])
	}
	return out
}

func TestRecordJSON(t *testing.T) {
	t.Parallel()
	r := fullRecord()
	b, err := json.Marshal(r)
	require.NoError(t, err)
	require.JSONEq(t, `{"version":1,"sandboxID":"`+apiTestID+`","domain":"e2b.test","envdVersion":"0.6.13","envdAccessToken":"`+envdTestKey+
		`","trafficAccessToken":"`+portTestKey+`","timeout":"1m30s"}`, string(b))
	var back e2b.Record
	require.NoError(t, json.Unmarshal(b, &back))
	require.Equal(t, r, back)

	b, err = json.Marshal(e2b.Record{SandboxID: "i1"})
	require.NoError(t, err)
	require.JSONEq(t, `{"version":1,"sandboxID":"i1"}`, string(b))
	require.NoError(t, json.Unmarshal(b, &back))
	require.Equal(t, e2b.Record{SandboxID: "i1"}, back)
	require.NoError(t, json.Unmarshal([]byte(`{"version":1,"sandboxID":"i1","later":{"a":1}}`), &back), "unknown fields are ignored")

	for _, bad := range []string{
		`{"version":2,"sandboxID":"i1"}`, `{"version":0,"sandboxID":"i1"}`, `{"sandboxID":"i1"}`, `{}`, `null`, `[]`, `"i1"`, ``,
		`{"version":1,"timeout":"soon"}`, `{"version":1,"timeout":90}`, `{"version":"1"}`, `{"version":1,"envdAccessToken":{"s3cr3t":1}}`,
	} {
		kept := e2b.Record{SandboxID: "kept"}
		err := kept.UnmarshalJSON([]byte(bad))
		require.Error(t, err, bad)
		require.NotContains(t, err.Error(), "s3cr3t")
		require.Equal(t, e2b.Record{SandboxID: "kept"}, kept, bad)
	}
	err = json.Unmarshal([]byte(`{"version":2}`), &back)
	require.ErrorContains(t, err, "version 2")
	require.ErrorContains(t, err, "reads 1")
}

// TestFromRecord makes the same handle again, without a request.
func TestFromRecord(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, answerRecorded(t, "create-private"))
	c := api.client(t)
	sbx, err := c.Create(t.Context(), &e2b.CreateOptions{Timeout: time.Hour})
	require.NoError(t, err)
	b, err := json.Marshal(sbx.Record())
	require.NoError(t, err)
	var r e2b.Record
	require.NoError(t, json.Unmarshal(b, &r))

	elsewhere := newFakeAPI(t)
	again, err := elsewhere.client(t).FromRecord(r)
	require.NoError(t, err)
	require.Equal(t, viewOf(sbx), viewOf(again))
	require.Equal(t, portTestKey, again.TrafficAccessToken().Reveal())
	require.Equal(t, sbx.Record(), again.Record())
	require.NotNil(t, again.Commands)
	require.NotNil(t, again.Files)
	require.Empty(t, elsewhere.requests())

	long, err := elsewhere.client(t).FromRecord(e2b.Record{SandboxID: apiTestID + "-6532622b"})
	require.NoError(t, err)
	require.Equal(t, apiTestID, long.ID())
	require.Equal(t, "e2b.test", long.Domain(), "the client's, where the record has none")
	require.Empty(t, long.Record().Domain)
}

func FuzzRecordUnmarshalJSON(f *testing.F) {
	full, err := json.Marshal(fullRecord())
	require.NoError(f, err)
	f.Add(full)
	for _, s := range []string{
		``, `null`, `{}`, `[]`, `{"version":1}`, `{"version":1,"timeout":"-1h"}`, `{"version":1,"timeout":"9999999h"}`, `{"version":1e0}`,
		`{"version":1,"sandboxID":"\ud800","envdAccessToken":null}`, `{"version":1,"timeout":"0s"}`, `{"VERSION":1,"SandboxID":"a"}`, "{\"version\":1,\"domain\":\"\x00\"}",
	} {
		f.Add([]byte(s))
	}
	c, err := e2b.NewClient(&e2b.ClientOptions{APIKey: apiTestKey, APIURL: apiTestURL, Domain: "e2b.test"})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, b []byte) {
		var r e2b.Record
		if err := r.UnmarshalJSON(b); err != nil {
			require.Zero(t, r)
			return
		}
		out, err := json.Marshal(r)
		require.NoError(t, err)
		var back e2b.Record
		require.NoError(t, json.Unmarshal(out, &back))
		require.Equal(t, r, back, "what was read is written, and read again")
		sbx, err := c.FromRecord(r)
		if err != nil {
			require.ErrorIs(t, err, e2b.ErrInvalidArgument)
			return
		}
		require.Regexp(t, `^[A-Za-z0-9_]{1,63}$`, sbx.ID())
		require.Regexp(t, `^3000-[A-Za-z0-9_]{1,63}\.[A-Za-z0-9._:-]+$`, sbx.Host(3000))
	})
}
