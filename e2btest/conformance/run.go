package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// checkLimit bounds one check. The server's own limit for a request is 70 s.
const checkLimit = 2 * time.Minute

// A check is one question to the server.
type check struct {
	name string // area/what
	run  func(*probe)
}

// allChecks returns the checks in the order in which they begin: those that wait
// for a time to pass come early.
func allChecks() []check {
	return slices.Concat(
		lifecycleChecks(), timeoutChecks(), snapshotChecks(),
		errorChecks(), listChecks(), networkChecks(), teamChecks(), proxyChecks(),
		envdChecks(), processChecks(), fileChecks(), filesystemChecks(), interpreterChecks())
}

// Checks returns the names of all checks.
func Checks() []string {
	var names []string
	for _, c := range allChecks() {
		names = append(names, c.name)
	}
	return names
}

// Run checks the server and returns what it found. opts may be nil. It ends with
// ctx, and removes what it made also then, for which it takes up to a minute more.
//
// The error tells that the Target or the Options make no sense; there is no
// Report then. That checks failed is no error: see Report.OK.
func Run(ctx context.Context, target Target, opts *Options) (*Report, error) {
	target, err := target.withDefaults()
	var o Options
	if opts != nil {
		o = *opts
	}
	if err == nil {
		o, err = o.withDefaults()
	}
	if err != nil {
		return nil, fmt.Errorf("conformance: %w", err)
	}
	if o.Checks != nil && !slices.ContainsFunc(Checks(), o.Checks.MatchString) {
		return nil, fmt.Errorf("conformance: Options.Checks: no check has a name that %s matches", o.Checks)
	}
	r := newRunner(target, o)
	defer r.closeIdle()
	began := time.Now()
	results := r.runAll(ctx, allChecks())
	left := r.removeAll(ctx)
	return &Report{Results: results, Sandboxes: r.made, Left: left, Duration: time.Since(began)}, nil
}

// A TB is what Test needs of a *testing.T. It stands here so that programs which
// use this package do not link package testing.
type TB interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
}

// Test runs the kit in a test. The test fails for each check that fails or is not
// run, and for each sandbox that could not be removed; its log has the unsupported ones.
func Test(tb TB, target Target, opts *Options) {
	tb.Helper()
	report, err := Run(tb.Context(), target, opts)
	if err != nil {
		tb.Errorf("%v", err)
		return
	}
	for i := range report.Results {
		switch res := &report.Results[i]; res.Outcome {
		case Fail:
			tb.Errorf("%s\nexpected: %s\nseen:     %s", res.Name, res.Expected, res.Seen)
		case NotRun:
			tb.Errorf("%s was not run: %s", res.Name, res.Reason)
		case Unsupported:
			tb.Logf("%s is unsupported: %s", res.Name, res.Reason)
		}
	}
	for _, left := range report.Left {
		tb.Errorf("left behind: %s", left)
	}
}

// A runner is one run of the kit.
type runner struct {
	target Target
	opts   Options
	api    http.RoundTripper
	data   http.RoundTripper // to sandboxes, always with HTTP/1.1
	tag    string            // value of the metadata of all sandboxes of this run

	base   func(*probe) *sandbox // the sandboxes that checks share
	paused func(*probe) *sandbox
	code   func(*probe) *sandbox
	prefix func() string // of the routes for create and connect: "" or "/v2"

	mu      sync.Mutex
	made    int             // sandboxes
	lost    bool            // a sandbox was asked for and no answer came
	kept    map[string]bool // what was made and not yet removed: its path
	sources map[string]bool // sandboxes of which snapshots were asked for
}

func newRunner(target Target, opts Options) *runner {
	r := &runner{
		target: target, opts: opts, tag: "run-" + strings.ToLower(rand.Text()),
		kept: make(map[string]bool), sources: make(map[string]bool),
	}
	r.api, r.data = transport.Tune(target.Transport)
	return r
}

// closeIdle closes the connections of the run's own transports.
func (r *runner) closeIdle() {
	if _, cloned := r.target.Transport.(*http.Transport); !cloned && r.target.Transport != nil {
		return
	}
	for _, rt := range []http.RoundTripper{r.api, r.data} {
		if rt, ok := rt.(interface{ CloseIdleConnections() }); ok {
			rt.CloseIdleConnections()
		}
	}
}

// runAll runs the checks that were selected, some at a time.
func (r *runner) runAll(ctx context.Context, checks []check) []Result {
	ctx, cancel := context.WithTimeoutCause(ctx, r.opts.Limit, errors.New("Options.Limit is over"))
	defer cancel()
	r.share(ctx)
	if r.opts.Checks != nil {
		checks = slices.DeleteFunc(checks, func(c check) bool { return !r.opts.Checks.MatchString(c.name) })
	}
	results := make([]Result, len(checks))
	places := make(chan struct{}, r.opts.Parallel)
	var wg sync.WaitGroup
	for i, c := range checks {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			r.runOne(ctx, c, &results[i])
		})
	}
	wg.Wait()
	return results
}

// runOne runs one check, in a goroutine of its own because a check ends as a test
// does.
func (r *runner) runOne(ctx context.Context, c check, result *Result) {
	area, _, _ := strings.Cut(c.name, "/")
	*result = Result{Name: c.name, Area: area, Outcome: NotRun}
	began := time.Now()
	defer func() {
		result.Duration = time.Since(began)
		if result.Outcome != Pass && result.Outcome != Unsupported && ctx.Err() != nil {
			result.Outcome, result.Expected, result.Seen = NotRun, "", ""
			result.Reason = context.Cause(ctx).Error()
		}
	}()
	if ctx.Err() != nil {
		return
	}
	limited, cancel := context.WithTimeoutCause(ctx, checkLimit, fmt.Errorf("the check took more than %v", checkLimit))
	defer cancel()
	p := &probe{runner: r, ctx: limited, result: result}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer p.removeOwn()
		c.run(p)
		result.Outcome = Pass
	}()
	<-done
}

// A probe is a check under way.
type probe struct {
	*runner
	ctx    context.Context
	result *Result
	own    []string // what it made: paths
}

// fail ends the check.
func (p *probe) fail(expected, seen string) {
	p.result.Outcome, p.result.Expected, p.result.Seen = Fail, expected, seen
	runtime.Goexit()
}

// failErr ends the check because a request went wrong.
func (p *probe) failErr(expected string, err error) {
	if errors.Is(err, errBudget) {
		p.result.Outcome, p.result.Reason = NotRun, err.Error()
		runtime.Goexit()
	}
	if cause := context.Cause(p.ctx); cause != nil {
		err = cause
	}
	p.fail(expected, err.Error())
}

// unsupported ends the check.
func (p *probe) unsupported(reason string) {
	p.result.Outcome, p.result.Reason = Unsupported, reason
	runtime.Goexit()
}

// equal fails the check unless both are the same.
func equal[T comparable](p *probe, what string, want, got T) {
	if want != got {
		p.fail(fmt.Sprintf("%s: %v", what, quoted(want)), fmt.Sprint(quoted(got)))
	}
}

// holds fails the check unless ok.
func (p *probe) holds(ok bool, expected string, seen any) {
	if !ok {
		p.fail(expected, fmt.Sprint(quoted(seen)))
	}
}

func quoted(v any) any {
	switch v := v.(type) {
	case string:
		return fmt.Sprintf("%.300q", v)
	case []string:
		return fmt.Sprintf("%.300q", v)
	}
	return v
}

// wait waits for d, or ends the check.
func (p *probe) wait(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.ctx.Done():
		p.failErr("to be able to wait", p.ctx.Err())
	}
}

// patience is how long the server may take for what it does by itself, as to end
// a sandbox whose time is over.
const patience = 20 * time.Second

// eventually asks again and again until try says that it is as expected. try
// returns what it saw.
func (p *probe) eventually(expected string, try func() (ok bool, seen string)) {
	for began := time.Now(); ; p.wait(50 * time.Millisecond) {
		ok, seen := try()
		if ok {
			return
		}
		if time.Since(began) > patience {
			p.fail(expected+fmt.Sprintf(" within %v", patience), seen)
		}
	}
}
