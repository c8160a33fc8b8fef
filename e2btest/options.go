package e2btest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"regexp"
	"time"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/control"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/statedir"
)

// Options configures a Server. The zero value is a server on free ports with a
// random key.
type Options struct {
	// Dir is where a directory for the files of the sandboxes is made, and removed
	// by Close. Empty: in the system's directory for temporary files.
	Dir string
	// StateDir is a directory that keeps what the server has, for the next one with the
	// same directory: sandboxes and snapshots with their files, volumes, secrets,
	// tokens, and the key unless APIKey says one. It is made if need be, holds nothing
	// else, and one server has it at a time. Close pauses what runs. Sandboxes keep
	// their files, IDs and settings and lose their memory: a connect boots them, and
	// traffic does not wake them. After a crash it is the same, with the files as they
	// were. Of sandboxes that are gone nothing is kept. Empty: Close removes everything.
	StateDir string
	// HostNetwork lets sandboxes use the network of this machine.
	HostNetwork bool
	// RequireIsolation makes NewServer fail where sandboxes cannot be isolated from
	// this machine and from each other. Otherwise they are plain processes there.
	RequireIsolation bool
	// MemoryLimit, in bytes, and ProcessLimit are for what runs in each sandbox, all
	// together; threads count as processes. Beyond the first the kernel kills a process,
	// as E2B's does, and beyond the second it starts none. /dev/shm has half of the memory. What the sandbox is said to
	// have stays. They need Linux, isolated sandboxes, and the right to make control
	// groups, as root or below what systemd gives a user: where they would not hold
	// NewServer fails. 0: there is no limit.
	MemoryLimit  int64
	ProcessLimit int

	// Run, if set, makes the server a scripted one: it starts no process, on any system.
	// Run is called for each command, in a goroutine of its own, and returns its exit
	// code. Commands.Run comes as bash with -l and -c: see [Command.Line]. Files are in
	// memory; of CopyIn and CopyOut, which run tar, Run gets the commands. When ctx ends
	// Run must return soon, since Close waits for it. In a pause it goes on until it next
	// reads or writes, and timeouts of commands pass.
	//
	// A scripted server needs no network either: unless Addr or SandboxAddr is set it is
	// reached only by the Transport of [Server.ClientOptions], and with all that it does
	// it can be in a bubble of testing/synctest. What clients have opened must be closed
	// before such a bubble ends: handles of commands and terminals, watchers, streams of
	// code and readers of files. Otherwise they ask the server that has gone what became of
	// theirs, or keep a connection, and the bubble fails with a deadlock.
	Run func(ctx context.Context, c *Command) int
	// Code, if set, makes the server a scripted one, as Run does. It is called for code
	// in any language, in templates other than base. What it returns is the exception
	// that the code ends with, best an *e2b.ExecutionError; nil is none. Executions of
	// one code context come one after another. If it is nil and Run is not, there is no
	// interpreter.
	Code func(ctx context.Context, c *Code) error

	// APIKey is the one key that is accepted, besides those of Teams. Empty: a random one. Older official
	// SDKs refuse others than "e2b_" with hexadecimal digits.
	APIKey string
	// Teams are further ones, with keys and limits of their own. Server.ClientOptionsFor
	// is for their clients.
	Teams []Team
	// RateLimits are none by default. Of those that match a request the first one counts.
	RateLimits []RateLimit
	// Templates are names from which sandboxes can be created, besides base,
	// code-interpreter and code-interpreter-v1.
	Templates []string
	// EnvdVersion is the version of envd that sandboxes have, up to 0.6.13: what came
	// later is missing or is refused, as old templates do it. Empty: the last one, that of
	// new templates. Sandboxes and snapshots that StateDir has kept stay with their own.
	EnvdVersion string
	// MaxSandboxLifetime is how long a sandbox can run without a pause. 0 means 24 h.
	MaxSandboxLifetime time.Duration
	// MaxSandboxes is how many can run at the same time. 0 means 100.
	MaxSandboxes int
	// MaxConnections is how many requests to one sandbox can be under way at the same
	// time, streams among them. What is too many gets status 429. 0 means no limit.
	MaxConnections int
	// Routes says which generation of the create and connect routes exists.
	Routes Routes

	// HangAfterCancel imitates a fault of E2B's code interpreter, for tests of how a
	// client copes with it. When a call of RunCode is cancelled, its code context is free
	// for the next call before the code has been stopped, and one that comes in this
	// window is never answered. If false, such a call waits until the code has stopped.
	HangAfterCancel bool

	// Faults are there from the start. Server.Inject adds others.
	Faults []Fault

	// Addr and SandboxAddr are the addresses for the API and for traffic to the
	// sandboxes, on loopback. Empty: "127.0.0.1:0", a free port.
	Addr, SandboxAddr string
	// StatusPage shows browsers a page at / of the API's address, with the sandboxes and
	// what they do. It needs no key, and shows none and no token, but metadata.
	StatusPage bool
	// Logger gets what goes wrong and which unknown routes are asked for, and on
	// level debug every request; never a secret. nil means none.
	Logger *slog.Logger

	state *statedir.Dir // nil without StateDir
}

// Routes says which of the twin routes for create and connect a Server has.
// Servers of E2B before September 2026, also self-hosted ones, have only the older
// ones; a client has to get along with each kind.
type Routes uint8

// The choices of Routes.
const (
	AllRoutes Routes = iota
	V1Routes         // POST /sandboxes and /sandboxes/{id}/connect
	V2Routes         // POST /v2/sandboxes and /v2/sandboxes/{id}/connect
)

var envdVersion = regexp.MustCompile(`^(0|[1-9]\d{0,3})(\.(0|[1-9]\d{0,3})){2}$`)

// minMemoryLimit is what a shell that starts a program can live with.
const minMemoryLimit = 8 << 20

// withDefaults checks the options and fills in what is left out.
func (o Options) withDefaults() (Options, error) {
	if o.APIKey == "" {
		var b [20]byte
		_, _ = rand.Read(b[:]) // never fails
		o.APIKey = "e2b_" + hex.EncodeToString(b[:])
	}
	if o.MaxSandboxLifetime == 0 {
		o.MaxSandboxLifetime = 24 * time.Hour
	}
	if o.MaxSandboxes == 0 {
		o.MaxSandboxes = 100
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case o.Dir != "" && o.StateDir != "":
		return o, errors.New("there are both Dir and StateDir, and the files of the sandboxes are in either")
	case o.scripted() && (o.MemoryLimit != 0 || o.ProcessLimit != 0):
		return o, errors.New("MemoryLimit and ProcessLimit: a scripted server has no processes")
	case o.MemoryLimit != 0 && o.MemoryLimit < minMemoryLimit:
		return o, fmt.Errorf("MemoryLimit: %d bytes are too few for a shell: at least %d", o.MemoryLimit, int64(minMemoryLimit))
	case o.ProcessLimit < 0:
		return o, fmt.Errorf("ProcessLimit: %d processes are below zero", o.ProcessLimit)
	case o.scripted() && (o.StateDir != "" || o.Dir != "" || o.HostNetwork):
		return o, errors.New("StateDir, Dir and HostNetwork: a scripted server has no directory and no network for its sandboxes")
	case o.MaxSandboxLifetime < time.Second:
		return o, fmt.Errorf("a maximum lifetime of %v is below a second", o.MaxSandboxLifetime)
	case o.EnvdVersion != "" && !envdVersion.MatchString(o.EnvdVersion):
		return o, fmt.Errorf("EnvdVersion: %q is no version such as 0.5.7", o.EnvdVersion)
	case o.EnvdVersion != "" && control.VersionBefore(control.EnvdVersion, o.EnvdVersion):
		return o, fmt.Errorf("EnvdVersion: %q is newer than %s, the newest version that is emulated", o.EnvdVersion, control.EnvdVersion)
	case o.MaxSandboxes < 0:
		return o, fmt.Errorf("a maximum of %d sandboxes is below zero", o.MaxSandboxes)
	case o.MaxConnections < 0:
		return o, fmt.Errorf("a maximum of %d connections is below zero", o.MaxConnections)
	case o.Routes > V2Routes:
		return o, fmt.Errorf("there are no routes %d", o.Routes)
	}
	if err := errors.Join(o.checkTeams(), o.checkRateLimits()); err != nil {
		return o, err
	}
	for _, name := range o.Templates {
		if !control.ValidTemplateName(name) {
			return o, fmt.Errorf("%q is no name of a template: a name has a-z, 0-9, - and _", name)
		}
	}
	for i := range o.Faults {
		if err := o.Faults[i].check(); err != nil {
			return o, fmt.Errorf("%w: %v", err, o.Faults[i])
		}
	}
	if o.inMemory() {
		return o, nil
	}
	for _, addr := range []*string{&o.Addr, &o.SandboxAddr} {
		if *addr == "" {
			*addr = "127.0.0.1:0"
		}
		if err := checkLoopback(*addr); err != nil {
			return o, err
		}
	}
	return o, nil
}

// inMemory says whether the server has no address.
func (o *Options) inMemory() bool { return o.scripted() && o.Addr == "" && o.SandboxAddr == "" }

// openState opens StateDir. keyless says that its key is to be used.
func (o *Options) openState(keyless bool) (err error) {
	if o.StateDir == "" {
		return nil
	}
	if o.state, err = statedir.Open(o.StateDir, control.NoState); err != nil {
		return fmt.Errorf("StateDir: %w", err)
	}
	if !keyless {
		return nil
	}
	if o.APIKey, err = o.state.Key(o.APIKey); err == nil {
		err = o.checkTeams() // one of them may have the key that was kept
	}
	if err != nil {
		return fmt.Errorf("StateDir: %w", errors.Join(err, o.state.Close()))
	}
	return nil
}

// checkLoopback refuses addresses that others can reach: whoever has the key can
// run programs on this machine.
func checkLoopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	if host == "localhost" {
		return nil
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.IsLoopback() {
		return fmt.Errorf("%q is not an address on loopback, and no other is allowed", addr)
	}
	return nil
}
