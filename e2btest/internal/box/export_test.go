//go:build linux || darwin

package box

import "github.com/seed-09a7379d/e2b-go/e2btest/internal/node"

// PID returns the process of a sandbox.
func PID(s node.Sandbox) int { return s.(*sandbox).proc.cmd.Process.Pid }

// Root returns the directory with the files of a sandbox.
func Root(s node.Sandbox) string { return s.(*sandbox).root() }

// Ended is closed when the process of a sandbox has ended.
func Ended(s node.Sandbox) <-chan struct{} { return s.(*sandbox).proc.ended }

// Dir returns the directory with everything of a node.
func Dir(n *Node) string { return n.dir.path }
