package e2btest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// A phases is a set of what a sandbox can be, as far as its clients can know.
type phases uint16

const (
	running phases = 1 << iota
	resaved        // running, and paused or copied before, so it has a snapshot
	pausing
	repausing // with a snapshot
	paused
	resuming
	copying // for a snapshot or a fork
	recopying
	killing
	rekilling
	expiring // killed by its timeout, which leaves its snapshot
	gone
	ghost // killed while it resumed: it is gone, and then runs after all

	alive  = running | resaved
	moving = pausing | repausing
	copied = copying | recopying
	dying  = killing | rekilling | expiring
	absent = gone | ghost
	frozen = paused | resuming
)

var phaseNames = []string{
	"running", "running with a snapshot", "pausing", "pausing with a snapshot", "paused", "resuming",
	"copying", "copying with a snapshot", "killing", "killing with a snapshot", "expiring", "gone", "killed while resuming",
}

func (p phases) String() string {
	var names []string
	for i, name := range phaseNames {
		if p&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return "{" + strings.Join(names, ", ") + "}"
}

// An edge leads from one phase to another.
type edge struct{ from, to phases }

// follow adds to a set all that the edges lead to.
func (p phases) follow(edges []edge) phases {
	for {
		before := p
		for _, e := range edges {
			if p&e.from != 0 {
				p |= e.to
			}
		}
		if p == before {
			return p
		}
	}
}

// step is where the edges lead at once.
func (p phases) step(edges []edge) (to phases) {
	for _, e := range edges {
		if p&e.from != 0 {
			to |= e.to
		}
	}
	return to
}

// settling is what happens by itself.
var settling = []edge{
	{pausing, paused},
	{repausing, paused},
	{resuming, resaved},
	{copying, resaved},
	{recopying, resaved},
	{killing, gone},
	{rekilling, gone},
	{expiring, paused},
	{ghost, running},
}

// What the end of a sandbox's time begins.
var (
	expiryPauses = []edge{{running, pausing}, {resaved, repausing}}
	expiryKills  = []edge{{running, killing}, {resaved, expiring}}
)

// An outcome is an answer that a request may get in some phases.
type outcome struct {
	in     phases
	status int
	text   string // a part of the message
	then   phases // afterwards; 0: as before
}

// A request is one row of the table of operations and phases.
type request struct {
	begins   []edge // what it sets off
	expires  bool   // it can end the sandbox's time
	extends  bool   // it can keep the sandbox from its end
	moot     phases // where a repeated call has succeeded, as there is nothing left to do
	outcomes []outcome
}

const notFound = "doesn't exist or you don't have access to it"

var (
	starts = []edge{{paused, resuming}}
	copies = []edge{{running, copying}, {resaved, recopying}}
	kills  = []edge{{running, killing}, {resaved, rekilling}, {paused, gone}, {resuming, ghost}}

	// What those that need a running sandbox answer where it is not.
	unsettable = []outcome{
		{moving, 409, "is being paused", 0},
		{copied, 409, "is being snapshotted", 0},
		{dying, 409, "is being killed", 0},
		{frozen | absent, 404, notFound, 0},
	}
)

// requests are the rows.
var requests = map[string]request{
	"connect": {begins: starts, extends: true, outcomes: []outcome{
		{running, 200, "", running},
		{resaved | copied, 200, "", resaved},
		{moving | frozen, 201, "", resaved},
		{dying, 409, "is being killed", 0},
		{absent, 404, notFound, 0},
	}},
	"resume": {begins: starts, extends: true, outcomes: []outcome{
		{alive, 409, "is already running", 0},
		{moving | frozen, 201, "", resaved},
		{copied, 409, "snapshot is currently being created", 0},
		{dying | absent, 404, notFound, 0},
	}},
	"pause": {begins: expiryPauses, moot: frozen | rekilling | expiring, outcomes: []outcome{
		{alive | moving | copied, 204, "", paused},
		{frozen | rekilling | expiring, 409, "is already paused", 0},
		{killing | absent, 404, notFound, 0},
	}},
	"kill": {begins: kills, moot: absent, outcomes: []outcome{
		{alive | moving | copied | dying | paused, 204, "", gone},
		{resuming, 204, "", ghost},
		{absent, 404, notFound, 0},
	}},
	"timeout":   {extends: true, outcomes: append([]outcome{{alive, 204, "", 0}}, unsettable...)},
	"refreshes": {extends: true, outcomes: append([]outcome{{alive, 204, "", 0}}, unsettable...)},
	"end": {expires: true, outcomes: append([]outcome{
		{running, 204, "", pausing | killing}, {resaved, 204, "", repausing | expiring},
	}, unsettable...)}, // a timeout of 0
	"snapshot": {begins: copies, outcomes: []outcome{
		{alive, 201, "", resaved},
		{moving, 409, "cannot be snapshotted while in 'pausing' state", 0},
		{copied, 409, "cannot be snapshotted while in 'snapshotting' state", 0},
		{dying, 409, "cannot be snapshotted while in 'killing' state", 0},
		{frozen | absent, 404, notFound, 0},
	}},
	"fork": {begins: copies, outcomes: []outcome{
		{alive, 201, "", resaved},
		{moving, 409, "cannot be forked while in 'pausing' state", 0},
		{frozen, 409, "is paused and cannot be forked", 0},
		{copied, 409, "cannot be forked while in 'snapshotting' state", 0},
		{dying, 409, "cannot be forked while in 'killing' state", 0},
		{absent, 404, notFound, 0},
	}},
	"info": {outcomes: []outcome{
		{alive | copied, 200, "running", 0}, {moving | frozen, 200, "paused", 0}, {dying | absent, 404, notFound, 0},
	}},
	"list running": {outcomes: []outcome{{alive, 200, "listed", 0}, {^alive, 200, "missing", 0}}},
	"list paused": {outcomes: []outcome{
		{moving | frozen | recopying | rekilling | expiring, 200, "listed", 0},
		{alive | copying | killing | absent, 200, "missing", 0},
	}},
	// Whatever had time before is over, and what was under way has ended.
	"advance": {expires: true, outcomes: []outcome{
		{running, 204, "", paused | gone},
		{resaved | copied, 204, "", paused},
		{moving | expiring | paused, 204, "", paused},
		{killing | rekilling | gone, 204, "", gone},
		{resuming, 204, "", resuming | resaved | paused},
		{ghost, 204, "", ghost | running | paused | gone},
	}},
	"create": {extends: true},
}

// A modelled is a sandbox as the model knows it. Several requests for it can be
// under way, whose order nobody knows. So there is a set of phases, which grows with
// what each request may do and shrinks with what each answer says.
type modelled struct {
	id        string
	autoPause bool
	expiry    []edge

	mu       sync.Mutex
	possible phases
	flying   []*flight
}

// A flight is a request that was sent.
type flight struct {
	name     string
	request  request
	retried  bool // it may be sent more than once
	start    phases
	overlaps []*flight // requests that were under way at the same time
	refused  bool      // it has done nothing
}

func newModelled(id string, autoPause bool) *modelled {
	m := &modelled{id: id, possible: running, autoPause: autoPause, expiry: expiryKills}
	if autoPause {
		m.expiry = expiryPauses
	}
	return m
}

// begin is called before a request is sent.
func (m *modelled) begin(name string, retried bool) *flight {
	row, ok := requests[name]
	if !ok {
		panic("no such request: " + name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	f := &flight{name: name, request: row, retried: retried, overlaps: slices.Clone(m.flying)}
	for _, other := range m.flying {
		other.overlaps = append(other.overlaps, f)
	}
	f.start = m.possible
	m.flying = append(m.flying, f)
	m.possible = m.possible.follow(m.edges(m.flying))
	return f
}

// edges is all that may happen through requests.
func (m *modelled) edges(flights []*flight) []edge {
	edges := slices.Clone(settling)
	for _, f := range flights {
		switch {
		case f.refused:
			continue
		case f.request.expires:
			edges = append(edges, m.expiry...)
		}
		edges = append(edges, f.request.begins...)
	}
	return edges
}

// lost is called where no answer of the server has come: it has done what the
// request wants, or has not.
func (m *modelled) lost(f *flight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flying = slices.DeleteFunc(m.flying, func(other *flight) bool { return other == f })
}

// end is called with the answer. Its error says why there cannot be such a one.
func (m *modelled) end(f *flight, status int, text string) error {
	m.lost(f)
	m.mu.Lock()
	defer m.mu.Unlock()
	f.refused = status >= http.StatusBadRequest && !f.retried
	others := m.edges(f.overlaps)
	if f.retried {
		others = append(others, m.edges([]*flight{f})...)
	}
	could := f.start.follow(others)
	after, allowed := m.after(f, could, status, text)
	if !allowed {
		return fmt.Errorf("%s of %s, which could be %v, was answered %d %q", f.name, m.id, could, status, text)
	}
	before := m.possible
	m.possible &= after.follow(others)
	if m.possible == 0 {
		return fmt.Errorf("%s of %s was answered %d %q, which means %v, but other answers mean %v", f.name, m.id, status, text, after, before)
	}
	return nil
}

// success is any status of success, where a client does not learn which one.
const success = 0

// after is what a sandbox can be just after an answer, and whether there can be
// such an answer.
func (m *modelled) after(f *flight, could phases, status int, text string) (after phases, allowed bool) {
	if status == success && f.retried {
		after = could & f.request.moot
	}
	allowed = after != 0
	for _, o := range f.request.outcomes {
		in := could & o.in
		if in == 0 || o.status != status && (status != success || o.status >= http.StatusBadRequest) || !strings.Contains(text, o.text) {
			continue
		}
		allowed = true
		switch {
		case o.then == 0:
			after |= in
		case f.request.expires && in&alive != 0:
			after |= o.then & in.step(m.expiry).follow(settling)
		default:
			after |= o.then
		}
	}
	for _, other := range f.overlaps {
		switch {
		case other.refused:
		case other.name == "kill" && len(f.request.begins) > 0 && f.request.begins[0] == starts[0]:
			after |= (after & resaved) >> 1 // as it was killed while it resumed
		case f.name == "advance" && other.request.extends:
			after |= could & (alive | copied)
		}
	}
	return after, allowed
}

// known returns the phases that the sandbox can be in.
func (m *modelled) known() phases {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.possible
}
