package e2btest_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
)

// Commands are a function: no process, no network, a millisecond for a sandbox.
func Example_scripted() {
	ctx := context.Background()
	server, _ := e2btest.NewServer(&e2btest.Options{Run: func(_ context.Context, c *e2btest.Command) int {
		fmt.Fprintln(c.Stdout, "ran", c.Line())
		return 0
	}})
	defer server.Close()
	client, _ := e2b.NewClient(server.ClientOptions())
	sbx, _ := client.Create(ctx, &e2b.CreateOptions{OnTimeout: e2b.TimeoutPause})
	sbx.Files.Write(ctx, "plan.md", []byte("1. test"), nil)
	server.Advance(24 * time.Hour) // its 5 minutes are over: it has paused itself
	sbx, _ = client.Connect(ctx, sbx.ID(), nil)
	plan, _ := sbx.Files.Read(ctx, "plan.md", nil)
	res, err := sbx.Commands.Run(ctx, "make test", nil)
	fmt.Printf("resumed: %t, plan: %s, output: %s", sbx.Resumed(), plan, res.Stdout)
	killed, _ := sbx.Kill(ctx)
	fmt.Println("killed:", killed, err)
	// Output:
	// resumed: true, plan: 1. test, output: ran make test
	// killed: true <nil>
}

// The README shows this example, in at most 20 lines.
func TestREADMEShowsTheExample(t *testing.T) {
	const file = "example_scripted_test.go"
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	_, body, ok := strings.Cut(string(source), "\tctx := context.Background()\n")
	require.True(t, ok)
	body, _, ok = strings.Cut(body, "\n}\n")
	require.True(t, ok)
	body = strings.ReplaceAll("\n"+body, "\n\t", "\n")[1:]
	require.LessOrEqual(t, strings.Count(body, "\n")+1, 20)
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), "```go\n"+body+"\n```\n")
}
