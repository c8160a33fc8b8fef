package main

import (
	"os"
	"path/filepath"
)

// processes lists those that run program, as the first process of each sandbox
// does.
func processes(program string) []string {
	var running []string
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == program {
			running = append(running, link)
		}
	}
	return running
}
