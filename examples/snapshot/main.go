// Snapshot keeps the state of a sandbox and starts two others in it.
package main

import (
	"context"
	"fmt"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/examples/internal/example"
)

func main() { example.Main("base", run) }

func run(ctx context.Context, client *e2b.Client, sbx *e2b.Sandbox) error {
	if err := sbx.Files.Write(ctx, "notes.txt", []byte("the first draft"), nil); err != nil {
		return err
	}
	snapshot, err := sbx.Snapshot(ctx, nil)
	if err != nil {
		return err
	}
	if err := sbx.Files.Write(ctx, "notes.txt", []byte("changed after the snapshot"), nil); err != nil {
		return err
	}
	for _, name := range []string{"Ada", "Grace"} {
		if err := write(ctx, client, snapshot.ID, name); err != nil {
			return err
		}
	}
	notes, err := sbx.Files.Read(ctx, "notes.txt", nil)
	if err != nil {
		return err
	}
	fmt.Printf("the first sandbox: %s\n", notes)
	return client.DeleteSnapshot(ctx, snapshot.ID) // nothing made from it is left
}

// write starts a sandbox from the snapshot and goes on from there.
func write(ctx context.Context, client *e2b.Client, snapshotID, name string) error {
	sbx, err := client.Create(ctx, &e2b.CreateOptions{Template: snapshotID})
	if err != nil {
		return err
	}
	defer sbx.Kill(context.WithoutCancel(ctx)) //nolint:errcheck // its lifetime ends anyway
	result, err := sbx.Commands.Run(ctx, "printf ', read by "+name+"' >>notes.txt; cat notes.txt", nil)
	if err != nil {
		return err
	}
	fmt.Printf("%s's sandbox: %s\n", name, result.Stdout)
	return nil
}
