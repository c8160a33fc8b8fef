package e2b_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
)

// The main job: one sandbox for a conversation, that is paused between its turns. It runs
// on an emulator here; with a key, e2b.NewClient(nil) makes a client of E2B.
func Example() {
	server, err := e2btest.NewServer(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := e2b.NewClient(server.ClientOptions())
	if err != nil {
		log.Fatal(err)
	}
	defer client.CloseIdleConnections()
	ctx := context.Background()

	var id string // stored with the conversation
	for _, command := range []string{"echo one > notes", "echo two >> notes", "paste -s notes"} {
		sbx, err := turn(ctx, client, id)
		if err != nil {
			log.Fatal(err)
		}
		id = sbx.ID()
		res, err := sbx.Commands.Run(ctx, command, nil)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("resumed: %t, output: %q\n", sbx.Resumed(), res.Stdout)
		if _, err := sbx.Pause(ctx, nil); err != nil {
			log.Fatal(err)
		}
	}
	_, err = client.Kill(ctx, id)
	fmt.Println(err)
	// Output:
	// resumed: false, output: ""
	// resumed: true, output: ""
	// resumed: true, output: "one\ttwo\n"
	// <nil>
}

// turn returns the sandbox of a conversation, a new one at first.
func turn(ctx context.Context, client *e2b.Client, id string) (*e2b.Sandbox, error) {
	if id == "" {
		return client.Create(ctx, &e2b.CreateOptions{OnTimeout: e2b.TimeoutPause})
	}
	return client.Connect(ctx, id, nil)
}

// A create whose answer was lost may have made a sandbox, which costs money. It is looked
// for by its token, also where the ctx of the create has ended.
func ExampleOutcomeUnknownError() {
	server, err := e2btest.NewServer(&e2btest.Options{
		Run:    func(context.Context, *e2btest.Command) int { return 0 },
		Faults: []e2btest.Fault{{Method: "POST", Path: "/sandboxes", Cut: e2btest.CutAnswer}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := e2b.NewClient(server.ClientOptions())
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	sbx, err := client.Create(ctx, nil)
	unknown := new(e2b.OutcomeUnknownError)
	if errors.As(err, &unknown) && unknown.CreateToken != "" {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		made := &e2b.ListOptions{Metadata: map[string]string{e2b.CreateTokenKey: unknown.CreateToken}}
		for info, err := range client.List(ctx, made) {
			if err != nil {
				log.Fatal(err)
			}
			if sbx, err = client.Connect(ctx, info.ID, nil); err != nil { // or Kill it
				log.Fatal(err)
			}
		}
	}
	fmt.Println("found:", sbx != nil)
	// Output: found: true
}
