package interp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// The response lines that the server itself writes. All others come from kernels.
var (
	keepAliveLine = []byte(`{"type": "keepalive"}` + "\n")
	endLine       = []byte(`{"type": "end_of_execution"}` + "\n")
	restartedLine = errorLine("ContextRestarting", "Context was restarted")
	lostLine      = errorLine("WebSocketError", "The connections was lost, rerun the code to get the results")
	cutLine       = errorLine("UnexpectedEndOfExecution",
		"Connection to the execution was closed before the execution was finished")
)

func errorLine(name, value string) []byte {
	return responseLine(struct {
		Type      string `json:"type"`
		Name      string `json:"name"`
		Value     string `json:"value"`
		Traceback string `json:"traceback"`
	}{"error", name, value, ""})
}

// outputLine is a line of type "stdout" or "stderr".
func outputLine(name, text string) []byte {
	return responseLine(struct {
		Type      string `json:"type"`
		Text      string `json:"text"`
		Timestamp string `json:"timestamp"`
	}{name, text, time.Now().UTC().Format("2006-01-02T15:04:05.000000+00:00")})
}

func responseLine(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("interp: a struct of strings has no JSON: %v", err)) // cannot happen
	}
	return append(asciiJSON(data), '\n')
}

// asciiJSON replaces the characters outside ASCII in a JSON text by escapes, as
// the real service does, so that no chunk boundary can split one.
func asciiJSON(data []byte) []byte {
	if bytes.IndexFunc(data, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 {
		return data
	}
	var out []byte
	for _, r := range string(data) {
		switch {
		case r < utf8.RuneSelf:
			out = append(out, byte(r))
		case r < 0x10000:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		}
	}
	return out
}
