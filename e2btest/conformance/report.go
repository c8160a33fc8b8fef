package conformance

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"
)

// An Outcome is what became of a check.
type Outcome string

// The values of Outcome.
const (
	Pass        Outcome = "pass"
	Fail        Outcome = "fail"        // the server did other than E2B does
	Unsupported Outcome = "unsupported" // the server says that it does not have it
	NotRun      Outcome = "not run"     // a bound of Options, or the end of ctx, came first
)

// A Result is the outcome of one check.
type Result struct {
	Name     string        `json:"name"` // "area/what"
	Area     string        `json:"area"`
	Outcome  Outcome       `json:"outcome"`
	Expected string        `json:"expected,omitempty"` // of Fail
	Seen     string        `json:"seen,omitempty"`     // of Fail
	Reason   string        `json:"reason,omitempty"`   // of Unsupported and NotRun
	Duration time.Duration `json:"duration"`           // in nanoseconds
}

// A Report is what a run found. Its JSON is for machines.
type Report struct {
	Results   []Result      `json:"results"` // in the order of Checks
	Sandboxes int           `json:"sandboxes"`
	Left      []string      `json:"left,omitempty"` // paths in the API of what could not be removed
	Duration  time.Duration `json:"duration"`       // in nanoseconds
}

// Count returns how many checks had an outcome.
func (r *Report) Count(o Outcome) int {
	n := 0
	for i := range r.Results {
		if r.Results[i].Outcome == o {
			n++
		}
	}
	return n
}

// OK reports whether no check failed, all were run, and nothing was left behind.
func (r *Report) OK() bool { return r.Count(Fail)+r.Count(NotRun)+len(r.Left) == 0 }

// WriteText writes the report for a person: a line for each check, and what was
// expected and seen where one failed.
func (r *Report) WriteText(w io.Writer) error {
	var b bytes.Buffer
	for i := range r.Results {
		res := &r.Results[i]
		fmt.Fprintf(&b, "%-11s  %s", res.Outcome, res.Name)
		switch res.Outcome {
		case Fail:
			fmt.Fprintf(&b, "\n             expected: %s\n             seen:     %s", indented(res.Expected), indented(res.Seen))
		case Unsupported, NotRun:
			fmt.Fprintf(&b, ": %s", indented(res.Reason))
		}
		b.WriteByte('\n')
	}
	for _, left := range r.Left {
		fmt.Fprintf(&b, "left behind  %s\n", indented(left))
	}
	fmt.Fprintf(&b, "%d checks in %v with %d sandboxes: %d passed, %d failed, %d unsupported, %d not run\n",
		len(r.Results), r.Duration.Round(100*time.Millisecond), r.Sandboxes,
		r.Count(Pass), r.Count(Fail), r.Count(Unsupported), r.Count(NotRun))
	_, err := w.Write(b.Bytes())
	return err
}

func indented(s string) string {
	return strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n                       ")
}
