// Network lets a sandbox reach one API alone, with a key that it never sees.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"slices"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/examples/internal/example"
)

func main() { example.Main("base", run) }

func run(ctx context.Context, client *e2b.Client, sbx *e2b.Sandbox) error {
	const secret = "example-api-key"
	if _, err := client.CreateSecret(ctx, secret, e2b.NewToken("not-a-real-key"), nil); err != nil && !errors.Is(err, e2b.ErrConflict) {
		return err
	}
	defer func() {
		if err := client.DeleteSecret(context.WithoutCancel(ctx), secret); err != nil {
			log.Print(err)
		}
	}()
	// Everything else is denied. The proxy outside of the sandbox sets the header.
	err := sbx.SetNetwork(ctx, &e2b.Network{
		AllowOut: []string{"api.example.com"},
		DenyOut:  []string{e2b.AllTraffic},
		Rules: map[string][]e2b.NetworkRule{
			"api.example.com": {{Headers: map[string]string{"Authorization": "Bearer " + e2b.SecretPlaceholder(secret)}}},
		},
	}, nil)
	if err != nil {
		return err
	}
	if err := show(ctx, sbx); err != nil {
		return err
	}
	// One more host; what is not touched stays.
	if err := sbx.UpdateNetwork(ctx, func(n *e2b.Network) { n.AllowOut = append(n.AllowOut, "pypi.org") }); err != nil {
		return err
	}
	return show(ctx, sbx)
}

func show(ctx context.Context, sbx *e2b.Sandbox) error {
	info, err := sbx.Info(ctx)
	if err != nil {
		return err
	}
	fmt.Println("may reach:", info.Network.AllowOut)
	for _, host := range slices.Sorted(maps.Keys(info.Network.Rules)) {
		fmt.Println("  rule for", host, "sets", info.Network.Rules[host][0].Headers["Authorization"])
	}
	return nil
}
