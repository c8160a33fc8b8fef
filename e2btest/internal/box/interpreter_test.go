//go:build linux || darwin

package box

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakePython makes a script the only python3 on PATH.
func fakePython(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "python3"), []byte("#!/bin/sh\n"+script), 0o755))
	t.Setenv("PATH", dir)
}

func TestAskPython(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	for name, c := range map[string]struct {
		answer, executable, err string
	}{
		"usual":            {`{"Executable": "/usr/bin/python3", "Prefixes": ["/usr", "/usr"]}`, "/usr/bin/python3", ""},
		"in the home":      {`{"Executable": "/home/me/v/bin/python3", "Prefixes": ["/home/me/v", "/usr"]}`, "/home/me/v/bin/python3", ""},
		"is the home":      {`{"Executable": "/home/me/bin/python3", "Prefixes": ["/home/me", "/usr"]}`, "", "not apart"},
		"above the home":   {`{"Executable": "/home/bin/python3", "Prefixes": ["/home", "/usr"]}`, "", "not apart"},
		"no executable":    {`{"Executable": "", "Prefixes": ["/usr", "/usr"]}`, "", "where it is"},
		"null":             {`{"Executable": null, "Prefixes": null}`, "", "where it is"},
		"relative prefix":  {`{"Executable": "/usr/bin/python3", "Prefixes": ["usr"]}`, "", "prefix"},
		"prefix with dots": {`{"Executable": "/usr/bin/python3", "Prefixes": ["/usr/../home"]}`, "", "prefix"},
		"no answer":        {``, "", "what it is"},
		"another program":  {`Python 2.7`, "", "what it is"},
	} {
		t.Run(name, func(t *testing.T) {
			fakePython(t, "echo '"+c.answer+"'")
			py, err := askPython()
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.executable, py.Executable)
		})
	}
}

// The executable may be a link that is not in the directories of the installation.
func TestAskPythonLink(t *testing.T) {
	installation, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	real := filepath.Join(installation, "bin/python3.13")
	require.NoError(t, os.MkdirAll(filepath.Dir(real), 0o755))
	require.NoError(t, os.WriteFile(real, nil, 0o755))
	link := filepath.Join(t.TempDir(), "python3")
	require.NoError(t, os.Symlink(real, link))
	fakePython(t, `echo '{"Executable": "`+link+`", "Prefixes": ["`+installation+`"]}'`)
	py, err := askPython()
	require.NoError(t, err)
	require.Equal(t, real, py.Executable)
}

func TestAskPythonFails(t *testing.T) {
	fakePython(t, "echo it is broken >&2; exit 3")
	_, err := askPython()
	require.ErrorContains(t, err, "it is broken")

	t.Setenv("PATH", t.TempDir())
	_, err = askPython()
	require.ErrorIs(t, err, exec.ErrNotFound)
	_, err = askNode()
	require.ErrorIs(t, err, exec.ErrNotFound)
}

func TestAskNode(t *testing.T) {
	path, err := exec.LookPath("node")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("this machine has no node: ", err)
	}
	found, err := askNode()
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Dir(filepath.Dir(found.Executable))}, found.Prefixes)
	want, err := exec.Command(path, "--version").Output()
	require.NoError(t, err)
	got, err := exec.Command(found.Executable, "--version").Output()
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

func TestInterpretersAreOnThePath(t *testing.T) {
	n := new(Node)
	n.setInterpreters(interpreters{
		python: &interpreter{Executable: "/p/bin/python3"}, node: &interpreter{Executable: "/n/bin/node"},
	}, "/bin")
	require.Equal(t, "/n/bin:/p/bin:/bin", n.config.Path)
	require.Equal(t, "/p/bin/python3", n.config.Python)
	require.Equal(t, "/n/bin/node", n.config.Node)
	n.setInterpreters(interpreters{noPython: os.ErrNotExist, node: &interpreter{Executable: "/bin/node"}}, "/bin")
	require.Equal(t, "/bin", n.config.Path)
	require.Empty(t, n.config.Python)
	require.Equal(t, os.ErrNotExist.Error(), n.config.PythonErr)
}
