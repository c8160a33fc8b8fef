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

// interpreter is a python3 and the directories that it needs.
type interpreter struct {
	Executable string
	Prefixes   []string // of the environment and of the installation
}

// findPython is askPython once in the life of the process.
var findPython = sync.OnceValues(askPython)

// askPython asks the python3 on PATH, which may be a script that picks one, what
// it really is.
func askPython() (*interpreter, error) {
	const question = `import json, sys
print(json.dumps({"Executable": sys.executable, "Prefixes": [sys.prefix, sys.base_prefix]}))`
	const limit = 20 * time.Second

	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "python3", "-c", question)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	switch exit, ok := errors.AsType[*exec.ExitError](err); {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("python3 did not answer within %v", limit)
	case ok:
		return nil, fmt.Errorf("python3 does not work: %w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	case err != nil:
		return nil, err
	}
	py := new(interpreter)
	if err := json.Unmarshal(out, py); err != nil {
		return nil, fmt.Errorf("python3 does not say what it is: %w", err)
	}
	if !filepath.IsAbs(py.Executable) {
		return nil, fmt.Errorf("python3 does not say where it is, but %q", py.Executable)
	}
	inPrefix := func(path string) bool {
		return slices.ContainsFunc(py.Prefixes, func(prefix string) bool { return agent.Below(path, prefix) })
	}
	if !inPrefix(py.Executable) {
		// A link from elsewhere.
		if real, err := filepath.EvalSymlinks(py.Executable); err == nil && inPrefix(real) {
			py.Executable = real
		}
	}
	home, _ := os.UserHomeDir() // without one there is nothing to protect
	for _, prefix := range py.Prefixes {
		if !filepath.IsAbs(prefix) || prefix != filepath.Clean(prefix) {
			return nil, fmt.Errorf("python3 has the prefix %q", prefix)
		}
		// A sandbox sees the whole prefix.
		if home != "" && prefix != "/" && agent.Below(home, prefix) && !agent.Below(prefix, "/usr") {
			return nil, fmt.Errorf("the files of python3 are not apart from those of the user: its prefix is %s", prefix)
		}
	}
	return py, nil
}
