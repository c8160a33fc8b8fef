// Package agent is the process that a sandbox of the local runtime consists of:
// pid 1 of the sandbox's own namespaces, or a plain process where there are
// none. It is no program of its own. Its init recognises by the name that the
// running binary was started again under that it is to be a sandbox; it then
// serves until the sandbox ends and never returns.
package agent

import (
	"strings"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// Name is the argv[0] that makes a program that links this package a sandbox. No
// file is likely to be called so.
const Name = "e2b-sandbox:agent"

// What the process inherits, in this order, behind standard error.
const (
	ControlFD     = 3 + iota // to read: the Config, then a Request a line; its end ends the sandbox
	ReplyFD                  // to write: a Reply to the Config and to each Request
	EnvdFD                   // listener of envd
	InterpreterFD            // listener of the interpreter
	ForwardFD                // listener for connections to any other port, see PortOpen
	endFD
)

// What a sandbox calls itself, and the uid of its user "user" if it has more users
// than one. Then it has Users users.
const (
	Hostname = "e2b.local"
	UserID   = 1000
	Users    = 1 << 16
)

// A Config describes the sandbox to be. It is encoded as JSON.
type Config struct {
	Spec node.Spec
	// Root is the directory that has the files of the sandbox.
	Root string
	// Isolated says that the process is pid 1 of own mount, pid, ipc and uts
	// namespaces, and that Root is to become the root of its file system.
	Isolated bool
	// OneUser says that the namespace has no user besides uid 0.
	OneUser bool
	// OwnUsers says that the process has an own user namespace.
	OwnUsers bool
	// OwnNetwork says that the process has an own network namespace.
	OwnNetwork bool
	// Binds are the directories and files of the host to show read-only, at the
	// same path, below Root. What they are mounted on exists.
	Binds []Bind
	// Volumes are directories of the host to show writable, at paths that need not
	// exist.
	Volumes []Volume
	// Tasks are the files "tasks" of the control groups (version 1) that limit the
	// processes of the sandbox, and Commands is the directory of the one of version 2.
	Tasks    []string
	Commands string
	// SharedMemory is how many bytes of files /dev/shm can have, 0: as many as the system
	// lets it have.
	SharedMemory int64
	// Path is the PATH of commands.
	Path string
	// Python is the interpreter. Empty: there is none, PythonErr says why.
	Python    string
	PythonErr string
	// Node is the Node.js, likewise.
	Node    string
	NodeErr string
	// HangAfterCancel is that of interp.Config.
	HangAfterCancel bool
}

// A Bind is a directory or a file of the host that a sandbox sees.
type Bind struct {
	Path string
	// Optional says that the sandbox starts without it if it has moved away what
	// the bind is mounted on.
	Optional bool
}

// A Volume is a directory of the host that a sandbox sees at a path of its own.
type Volume struct{ Source, Path string }

// SystemMounts are the directories of a sandbox that have no files of its own.
var SystemMounts = []string{"/dev", "/proc", "/sys"}

// Below says whether path is dir or in it. Both are absolute and clean.
func Below(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/"))
	return ok && (rest == "" || rest[0] == '/')
}

// A Request asks a running agent for something.
type Request struct {
	Op Op
}

// An Op is what a Request asks for.
type Op string

// What can be asked for.
const (
	Freeze Op = "freeze" // stop all processes but the agent
	Thaw   Op = "thaw"   // continue those that Freeze stopped

	Usage     Op = "usage"     // measure the sandbox
	Processes Op = "processes" // list what runs
)

// A Reply says how it went. An empty Error means well.
type Reply struct {
	Error     string
	Usage     node.Usage
	Processes []node.Process
}

// On a connection to ForwardFD the client first writes the port number and a
// newline, and reads one of these. After PortOpen the connection is one to the
// port.
const (
	PortOpen   = "+\n"
	PortClosed = "-\n"
)
