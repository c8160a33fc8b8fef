package conformance

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// A Target is the server that is checked.
type Target struct {
	APIKey     string // required
	Domain     string // "e2b.app" where it is empty
	APIURL     string // "https://api." + Domain where it is empty
	SandboxURL string // one URL through which all sandboxes are reached; by Domain where it is empty

	// Template is the template of most sandboxes. It needs bash and the programs
	// that every Linux system has. Empty: "base".
	Template string
	// CodeTemplate is a template with the code interpreter. Empty:
	// "code-interpreter-v1".
	CodeTemplate string

	// Transport makes the requests; nil means http.DefaultTransport. An
	// *http.Transport is cloned, and keeps its proxy, TLS and dialing. Any other
	// RoundTripper is used as it is, and must not decompress by itself.
	Transport http.RoundTripper
}

// Options says what of the kit is run, and what it may cost. The zero value, and
// nil, is all of it.
type Options struct {
	// Checks selects checks by their names, as of Checks. nil: all.
	Checks *regexp.Regexp
	// Parallel is how many checks run at a time, and about how many sandboxes. 0: 8.
	Parallel int
	// MaxSandboxes bounds how many sandboxes are made in all, forks included. A
	// check that would need more is not run to its end. 0: no bound.
	MaxSandboxes int
	// Limit bounds the run, without the removal of what it made. 0: 10 min.
	Limit time.Duration
}

func (t Target) withDefaults() (Target, error) {
	if t.Domain == "" {
		t.Domain = "e2b.app"
	}
	if t.APIURL == "" {
		t.APIURL = "https://api." + t.Domain
	}
	if t.Template == "" {
		t.Template = "base"
	}
	if t.CodeTemplate == "" {
		t.CodeTemplate = "code-interpreter-v1"
	}
	if t.APIKey == "" || !transport.ValidHeader(t.APIKey) {
		return t, errors.New("Target.APIKey is empty or holds control characters")
	}
	if _, err := transport.ParseBase(t.APIURL); err != nil {
		return t, fmt.Errorf("Target.APIURL %w", err)
	}
	if t.SandboxURL != "" {
		if _, err := transport.ParseBase(t.SandboxURL); err != nil {
			return t, fmt.Errorf("Target.SandboxURL %w", err)
		}
	}
	if u, err := url.Parse("https://x." + t.Domain); err != nil || u.Host != "x."+t.Domain {
		return t, fmt.Errorf("Target.Domain %q is not a host name", t.Domain)
	}
	return t, nil
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Parallel < 0:
		return o, errors.New("Options.Parallel is negative")
	case o.MaxSandboxes < 0:
		return o, errors.New("Options.MaxSandboxes is negative")
	case o.Limit < 0:
		return o, errors.New("Options.Limit is negative")
	}
	if o.Parallel == 0 {
		o.Parallel = 8
	}
	if o.Limit == 0 {
		o.Limit = 10 * time.Minute
	}
	return o, nil
}
