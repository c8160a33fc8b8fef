// E2b-local serves an emulated E2B on loopback, for any E2B client in any language.
//
// Once it serves it prints to standard output what clients need, and nothing else:
//
//	export E2B_API_URL=http://127.0.0.1:3000
//	export E2B_SANDBOX_URL=http://127.0.0.1:3001
//	export E2B_API_KEY=e2b_...
//
// The key is that of -key-file or else of $E2B_API_KEY; without either it is a random
// one. There is no flag for the key itself, which other users of the machine would see.
// Logs go to standard error. Every other flag has an environment variable, which it
// wins over: -max-lifetime has E2B_LOCAL_MAX_LIFETIME.
//
// A browser shows the sandboxes at E2B_API_URL, on this machine alone and without a
// key: the page has neither keys nor tokens, but the metadata of the sandboxes.
//
// Its status is 2 where it was called wrongly, and 1 where it cannot serve. It ends on
// SIGINT and SIGTERM, with all its sandboxes. With -state-dir it pauses them
// instead, and the next one with that directory has them, with their files and without
// their memory, as well as snapshots, volumes, tokens and the random key. So it is
// after a crash too.
//
// What it emulates, and where it differs from E2B, is told by package e2btest.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/seed-09a7379d/e2b-go/e2btest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case err != nil:
		fmt.Fprintln(os.Stderr, "e2b-local:", err)
		if _, ok := errors.AsType[usageError](err); ok {
			fmt.Fprintln(os.Stderr, "see e2b-local -h")
			os.Exit(2)
		}
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c, err := parse(args, os.Getenv, stderr)
	if err != nil {
		return err
	}
	if c.version {
		_, err := fmt.Fprintln(stdout, "e2b-local", moduleVersion())
		return err
	}
	level := slog.LevelInfo
	if c.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	c.Logger = log
	server, err := e2btest.NewServer(&c.Options)
	if err != nil {
		return err
	}
	if python, err := server.Python(); err != nil {
		log.WarnContext(ctx, "code cannot be run in sandboxes", "reason", err)
	} else {
		log.InfoContext(ctx, "code is run with the interpreter of this machine", "python", python)
	}
	log.InfoContext(ctx, "a browser shows the sandboxes", "url", server.APIURL())
	_, err = fmt.Fprintf(stdout, "export E2B_API_URL=%s\nexport E2B_SANDBOX_URL=%s\nexport E2B_API_KEY=%s\n",
		server.APIURL(), server.SandboxURL(), quote(server.APIKey()))
	if err == nil {
		<-ctx.Done()
	}
	return errors.Join(err, server.Close())
}

// quote makes a word of text that a shell takes as it is.
func quote(text string) string {
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."
	if strings.Trim(text, plain) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

func moduleVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown version)"
}
