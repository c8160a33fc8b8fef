// Logs follows the log of a sandbox while that is paused, resumed and killed.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/examples/internal/example"
)

func main() { example.Main("base", run) }

func run(ctx context.Context, client *e2b.Client, sbx *e2b.Sandbox) error {
	follow, stop := context.WithCancel(ctx)
	defer stop()
	lived := make(chan error, 1)
	go func() {
		lived <- live(ctx, sbx)
		time.AfterFunc(3*time.Second, stop) // the last entries take a moment to come
	}()
	opts := &e2b.FollowOptions{Level: e2b.LogInfo, Interval: 200 * time.Millisecond}
	for entry, err := range client.FollowLogs(follow, sbx.ID(), opts) {
		if errors.Is(err, context.Canceled) {
			break
		}
		if err != nil {
			return err
		}
		fmt.Printf("%-5s %s\n", entry.Level, entry.Message)
	}
	return <-lived
}

// live goes through what a sandbox can go through.
func live(ctx context.Context, sbx *e2b.Sandbox) error {
	if _, err := sbx.Pause(ctx, nil); err != nil {
		return err
	}
	if err := sbx.Connect(ctx, nil); err != nil {
		return err
	}
	_, err := sbx.Kill(ctx)
	return err
}
