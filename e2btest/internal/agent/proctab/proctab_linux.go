package proctab

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// List returns the processes that /proc shows.
func List() ([]Process, error) {
	pids, err := numbers("/proc")
	if err != nil {
		return nil, err
	}
	table := make([]Process, 0, len(pids))
	for _, pid := range pids {
		s, err := readStat("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			continue // it has ended
		}
		table = append(table, Process{
			PID:     pid,
			PPID:    s.ppid,
			PGID:    s.pgid,
			Stopped: s.state == 'T',
			Zombie:  s.state == 'Z' && !hasThreads(pid),
		})
	}
	return table, nil
}

// A process whose first thread has ended is shown as a zombie while other
// threads of it run.
func hasThreads(pid int) bool {
	tids, err := numbers("/proc/" + strconv.Itoa(pid) + "/task")
	return err == nil && len(tids) > 1
}

// Halted reports that no thread of the process can run a user instruction any
// more before it is continued: each is stopped, traced or dead. With signalled,
// which says that a stop signal was sent before, a thread in an uninterruptible
// wait counts too, since it meets the signal when it leaves the kernel.
func Halted(pid int, signalled bool) bool {
	dir := "/proc/" + strconv.Itoa(pid) + "/task/"
	tids, err := numbers(dir)
	if err != nil {
		return true // it has ended
	}
	for _, tid := range tids {
		s, err := readStat(dir + strconv.Itoa(tid) + "/stat")
		if err != nil {
			continue
		}
		switch s.state {
		case 'T', 't', 'Z', 'X':
		case 'D':
			if !signalled {
				return false
			}
		default:
			return false
		}
	}
	return true
}

type stat struct {
	state      byte
	ppid, pgid int
}

func readStat(name string) (stat, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return stat{}, err
	}
	// The name in parentheses may contain anything, also parentheses.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 3 || len(fields[0]) != 1 {
		return stat{}, fmt.Errorf("proctab: %s has an unknown form", name)
	}
	ppid, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return stat{}, fmt.Errorf("proctab: %s: %w", name, err)
	}
	pgid, err := strconv.Atoi(string(fields[2]))
	if err != nil {
		return stat{}, fmt.Errorf("proctab: %s: %w", name, err)
	}
	return stat{state: fields[0][0], ppid: ppid, pgid: pgid}, nil
}

// numbers returns the names in dir that are numbers.
func numbers(dir string) ([]int, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var found []int
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			found = append(found, n)
		}
	}
	return found, nil
}
