package e2b

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

const (
	mcpTemplate = "mcp-gateway"
	mcpPort     = 50005
	// mcpTokenFile is where the gateway keeps its token; root alone may read it.
	mcpTokenFile = "/etc/mcp-gateway/.token" //nolint:gosec // the name of a file
	maxMCPToken  = 64 << 10
	killAfter    = 10 * time.Second
)

var (
	opStartMCP = operation{name: "start mcp gateway"}
	opMCPToken = operation{name: "read mcp token"}
)

// MCPURL returns the URL of the gateway to the MCP servers of CreateOptions.MCP.
// Requests need the header Authorization: Bearer, with MCPToken. It makes no request,
// and does not tell whether there is a gateway.
//
// See https://e2b.dev/docs/mcp.
func (s *Sandbox) MCPURL() string { return s.URL(mcpPort) + "/mcp" }

// MCPToken returns the token of the gateway. A handle that Create did not make
// reads it from the sandbox.
//
// Errors: fs.ErrNotExist (there is no gateway), and as Files.Read.
//
// See https://e2b.dev/docs/mcp.
func (s *Sandbox) MCPToken(ctx context.Context) (Token, error) {
	if t := s.mcpToken.Load(); t != nil {
		return *t, nil
	}
	fail := func(err error) (Token, error) {
		return Token{}, fmt.Errorf("%s: %w", prefix(opMCPToken.name, s.id), err)
	}
	r, err := s.Files.Open(ctx, mcpTokenFile, &ReadOptions{User: "root"})
	if err != nil {
		return fail(err)
	}
	defer r.Close()
	b, whole, err := transport.ReadBody(r, maxMCPToken)
	switch {
	case err != nil:
		return fail(err)
	case !whole:
		return fail(fmt.Errorf("%s has more than %d bytes", mcpTokenFile, maxMCPToken))
	}
	t := NewToken(strings.TrimSpace(string(b)))
	s.mcpToken.Store(&t)
	return t, nil
}

// startMCP starts the gateway. A sandbox without the one that was asked for is of
// no use: it is killed.
func (s *Sandbox) startMCP(ctx context.Context, config []byte) error {
	token := NewToken(rand.Text())
	_, err := s.Commands.Run(ctx, mcpTemplate+" --config "+Quote(string(config)), &RunOptions{
		User: "root", Env: map[string]string{"GATEWAY_ACCESS_TOKEN": token.Reveal()},
	})
	if err == nil {
		s.mcpToken.Store(&token)
		return nil
	}
	if exit, ok := errors.AsType[*ExitError](err); ok {
		// What the gateway prints may quote its configuration.
		exit.Stderr = nil
		err = fmt.Errorf("%s: %w", prefix(opStartMCP.name, s.id), exit)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killAfter)
	defer cancel()
	if _, kerr := s.Kill(ctx); kerr != nil {
		err = fmt.Errorf("%w; and the sandbox could not be killed: %w", err, kerr)
	}
	return err
}

// mcpConfig is the gateway's configuration.
func mcpConfig(op string, servers map[string]any) ([]byte, error) {
	if servers == nil {
		return nil, nil
	}
	b, err := json.Marshal(servers)
	if err != nil {
		return nil, invalid(op, "MCP", "cannot be written as JSON")
	}
	return b, nil
}
