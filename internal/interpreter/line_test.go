package interpreter

import (
	"encoding/base64"
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A field of a result is decoded once, and what is not of its kind is kept.
func TestFieldsOfResult(t *testing.T) {
	const picture = "\x89PNG\r\n\x1a\n\x00\xff and some more, so that it has lines"
	b64 := base64.StdEncoding.EncodeToString([]byte(picture))
	half := len(b64) / 2
	for name, tt := range map[string]struct {
		raw   string
		bytes string
		odd   string
	}{
		"plain":               {`"` + b64 + `"`, picture, ""},
		"newline behind":      {`"` + b64 + `\n"`, picture, ""},
		"newlines behind":     {`"` + b64 + `\n\n"`, picture, ""},
		"newline between":     {`"` + b64[:half] + `\n` + b64[half:] + `\n"`, picture, ""},
		"CRLF between":        {`"` + b64[:half] + `\r\n` + b64[half:] + `"`, picture, ""},
		"escaped":             {`"\u0041A=="`, "\x00", ""},
		"slash escaped":       {`"\/\/\/\/"`, "\xff\xff\xff", ""},
		"empty":               {`""`, "", ""},
		"null":                {`null`, "", ""},
		"no padding":          {`"QQ"`, "", `"QQ"`},
		"no base64":           {`"<png>"`, "", `"<png>"`},
		"backslash":           {`"QQ==\\n"`, "", `"QQ==\\n"`},
		"escaped, no base64":  {`"Q\u00e9=="`, "", `"Q\u00e9=="`},
		"a number":            {`5`, "", `5`},
		"numbers of bytes":    {`[1,2]`, "", `[1,2]`},
		"an object":           {`{"a":1}`, "", `{"a":1}`},
		"true":                {`true`, "", `true`},
		"good, then rubbish":  {`"` + b64 + `!"`, "", `"` + b64 + `!"`},
		"lines, then rubbish": {`"` + b64[:half] + `\n` + b64[half:] + `!"`, "", `"` + b64[:half] + `\n` + b64[half:] + `!"`},
	} {
		t.Run(name, func(t *testing.T) {
			var l Line
			require.NoError(t, json.Unmarshal([]byte(`{"png":`+tt.raw+`,"text":"behind"}`), &l))
			require.Equal(t, tt.bytes, string(l.PNG.Bytes))
			require.Equal(t, tt.odd, string(l.PNG.Odd))
			require.Equal(t, "behind", l.Text, "the rest of the line is read")
		})
	}
	for raw, want := range map[string]Text{
		`"a\u00e9\n"`: {Text: "aé\n"}, `null`: {}, `""`: {}, `5`: {Odd: json.RawMessage("5")}, `["x"]`: {Odd: json.RawMessage(`["x"]`)},
	} {
		var l Line
		require.NoError(t, json.Unmarshal([]byte(`{"html":`+raw+`,"text":"behind"}`), &l))
		require.Equal(t, want, l.HTML)
		require.Equal(t, "behind", l.Text)
	}
}

// A picture costs the room of its bytes, not that of several copies.
func TestPictureIsDecodedOnce(t *testing.T) {
	const size = 6 << 20
	for _, end := range []string{``, `\n`} {
		line := []byte(`{"type":"result","png":"` + strings.Repeat("A", size) + end + `"}`)
		var l Line
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := json.Unmarshal(line, &l)
		runtime.ReadMemStats(&after)
		require.NoError(t, err)
		require.Len(t, l.PNG.Bytes, size/4*3)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(size))
	}
}
