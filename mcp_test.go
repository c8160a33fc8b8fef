package e2b_test

import (
	"bytes"
	"context"
	"io/fs"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

// The gateway is started with what it was given, and a sandbox without it killed.
func TestMCP(t *testing.T) {
	servers := map[string]any{"github": map[string]any{"key": "it's s3cr3t"}}
	f := newFakeSandbox()
	var args []string
	var token string
	f.start = func(_ context.Context, r *startRequest, s *startStream) error {
		args, token = r.Msg.GetProcess().GetArgs(), r.Msg.GetProcess().GetEnvs()["GATEWAY_ACCESS_TOKEN"]
		user, _, _ := (&http.Request{Header: r.Header()}).BasicAuth()
		if user != "root" {
			t.Errorf("it runs as %q", user)
		}
		return send(s, evStart(1), evExit(0))
	}
	c := f.pipe(t)
	sbx, err := c.Create(t.Context(), &e2b.CreateOptions{MCP: servers})
	require.NoError(t, err)
	require.Equal(t, []string{"-l", "-c", `mcp-gateway --config '{"github":{"key":"it'\''s s3cr3t"}}'`}, args)
	got, err := sbx.MCPToken(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, token)
	require.Equal(t, token, got.Reveal())
	require.Equal(t, "https://50005-"+fakeID+".e2b.app/mcp", sbx.MCPURL())
	require.Empty(t, f.requests("/files"))

	f.start = script(evStart(1), evErr("cannot use key it's s3cr3t\n"), evExit(1))
	sbx, err = c.Create(t.Context(), &e2b.CreateOptions{MCP: servers})
	require.Nil(t, sbx)
	requireExit(t, err, 1)
	requireNoSecret(t, err, "s3cr3t")
	require.ErrorContains(t, err, fakeID)
	require.Len(t, f.requests("/sandboxes/"+fakeID), 1)
	require.Equal(t, http.MethodDelete, f.requests("/sandboxes/" + fakeID)[0].method)

	_, err = c.Create(t.Context(), &e2b.CreateOptions{MCP: map[string]any{"x": make(chan int)}})
	requireDataKinds(t, err, e2b.ErrInvalidArgument)
}

// Another handle reads the token from where the gateway keeps it.
func TestMCPToken(t *testing.T) {
	f := newFakeSandbox()
	var stored map[string][]byte
	f.files, stored = storage(t)
	sbx := f.inMemory(t)
	_, err := sbx.MCPToken(t.Context())
	require.ErrorIs(t, err, fs.ErrNotExist)
	stored["/etc/mcp-gateway/.token"] = []byte("token-1\n")
	for range 2 {
		got, err := sbx.MCPToken(t.Context())
		require.NoError(t, err)
		require.Equal(t, "token-1", got.Reveal())
	}
	asked := f.requests("/files")
	require.Len(t, asked, 2, "it is asked for once")
	require.Contains(t, asked[1].query, "username=root")
}

// What a sandbox has in the place of a token is not kept without a bound.
func TestMCPTokenIsBounded(t *testing.T) {
	f := newFakeSandbox()
	var sent atomic.Int64
	f.files = func(w http.ResponseWriter, r *http.Request) {
		b := bytes.Repeat([]byte("x"), 1<<20)
		for sent.Load() < 64 && r.Context().Err() == nil {
			write(w, b)
			sent.Add(1)
		}
	}
	_, err := f.inMemory(t).MCPToken(t.Context())
	require.Error(t, err)
	require.Less(t, sent.Load(), int64(64))
}
