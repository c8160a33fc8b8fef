package e2b_test

import (
	"context"
	"io/fs"
	"net/http"
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
