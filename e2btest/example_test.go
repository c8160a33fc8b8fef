//go:build linux || darwin

package e2btest_test

import (
	"context"
	"fmt"
	"time"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
)

func Example() {
	ctx := context.Background()
	server, err := e2btest.NewServer(nil) // in a test: e2btest.New(t, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() {
		if err := server.Close(); err != nil {
			fmt.Println(err)
		}
	}()
	client, err := e2b.NewClient(server.ClientOptions())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.CloseIdleConnections()

	sbx, err := client.Create(ctx, &e2b.CreateOptions{Timeout: 10 * time.Minute, OnTimeout: e2b.TimeoutPause})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := sbx.Files.Write(ctx, "note.txt", []byte("still here"), nil); err != nil {
		fmt.Println(err)
		return
	}

	server.Advance(time.Hour) // the sandbox is idle for long, and pauses itself
	info, err := sbx.Info(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("state:", info.State)

	if sbx, err = client.Connect(ctx, sbx.ID(), nil); err != nil {
		fmt.Println(err)
		return
	}
	note, err := sbx.Files.Read(ctx, "note.txt", nil)
	fmt.Println("note:", string(note), err)
	// Output:
	// state: paused
	// note: still here <nil>
}
