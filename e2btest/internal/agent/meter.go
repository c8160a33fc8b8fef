//go:build linux || darwin

package agent

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/agent/proctab"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/envd"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// sharedMemory is where a sandbox with an own root has its shared memory.
const sharedMemory = "/dev/shm"

// A meter measures a sandbox.
type meter struct {
	tree  *tree
	shm   string // the directory of shared memory that is the sandbox's own, if it has one
	files disk

	mu  sync.Mutex
	cpu time.Duration // the most that was measured
}

func (m *meter) usage() (node.Usage, error) {
	// Before the table: what ends in between is missing for now, and not there twice.
	var ended unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &ended); err != nil {
		return node.Usage{}, err
	}
	table, err := m.tree.processes()
	if err != nil {
		return node.Usage{}, err
	}
	u := node.Usage{CPU: time.Duration(ended.Utime.Nano() + ended.Stime.Nano())}
	for _, p := range table {
		u.CPU += p.CPU
	}
	u.Memory, u.Cache = m.memory(table)
	u.Disk = m.files.used()

	m.mu.Lock()
	defer m.mu.Unlock()
	m.cpu = max(m.cpu, u.CPU)
	u.CPU = m.cpu
	return u, nil
}

// memory is what the processes have, and of files.
func (m *meter) memory(table []proctab.Process) (used, files int64) {
	var shared int64
	for _, p := range table {
		mem := proctab.MemoryOf(p.PID)
		if mem == (proctab.Memory{}) {
			mem.Anonymous = p.Resident
		}
		used += mem.Anonymous
		shared += mem.Shared
		files += mem.Files
	}
	// Shared memory is in files, whether a process has them open or not.
	return used + max(shared, m.sharedFiles()), files
}

func (m *meter) sharedFiles() int64 {
	var fs unix.Statfs_t
	if m.shm == "" || unix.Statfs(m.shm, &fs) != nil {
		return 0
	}
	return int64(fs.Blocks-fs.Bfree) * int64(fs.Bsize) //nolint:unconvert // it is another type on macOS
}

// processes lists what runs, the oldest first.
func (m *meter) processes() ([]node.Process, error) {
	table, err := m.tree.processes()
	if err != nil {
		return nil, err
	}
	list := make([]node.Process, 0, len(table))
	for _, p := range slices.Backward(table) {
		if command := proctab.Command(p.PID); command != "" { // else it has ended
			list = append(list, node.Process{PID: p.PID, Command: command})
		}
	}
	return list, nil
}

// machine is what the sandbox says of itself.
func (m *meter) machine() envd.Machine {
	u, _ := m.usage() // zero if the system does not tell
	return envd.Machine{
		CPUs: node.CPUCount, CPUTime: u.CPU, Memory: u.Memory, MemoryTotal: node.MemoryMB << 20,
		Cache: u.Cache, Disk: u.Disk, DiskTotal: node.DiskMB << 20,
	}
}
