package control

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// A volume is a directory for sandboxes. The node has its files.
type volume struct {
	team     *Team
	id, name string
}

// A volumeMount says where in a sandbox a volume is.
type volumeMount struct {
	Name string `json:"name"`
	Path string `json:"path"`

	id string // of the volume that had the name when the sandbox was created
}

type volumeView struct {
	Name     string `json:"name"`
	Token    string `json:"token,omitempty"`
	VolumeID string `json:"volumeID"`
}

var (
	volumeName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	uuid       = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
)

// newUUID makes a random one.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// volumeTokenLife is how long a token of a volume is good.
const volumeTokenLife = time.Hour

// viewOfVolume has a fresh token, which leads nowhere: nothing serves the content.
func (s *Server) viewOfVolume(v *volume) volumeView {
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	now := s.clock.Now()
	claims := fmt.Sprintf(`{"aud":"https://api.e2b.app","sub":"%s","iat":%d,"exp":%d}`, v.id, now.Unix(), now.Add(volumeTokenLife).Unix())
	signed := part(`{"alg":"HS256"}`) + "." + part(claims)
	return volumeView{Name: v.name, Token: signed + "." + part(s.token("volume", signed)), VolumeID: v.id}
}

func (s *Server) handleVolumes(c *call) (*response, *Error) {
	list := []volumeView{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.volumes {
		if v.team == c.team {
			list = append(list, volumeView{Name: v.name, VolumeID: v.id})
		}
	}
	return &response{status: http.StatusOK, body: list}, nil
}

func (s *Server) handleCreateVolume(c *call) (*response, *Error) {
	var body volumeMount
	if err := decode(c.body, &body); err != nil {
		return nil, err
	}
	if !volumeName.MatchString(body.Name) {
		return nil, fail(http.StatusBadRequest, "Invalid volume name")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.volumeLocked(c.team, body.Name) != nil {
		return nil, fail(http.StatusBadRequest, fmt.Sprintf("Volume with name '%s' already exists", body.Name))
	}
	v := &volume{team: c.team, id: newUUID(), name: body.Name}
	s.volumes = append(s.volumes, v)
	return &response{status: http.StatusCreated, body: s.viewOfVolume(v)}, nil
}

// volumeLocked returns the team's volume of that name, or nil.
func (s *Server) volumeLocked(team *Team, name string) *volume {
	i := slices.IndexFunc(s.volumes, func(v *volume) bool { return v.team == team && v.name == name })
	if i < 0 {
		return nil
	}
	return s.volumes[i]
}

// findVolumeLocked returns the place of the volume that a request names by its ID.
func (s *Server) findVolumeLocked(c *call) (int, *Error) {
	if !uuid.MatchString(c.rawID) {
		return 0, fail(http.StatusBadRequest, "Invalid volume ID")
	}
	i := slices.IndexFunc(s.volumes, func(v *volume) bool { return v.team == c.team && v.id == strings.ToLower(c.rawID) })
	if i < 0 {
		return 0, fail(http.StatusNotFound, "Volume not found")
	}
	return i, nil
}

func (s *Server) handleVolume(c *call) (*response, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, err := s.findVolumeLocked(c)
	if err != nil {
		return nil, err
	}
	return &response{status: http.StatusOK, body: s.viewOfVolume(s.volumes[i])}, nil
}

// handleDeleteVolume lets the sandboxes go on that have the volume. To remove its files
// may take long, and is waited for without the lock.
func (s *Server) handleDeleteVolume(c *call) (*response, *Error) {
	s.mu.Lock()
	i, err := s.findVolumeLocked(c)
	if err == nil && s.closed {
		err = errClosed
	}
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	id := s.volumes[i].id
	s.volumes = slices.Delete(s.volumes, i, i+1)
	removed := make(chan struct{})
	s.goLocked(func() {
		defer close(removed)
		s.saveChanges() // before what it may still name is gone
		if n, ok := s.node.(node.VolumeRemover); ok {
			if err := n.RemoveVolume(id); err != nil {
				s.log.ErrorContext(s.ctx, "removing the files of a volume failed", "volume", id, "error", err)
			}
		}
	})
	s.mu.Unlock()
	return noContent(waitFor(c.ctx, removed))
}

// mounts are the volumes as the node is told of them.
func (c *settings) mounts() []node.Volume {
	var out []node.Volume
	for _, m := range c.volumes {
		out = append(out, node.Volume{ID: m.id, Path: m.Path})
	}
	return out
}

// checkMounts finds the volumes, and refuses those that a sandbox cannot have. Only
// what it says of unknown ones is E2B's wording for certain.
func (s *Server) checkMounts(team *Team, mounts []volumeMount) *Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var message strings.Builder
	seen := make(map[string]bool)
	for i, m := range mounts {
		wrong := ""
		v := s.volumeLocked(team, m.Name)
		switch {
		case v == nil:
			wrong = fmt.Sprintf("volume '%s' not found", m.Name)
		case !path.IsAbs(m.Path) || path.Clean(m.Path) != m.Path || m.Path == "/":
			wrong = fmt.Sprintf("path '%s' is not absolute and clean", m.Path)
		case seen[m.Path]:
			wrong = fmt.Sprintf("path '%s' is used twice", m.Path)
		default:
			mounts[i].id = v.id
		}
		if seen[m.Path] = true; wrong != "" {
			fmt.Fprintf(&message, "\n\t- volume mount #%d: %s", i, wrong)
		}
	}
	if message.Len() > 0 {
		return fail(http.StatusBadRequest, "invalid mounts:"+message.String())
	}
	return nil
}
