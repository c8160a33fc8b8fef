package control_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/control"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/nodetest"
)

func TestTransitionsOfLiveSandboxes(t *testing.T) {
	require.ElementsMatch(t, []control.State{control.Pausing, control.Killing, control.Snapshotting}, control.Running.Next())
	require.ElementsMatch(t, []control.State{control.Killing}, control.Pausing.Next())
	require.ElementsMatch(t, []control.State{control.Running, control.Killing, control.Pausing}, control.Snapshotting.Next())
	require.Empty(t, control.Killing.Next())
	require.Equal(t, []string{"running", "pausing", "snapshotting", "killing"},
		[]string{control.Running.String(), control.Pausing.String(), control.Snapshotting.String(), control.Killing.String()})
}

// A phase makes a sandbox that is in it until release is called.
type phase func(r *rig) (id string, release func())

func inPhase(method, path, body string, hold nodetest.Step, steps ...func(r *rig, id string)) phase {
	return func(r *rig) (string, func()) {
		id := r.create(ownKey, autoResume)
		for _, step := range steps {
			step(r, id)
		}
		if hold == "" {
			return id, func() {}
		}
		release := r.hold(hold)
		answered := r.background(ownKey, method, "/sandboxes/"+id+path, body)
		return id, func() {
			release()
			<-answered
		}
	}
}

var phases = map[string]phase{
	"running":             inPhase("", "", "", ""),
	"pausing":             inPhase("POST", "/pause", "", nodetest.Pause),
	"paused":              inPhase("", "", "", "", pausedStep),
	"resuming":            inPhase("POST", "/connect", `{"timeout":60}`, nodetest.Resume, pausedStep),
	"killing":             inPhase("DELETE", "", "", nodetest.Kill),
	"killing once paused": inPhase("DELETE", "", "", nodetest.Kill, pausedStep, unpausedStep),
	"pausing again":       inPhase("POST", "/pause", "", nodetest.Pause, pausedStep, unpausedStep),
	"snapshotting":        inPhase("POST", "/snapshots", "{}", nodetest.Snapshot),
	"unknown":             func(*rig) (string, func()) { return "iunknown", func() {} },
}

// cells says what each operation answers in each phase, and which answers come
// only when the phase has ended.
var cells = map[string]map[string]string{
	"connect": {
		"running":             "200",
		"pausing":             "waits 201",
		"pausing again":       "waits 201",
		"paused":              "201",
		"resuming":            "waits 201",
		"snapshotting":        "waits 200",
		"killing":             `409 Sandbox "ID" is being killed`,
		"killing once paused": `409 Sandbox "ID" is being killed`,
		"unknown":             gone,
	},
	"resume": {
		"running":             "409 Sandbox ID is already running",
		"pausing":             "waits 201",
		"pausing again":       "waits 201",
		"paused":              "201",
		"resuming":            "waits 201",
		"snapshotting":        "409 Sandbox snapshot is currently being created for sandbox 'ID'",
		"killing":             gone,
		"killing once paused": gone,
		"unknown":             gone,
	},
	"pause": {
		"running":             "204",
		"pausing":             "waits 204",
		"pausing again":       "waits 204",
		"paused":              "409 Error pausing sandbox - sandbox 'ID' is already paused",
		"resuming":            "409 Error pausing sandbox - sandbox 'ID' is already paused",
		"snapshotting":        "waits 204",
		"killing":             gone,
		"killing once paused": "409 Error pausing sandbox - sandbox 'ID' is already paused",
		"unknown":             gone,
	},
	"kill": {
		"running":             "204",
		"pausing":             "waits 204",
		"pausing again":       "waits 204",
		"paused":              "204",
		"resuming":            "204",
		"snapshotting":        "waits 204",
		"killing":             "waits 204",
		"killing once paused": "waits 204",
		"unknown":             gone,
	},
	"timeout":   timeoutCells,
	"refreshes": timeoutCells,
	"network":   timeoutCells,
	"snapshot": {
		"running":             "201",
		"pausing":             "409 Sandbox 'ID' cannot be snapshotted while in 'pausing' state",
		"pausing again":       "409 Sandbox 'ID' cannot be snapshotted while in 'pausing' state",
		"paused":              gone,
		"resuming":            gone,
		"snapshotting":        "waits 409 Sandbox 'ID' cannot be snapshotted while in 'snapshotting' state",
		"killing":             "409 Sandbox 'ID' cannot be snapshotted while in 'killing' state",
		"killing once paused": "409 Sandbox 'ID' cannot be snapshotted while in 'killing' state",
		"unknown":             gone,
	},
	"fork": {
		"running":             "201",
		"pausing":             "409 Sandbox 'ID' cannot be forked while in 'pausing' state",
		"pausing again":       "409 Sandbox 'ID' cannot be forked while in 'pausing' state",
		"paused":              "409 Sandbox 'ID' is paused and cannot be forked; resume it first",
		"resuming":            "409 Sandbox 'ID' is paused and cannot be forked; resume it first",
		"snapshotting":        "409 Sandbox 'ID' cannot be forked while in 'snapshotting' state",
		"killing":             "409 Sandbox 'ID' cannot be forked while in 'killing' state",
		"killing once paused": "409 Sandbox 'ID' cannot be forked while in 'killing' state",
		"unknown":             gone,
	},
	"info": {
		"running":             "200 running",
		"pausing":             "200 paused",
		"pausing again":       "200 paused",
		"paused":              "200 paused",
		"resuming":            "200 paused",
		"snapshotting":        "200 running",
		"killing":             gone,
		"killing once paused": gone,
		"unknown":             gone,
	},
	"list running": {
		"running":             "listed",
		"pausing":             "",
		"pausing again":       "",
		"paused":              "",
		"resuming":            "",
		"snapshotting":        "",
		"killing":             "",
		"killing once paused": "",
		"unknown":             "",
	},
	"list paused": {
		"running":             "",
		"pausing":             "listed",
		"pausing again":       "listed",
		"paused":              "listed",
		"resuming":            "listed",
		"snapshotting":        "",
		"killing":             "",
		"killing once paused": "listed",
		"unknown":             "",
	},
	"list v1": {
		"running":             "listed",
		"pausing":             "",
		"pausing again":       "",
		"paused":              "",
		"resuming":            "",
		"snapshotting":        "",
		"killing":             "",
		"killing once paused": "",
		"unknown":             "",
	},
	"traffic": {
		"running":             "204",
		"pausing":             "502 The sandbox was not found",
		"pausing again":       "waits 204",
		"paused":              "204",
		"resuming":            "waits 204",
		"snapshotting":        "204",
		"killing":             "502 The sandbox was not found",
		"killing once paused": "502 The sandbox was not found",
		"unknown":             "502 The sandbox was not found",
	},
}

const gone = `404 Sandbox "ID" doesn't exist or you don't have access to it`

var timeoutCells = map[string]string{
	"running":             "204",
	"pausing":             `409 Sandbox "ID" is being paused`,
	"pausing again":       `409 Sandbox "ID" is being paused`,
	"paused":              gone,
	"resuming":            gone,
	"snapshotting":        `409 Sandbox "ID" is being snapshotted`,
	"killing":             `409 Sandbox "ID" is being killed`,
	"killing once paused": `409 Sandbox "ID" is being killed`,
	"unknown":             gone,
}

// operations send their request and put the answer into words.
var operations = map[string]func(r *rig, id string) string{
	"connect":   post("connect", `{"timeout":60}`),
	"resume":    post("resume", `{"timeout":60}`),
	"pause":     post("pause", ""),
	"timeout":   post("timeout", `{"timeout":60}`),
	"refreshes": post("refreshes", `{"duration":60}`),
	"snapshot":  post("snapshots", `{"name":"a"}`),
	"fork":      post("fork", `{}`),
	"network": func(r *rig, id string) string {
		return r.words(id, r.call(ownKey, "PUT", "/sandboxes/"+id+"/network", "{}"))
	},
	"kill": func(r *rig, id string) string { return r.words(id, r.call(ownKey, "DELETE", "/sandboxes/"+id, "")) },
	"info": func(r *rig, id string) string {
		a := r.info(id)
		if a.status == 200 {
			return "200 " + a.field(r.t, "state")
		}
		return r.words(id, a)
	},
	"list running": listing("/v2/sandboxes?state=running"),
	"list paused":  listing("/v2/sandboxes?state=paused"),
	"list v1":      listing("/sandboxes"),
	"traffic":      func(r *rig, id string) string { return r.words(id, r.traffic(id, "49983")) },
}

func post(path, body string) func(r *rig, id string) string {
	return func(r *rig, id string) string {
		return r.words(id, r.call(ownKey, "POST", "/sandboxes/"+id+"/"+path, body))
	}
}

func listing(path string) func(r *rig, id string) string {
	return func(r *rig, id string) string {
		if slices.Contains(r.call(ownKey, "GET", path, "").ids(r.t), id) {
			return "listed"
		}
		return ""
	}
}

// words puts an answer the way the table does.
func (r *rig) words(id string, a answer) string {
	if a.status < 300 {
		return fmt.Sprint(a.status)
	}
	return fmt.Sprintf("%d %s", a.status, strings.ReplaceAll(a.message(r.t), id, "ID"))
}

func TestEveryOperationInEveryPhase(t *testing.T) {
	require.Len(t, cells, len(operations))
	for operation, row := range cells {
		require.Len(t, row, len(phases), operation)
		for name, want := range row {
			t.Run(operation+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, control.Options{})
					id, release := phases[name](r)
					done := make(chan string, 1)
					go func() { done <- operations[operation](r, id) }()
					synctest.Wait()
					want, waits := strings.CutPrefix(want, "waits ")
					if waits {
						require.Empty(t, done, "answered before the phase had ended")
						release()
						require.Equal(t, want, <-done)
						return
					}
					require.Len(t, done, 1, "no answer while the phase lasts")
					require.Equal(t, want, <-done)
					release()
				})
			})
		}
	}
}
