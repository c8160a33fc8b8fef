package scripted_test

import (
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/envd"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/scripted"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process/processconnect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Close waits also for the functions of a sandbox that is being killed.
func TestCloseDuringKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		n := scripted.New(scripted.Options{Run: func(ctx context.Context, _ *scripted.Sandbox, _ *envd.Invocation) int {
			<-ctx.Done()
			<-release
			return 0
		}})
		s, err := n.Start(t.Context(), node.Spec{ID: "a"})
		require.NoError(t, err)
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx, node.EnvdPort) }}
		defer transport.CloseIdleConnections()
		client := processconnect.NewProcessClient(&http.Client{Transport: transport}, "http://envd")
		events, err := client.Start(t.Context(), connect.NewRequest(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "x"}}))
		require.NoError(t, err)
		defer events.Close()

		ended := make(chan string, 2)
		go func() {
			_ = s.Kill() // has no error
			ended <- "kill"
		}()
		synctest.Wait()
		go func() {
			_ = n.Close() // neither
			ended <- "close"
		}()
		synctest.Wait()
		require.Empty(t, ended)
		close(release)
		<-ended
		<-ended
	})
}
