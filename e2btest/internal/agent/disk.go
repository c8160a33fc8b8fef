//go:build linux || darwin

package agent

import (
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	// maxFiles is how many files are measured: those beyond do not count.
	maxFiles = 200_000
	// diskPatience is how long a measurement is waited for.
	diskPatience = 50 * time.Millisecond
	// diskRest is how many times as long as a measurement took none is made.
	diskRest = 50
)

// A disk measures the files below a directory, with a small part of the processor's
// time however many there are.
type disk struct {
	dir string

	mu       sync.Mutex
	bytes    int64         // when it was measured last
	next     time.Time     // not to be measured before
	measured chan struct{} // nil: it is not being measured
}

// used is the bytes that the files had when they were measured last, which is now
// if that is quick.
func (d *disk) used() int64 {
	d.mu.Lock()
	if d.measured == nil && !time.Now().Before(d.next) {
		d.measured = make(chan struct{})
		go d.measure(d.measured)
	}
	measured := d.measured
	d.mu.Unlock()
	if measured != nil {
		select {
		case <-measured:
		case <-time.After(diskPatience):
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bytes
}

func (d *disk) measure(done chan<- struct{}) {
	begin := time.Now()
	n := sizeOf(d.dir)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bytes, d.measured = n, nil
	d.next = time.Now().Add(diskRest * time.Since(begin))
	close(done)
}

// sizeOf adds up what files below dir take on the disk. What vanishes meanwhile or
// cannot be read does not count.
func sizeOf(dir string) int64 {
	seen := make(map[uint64]bool) // inodes with several names, all of one file system
	var bytes int64
	files := 0
	errEnough := errors.New("enough")
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if files++; files > maxFiles {
			return errEnough
		}
		if err != nil {
			return nil //nolint:nilerr // see above
		}
		info, err := e.Info()
		if err != nil {
			return nil //nolint:nilerr // see above
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		if st.Nlink > 1 && !e.IsDir() {
			if seen[st.Ino] {
				return nil
			}
			seen[st.Ino] = true
		}
		bytes += st.Blocks * 512
		return nil
	})
	return bytes
}
