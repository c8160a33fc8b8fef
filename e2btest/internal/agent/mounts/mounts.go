//go:build linux

// Package mounts reads what is mounted in the mount namespace of the process.
package mounts

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// A Mount is one line of the list.
type Mount struct {
	Root    string   // what of the file system is mounted
	Path    string   // where
	Options []string // of the mount, not of the file system
	Type    string   // of the file system
	Super   []string // options of the file system
}

// List returns what is mounted.
func List() ([]Mount, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parse(f)
}

func parse(r io.Reader) ([]Mount, error) {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var mounts []Mount
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) && line == "" {
			return mounts, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		// id parent device root path options [tag]... - type source super-options
		fields := strings.Fields(line)
		dash := slices.Index(fields, "-")
		if dash < 6 || dash+1 >= len(fields) {
			return nil, fmt.Errorf("mounts: unknown form of line %q", line)
		}
		m := Mount{
			Root:    unescape.Replace(fields[3]),
			Path:    unescape.Replace(fields[4]),
			Options: strings.Split(fields[5], ","),
			Type:    fields[dash+1],
		}
		if dash+3 < len(fields) {
			m.Super = strings.Split(fields[dash+3], ",")
		}
		mounts = append(mounts, m)
	}
}
