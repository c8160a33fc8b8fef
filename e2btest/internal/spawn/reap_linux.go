package spawn

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/agent/proctab"
)

// Reap collects every child that Start did not start as soon as it has ended,
// until stop is closed. It is for pid 1 of a namespace and for a subreaper.
func Reap(stop <-chan struct{}) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	defer signal.Stop(ended)
	for {
		reapOrphans()
		select {
		case <-ended:
		case <-collected:
		case <-stop:
			return
		}
	}
}

func reapOrphans() {
	// No child may be between its start and its entry into owned.
	mu.Lock()
	defer mu.Unlock()
	pids, err := children()
	if err != nil {
		pids, err = childrenFromTable()
		if err != nil {
			return
		}
	}
	for _, pid := range pids {
		if _, ok := owned.Load(pid); ok {
			continue
		}
		for {
			_, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
}

// children lists the children of this process from the lists that the kernel
// keeps per thread, if it was built with them.
func children() ([]int, error) {
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return nil, err
	}
	if len(lists) == 0 {
		return nil, errors.New("spawn: this kernel lists no children")
	}
	var pids []int
	for _, list := range lists {
		data, err := os.ReadFile(list)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			return nil, err
		}
		for field := range strings.FieldsSeq(string(data)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("spawn: %s: %w", list, err)
			}
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func childrenFromTable() ([]int, error) {
	table, err := proctab.List()
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, p := range table {
		if p.PPID == os.Getpid() {
			pids = append(pids, p.PID)
		}
	}
	return pids, nil
}
