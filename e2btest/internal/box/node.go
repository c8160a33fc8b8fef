//go:build linux || darwin

package box

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/agent"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

const (
	// rootName is the directory of a sandbox that has the files it sees.
	rootName = "root"
	// standardPath is the PATH of a sandbox that is a system of its own.
	standardPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// maxSocketPath is how long the path of a socket may be everywhere.
	maxSocketPath = 100
	// probeID is the ID of that sandbox.
	probeID = "probe"
	// probeTimeout bounds the start of a sandbox that tells what the system can do.
	probeTimeout = 20 * time.Second
)

// ErrClosed is returned by Start after Close.
var ErrClosed = errors.New("the local runtime is closed")

// An isolation is how much a sandbox has of its own.
type isolation int

const (
	plain          isolation = iota // nothing
	userNamespaces                  // namespaces and one user, who is nobody special outside
	namespaces                      // namespaces, but the users of the host
	allNamespaces                   // namespaces, and users as many as it likes
)

// A Node runs sandboxes as child processes.
type Node struct {
	opts    Options
	log     *slog.Logger
	dir     *ownedDir
	sockets *ownedDir // if the path of dir is too long for sockets
	cgroups *cgroups  // nil: processes are stopped by signals
	// limits are the control groups that only limit, and unlimited is what they do not:
	// that is left to cgroups.
	limits    []*cgroups
	unlimited []limit
	starter   *starter
	counter   atomic.Uint64 // makes the names of sockets
	making    sync.Mutex    // held while a volume is made

	isolation isolation
	reason    string // why there is none
	layout    *layout
	config    agent.Config // what all sandboxes have in common

	mu     sync.Mutex
	closed bool
	boxes  map[*sandbox]struct{}
	// adopted are the names of images that were there before.
	adopted []string

	close func() error // once
}

var _ node.Node = (*Node)(nil)

// New finds out what the system can do and returns a Node, which is to be closed.
func New(opts Options) (*Node, error) {
	n := &Node{opts: opts, log: opts.Logger, boxes: make(map[*sandbox]struct{})}
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	n.close = sync.OnceValue(n.closeAll)
	if err := n.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("local runtime: %w", err), n.Close())
	}
	return n, nil
}

func (n *Node) open() error {
	var err error
	if n.dir, err = n.openDir(); err != nil {
		return err
	}
	if len(n.dir.path) > maxSocketPath-len("/.s0123456789") {
		if n.sockets, err = newOwnedDir("/tmp"); err != nil {
			return err
		}
	}
	n.starter = newStarter()
	n.config.HangAfterCancel = n.opts.HangAfterCancel
	// As in a machine that has so much: with more in files no program could remove them.
	n.config.SharedMemory = n.opts.MemoryLimit / 2
	if n.limits, n.unlimited, err = newLimits(n.cgroupName(), n.opts.limits()); err != nil {
		return err
	}

	has := findInterpreters()
	var reasons []error
	if n.opts.NoIsolation {
		reasons = append(reasons, errors.New("it is not wanted"))
	} else {
		for _, i := range isolations() {
			if err = n.tryIsolation(i, has); err == nil {
				return nil
			}
			reasons = append(reasons, err)
		}
		if len(reasons) == 0 {
			reasons = append(reasons, errors.New(noIsolation))
		}
	}
	reason := errors.Join(reasons...)
	n.reason = reason.Error()
	if limits := n.opts.limits(); len(limits) > 0 {
		return fmt.Errorf("%s: sandboxes cannot be isolated and limited: %w", namesOf(limits), reason)
	}
	if n.opts.RequireIsolation {
		return fmt.Errorf("sandboxes cannot be isolated: %w", reason)
	}
	n.isolation = plain
	n.layout = nil
	n.config.Isolated, n.config.OneUser, n.config.OwnNetwork, n.config.Binds = false, false, false, nil
	n.setInterpreters(has, os.Getenv("PATH"))
	n.log.WarnContext(context.Background(), "sandboxes are not isolated: their processes are plain ones that see the whole system", "reason", n.reason)
	return nil
}

// openDir makes, or opens, the directory for the files of the sandboxes.
func (n *Node) openDir() (*ownedDir, error) {
	path := cmp.Or(n.opts.Keep, n.opts.Dir, os.TempDir())
	if n.opts.Keep != "" {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, err
		}
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	// Sandboxes that are not isolated see this path, and compare others with it.
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return nil, err
	}
	if n.opts.Keep != "" {
		return openKept(path)
	}
	return newOwnedDir(path)
}

// tryIsolation starts a sandbox in this way, and keeps to it if that works.
func (n *Node) tryIsolation(i isolation, has interpreters) error {
	n.isolation = i
	n.config.Isolated = true
	n.config.OneUser = i == userNamespaces
	n.config.OwnUsers = i != namespaces
	n.config.OwnNetwork = !n.opts.HostNetwork
	var l *layout
	var err error
	for {
		n.setInterpreters(has, standardPath)
		l, err = newLayout(has.all(), n.config.Path, n.config.OneUser, n.opts.HostNetwork)
		if err == nil || len(has.all()) == 0 {
			break
		}
		// Without one of them then.
		if has.node != nil {
			has.node, has.noNode = nil, err
		} else {
			has.python, has.noPython = nil, err
		}
	}
	if err == nil {
		err = l.checkApart(n.dir.path)
	}
	if err != nil {
		return err
	}
	n.layout = l
	n.config.Binds = l.binds

	if !n.opts.NoCgroup || len(n.unlimited) > 0 {
		n.cgroups, err = newCgroups(n.cgroupName(), n.unlimited)
		if err == nil {
			if err = n.probe(); err == nil {
				return nil
			}
		}
		if n.cgroups != nil {
			if err := n.cgroups.remove(); err != nil {
				return err
			}
			n.cgroups = nil
		}
		if len(n.unlimited) > 0 {
			return fmt.Errorf("control groups cannot be used: %w", err)
		}
		n.log.DebugContext(context.Background(), "processes are stopped by signals: they cannot be frozen with a control group", "reason", err)
	}
	return n.probe()
}

// probe starts a sandbox and kills it.
func (n *Node) probe() error {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	s, err := n.Start(ctx, node.Spec{ID: probeID})
	if err != nil {
		return err
	}
	return s.Kill()
}

// setInterpreters makes commands find them.
func (n *Node) setInterpreters(has interpreters, searchPath string) {
	n.config.Python, n.config.PythonErr = has.python.use(has.noPython)
	n.config.Node, n.config.NodeErr = has.node.use(has.noNode)
	n.config.Path = searchPath
	if has.python != nil {
		n.config.Path = filepath.Dir(has.python.Executable) + ":" + searchPath
	}
	if has.node != nil {
		if dir := filepath.Dir(has.node.Executable); !slices.Contains(filepath.SplitList(n.config.Path), dir) {
			n.config.Path = dir + ":" + n.config.Path
		}
	}
}

// Isolated says whether sandboxes are isolated from the host and from each other,
// and if they are not, why.
func (n *Node) Isolated() (ok bool, reason string) {
	return n.isolation != plain, n.reason
}

// Python returns the interpreter that sandboxes have, or why they have none.
func (n *Node) Python() (string, error) {
	if n.config.Python == "" {
		return "", errors.New(n.config.PythonErr)
	}
	return n.config.Python, nil
}

// validID says whether id is the ID of a sandbox, and so a file name.
func validID(id string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
	return id != "" && len(id) <= 63 && strings.Trim(id, letters) == ""
}

// Start implements node.Node.
func (n *Node) Start(ctx context.Context, spec node.Spec) (node.Sandbox, error) {
	if !validID(spec.ID) {
		return nil, fmt.Errorf("start sandbox: invalid ID %q", spec.ID)
	}
	s := &sandbox{node: n, spec: spec, dir: filepath.Join(n.dir.path, spec.ID)}
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil, ErrClosed
	}
	n.boxes[s] = struct{}{}
	n.mu.Unlock()
	if err := s.start(ctx); err != nil {
		return nil, fmt.Errorf("start sandbox %s: %w", spec.ID, err)
	}
	return s, nil
}

// Close implements node.Node.
func (n *Node) Close() error { return n.close() }

func (n *Node) closeAll() error {
	n.mu.Lock()
	n.closed = true
	boxes := make([]*sandbox, 0, len(n.boxes))
	for s := range n.boxes {
		boxes = append(boxes, s)
	}
	n.mu.Unlock()

	var wg sync.WaitGroup
	errs := make([]error, len(boxes))
	for i, s := range boxes {
		wg.Go(func() { errs[i] = s.close() })
	}
	wg.Wait()
	if n.starter != nil {
		n.starter.stop()
	}
	err := errors.Join(errs...)
	for _, g := range append(n.limits, n.cgroups) {
		if g != nil {
			err = errors.Join(err, g.remove())
		}
	}
	for _, dir := range []*ownedDir{n.sockets, n.dir} {
		if dir != nil {
			err = errors.Join(err, dir.remove())
		}
	}
	return err
}

// forget is for sandboxes that have ended.
func (n *Node) forget(s *sandbox) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.boxes, s)
}

// socketPath returns a path for a new socket.
func (n *Node) socketPath() string {
	dir := n.dir
	if n.sockets != nil {
		dir = n.sockets
	}
	return filepath.Join(dir.path, fmt.Sprintf("%s%x", socketPrefix, n.counter.Add(1)))
}

// A starter runs functions on one thread that lives as long as the starter: the
// kernel kills a child when the thread that started it ends.
type starter struct {
	work chan func()
	once sync.Once
	done chan struct{}
}

func newStarter() *starter {
	s := &starter{work: make(chan func()), done: make(chan struct{})}
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine
		defer close(s.done)
		for f := range s.work {
			f()
		}
	}()
	return s
}

// do runs f and waits for it. It must not be called after stop.
func (s *starter) do(f func()) {
	done := make(chan struct{})
	s.work <- func() {
		defer close(done)
		f()
	}
	<-done
}

func (s *starter) stop() {
	s.once.Do(func() { close(s.work) })
	<-s.done
}
