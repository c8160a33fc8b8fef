// Package box is the local runtime: a node that runs each sandbox as a child
// process of the emulator. On Linux, where the kernel allows it, that is the first
// process of own namespaces, with an own root, own processes and an own network;
// elsewhere it is a plain process in a private directory.
package box

import "log/slog"

// Options configures New. The zero value is useful.
type Options struct {
	// Dir is where the directory for the files of the sandboxes is made. Empty: in
	// the system's directory for temporary files.
	Dir string
	// Keep is the directory for the files of the sandboxes, instead of one in Dir. It
	// is made if need be, and the files stay when the Node is closed: see node.Keeper.
	// The caller sees to it that no other Node has it.
	Keep string
	// HostNetwork lets sandboxes use the network of the host.
	HostNetwork bool
	// RequireIsolation makes New fail where sandboxes cannot be isolated.
	RequireIsolation bool
	// NoIsolation runs plain processes also where sandboxes can be isolated.
	NoIsolation bool
	// NoCgroup stops processes by signals also where control groups can freeze them.
	NoCgroup bool
	// MemoryLimit, in bytes, and ProcessLimit are for the processes of each sandbox
	// together, and count them as the kernel does: threads are processes. 0: there is
	// none. New fails where they do not hold, also where sandboxes cannot be isolated.
	MemoryLimit  int64
	ProcessLimit int
	// HangAfterCancel imitates a fault of the real code interpreter: see interp.Config.
	HangAfterCancel bool
	// Logger may be nil.
	Logger *slog.Logger
}
