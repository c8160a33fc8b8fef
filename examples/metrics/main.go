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
	step := func() { <-time.After(5 * time.Second) } // there is a metric each five seconds
	if os.Getenv("E2B_API_KEY") == "" {
		server, err := e2btest.NewServer(nil)
		if err != nil {
			return err
		}
		defer server.Close()
		opts = server.ClientOptions()
		step = func() {
			<-time.After(250 * time.Millisecond) // in which the processes do something
			server.Advance(5 * time.Second)
		}
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
	steps := func(n int) {
		for range n {
			step()
		}
	}
	// One command holds memory, and in the midst of that another keeps a processor busy.
	steps(2)
	memory, err := sbx.Commands.Start(ctx, "printf -v x '%64000000s'; sleep 1000; echo ${#x}", nil)
	if err != nil {
		return err
	}
	defer memory.Close()
	steps(3)
	busy, err := sbx.Commands.Start(ctx, "while :; do :; done", nil)
	if err != nil {
		return err
	}
	defer busy.Close()
	steps(3)
	if _, err := busy.Kill(ctx); err != nil {
		return err
	}
	steps(2)
	if _, err := memory.Kill(ctx); err != nil {
		return err
	}
	steps(2)
	metrics, err := sbx.Metrics(ctx, nil)
	if err != nil {
		return err
	}
	for i, m := range metrics {
		bar := strings.Repeat("#", int(m.CPUUsedPercent/2))
		fmt.Printf("%2d  %4d MiB  %5.1f%% %s\n", i+1, m.MemoryUsedBytes>>20, m.CPUUsedPercent, bar)
	}
	return nil
}
