//go:build linux || darwin

package box

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/agent"
)

// interpreter is a python3 or a node and the directories that it needs.
type interpreter struct {
	Executable string
	Prefixes   []string // of the environment and of the installation
}

// use returns the path, and if there is no interpreter, why.
func (i *interpreter) use(err error) (path, reason string) {
	if i == nil {
		return "", err.Error()
	}
	return i.Executable, ""
}

// interpreters are those that this machine has.
type interpreters struct {
	python, node     *interpreter
	noPython, noNode error // why there is none
}

func findInterpreters() (has interpreters) {
	has.python, has.noPython = findPython()
	has.node, has.noNode = findNode()
	return has
}

func (has interpreters) all() (all []*interpreter) {
	for _, i := range []*interpreter{has.python, has.node} {
		if i != nil {
			all = append(all, i)
		}
	}
	return all
}

// findPython and findNode are askPython and askNode once in the life of the process.
var (
	findPython = sync.OnceValues(askPython)
	findNode   = sync.OnceValues(askNode)
)

func askPython() (*interpreter, error) {
	return ask("python3", "-c", `import json, sys
print(json.dumps({"Executable": sys.executable, "Prefixes": [sys.prefix, sys.base_prefix]}))`)
}

func askNode() (*interpreter, error) {
	return ask("node", "-p", `JSON.stringify({
	Executable: process.execPath, Prefixes: [require("path").resolve(process.execPath, "../..")],
})`)
}

// ask asks the program of this name on PATH, which may be a script that picks one,
// what it really is.
func ask(name string, question ...string) (*interpreter, error) {
	const limit = 20 * time.Second

	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, question...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	switch exit, ok := errors.AsType[*exec.ExitError](err); {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s did not answer within %v", name, limit)
	case ok:
		return nil, fmt.Errorf("%s does not work: %w: %s", name, err, strings.TrimSpace(string(exit.Stderr)))
	case err != nil:
		return nil, err
	}
	found := new(interpreter)
	if err := json.Unmarshal(out, found); err != nil {
		return nil, fmt.Errorf("%s does not say what it is: %w", name, err)
	}
	if !filepath.IsAbs(found.Executable) {
		return nil, fmt.Errorf("%s does not say where it is, but %q", name, found.Executable)
	}
	inPrefix := func(path string) bool {
		return slices.ContainsFunc(found.Prefixes, func(prefix string) bool { return agent.Below(path, prefix) })
	}
	if !inPrefix(found.Executable) {
		// A link from elsewhere.
		if real, err := filepath.EvalSymlinks(found.Executable); err == nil && inPrefix(real) {
			found.Executable = real
		}
	}
	home, _ := os.UserHomeDir() // without one there is nothing to protect
	for _, prefix := range found.Prefixes {
		if !filepath.IsAbs(prefix) || prefix != filepath.Clean(prefix) {
			return nil, fmt.Errorf("%s has the prefix %q", name, prefix)
		}
		// A sandbox sees the whole prefix.
		if home != "" && prefix != "/" && agent.Below(home, prefix) && !agent.Below(prefix, "/usr") {
			return nil, fmt.Errorf("the files of %s are not apart from those of the user: its prefix is %s", name, prefix)
		}
	}
	return found, nil
}
