// Metrics draws how busy a sandbox was. It uses E2B when E2B_API_KEY is set, and an
// emulator inside this program otherwise, whose clock it moves.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var opts *e2b.ClientOptions
	wait := func(d time.Duration) { <-time.After(d) }
	if os.Getenv("E2B_API_KEY") == "" {
		server, err := e2btest.NewServer(nil)
		if err != nil {
			return err
		}
		defer server.Close()
		opts, wait = server.ClientOptions(), server.Advance
	}
	client, err := e2b.NewClient(opts)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	sbx, err := client.Create(ctx, &e2b.CreateOptions{Timeout: 10 * time.Minute})
	if err != nil {
		return err
	}
	defer func() { _, _ = sbx.Kill(context.WithoutCancel(ctx)) }()
	if _, err := sbx.Commands.Run(ctx, "seq 500000 | sort | tail -1", nil); err != nil {
		return err
	}
	wait(time.Minute)
	metrics, err := sbx.Metrics(ctx, nil) // one each five seconds
	if err != nil {
		return err
	}
	for i, m := range metrics {
		bar := strings.Repeat("#", int(m.CPUUsedPercent/2))
		fmt.Printf("%2d  %4d MiB  %5.1f%% %s\n", i+1, m.MemoryUsedBytes>>20, m.CPUUsedPercent, bar)
	}
	return nil
}
