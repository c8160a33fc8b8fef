// Package statedir is the directory in which a server keeps its state: a file with
// what it knows, its API key, and the files of its sandboxes.
package statedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	lockName      = "lock"
	stateName     = "state.json"
	keyName       = "api-key"
	sandboxesName = "sandboxes"
	newSuffix     = ".new"
)

// A Dir is an open directory. Nobody else has it.
type Dir struct {
	path string
	lock *os.File
}

// Open opens a directory for this user alone, and makes it if need be. A fresh one
// gets the initial state. One that holds other things is refused.
func Open(path, initial string) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	d := &Dir{path: path}
	if err := d.checkOurs(); err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o700); err != nil {
		return nil, err
	}
	if d.lock, err = lock(filepath.Join(path, lockName)); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if _, err := os.Lstat(d.StateFile()); errors.Is(err, fs.ErrNotExist) {
		if err := d.Save([]byte(initial)); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return d, nil
}

// checkOurs refuses a directory that was not made by Open.
func (d *Dir) checkOurs() error {
	if _, err := os.Lstat(d.StateFile()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch e.Name() {
		case lockName, stateName + newSuffix: // it was being made
		default:
			return fmt.Errorf("%s has %s in it and no %s: it is not the directory of a server", d.path, e.Name(), stateName)
		}
	}
	return nil
}

func (d *Dir) file(name string) string { return filepath.Join(d.path, name) }

// StateFile is the path of the file with the state.
func (d *Dir) StateFile() string { return d.file(stateName) }

// Sandboxes is the directory for the files of the sandboxes, which may not be there
// yet. A nil Dir has none.
func (d *Dir) Sandboxes() string {
	if d == nil {
		return ""
	}
	return d.file(sandboxesName)
}

// State reads the state.
func (d *Dir) State() ([]byte, error) { return os.ReadFile(d.StateFile()) }

// Save replaces the state. A crash leaves either the old one or the new one.
func (d *Dir) Save(state []byte) error { return d.write(stateName, state) }

// Key returns the API key that is kept, which is fresh the first time.
func (d *Dir) Key(fresh string) (string, error) {
	text, err := os.ReadFile(d.file(keyName))
	if errors.Is(err, fs.ErrNotExist) {
		return fresh, d.write(keyName, []byte(fresh+"\n"))
	}
	if err != nil {
		return "", err
	}
	key := strings.TrimSpace(string(text))
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s holds no key", d.file(keyName))
	}
	return key, nil
}

func (d *Dir) write(name string, text []byte) (err error) {
	// What is there was left by a crash, or by somebody who wants to read along.
	if err := os.Remove(d.file(name) + newSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(d.file(name)+newSuffix, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync() // or the name may be there before the text
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), d.file(name))
}

// Close lets others have the directory. A nil Dir has nothing to close.
func (d *Dir) Close() error {
	if d == nil {
		return nil
	}
	return unlock(d.lock)
}
