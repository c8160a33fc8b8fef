//go:build !linux && !darwin

package envd

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"

	"github.com/creack/pty"
)

// Here the package compiles, so that what imports it does, and serves files;
// commands need a Unix shell.

const openNoWait = 0

var outOfSpace []error

var errLoop = errors.New("too many links")

func prepare(*exec.Cmd, *User, bool) {}

func keepFiles() {}

func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill() // already gone is as good
	}
}

func groupAlive(int) bool { return false }

func openTerminal(pty.Winsize) (master, tty *os.File, err error) {
	return nil, nil, errors.ErrUnsupported
}

func resizeTerminal(*os.File, pty.Winsize) error { return errors.ErrUnsupported }

func owner(fs.FileInfo) (uid, gid uint32, ok bool) { return 0, 0, false }

func diskSpace(string) (used, total uint64) { return 0, 0 }

func attrsUnsupported(err error) bool { return errors.Is(err, errors.ErrUnsupported) }

type fileAttrs struct{ f *os.File }

func (fileAttrs) list([]byte) (int, error)        { return 0, errors.ErrUnsupported }
func (fileAttrs) get(string, []byte) (int, error) { return 0, errors.ErrUnsupported }
func (fileAttrs) set(string, string) error        { return errors.ErrUnsupported }
func (fileAttrs) remove(string) error             { return errors.ErrUnsupported }

type pathAttrs string

func (pathAttrs) list([]byte) (int, error)        { return 0, errors.ErrUnsupported }
func (pathAttrs) get(string, []byte) (int, error) { return 0, errors.ErrUnsupported }
