// Package node says what the emulated control plane asks of the machine that
// runs its sandboxes. The local runtime answers with real processes.
package node

import (
	"context"
	"errors"
	"net"
	"time"
)

// The ports that every sandbox has of its own.
const (
	EnvdPort        = 49983
	InterpreterPort = 49999
)

// ClockHeader is a header of requests to envd with which the proxy says how far the
// emulator's clock is ahead of this machine's, as "1h0m0s". None means that it is not.
const ClockHeader = "E2b-Emulator-Clock"

// What every sandbox is said to have.
const (
	CPUCount = 2
	MemoryMB = 512
	DiskMB   = 1982
)

// BaseTemplate is the template that has no code interpreter.
const BaseTemplate = "base"

// ErrPortClosed is returned by Dial when nothing listens on the port.
var ErrPortClosed = errors.New("node: port is not open")

// ErrBusy is returned by Snapshot when the machine cannot make one now, and by the
// methods of a Meter while the sandbox does not run. Nothing has happened to the
// sandbox then.
var ErrBusy = errors.New("node: busy")

// Why the context of a function that stands in for a process has ended.
var (
	ErrTerminated  = errors.New("the command got SIGTERM")
	ErrKilled      = errors.New("it was killed, alone or with its sandbox")
	ErrInterrupted = errors.New("the code was interrupted")
)

// Why Start and Resume may find no place for a sandbox.
var (
	ErrFull         = errors.New("node: no capacity")
	ErrIncompatible = errors.New("node: no compatible machine")
	ErrTimeout      = errors.New("node: timed out")
)

// A RefusedError is a machine's own reason not to start a sandbox, which callers see.
type RefusedError struct{ Text string }

// Error returns the text.
func (e *RefusedError) Error() string { return e.Text }

// A Step is something that the control plane asks a Node for, by its method.
type Step string

// The steps that can be told apart.
const (
	StepStart    Step = "start"
	StepPause    Step = "pause"
	StepResume   Step = "resume"
	StepSnapshot Step = "snapshot"
)

// Spec is what a sandbox is started with.
type Spec struct {
	ID          string
	Template    string
	Image       Image             `json:"-"` // its files; nil: those of the template
	Env         map[string]string // sandbox-wide variables
	AccessToken string            // of envd; empty: envd is open to everyone
	EnvdVersion string
	Volumes     []Volume // that it has
}

// A Volume is a directory that sandboxes share. A node makes it when a sandbox first
// has it, and may have none.
type Volume struct {
	ID   string
	Path string // where it is in the sandbox
}

// A VolumeRemover is a Node that has volumes.
type VolumeRemover interface {
	// RemoveVolume removes the files of a volume, also from under the sandboxes that
	// have it.
	RemoveVolume(id string) error
}

// A Keeper is a Node whose files can outlive it. A Node that is opened on them later
// adopts what is still wanted and drops the rest, before it starts anything.
type Keeper interface {
	// Layout names how the files are made. A Node of another layout cannot use them.
	Layout() string
	// AdoptSandbox returns a sandbox of an earlier Node, paused without memory. It
	// returns fs.ErrNotExist if there are no files of it.
	AdoptSandbox(spec Spec) (Sandbox, error)
	// AdoptImage returns the image that ImageName named to an earlier Node. It returns
	// fs.ErrNotExist if there are no files of it.
	AdoptImage(name string) (Image, error)
	// ImageName names an image of this Node.
	ImageName(image Image) string
	// DropOthers removes the files of all sandboxes and images that were not adopted,
	// and of all volumes but these.
	DropOthers(volumes []string) error
}

// A Node starts sandboxes.
type Node interface {
	// Start boots a fresh sandbox and returns once its envd answers. ctx bounds
	// the boot only.
	Start(ctx context.Context, spec Spec) (Sandbox, error)
	// Close kills every sandbox and removes their files, unless it keeps them as a
	// Keeper.
	Close() error
}

// An Image is the files of a sandbox as they were at one moment. It is gone when
// its Node is closed.
type Image interface {
	// Remove removes it. No sandbox is being started from it then; those that were
	// have their own files.
	Remove() error
}

// A Sandbox is one machine of a Node. Pause, Resume, Snapshot and Kill are never
// called at the same time; Dial may be called at any time.
type Sandbox interface {
	// Pause freezes all processes of the sandbox, also daemonised ones. With
	// keepMemory false it ends them and keeps the files alone.
	Pause(ctx context.Context, keepMemory bool) error
	// Resume undoes Pause. With reboot true, and always after a pause that did
	// not keep memory, it boots from the files.
	Resume(ctx context.Context, reboot bool) error
	// Snapshot copies the files of a running sandbox. Its processes stand still
	// meanwhile and go on afterwards; connections stay.
	Snapshot(ctx context.Context) (Image, error)
	// Kill ends the sandbox and removes its files. It may be called again.
	Kill() error
	// Dial connects to a TCP port inside. It returns ErrPortClosed when nothing
	// listens there.
	Dial(ctx context.Context, port int) (net.Conn, error)
}

// A Meter is a Sandbox that tells what it uses. Its methods may be called at any
// time; they return ErrBusy while the sandbox does not run or changes its state.
type Meter interface {
	// Usage measures the sandbox.
	Usage(ctx context.Context) (Usage, error)
	// Processes lists what runs in the sandbox, the oldest first.
	Processes(ctx context.Context) ([]Process, error)
}

// A Usage is what the processes of a sandbox use. What the system does not tell is
// zero.
type Usage struct {
	CPU    time.Duration // that they have used since the boot
	Memory int64         // bytes
	Cache  int64         // bytes of files that they have in memory
	Disk   int64         // bytes of the files of the sandbox
}

// A Process is one of a sandbox.
type Process struct {
	PID     int
	Command string
}
