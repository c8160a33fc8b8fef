//go:build unix && !linux

package main

import (
	"context"
	"os/exec"
	"strings"
)

// processes lists those that run program, as the first process of each sandbox
// does.
func processes(program string) []string {
	out, _ := exec.CommandContext(context.Background(), "ps", "-axo", "comm").Output()
	var running []string
	for line := range strings.Lines(string(out)) {
		if strings.TrimSpace(line) == program {
			running = append(running, line)
		}
	}
	return running
}
