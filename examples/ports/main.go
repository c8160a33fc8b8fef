// Ports calls an HTTP service that runs inside a sandbox.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/examples/internal/example"
)

const port = 8000

func main() { example.Main("base", run) }

func run(ctx context.Context, _ *e2b.Client, sbx *e2b.Sandbox) error {
	if err := sbx.Files.Write(ctx, "www/index.html", []byte("served from inside the sandbox\n"), nil); err != nil {
		return err
	}
	server, err := sbx.Commands.Start(ctx, fmt.Sprintf("exec python3 -m http.server -d www %d", port), nil)
	if err != nil {
		return err
	}
	defer server.Close()
	// The transport adds the routing and the traffic token, and goes nowhere else.
	client := &http.Client{Transport: sbx.Transport(port)}
	for range 50 {
		var page string
		page, err = get(ctx, sbx, client, sbx.URL(port)+"/index.html")
		if err == nil {
			fmt.Print(page)
			return nil
		}
		if !errors.Is(err, e2b.ErrPortClosed) {
			return err
		}
		time.Sleep(100 * time.Millisecond) // it is still starting
	}
	return err
}

func get(ctx context.Context, sbx *e2b.Sandbox, client *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if err := sbx.PortError(resp); err != nil {
		return "", err
	}
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}
