package e2btest_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
)

// The life of a sandbox on the scripted runtime: create, run, kill.
func BenchmarkScripted(b *testing.B) {
	server, err := e2btest.NewServer(&e2btest.Options{Run: func(context.Context, *e2btest.Command) int { return 0 }})
	require.NoError(b, err)
	defer server.Close()
	client, err := e2b.NewClient(server.ClientOptions())
	require.NoError(b, err)
	defer client.CloseIdleConnections()
	b.ReportAllocs()
	for b.Loop() {
		sbx, err := client.Create(b.Context(), nil)
		require.NoError(b, err)
		_, err = sbx.Commands.Run(b.Context(), "true", nil)
		require.NoError(b, err)
		_, err = sbx.Kill(b.Context())
		require.NoError(b, err)
	}
}
