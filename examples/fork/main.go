// Fork tries two ways from one state at a time. On the emulator, which is told to
// run three sandboxes at most, one of the two finds no place.
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
	"github.com/seed-09a7379d/e2b-go/examples/internal/example"
)

func main() { example.MainOn(&e2btest.Options{MaxSandboxes: 3}, "base", run) }

func run(ctx context.Context, client *e2b.Client, sbx *e2b.Sandbox) error {
	if err := sbx.Files.Write(ctx, "state.txt", []byte("halfway"), nil); err != nil {
		return err
	}
	other, err := client.Create(ctx, nil)
	if err != nil {
		return err
	}
	defer other.Kill(context.WithoutCancel(ctx)) //nolint:errcheck // its lifetime ends anyway
	forks, err := sbx.Fork(ctx, &e2b.ForkOptions{Count: 2})
	if err != nil {
		return err
	}
	var lines []string
	for _, fork := range forks {
		switch {
		case errors.Is(fork.Err, e2b.ErrQuotaExceeded):
			lines = append(lines, "a fork failed: the quota of running sandboxes is used up")
		case fork.Err != nil:
			lines = append(lines, "a fork failed: "+fork.Err.Error())
		default:
			defer fork.Sandbox.Kill(context.WithoutCancel(ctx)) //nolint:errcheck // its lifetime ends anyway
			state, err := fork.Sandbox.Files.Read(ctx, "state.txt", nil)
			if err != nil {
				return err
			}
			lines = append(lines, fmt.Sprintf("a fork goes on from: %s", state))
		}
	}
	slices.Sort(lines) // which of them fails is chance
	for _, line := range lines {
		fmt.Println(line)
	}
	return nil
}
