package e2b_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

// A sandbox that was made and cannot be used is named, so that it can be killed: with
// NoToken nothing else tells of it.
func TestUnusableSandboxIsNamed(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"sandboxID":"imade","envdVersion":"0.6.13","domain":"a b"}`,
		`{"sandboxID":"imade","envdVersion":"0.6.13","envdAccessToken":"a\nb"}`,
		`{"sandboxID":"imade","envdVersion":"0.6.13","trafficAccessToken":"a\nb"}`,
	} {
		_, err := newFakeAPI(t, answerJSON(201, body)).client(t).Create(t.Context(), &e2b.CreateOptions{NoToken: true})
		requireKinds(t, err, e2b.ErrOutcomeUnknown)
		require.ErrorContains(t, err, "imade")

		results, err := newFakeAPI(t, answerJSON(201, `[{"sandbox":`+body+`}]`)).client(t).Fork(t.Context(), "iparent", nil)
		require.NoError(t, err)
		requireKinds(t, results[0].Err, e2b.ErrOutcomeUnknown)
		require.ErrorContains(t, results[0].Err, "imade")
	}
}

// A volume without an ID could be neither used nor deleted.
func TestCreatedVolumeWithoutID(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{}`, `{"name":"v"}`} {
		v, err := newFakeAPI(t, answerJSON(201, body)).client(t).CreateVolume(t.Context(), "v")
		requireKinds(t, err, e2b.ErrOutcomeUnknown)
		require.Nil(t, v)
	}
}
