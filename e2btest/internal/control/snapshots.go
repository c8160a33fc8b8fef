package control

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

var snapshotSchema = &schema{
	kind: objectKind, name: "SandboxSnapshotRequest",
	fields: map[string]*schema{"name": text, "mode": text},
}

type snapshotBody struct {
	Name string `json:"name"`
	Mode string `json:"mode"`
}

// A saved is a template that snapshots made.
type saved struct {
	*Template
	team    *Team
	created time.Time
	builds  []*build // oldest first; each has another tag
}

// A build is what one snapshot kept.
type build struct {
	tag    string
	from   *settings // of the sandbox, then
	image  node.Image
	starts int  // sandboxes that are being started from it
	gone   bool // nothing leads to it any more
}

// tagged returns the newest build that fits; "" fits all.
func (t *saved) tagged(tag, source string) *build {
	for _, b := range slices.Backward(t.builds) {
		if (tag == "" || b.tag == tag) && (source == "" || b.from.id == source) {
			return b
		}
	}
	return nil
}

// name is the template's name with its namespace; "" if it has none.
func (t *saved) name() string {
	if len(t.Aliases) == 0 {
		return ""
	}
	return t.team.Slug + "/" + t.alias()
}

// A snapshotView is the answer of a snapshot, and an item of their list.
type snapshotView struct {
	Names      []string `json:"names"`
	SnapshotID string   `json:"snapshotID"`
}

func (t *saved) view(b *build) snapshotView {
	if name := t.name(); name != "" {
		return snapshotView{Names: []string{name}, SnapshotID: name + ":" + b.tag}
	}
	return snapshotView{Names: []string{}, SnapshotID: t.ID + ":" + b.tag}
}

// findSavedLocked returns the team's own template of that ID or name.
func (s *Server) findSavedLocked(team *Team, name string) *saved {
	for _, t := range s.saved {
		if t.team == team && (t.ID == name || slices.Contains(t.Aliases, name)) {
			return t
		}
	}
	return nil
}

func (s *Server) handleSnapshot(c *call) (*response, *Error) {
	var body snapshotBody
	if err := decode(c.body, &body); err != nil {
		return nil, err
	}
	if body.Mode != "" && body.Mode != "full" && body.Mode != "filesystem" {
		return nil, bodyError(`doesn't match schema #/components/schemas/SandboxSnapshotRequest: Error at "/mode": value is not one of the allowed values ["full","filesystem"]`)
	}
	name, err := parseSnapshotName(c.team, body.Name)
	if err != nil {
		return nil, err
	}
	id, err := c.id()
	if err != nil {
		return nil, err
	}
	view, err := s.snapshot(c.ctx, c.team, id, name, body.Mode != "filesystem")
	if err != nil {
		return nil, err
	}
	return &response{status: http.StatusCreated, body: view}, nil
}

// parseSnapshotName reads the name that a snapshot is to get, if any.
func parseSnapshotName(team *Team, ref string) (templateName, *Error) {
	if ref == "" {
		return templateName{tag: defaultTag}, nil
	}
	name, ok := parseTemplateName(ref)
	switch {
	case !ok:
		return name, fail(http.StatusBadRequest, "Invalid name: invalid template ID: "+ref)
	case name.namespace != "" && name.namespace != team.Slug:
		return name, fail(http.StatusBadRequest, fmt.Sprintf("namespace '%s' must match your team '%s'", name.namespace, team.Slug))
	case name.tag == "":
		name.tag = defaultTag
	}
	return name, nil
}

// snapshot keeps the state of a running sandbox under a name, also if the client
// does not wait for it.
func (s *Server) snapshot(ctx context.Context, team *Team, id string, name templateName, memory bool) (snapshotView, *Error) {
	var view snapshotView
	if err := s.checkpoint(ctx, opSnapshot, team, id, memory, func(b *build) { view = s.saveLocked(team, name, b) }); err != nil {
		return snapshotView{}, err // view may yet be written
	}
	return view, nil
}

// checkpointErrors are what the two that copy a sandbox say when its node cannot.
var checkpointErrors = map[operation]struct{ busy, failed string }{
	opSnapshot: {"Sandbox '%s' cannot be snapshotted right now because its node is busy, please retry", "Error creating snapshot template"},
	opFork:     {"Sandbox '%s' cannot be forked right now because its node is busy, please retry", "Error forking sandbox"},
}

// checkpoint copies a running sandbox and gives done what came of it, with the lock
// held. That may happen after ctx has ended.
func (s *Server) checkpoint(ctx context.Context, op operation, team *Team, id string, memory bool, done func(*build)) *Error {
	s.mu.Lock()
	r := rules[op][s.phaseLocked(team, id)]
	switch {
	case r.do == await:
		t := s.live[id].transition
		s.mu.Unlock()
		if err := waitFor(ctx, t.done); err != nil {
			return err
		}
		return r.refusal(id)
	case r.do != onLive:
		s.mu.Unlock()
		return r.refusal(id)
	case s.closed:
		s.mu.Unlock()
		return errClosed
	}
	busy := false
	t := s.checkpointLocked(s.live[id], memory, func(b *build) {
		if busy = b == nil; !busy {
			done(b)
		}
	})
	s.mu.Unlock()
	if err := waitFor(ctx, t.done); err != nil {
		return err
	}
	switch {
	case busy:
		return fail(http.StatusServiceUnavailable, fmt.Sprintf(checkpointErrors[op].busy, id))
	case t.err != nil:
		return fail(http.StatusInternalServerError, checkpointErrors[op].failed)
	}
	return nil
}

// checkpointLocked begins to copy a running sandbox, which then goes on. done gets
// nil where its node was busy.
func (s *Server) checkpointLocked(sb *sandbox, memory bool, done func(*build)) *transition {
	now := s.clock.Now()
	var image node.Image
	return s.beginLocked(sb, Snapshotting, func() (err error) {
		err = s.step(s.ctx, node.StepSnapshot, sb.id, func() (err error) {
			image, err = sb.machine.Snapshot(s.ctx)
			return err
		})
		if err == nil || errors.Is(err, node.ErrBusy) {
			return nil
		}
		s.lose(sb, "snapshot", err)
		return err
	}, func(err error) {
		if err != nil {
			delete(s.live, sb.id)
			delete(s.stored, sb.id)
			return
		}
		sb.state, sb.transition = Running, nil
		s.wakeEvictor() // its time may be over
		if image == nil {
			done(nil)
			return
		}
		s.storeLocked(sb, now, memory)
		done(&build{from: sb.settings, image: image})
	})
}

// saveLocked keeps a build under a name, which leads to no other then.
func (s *Server) saveLocked(team *Team, name templateName, b *build) snapshotView {
	b.tag = name.tag
	var t *saved
	if name.name != "" {
		t = s.findSavedLocked(team, name.name)
	}
	if t == nil {
		var random [20]byte
		_, _ = rand.Read(random[:]) // never fails
		t = &saved{
			Template: &Template{ID: randomText(random[:]), EnvdVersion: b.from.envd},
			team:     team, created: s.clock.Now(),
		}
		if name.name != "" {
			t.Aliases = []string{name.name}
		}
		s.saved = append(s.saved, t)
	}
	t.builds = slices.DeleteFunc(t.builds, func(old *build) bool {
		if old.tag == b.tag {
			s.discardBuildLocked(old)
		}
		return old.tag == b.tag
	})
	t.builds = append(t.builds, b)
	return t.view(b)
}

// discardBuildLocked removes what a build has kept, once nothing is being started
// from it. When the server is closed it is left to the node.
func (s *Server) discardBuildLocked(b *build) {
	b.gone = true
	if b.starts > 0 || s.closed {
		return
	}
	s.goLocked(func() {
		s.saveChanges() // before what it may still name is gone
		if err := b.image.Remove(); err != nil {
			s.log.ErrorContext(s.ctx, "removing a snapshot failed", "sandbox", b.from.id, "error", err)
		}
	})
}

func (s *Server) handleSnapshots(c *call) (*response, *Error) {
	limit, err := parseLimit(c.query)
	if err != nil {
		return nil, err
	}
	var name templateName
	if ref := c.query.Get("name"); ref != "" {
		var ok bool
		if name, ok = parseTemplateName(ref); !ok {
			return nil, fail(http.StatusBadRequest, "Invalid name: invalid template ID: "+ref)
		}
	}
	source := &call{rawID: c.query.Get("sandboxID")}
	if source.rawID != "" {
		if source.rawID, err = source.id(); err != nil {
			return nil, err
		}
	}
	after, err := parseAfter(c.query, false)
	if err != nil {
		return nil, err
	}
	items, nextToken := s.snapshots(c.team, source.rawID, name, after, limit)
	resp := &response{status: http.StatusOK, body: nonNil(items)}
	if nextToken != "" {
		resp.header = map[string]string{"X-Next-Token": nextToken}
	}
	return resp, nil
}

// snapshots returns a page of the team's snapshots and the token of the next page.
func (s *Server) snapshots(team *Team, source string, name templateName, after *cursor, limit int) (items []snapshotView, nextToken string) {
	type row struct {
		cursor
		view snapshotView
	}
	var rows []row
	s.mu.Lock()
	for _, t := range s.saved {
		if t.team != team || name.namespace != "" && name.namespace != team.Slug ||
			name.name != "" && t.ID != name.name && !slices.Contains(t.Aliases, name.name) {
			continue
		}
		if b := t.tagged(name.tag, source); b != nil {
			rows = append(rows, row{cursor{micros(t.created), t.ID}, t.view(b)})
		}
	}
	s.mu.Unlock()
	rows, nextToken = page(rows, func(r row) cursor { return r.cursor }, after, false, limit)
	for _, r := range rows {
		items = append(items, r.view)
	}
	return items, nextToken
}

// handleDeleteTemplate deletes a snapshot. The tag in its name does not count: the
// whole template goes.
func (s *Server) handleDeleteTemplate(c *call) (*response, *Error) {
	name, ok := parseTemplateName(c.rawID)
	if !ok {
		return nil, badTemplateRef(c.rawID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.deletableLocked(c.team, name)
	if err != nil {
		return nil, err
	}
	if state := s.usersLocked(t); state != "" {
		return nil, fail(http.StatusBadRequest, fmt.Sprintf("cannot delete template '%s' because there are %s sandboxes using it", t.ID, state))
	}
	s.saved = slices.DeleteFunc(s.saved, func(other *saved) bool { return other == t })
	for _, b := range t.builds {
		s.discardBuildLocked(b)
	}
	return &response{status: http.StatusNoContent}, nil
}

// deletableLocked finds a template of the team's own. Those of other teams are
// found by their ID and their full name.
func (s *Server) deletableLocked(team *Team, name templateName) (*saved, *Error) {
	if name.namespace == "" || name.namespace == team.Slug {
		if t := s.findSavedLocked(team, name.name); t != nil {
			return t, nil
		}
	}
	theirs := name.namespace == "" && s.findTemplate(name.name) != nil
	for _, t := range s.saved {
		theirs = theirs || t.team != team &&
			(name.namespace == "" && t.ID == name.name || name.namespace == t.team.Slug && slices.Contains(t.Aliases, name.name))
	}
	if theirs {
		return nil, fail(http.StatusForbidden, fmt.Sprintf("You don't have access to template '%s'", name.untagged()))
	}
	return nil, templateNotFound(name.untagged())
}

// usersLocked says in which state sandboxes are that were made from the template;
// "" if there are none.
func (s *Server) usersLocked(t *saved) string {
	for _, sb := range s.live {
		if sb.template == t.Template {
			return cmp.Or(views[sb.state].info, "running")
		}
	}
	for _, b := range t.builds {
		if b.starts > 0 {
			return "running"
		}
	}
	for _, snap := range s.stored {
		if snap.template == t.Template {
			return "paused"
		}
	}
	return ""
}
