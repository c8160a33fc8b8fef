// Stream shows the output of code while it runs.
package main

import (
	"context"
	"fmt"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/examples/internal/example"
)

func main() { example.Main("code-interpreter", run) }

func run(ctx context.Context, _ *e2b.Client, sbx *e2b.Sandbox) error {
	stream, err := sbx.StreamCode(ctx, `
import time
for i in range(3):
    print("step", i, flush=True)
    time.sleep(0.2)
6 * 7`, nil)
	if err != nil {
		return err
	}
	defer stream.Close()
	for event, err := range stream.Events(ctx) {
		switch {
		case err != nil:
			return err
		case event.Result != nil:
			fmt.Println("result:", event.Result.Text)
		case event.Stdout != "":
			fmt.Print(event.Stdout)
		}
	}
	// An exception is a value, not an error of the call.
	exec, err := sbx.RunCode(ctx, "1/0", nil)
	if err != nil {
		return err
	}
	fmt.Println("exception:", exec.Error)
	return nil
}
