// E2b-conformance checks an E2B server, as package e2btest/conformance tells: what it
// needs, what it costs and what it leaves behind.
//
//	E2B_API_KEY=e2b_... e2b-conformance
//	e2b-conformance -run '^(errors|list)/' -parallel 2
//
// It reads the variables of all E2B clients: $E2B_API_KEY, $E2B_DOMAIN,
// $E2B_API_URL and $E2B_SANDBOX_URL. The report goes to standard output. Its status is
// 0 where no check failed, 1 where one did, was not run, or something was left behind,
// and 2 where it was called wrongly. SIGINT and SIGTERM end it, after it has removed
// what it made.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/seed-09a7379d/e2b-go/e2btest/conformance"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run returns the exit status.
func run(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) int {
	target := conformance.Target{
		APIKey: env("E2B_API_KEY"), Domain: env("E2B_DOMAIN"), APIURL: env("E2B_API_URL"), SandboxURL: env("E2B_SANDBOX_URL"),
	}
	opts := new(conformance.Options)
	flags := flag.NewFlagSet("e2b-conformance", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&target.Template, "template", "base", "`name` of the template for most sandboxes")
	flags.StringVar(&target.CodeTemplate, "code-template", "code-interpreter-v1", "`name` of the template with the code interpreter")
	flags.IntVar(&opts.Parallel, "parallel", 8, "how many checks run at a time")
	flags.IntVar(&opts.MaxSandboxes, "max-sandboxes", 0, "how many sandboxes are made at most; 0: no bound")
	flags.DurationVar(&opts.Limit, "limit", 10*time.Minute, "how long the checks may take in all")
	flags.Func("run", "`regexp` for the names of the checks to run", func(text string) (err error) {
		opts.Checks, err = regexp.Compile(text)
		return err
	})
	flags.Usage = func() {
		fmt.Fprint(stderr, "E2b-conformance checks the E2B server of $E2B_API_KEY, $E2B_DOMAIN, $E2B_API_URL and $E2B_SANDBOX_URL.\n\n"+
			"Usage: e2b-conformance [flags]\n\nIts status is 0 where no check failed, 1 where one did, and 2 where it was called wrongly.\n\n")
		flags.PrintDefaults()
	}
	asJSON := flags.Bool("json", false, "write the report in JSON")
	list := flags.Bool("list", false, "write the names of the checks and end")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "e2b-conformance: unexpected argument %q\n", flags.Arg(0))
		return 2
	}
	if *list {
		for _, name := range conformance.Checks() {
			fmt.Fprintln(stdout, name)
		}
		return 0
	}
	report, err := conformance.Run(ctx, target, opts)
	if err != nil {
		if target.APIKey == "" {
			err = errors.New("set $E2B_API_KEY")
		}
		fmt.Fprintln(stderr, "e2b-conformance:", err)
		return 2
	}
	if *asJSON {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		err = e.Encode(report)
	} else {
		err = report.WriteText(stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, "e2b-conformance:", err)
		return 1
	}
	if !report.OK() {
		return 1
	}
	return 0
}
