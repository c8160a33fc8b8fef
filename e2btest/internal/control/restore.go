package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"time"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// parseState reads a state. What it returns is complete and has no contradictions in
// itself.
func parseState(text []byte) (*keptState, error) {
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return nil, err
	}
	switch {
	case version.Version > stateVersion:
		return nil, fmt.Errorf("it has version %d of the format, and this program knows none above %d", version.Version, stateVersion)
	case version.Version < stateVersion:
		return nil, fmt.Errorf("there is no version %d of the format", version.Version)
	}
	state := new(keptState)
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(state); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is something after its end")
	}
	return state, state.check()
}

var keptID = regexp.MustCompile(`^[a-z0-9]{1,63}$`)

func (k *keptState) check() error {
	switch {
	case k.ClockAhead < 0:
		return fmt.Errorf("its clock is behind by %v", -k.ClockAhead)
	case k.TokenSecret == nil && len(k.Sandboxes)+len(k.Templates)+len(k.Volumes)+len(k.Secrets) == 0: // NoState
	case len(k.TokenSecret) != len(Server{}.secret):
		return fmt.Errorf("its secret for tokens has %d bytes", len(k.TokenSecret))
	case k.SavedAt.IsZero():
		return errors.New("it does not say when it was saved")
	}
	ids := make(map[string]bool)
	for i := range k.Sandboxes {
		sb := &k.Sandboxes[i]
		if ids[sb.ID] {
			return fmt.Errorf("sandbox %s is there twice", sb.ID)
		}
		ids[sb.ID] = true
		if err := sb.check(); err != nil {
			return fmt.Errorf("sandbox %q: %w", sb.ID, err)
		}
	}
	for i := range k.Templates {
		t := &k.Templates[i]
		if ids[t.ID] {
			return fmt.Errorf("the ID %s is there twice", t.ID)
		}
		ids[t.ID] = true
		if err := t.check(); err != nil {
			return fmt.Errorf("template %q: %w", t.ID, err)
		}
	}
	for _, v := range k.Volumes {
		if !uuid.MatchString(v.ID) || !volumeName.MatchString(v.Name) {
			return fmt.Errorf("volume %q with the ID %q", v.Name, v.ID)
		}
	}
	for _, sec := range k.Secrets {
		if !secretName.MatchString(sec.Name) {
			return fmt.Errorf("secret %q", sec.Name)
		}
	}
	return nil
}

func (sb *keptSandbox) check() error {
	switch {
	case sb.StartedAt.IsZero():
		return errors.New("it has no start")
	case len(sb.Events) == 0:
		return errors.New("it has no history")
	}
	for _, e := range sb.Events {
		if !slices.Contains([]happening{created, stopped, resumed, ended}, e.What) || e.At.IsZero() {
			return fmt.Errorf("%q at %v is in its history", e.What, e.At)
		}
	}
	return sb.keptSettings.check()
}

func (c *keptSettings) check() error {
	switch {
	case !keptID.MatchString(c.ID):
		return errors.New("the ID is none")
	case !keptID.MatchString(c.TemplateID) || c.EnvdVersion == "":
		return errors.New("it has no template")
	}
	return nil
}

func (t *keptTemplate) check() error {
	if !keptID.MatchString(t.ID) || t.EnvdVersion == "" || t.Name != "" && !ValidTemplateName(t.Name) || t.CreatedAt.IsZero() {
		return errors.New("it is incomplete")
	}
	for i := range t.Builds {
		if err := t.Builds[i].From.check(); err != nil {
			return fmt.Errorf("build %q: %w", t.Builds[i].Tag, err)
		}
		if t.Builds[i].Tag == "" {
			return errors.New("a build has no tag")
		}
	}
	return nil
}

// KeepState gives the server the state that an earlier one has saved, or NoState, and
// then to save each change of it before the request that made it is answered.
// Sandboxes that ran are paused now; none has its memory. It is called before the
// server is used. After an error the server is of no use; of what the state
// names, nothing was removed.
func (s *Server) KeepState(state []byte, save func(state []byte) error) error {
	keeper, ok := s.node.(node.Keeper)
	if !ok {
		return errors.New("what runs the sandboxes cannot keep them")
	}
	kept, err := parseState(state)
	if err != nil {
		return err
	}
	if kept.Layout != "" && kept.Layout != keeper.Layout() && len(kept.Sandboxes)+len(kept.Templates) > 0 {
		return fmt.Errorf("its sandboxes are of another kind (%s) than those of now (%s)", kept.Layout, keeper.Layout())
	}
	r := restorer{Server: s, keeper: keeper, teams: make(map[string]*Team)}
	if err := r.restore(kept); err != nil {
		return err
	}
	s.saving.Lock()
	s.keeper, s.keep = keeper, save
	s.saving.Unlock()
	return s.Save()
}

// A restorer fills a Server.
type restorer struct {
	*Server
	keeper node.Keeper
	teams  map[string]*Team
}

func (r *restorer) restore(kept *keptState) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, team := range r.keys {
		r.teams[team.ID] = team
	}
	r.clock.add(kept.ClockAhead)
	if kept.TokenSecret != nil {
		copy(r.secret[:], kept.TokenSecret)
	}
	volumes, err := r.restoreNames(kept)
	if err != nil {
		return err
	}
	for i := range kept.Templates {
		if err := r.restoreTemplate(&kept.Templates[i]); err != nil {
			return err
		}
	}
	for i := range kept.Sandboxes {
		if err := r.restoreSandbox(&kept.Sandboxes[i], kept.SavedAt); err != nil {
			return err
		}
	}
	return r.keeper.DropOthers(volumes)
}

func (r *restorer) team(id string) (*Team, error) {
	if team := r.teams[id]; team != nil {
		return team, nil
	}
	return nil, fmt.Errorf("it is about a team that there is not: %q", id)
}

// restoreNames restores volumes and secrets. It returns the IDs of the volumes.
func (r *restorer) restoreNames(kept *keptState) (volumes []string, _ error) {
	for _, v := range kept.Volumes {
		team, err := r.team(v.Team)
		if err != nil {
			return nil, err
		}
		r.volumes = append(r.volumes, &volume{team: team, id: v.ID, name: v.Name})
		volumes = append(volumes, v.ID)
	}
	for _, k := range kept.Secrets {
		team, err := r.team(k.Team)
		if err != nil {
			return nil, err
		}
		r.secrets = append(r.secrets, &secret{team: team, view: k.secretView})
	}
	return volumes, nil
}

func (r *restorer) restoreTemplate(kept *keptTemplate) error {
	team, err := r.team(kept.Team)
	if err != nil {
		return err
	}
	t := &saved{Template: &Template{ID: kept.ID, EnvdVersion: kept.EnvdVersion}, team: team, created: kept.CreatedAt}
	if kept.Name != "" {
		t.Aliases = []string{kept.Name}
	}
	r.saved = append(r.saved, t)
	for i := range kept.Builds {
		b := &kept.Builds[i]
		from, err := r.settings(&b.From)
		if err != nil {
			return err
		}
		image, err := r.keeper.AdoptImage(b.Image)
		if errors.Is(err, fs.ErrNotExist) {
			r.log.WarnContext(r.ctx, "a snapshot is left out: its files are gone", "snapshot", t.view(&build{tag: b.Tag}).SnapshotID)
			continue
		}
		if err != nil {
			return err
		}
		t.builds = append(t.builds, &build{tag: b.Tag, from: from, image: image})
	}
	if len(t.builds) == 0 {
		r.saved = r.saved[:len(r.saved)-1]
	}
	return nil
}

func (r *restorer) restoreSandbox(kept *keptSandbox, savedAt time.Time) error {
	c, err := r.settings(&kept.keptSettings)
	if err != nil {
		return err
	}
	c.machine, err = r.keeper.AdoptSandbox(r.spec(c))
	if errors.Is(err, fs.ErrNotExist) {
		// It was being killed.
		r.log.WarnContext(r.ctx, "a sandbox is left out: its files are gone", "sandbox", c.id)
		return nil
	}
	if err != nil {
		return err
	}
	h := &history{team: c.team}
	for _, e := range kept.Events {
		h.events = append(h.events, event{e.At, e.What})
	}
	pausedAt := kept.PausedAt
	if pausedAt.IsZero() {
		pausedAt = savedAt
	}
	if h.events[len(h.events)-1].what.runs() {
		h.events = append(h.events, event{pausedAt, stopped})
	}
	r.histories[c.id] = h
	if c.metadata == nil {
		c.metadata = map[string]string{} // as in storeLocked
	}
	r.stored[c.id] = &snapshot{settings: c, startedAt: kept.StartedAt, pausedAt: pausedAt}
	return nil
}

// settings finds the template among those that there are. One that is there no longer
// is as it was.
func (r *restorer) settings(kept *keptSettings) (*settings, error) {
	team, err := r.team(kept.Team)
	if err != nil {
		return nil, err
	}
	c := &settings{
		id: kept.ID, team: team, base: kept.Base, envd: kept.EnvdVersion, env: kept.Env, metadata: kept.Metadata, timeout: kept.Timeout,
		autoPause: kept.AutoPause, autoPauseMemory: kept.AutoPauseMemory, autoResume: kept.AutoResume, secure: kept.Secure,
		allowInternet: kept.AllowInternet, network: kept.Network,
	}
	for _, m := range kept.Volumes {
		c.volumes = append(c.volumes, volumeMount{Name: m.Name, Path: m.Path, id: m.VolumeID})
	}
	if own := r.findSavedLocked(team, kept.TemplateID); own != nil {
		c.template = own.Template
	} else if c.template = r.findTemplate(kept.TemplateID); c.template == nil {
		c.template = Template{ID: kept.TemplateID, Aliases: kept.TemplateAliases, EnvdVersion: kept.EnvdVersion}.withDefaults()
	}
	return c, nil
}
