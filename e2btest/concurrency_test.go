package e2btest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/nodetest"
)

// A reply is what came of a request.
type reply struct {
	lost   bool // no answer of the server itself
	status int
	text   string   // of an error; what info and lists say
	made   []string // the IDs of new sandboxes
}

// A caller sends the requests of the model, in one way or another.
type caller interface {
	create(ctx context.Context, autoPause bool) reply
	call(ctx context.Context, name, id string) reply
	retries() bool // a call may be sent more than once
}

// wire calls by plain HTTP.
type wire struct {
	server *Server
	client *http.Client
}

var routes = map[string]struct{ method, path, body string }{
	"connect":      {"POST", "/sandboxes/ID/connect", `{"timeout":3600}`},
	"resume":       {"POST", "/sandboxes/ID/resume", `{"timeout":3600}`},
	"pause":        {"POST", "/sandboxes/ID/pause", ""},
	"kill":         {"DELETE", "/sandboxes/ID", ""},
	"timeout":      {"POST", "/sandboxes/ID/timeout", `{"timeout":3600}`},
	"refreshes":    {"POST", "/sandboxes/ID/refreshes", `{"duration":3600}`},
	"end":          {"POST", "/sandboxes/ID/timeout", `{"timeout":0}`},
	"snapshot":     {"POST", "/sandboxes/ID/snapshots", `{"name":"a"}`},
	"fork":         {"POST", "/sandboxes/ID/fork", `{"timeout":3600}`},
	"info":         {"GET", "/sandboxes/ID", ""},
	"list running": {"GET", "/v2/sandboxes?state=running", ""},
	"list paused":  {"GET", "/v2/sandboxes?state=paused", ""},
}

func (w *wire) retries() bool { return false }

func (w *wire) send(ctx context.Context, method, path, body string, result any) reply {
	req, err := http.NewRequestWithContext(ctx, method, w.server.APIURL()+path, strings.NewReader(body))
	if err != nil {
		return reply{lost: true}
	}
	req.Header.Set("X-API-Key", w.server.APIKey())
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return reply{lost: true}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	var refusal struct{ Message string }
	switch {
	case err != nil || resp.StatusCode >= 500 || resp.StatusCode == http.StatusRequestTimeout || resp.StatusCode == http.StatusTooManyRequests:
		return reply{lost: true}
	case resp.StatusCode >= 400:
		err = json.Unmarshal(text, &refusal)
	case len(text) > 0:
		err = json.Unmarshal(text, result)
	}
	if err != nil {
		return reply{status: resp.StatusCode, text: err.Error()}
	}
	return reply{status: resp.StatusCode, text: refusal.Message}
}

func (w *wire) create(ctx context.Context, autoPause bool) reply {
	var made struct{ SandboxID string }
	body := fmt.Sprintf(`{"templateID":"base","timeout":3600,"autoPause":%t}`, autoPause)
	r := w.send(ctx, "POST", "/sandboxes", body, &made)
	r.made = []string{made.SandboxID}
	return r
}

func (w *wire) call(ctx context.Context, name, id string) reply {
	route := routes[name]
	var one struct{ State string }
	var list []struct {
		SandboxID string
		Sandbox   struct{ SandboxID string }
	}
	result := any(&one)
	if name == "fork" || strings.HasPrefix(name, "list") {
		result = &list
	}
	r := w.send(ctx, route.method, strings.Replace(route.path, "ID", id, 1), route.body, result)
	switch {
	case r.lost || r.status >= 400:
	case name == "info":
		r.text = one.State
	case name == "fork":
		for _, item := range list {
			r.made = append(r.made, item.Sandbox.SandboxID)
		}
	case strings.HasPrefix(name, "list"):
		r.text = "missing"
		for _, item := range list {
			if item.SandboxID == id {
				r.text = "listed"
			}
		}
		r.lost = r.text == "missing" && len(list) == 100 // it may be on the next page
	}
	return r
}

// A crowd is clients that work on the same sandboxes.
type crowd struct {
	server *Server
	caller caller
	steps  int      // of each client
	names  []string // of the requests that the caller can send; nil: all
	calm   bool     // without faults

	mu        sync.Mutex
	shared    []*modelled // a nil one is still to be made
	all       []*modelled // those that may not be gone yet
	advances  []*advance
	advanced  int // how often the clock was moved
	lost      int // answers
	wrong     error
	cancelled context.CancelFunc
}

// An advance moves the clock of all sandboxes.
type advance struct{ flights map[*modelled]*flight }

// what the clients do, as often as it is named.
var mix = strings.Fields(`connect connect connect connect pause pause pause pause info info info info
	timeout refreshes resume resume snapshot list_running list_paused`)

var rare = strings.Fields("kill kill kill end fork fork advance")

// run has clients at work until all have done their steps, or one of them gets an
// answer that cannot be.
func (c *crowd) run(ctx context.Context, clients int, seed uint64) error {
	ctx, c.cancelled = context.WithCancel(ctx)
	defer c.cancelled()
	c.shared = make([]*modelled, 2*clients)
	var wg sync.WaitGroup
	for n := range clients {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(n)))
			remove := func() {}
			for step := range c.steps {
				if step%50 == 0 && !c.calm {
					remove()
					remove = c.server.Inject(RandomFaults(random.Uint64(), 3)...)
				}
				if err := c.step(ctx, random); err != nil || ctx.Err() != nil {
					c.fail(err)
					break
				}
			}
			remove()
		})
	}
	wg.Wait()
	return c.wrong
}

func (c *crowd) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wrong == nil && err != nil {
		c.wrong = err
		c.cancelled()
	}
}

func (c *crowd) step(ctx context.Context, random *rand.Rand) error {
	slot := random.IntN(len(c.shared))
	c.mu.Lock()
	m := c.shared[slot]
	c.mu.Unlock()
	if m == nil || m.known() == gone && random.IntN(4) == 0 {
		return c.create(ctx, slot, random.IntN(2) == 0)
	}
	name := strings.Replace(mix[random.IntN(len(mix))], "_", " ", 1)
	if random.IntN(10) == 0 {
		name = rare[random.IntN(len(rare))]
	}
	switch {
	case name == "advance":
		return c.advance()
	case c.names != nil && !slices.Contains(c.names, name):
		name = "info"
	}
	return c.call(ctx, m, slot, name)
}

// call sends a request, and takes in what it made.
func (c *crowd) call(ctx context.Context, m *modelled, slot int, name string) error {
	epoch := c.epoch()
	f := m.begin(name, c.caller.retries())
	r := c.caller.call(ctx, name, m.id)
	if r.lost {
		m.lost(f)
		c.mu.Lock()
		c.lost++
		c.mu.Unlock()
		return nil
	}
	if err := m.end(f, r.status, r.text); err != nil {
		return err
	}
	for _, id := range r.made {
		if err := c.adopt(ctx, slot, id, m.autoPause, epoch); err != nil {
			return err
		}
	}
	return nil
}

func (c *crowd) create(ctx context.Context, slot int, autoPause bool) error {
	epoch := c.epoch()
	switch r := c.caller.create(ctx, autoPause); {
	case r.lost:
		return nil
	case r.status != http.StatusCreated && r.status != success:
		return fmt.Errorf("create was answered %d %q", r.status, r.text)
	default:
		return c.adopt(ctx, slot, r.made[0], autoPause, epoch)
	}
}

// epoch grows with each time that the clock is moved.
func (c *crowd) epoch() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.advanced - len(c.advances)
}

// adopt shares a new sandbox, or kills it where there is one already. Its time may
// have been over since the epoch.
func (c *crowd) adopt(ctx context.Context, slot int, id string, autoPause bool, epoch int) error {
	if id == "" {
		return errors.New("a new sandbox has no ID")
	}
	m := newModelled(id, autoPause)
	c.mu.Lock()
	if c.advanced > epoch {
		m.possible = m.possible.follow(m.expiry).follow(settling)
	}
	born := m.begin("create", false)
	for _, a := range c.advances {
		a.flights[m] = m.begin("advance", false)
	}
	m.lost(born)
	c.all = append(c.all, m)
	old := c.shared[slot]
	free := old == nil || old.known() == gone
	if free {
		c.shared[slot] = m
	}
	c.mu.Unlock()
	for !free && m.known() != gone && ctx.Err() == nil {
		if err := c.call(ctx, m, slot, "kill"); err != nil {
			return err
		}
		if err := c.call(ctx, m, slot, "info"); err != nil {
			return err
		}
	}
	return nil
}

// advance lets the time of all sandboxes be over.
func (c *crowd) advance() error {
	a := &advance{make(map[*modelled]*flight)}
	c.mu.Lock()
	c.advanced++
	c.advances = append(c.advances, a)
	c.all = slices.DeleteFunc(c.all, func(m *modelled) bool { return m.known() == gone })
	for _, m := range c.all {
		a.flights[m] = m.begin("advance", false)
	}
	c.mu.Unlock()
	c.server.Advance(2 * time.Hour)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advances = slices.DeleteFunc(c.advances, func(other *advance) bool { return other == a })
	for m, f := range a.flights {
		if err := m.end(f, http.StatusNoContent, ""); err != nil {
			return err
		}
	}
	return nil
}

// settle looks at all that is left, which nobody works on any more, and kills it.
func (c *crowd) settle(t *testing.T, client *e2b.Client) {
	t.Helper()
	for slot, m := range c.shared {
		for _, name := range []string{"info", "list running", "list paused", "connect", "pause", "info", "kill", "info"} {
			if m != nil {
				require.NoError(t, c.call(t.Context(), m, slot, name))
			}
		}
	}
	for info, err := range client.List(t.Context(), nil) { // also those whose answers were lost
		require.NoError(t, err)
		_, err = client.Kill(t.Context(), info.ID)
		require.NoError(t, err)
	}
}

const modelClients = 16

// inMemoryCrowd is a crowd for a server whose sandboxes take a little for each step.
func inMemoryCrowd(t *testing.T, steps int) (*crowd, *memory) {
	t.Helper()
	o, err := Options{MaxSandboxes: 10_000}.withDefaults()
	require.NoError(t, err)
	m := newMemory()
	m.Hook = func(context.Context, nodetest.Step, string) error {
		<-time.After(rand.N(time.Millisecond))
		return nil
	}
	server, err := newServer(o, m)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.NoError(t, m.Wrong())
	})
	transport := &http.Transport{MaxIdleConnsPerHost: modelClients}
	t.Cleanup(transport.CloseIdleConnections)
	return &crowd{server: server, caller: &wire{server, &http.Client{Transport: transport}}, steps: steps / modelClients}, m
}

// Nobody gets an answer that cannot be, whatever the others do and the network loses.
func TestModel(t *testing.T) {
	goroutines := goleak.IgnoreCurrent()
	c, node := inMemoryCrowd(t, 10_000)
	seed := rand.Uint64()
	t.Log("seed", seed)
	require.NoError(t, c.run(t.Context(), modelClients, seed))
	require.Positive(t, c.lost)
	client, err := e2b.NewClient(c.server.ClientOptions())
	require.NoError(t, err)
	c.settle(t, client)
	require.Zero(t, node.Alive())
	client.CloseIdleConnections()
	c.caller.(*wire).client.CloseIdleConnections()
	require.NoError(t, c.server.Close())
	goleak.VerifyNone(t, goroutines)
}

// The model notices a server that does other than it says.
func TestModelObjects(t *testing.T) {
	for name, lie := range map[string]Fault{
		"a kill without effect":        {Method: "DELETE", Status: 204},
		"a pause without effect":       {Path: "/sandboxes/{id}/pause", Status: 204},
		"a connect without effect":     {Path: "/sandboxes/{id}/connect", Status: 200, Body: "{}"},
		"a kill that denies it":        {Method: "DELETE", Status: 404, Commit: true, Body: `{"code":404,"message":"it ` + notFound + `"}`},
		"a sandbox that always runs":   {Method: "GET", Path: "/sandboxes/{id}", Fields: map[string]string{"state": "running"}},
		"a list that shows all states": {Path: "/v2/sandboxes", IgnoreQuery: []string{"state"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := inMemoryCrowd(t, 4000)
			c.server.Inject(lie)
			seed := rand.Uint64()
			t.Log("seed", seed)
			c.calm = true
			err := c.run(t.Context(), modelClients, seed)
			require.Error(t, err)
			t.Log(err)
		})
	}
}
