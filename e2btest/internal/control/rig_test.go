package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/control"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/nodetest"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The keys of the recorded exchanges.
const (
	ownKey     = "e2b_00000000000000000000000000000000"
	otherKey   = "e2b_11111111111111111111111111111111"
	blockedKey = "e2b_22222222222222222222222222222222"
	bannedKey  = "e2b_33333333333333333333333333333333"
	smallKey   = "e2b_44444444444444444444444444444444"
)

// A rig is a control plane with a proxy, over a node in memory whose steps can
// be held and failed.
type rig struct {
	t     *testing.T
	api   *control.Server
	proxy *proxy.Handler
	node  *nodetest.Node

	mu   sync.Mutex
	held map[nodetest.Step]chan struct{}
	fail map[nodetest.Step]error
	once nodetest.Step // fails the next time, and then no more
	slow bool          // steps take up to a millisecond
}

func teams() []control.Team {
	team := func(slug, key string) control.Team {
		return control.Team{ID: slug, Slug: slug, Keys: []string{key}, MaxLength: 24 * time.Hour, MaxSandboxes: 100}
	}
	own, other := team("local-dev-team", ownKey), team("other", otherKey)
	blocked, banned, small := team("blocked", blockedKey), team("banned", bannedKey), team("small", smallKey)
	blocked.Blocked, banned.Banned, small.MaxSandboxes = "payment failed", true, 2
	return []control.Team{own, other, blocked, banned, small}
}

func newRig(t *testing.T, opts control.Options) *rig {
	t.Helper()
	r := &rig{t: t, node: nodetest.New(), held: make(map[nodetest.Step]chan struct{}), fail: make(map[nodetest.Step]error)}
	r.node.Hook = func(ctx context.Context, step nodetest.Step, _ string) error {
		r.mu.Lock()
		gate, err, slow := r.held[step], r.fail[step], r.slow
		if r.once == step {
			r.once, err = "", errNode
		}
		r.mu.Unlock()
		if slow {
			<-time.After(rand.N(time.Millisecond))
		}
		if gate != nil {
			select {
			case <-gate:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return err
	}
	if opts.Teams == nil {
		opts.Teams = teams()
	}
	opts.Node = r.node
	r.api = control.New(opts)
	r.proxy = proxy.New(r.api, []string{"e2b.app"}, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		r.releaseAll()
		r.api.Close()
		require.NoError(t, r.node.Wrong())
		require.NoError(t, r.node.Close())
	})
	return r
}

// hold makes steps wait until the returned function is called.
func (r *rig) hold(step nodetest.Step) (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	gate := make(chan struct{})
	r.held[step] = gate
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.held[step] == gate {
			delete(r.held, step)
			close(gate)
		}
	}
}

func (r *rig) releaseAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for step, gate := range r.held {
		delete(r.held, step)
		close(gate)
	}
}

var errNode = errors.New("injected")

func (r *rig) failing(step nodetest.Step) { r.failingWith(step, errNode) }

func (r *rig) failingWith(step nodetest.Step, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail[step] = err
}

// An answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

// decoded returns the body as JSON values.
func (a answer) decoded(t *testing.T) any {
	t.Helper()
	var v any
	require.NoError(t, json.Unmarshal([]byte(a.body), &v), a.body)
	return v
}

// field returns a string field of the body.
func (a answer) field(t *testing.T, name string) string {
	t.Helper()
	s, _ := a.value(t, name).(string)
	return s
}

// value returns a field of the body.
func (a answer) value(t *testing.T, name string) any {
	t.Helper()
	fields, _ := a.decoded(t).(map[string]any)
	return fields[name]
}

func (a answer) message(t *testing.T) string {
	t.Helper()
	return a.field(t, "message")
}

func send(h http.Handler, req *http.Request) answer {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	return answer{rec.Code, rec.Header(), rec.Body.String()}
}

// call sends a request to the API. A body of "" is none.
func (r *rig) call(key, method, path, body string) answer {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req := httptest.NewRequest(method, path, reader)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("X-API-Key", key)
	return send(r.api, req)
}

// must is call for setups.
func (r *rig) must(status int, key, method, path, body string) answer {
	r.t.Helper()
	a := r.call(key, method, path, body)
	require.Equal(r.t, status, a.status, "%s %s: %s", method, path, a.body)
	return a
}

// create makes a sandbox.
func (r *rig) create(key, body string) string {
	r.t.Helper()
	return r.must(201, key, "POST", "/sandboxes", body).field(r.t, "sandboxID")
}

// own operations of a setup.
func (r *rig) pause(id string) {
	r.t.Helper()
	r.must(204, ownKey, "POST", "/sandboxes/"+id+"/pause", "")
}

func (r *rig) kill(id string)         { r.t.Helper(); r.must(204, ownKey, "DELETE", "/sandboxes/"+id, "") }
func (r *rig) info(id string) answer  { return r.call(ownKey, "GET", "/sandboxes/"+id, "") }
func (r *rig) state(id string) string { return r.info(id).field(r.t, "state") }
func (r *rig) connect(id, timeout string) {
	r.t.Helper()
	a := r.call(ownKey, "POST", "/sandboxes/"+id+"/connect", `{"timeout":`+timeout+`}`)
	require.Contains(r.t, []int{200, 201}, a.status, a.body)
}

// background sends a request whose answer can be waited for.
func (r *rig) background(key, method, path, body string) <-chan answer {
	done := make(chan answer, 1)
	go func() { done <- r.call(key, method, path, body) }()
	synctest.Wait()
	return done
}

// traffic sends a request for a port of the sandbox.
func (r *rig) traffic(id, port string, header ...string) answer {
	req := httptest.NewRequest(http.MethodGet, "/health", nil)
	req.Host = "127.0.0.1:3002"
	req.Header.Set("E2b-Sandbox-Id", id)
	req.Header.Set("E2b-Sandbox-Port", port)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return send(r.proxy, req)
}
