//go:build linux || darwin

// Package proctab reads the process table of the system.
package proctab

import (
	"slices"
	"time"
)

// A Process is one line of the table.
type Process struct {
	PID, PPID, PGID int
	Stopped         bool // by a signal
	Zombie          bool

	// What follows is zero where the system does not tell.

	Threads  int
	CPU      time.Duration // that it has used, with those of its children that it has collected
	Resident int64         // bytes, those that it shares among them
}

// A Memory is the bytes of memory that a process has, with its part of those that it
// shares.
type Memory struct{ Anonymous, Shared, Files int64 }

// Below returns the descendants of pid, and the members of the process groups,
// with all their descendants. It returns neither pid itself nor zombies.
func Below(table []Process, pid int, groups []int) []Process {
	children := make(map[int][]Process)
	var found []Process
	for _, p := range table {
		children[p.PPID] = append(children[p.PPID], p)
		if slices.Contains(groups, p.PGID) {
			found = append(found, p)
		}
	}
	found = append(found, children[pid]...)
	seen := map[int]bool{pid: true}
	var below []Process
	for len(found) > 0 {
		p := found[len(found)-1]
		found = found[:len(found)-1]
		if seen[p.PID] {
			continue
		}
		seen[p.PID] = true
		found = append(found, children[p.PID]...)
		if !p.Zombie {
			below = append(below, p)
		}
	}
	return below
}
