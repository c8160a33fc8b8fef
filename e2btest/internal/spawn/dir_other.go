//go:build !linux

package spawn

import "os/exec"

// Elsewhere no sandbox is isolated.

func guardDir(*exec.Cmd) (done func(), err error) { return func() {}, nil }
