package proctab

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
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

			Threads: s.threads, CPU: s.cpu, Resident: s.resident,
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
	threads    int
	cpu        time.Duration
	resident   int64
}

// tick is the unit of times in /proc, the same on every system.
const tick = time.Second / 100

func readStat(name string) (stat, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return stat{}, err
	}
	// The name in parentheses may contain anything, also parentheses.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 22 || len(fields[0]) != 1 {
		return stat{}, fmt.Errorf("proctab: %s has an unknown form", name)
	}
	number := func(i int) int64 {
		n, parseErr := strconv.ParseInt(string(fields[i]), 10, 64)
		if parseErr != nil {
			err = fmt.Errorf("proctab: %s: %w", name, parseErr)
		}
		return n
	}
	s := stat{state: fields[0][0], ppid: int(number(1)), pgid: int(number(2)), threads: int(number(17))}
	for i := 11; i < 15; i++ { // its own and those of its children, in user mode and in the kernel
		s.cpu += time.Duration(number(i)) * tick
	}
	s.resident = number(21) * int64(os.Getpagesize())
	return s, err
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

// MemoryOf reads the memory of a process; it is zero if the process has ended or
// nobody may know.
func MemoryOf(pid int) Memory {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		return Memory{}
	}
	var m Memory
	for line := range strings.Lines(string(data)) {
		name, rest, _ := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		kib, _ := strconv.ParseInt(fields[0], 10, 64) // the first line, which is no number, is not asked for
		switch name {
		case "Pss_Anon":
			m.Anonymous = kib << 10
		case "Pss_Shmem":
			m.Shared = kib << 10
		case "Pss_File":
			m.Files = kib << 10
		}
	}
	return m
}

// Command returns the command line of a process, with a space between its
// arguments, or the name in brackets of one that shows none.
func Command(pid int) string {
	dir := "/proc/" + strconv.Itoa(pid)
	if data, err := os.ReadFile(dir + "/cmdline"); err == nil && len(data) > 0 {
		return strings.ReplaceAll(strings.TrimRight(string(data), "\x00"), "\x00", " ")
	}
	name, err := os.ReadFile(dir + "/comm")
	if err != nil {
		return ""
	}
	return "[" + strings.TrimSuffix(string(name), "\n") + "]"
}
