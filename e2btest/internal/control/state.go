package control

import "net/http"

// A State is what the store of live sandboxes says of one. A paused sandbox is
// not live: it is a snapshot.
type State uint8

// The states of a live sandbox.
const (
	Running State = iota
	Pausing
	Snapshotting
	Killing
)

// String returns the name that E2B uses in its messages.
func (s State) String() string {
	switch s {
	case Running:
		return "running"
	case Pausing:
		return "pausing"
	case Snapshotting:
		return "snapshotting"
	default:
		return "killing"
	}
}

// next lists the states that may follow each state. A sandbox also leaves the
// store at the end of Pausing and Killing.
var next = [...][]State{
	Running:      {Pausing, Killing, Snapshotting},
	Pausing:      {Killing},
	Snapshotting: {Running, Killing, Pausing},
	Killing:      {},
}

// A phase is what a sandbox is to an operation that looks it up: the state of
// the live sandbox, or else what is known of its snapshot.
type phase uint8

const (
	unknown phase = iota
	running
	pausing
	paused
	resuming // a snapshot that is being started; to readers still paused
	snapshotting
	killing
	phases
)

// phaseOf translates the state of a live sandbox.
func phaseOf(s State) phase {
	return [...]phase{Running: running, Pausing: pausing, Snapshotting: snapshotting, Killing: killing}[s]
}

// An operation is what a request wants of a sandbox.
type operation uint8

const (
	opConnect operation = iota
	opResume
	opPause
	opKill
	opSetTimeout // also refreshes
	opTraffic    // a request through the proxy
	opSnapshot
	opFork
	operations
)

// An action is how an operation goes on from a phase.
type action uint8

const (
	refuse   action = iota // answer with the rule's error
	onLive                 // act on the running sandbox
	onStored               // act on the snapshot
	await                  // wait for the transition, then look again
	join                   // wait for what is under way; its outcome is the answer
	skipLive               // go by the snapshot alone
)

// A rule is one cell of the table of operations and phases.
type rule struct {
	do     action
	status int
	text   string // %s is the ID
}

var (
	notFound      = rule{refuse, http.StatusNotFound, `Sandbox "%s" doesn't exist or you don't have access to it`}
	alreadyPaused = rule{refuse, http.StatusConflict, `Error pausing sandbox - sandbox '%s' is already paused`}
	beingKilled   = conflict(`Sandbox "%s" is being killed`)
	notForked     = conflict(`Sandbox '%s' is paused and cannot be forked; resume it first`)
)

func conflict(text string) rule { return rule{refuse, http.StatusConflict, text} }

// rules says what each operation does in each phase.
var rules = [operations][phases]rule{
	opConnect: {
		unknown:      notFound,
		running:      {do: onLive},
		pausing:      {do: await},
		paused:       {do: onStored},
		resuming:     {do: join},
		snapshotting: {do: await},
		killing:      beingKilled,
	},
	opResume: {
		unknown:      notFound,
		running:      conflict(`Sandbox %s is already running`),
		pausing:      {do: await},
		paused:       {do: onStored},
		resuming:     {do: join},
		snapshotting: conflict(`Sandbox snapshot is currently being created for sandbox '%s'`),
		killing:      notFound,
	},
	opPause: {
		unknown:      notFound,
		running:      {do: onLive},
		pausing:      {do: join},
		paused:       alreadyPaused,
		resuming:     alreadyPaused,
		snapshotting: {do: await},
		killing:      {do: skipLive},
	},
	opKill: {
		unknown:      notFound,
		running:      {do: onLive},
		pausing:      {do: await},
		paused:       {do: onStored},
		resuming:     {do: onStored},
		snapshotting: {do: await},
		killing:      {do: join},
	},
	opSetTimeout: {
		unknown:      notFound,
		running:      {do: onLive},
		pausing:      conflict(`Sandbox "%s" is being paused`),
		paused:       notFound,
		resuming:     notFound,
		snapshotting: conflict(`Sandbox "%s" is being snapshotted`),
		killing:      beingKilled,
	},
	opTraffic: {
		unknown:      notFound,
		running:      {do: onLive},
		pausing:      {do: await},
		paused:       {do: onStored},
		resuming:     {do: join},
		snapshotting: {do: onLive},
		killing:      notFound,
	},
	opSnapshot: {
		unknown:      notFound,
		running:      {do: onLive},
		pausing:      conflict(`Sandbox '%s' cannot be snapshotted while in 'pausing' state`),
		paused:       notFound,
		resuming:     notFound,
		snapshotting: {await, http.StatusConflict, `Sandbox '%s' cannot be snapshotted while in 'snapshotting' state`}, // nevertheless
		killing:      conflict(`Sandbox '%s' cannot be snapshotted while in 'killing' state`),
	},
	opFork: {
		unknown:      notFound,
		running:      {do: onLive},
		pausing:      conflict(`Sandbox '%s' cannot be forked while in 'pausing' state`),
		paused:       notForked,
		resuming:     notForked,
		snapshotting: conflict(`Sandbox '%s' cannot be forked while in 'snapshotting' state`),
		killing:      conflict(`Sandbox '%s' cannot be forked while in 'killing' state`),
	},
}

// A view is how the readers show a phase.
type view struct {
	info       string // state in GET /sandboxes/{id}; empty: 404
	listedAs   string // state in the lists for the live sandbox; empty: not listed
	hidesSaved bool   // its snapshot is left out of the list of paused ones
}

// views is how a live sandbox is shown. A snapshot without a live sandbox is
// paused everywhere. That the snapshot of a sandbox which is being killed or
// snapshotted shows up as paused in the list is how E2B does it.
var views = [...]view{
	Running:      {info: "running", listedAs: "running", hidesSaved: true},
	Pausing:      {info: "paused", listedAs: "paused", hidesSaved: true},
	Snapshotting: {info: "running"},
	Killing:      {},
}
