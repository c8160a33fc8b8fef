package interpreter

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
)

// The types of line that matter to a client. Others are ignored.
const (
	TypeCount     = "number_of_executions"
	TypeStdout    = "stdout"
	TypeStderr    = "stderr"
	TypeResult    = "result"
	TypeError     = "error"
	TypeKeepalive = "keepalive"
	TypeEnd       = "end_of_execution"
)

// A Line is one line of an answer.
type Line struct {
	Size int `json:"-"` // of the line

	Type      string `json:"type"`
	Text      string `json:"text"`
	Count     int    `json:"execution_count"`
	Main      bool   `json:"is_main_result"`
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"`

	HTML       Text                       `json:"html"`
	Markdown   Text                       `json:"markdown"`
	SVG        Text                       `json:"svg"`
	LaTeX      Text                       `json:"latex"`
	JavaScript Text                       `json:"javascript"`
	PNG        Binary                     `json:"png"`
	JPEG       Binary                     `json:"jpeg"`
	PDF        Binary                     `json:"pdf"`
	JSON       json.RawMessage            `json:"json"`
	Data       json.RawMessage            `json:"data"`
	Chart      json.RawMessage            `json:"chart"`
	Extra      map[string]json.RawMessage `json:"extra"`
}

// Text is a field that holds text.
type Text struct {
	Text string
	Odd  json.RawMessage // what the field holds instead
}

// UnmarshalJSON reads the field. It never fails.
func (t *Text) UnmarshalJSON(raw []byte) error {
	if raw[0] != '"' || json.Unmarshal(raw, &t.Text) != nil {
		t.Odd = odd(raw)
	}
	return nil
}

// Binary is a field that holds bytes, as base64.
type Binary struct {
	Bytes []byte
	Odd   json.RawMessage // what the field holds instead
}

// UnmarshalJSON reads the field. It never fails.
func (b *Binary) UnmarshalJSON(raw []byte) error {
	if raw[0] != '"' {
		b.Odd = odd(raw)
		return nil
	}
	// Nothing in base64 needs an escape but the newlines that may follow it, so it
	// is decoded in place: a picture can have 20 MB.
	body := raw[1 : len(raw)-1]
	for bytes.HasSuffix(body, []byte(`\n`)) {
		body = body[:len(body)-2]
	}
	if bytes.IndexByte(body, '\\') < 0 {
		out := make([]byte, base64.StdEncoding.DecodedLen(len(body)))
		if n, err := base64.StdEncoding.Decode(out, body); err == nil {
			b.Bytes = out[:n]
			return nil
		}
	} else if json.Unmarshal(raw, &b.Bytes) == nil { // skips the newlines between
		return nil
	}
	b.Bytes, b.Odd = nil, odd(raw)
	return nil
}

func odd(raw []byte) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return bytes.Clone(raw)
}
