//go:build unix

package interp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// in selects the default context of a language.
func in(language string) map[string]any { return map[string]any{"language": language} }

// dialects say in each language, but Python, what the tests have in common.
var dialects = []struct {
	language    string
	set, get    string // a variable; get prints "42"
	unset       string // prints "" if there is no such variable
	cwd         string // prints the working directory
	wait        string // prints "on" and reads the named pipe %s
	busy        []string
	waiting     []string // where the kernel waits for a child
	die         []string
	deathIsText bool // and not an error
	kept        bool // the variable, after an interrupt
}{
	{
		language: "bash",
		set:      "x=42; f() { echo $x; }", get: "f", unset: "echo -n $x", cwd: "pwd", wait: "echo on; cat %q; echo over",
		busy: []string{
			"echo on\nwhile :; do :; done\nx=0", "while :; do echo on; done", "read line < <(echo on >&2; exec sleep 60); x=0",
		},
		waiting: []string{
			"(echo on; exec sleep 60); x=0", "(echo on; while :; do :; done); x=0",
			"(echo on; exec sleep 60) | cat; x=0", "(echo on; exec sleep 60) & wait; x=0",
		},
		die:         []string{"echo last words; kill -9 $$", "echo last words; exit 3", "echo last words; exec true", "set -e; echo last words; false; echo never"},
		deathIsText: true, kept: true,
	},
	{
		language: "javascript",
		set:      "let x = 42; function f() { console.log(x) }", get: "f()", unset: "typeof x === 'undefined' || console.log(x); undefined",
		cwd: "console.log(process.cwd())", wait: "console.log('on'); require('fs').readFileSync(%q); console.log('over')",
		busy: []string{
			"console.log('on'); await new Promise(() => {})", "console.log('on'); for (;;);", "for (;;) console.log('on')",
			"console.log('on'); require('child_process').execSync('sleep 60')",
		},
		die: []string{"console.log('last words'); process.exit()", "console.log('last words'); process.kill(process.pid, 'SIGKILL'); for (;;);"},
	},
}

// eachDialect runs a test for each of them.
func eachDialect(t *testing.T, test func(t *testing.T, s *service, i int)) {
	for i, d := range dialects {
		t.Run(d.language, func(t *testing.T) {
			if d.language == "javascript" {
				needNode(t)
			}
			test(t, newService(t, nil), i)
		})
	}
}

func TestStateIsKeptInEachLanguage(t *testing.T) {
	eachDialect(t, func(t *testing.T, s *service, i int) {
		d := dialects[i]
		first := s.run(d.set, in(d.language))
		require.Empty(t, first.errors)
		r := s.run(d.get, in(d.language))
		require.Empty(t, r.errors)
		require.Equal(t, "42\n", r.stdout)
		require.Equal(t, first.count+1, r.count)
		for _, blank := range []string{"", " \n"} {
			r = s.run(blank, in(d.language))
			require.Equal(t, []line{
				{"type": "number_of_executions", "execution_count": float64(first.count + 2)}, {"type": "end_of_execution"},
			}, r.lines)
		}

		other := s.context(in(d.language))
		r = s.run(d.unset, other)
		require.Empty(t, r.errors)
		require.Empty(t, r.stdout)
		require.Equal(t, first.count, r.count)

		// A restart takes it away.
		status, _ := s.call(http.MethodPost, fmt.Sprintf("/contexts/%v/restart", other["context_id"]), nil)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, 1, s.run(d.unset, other).count)
		require.Equal(t, "42\n", s.run(d.get, in(d.language)).stdout)
	})
}

func TestCwdInEachLanguage(t *testing.T) {
	eachDialect(t, func(t *testing.T, s *service, i int) {
		d := dialects[i]
		dir, err := filepath.EvalSymlinks(t.TempDir())
		require.NoError(t, err)
		dir = filepath.Join(dir, "it's é")
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.Equal(t, s.dir+"\n", s.run(d.cwd, in(d.language)).stdout)
		c := s.context(in(d.language), map[string]any{"cwd": dir})
		require.Equal(t, dir+"\n", s.run(d.cwd, c).stdout)
		c = s.context(in(d.language), map[string]any{"cwd": "/does/not/exist"})
		require.Equal(t, s.dir+"\n", s.run(d.cwd, c).stdout)
	})
}

func TestOutputComesAsItIsWrittenInEachLanguage(t *testing.T) {
	eachDialect(t, func(t *testing.T, s *service, i int) {
		d := dialects[i]
		fifo := s.fifo("go")
		r := s.start(fmt.Sprintf(d.wait, fifo), in(d.language))
		require.Equal(t, "on\n", r.wait("stdout").text())
		s.release(fifo)
		lines, err := r.rest()
		require.NoError(t, err)
		require.Equal(t, "over\n", summary(t, lines).stdout)
	})
}

func TestCancelInEachLanguage(t *testing.T) {
	eachDialect(t, func(t *testing.T, s *service, i int) {
		d := dialects[i]
		for _, code := range slices.Concat(d.busy, d.waiting) {
			s.run(d.set, in(d.language))
			r := s.start(code, in(d.language))
			r.wait("stdout")
			if slices.Contains(d.waiting, code) {
				awaitWait(t, s.kernelOf(d.language).cmd.Process.Pid)
			}
			r.close()
			after := s.run(d.unset, in(d.language))
			require.Empty(t, after.errors, code)
			require.Equal(t, d.kept, after.stdout != "", code)
			if d.kept {
				require.Equal(t, "42\n", s.run(d.get, in(d.language)).stdout, code)
			}
		}
	})
}

func TestKernelDeathInEachLanguage(t *testing.T) {
	eachDialect(t, func(t *testing.T, s *service, i int) {
		d := dialects[i]
		for _, code := range d.die {
			s.run(d.set, in(d.language))
			r := s.run(code, in(d.language))
			if d.deathIsText {
				require.Empty(t, r.errors, code)
				require.True(t, strings.HasPrefix(r.stdout, "last words\n"), r.stdout)
				require.True(t, strings.HasSuffix(r.stdout, "Restarting Bash"), r.stdout)
			} else {
				require.Equal(t, []string{"ContextRestarting"}, errorNames(r), code)
				require.Equal(t, "last words\n", r.stdout, code)
			}
			after := s.run(d.unset, in(d.language))
			require.Empty(t, after.stdout, code)
			if d.deathIsText {
				require.Equal(t, r.count+1, after.count, code)
			} else {
				require.Equal(t, 1, after.count, code)
			}
		}

		// Nobody is told when it dies between executions.
		pid := s.kernelOf(d.language).cmd.Process.Pid
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		r := s.run(d.unset, in(d.language))
		require.Empty(t, r.errors)
		require.Empty(t, r.stdout)
	})
}

// awaitWait returns when a process waits for a child, where the system tells. An
// interrupt that comes just before cannot always be survived: see remind.
func awaitWait(t *testing.T, pid int) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(30 * time.Second)
	defer late.Stop()
	for {
		where, err := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", pid))
		if errors.Is(err, fs.ErrNotExist) && runtime.GOOS != "linux" || string(where) == "do_wait" {
			return
		}
		require.NoError(t, err)
		select {
		case <-tick.C:
		case <-late.C:
			require.FailNow(t, "the kernel does not wait for a child")
		}
	}
}

// kernelOf is the kernel of the default context of a language.
func (s *service) kernelOf(language string) *process {
	s.t.Helper()
	for i, c := range s.contexts() {
		if c.Language == language {
			return s.kernel(i)
		}
	}
	require.Fail(s.t, "there is no such context")
	return nil
}

func TestRestartWhileRunningInEachLanguage(t *testing.T) {
	eachDialect(t, func(t *testing.T, s *service, i int) {
		d := dialects[i]
		c := s.context(in(d.language))
		s.run(d.set, c)
		r := s.start(d.busy[0], c)
		r.wait("stdout")
		queued := s.start(d.unset, c)
		status, _ := s.call(http.MethodPost, fmt.Sprintf("/contexts/%v/restart", c["context_id"]), nil)
		require.Equal(t, http.StatusOK, status)
		lines, err := r.rest()
		require.NoError(t, err)
		require.Equal(t, []string{"WebSocketError", "UnexpectedEndOfExecution"}, errorNames(summary(t, lines)))
		lines, err = queued.rest()
		require.NoError(t, err)
		require.Empty(t, summary(t, lines).stdout)
		require.Equal(t, 1, summary(t, lines).count)
	})
}

func TestMuchOutputInEachLanguage(t *testing.T) {
	eachDialect(t, func(t *testing.T, s *service, i int) {
		code := map[string]string{
			"bash":       "seq 1 50000; printf 'é%.0s' $(seq 1 50000)",
			"javascript": "const { execSync } = require('child_process'); execSync('seq 1 50000', { stdio: 'inherit' }); console.log('é'.repeat(50000))",
		}[dialects[i].language]
		var want strings.Builder
		for n := range 50000 {
			fmt.Fprintln(&want, n+1)
		}
		want.WriteString(strings.Repeat("é", 50000))
		require.True(t, want.String() == strings.TrimSuffix(s.run(code, in(dialects[i].language)).stdout, "\n"))
	})
}

func TestLargeCodeInEachLanguage(t *testing.T) {
	eachDialect(t, func(t *testing.T, s *service, i int) {
		code := map[string]string{"bash": "s='%s'; echo ${#s}", "javascript": "console.log('%s'.length)"}[dialects[i].language]
		require.Equal(t, "200000\n", s.run(fmt.Sprintf(code, strings.Repeat("é", 200_000)), in(dialects[i].language)).stdout)
	})
}

func TestBash(t *testing.T) {
	s := newService(t, nil)
	for _, c := range []struct{ code, stdout, status string }{
		{"cd /; pwd", "/\n", ""},
		{"pwd", "/\n", ""},
		{"false; true", "", ""},
		{"true; (exit 7)", "", "7"},
		{"nonsense", "bash: nonsense: command not found\n", "127"},
		{"echo out; echo err >&2; echo out", "out\nerr\nout\n", ""},
		{"cat", "", ""}, // there is no input
		{"echo 'it'\\''s' \"$((6 * 7))\" '!!' é", "it's 42 !! é\n", ""},
		{"cat <<'END'\na\n\tb $x\nEND\n# comment", "a\n\tb $x\n", ""},
		{"for i in 1 2\ndo\n  echo $i\ndone", "1\n2\n", ""},
		{"alias hi='echo hello'", "", ""},
		{"hi", "hello\n", ""},
		{"printf 'a\\xff\\n'", "a\ufffd\n", ""},
		{"printf a; printf b >&2", "ab", ""},
		{"exec 5>&1; echo five >&5", "five\n", ""},
		{"echo x >&4 || echo closed", "bash: 4: Bad file descriptor\nclosed\n", ""},
		{"set -u; IFS=0123456789", "", ""},
		{"echo fine; set +u; unset IFS; PS1='prompt'; PROMPT_COMMAND='echo prompt'", "fine\n", ""},
		{"trap 'echo int' INT; kill -INT $$; echo fine", "int\nfine\n", ""},
	} {
		r := s.run(c.code, in("bash"))
		require.Equal(t, c.stdout, r.stdout, c.code)
		require.Empty(t, r.stderr, c.code)
		require.Empty(t, r.results, c.code)
		if c.status == "" {
			require.Empty(t, r.errors, c.code)
		} else {
			require.Equal(t, []line{{"type": "error", "name": "", "value": c.status, "traceback": ""}}, r.errors, c.code)
		}
	}
	// What prints on does not hold up the end.
	r := s.run("yes & echo", in("bash"))
	require.Empty(t, r.errors)
	r = s.run("kill %1; wait; echo fine", in("bash"))
	require.True(t, strings.HasSuffix(r.stdout, "fine\n"), r.stdout[max(0, len(r.stdout)-100):])
	r = s.run("if true; then echo 'open", in("bash"))
	require.Len(t, r.errors, 1)
	require.Contains(t, r.stdout, "unexpected EOF")
	require.Equal(t, "fine\n", s.run("echo fine", in("bash")).stdout)
}

// Cancels at random moments lose nothing, hang nothing, and never hit the next cell.
func TestManyCancelsOfBash(t *testing.T) {
	s := newService(t, nil)
	s.run("n=0", in("bash"))
	rnd := rand.New(rand.NewPCG(1, 2))
	cancelled := 0
	for i := range 100 {
		wait := []string{":", "while :; do :; done", "for ((i = 0; i < 3000; i++)); do :; done"}[rnd.IntN(3)] // see remind
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(6000))*time.Microsecond)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/execute",
			strings.NewReader(`{"language": "bash", "code": "n=$((n + 1)); `+wait+`"}`))
		require.NoError(t, err)
		resp, err := s.client.Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		cancel()
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancelled++
		}
		r := s.run(fmt.Sprintf("seen=%d; sleep 0.002; echo ok", i), in("bash"))
		require.Empty(t, r.errors)
		require.Equal(t, "ok\n", r.stdout)
	}
	r := s.run("echo $seen $n", in("bash"))
	require.True(t, strings.HasPrefix(r.stdout, "99 "), r.stdout)
	n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(r.stdout, "99 ")))
	require.NoError(t, err)
	require.Positive(t, n)
	require.LessOrEqual(t, n, 100)
	require.Positive(t, cancelled)
	require.Less(t, cancelled, 100)
}

// A shell that ignores interrupts does not hold up its context for ever.
func TestStubbornBash(t *testing.T) {
	s := newService(t, nil)
	s.server.patience = 100 * time.Millisecond
	r := s.start("x=1; trap '' INT; echo on; while :; do :; done", in("bash"))
	r.wait("stdout")
	r.close()
	require.Equal(t, "[]\n", s.run("echo [$x]", in("bash")).stdout)
	// One that ends in time does.
	s.server.patience = time.Minute
	s.run("x=1", in("bash"))
	r = s.start("trap '' INT; echo on; for ((i = 0; i < 100000; i++)); do :; done", in("bash"))
	r.wait("stdout")
	r.close()
	require.Equal(t, "1\n", s.run("echo $x", in("bash")).stdout)
}

func TestJavaScript(t *testing.T) {
	needNode(t)
	s := newService(t, nil)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "mine.mjs"), []byte("export default 5; export const six = 6;"), 0o600))
	for _, c := range []struct{ code, main, stdout, stderr string }{
		{"1 + 1", "2", "", ""},
		{"'it\\'s'", "it's", "", ""},
		{"const a = 1; let b = 2; var c = 3; class D {} function e() { return 5 }", "", "", ""},
		{"[a, b, c, typeof D, e()]", "[ 1, 2, 3, 'function', 5 ]", "", ""},
		{"({a: {b: [1, null, undefined]}})", "{ a: { b: [ 1, null, undefined ] } }", "", ""},
		{"null", "null", "", ""},
		{"undefined", "", "", ""},
		{"console.log('é😀', {x: 1}); console.error('err'); console.warn(1)", "", "é😀 { x: 1 }\n", "err\n1\n"},
		{"process.stdout.write(Buffer.from('raw\\n'))", "true", "raw\n", ""},
		{"require('child_process').execSync('echo child; echo bad >&2', {stdio: 'inherit'}); console.log('after')", "", "child\nafter\n", "bad\n"},
		{"await Promise.resolve(7)", "7", "", ""},
		{"const w = await (async () => 8)(); let {x, y: [z = 9, ...more], ...rest} = await {x: 1, y: [], q: 2}; w", "8", "", ""},
		{"[w, x, z, more, rest]", "[ 8, 1, 9, [], { q: 2 } ]", "", ""},
		{"class F { m() { return 'm' } } await 1; function g() { return new F().m() } var v = 1, u;", "", "", ""},
		{"g()", "m", "", ""},
		{"for await (const n of [1, 2]) console.log(n)", "", "1\n2\n", ""},
		{"async function later() { await 1; return 3 }; await later()", "3", "", ""},
		{"import { basename as base, join } from 'path'; import os, * as all from 'node:os'; import 'fs'; base(join('/a', 'b'))", "b", "", ""},
		{"os === all.default", "true", "", ""},
		{"import five, { six } from './mine.mjs'; five + six", "11", "", ""},
		{"(await import('./mine.mjs')).six", "6", "", ""},
		{"process.env.HOME", s.dir, "", ""},
		{"new Map([[1, {a: 2}]])", "Map(1) { 1 => { a: 2 } }", "", ""},
		{"const requireInside = '1'; 'await ' + requireInside", "await 1", "", ""},
	} {
		r := s.run(c.code, in("js"))
		require.Empty(t, r.errors, c.code)
		require.Equal(t, c.stdout, r.stdout, c.code)
		require.Equal(t, c.stderr, r.stderr, c.code)
		require.Equal(t, c.main, r.main(), c.code)
		for _, l := range r.results {
			require.Equal(t, map[string]any{}, l["extra"], c.code)
		}
	}
	for _, c := range []struct{ code, name, value, traceback string }{
		{"throw new TypeError('boom')", "TypeError", "boom", "evalmachine.<anonymous>:1throw new TypeError('boom')"},
		{"function deep() { missing }\ndeep()", "ReferenceError", "missing is not defined", "at deep (evalmachine.<anonymous>:1:19)"},
		{"throw 'x'", "string", "'x'", ""},
		{"throw null", "object", "null", ""},
		{"const a = 2", "SyntaxError", "Identifier 'a' has already been declared", ""},
		{"let (", "SyntaxError", "", ""},
		{"await Promise.reject(new RangeError('later'))", "RangeError", "later", "RangeError: later"},
		{"import './no.mjs'", "Error", "Cannot find module", ""},
	} {
		r := s.run(c.code, in("js"))
		require.Len(t, r.errors, 1, c.code)
		require.Equal(t, c.name, r.errors[0]["name"], c.code)
		require.Contains(t, r.errors[0]["value"], c.value, c.code)
		require.Contains(t, r.errors[0]["traceback"], c.traceback, c.code)
		require.NotContains(t, r.errors[0]["traceback"], "\n", c.code)
		require.Empty(t, r.results, c.code)
	}
	require.Equal(t, "1", s.run("a", in("js")).main(), "errors lose nothing")
	// Nor do those that nobody catches.
	r := s.run("setTimeout(() => { throw new Error('lost') }); Promise.reject(new Error('none')); await new Promise((f) => setTimeout(f, 20))", in("js"))
	require.Empty(t, r.errors)
	require.Contains(t, r.stderr, "Error: lost")
	require.Contains(t, r.stderr, "Error: none")
	require.Equal(t, "1", s.run("a", in("js")).main())
}

func TestVariablesOfACallInEachLanguage(t *testing.T) {
	for _, c := range []struct {
		language, show, escaped, wide string
		bad                           []string
	}{
		{"bash", `printf '%s|' "$WIDE" "${NEW-none}"; cd . || :`, "it'\\''s\n\"x\" \\ $HOME é", "", []string{"it's"}},
		{"javascript", "process.stdout.write([process.env.WIDE, process.env.NEW ?? 'none', ''].join('|')); undefined", "it\\'s\\n\"x\" \\\\ $HOME é", "", []string{"it's", "two\nlines", "end\\", "' + 1 + '"}},
	} {
		t.Run(c.language, func(t *testing.T) {
			if c.language == "javascript" {
				needNode(t)
			}
			s := newService(t, func(cfg *Config) { cfg.Env = map[string]string{"WIDE": "sand'box"} })
			env := func(vars map[string]string) map[string]any {
				all := map[string]any{"env_vars": vars}
				maps.Copy(all, in(c.language))
				return all
			}
			require.Equal(t, "sand'box|none|", s.run(c.show, in(c.language)).stdout)
			require.Equal(t, "1|it's\n\"x\" \\ $HOME é|", s.run(c.show, env(map[string]string{"WIDE": "1", "NEW": c.escaped})).stdout)
			require.Equal(t, "sand'box|none|", s.run(c.show, in(c.language)).stdout)
			for _, bad := range c.bad {
				r := s.run(c.show, env(map[string]string{"NEW": bad}))
				require.Len(t, r.errors, 1, bad)
				require.NotContains(t, r.stdout, "sand'box", "the code does not run without its variables")
			}
			require.Equal(t, "sand'box|none|", s.run(c.show, in(c.language)).stdout)
		})
	}
}

func TestLanguagesThatAreMissing(t *testing.T) {
	s := newService(t, func(c *Config) { c.Node, c.NodeErr, c.Bash, c.BashErr = "", "not \"found\"", "", "not found" })
	for language, want := range map[string]string{
		"js":   `{"message": "The 'javascript' kernel is not available. Please pick another suitable kernel instead, or install that kernel. It needs node: not \"found\"", "short_message": "javascript not found"}`,
		"bash": `{"message": "The 'bash' kernel is not available. Please pick another suitable kernel instead, or install that kernel. There is no bash: not found", "short_message": "bash not found"}`,
		"r":    `{"message": "The 'r' kernel is not available. Please pick another suitable kernel instead, or install that kernel.", "short_message": "r not found"}`,
		"java": `{"message": "The 'java' kernel is not available. Please pick another suitable kernel instead, or install that kernel.", "short_message": "java not found"}`,
	} {
		for _, path := range []string{"/execute", "/contexts"} {
			status, body := s.call(http.MethodPost, path, map[string]any{"code": "1", "language": language})
			require.Equal(t, http.StatusInternalServerError, status)
			require.Equal(t, "Failed to create context: "+want, body)
		}
	}
	require.Len(t, s.contexts(), 1)

	broken := filepath.Join(t.TempDir(), "broken")
	require.NoError(t, os.WriteFile(broken, []byte("#!/bin/sh\necho out of order >&2\nexit 7\n"), 0o700))
	s = newService(t, func(c *Config) { c.Node, c.Bash = broken, broken })
	for _, language := range []string{"js", "bash"} {
		status, body := s.call(http.MethodPost, "/execute", map[string]any{"code": "1", "language": language})
		require.Equal(t, http.StatusInternalServerError, status)
		require.Equal(t, "Failed to create context: the kernel did not start: exit status 7: out of order", body)
	}
}

func TestWholeCharacters(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "abc": 3, "aé": 3, "a\xc3": 1, "😀": 4, "a\xf0\x9f\x98": 1, "\xff": 1, "a\x80\x80\x80\x80\x80": 6, "\xe4\xbd": 0,
	} {
		require.Equal(t, want, wholeCharacters([]byte(text)), "%q", text)
	}
}
