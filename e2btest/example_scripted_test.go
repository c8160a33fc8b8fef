package e2btest_test

import (
	"context"
	"fmt"
	"time"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
)

// A server whose commands are a function: no process, no network, less than a
// millisecond for a sandbox.
func Example_scripted() {
	ctx := context.Background()
	server, _ := e2btest.NewServer(&e2btest.Options{Run: func(_ context.Context, c *e2btest.Command) int {
		fmt.Fprintln(c.Stdout, "ran", c.Line())
		return 0
	}})
	defer server.Close()
	client, _ := e2b.NewClient(server.ClientOptions())
	sbx, _ := client.Create(ctx, &e2b.CreateOptions{OnTimeout: e2b.TimeoutPause})
	_ = sbx.Files.Write(ctx, "plan.md", []byte("1. test"), nil)
	server.Advance(24 * time.Hour) // idle for a day, it has paused itself
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
