// Package example holds what all examples begin with.
package example

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
)

// Main runs an example with a sandbox of the given template, and kills that
// afterwards. It uses E2B when E2B_API_KEY is set, and an emulator inside this
// program otherwise.
func Main(template string, run func(context.Context, *e2b.Client, *e2b.Sandbox) error) {
	MainOn(nil, template, run)
}

// MainOn is Main with an emulator of these options.
func MainOn(emulator *e2btest.Options, template string, run func(context.Context, *e2b.Client, *e2b.Sandbox) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := with(ctx, emulator, template, run); err != nil {
		log.Fatal(err) //nolint:gocritic // there is nothing left to do
	}
}

func with(ctx context.Context, emulator *e2btest.Options, template string, run func(context.Context, *e2b.Client, *e2b.Sandbox) error) error {
	var opts *e2b.ClientOptions // nil: all from the environment
	if os.Getenv("E2B_API_KEY") == "" {
		server, err := e2btest.NewServer(emulator)
		if err != nil {
			return err
		}
		defer server.Close()
		opts = server.ClientOptions()
	}
	client, err := e2b.NewClient(opts)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	sbx, err := client.Create(ctx, &e2b.CreateOptions{Template: template, Timeout: 5 * time.Minute})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if _, err := sbx.Kill(ctx); err != nil {
			log.Print(err)
		}
	}()
	return run(ctx, client, sbx)
}
