// Package nodetest is a node for tests: its sandboxes are handlers in memory, so
// it works inside testing/synctest too, and a test can hold or fail each step.
package nodetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/memnet"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// A Step is what the control plane asks of a sandbox, or of the node.
type Step string

// The steps.
const (
	Start    Step = "start"
	Pause    Step = "pause"
	Resume   Step = "resume"
	Snapshot Step = "snapshot"
	Kill     Step = "kill"

	RemoveVolume Step = "remove volume" // its ID is that of the volume
)

// A Node is a node.Node in memory.
type Node struct {
	// Hook, if not nil, runs during each step, without locks held. The error that
	// it returns is that of the step. It must be set before the Node is used.
	Hook func(ctx context.Context, step Step, id string) error
	// Usage, if not nil, is what sandboxes use, each so long after its start. It must be
	// set before the Node is used.
	Usage func(id string, after time.Duration) (node.Usage, error)

	mu        sync.Mutex
	sandboxes map[string]*Sandbox
	images    map[*Image]struct{}
	wrong     []string
}

// New returns a Node without sandboxes.
func New() *Node {
	return &Node{sandboxes: make(map[string]*Sandbox), images: make(map[*Image]struct{})}
}

// A Sandbox is a node.Sandbox in memory. Its envd answers /health.
type Sandbox struct {
	Spec    node.Spec
	node    *Node
	started time.Time

	mu      sync.Mutex
	state   string // running, paused or killed
	busy    Step   // empty: no step is under way
	memory  bool   // of the last pause
	boots   int
	adopted bool
	servers map[int]*memnet.Server
}

// Start makes a sandbox whose envd answers.
func (n *Node) Start(ctx context.Context, spec node.Spec) (node.Sandbox, error) {
	if err := n.hook(ctx, Start, spec.ID); err != nil {
		return nil, err
	}
	if image, ok := spec.Image.(*Image); ok && !n.hasImage(image) {
		n.complain("start of %s from an image that was removed", spec.ID)
	}
	sb := &Sandbox{Spec: spec, node: n, started: time.Now(), state: "running", boots: 1, servers: make(map[int]*memnet.Server)}
	sb.Serve(node.EnvdPort, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/health" {
			http.NotFound(w, r)
			return
		}
		w.Header()["Content-Type"] = []string{""}
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNoContent)
	}))
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sandboxes[spec.ID] = sb
	return sb, nil
}

func (n *Node) hook(ctx context.Context, step Step, id string) error {
	if n.Hook == nil {
		return nil
	}
	return n.Hook(ctx, step, id)
}

// Sandbox returns the sandbox with that ID, or nil.
func (n *Node) Sandbox(id string) *Sandbox {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sandboxes[id]
}

// Alive counts the sandboxes that were not killed.
func (n *Node) Alive() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	alive := 0
	for _, sb := range n.sandboxes {
		if sb.State() != "killed" {
			alive++
		}
	}
	return alive
}

// An Image is a node.Image without files.
type Image struct {
	Of      string // the ID of the sandbox
	node    *Node
	adopted bool
}

// Remove removes the image.
func (i *Image) Remove() error {
	if !i.node.hasImage(i) {
		i.node.complain("an image of %s is removed twice", i.Of)
	}
	i.node.mu.Lock()
	defer i.node.mu.Unlock()
	delete(i.node.images, i)
	return nil
}

var _ node.VolumeRemover = (*Node)(nil)

// RemoveVolume has nothing to remove: there are no volumes.
func (n *Node) RemoveVolume(id string) error { return n.hook(context.Background(), RemoveVolume, id) }

func (n *Node) hasImage(i *Image) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.images[i]
	return ok
}

// Images counts the images that were not removed.
func (n *Node) Images() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.images)
}

// Wrong returns an error if the control plane ever asked for what it must not,
// such as two steps of one sandbox at a time.
func (n *Node) Wrong() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.wrong == nil {
		return nil
	}
	return fmt.Errorf("nodetest: %q", n.wrong)
}

func (n *Node) complain(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wrong = append(n.wrong, fmt.Sprintf(format, args...))
}

// Close kills all sandboxes.
func (n *Node) Close() error {
	n.mu.Lock()
	sandboxes := n.sandboxes
	n.sandboxes = make(map[string]*Sandbox)
	n.mu.Unlock()
	for _, sb := range sandboxes {
		sb.end()
	}
	return nil
}

// State returns running, paused or killed.
func (sb *Sandbox) State() string {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.state
}

// Boots counts how often the sandbox was booted, not thawed.
func (sb *Sandbox) Boots() int {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.boots
}

// step does one step, if the state is one of those allowed.
func (sb *Sandbox) step(ctx context.Context, step Step, effect func(), allowed ...string) error {
	sb.mu.Lock()
	if sb.busy != "" {
		sb.node.complain("%s of %s during %s", step, sb.Spec.ID, sb.busy)
	}
	sb.busy = step
	fits := false
	for _, state := range allowed {
		fits = fits || state == sb.state
	}
	if !fits {
		sb.node.complain("%s of %s, which is %s", step, sb.Spec.ID, sb.state)
	}
	sb.mu.Unlock()
	err := sb.node.hook(ctx, step, sb.Spec.ID)
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.busy = ""
	if err == nil {
		effect()
	}
	return err
}

// Pause pauses the sandbox.
func (sb *Sandbox) Pause(ctx context.Context, keepMemory bool) error {
	return sb.step(ctx, Pause, func() { sb.state, sb.memory = "paused", keepMemory }, "running")
}

// Resume undoes Pause.
func (sb *Sandbox) Resume(ctx context.Context, reboot bool) error {
	return sb.step(ctx, Resume, func() {
		sb.state = "running"
		if reboot {
			sb.boots++
		} else if !sb.memory {
			sb.node.complain("resume of %s from memory that was not kept", sb.Spec.ID)
		}
	}, "paused")
}

// Snapshot makes an image.
func (sb *Sandbox) Snapshot(ctx context.Context) (node.Image, error) {
	image := &Image{Of: sb.Spec.ID, node: sb.node}
	err := sb.step(ctx, Snapshot, func() {
		sb.node.mu.Lock()
		defer sb.node.mu.Unlock()
		sb.node.images[image] = struct{}{}
	}, "running")
	if err != nil {
		return nil, err
	}
	return image, nil
}

// Kill ends the sandbox.
func (sb *Sandbox) Kill() error {
	err := sb.step(context.Background(), Kill, func() {}, "running", "paused", "killed")
	sb.end()
	return err
}

func (sb *Sandbox) end() {
	sb.mu.Lock()
	sb.state = "killed"
	servers := sb.servers
	sb.servers = nil
	sb.mu.Unlock()
	for _, s := range servers {
		s.Close()
	}
}

// Serve opens a port with a server behind it, instead of one that was there.
func (sb *Sandbox) Serve(port int, handler http.Handler) {
	s := memnet.Serve("sandbox", handler)
	sb.mu.Lock()
	old := sb.servers[port]
	sb.servers[port] = s
	sb.mu.Unlock()
	if old != nil {
		old.Close()
	}
}

// Dial connects to a port of a running sandbox.
func (sb *Sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	sb.mu.Lock()
	s, state := sb.servers[port], sb.state
	sb.mu.Unlock()
	switch {
	case state != "running":
		return nil, errors.New("nodetest: the sandbox is " + state)
	case s == nil:
		return nil, node.ErrPortClosed
	}
	c, err := s.Dial(ctx)
	if errors.Is(err, net.ErrClosed) {
		return nil, node.ErrPortClosed
	}
	return c, err
}

var _ node.Meter = (*Sandbox)(nil)

// Usage returns what the node's function says, or else that of a sandbox that does
// a little.
func (sb *Sandbox) Usage(context.Context) (node.Usage, error) {
	if sb.State() != "running" {
		return node.Usage{}, node.ErrBusy
	}
	after := time.Since(sb.started)
	if sb.node.Usage != nil {
		return sb.node.Usage(sb.Spec.ID, after)
	}
	return node.Usage{CPU: after / 5, Memory: 96 << 20, Cache: 32 << 20, Disk: 600 << 20}, nil
}

// Processes returns one.
func (sb *Sandbox) Processes(context.Context) ([]node.Process, error) {
	if sb.State() != "running" {
		return nil, node.ErrBusy
	}
	return []node.Process{{PID: 2, Command: "sleep " + sb.Spec.ID}}, nil
}
