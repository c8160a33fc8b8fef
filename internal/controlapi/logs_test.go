package controlapi

import (
	"encoding/json"
	"net/http"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// FuzzLogs reads any answer of either route: entries or an error, and never more of
// one than was there.
func FuzzLogs(f *testing.F) {
	for _, s := range []string{
		`{"logs":[]}`, `{"logs":null}`, `{"logs":[{"timestamp":"2026-01-02T03:04:05Z","line":"a"}],"logEntries":[]}`,
		`{"logs":[],"logEntries":[{"timestamp":"","level":"info","message":"m","fields":{"a":"1","b":2,"c":[{}],"d":null}}]}`,
		`{"logs":[{"fields":{"a":"\ud800"}}]}`, `{"logs":[{"fields":[]}]}`, `[]`, `null`, `{`, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a := &answer{status: http.StatusOK, header: http.Header{}, body: b}
		entries, err := a.logs()
		if err != nil {
			require.Empty(t, entries)
			var o *OutcomeError
			require.ErrorAs(t, err, &o)
			return
		}
		for _, e := range entries {
			for name, value := range e.Fields {
				require.True(t, utf8.ValidString(name))
				if !utf8.ValidString(value) { // it stands as it came
					require.False(t, utf8.Valid(b))
				}
			}
			// What was read reads the same again.
			again, err := json.Marshal(e.Fields)
			require.NoError(t, err)
			var f LogFields
			require.NoError(t, json.Unmarshal(again, &f))
			require.Len(t, f, len(e.Fields))
		}
	})
}

// FuzzStamp reads the time of any metric.
func FuzzStamp(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"timestamp":"2026-01-02T03:04:05Z","timestampUnix":1767323045}`, `{"timestampUnix":null}`,
		`{"timestampUnix":9223372036854775807}`, `{"timestampUnix":-62135596800}`, `{"timestamp":7}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Stamp
		if json.Unmarshal(b, &s) != nil {
			return
		}
		if s.TimestampUnix != nil {
			require.Equal(t, *s.TimestampUnix, s.At().Unix())
			return
		}
		require.True(t, s.At().Equal(s.Timestamp.Time))
	})
}
