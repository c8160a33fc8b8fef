package interpreter

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// The calls about contexts, as they go over the wire.
func TestContextCalls(t *testing.T) {
	for _, tt := range []struct {
		call         func(context.Context, *Client) error
		method, path string
		body, answer string
	}{
		{func(ctx context.Context, c *Client) error {
			made, err := c.NewContext(ctx, "bash", "/tmp")
			require.Equal(t, &Context{ID: "c1", Language: "bash", Dir: "/tmp"}, made)
			return err
		}, "POST", "contexts", `{"language":"bash","cwd":"/tmp"}`, `{"id":"c1","language":"bash","cwd":"/tmp","news":1}`},
		{func(ctx context.Context, c *Client) error {
			_, err := c.NewContext(ctx, "", "")
			return err
		}, "POST", "contexts", `{}`, `{"id":"c1","language":"python","cwd":"/home/user"}`},
		{func(ctx context.Context, c *Client) error {
			list, err := c.Contexts(ctx)
			require.Equal(t, []Context{{ID: "c1"}, {ID: "c2", Language: "r"}}, list)
			return err
		}, "GET", "contexts", "", `[{"id":"c1"},{"id":"c2","language":"r","cwd":null}]`},
		{func(ctx context.Context, c *Client) error { return c.RestartContext(ctx, "c 1") }, "POST", "contexts/c%201/restart", "", "null"},
		{func(ctx context.Context, c *Client) error { return c.RemoveContext(ctx, "c1") }, "DELETE", "contexts/c1", "", "null"},
	} {
		status, answer := http.StatusOK, tt.answer
		c := newClient(func(r *http.Request) (*http.Response, error) {
			require.Equal(t, tt.method, r.Method)
			require.Equal(t, "http://fake.test/base/"+tt.path, r.URL.String())
			require.Equal(t, []string{"secret-token"}, r.Header["X-Access-Token"])
			require.Equal(t, "application/json", r.Header.Get("Accept"))
			if tt.body != "" {
				b, err := io.ReadAll(r.Body)
				require.NoError(t, err)
				require.Equal(t, tt.body, string(b))
			}
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(answer))}, nil
		})
		require.NoError(t, tt.call(t.Context(), c))
	}
}

// A refusal, an answer without end, and one that is none.
func TestContextCallsThatFail(t *testing.T) {
	var resp http.Response
	c := newClient(func(*http.Request) (*http.Response, error) {
		r := resp
		r.Header = http.Header{}
		return &r, nil
	})
	set := func(status int, body io.Reader) { resp = http.Response{StatusCode: status, Body: io.NopCloser(body)} }

	set(http.StatusNotFound, strings.NewReader("Context c1 not found"))
	status, ok := errors.AsType[*transport.StatusError](c.RemoveContext(t.Context(), "c1"))
	require.True(t, ok)
	require.Equal(t, "Context c1 not found", status.Message)

	set(http.StatusOK, io.MultiReader(strings.NewReader("["), endless{}))
	_, err := c.Contexts(t.Context())
	require.ErrorIs(t, err, ErrBadAnswer)
	for _, body := range []string{"", "null", "{}", `{"id":""}`, `{"id":5}`, "[]"} {
		set(http.StatusOK, strings.NewReader(body))
		_, err = c.NewContext(t.Context(), "", "")
		require.ErrorIs(t, err, ErrBadAnswer)
	}

	cut := errors.New("the connection broke")
	set(http.StatusOK, io.MultiReader(strings.NewReader("[]"), iotest.ErrReader(cut)))
	_, err = c.Contexts(t.Context())
	require.ErrorIs(t, err, cut)

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cut)
	c = newClient(func(r *http.Request) (*http.Response, error) { return nil, r.Context().Err() })
	require.ErrorIs(t, c.RestartContext(ctx, "c1"), cut)
}
