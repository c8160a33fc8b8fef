package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// metadataKey marks every sandbox of the kit. Its value is the run.
const metadataKey = "e2b-conformance"

var errBudget = errors.New("Options.MaxSandboxes is reached")

// A sandbox is one that a check made.
type sandbox struct {
	id      string
	envd    string // token
	traffic string // token
	version string // of envd
	domain  string
	asked   time.Time // before it was made
}

// The ports that checks talk to.
const (
	envdPort = 49983
	codePort = 49999
)

// create makes a sandbox on one of the two routes, with the mark of the run.
func (r *runner) create(ctx context.Context, route string, body object) (*answer, *sandbox, error) {
	body = maps.Clone(body)
	metadata := object{metadataKey: r.tag}
	if own, ok := body["metadata"].(object); ok {
		maps.Copy(metadata, own)
	}
	body["metadata"] = metadata
	if !r.spend(1) {
		return nil, nil, errBudget
	}
	asked := time.Now()
	a, err := r.send(ctx, r.api, http.MethodPost, r.target.APIURL+route, encoded(body), r.apiHeaders(true)...)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lost = true
		return nil, nil, err
	}
	s := new(sandbox)
	if a.status != http.StatusCreated || !s.read(a.body) {
		return a, nil, nil
	}
	s.asked = asked
	r.keep(sandboxPath(s.id))
	return a, s, nil
}

// spend reports whether n more sandboxes may be made.
func (r *runner) spend(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.opts.MaxSandboxes > 0 && r.made+n > r.opts.MaxSandboxes {
		return false
	}
	r.made += n
	return true
}

// read takes what create tells, and reports whether it tells of a sandbox.
func (s *sandbox) read(body string) bool {
	var b struct{ SandboxID, EnvdAccessToken, TrafficAccessToken, EnvdVersion, Domain string }
	err := json.Unmarshal([]byte(body), &b)
	s.id, s.envd, s.traffic, s.version, s.domain = b.SandboxID, b.EnvdAccessToken, b.TrafficAccessToken, b.EnvdVersion, b.Domain
	return err == nil && s.id != ""
}

// makeOn makes a sandbox for the check, on the given route.
func (p *probe) makeOn(route string, body object) (*answer, *sandbox) {
	a, s, err := p.create(p.ctx, route, body)
	if err != nil {
		p.failErr("a sandbox", err)
	}
	a.p = p
	a.supported().is(http.StatusCreated)
	p.holds(s != nil, a.expect("an object with a sandboxID"), a.body)
	p.owns(sandboxPath(s.id))
	return a, s
}

// make makes a sandbox for the check on the route that the server has.
func (p *probe) make(body object) *sandbox {
	_, s := p.makeOn(p.createRoute(), p.with(body))
	return s
}

// with fills in what most sandboxes are made of.
func (r *runner) with(body object) object {
	all := object{"templateID": r.target.Template, "timeout": 120, "secure": true}
	maps.Copy(all, body)
	return all
}

func (r *runner) createRoute() string { return r.prefix() + "/sandboxes" }

func (r *runner) connectRoute(id string) string { return r.prefix() + "/sandboxes/" + id + "/connect" }

// oddValue is metadata with characters that mean something in a query.
const oddValue = "a&b=c+d %41 é/ü"

// share prepares what checks have in common, made when the first asks for it.
// The sandboxes base and paused have metadata that no others have.
func (r *runner) share(ctx context.Context) {
	seconds := min(int(r.opts.Limit/time.Second)+1, 600)
	pair := object{"listed": r.tag, "odd & key": oddValue}
	r.base = r.shared(ctx, object{"timeout": seconds, "metadata": pair})
	r.code = r.shared(ctx, object{"timeout": seconds, "templateID": r.target.CodeTemplate})
	later := r.shared(ctx, object{"timeout": seconds, "metadata": pair})
	var pausing sync.Mutex
	paused := false
	r.paused = func(p *probe) *sandbox {
		pausing.Lock()
		defer pausing.Unlock()
		p.base(p) // is to be the older one
		s := later(p)
		if !paused {
			p.pause(s)
			paused = true
		}
		return s
	}
	// A body that no route takes tells them from the answer to unknown ones.
	r.prefix = sync.OnceValue(func() string {
		a, err := r.send(ctx, r.api, http.MethodPost, r.target.APIURL+"/sandboxes", "{}", r.apiHeaders(true)...)
		if err == nil && (a.status == http.StatusNotFound || a.status == http.StatusMethodNotAllowed) {
			return "/v2"
		}
		return ""
	})
}

// shared returns a function that makes a sandbox once. Where that goes wrong, all
// checks that need it fail.
func (r *runner) shared(ctx context.Context, body object) func(*probe) *sandbox {
	var a *answer
	var s *sandbox
	var err error
	var once sync.Once
	return func(p *probe) *sandbox {
		once.Do(func() { a, s, err = r.create(ctx, r.createRoute(), r.with(body)) })
		switch {
		case err != nil:
			p.failErr("a sandbox that checks share", err)
		case s == nil:
			p.fail("a sandbox that checks share", a.seen())
		}
		return s
	}
}

// needs ends the check where the sandbox's envd is older than that version.
func (p *probe) needs(s *sandbox, version string) {
	if older(s.version, version) {
		p.unsupported(fmt.Sprintf("envd is %s, and %s has it first", s.version, version))
	}
}

// older compares versions; what is no number counts as 0.
func older(version, than string) bool {
	numbers := func(s string) (list [3]int) {
		for i, part := range strings.SplitN(s, ".", 3) {
			list[i], _ = strconv.Atoi(part)
		}
		return list
	}
	a, b := numbers(version), numbers(than)
	return slices.Compare(a[:], b[:]) < 0
}

// url is where a port of the sandbox is, and the headers that lead there.
func (r *runner) url(s *sandbox, port int) (string, []header) {
	headers := []header{{"Accept", "application/json"}}
	if s.envd != "" {
		headers = append(headers, header{transport.HeaderEnvdToken, s.envd})
	}
	if s.traffic != "" {
		headers = append(headers, header{transport.HeaderTrafficToken, s.traffic})
	}
	if r.target.SandboxURL != "" {
		return r.target.SandboxURL, append(headers,
			header{transport.HeaderSandboxID, s.id}, header{transport.HeaderSandboxPort, strconv.Itoa(port)})
	}
	domain := s.domain
	if domain == "" {
		domain = r.target.Domain
	}
	return fmt.Sprintf("https://%d-%s.%s", port, s.id, domain), headers
}

// ask sends a request to a port of a sandbox. The headers come after those that
// are always there, and replace them.
func (p *probe) ask(s *sandbox, port int, method, path, body string, headers ...header) *answer {
	base, always := p.url(s, port)
	return p.asked(p.data, method, base+path, body, append(always, headers...)...)
}

// info returns what the API tells of a sandbox.
func (p *probe) info(id string) fields { return p.call("GET", "/sandboxes/"+id, nil).is(200).fields() }

// state is the state of a sandbox, "" where there is none.
func (p *probe) state(id string) (state, seen string) {
	a := p.call("GET", "/sandboxes/"+id, nil)
	if a.is(200, 404).status == 404 {
		return "", a.seen()
	}
	return a.fields().text("state"), a.seen()
}

// life is the time between a sandbox's start and its end.
func (p *probe) life(id string) time.Duration {
	info := p.info(id)
	return info.time("endAt").Sub(info.time("startedAt"))
}

// lives fails the check unless the sandbox has that time from now on. Of the
// server's clock it needs only that it goes as fast as ours.
func (p *probe) lives(s *sandbox, after string, timeout time.Duration) {
	const slack = 5 * time.Second
	life, since := p.life(s.id), time.Since(s.asked)
	p.holds(life >= timeout-slack && life <= timeout+since+slack,
		fmt.Sprintf("%s: endAt about %v later than startedAt", after, timeout), life)
}

func (p *probe) pause(s *sandbox) *answer {
	return p.call("POST", "/sandboxes/"+s.id+"/pause", object{}).supported().is(204)
}

// connect resumes a sandbox or finds it running.
func (p *probe) connect(s *sandbox, timeout int) *answer {
	return p.call("POST", p.connectRoute(s.id), object{"timeout": timeout})
}

// removalLimit bounds each removal of what was made.
const removalLimit = time.Minute

// keep notes what was made, by the path under which it can be deleted.
func (r *runner) keep(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept[path] = true
}

// owns has something removed at the end of the check.
func (p *probe) owns(path string) {
	p.keep(path)
	p.own = append(p.own, path)
}

func sandboxPath(id string) string { return "/sandboxes/" + url.PathEscape(id) }

func templatePath(id string) string { return "/templates/" + url.PathEscape(id) }

// sandboxesFirst has templates deleted when the sandboxes made of them are gone.
func sandboxesFirst(paths []string) []string {
	slices.SortStableFunc(paths, func(a, b string) int {
		rank := func(path string) int { return strings.Index(path, "/sandboxes/") } // 0 or -1
		return rank(b) - rank(a)
	})
	return paths
}

// removeOwn removes what one check made. It works also when the run was cancelled.
func (p *probe) removeOwn() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), removalLimit)
	defer cancel()
	for _, path := range sandboxesFirst(p.own) {
		p.remove(ctx, path)
	}
}

// remove deletes something, which is forgotten only when the server says that it
// is gone.
func (r *runner) remove(ctx context.Context, path string) {
	a, err := r.send(ctx, r.api, http.MethodDelete, r.target.APIURL+path, "", r.apiHeaders(false)...)
	if err == nil && (a.status/100 == 2 || a.status == http.StatusNotFound) {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.kept, path)
	}
}

// removeAll removes what is left of the run: what checks share, what could not be
// removed before, and what was made although the answer was lost. It looks again
// whether all is gone, and returns what is not.
func (r *runner) removeAll(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removalLimit)
	defer cancel()
	for round := range 5 {
		if round > 1 || round == 1 && r.lost { // a server may take a moment
			select {
			case <-time.After(500 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		r.findLost(ctx)
		if len(r.kept) == 0 && (!r.lost || round > 2) {
			return nil
		}
		for _, path := range sandboxesFirst(slices.Collect(maps.Keys(r.kept))) {
			r.remove(ctx, path)
		}
	}
	r.findLost(ctx)
	return slices.Sorted(maps.Keys(r.kept))
}

// findLost looks for sandboxes with the run's mark, and for snapshots
// of sandboxes of which some were asked for. A server without these lists has
// nothing to be found.
func (r *runner) findLost(ctx context.Context) {
	if r.made == 0 {
		return
	}
	query := url.Values{"metadata": {metadataKey + "=" + r.tag}, "state": {"running,paused"}}
	for _, item := range r.listed(ctx, "/v2/sandboxes?"+query.Encode()) {
		// Where the filter is without effect, the list has those of others.
		if item.SandboxID != "" && item.Metadata[metadataKey] == r.tag {
			r.keep(sandboxPath(item.SandboxID))
		}
	}
	for id := range r.sources {
		for _, item := range r.listed(ctx, "/snapshots?sandboxID="+id) {
			if item.SnapshotID != "" {
				r.keep(templatePath(item.SnapshotID))
			}
		}
	}
}

type listedItem struct {
	SandboxID, SnapshotID string
	Metadata              map[string]string
}

// listed reads all pages of a list, as far as they come.
func (r *runner) listed(ctx context.Context, path string) (all []listedItem) {
	next := ""
	for range 100 { // no run makes more
		a, err := r.send(ctx, r.api, http.MethodGet, r.target.APIURL+path+next, "", r.apiHeaders(false)...)
		var page []listedItem
		if err != nil || a.status != http.StatusOK || json.Unmarshal([]byte(a.body), &page) != nil {
			return all
		}
		all = append(all, page...)
		token := a.header.Get("X-Next-Token")
		if token == "" {
			return all
		}
		next = "&nextToken=" + url.QueryEscape(token)
	}
	return all
}
