// E2b-local serves an emulated E2B on loopback, for any E2B client in any language.
//
// Once it serves it prints to standard output what clients need, and nothing else:
//
//	export E2B_API_URL=http://127.0.0.1:3000
//	export E2B_SANDBOX_URL=http://127.0.0.1:3001
//	export E2B_API_KEY=e2b_...
//
// The key is that of $E2B_API_KEY where it is set, else a random one. Logs go to
// standard error. It ends, with all its sandboxes, on SIGINT and SIGTERM.
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
	"time"

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
	case errors.Is(err, errUsage): // the flag package has said it
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "e2b-local:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("wrong use of flags")

// run serves until ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	opts := &e2btest.Options{APIKey: os.Getenv("E2B_API_KEY")}
	flags := flag.NewFlagSet("e2b-local", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&opts.Addr, "addr", "127.0.0.1:0", "`address` of the API, on loopback; port 0 is a free one")
	flags.StringVar(&opts.SandboxAddr, "sandbox-addr", "127.0.0.1:0", "`address` for traffic to the sandboxes, on loopback")
	flags.StringVar(&opts.Dir, "dir", "", "`directory` in which the files of the sandboxes are kept while it runs (default: the system's for temporary files)")
	flags.DurationVar(&opts.MaxSandboxLifetime, "max-lifetime", 24*time.Hour, "how long a sandbox can run without a pause")
	flags.IntVar(&opts.MaxSandboxes, "max-sandboxes", 100, "how many sandboxes can run at the same time")
	flags.BoolVar(&opts.HostNetwork, "host-network", false, "let sandboxes use the network of this machine")
	flags.BoolVar(&opts.RequireIsolation, "require-isolation", false, "fail where sandboxes cannot be isolated from this machine")
	flags.Func("templates", "further `names` of templates, with commas between them", func(names string) error {
		opts.Templates = append(opts.Templates, strings.Split(names, ",")...)
		return nil
	})
	verbose := flags.Bool("v", false, "log every request")
	version := flags.Bool("version", false, "print the version and end")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return errUsage
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *version {
		_, err := fmt.Fprintln(stdout, "e2b-local", moduleVersion())
		return err
	}
	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	opts.Logger = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))

	server, err := e2btest.NewServer(opts)
	if err != nil {
		return err
	}
	if python, err := server.Python(); err != nil {
		opts.Logger.WarnContext(ctx, "code cannot be run in sandboxes", "reason", err)
	} else {
		opts.Logger.InfoContext(ctx, "code is run with the interpreter of this machine", "python", python)
	}
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
