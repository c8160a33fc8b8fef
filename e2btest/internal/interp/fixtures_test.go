//go:build unix

package interp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	fixtureDir  = "../../../testdata/code-interpreter"
	fixtureHome = "/home/user" // the working directory of the server that was recorded
)

// fixture is an exchange that was recorded from the real server.
type fixture struct {
	Request struct {
		Method string `json:"method"`
		Path   string `json:"path"`
		Body   any    `json:"body"`
	} `json:"request"`
	Response struct {
		Status  int               `json:"status"`
		Headers map[string]string `json:"headers"`
		Body    []string          `json:"body"`
	} `json:"response"`
	End string `json:"end"`
}

// different lists the recorded exchanges that are answered differently, and why.
// TestFixtures fails for a file that is here without need.
var different = map[string]struct {
	reason string
	module string // because this Python module need not be installed; if it is, the answer depends on its version
}{
	"20_dataframe.json":               {"", "pandas"},
	"21_dataframe_nan.json":           {"numbers that JSON lacks come as strings, too, but without the warning of a library", ""},
	"22_plot_default_size.json":       {"", "matplotlib"},
	"23_chart_line.json":              {"", "matplotlib"},
	"24_chart_line_datetime.json":     {"", "matplotlib"},
	"25_chart_line_categorical.json":  {"", "matplotlib"},
	"26_chart_line_log.json":          {"", "matplotlib"},
	"27_chart_line_nan.json":          {"", "matplotlib"},
	"28_chart_scatter.json":           {"", "matplotlib"},
	"29_chart_bar.json":               {"", "matplotlib"},
	"30_chart_bar_grouped.json":       {"", "matplotlib"},
	"32_chart_pie.json":               {"", "matplotlib"},
	"33_chart_box_and_whisker.json":   {"", "matplotlib"},
	"34_chart_superchart.json":        {"", "matplotlib"},
	"35_chart_unknown.json":           {"", "matplotlib"},
	"36_chart_empty_object.json":      {"", "matplotlib"},
	"37_jpeg_and_pdf.json":            {"needs Pillow; and base64 ends without a newline, as in IPython since", ""},
	"41_env_vars_quote_breaks.json":   {"the error is the same, in another file: variables are set without pasting code", ""},
	"45_flood_dropped.json":           {"no output is dropped", ""},
	"51_r_value.json":                 {"there are no R kernels", ""},
	"68_validation_missing_code.json": {"worded as by pydantic 2, which production has", ""},
	"69_validation_bad_json.json":     {"worded as by pydantic 2, which production has", ""},
}

// setup is code that an exchange relies on, but that was not recorded. It runs as
// the cell before.
var setup = map[string]string{"40_env_vars_gone_after.json": "import os"}

// The recorded requests are sent in the order in which they were recorded, since
// each builds on those before it. For the code in them, time runs ten times as fast.
func TestFixtures(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(fixtureDir, "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, names)
	slices.Sort(names)
	all := make(map[string]fixture)
	for i, path := range names {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		var f fixture
		require.NoError(t, json.Unmarshal(data, &f))
		names[i] = filepath.Base(path)
		all[names[i]] = f
	}
	for name := range different {
		require.Contains(t, names, name, "is listed, but there is no such file")
	}
	for name := range setup {
		require.Contains(t, names, name, "is listed, but there is no such file")
	}

	p := newPlayer(t, all)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			p.s.t = t
			if name == "87_server_killed_mid_stream.json" {
				p = newPlayer(t, all) // this one was recorded after a new start
			}
			if strings.Contains(name, "_js_") {
				needNode(t)
			}
			d, listed := different[name]
			if d.module != "" {
				d.reason = "needs " + d.module
				if exec.Command(python(t), "-c", "import "+d.module).Run() == nil {
					return
				}
			}
			want, got := p.play(name)
			if listed {
				require.NotEqual(t, want, got, "listed as different (%s), but is not", d.reason)
			} else {
				require.Equal(t, want, got)
			}
		})
	}
}

// player sends recorded requests and makes the answers comparable.
type player struct {
	ctx      context.Context // of requests, which may be longer than one exchange's test
	s        *service
	fixtures map[string]fixture
	ids      map[string]string // recorded context ID → ours
	early    map[string]*response
}

// newPlayer returns a player whose server lives as long as t.
func newPlayer(t *testing.T, fixtures map[string]fixture) *player {
	t.Helper()
	// A module that Python imports when it starts.
	fast := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(fast, "sitecustomize.py"), []byte(
		"import time\n_sleep = time.sleep\ntime.sleep = lambda seconds: _sleep(seconds / 10)\n"), 0o600))
	p := &player{
		ctx: t.Context(),
		s: newService(t, func(c *Config) {
			c.Environ = append(c.Environ, "PYTHONPATH="+fast)
			c.KeepAlive = 300 * time.Millisecond
			c.HangAfterCancel = true
		}),
		fixtures: fixtures,
		ids:      map[string]string{"nope": "nope"},
		early:    make(map[string]*response),
	}
	p.ids["1c6b9735-da2a-4cbb-8998-8b0b30b39c76"] = p.s.contexts()[0].ID // the default one
	return p
}

// answer is an answer in a form that can be compared.
type answer struct {
	status             int
	contentType, allow string
	text               string // unless it is a stream
	lines              []line
	end                string // of a stream
}

// play sends a recorded request and returns the recorded and the real answer.
func (p *player) play(name string) (want, got answer) {
	t := p.s.t
	f := p.fixtures[name]
	headers := f.Response.Headers
	want = answer{status: f.Response.Status, contentType: headers["content-type"], allow: headers["allow"]}
	if f.Request.Path != "/execute" || f.Response.Status != http.StatusOK {
		want.text = strings.Join(f.Response.Body, "\n")
		resp := p.send(name)
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		got = answer{
			status: resp.StatusCode, contentType: resp.Header.Get("Content-Type"), allow: resp.Header.Get("Allow"),
			text: string(body),
		}
		p.learn(&want, &got)
		return want, got
	}

	want.end = f.End
	for _, text := range f.Response.Body {
		want.lines = append(want.lines, decode[line](t, text))
	}
	p.catchUp(name, want.lines)
	r := p.early[name]
	if r == nil {
		resp := p.send(name)
		got.status, got.contentType = resp.StatusCode, resp.Header.Get("Content-Type")
		if resp.StatusCode != http.StatusOK {
			_ = resp.Body.Close()
			return want, got
		}
		r = newResponse(t, resp)
	}
	got.status = http.StatusOK
	limit := -1
	switch name {
	case "72_sleep_client_timeout.json":
		// Its client closes when the next request is already waiting, so that there
		// can be no doubt that it comes too early.
		l, err := r.next()
		require.NoError(t, err)
		got.lines = append(got.lines, l)
		next := "73_immediately_after_client_timeout_hangs.json"
		p.early[next] = newResponse(t, p.send(next))
		r.close()
		limit = 0
	case "73_immediately_after_client_timeout_hangs.json":
		limit = len(want.lines)
	case "75_queue_first.json":
		l, err := r.next()
		require.NoError(t, err)
		got.lines = append(got.lines, l)
		next := "76_queue_second.json"
		p.early[next] = newResponse(t, p.send(next))
	case "80_running_when_restarted.json", "87_server_killed_mid_stream.json":
		for range 2 {
			l, err := r.next()
			require.NoError(t, err)
			got.lines = append(got.lines, l)
		}
		if strings.HasPrefix(name, "87") {
			p.s.server.Close()
			break
		}
		status, _ := p.s.call(http.MethodPost, fmt.Sprintf("/contexts/%v/restart", p.selector(name)["context_id"]), nil)
		require.Equal(t, http.StatusOK, status)
	}
	for ; limit != 0; limit-- {
		l, err := r.next()
		if err != nil {
			got.end = map[error]string{io.EOF: "complete", errCut: "truncated"}[err]
			require.NotEmpty(t, got.end, "%v", err)
			break
		}
		got.lines = append(got.lines, l)
	}
	r.close()
	if limit == 0 {
		got.end = f.End // this client has closed, too
	}
	keepAlives := slices.ContainsFunc(want.lines, func(l line) bool { return l.kind() == "keepalive" })
	want.lines = p.comparable(want.lines, keepAlives)
	got.lines = p.comparable(got.lines, keepAlives)
	return want, got
}

func newResponse(tb testing.TB, resp *http.Response) *response {
	tb.Helper()
	require.Equal(tb, http.StatusOK, resp.StatusCode)
	return &response{t: tb, body: resp.Body, r: bufio.NewReader(resp.Body), cancel: func() {}}
}

// id returns our ID for a recorded one. A context whose creation was not recorded
// is created here.
func (p *player) id(recorded string) string {
	if p.ids[recorded] == "" {
		p.ids[recorded], _ = p.s.context()["context_id"].(string)
	}
	return p.ids[recorded]
}

var contextPath = regexp.MustCompile(`^/contexts/([^/]+)`)

// send sends a recorded request.
func (p *player) send(name string) *http.Response {
	request := p.fixtures[name].Request
	path := request.Path
	if m := contextPath.FindStringSubmatch(path); m != nil {
		path = strings.Replace(path, m[1], p.id(m[1]), 1)
	}
	body := request.Body // text if it is no JSON
	if members, ok := body.(map[string]any); ok {
		members = maps.Clone(members)
		maps.Copy(members, p.selector(name))
		body = members
	}
	return p.s.do(p.ctx, request.Method, path, body)
}

// selector returns the members of a request to /execute that select a context.
func (p *player) selector(name string) map[string]any {
	selector := make(map[string]any)
	if body, ok := p.fixtures[name].Request.Body.(map[string]any); ok {
		if id, ok := body["context_id"].(string); ok {
			selector["context_id"] = p.id(id)
		}
	}
	return selector
}

// catchUp runs cells until the execution count is the recorded one: not all
// executions were recorded.
func (p *player) catchUp(name string, lines []line) {
	body, _ := p.fixtures[name].Request.Body.(map[string]any)
	if len(lines) == 0 || lines[0].kind() != "number_of_executions" || body["language"] != nil || p.early[name] != nil {
		return
	}
	t, selector := p.s.t, p.selector(name)
	want, _ := lines[0]["execution_count"].(float64)
	if code := setup[name]; code != "" {
		require.Empty(t, p.s.run(code, selector).errors)
	}
	count := p.s.run("", selector).count
	for ; count < int(want); count++ {
		p.s.run("pass", selector)
	}
	require.Equal(t, int(want), count, "the execution count has gone on too far")
}

// learn replaces in answers about contexts what differs by nature.
func (p *player) learn(want, got *answer) {
	var recorded, ours contextInfo
	if json.Unmarshal([]byte(want.text), &recorded) == nil && json.Unmarshal([]byte(got.text), &ours) == nil && recorded.ID != "" {
		p.ids[recorded.ID] = ours.ID
	}
	for recorded, id := range p.ids {
		got.text = strings.ReplaceAll(got.text, id, recorded)
	}
	got.text = strings.ReplaceAll(got.text, p.s.dir, fixtureHome)
}

var warningOrigin = regexp.MustCompile(`(?m)^\S+\.py:\d+: `)

// comparable removes from lines what differs by nature, and joins pieces of output.
func (p *player) comparable(lines []line, keepAlives bool) []line {
	var all []line
	for _, l := range lines {
		last := line{}
		if len(all) > 0 {
			last = all[len(all)-1]
		}
		delete(l, "timestamp")
		switch kind := l.kind(); kind {
		case "stdout", "stderr":
			l["text"] = strings.ReplaceAll(warningOrigin.ReplaceAllString(l.text(), "FILE: "), p.s.dir, fixtureHome)
			if last.kind() == kind {
				last["text"] = last.text() + l.text()
				continue
			}
		case "keepalive":
			if !keepAlives || last.kind() == kind {
				continue
			}
		case "error":
			if l["traceback"] != "" {
				l["traceback"] = "some"
			}
		case "result":
			if text, ok := l["text"].(string); ok {
				l["text"] = strings.ReplaceAll(text, p.s.dir, fixtureHome)
			}
		}
		all = append(all, l)
	}
	return all
}
