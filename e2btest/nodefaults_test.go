package e2btest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ask sends a request to the API and puts the answer into words: its status, and for
// an error the message, where ID stands for id, and the code.
func (s *Server) ask(t *testing.T, method, path, body, id string) string {
	t.Helper()
	status, text := s.send(t, newClient(t, false), method, s.APIURL()+path, body)
	if status < 300 {
		return fmt.Sprint(status)
	}
	var answer struct {
		Message string
		Code    string `json:"error_code"`
	}
	require.NoError(t, json.Unmarshal([]byte(text), &answer))
	words := fmt.Sprintf("%d %s %s", status, strings.ReplaceAll(answer.Message, id, "ID"), answer.Code)
	return strings.TrimSpace(words)
}

func (s *Server) stateOf(id string) string {
	for _, sb := range s.Sandboxes() {
		if sb.ID == id {
			return sb.State
		}
	}
	return ""
}

// placements are what a start and a resume can fail with.
var placements = map[NodeError]string{
	NodeFailed: "500 Failed to place sandbox: sandbox creation failed on 1 node(s), please retry; " +
		"if the problem persists, contact us sandbox_create_failed",
	NodeFull: "503 Failed to place sandbox: not enough capacity for the requested resources right now, " +
		"please retry shortly sandbox_capacity_unavailable",
	NodeIncompatible: "503 Failed to place sandbox: no compatible node for this template's requirements sandbox_no_compatible_node",
	NodeTimeout:      "504 Failed to place sandbox: placement timed out after 1 attempt(s), please retry sandbox_placement_timeout",
	NodeRefused:      "500 Failed to place sandbox: too old sandbox_create_failed",
}

func TestPlacesThatAreNotFound(t *testing.T) {
	for failure, want := range placements {
		s, m := inMemory(t, Options{})
		f := Fault{Error: failure, Times: 1}
		if failure == NodeRefused {
			f.Body = "too old"
		}
		f.Node = NodeStart
		s.Inject(f)
		create := func() string { return s.ask(t, "POST", "/sandboxes", `{"templateID":"base","timeout":600}`, "?") }
		require.Equal(t, want, create())
		require.Empty(t, s.Sandboxes())
		require.Zero(t, m.Alive())
		require.Equal(t, "201", create())

		id := s.Sandboxes()[0].ID
		path := "/sandboxes/" + id
		require.Equal(t, "204", s.ask(t, "POST", path+"/pause", "", id))
		f.Node, f.Sandbox = NodeResume, id
		s.Inject(f)
		require.Equal(t, want, s.ask(t, "POST", path+"/connect", `{"timeout":60}`, id))
		require.Equal(t, "paused", s.stateOf(id))
		require.Equal(t, "201", s.ask(t, "POST", path+"/connect", `{"timeout":60}`, id))
	}
	require.Len(t, placements, len(nodeErrors[NodeStart]))
	require.Len(t, placements, len(nodeErrors[NodeResume]))
}

func TestForksWithoutAPlace(t *testing.T) {
	s, _ := inMemory(t, Options{})
	id := s.create(t, newClient(t, false))
	s.Inject(Fault{Node: NodeStart, Error: NodeFull, Skip: 1, Times: 2})
	status, body := s.send(t, newClient(t, false), "POST", s.APIURL()+"/sandboxes/"+id+"/fork", `{"count":3}`)
	require.Equal(t, 201, status)
	require.Equal(t, 2, strings.Count(body, `{"error":{"code":503,"message":"Failed to place sandbox: not enough capacity`), body)
	require.Equal(t, 1, strings.Count(body, `{"sandbox":`), body)
}

func TestPausesAndSnapshotsThatFail(t *testing.T) {
	s, m := inMemory(t, Options{})
	c := newClient(t, false)
	for _, test := range []struct {
		fault       Fault
		route, want string
		state       string
	}{
		{Fault{Node: NodePause, Error: NodeFailed}, "pause", "500 Error pausing sandbox", "gone"},
		{Fault{Node: NodeSnapshot, Error: NodeFailed}, "snapshots", "500 Error creating snapshot template", "gone"},
		{Fault{Node: NodeSnapshot, Error: NodeFailed}, "fork", "500 Error forking sandbox", "gone"},
		{
			Fault{Node: NodeSnapshot, Error: NodeBusy},
			"snapshots",
			"503 Sandbox 'ID' cannot be snapshotted right now because its node is busy, please retry", "running",
		},
		{
			Fault{Node: NodeSnapshot, Error: NodeBusy},
			"fork",
			"503 Sandbox 'ID' cannot be forked right now because its node is busy, please retry", "running",
		},
	} {
		id, other := s.create(t, c), s.create(t, c)
		test.fault.Sandbox = id
		remove := s.Inject(test.fault)
		require.Equal(t, test.want, s.ask(t, "POST", "/sandboxes/"+id+"/"+test.route, "{}", id))
		require.Equal(t, test.state, s.stateOf(id))
		require.Equal(t, map[string]string{"gone": "killed", "running": "running"}[test.state], m.Sandbox(id).State())
		status := s.ask(t, "POST", "/sandboxes/"+other+"/"+test.route, "{}", other)
		require.Contains(t, []string{"201", "204"}, status, "a fault of another sandbox")
		require.Equal(t, []InjectedFault{{test.fault, 1, 1}}, s.Faults())
		remove()
	}
}

func TestTimeoutsThatFailToPause(t *testing.T) {
	s, m := inMemory(t, Options{Faults: []Fault{{Node: NodePause, Error: NodeFailed}}})
	require.Equal(t, "201", s.ask(t, "POST", "/sandboxes", `{"templateID":"base","timeout":60,"autoPause":true}`, "?"))
	s.Advance(time.Minute)
	require.Equal(t, "gone", s.Sandboxes()[0].State)
	require.Zero(t, m.Alive())
}

func TestSlowSteps(t *testing.T) {
	s, _ := inMemory(t, Options{})
	c := newClient(t, false)
	id := s.create(t, c)
	s.Inject(Fault{Node: NodePause, DelayBefore: time.Millisecond, DelayAfter: time.Millisecond}, Fault{Node: NodePause, DelayBefore: time.Hour, Skip: 1})
	path := "/sandboxes/" + id
	require.Equal(t, "204", s.ask(t, "POST", path+"/pause", "", id))
	require.Equal(t, "201", s.ask(t, "POST", path+"/connect", `{"timeout":60}`, id))
	answered := s.background(t.Context(), t, path+"/pause", "")
	require.Eventually(t, func() bool { return s.stateOf(id) == "pausing" }, 20*time.Second, time.Millisecond)
	require.Equal(t, `409 Sandbox "ID" is being paused`, s.ask(t, "POST", path+"/timeout", `{"timeout":60}`, id))
	require.Equal(t, 2, s.Faults()[0].Fired)
	require.NoError(t, s.Close(), "it ends the delay")
	<-answered
}

// A sandbox that has started when nobody waits for it any more is ended.
func TestStartThatIsAnsweredTooLate(t *testing.T) {
	s, m := inMemory(t, Options{Faults: []Fault{{Node: NodeStart, DelayAfter: time.Hour}}})
	ctx, cancel := context.WithCancel(t.Context())
	answered := s.background(ctx, t, "/sandboxes", `{"templateID":"base"}`)
	require.Eventually(t, func() bool { return m.Alive() == 1 }, 20*time.Second, time.Millisecond)
	cancel()
	<-answered
	require.Eventually(t, func() bool { return m.Alive() == 0 }, 20*time.Second, time.Millisecond)
	require.Empty(t, s.Sandboxes())
}

// background posts a request whose answer does not matter, and says when it is over.
func (s *Server) background(ctx context.Context, t *testing.T, path, body string) <-chan struct{} {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.APIURL()+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("X-API-Key", s.APIKey())
	req.Header.Set("Content-Type", "application/json")
	c, answered := newClient(t, false), make(chan struct{})
	go func() {
		defer close(answered)
		if resp, err := c.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
	return answered
}

func TestFaultsOfTheNodeAreData(t *testing.T) {
	for _, f := range []Fault{
		{Node: NodeStart, Error: NodeFull, Skip: 5},
		{Node: NodeResume, Error: NodeRefused, Body: "too old", Sandbox: "i1", DelayBefore: time.Second},
		{Node: NodePause, DelayAfter: time.Second, Times: 1},
		{To: ToAPI, Cut: CutConnect, Times: 3},
	} {
		var again Fault
		require.NoError(t, json.Unmarshal([]byte(f.String()), &again))
		require.Equal(t, f, again)
	}
	require.Equal(t, `{"times":1,"node":"snapshot","error":"busy"}`, Fault{Node: NodeSnapshot, Error: NodeBusy, Times: 1}.String())
}

func TestFaultsOfNodeAndConnectionThatMakeNoSense(t *testing.T) {
	for want, f := range map[string]Fault{
		"its To is neither api nor sandboxes":            {To: "x", Status: 500},
		"CutConnect goes with":                           {Cut: CutConnect, Sandbox: "i1"},
		"Error needs a Node":                             {Error: NodeFailed},
		"a node has no step walk":                        {Node: "walk", Error: NodeFailed},
		"the step pause does not fail with busy":         {Node: NodePause, Error: NodeBusy},
		"Node goes with Error":                           {Node: NodePause, Error: NodeFailed, Path: "/x"},
		"DelayAfter needs a step that does not fail":     {Node: NodePause, Error: NodeFailed, DelayAfter: 1},
		"NodeRefused needs a Body":                       {Node: NodeStart, Error: NodeRefused},
		"and no other fault of a node has one":           {Node: NodeStart, Error: NodeFull, Body: "x"},
		"nobody knows the ID of a sandbox before it":     {Node: NodeStart, Error: NodeFull, Sandbox: "i1"},
		"fault: it does nothing":                         {Node: NodePause, Times: 1},
		"fault: a number or a delay in it is below zero": {Node: NodePause, Error: NodeFailed, Skip: -1},
	} {
		require.ErrorContains(t, f.check(), want)
	}
}

func TestConnectionsThatComeToNothing(t *testing.T) {
	s, _ := inMemory(t, Options{})
	client := clientFor(t, s, s.APIKey())
	sbx, err := client.Create(t.Context(), nil)
	require.NoError(t, err)
	s.Inject(Fault{Cut: CutConnect, To: ToAPI, Skip: 1, Times: 2}, Fault{Cut: CutConnect, To: ToSandboxes, Times: 1})
	_, err = sbx.Info(t.Context())
	require.NoError(t, err, "by the connection that is open")

	dial := func(url string) error {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
			return err
		}
		_, err = conn.Read(make([]byte, 1))
		return err
	}
	require.NoError(t, dial(s.APIURL()))
	require.Error(t, dial(s.APIURL()))
	require.Error(t, dial(s.SandboxURL()))
	require.NoError(t, dial(s.SandboxURL()))
	fresh := clientFor(t, s, s.APIKey())
	_, err = fresh.Create(t.Context(), nil)
	require.Error(t, err) // of the dial, or, a moment later, of the request, whose outcome is unknown then
	_, err = fresh.Create(t.Context(), nil)
	require.NoError(t, err)
	faults := s.Faults()
	require.Equal(t, []int{4, 2, 2, 1}, []int{faults[0].Seen, faults[0].Fired, faults[1].Seen, faults[1].Fired})
	require.Len(t, s.Sandboxes(), 2)
}
