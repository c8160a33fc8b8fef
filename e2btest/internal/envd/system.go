package envd

import (
	"encoding/json"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

func (s *Server) getEnvs(w http.ResponseWriter, _ *http.Request) {
	env := s.cfg.Env
	if env == nil {
		env = map[string]string{}
	}
	writeState(w, env)
}

// writeState answers with something that is different the next time.
func writeState(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(v) // the client is gone
}

// metrics is the answer of /metrics. Where the system does not tell, there are
// zeros.
type metrics struct {
	Time        int64   `json:"ts"`
	CPUs        int     `json:"cpu_count"`
	CPUUsed     float64 `json:"cpu_used_pct"`
	MemTotalMiB uint64  `json:"mem_total_mib"`
	MemUsedMiB  uint64  `json:"mem_used_mib"`
	MemTotal    uint64  `json:"mem_total"`
	MemUsed     uint64  `json:"mem_used"`
	MemCache    uint64  `json:"mem_cache"`
	DiskUsed    uint64  `json:"disk_used"`
	DiskTotal   uint64  `json:"disk_total"`
}

// A Machine is what the sandbox that a server works in has, and uses; in bytes.
type Machine struct {
	CPUs                int
	CPUTime             time.Duration // used so far
	Memory, MemoryTotal int64
	Cache               int64
	Disk, DiskTotal     int64
}

func (s *Server) getMetrics(w http.ResponseWriter, _ *http.Request) {
	if s.cfg.Machine != nil {
		writeState(w, s.metricsOf(s.cfg.Machine()))
		return
	}
	m := metrics{Time: s.now().Unix(), CPUs: runtime.NumCPU(), CPUUsed: s.cpu.used(readCPU())}
	mem := readMemory()
	m.MemTotal, m.MemCache = mem["MemTotal"], mem["Cached"]
	m.MemUsed = m.MemTotal - min(m.MemTotal, mem["MemAvailable"])
	m.MemTotalMiB, m.MemUsedMiB = m.MemTotal>>20, m.MemUsed>>20
	dir := "/"
	if s.cfg.Root != "" {
		dir = s.cfg.Root
	}
	m.DiskUsed, m.DiskTotal = diskSpace(dir)
	writeState(w, m)
}

// metricsOf tells of a machine. The first call tells of the processors since the
// server was made.
func (s *Server) metricsOf(m Machine) metrics {
	now := s.now()
	clock := cpuTime{busy: uint64(m.CPUTime), total: uint64(now.Sub(s.began)) * uint64(m.CPUs)}
	return metrics{
		Time: now.Unix(), CPUs: m.CPUs, CPUUsed: min(100, s.cpu.used(clock)),
		MemTotalMiB: uint64(m.MemoryTotal) >> 20, MemUsedMiB: uint64(m.Memory) >> 20,
		MemTotal: uint64(m.MemoryTotal), MemUsed: uint64(m.Memory), MemCache: uint64(m.Cache),
		DiskUsed: uint64(m.Disk), DiskTotal: uint64(m.DiskTotal),
	}
}

// cpuTime counts the time of all processors, in any unit, from any start.
type cpuTime struct{ busy, total uint64 }

// readCPU reads the first line of /proc/stat: user, nice, system, idle, iowait
// and so on.
func readCPU() cpuTime {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return cpuTime{}
	}
	line, _, _ := strings.Cut(string(data), "\n")
	var t cpuTime
	for i, field := range strings.Fields(line) {
		n, err := strconv.ParseUint(field, 10, 64)
		if err != nil || i > 8 { // the label; guest time is in user time already
			continue
		}
		t.total += n
		if i != 4 && i != 5 {
			t.busy += n
		}
	}
	return t
}

// A cpuClock remembers when it was read.
type cpuClock struct {
	mu   sync.Mutex
	last cpuTime
}

// used returns the percentage since the call before.
func (c *cpuClock) used(now cpuTime) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.last
	c.last = now
	if now.total <= last.total || now.busy < last.busy {
		return 0
	}
	return 100 * float64(now.busy-last.busy) / float64(now.total-last.total)
}

// readMemory returns the bytes of each line of /proc/meminfo.
func readMemory() map[string]uint64 {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil
	}
	mem := make(map[string]uint64)
	for line := range strings.Lines(string(data)) {
		name, rest, _ := strings.Cut(line, ":")
		if fields := strings.Fields(rest); len(fields) > 0 {
			if kib, err := strconv.ParseUint(fields[0], 10, 64); err == nil {
				mem[name] = kib << 10
			}
		}
	}
	return mem
}
