package e2btest

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/control"
)

// A Team owns sandboxes, snapshots, volumes and secrets. To it, those of other teams
// do not exist.
type Team struct {
	// Name is the team's ID and the namespace of its snapshots: a-z, 0-9, - and _,
	// and not "local", which is the team of Options.APIKey.
	Name string
	// APIKeys are its keys, at least one. No two teams have the same.
	APIKeys []string
	// MaxSandboxes and MaxSandboxLifetime are those of Options where they are 0.
	MaxSandboxes       int
	MaxSandboxLifetime time.Duration
	// Blocked is why the team may only read and delete (status 403). Empty: it is not
	// blocked.
	Blocked string
	// Banned says that all its requests are refused (status 403).
	Banned bool
}

// A RateLimit bounds how often each team can ask for a route: Requests at once, which
// come back one by one within Per. What is too many gets status 429 with Retry-After.
// All answers of a limited route tell the limit in the headers Ratelimit-Limit,
// Ratelimit-Remaining and Ratelimit-Reset. A request that is refused for its key or
// its body does not count.
type RateLimit struct {
	Method   string        // empty: any
	Path     string        // as that of a Fault; empty: any. Each route counts for itself
	Requests int           // at least 1
	Per      time.Duration // by the server's clock, which Advance moves
}

// localTeam is the name of the team of Options.APIKey.
const localTeam = "local"

// checkTeams checks the keys and the further teams, and fills in what is left out.
func (o *Options) checkTeams() error {
	names := map[string]bool{localTeam: true}
	keys := make(map[string]bool)
	if err := addKey(keys, "APIKey", o.APIKey); err != nil {
		return err
	}
	teams := make([]Team, 0, len(o.Teams))
	for i, t := range o.Teams {
		option := fmt.Sprintf("Teams[%d]", i)
		if t.MaxSandboxes == 0 {
			t.MaxSandboxes = o.MaxSandboxes
		}
		if t.MaxSandboxLifetime == 0 {
			t.MaxSandboxLifetime = o.MaxSandboxLifetime
		}
		switch {
		case !control.ValidTemplateName(t.Name):
			return fmt.Errorf("%s.Name: %q is no name of a team: a name has a-z, 0-9, - and _", option, t.Name)
		case names[t.Name]:
			return fmt.Errorf("%s.Name: there is a team %q already", option, t.Name)
		case len(t.APIKeys) == 0:
			return fmt.Errorf("%s.APIKeys: the team has no key", option)
		case t.MaxSandboxes < 0:
			return fmt.Errorf("%s.MaxSandboxes: %d is below zero", option, t.MaxSandboxes)
		case t.MaxSandboxLifetime < time.Second:
			return fmt.Errorf("%s.MaxSandboxLifetime: %v is below a second", option, t.MaxSandboxLifetime)
		}
		names[t.Name] = true
		for j, key := range t.APIKeys {
			if err := addKey(keys, fmt.Sprintf("%s.APIKeys[%d]", option, j), key); err != nil {
				return err
			}
		}
		teams = append(teams, t)
	}
	o.Teams = teams
	return nil
}

// addKey refuses a key that no header can hold, and one that is there already.
func addKey(keys map[string]bool, option, key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%s: the key is empty", option)
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fmt.Errorf("%s: the API key holds other than visible ASCII characters", option)
	case keys[key]:
		return errors.New(option + ": the key is there twice")
	}
	keys[key] = true
	return nil
}

// teams are those of the control plane.
func (o *Options) teams() []control.Team {
	teams := []control.Team{{
		ID: localTeam, Slug: localTeam, Keys: []string{o.APIKey}, MaxLength: o.MaxSandboxLifetime, MaxSandboxes: o.MaxSandboxes,
	}}
	for _, t := range o.Teams {
		teams = append(teams, control.Team{
			ID: t.Name, Slug: t.Name, Keys: t.APIKeys, MaxLength: t.MaxSandboxLifetime, MaxSandboxes: t.MaxSandboxes,
			Blocked: t.Blocked, Banned: t.Banned,
		})
	}
	return teams
}

// ClientOptionsFor returns options for a client with another key: that of one of
// Options.Teams, or one that the server refuses.
func (s *Server) ClientOptionsFor(apiKey string) *e2b.ClientOptions {
	opts := s.ClientOptions()
	opts.APIKey = apiKey
	return opts
}

// checkRateLimits says which limit makes no sense.
func (o *Options) checkRateLimits() error {
	for i, l := range o.RateLimits {
		problem := (&Fault{Method: l.Method, Path: l.Path, To: ToAPI}).problemOfTarget()
		switch {
		case problem != "":
			return fmt.Errorf("RateLimits[%d]: no request can match it: %s", i, problem)
		case l.Requests < 1:
			return fmt.Errorf("RateLimits[%d].Requests: %d is below one", i, l.Requests)
		case l.Per < time.Duration(l.Requests):
			return fmt.Errorf("RateLimits[%d].Per: %v is too short for %d requests", i, l.Per, l.Requests)
		}
	}
	return nil
}

// rateLimits are those of the control plane.
func (o *Options) rateLimits() []control.RateLimit {
	limits := make([]control.RateLimit, 0, len(o.RateLimits))
	for _, l := range o.RateLimits {
		pattern := newPathPattern(l.Path)
		limits = append(limits, control.RateLimit{
			Matches: func(r *http.Request) bool {
				return (l.Method == "" || l.Method == r.Method) && pattern.matches(strings.Split(r.URL.EscapedPath(), "/"))
			},
			Requests: l.Requests, Per: l.Per,
		})
	}
	return limits
}
