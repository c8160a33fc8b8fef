//go:build linux || darwin

package box_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/agent/proctab"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/box"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process/processconnect"
)

// helperVariable makes the test binary one of the programs that tests need.
const helperVariable = "BOX_TEST_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(helperVariable) {
	case "":
		goleak.VerifyTestMain(mainTests{m})
	case "echo":
		helperExit(echo(os.Args[1]))
	case "own":
		helperExit(own())
	case "removed":
		helperExit(removed())
	case "session":
		helperExit(session())
	case "in session":
		helperExit(inSession())
	case "revoked":
		helperExit(revoked())
	case "key":
		helperExit(addKey())
	}
}

// mainTests closes at the end the nodes that tests share.
type mainTests struct{ *testing.M }

func (m mainTests) Run() int {
	code := m.M.Run()
	for _, mode := range []*mode{&plainMode, &signalsMode, &defaultMode} {
		if err := mode.close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

func helperExit(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// patience is how long a test waits for what should happen at once.
const patience = 30 * time.Second

func eventually(t testing.TB, condition func() bool, message string, args ...any) {
	t.Helper()
	require.Eventually(t, condition, patience, time.Millisecond, append([]any{message}, args...)...)
}

// The ways to run sandboxes that exist on every system and on Linux.
var (
	plainMode   = mode{name: "plain", opts: box.Options{NoIsolation: true}}
	signalsMode = mode{name: "signals", opts: box.Options{NoCgroup: true}}
	defaultMode = mode{name: "default"}
)

// A mode is a way to run sandboxes, and the node that tests share.
type mode struct {
	name string
	opts box.Options

	once sync.Once
	node *box.Node
	err  error
}

func (m *mode) shared(t testing.TB) *box.Node {
	t.Helper()
	m.once.Do(func() { m.node, m.err = box.New(m.opts) })
	require.NoError(t, m.err)
	m.check(t, m.node)
	return m.node
}

// fresh returns a node for a test alone.
func (m *mode) fresh(t testing.TB) *box.Node {
	t.Helper()
	n := newNode(t, m.opts)
	m.check(t, n)
	return n
}

// check ends the test if sandboxes cannot be isolated, and should be.
func (m *mode) check(t testing.TB, n *box.Node) {
	t.Helper()
	ok, reason := n.Isolated()
	require.Equal(t, ok, reason == "")
	switch {
	case ok == !m.opts.NoIsolation:
	case ok || os.Getenv("CI") == "true":
		t.Fatalf("isolated: %v %s", ok, reason)
	default:
		t.Skipf("sandboxes cannot be isolated on this machine: %s", reason)
	}
}

func (m *mode) close() error {
	if m.node == nil {
		return nil
	}
	return m.node.Close()
}

// modes are those of this machine.
func modes() []*mode {
	if !hasNamespaces {
		return []*mode{&plainMode}
	}
	return []*mode{&plainMode, &signalsMode, &defaultMode}
}

// forEachMode runs a test in every way that this machine has.
func forEachMode(t *testing.T, test func(t *testing.T, n *box.Node)) {
	for _, m := range modes() {
		t.Run(m.name, func(t *testing.T) { test(t, m.shared(t)) })
	}
}

// forEachFresh is forEachMode for tests that need the node for themselves.
func forEachFresh(t *testing.T, test func(t *testing.T, n *box.Node)) {
	for _, m := range modes() {
		t.Run(m.name, func(t *testing.T) { test(t, m.fresh(t)) })
	}
}

func newNode(t testing.TB, opts box.Options) *box.Node {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	opts.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	n, err := box.New(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n
}

// A guest is a sandbox and a client of its envd.
type guest struct {
	node.Sandbox
	procs      processconnect.ProcessClient
	disconnect func()
}

var spec = node.Spec{
	ID:          "guest",
	Template:    "code-interpreter",
	Env:         map[string]string{"COLOUR": "blue"},
	AccessToken: "secret",
	EnvdVersion: "0.6.11",
}

func start(t testing.TB, n *box.Node, id string) *guest {
	t.Helper()
	spec := spec
	spec.ID = id
	s, err := n.Start(t.Context(), spec)
	require.NoError(t, err)
	g := newGuest(s)
	t.Cleanup(func() {
		g.disconnect()
		require.NoError(t, g.Kill())
	})
	return g
}

func newGuest(s node.Sandbox) *guest {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return s.Dial(ctx, node.EnvdPort)
	}}
	return &guest{
		Sandbox:    s,
		procs:      processconnect.NewProcessClient(&http.Client{Transport: transport}, "http://sandbox"),
		disconnect: transport.CloseIdleConnections,
	}
}

// try runs a command and returns what it writes and its exit code.
func (g *guest) try(ctx context.Context, user, command string) (output string, code int, err error) {
	no := false
	return g.start(ctx, user, &process.StartRequest{Process: shell(command), Stdin: &no})
}

// terminal runs a command in a terminal.
func (g *guest) terminal(ctx context.Context, user, command string) (output string, code int, err error) {
	size := &process.PTY_Size{Cols: 80, Rows: 24}
	return g.start(ctx, user, &process.StartRequest{Process: shell(command), Pty: &process.PTY{Size: size}})
}

func shell(command string) *process.ProcessConfig {
	return &process.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-l", "-c", command}}
}

func (g *guest) start(ctx context.Context, user string, msg *process.StartRequest) (output string, code int, err error) {
	req := connect.NewRequest(msg)
	req.Header().Set("X-Access-Token", spec.AccessToken)
	req.Header().Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
	stream, err := g.procs.Start(ctx, req)
	if err != nil {
		return "", 0, err
	}
	defer stream.Close()
	code = -1
	var out strings.Builder
	for stream.Receive() {
		switch e := stream.Msg().GetEvent().GetEvent().(type) {
		case *process.ProcessEvent_Data:
			out.Write(e.Data.GetStdout())
			out.Write(e.Data.GetStderr())
			out.Write(e.Data.GetPty())
		case *process.ProcessEvent_End:
			code = int(e.End.GetExitCode())
		}
	}
	return out.String(), code, stream.Err()
}

// run is try for a command that must succeed, and returns its output without
// the last newline.
func (g *guest) run(t testing.TB, command string) string {
	t.Helper()
	return g.runAs(t, "user", command)
}

func (g *guest) runAs(t testing.TB, user, command string) string {
	t.Helper()
	out, code, err := g.try(t.Context(), user, command)
	require.NoError(t, err)
	require.Zero(t, code, "%s: %s", command, out)
	return strings.TrimSuffix(out, "\n")
}

// fails runs a command that must fail, and returns its output.
func (g *guest) fails(t testing.TB, user, command string) string {
	t.Helper()
	out, code, err := g.try(t.Context(), user, command)
	require.NoError(t, err)
	require.Positive(t, code, "%s: %s", command, out)
	return out
}

// counter starts a daemon that counts into a file, and waits for its first count.
const counter = `setsid=$(command -v setsid)
$setsid bash -c '(i=0; while :; do i=$((i+1)); echo $i >count.new; mv count.new count; done) &' >/dev/null 2>&1 </dev/null
while [ ! -s count ]; do :; done`

func (g *guest) startCounter(t testing.TB) {
	t.Helper()
	g.run(t, counter)
	require.Positive(t, g.count(t))
}

// count returns what the daemon has counted, without asking the sandbox.
func (g *guest) count(t testing.TB) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(box.Root(g.Sandbox), "home/user/count"))
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	require.NoError(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	require.NoError(t, err)
	return n
}

// processes returns the processes of a sandbox as the host sees them.
func processes(s node.Sandbox) ([]int, error) {
	table, err := proctab.List()
	if err != nil {
		return nil, err
	}
	pids := []int{box.PID(s)}
	for _, p := range proctab.Below(table, pids[0], nil) {
		pids = append(pids, p.PID)
	}
	return pids, nil
}

// requireGone waits for the end of processes. What their new parent has not yet
// collected has ended too.
func requireGone(t testing.TB, pids []int) {
	t.Helper()
	eventually(t, func() bool {
		table, err := proctab.List()
		return err == nil && !slices.ContainsFunc(table, func(p proctab.Process) bool {
			return slices.Contains(pids, p.PID) && !p.Zombie
		})
	}, "some of the processes %v are left", pids)
}

// addHelper puts the test binary into a sandbox, and returns the command.
func (g *guest) addHelper(t testing.TB, helper string) (command string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	inside := filepath.Join(box.Root(g.Sandbox), "home/user/helper")
	if err := os.Link(self, inside); err != nil { // another file system, or another user's file
		data, err := os.ReadFile(self)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(inside, data, 0o755))
	}
	return helperVariable + "=" + helper + " ./helper"
}

// waitForPort comes after the command of the helper echo, prints its port and
// removes the file.
const waitForPort = ` >/dev/null 2>&1 & while [ ! -s port ] && kill -0 $!; do :; done; cat port && rm port`

// echo is a helper that listens, writes its port into the file "port", and
// sends back what it gets.
func echo(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return err
	}
	if err := os.WriteFile("port.new", []byte(port), 0o644); err != nil {
		return err
	}
	if err := os.Rename("port.new", "port"); err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn)
		}()
	}
}

// A job is what the helper own is asked for, and what it answers.
type job struct {
	Dir                   string
	NoIsolation, NoCgroup bool
	Pause                 bool

	PIDs   []int  // of the sandbox
	Own    string // the directory of the node
	Cgroup string // that of the node, if it has one
}

// own is a helper that owns a sandbox with a counter until it is killed.
func own() error {
	var j job
	if err := json.NewDecoder(os.Stdin).Decode(&j); err != nil {
		return err
	}
	ctx := context.Background()
	n, err := box.New(box.Options{Dir: j.Dir, NoIsolation: j.NoIsolation, NoCgroup: j.NoCgroup})
	if err != nil {
		return err
	}
	s, err := n.Start(ctx, spec)
	if err != nil {
		return err
	}
	if out, code, err := newGuest(s).try(ctx, "user", counter); err != nil || code != 0 {
		return fmt.Errorf("counter: %d %w %s", code, err, out)
	}
	if j.PIDs, err = processes(s); err != nil {
		return err
	}
	if j.Pause {
		if err := s.Pause(ctx, true); err != nil {
			return err
		}
	}
	j.Own = box.Dir(n)
	j.Cgroup = box.Cgroup(n)
	if err := json.NewEncoder(os.Stdout).Encode(j); err != nil {
		return err
	}
	select {}
}
