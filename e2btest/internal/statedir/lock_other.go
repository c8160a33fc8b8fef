//go:build !linux && !darwin

package statedir

import (
	"errors"
	"os"
)

// lock is not possible on this system.
func lock(string) (*os.File, error) {
	return nil, errors.New("state can be kept on Linux and macOS alone")
}

func unlock(f *os.File) error { return f.Close() }
