package controlapi

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// FuzzForks reads foreign answers to a fork: each has as many results as were
// asked for, and each of them is either a sandbox or an error.
func FuzzForks(f *testing.F) {
	for _, body := range []string{
		`[{"sandbox":{"sandboxID":"i1","envdVersion":"0.6.13"}},{"error":{"code":429,"message":"no"}}]`,
		`[]`, `[null]`, `[{}]`, `[1,"a",[],{"error":"no"}]`, `{}`, `null`, ``, `[{"sandbox":{}}`, `[{"error":{"code":"x"}}]`, `[{"error":{"code":1e99}}]`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c := newTestClient(t, answering(http.StatusCreated, string(body)))
		results, err := c.Fork(t.Context(), "i1", 2, 0)
		if err != nil {
			require.Nil(t, results)
			o, ok := errors.AsType[*OutcomeError](err)
			require.True(t, ok)
			require.True(t, o.Ambiguous)
			return
		}
		require.GreaterOrEqual(t, len(results), 2)
		for _, r := range results {
			require.NotEqual(t, r.Sandbox == nil, r.Err == nil)
			if r.Err == nil {
				continue
			}
			o, ok := errors.AsType[*OutcomeError](r.Err)
			require.True(t, ok)
			_, told := errors.AsType[*transport.StatusError](r.Err)
			require.NotEqual(t, told, o.Ambiguous, "only what the server says is certain")
		}
	})
}

// FuzzSnapshots reads foreign answers to a snapshot.
func FuzzSnapshots(f *testing.F) {
	for _, body := range []string{`{"snapshotID":"a:default","names":[]}`, `{"snapshotID":"","names":null}`, `{"snapshotID":7}`, `[]`, `null`, ``} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c := newTestClient(t, answering(http.StatusCreated, string(body)))
		s, err := c.Snapshot(t.Context(), "i1", NewSnapshot{})
		if err != nil {
			o, ok := errors.AsType[*OutcomeError](err)
			require.True(t, ok)
			require.True(t, o.Ambiguous)
			return
		}
		require.NotEmpty(t, s.SnapshotID)
	})
}
