package agent

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/spawn"
)

// groups are the control groups that limit the processes of the sandbox. This one is in
// none of them: it has to start threads and processes whatever those do.
type groups struct {
	tasks    []*os.File // version 1: the files that take a thread
	commands *os.File   // version 2: the directory, which stays open
}

// openGroups opens them while the host's files can be seen.
func openGroups(cfg *Config) (_ *groups, err error) {
	g := &groups{}
	for _, path := range cfg.Tasks {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			g.close()
			return nil, err
		}
		g.tasks = append(g.tasks, f)
	}
	if cfg.Commands != "" {
		if g.commands, err = os.OpenFile(cfg.Commands, unix.O_DIRECTORY|unix.O_PATH, 0); err != nil {
			g.close()
			return nil, err
		}
	}
	return g, nil
}

// close closes what is of no use once children have been prepared.
func (g *groups) close() {
	for _, f := range g.tasks {
		f.Close()
	}
}

// prepareChildren makes of the thread that starts children what they are to inherit.
func prepareChildren(cfg *Config, g *groups) error {
	for _, f := range g.tasks {
		// In version 1 a thread can be in another group than its process, and what it
		// starts is in the thread's.
		if _, err := f.WriteString("0"); err != nil {
			return fmt.Errorf("enter the control group: %w", err)
		}
	}
	if g.commands != nil {
		spawn.IntoCgroup(g.commands)
	}
	if !cfg.Isolated {
		return nil
	}
	spawn.GuardDirs()
	if err := leaveKeys(); err != nil {
		return err
	}
	return dropCapabilities()
}

// leaveKeys leaves behind the keys of the session that the emulator was started in: a
// user namespace does not.
func leaveKeys() error {
	session, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false)
	switch {
	case err == nil:
		// What a thread without keys of a session has is that of its user in its namespace.
		if own, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_SESSION_KEYRING, false); err == nil && own == session {
			return nil
		}
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
		// The kernel has no keys, or a filter, which children inherit, lets nobody ask for
		// them, as containers have one.
		return nil
	}
	// Also a session that has ended is left: a terminal can outlive the login it is from.
	if _, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("leave the keys of the session: %w", err)
	}
	return nil
}
