//go:build unix

// Terminal connects your own terminal to a shell in a sandbox.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/creack/pty"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/examples/internal/example"
)

func main() { example.Main("base", run) }

func run(ctx context.Context, _ *e2b.Client, sbx *e2b.Sandbox) error {
	rows, cols, err := pty.Getsize(os.Stdin)
	interactive := err == nil
	term, err := sbx.PTY.Start(ctx, &e2b.TerminalOptions{Cols: cols, Rows: rows})
	if err != nil {
		return err
	}
	defer term.Close()
	var input io.Reader = os.Stdin
	if !interactive {
		input = strings.NewReader("stty size; echo $TERM\nexit\n")
	} else if old, err := stty(ctx, "-g"); err == nil {
		defer func() { _, _ = stty(context.WithoutCancel(ctx), old) }()
		_, _ = stty(ctx, "raw", "-echo") // each key goes to the sandbox as it is
	}
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	go func() {
		for range resized {
			if rows, cols, err := pty.Getsize(os.Stdin); err == nil {
				_ = term.Resize(ctx, cols, rows)
			}
		}
	}()
	go func() { _, _ = io.Copy(term, input) }()
	if _, err := io.Copy(os.Stdout, term); err != nil {
		return err
	}
	code, err := term.Wait(ctx)
	fmt.Printf("\r\nthe shell ended with status %d\r\n", code)
	return err
}

// stty looks at or changes the terminal of this program.
func stty(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "stty", args...)
	cmd.Stdin = os.Stdin
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}
