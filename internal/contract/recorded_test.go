package contract

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// recordedDir holds the recorded exchanges of the control plane.
const recordedDir = "../../testdata/control-plane"

// An exchange is one recorded file.
type exchange struct {
	Request struct {
		To, Method, Path, Query string
		Headers                 map[string]string
	}
	Response struct {
		Status  int
		Headers map[string]string
		Body    json.RawMessage
	}
}

// readExchange reads the recorded exchange of that name.
func readExchange(t *testing.T, name string) *exchange {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(filepath.FromSlash(recordedDir), name+".json"))
	require.NoError(t, err)
	var e exchange
	require.NoError(t, json.Unmarshal(data, &e), name)
	return &e
}

// header returns the header of the recorded answer.
func (e *exchange) header() http.Header {
	h := http.Header{}
	for name, value := range e.Response.Headers {
		h.Set(name, value)
	}
	return h
}

// body returns the bytes of the recorded answer: JSON as it is, text without
// its JSON quotes, nothing for null.
func (e *exchange) body(t *testing.T) []byte {
	t.Helper()
	var text *string
	if string(e.Response.Body) == "null" || len(e.Response.Body) == 0 {
		return nil
	}
	if e.Response.Body[0] != '"' {
		return e.Response.Body
	}
	require.NoError(t, json.Unmarshal(e.Response.Body, &text))
	return []byte(*text)
}

// recordedDifferences are the ways in which the servers answer otherwise than
// the file says. The SDK and the emulator follow the servers.
var recordedDifferences = []difference{
	{"GET /health", "status 200", "the file has 204 only, the servers send a line of text"},
	{"GET /v2/sandboxes", "status 403", "a banned team is refused on every route"},
	{"POST /sandboxes", "status 403", "a blocked team may not create"},
	{"POST /sandboxes", "status 404", "an unknown template, tag or build"},
	{"POST /sandboxes", "status 429", "the quota of concurrent sandboxes"},
	{"POST /sandboxes/{sandboxID}/connect", "status 429", "the same quota, when a paused sandbox is resumed"},
	{"DELETE /sandboxes/{sandboxID}", "status 400", "a malformed ID"},
	{"POST /sandboxes/{sandboxID}/timeout", "status 400", "a body that breaks the schema, or the maximum length passed"},
	{"POST /sandboxes/{sandboxID}/timeout", "status 409", "the sandbox is changing state"},
	{"POST /sandboxes/{sandboxID}/refreshes", "status 400", "a duration above the maximum"},
	{"POST /sandboxes/{sandboxID}/refreshes", "status 429", "the rate limiter, which may act on any route"},
	{"PUT /sandboxes/{sandboxID}/network", "status 400", "rules that the servers refuse"},
	{"POST /sandboxes/{sandboxID}/snapshots", "status 409", "the sandbox is changing state"},
	{"POST /sandboxes/{sandboxID}/snapshots", "status 503", "the node is busy"},
	{"POST /sandboxes/{sandboxID}/fork", "status 400", "a count or a timeout out of range"},
	{"GET /snapshots", "status 400", "a broken page token"},
	{"DELETE /templates/{templateID}", "status 400", "a snapshot in use"},
	{"DELETE /templates/{templateID}", "status 403", "a snapshot of another team"},
	{"GET /volumes/{volumeID}", "status 400", "an ID that is not a UUID"},
}

// TestRecordedAnswers holds the recorded answers against the file, so that a
// change of either shows up.
func TestRecordedAnswers(t *testing.T) {
	s := responseSpec(t)
	files, err := filepath.Glob(filepath.Join(filepath.FromSlash(recordedDir), "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var found []violation
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		e := readExchange(t, name)
		if e.Request.To != "api" || strings.HasPrefix(name, "route-") {
			continue
		}
		target := e.Request.Path
		if e.Request.Query != "" {
			target += "?" + e.Request.Query
		}
		r := request(t, e.Request.Method, target, "")
		wrong := s.checkResponse(r, e.Response.Status, e.header(), e.body(t))
		for _, v := range wrong {
			t.Logf("%s: %s", name, v)
		}
		found = append(found, wrong...)
	}
	open, idle := unexplained(found, recordedDifferences)
	require.Empty(t, open, "answers that the file does not have")
	require.Empty(t, idle, "differences that no recorded answer needs any more")
}
