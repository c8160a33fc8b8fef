package e2b

import (
	"context"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-09a7379d/e2b-go/internal/controlapi"
)

// A Volume is a directory that outlives sandboxes and that many of them can have at
// the same time: CreateOptions.Volumes mounts it. Client.VolumeFiles reads and
// writes its content without a sandbox, with Token.
//
// See https://e2b.dev/docs/volumes.
type Volume struct {
	ID   string
	Name string
	// Token is for the content of the volume, for an hour; zero in what Volumes
	// returns. Volume gets a fresh one.
	Token Token
	// Domain is where the content is served; "" where that is api. and the domain of
	// the client.
	Domain string
}

// LogValue returns v without its token: a handler of log/slog that writes JSON
// would show it.
func (v Volume) LogValue() slog.Value {
	return slog.GroupValue(slog.String("id", v.ID), slog.String("name", v.Name))
}

func volumeOf(v *controlapi.Volume) Volume {
	return Volume{ID: v.VolumeID, Name: v.Name, Token: NewToken(v.Token), Domain: v.Domain}
}

var (
	opCreateVolume = operation{name: "create volume", creates: "a volume"}
	opVolume       = operation{name: "get volume", notFound: ErrNotFound}
	opVolumes      = operation{name: "list volumes"}
	opDeleteVolume = operation{name: "delete volume", notFound: ErrNotFound}
)

// CreateVolume makes an empty volume. Its name has letters, digits, - and _, and is
// that of no other volume of the team.
//
// Errors: ErrInvalidArgument (also for a name that is taken), ErrUnauthenticated,
// ErrForbidden (the team may not use volumes), ErrServiceBusy, ErrNotSupported,
// ErrOutcomeUnknown: Volumes then tells whether it is there.
//
// See https://e2b.dev/docs/volumes.
func (c *Client) CreateVolume(ctx context.Context, name string) (*Volume, error) {
	if !validName(name, maxName) {
		return nil, invalid(opCreateVolume.name, "name", "must have letters, digits, - and _: %.80q", name)
	}
	v, err := c.api.CreateVolume(ctx, name)
	if err != nil {
		return nil, controlError(ctx, opCreateVolume, "", err)
	}
	out := volumeOf(v)
	return &out, nil
}

// Volumes returns all volumes of the team, without their tokens.
//
// Errors: ErrUnauthenticated, ErrForbidden, ErrNotSupported.
//
// See https://e2b.dev/docs/volumes.
func (c *Client) Volumes(ctx context.Context) ([]Volume, error) {
	list, err := c.api.Volumes(ctx)
	if err != nil {
		return nil, controlError(ctx, opVolumes, "", err)
	}
	out := make([]Volume, len(list))
	for i := range list {
		out[i] = volumeOf(&list[i])
	}
	return out, nil
}

// Volume returns the volume with that ID, not name, and a fresh token.
//
// Errors: ErrInvalidArgument, ErrNotFound, ErrUnauthenticated, ErrNotSupported.
//
// See https://e2b.dev/docs/volumes.
func (c *Client) Volume(ctx context.Context, id string) (*Volume, error) {
	if !validID(id) {
		return nil, invalid(opVolume.name, "volume ID", "must be 1 to 63 letters, digits, - or _: %.80q", id)
	}
	v, err := c.api.Volume(ctx, id)
	if err != nil {
		return nil, controlError(ctx, opVolume, "", err)
	}
	out := volumeOf(v)
	return &out, nil
}

// DeleteVolume deletes the volume with that ID, and all that is in it.
//
// Errors: ErrInvalidArgument, ErrNotFound, ErrUnauthenticated, ErrNotSupported.
//
// See https://e2b.dev/docs/volumes.
func (c *Client) DeleteVolume(ctx context.Context, id string) error {
	if !validID(id) {
		return invalid(opDeleteVolume.name, "volume ID", "must be 1 to 63 letters, digits, - or _: %.80q", id)
	}
	return controlError(ctx, opDeleteVolume, "", c.api.DeleteVolume(ctx, id))
}

// mountsOf turns volumes by path into what is sent, in the order of the paths.
func mountsOf(op string, volumes map[string]string) ([]controlapi.VolumeMount, error) {
	var out []controlapi.VolumeMount
	for _, at := range slices.Sorted(maps.Keys(volumes)) {
		switch name := volumes[at]; {
		case !path.IsAbs(at) || path.Clean(at) != at || at == "/":
			return nil, invalid(op, "Volumes", "have a path that is not an absolute and clean one below /: %.80q", at)
		case strings.Contains(at, "\x00") || !utf8.ValidString(at):
			return nil, invalid(op, "Volumes", "have a path that no file can have: %.80q", at)
		case !validName(name, maxName):
			return nil, invalid(op, "Volumes", "have a name that no volume can have, for %.80q: %.80q", at, name)
		default:
			out = append(out, controlapi.VolumeMount{Name: name, Path: at})
		}
	}
	return out, nil
}

// maxName is beyond any name that a server takes.
const maxName = 255

// validName reports whether s has 1 to limit letters, digits, - and _.
func validName(s string, limit int) bool {
	if s == "" || len(s) > limit {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}
