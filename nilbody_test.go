package e2b_test

import (
	"io"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

// A RoundTripper of the caller's, as one of a test, may leave out a body that is empty,
// or everything: http.Client takes that, and so do requests that go without one.
func TestAnswersWithoutBody(t *testing.T) {
	for _, resp := range []*http.Response{
		nil,
		{StatusCode: 200},
		{StatusCode: 204},
		{StatusCode: 404},
		{StatusCode: 502},
		{StatusCode: 200, Header: http.Header{"Content-Type": {"application/proto"}}},
		{StatusCode: 200, Header: http.Header{"Content-Type": {"application/connect+proto"}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeSandbox()
			rt := roundTrip(func(*http.Request) (*http.Response, error) {
				if resp == nil {
					return nil, nil //nolint:nilnil // that is the case
				}
				out := *resp
				return &out, nil
			})
			logger := slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelDebug}))
			sbx := f.handle(t, f.client(t, "http://fake.test", rt, noRetries, func(o *e2b.ClientOptions) { o.Logger = logger }))
			_, err := sbx.Kill(t.Context())
			require.Equal(t, resp != nil && resp.StatusCode < 300, err == nil)
			for _, call := range dataCalls {
				_ = call(t.Context(), sbx) // some succeed with an empty answer
			}
		})
	}
}
