package e2b_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

const (
	testVolume  = "00000000-0000-4000-8000-000000000001"
	volumeToken = "eyJhbGciOiJIUzI1NiJ9.e30.c2lnbmF0dXJl" // the recorded one
	volumeBody  = `{"volumeID":"` + testVolume + `","name":"rigvol","token":"` + volumeToken + `"}`
)

var (
	createVolumeOp = controlOp{"create volume", "", answerJSON(201, volumeBody), func(ctx context.Context, c *e2b.Client) error {
		_, err := c.CreateVolume(ctx, "rigvol")
		return err
	}}
	volumeOp = controlOp{"get volume", "", answerJSON(200, volumeBody), func(ctx context.Context, c *e2b.Client) error {
		_, err := c.Volume(ctx, testVolume)
		return err
	}}
	volumesOp = controlOp{"list volumes", "", answerJSON(200, "[]"), func(ctx context.Context, c *e2b.Client) error {
		_, err := c.Volumes(ctx)
		return err
	}}
	deleteVolumeOp = controlOp{"delete volume", "", answerText(204, ""), func(ctx context.Context, c *e2b.Client) error {
		return c.DeleteVolume(ctx, testVolume)
	}}
)

// A volumeView is a volume with its token to see.
type volumeView struct{ ID, Name, Token, Domain string }

func viewOfVolume(v *e2b.Volume, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return volumeView{v.ID, v.Name, v.Token.Reveal(), v.Domain}, nil
}

// volumeCalls are the recorded exchanges about volumes.
func volumeCalls() []recordedCall {
	rigvol := volumeView{ID: testVolume, Name: "rigvol", Token: volumeToken}
	creating := func(file string, want any) recordedCall {
		return recordedCall{
			file: file, op: "create volume", sent: []wantRequest{{method: http.MethodPost, path: "/volumes", body: `{"name":"rigvol"}`}}, want: want,
			call: func(ctx context.Context, c *e2b.Client) (any, error) {
				return viewOfVolume(c.CreateVolume(ctx, "rigvol"))
			},
		}
	}
	asking := func(file, id string, want any) recordedCall {
		return recordedCall{
			file: file, op: "get volume", sent: []wantRequest{getting("/volumes/" + id)}, want: want,
			call: func(ctx context.Context, c *e2b.Client) (any, error) { return viewOfVolume(c.Volume(ctx, id)) },
		}
	}
	return []recordedCall{
		creating("volume-create-201", rigvol),
		creating("volume-create-duplicate-400", badRequest("Volume with name 'rigvol' already exists")),
		asking("volume-get", testVolume, rigvol),
		asking("volume-get-bad-id-400", "nope", badRequest("Invalid volume ID")),
		asking("volume-get-unknown-404", testVolume, failsWith(404, "Volume not found", e2b.ErrNotFound)),
		{
			file: "volume-list", op: "list volumes", sent: []wantRequest{getting("/volumes")}, want: []e2b.Volume{{ID: testVolume, Name: "rigvol"}},
			call: func(ctx context.Context, c *e2b.Client) (any, error) { return c.Volumes(ctx) },
		},
		{
			file: "volume-delete-204", op: "delete volume", sent: []wantRequest{{method: http.MethodDelete, path: "/volumes/" + testVolume}},
			call: func(ctx context.Context, c *e2b.Client) (any, error) { return nil, c.DeleteVolume(ctx, testVolume) },
		},
	}
}

// TestVolumeErrors that were not recorded.
func TestVolumeErrors(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		op     controlOp
		status int
		body   string
		kind   error
	}{
		{createVolumeOp, 403, `{"code":403,"message":"use of volumes is not enabled"}`, e2b.ErrForbidden},
		{createVolumeOp, 501, `{"code":501,"message":"no tokens"}`, e2b.ErrNotSupported},
		{createVolumeOp, 503, `{"code":503,"message":"Cluster not found"}`, e2b.ErrServiceBusy},
		{createVolumeOp, 404, routeMissing, e2b.ErrNotSupported},
		{volumesOp, 404, routeMissing, e2b.ErrNotSupported},
		{volumeOp, 404, routeMissing, e2b.ErrNotSupported},
		{deleteVolumeOp, 404, routeMissing, e2b.ErrNotSupported},
		{deleteVolumeOp, 404, `{"code":404,"message":"Volume not found"}`, e2b.ErrNotFound},
	} {
		err := row.op.call(t.Context(), newFakeAPI(t, answerJSON(row.status, row.body)).client(t, noRetries))
		requireKinds(t, err, row.kind)
	}
}

// TestVolumeOutcomes are those of calls whose answer was lost.
func TestVolumeOutcomes(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]apiAnswer{
		"lost": answerError(errConnectionLost), "cut": answerCut(201, `{"volumeID":`), "no volume": answerJSON(201, `[]`),
	} {
		_, err := newFakeAPI(t, answer).client(t).CreateVolume(t.Context(), "rigvol")
		requireKinds(t, err, e2b.ErrOutcomeUnknown)
		require.ErrorContains(t, err, "a volume may have been created", name)
		requireNoSecret(t, err, apiTestKey)
	}
	api := newFakeAPI(t, answerError(errConnectionLost), answerJSON(404, `{"code":404,"message":"Volume not found"}`))
	require.NoError(t, api.client(t).DeleteVolume(t.Context(), testVolume), "the first attempt did it")
	require.Len(t, api.requests(), 2)
}

// TestVolumeTokenIsNotPrinted by any verb, nor told of an answer that is broken.
func TestVolumeTokenIsNotPrinted(t *testing.T) {
	t.Parallel()
	v, err := newFakeAPI(t, answerJSON(200, volumeBody)).client(t).Volume(t.Context(), testVolume)
	require.NoError(t, err)
	require.Equal(t, volumeToken, v.Token.Reveal())
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		require.NotContains(t, fmt.Sprintf(verb, *v), volumeToken)
		require.NotContains(t, fmt.Sprintf(verb, v), volumeToken)
	}
	_, err = newFakeAPI(t, answerJSON(200, strings.Replace(volumeBody, `"rigvol"`, "7", 1))).client(t).Volume(t.Context(), testVolume)
	requireKinds(t, err)
	requireNoSecret(t, err, volumeToken)
}

// TestBadVolumes are refused before a request.
func TestBadVolumes(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	c := api.client(t)
	for _, name := range []string{"", "a b", "a/b", "..", "ü", "a\x00", strings.Repeat("a", 256)} {
		_, err := c.CreateVolume(t.Context(), name)
		requireRefused(t, api, err)
		_, err = c.Volume(t.Context(), name)
		requireRefused(t, api, err)
		requireRefused(t, api, c.DeleteVolume(t.Context(), name))
		_, err = c.Create(t.Context(), &e2b.CreateOptions{Volumes: map[string]string{"/mnt": name}})
		requireRefused(t, api, err)
	}
	for _, path := range []string{"", "mnt", "/", "//mnt", "/mnt/", "/mnt/../x", "/mnt/./x", "/mnt//x", "~/x", "/a\x00", "/\xff"} {
		_, err := c.Create(t.Context(), &e2b.CreateOptions{Volumes: map[string]string{path: "a"}})
		requireRefused(t, api, err)
		require.ErrorContains(t, err, "Volumes")
	}
}

// TestVolumesThatCannotBeRead are errors, and never nothing.
func TestVolumesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		op   controlOp
		body string
	}{{volumesOp, `null`}, {volumesOp, `{}`}, {volumesOp, `[1]`}, {volumeOp, `null`}, {volumeOp, `[]`}} {
		err := row.op.call(t.Context(), newFakeAPI(t, answerJSON(200, row.body)).client(t))
		requireKinds(t, err)
		require.Equal(t, 200, requireAPIError(t, err).StatusCode)
	}
}
