package proctab

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// States of a process, from sys/proc.h.
const (
	stopped = 4
	zombie  = 5
)

// List returns the processes of the system.
func List() ([]Process, error) {
	procs, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, fmt.Errorf("proctab: %w", err)
	}
	table := make([]Process, 0, len(procs))
	for i := range procs {
		p := &procs[i]
		table = append(table, Process{
			PID:     int(p.Proc.P_pid),
			PPID:    int(p.Eproc.Ppid),
			PGID:    int(p.Eproc.Pgid),
			Stopped: p.Proc.P_stat == stopped,
			Zombie:  p.Proc.P_stat == zombie,
		})
	}
	return table, nil
}

// Halted reports that the process is stopped or has ended. The system says no
// more about threads, so that signalled makes no difference.
func Halted(pid int, _ bool) bool {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	return err != nil || p.Proc.P_stat == stopped || p.Proc.P_stat == zombie
}

// MemoryOf returns zero: the system tells programs without cgo no more.
func MemoryOf(int) Memory { return Memory{} }

// Command returns the name of a process.
func Command(pid int) string {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(p.Proc.P_comm[:])
}
