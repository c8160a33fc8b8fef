package controlapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jarcoal/httpmock"
	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// newTestClient returns a client whose every request is answered by respond.
func newTestClient(tb testing.TB, respond httpmock.Responder) *Client {
	tb.Helper()
	mock := httpmock.NewMockTransport()
	mock.RegisterNoResponder(respond)
	base, err := url.Parse("https://api.e2b.test")
	require.NoError(tb, err)
	return New(Config{BaseURL: base, APIKey: "e2b_0123", UserAgent: "test", Transport: mock})
}

func answering(status int, body string, header ...string) httpmock.Responder {
	return func(*http.Request) (*http.Response, error) {
		resp := httpmock.NewStringResponse(status, body)
		for i := 0; i < len(header); i += 2 {
			resp.Header.Set(header[i], header[i+1])
		}
		return resp, nil
	}
}

func TestSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int32{
		0: 0, 1: 1, time.Millisecond: 1, time.Second: 1, time.Second + 1: 2, 1500 * time.Millisecond: 2,
		2*time.Second - 1: 2, time.Hour: 3600, math.MaxInt64: math.MaxInt32, math.MaxInt32 * time.Second: math.MaxInt32,
	} {
		require.Equal(t, want, seconds(d), "%v", d)
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	for attempt, full := range []time.Duration{400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond, 3200 * time.Millisecond} {
		for range 200 {
			got := backoff(0, 0, attempt, nil)
			require.LessOrEqual(t, got, full)
			require.Greater(t, got, full*7/8-1)
		}
	}
	for _, attempt := range []int{8, 10, 63, 64, 1 << 30} {
		got := backoff(0, 0, attempt, nil)
		require.LessOrEqual(t, got, maxWait)
		require.Greater(t, got, maxWait*7/8-1)
	}
	after := func(v string) *http.Response { return &http.Response{Header: http.Header{"Retry-After": {v}}} }
	require.Equal(t, 7*time.Second, backoff(0, 0, 0, after("7")))
	require.Zero(t, backoff(0, 0, 3, after("0")))
	require.LessOrEqual(t, backoff(0, 0, 0, after("soon")), 400*time.Millisecond)
}

func TestFits(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.True(t, fits(t.Context(), time.Minute))
	require.False(t, fits(t.Context(), time.Minute+1))
	require.True(t, fits(ctx, 10*time.Second))
	require.False(t, fits(ctx, time.Minute))
}

func TestMayBeMissing(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		status int
		body   string
		want   bool
	}{
		{404, `{"code":404,"message":"validation error: method not allowed"}`, true},
		{404, `{"code":404,"message":"validation error: no matching operation was found"}`, true},
		{404, `404 page not found`, true},
		{404, ``, true},
		{404, `<html><head><title>404 Not Found</title></head><body>nginx</body></html>`, true},
		{404, `Cannot POST /sandboxes/abc/connect`, true}, // names the route, not a sandbox
		{404, `{"detail":"Not Found"}`, true},
		{405, `{"detail":"Method Not Allowed"}`, true},
		{405, ``, true},
		{410, `{"message":"gone"}`, true},
		{501, ``, true},
		{404, `{"code":404,"message":"Sandbox \"x\" doesn't exist or you don't have access to it"}`, false},
		{404, `{"code":404,"message":"template 'x' not found"}`, false},
		{404, `{"code":404,"message":"tag 'v9' does not exist for template 'x'"}`, false},
		{404, `sandbox not found`, false},
		{404, `Template x is not known`, false},
		{410, `{"message":"the sandbox is gone"}`, false},
		{501, `{"message":"Sandbox type not supported"}`, false},
		{405, `{"message":"template cannot be used"}`, false},
		{400, `{"message":"validation error: method not allowed"}`, false},
		{500, ``, false},
		{502, `404 page not found`, false},
	} {
		e := transport.NewStatusError(row.status, nil, http.Header{}, []byte(row.body))
		require.Equal(t, row.want, mayBeMissing(e), "%d %s", row.status, row.body)
		require.Equal(t, row.want, mayBeMissing(fmt.Errorf("wrapped: %w", e)), "%d %s", row.status, row.body)
	}
	require.False(t, mayBeMissing(nil))
	require.False(t, mayBeMissing(errors.New("404 page not found")))
}

// TestUnexplainedNotFound is what a call about a sandbox makes of a 404 that
// says nothing: with JSON it is the server's own, so the sandbox is not there.
func TestUnexplainedNotFound(t *testing.T) {
	t.Parallel()
	read := func(body string) *transport.StatusError {
		return transport.NewStatusError(404, nil, http.Header{}, []byte(body))
	}
	for _, body := range []string{`{"detail":"Not Found"}`, `{"code":404,"message":"not found"}`, `{}`, `sandbox not found`} {
		require.False(t, RouteMissing(read(body)), body)
	}
	for _, body := range []string{`{"message":"validation error: method not allowed"}`, `404 page not found`, `<html>404</html>`, `Cannot DELETE /sandboxes/x`} {
		require.True(t, RouteMissing(read(body)), body)
	}
}

func TestListQuery(t *testing.T) {
	t.Parallel()
	require.Empty(t, ListQuery{}.values())
	berlin := time.FixedZone("", 2*60*60)
	got := ListQuery{
		States: []string{"running", "paused"}, Metadata: map[string]string{"b": "2", "a": "1"}, Template: "t", Ascending: true,
		StartedAfter: time.Date(2026, 1, 2, 5, 4, 5, 123456789, berlin), Limit: 7, Token: "x==",
	}.values()
	require.Equal(t, url.Values{
		"state": {"running,paused"}, "metadata": {"a=1&b=2"}, "template": {"t"}, "order": {"asc"},
		"startedAfter": {"2026-01-02T03:04:05.123456Z"}, "limit": {"7"}, "nextToken": {"x=="},
	}, got)
}

func TestTime(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]time.Time{
		`null`: {}, `""`: {}, `"0001-01-01T00:00:00Z"`: {},
		`"2026-01-02T03:04:05Z"`:           time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		`"2026-01-02T03:04:05.404457276Z"`: time.Date(2026, 1, 2, 3, 4, 5, 404457276, time.UTC),
	} {
		var got Time
		require.NoError(t, json.Unmarshal([]byte(in), &got), in)
		require.True(t, want.Equal(got.Time), in)
		require.Equal(t, want.IsZero(), got.IsZero(), in)
	}
	for _, bad := range []string{`"yesterday"`, `7`, `{}`, `"` + strings.Repeat("x", 5000) + `"`} {
		var got Time
		err := json.Unmarshal([]byte(bad), &got)
		require.Error(t, err, bad)
		require.Less(t, len(err.Error()), 300)
	}
}

func TestFamily(t *testing.T) {
	t.Parallel()
	gone := transport.NewStatusError(404, nil, http.Header{}, []byte(`{"message":"validation error: method not allowed"}`))
	refused := transport.NewStatusError(401, nil, http.Header{}, []byte(`{"message":"no"}`))
	var asked []string
	route := func(name string, err error) func() (*answer, error) {
		return func() (*answer, error) {
			asked = append(asked, name)
			if err != nil {
				return nil, &OutcomeError{Attempts: 1, Err: err}
			}
			return &answer{}, nil
		}
	}
	run := func(f *family, first, second error) error {
		asked = nil
		_, err := f.do(route("first", first), route("second", second))
		return err
	}
	var f family
	require.NoError(t, run(&f, nil, nil))
	require.Equal(t, []string{"first"}, asked)
	// An error of another kind is about the call, not about the route.
	require.ErrorIs(t, run(&f, refused, nil), error(refused))
	require.Equal(t, []string{"first"}, asked)
	// Neither route is there: nothing to remember.
	require.ErrorIs(t, run(&f, gone, gone), ErrNoRoute)
	require.Equal(t, []string{"first", "second"}, asked)
	// The second did not say that it is there.
	require.ErrorIs(t, run(&f, gone, io.ErrUnexpectedEOF), io.ErrUnexpectedEOF)
	require.ErrorIs(t, run(&f, gone, ErrAlwaysSecure), ErrAlwaysSecure)
	require.Equal(t, []string{"first", "second"}, asked)
	// It did, by whatever it said.
	require.ErrorIs(t, run(&f, gone, refused), error(refused))
	require.Equal(t, []string{"first", "second"}, asked)
	require.NoError(t, run(&f, gone, nil))
	require.Equal(t, []string{"second"}, asked)

	var g family
	require.NoError(t, run(&g, gone, nil))
	require.NoError(t, run(&g, nil, nil))
	require.Equal(t, []string{"second"}, asked)
}

// A server that is being replaced answers for a moment with what stands before it. That
// must not decide about the route for good, and neither must a server that was later
// replaced by one without it.
func TestFamilyDoesNotDependOnAMoment(t *testing.T) {
	t.Parallel()
	for _, moment := range []int{429, 500, 502, 503, 504, 201} {
		var asked []string
		answer := func(*http.Request) (int, string) { return 404, "404 page not found" }
		c := newTestClient(t, func(r *http.Request) (*http.Response, error) {
			asked = append(asked, r.URL.Path)
			status, body := answer(r)
			return answering(status, body)(r)
		})
		c.http.RetryMax = 0
		create := func() error {
			asked = nil
			_, err := c.Create(t.Context(), NewSandbox{TemplateID: "base", Secure: true}, time.Minute)
			return err
		}
		answer = func(r *http.Request) (int, string) {
			if strings.HasPrefix(r.URL.Path, "/v2/") {
				return moment, `{"sandboxID":"i1"}`
			}
			return 404, "404 page not found"
		}
		require.Equal(t, moment == 201, create() == nil)
		answer = func(r *http.Request) (int, string) {
			if strings.HasPrefix(r.URL.Path, "/v2/") {
				return 404, `{"code":404,"message":"validation error: no matching operation was found"}`
			}
			return 201, `{"sandboxID":"i1"}`
		}
		require.NoError(t, create(), moment)
		require.NoError(t, create(), moment)
		require.Equal(t, []string{"/sandboxes"}, asked, moment)
	}
}

// TestUnexplainedFirstAnswerCounts tries the second route after a 404 that says
// nothing, and goes back to it when the second route does not exist.
func TestUnexplainedFirstAnswerCounts(t *testing.T) {
	t.Parallel()
	var paths []string
	c := newTestClient(t, func(r *http.Request) (*http.Response, error) {
		paths = append(paths, r.URL.Path)
		body := `{"code":404,"message":"not found"}`
		if strings.HasPrefix(r.URL.Path, "/v2/") {
			body = `{"code":404,"message":"validation error: no matching operation was found"}`
		}
		return answering(404, body)(r)
	})
	_, _, err := c.Connect(t.Context(), "i1", ConnectSandbox{}, time.Minute)
	require.NotErrorIs(t, err, ErrNoRoute)
	var status *transport.StatusError
	require.ErrorAs(t, err, &status)
	require.Equal(t, "not found", status.Message)
	require.Equal(t, []string{"/sandboxes/i1/connect", "/v2/sandboxes/i1/connect"}, paths)
}

func TestHeadersOfTheCallerReplaceNoneOfOurs(t *testing.T) {
	t.Parallel()
	var got http.Header
	mock := httpmock.NewMockTransport()
	mock.RegisterNoResponder(func(r *http.Request) (*http.Response, error) {
		got = r.Header.Clone()
		return answering(204, "")(r)
	})
	base, err := url.Parse("https://api.e2b.test")
	require.NoError(t, err)
	c := New(Config{BaseURL: base, APIKey: "e2b_0123", UserAgent: "test", Transport: mock, Header: http.Header{
		"X-Api-Key": {"other"}, "User-Agent": {"other"}, "Accept": {"other"}, "Content-Type": {"other"}, "X-Mine": {"a", "b"},
	}})
	_, err = c.Pause(t.Context(), "i1", PauseSandbox{})
	require.NoError(t, err)
	require.Equal(t, http.Header{
		"X-Api-Key": {"e2b_0123"}, "User-Agent": {"test"}, "Accept": {"application/json"},
		"Content-Type": {"application/json"}, "X-Mine": {"a", "b"},
	}, got)
}

// TestAnswersThatAreNoAnswer are successes with a body that cannot be used.
func TestAnswersThatAreNoAnswer(t *testing.T) {
	t.Parallel()
	for _, body := range []string{``, `null`, ` null `, `[]`, `"x"`, `{"sandboxID":1}`, `{`, `<html></html>`} {
		c := newTestClient(t, answering(200, body, "X-Request-Id", "r1"))
		info := func() error { _, err := c.Info(t.Context(), "i1"); return err }
		connect := func() error {
			_, _, err := c.Connect(t.Context(), "i1", ConnectSandbox{}, time.Minute)
			return err
		}
		create := func() error { _, err := c.Create(t.Context(), NewSandbox{}, time.Minute); return err }
		for name, call := range map[string]func() error{"info": info, "connect": connect, "create": create} {
			var bad *BadAnswerError
			require.ErrorAs(t, call(), &bad, "%s answered with %q", name, body)
			require.Equal(t, 200, bad.Status)
			require.Equal(t, "r1", bad.RequestID)
			var o *OutcomeError
			require.ErrorAs(t, call(), &o, "%s answered with %q", name, body)
			require.Equal(t, 1, o.Attempts)
			require.Equal(t, name == "create", o.Ambiguous)
		}
	}
}

func TestAnswerTooLong(t *testing.T) {
	t.Parallel()
	c := newTestClient(t, func(r *http.Request) (*http.Response, error) {
		endless := io.MultiReader(strings.NewReader("["), repeating{})
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(endless)}, nil
	})
	require.Positive(t, c.maxBody)
	c.maxBody = 1 << 20
	_, _, err := c.List(t.Context(), ListQuery{})
	require.ErrorContains(t, err, "more than 1048576 bytes")
}

// repeating goes on for ever.
type repeating struct{}

func (repeating) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestFieldsThatAreMissing reads what compatible servers leave out, and what
// newer ones add.
func TestFieldsThatAreMissing(t *testing.T) {
	t.Parallel()
	c := newTestClient(t, answering(200, `{"sandboxID":"i1-client","new":{"a":[1]},"metadata":null,"startedAt":null,"endAt":"","lifecycle":null,"network":null,"volumeMounts":null,"state":"hibernating","domain":null}`))
	d, err := c.Info(t.Context(), "i1")
	require.NoError(t, err)
	require.Equal(t, &Detail{SandboxID: "i1-client", State: "hibernating"}, d)
	s, _, err := c.Connect(t.Context(), "i1", ConnectSandbox{}, time.Minute)
	require.NoError(t, err)
	require.Equal(t, &Sandbox{SandboxID: "i1"}, s, "the long form is cut")
}

func FuzzListAnswer(f *testing.F) {
	for _, s := range []string{
		``, `[]`, ` [ ] `, `null`, `{}`, `[null]`, `[{}]`, `[1]`, `[[]]`, `"[]"`, `[`, `[]x`, `[{"sandboxID":"a","metadata":{"a":null},"startedAt":"x"}]`,
		`[{"sandboxID":"a","state":"running","startedAt":"2026-01-02T03:04:05Z","endAt":null,"volumeMounts":[{"name":"a","path":"/b"}],"network":{}}]`,
		`[{"cpuCount":1e999}]`, "\xef\xbb\xbf[]", `[{"sandboxID":"\ud800"}]`,
	} {
		f.Add([]byte(s), "token")
	}
	f.Fuzz(func(t *testing.T, body []byte, token string) {
		c := newTestClient(t, func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"X-Next-Token": {token}}, Body: io.NopCloser(bytes.NewReader(body))}, nil
		})
		page, next, err := c.List(t.Context(), ListQuery{})
		if err != nil {
			require.Nil(t, page)
			require.Empty(t, next)
			var bad *BadAnswerError
			require.ErrorAs(t, err, &bad)
			require.Less(t, len(err.Error()), 500)
			return
		}
		require.Equal(t, token, next)
		var items []json.RawMessage
		require.NoError(t, json.Unmarshal(body, &items), "a page that is no array must be an error")
		require.NotNil(t, items)
		require.Len(t, page, len(items), "no item is lost")
	})
}
