package control

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// stateVersion is the version of the format below. Any change of it makes another.
const stateVersion = 1

// NoState is the state of a server that has never been.
const NoState = `{"version":1}`

// keptState is a Server as it is saved, in JSON.
type keptState struct {
	Version     int            `json:"version"`
	SavedAt     time.Time      `json:"savedAt,omitzero"`
	Layout      string         `json:"layout,omitempty"` // of the node
	ClockAhead  time.Duration  `json:"clockAheadNs,omitempty"`
	TokenSecret []byte         `json:"tokenSecret,omitempty"`
	Sandboxes   []keptSandbox  `json:"sandboxes,omitempty"`
	Templates   []keptTemplate `json:"templates,omitempty"` // those that snapshots made
	Volumes     []keptVolume   `json:"volumes,omitempty"`
	Secrets     []keptSecret   `json:"secrets,omitempty"`
}

type keptSandbox struct {
	keptSettings
	StartedAt time.Time   `json:"startedAt"`
	PausedAt  time.Time   `json:"pausedAt,omitzero"` // zero: it runs
	Events    []keptEvent `json:"events"`
}

type keptEvent struct {
	At   time.Time `json:"at"`
	What happening `json:"what"`
}

// keptSettings are settings without the machine.
type keptSettings struct {
	ID              string            `json:"id"`
	Team            string            `json:"team"`
	TemplateID      string            `json:"templateID"`
	TemplateAliases []string          `json:"templateAliases,omitempty"`
	EnvdVersion     string            `json:"envdVersion"`
	Base            string            `json:"base"`
	Env             map[string]string `json:"env,omitempty"`
	Metadata        map[string]string `json:"metadata"` // null: none was given
	Timeout         time.Duration     `json:"timeoutNs"`
	AutoPause       bool              `json:"autoPause,omitempty"`
	AutoPauseMemory bool              `json:"autoPauseMemory,omitempty"`
	AutoResume      bool              `json:"autoResume,omitempty"`
	Secure          bool              `json:"secure,omitempty"`
	AllowInternet   *bool             `json:"allowInternet,omitempty"`
	Network         *network          `json:"network,omitempty"`
	Volumes         []keptMount       `json:"volumes,omitempty"`
}

type keptMount struct {
	VolumeID string `json:"volumeID"`
	Name     string `json:"name"`
	Path     string `json:"path"`
}

type keptTemplate struct {
	ID          string      `json:"id"`
	Name        string      `json:"name,omitempty"`
	EnvdVersion string      `json:"envdVersion"`
	Team        string      `json:"team"`
	CreatedAt   time.Time   `json:"createdAt"`
	Builds      []keptBuild `json:"builds"`
}

type keptBuild struct {
	Tag   string       `json:"tag"`
	Image string       `json:"image"` // its name
	From  keptSettings `json:"from"`
}

type keptVolume struct {
	ID   string `json:"id"`
	Team string `json:"team"`
	Name string `json:"name"`
}

type keptSecret struct {
	Team string `json:"team"`
	secretView
}

// Save saves the state also if nothing seems to have changed. A Server that is about
// to end calls it last, when nothing is under way.
func (s *Server) Save() error { return s.save(true) }

// saveChanges saves the state if it is not the one that was saved last.
func (s *Server) saveChanges() {
	if err := s.save(false); err != nil {
		s.log.ErrorContext(s.ctx, "the state could not be saved", "error", err)
	}
}

func (s *Server) save(always bool) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	if s.keeper == nil {
		return nil
	}
	state := s.state()
	body, err := json.Marshal(state)
	if err != nil || !always && bytes.Equal(body, s.last) {
		return err
	}
	state.SavedAt = s.clock.Now()
	text, err := json.MarshalIndent(state, "", "\t")
	if err != nil {
		return err
	}
	if err := s.keep(append(text, '\n')); err != nil {
		return err
	}
	s.last = body
	return nil
}

// state is the Server as it is now. It shares nothing with it that changes.
func (s *Server) state() *keptState {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := &keptState{
		Version: stateVersion, Layout: s.keeper.Layout(),
		ClockAhead: time.Duration(s.clock.offset.Load()), TokenSecret: slices.Clone(s.secret[:]),
	}
	for id, snap := range s.stored {
		if s.live[id] == nil {
			state.Sandboxes = append(state.Sandboxes, s.keptLocked(snap.settings, snap.startedAt, snap.pausedAt))
		}
	}
	for id, sb := range s.live {
		// One that is being killed stays if it has a snapshot: see expireLocked.
		if sb.state != Killing || s.stored[id] != nil {
			state.Sandboxes = append(state.Sandboxes, s.keptLocked(sb.settings, sb.startedAt, time.Time{}))
		}
	}
	slices.SortFunc(state.Sandboxes, func(a, b keptSandbox) int { return cmp.Compare(a.ID, b.ID) })
	for _, t := range s.saved {
		state.Templates = append(state.Templates, t.kept(s.keeper))
	}
	for _, v := range s.volumes {
		state.Volumes = append(state.Volumes, keptVolume{v.id, v.team.ID, v.name})
	}
	for _, k := range s.secrets {
		state.Secrets = append(state.Secrets, keptSecret{k.team.ID, k.view})
	}
	return state
}

func (s *Server) keptLocked(c *settings, startedAt, pausedAt time.Time) keptSandbox {
	sb := keptSandbox{keptSettings: c.kept(), StartedAt: startedAt, PausedAt: pausedAt}
	for _, e := range s.histories[c.id].events {
		sb.Events = append(sb.Events, keptEvent{e.at, e.what})
	}
	return sb
}

func (c *settings) kept() keptSettings {
	k := keptSettings{
		ID: c.id, Team: c.team.ID, TemplateID: c.template.ID, TemplateAliases: c.template.Aliases, EnvdVersion: c.envd,
		Base: c.base, Env: c.env, Metadata: c.metadata, Timeout: c.timeout, AutoPause: c.autoPause, AutoPauseMemory: c.autoPauseMemory,
		AutoResume: c.autoResume, Secure: c.secure, AllowInternet: c.allowInternet, Network: c.network,
	}
	for _, m := range c.volumes {
		k.Volumes = append(k.Volumes, keptMount{m.id, m.Name, m.Path})
	}
	return k
}

func (t *saved) kept(keeper node.Keeper) keptTemplate {
	k := keptTemplate{ID: t.ID, Name: t.alias(), EnvdVersion: t.EnvdVersion, Team: t.team.ID, CreatedAt: t.created}
	for _, b := range t.builds {
		k.Builds = append(k.Builds, keptBuild{b.tag, keeper.ImageName(b.image), b.from.kept()})
	}
	return k
}
