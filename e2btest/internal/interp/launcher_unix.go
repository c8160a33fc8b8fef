//go:build unix

package interp

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
)

//go:embed python/*.py javascript/kernel.js bash/kernel.sh
var programs embed.FS

// A launcher says how the kernels of a language are started and spoken to.
type launcher struct {
	path    string
	args    []string
	program []byte // written to the request pipe first
	style   style

	// give returns what gives the kernel a cell.
	give func(number int, x *cell, cwd string) []byte
	// stop returns what to write after the signal that interrupts a cell. Nil means
	// that an interrupt ends the kernel.
	stop func(number int) []byte
	// lastWords are printed when the interpreter has ended in the middle of a cell,
	// and stand for the error that says so.
	lastWords string
}

// A style is how a kernel deals with its descriptors 0, 1 and 2.
type style int

const (
	// styleOwn: it reads what is written to 1 and 2 itself.
	styleOwn style = iota
	// stylePumped: this program reads that.
	stylePumped
	// styleShell: this program reads that, and does not tell 1 from 2; requests come
	// through 0.
	styleShell
)

func (s *Server) launcher(language string) (launcher, error) {
	switch language {
	case languageJavaScript:
		source, err := programs.ReadFile("javascript/kernel.js")
		return launcher{
			path: s.cfg.Node,
			// With its internals comes the parser that top-level await needs.
			args:  []string{"--expose-internals", "--no-deprecation", "-e", string(source)},
			style: stylePumped,
			give:  giveLine,
		}, err
	case languageBash:
		source, err := programs.ReadFile("bash/kernel.sh")
		return launcher{
			path: s.cfg.Bash,
			// Only an interactive shell survives an interrupt, and drops the rest of the cell.
			args:      []string{"--norc", "--noprofile", "--noediting", "-i"},
			program:   source,
			style:     styleShell,
			give:      giveShell,
			stop:      stopShell,
			lastWords: "Restarting Bash",
		}, err
	default:
		program, err := pythonProgram()
		return launcher{
			path: s.cfg.Python, args: []string{"-c", pythonBoot}, program: program,
			give: giveLine, stop: stopLine,
		}, err
	}
}

// pythonBoot is given to the interpreter as its -c argument. It reads the program
// of the kernel from the request pipe, a number of ten digits before it, so that
// no file has to be put into the sandbox. Until the program is complete, the path
// of modules is without the working directory, where the user may have a file named
// like a standard module.
const pythonBoot = `import sys
PATH = sys.path[:]
sys.path[:] = [place for place in PATH if place]
import json, os
def read(size):
    data = b""
    while len(data) < size:
        part = os.read(3, size - len(data))
        if not part:
            raise SystemExit("the kernel's program is incomplete")
        data += part
    return data
SOURCES = json.loads(read(int(read(10))))
exec(compile(SOURCES["kernel_boot"], "<kernel_boot>", "exec"))`

// pythonProgram is what pythonBoot reads: the sources by module name, in JSON.
var pythonProgram = sync.OnceValues(func() ([]byte, error) {
	sources := make(map[string]string)
	names, err := fs.Glob(programs, "python/*.py")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		source, err := programs.ReadFile(name)
		if err != nil {
			return nil, err
		}
		sources[strings.TrimSuffix(path.Base(name), ".py")] = string(source)
	}
	data, err := json.Marshal(sources)
	if err != nil {
		return nil, err
	}
	return append(fmt.Appendf(nil, "%010d", len(data)), data...), nil
})

func giveLine(number int, x *cell, cwd string) []byte {
	return jsonLine(runRequest{Run: number, Code: x.code, Env: x.env, After: x.after, Cwd: cwd})
}

func stopLine(number int) []byte { return jsonLine(interruptRequest{number}) }

func jsonLine(request any) []byte {
	line, err := json.Marshal(request)
	if err != nil {
		panic(fmt.Sprintf("interp: a struct of strings has no JSON: %v", err)) // cannot happen
	}
	return append(line, '\n')
}

// giveShell returns one command line, so that the shell has read all of it when it
// begins to run it, and an interrupt makes it drop all that is left. It ends as
// bash/kernel.sh says.
func giveShell(number int, x *cell, cwd string) []byte {
	var before, after strings.Builder
	for _, name := range slices.Sorted(maps.Keys(x.env)) {
		// As the real service pastes it: the value may end its quotes.
		fmt.Fprintf(&before, "export %s='%s'\n", name, x.env[name])
		if value, ok := x.after[name]; ok {
			fmt.Fprintf(&after, "export %s=%s\n", name, quoteShell(value))
		} else {
			fmt.Fprintf(&after, "unset %s\n", name)
		}
	}
	line := fmt.Sprintf("__e2b_begin %d %d %s %s; eval %s </dev/null 4>&-; __e2b_end %d\n",
		number, x.count, quoteShell(cwd), quoteShell(after.String()), quoteShell(before.String()+x.code), number)
	return []byte(strings.ReplaceAll(line, "\x00", ""))
}

// stopShell returns an end for a cell that has been interrupted before its own. The
// next signal may take away a character of what is just read.
func stopShell(number int) []byte { return fmt.Appendf(nil, "\n\n\n__e2b_end %d\n", number) }

func quoteShell(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
