package e2b_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

const (
	secretBody = `{"secretID":"sec_1","name":"my-key","currentVersion":3,"metadata":{"a":"1"},` +
		`"createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:06Z"}`
	secretText = `s3cr3t "value" <&>` + "\nof two lines"
)

var testSecret = e2b.Secret{
	ID: "sec_1", Name: "my-key", Version: 3, Metadata: map[string]string{"a": "1"},
	CreatedAt: at("2026-01-02T03:04:05Z"), UpdatedAt: at("2026-01-02T03:04:06Z"),
}

var (
	createSecretOp = controlOp{"create secret", "", answerJSON(201, secretBody), func(ctx context.Context, c *e2b.Client) error {
		_, err := c.CreateSecret(ctx, "my-key", e2b.NewToken(secretText), nil)
		return err
	}}
	updateSecretOp = controlOp{"update secret", "", answerJSON(200, secretBody), func(ctx context.Context, c *e2b.Client) error {
		_, err := c.UpdateSecret(ctx, "my-key", e2b.NewToken(secretText), nil)
		return err
	}}
	secretOp = controlOp{"get secret", "", answerJSON(200, secretBody), func(ctx context.Context, c *e2b.Client) error {
		_, err := c.Secret(ctx, "my-key")
		return err
	}}
	secretsOp = controlOp{"list secrets", "", answerJSON(200, "[]"), func(ctx context.Context, c *e2b.Client) error {
		_, err := c.SecretsPage(ctx, nil)
		return err
	}}
	deleteSecretOp = controlOp{"delete secret", "", answerText(204, ""), func(ctx context.Context, c *e2b.Client) error {
		return c.DeleteSecret(ctx, "my-key")
	}}
)

func secretOps() []controlOp {
	return []controlOp{createSecretOp, updateSecretOp, secretOp, secretsOp, deleteSecretOp}
}

// secretCalls are the recorded exchanges about secrets.
func secretCalls() []recordedCall {
	return []recordedCall{
		{
			file: "secrets-unavailable-403", op: "list secrets", sent: []wantRequest{getting("/secrets")},
			want: failsWith(403, "Secrets are not available for this team", e2b.ErrForbidden),
			call: func(ctx context.Context, c *e2b.Client) (any, error) { return c.SecretsPage(ctx, nil) },
		},
		{
			file: "secrets-bad-body-400", op: "create secret",
			sent: []wantRequest{{method: http.MethodPost, path: "/secrets", body: `{"name":"my-key","value":"value 1"}`}},
			want: badRequest("Invalid secrets request"),
			call: func(ctx context.Context, c *e2b.Client) (any, error) {
				return c.CreateSecret(ctx, "my-key", e2b.NewToken("value 1"), nil)
			},
		},
	}
}

// TestSecrets sends what is asked for and reads what comes.
func TestSecrets(t *testing.T) {
	t.Parallel()
	ok, none := answerJSON(200, secretBody), answerText(204, "")
	api := newFakeAPI(t, answerJSON(201, secretBody), answerJSON(201, `{}`), ok, ok, ok, ok, ok, none, none)
	c, ctx, value := api.client(t), t.Context(), e2b.NewToken(secretText)

	s, err := c.CreateSecret(ctx, "My-Key", value, &e2b.SecretOptions{Metadata: map[string]string{"a": "1"}})
	require.NoError(t, err)
	require.Equal(t, testSecret, *s)
	s, err = c.CreateSecret(ctx, "other", value, nil)
	require.NoError(t, err)
	require.Equal(t, e2b.Secret{}, *s, "what is not said is not known")
	for _, opts := range []*e2b.SecretOptions{nil, {}, {Metadata: map[string]string{}}} {
		s, err = c.UpdateSecret(ctx, "My-Key", value, opts)
		require.NoError(t, err)
		require.Equal(t, testSecret, *s)
	}
	for _, id := range []string{"My-Key", "sec_Ab1"} {
		s, err = c.Secret(ctx, id)
		require.NoError(t, err)
		require.Equal(t, testSecret, *s)
	}
	require.NoError(t, c.DeleteSecret(ctx, "My-Key"))
	require.NoError(t, c.DeleteSecret(ctx, "sec_Ab1"))

	require.Equal(t, []string{
		"POST /secrets", "POST /secrets", "POST /secrets/my-key", "POST /secrets/my-key", "POST /secrets/my-key",
		"GET /secrets/my-key", "GET /secrets/sec_Ab1", "DELETE /secrets/my-key", "DELETE /secrets/sec_Ab1",
	}, api.lines())
	quoted, err := json.Marshal(secretText)
	require.NoError(t, err)
	for i, want := range []string{
		`{"name":"My-Key","value":%s,"metadata":{"a":"1"}}`, `{"name":"other","value":%s}`,
		`{"value":%s}`, `{"value":%s}`, `{"value":%s,"metadata":{}}`,
	} {
		require.JSONEq(t, fmt.Sprintf(want, quoted), api.requests()[i].Body)
	}
}

// TestSecretsPages are gone through in turn.
func TestSecretsPages(t *testing.T) {
	t.Parallel()
	first := answerJSON(200, "["+secretBody+"]", "X-Next-Token", "a==")
	second := answerJSON(200, "["+secretBody+`,{"secretID":"sec_2","metadata":null}]`)
	api := newFakeAPI(t, first, second, first, first, second, second, answerJSON(500, `{}`))
	c := api.client(t, noRetries)
	all := c.Secrets(t.Context(), &e2b.SecretListOptions{PageSize: 1})
	ids := func(seq iter.Seq2[e2b.Secret, error]) (ids []string) {
		for s, err := range seq {
			if err != nil {
				require.Zero(t, s)
				return append(ids, "error")
			}
			ids = append(ids, s.ID)
		}
		return ids
	}
	require.Equal(t, []string{"sec_1", "sec_2"}, ids(all))
	for s, err := range all {
		require.NoError(t, err)
		require.Equal(t, testSecret, s)
		break
	}
	require.Len(t, api.requests(), 3, "no further than it is ranged over")
	require.Equal(t, []string{"sec_1", "sec_2"}, ids(all), "it starts over")
	require.Equal(t, []string{"sec_1", "sec_2"}, ids(c.Secrets(t.Context(), &e2b.SecretListOptions{PageToken: "a=="})))
	require.Equal(t, []string{"error"}, ids(c.Secrets(t.Context(), nil)))
	var queries []string
	for _, r := range api.requests() {
		queries = append(queries, r.Query)
	}
	require.Equal(t, []string{"limit=1", "limit=1&nextToken=a%3D%3D", "limit=1", "limit=1", "limit=1&nextToken=a%3D%3D", "nextToken=a%3D%3D", ""}, queries)
}

// TestSecretErrors that were not recorded. The messages are E2B's own.
func TestSecretErrors(t *testing.T) {
	t.Parallel()
	for _, op := range secretOps() {
		for _, row := range []struct {
			status  int
			message string
			kinds   []error
		}{
			{400, "Invalid secrets request", []error{e2b.ErrInvalidArgument}},
			{401, "You are not authenticated", []error{e2b.ErrUnauthenticated}},
			{403, "Secrets are not available for this team", []error{e2b.ErrForbidden}},
			{404, "validation error: no matching operation was found", []error{e2b.ErrNotSupported}},
			{409, "Secret cannot be modified in its current state", []error{e2b.ErrConflict}},
			{502, "Secrets backend error", nil},
			{504, "Secrets backend timed out", nil},
		} {
			kinds := row.kinds
			if kinds == nil && op.creates() {
				kinds = []error{e2b.ErrOutcomeUnknown}
			}
			err := op.call(t.Context(), newFakeAPI(t, answerJSON(row.status, fmt.Sprintf(`{"code":%d,"message":%q}`, row.status, row.message))).client(t, noRetries))
			requireKinds(t, err, kinds...)
			require.ErrorContains(t, err, row.message)
		}
	}
	for _, op := range []controlOp{updateSecretOp, secretOp, deleteSecretOp} {
		requireKinds(t, op.call(t.Context(), newFakeAPI(t, answerJSON(404, `{"code":404,"message":"Secret not found"}`)).client(t)), e2b.ErrNotFound)
	}
	_, err := newFakeAPI(t, answerError(errConnectionLost)).client(t).CreateSecret(t.Context(), "a", e2b.NewToken("v"), nil)
	requireKinds(t, err, e2b.ErrOutcomeUnknown)
	require.ErrorContains(t, err, "a secret may have been created")
	api := newFakeAPI(t, answerError(errConnectionLost), answerJSON(404, `{"code":404,"message":"Secret not found"}`))
	require.NoError(t, api.client(t).DeleteSecret(t.Context(), "a"), "the first attempt did it")
}

// TestSecretValueIsNotTold in errors of servers that repeat it, and not logged.
func TestSecretValueIsNotTold(t *testing.T) {
	t.Parallel()
	value := e2b.NewToken(secretText)
	quoted, err := json.Marshal(secretText)
	require.NoError(t, err)
	inJSON := string(quoted[1 : len(quoted)-1])
	var out bytes.Buffer
	for name, answer := range map[string]apiAnswer{
		"JSON":                          answerJSON(400, `{"message":"bad value `+inJSON+`"}`),
		"code":                          answerJSON(400, `{"message":"bad value","error_code":"`+inJSON+`"}`),
		"text":                          answerText(400, "bad value "+secretText),
		"quoted":                        answerText(400, `bad value in {"value":"`+inJSON+`"`),
		"HTML":                          answerText(400, "bad value "+strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;").Replace(secretText), "Content-Type", "text/html"),
		"a success that cannot be read": answerJSON(200, `{"name":7,"value":"`+inJSON+`"}`),
		"no answer":                     answerError(errConnectionLost),
	} {
		for _, op := range []controlOp{createSecretOp, updateSecretOp} {
			c := newFakeAPI(t, answer).client(t, noRetries, func(o *e2b.ClientOptions) {
				o.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
			})
			err := op.call(t.Context(), c)
			require.Error(t, err)
			for _, part := range []string{"s3cr3t", "of two lines"} {
				requireNoSecret(t, err, part)
			}
			if name == "JSON" || name == "text" {
				require.ErrorContains(t, err, "bad value [redacted]")
			}
		}
	}
	require.NotEmpty(t, out.String())
	require.NotContains(t, out.String(), "s3cr3t")

	api := newFakeAPI(t)
	for _, bad := range []e2b.Token{{}, e2b.NewToken("s3cr3t\xff")} {
		_, err := api.client(t).CreateSecret(t.Context(), "a", bad, nil)
		requireRefused(t, api, err)
		requireNoSecret(t, err, "s3cr3t")
		_, err = api.client(t).UpdateSecret(t.Context(), "a", bad, nil)
		requireRefused(t, api, err)
	}
	require.NotContains(t, fmt.Sprintf("%+v", struct{ V e2b.Token }{value}), "s3cr3t")
}

// TestBadSecrets are refused before a request.
func TestBadSecrets(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	c, ctx, value := api.client(t), t.Context(), e2b.NewToken("s3cr3t")
	for _, name := range []string{"", "a b", "a/b", "..", "a.b", "ü", "a\n", strings.Repeat("a", 256)} {
		_, err := c.CreateSecret(ctx, name, value, nil)
		requireRefused(t, api, err)
		_, err = c.UpdateSecret(ctx, name, value, nil)
		requireRefused(t, api, err)
		_, err = c.Secret(ctx, name)
		requireRefused(t, api, err)
		requireRefused(t, api, c.DeleteSecret(ctx, name))
	}
	for _, name := range []string{"sec_a", "SEC_a", strings.Repeat("a", 129)} {
		_, err := c.CreateSecret(ctx, name, value, nil)
		requireRefused(t, api, err)
	}
	many := map[string]string{}
	for i := range 33 {
		many[fmt.Sprint(i)] = ""
	}
	large := map[string]string{}
	for i := range 9 {
		large[fmt.Sprint(i)] = strings.Repeat("v", 1000)
	}
	for name, metadata := range map[string]map[string]string{
		"too many": many, "too much": large, "a long key": {strings.Repeat("k", 129): ""}, "a long value": {"k": strings.Repeat("v", 1025)},
		"a key that is not UTF-8": {"\xff": ""}, "a value that is not UTF-8": {"k": "\xff"},
	} {
		_, err := c.CreateSecret(ctx, "a", value, &e2b.SecretOptions{Metadata: metadata})
		requireRefused(t, api, err)
		_, err = c.UpdateSecret(ctx, "a", value, &e2b.SecretOptions{Metadata: metadata})
		requireRefused(t, api, err)
		require.ErrorContains(t, err, "Metadata", name)
		require.NotContains(t, err.Error(), "s3cr3t")
	}
	for _, size := range []int{-1, 101} {
		_, err := c.SecretsPage(ctx, &e2b.SecretListOptions{PageSize: size})
		requireRefused(t, api, err)
	}
}

// TestSecretsThatCannotBeRead are errors, and never nothing.
func TestSecretsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		op   controlOp
		body string
	}{{secretsOp, `null`}, {secretsOp, `{}`}, {secretsOp, `[1]`}, {secretOp, `null`}, {secretOp, `[]`}, {secretOp, `{"createdAt":"now"}`}} {
		err := row.op.call(t.Context(), newFakeAPI(t, answerJSON(200, row.body)).client(t))
		requireKinds(t, err)
		require.Equal(t, 200, requireAPIError(t, err).StatusCode)
	}
}
