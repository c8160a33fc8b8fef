// Watch shows what a command does to the files of a directory.
package main

import (
	"context"
	"fmt"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/examples/internal/example"
)

func main() { example.Main("base", run) }

func run(ctx context.Context, _ *e2b.Client, sbx *e2b.Sandbox) error {
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
