// Watch shows what a command does to the files of a directory. It uses E2B when
// E2B_API_KEY is set, and an emulator inside this program otherwise.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
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
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var opts *e2b.ClientOptions
	if os.Getenv("E2B_API_KEY") == "" {
		server, err := e2btest.NewServer(nil)
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
	sbx, err := client.Create(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _, _ = sbx.Kill(context.WithoutCancel(ctx)) }()
	watcher, err := sbx.Files.Watch(ctx, ".", nil) // the home
	if err != nil {
		return err
	}
	defer watcher.Close()
	if _, err := sbx.Commands.Run(ctx, "echo hello >page.tmp && mv page.tmp page.html && chmod 600 page.html && mkdir done", nil); err != nil {
		return err
	}
	for event, err := range watcher.Events(ctx) {
		if err != nil || event.Name == "done" {
			return err
		}
		fmt.Println(event.Op, event.Name)
	}
	return nil
}
