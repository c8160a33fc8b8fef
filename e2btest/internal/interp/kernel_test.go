//go:build unix

package interp

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStateIsKept(t *testing.T) {
	s := newService(t, nil)
	r := s.run("import math\nx = 1\ndef f(n):\n    return n + x")
	require.Equal(t, 1, r.count)
	require.Empty(t, r.results)
	r = s.run("x = 40\nf(math.floor(2.5))")
	require.Equal(t, 2, r.count)
	require.Equal(t, "42", r.main())
	require.Equal(t, "84", s.run("_ * 2").main())
	require.Equal(t, "42", s.run("Out[2]").main())
	require.Equal(t, "__main__", s.run("f.__module__").main())
	require.Equal(t, "42", s.run("import pickle; pickle.loads(pickle.dumps(f))(2)").main())
}

func TestExecutionCount(t *testing.T) {
	s := newService(t, nil)
	for i, code := range []string{"1", "", " \n\t", "# nothing", "1/0", "def f(:", "raise SystemExit", "2"} {
		want := []int{1, 2, 2, 2, 3, 4, 5, 6}[i]
		require.Equal(t, want, s.run(code).count, "%q", code)
	}
}

func TestResults(t *testing.T) {
	s := newService(t, nil)
	for _, c := range []struct {
		name, code string
		want       []line // without type, and without extra where that is empty
	}{
		{"nothing", "None", nil},
		{"statement", "a = 1", nil},
		{"silent", "1;", nil},
		{"silent with a comment", "1;  # one; two", nil},
		{"semicolon in a comment", "1  # one;", []line{{"text": "1", "is_main_result": true}}},
		{"semicolon in a string", "'one;'", []line{{"text": "one;", "is_main_result": true}}},
		{"last expression only", "1\n2", []line{{"text": "2", "is_main_result": true}}},
		{"string", `"it's"`, []line{{"text": "it's", "is_main_result": true}}},
		{"quotes inside", `type("T", (), {"__repr__": lambda s: "'x' and 'y'"})()`, []line{{"text": "x' and 'y", "is_main_result": true}}},
		{"empty string", `''`, []line{{"text": "", "is_main_result": true}}},
		{"list", "[1, 'two', None]", []line{{"text": "[1, 'two', None]", "json": []any{1.0, "two", nil}, "is_main_result": true}}},
		{"dict", "{1: True, None: float('inf')}", []line{{"text": "{1: True, None: inf}", "json": map[string]any{"1": true, "null": nil}, "is_main_result": true}}},
		{"more than 64 bits", "[2**64]", []line{{"text": "[18446744073709551616]", "is_main_result": true}}},
		{"no JSON", "[object]", []line{{"text": "[object]", "is_main_result": true}}},
		{"lone surrogate", `['\ud800']`, []line{{"text": `['\ud800']`, "is_main_result": true}}},
		{"tuple", "(1,)", []line{{"text": "(1,)", "is_main_result": true}}},
		{"nested", "{'a': [1] * 30, 'b': {'c': 2}}", []line{{
			"text":           "{'a': [" + strings.Repeat("1,\n       ", 29) + "1],\n 'b': {'c': 2}}",
			"json":           map[string]any{"a": slice(1.0, 30), "b": map[string]any{"c": 2.0}},
			"is_main_result": true,
		}}},
		{"cycle", "l = [1]; l.append(l); l", []line{{"text": "[1, [...]]", "is_main_result": true}}},
		{"class", "int", []line{{"text": "int", "is_main_result": true}}},
		{"set", "{3, 1, 2}", []line{{"text": "{1, 2, 3}", "is_main_result": true}}},
		{"methods", `class H:
    def __repr__(self): return 'h'
    def _repr_html_(self): return '<b>'
    def _repr_markdown_(self): return '*m*'
    def _repr_svg_(self): return '<svg/>'
    def _repr_latex_(self): return '$l$'
    def _repr_javascript_(self): return 'j'
    def _repr_png_(self): return b'\x89PNG'
    def _repr_jpeg_(self): return 'AAAA', {'width': 1}
    def _repr_pdf_(self): return b'%PDF'
    def _repr_json_(self): return {'a': 1}
    def _repr_e2b_chart_(self): return {'type': 'line'}
    def _repr_e2b_data_(self): return {'c': [1]}
H()`, []line{{
			"text": "h", "html": "<b>", "markdown": "*m*", "svg": "<svg/>", "latex": "$l$", "javascript": "j",
			"png": "iVBORw==", "jpeg": "AAAA", "pdf": "JVBERg==", "json": map[string]any{"a": 1.0},
			"chart": map[string]any{"type": "line"}, "data": map[string]any{"c": []any{1.0}}, "is_main_result": true,
		}}},
		{"class with methods", "H", []line{{"text": "__main__.H", "is_main_result": true}}},
		{"mime bundle", `class M:
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {'text/plain': 'm', 'application/x': {'a': [1]}}, {'meta': 1}
M()`, []line{{"text": "m", "extra": map[string]any{"application/x": map[string]any{"a": []any{1.0}}}, "is_main_result": true}}},
		{"displays itself", `class D:
    def _ipython_display_(self): display('d')
D()`, []line{{"text": "d", "is_main_result": false}}},
		{"has every name", `class A:
    def __getattr__(self, name): return lambda *a, **k: 'no'
    def __repr__(self): return 'a'
A()`, []line{{"text": "a", "is_main_result": true}}},
		{"displays", "display('d', 2)\ndisplay({'image/gif': 'R0lG'}, raw=True)\n3", []line{
			{"text": "d", "is_main_result": false},
			{"text": "2", "is_main_result": false},
			{"extra": map[string]any{"image/gif": "R0lG"}, "is_main_result": false},
			{"text": "3", "is_main_result": true},
		}},
		{"a package for notebooks", `from IPython.display import Image, display as show
show(Image(data=b'\x89PNG'))`, []line{{
			"text": "<IPython.core.display.Image object>", "png": "iVBORw==", "is_main_result": false,
		}}},
	} {
		r := s.run(c.code)
		require.Empty(t, r.errors, c.name)
		require.Empty(t, r.stderr, c.name)
		var got []line
		for _, l := range r.results {
			require.Contains(t, l, "extra", c.name)
			require.Contains(t, l, "is_main_result", c.name)
			if extra, ok := l["extra"].(map[string]any); ok && len(extra) == 0 {
				delete(l, "extra")
			}
			delete(l, "type")
			got = append(got, l)
		}
		require.Equal(t, c.want, got, c.name)
	}
}

func slice(v any, n int) []any {
	s := make([]any, n)
	for i := range s {
		s[i] = v
	}
	return s
}

func TestErrors(t *testing.T) {
	s := newService(t, nil)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "broken.py"), []byte("def f():\n    return {}['k']\n"), 0o600))
	for _, c := range []struct {
		code, name, value string
		traceback         []string
	}{
		{"a = 1\na / 0", "ZeroDivisionError", "division by zero", []string{"Cell In[", "----> 2 a / 0", "      1 a = 1"}},
		{"import broken\nbroken.f()", "KeyError", "'k'", []string{"----> 2 broken.f()", "broken.py:2, in f()", "return {}['k']"}},
		{"def f(:", "SyntaxError", "invalid syntax", []string{"line 1", "def f(:", "^"}},
		{"if True:\nx", "IndentationError", "expected an indented block", []string{"line 2"}},
		{"input('?')", "StdinNotImplementedError", "raw_input was called, but this frontend does not support input requests.", []string{"input('?')"}},
		{"import getpass\ngetpass.getpass()", "StdinNotImplementedError", "getpass was called, but this frontend does not support input requests.", nil},
		{"raise KeyboardInterrupt", "KeyboardInterrupt", "", []string{"raise KeyboardInterrupt"}},
		{"def r(n): r(n + 1)\nr(0)", "RecursionError", "maximum recursion depth exceeded", []string{"skipping"}},
		{"try:\n    1/0\nexcept Exception:\n    undefined", "NameError", "name 'undefined' is not defined", []string{"ZeroDivisionError", "During handling of the above exception, another exception occurred:"}},
		{"try:\n    1/0\nexcept Exception as e:\n    raise ValueError('v') from e", "ValueError", "v", []string{"ZeroDivisionError", "The above exception was the direct cause of the following exception:"}},
		{"class Bad(Exception):\n    def __str__(self): raise RuntimeError\nraise Bad()", "Bad", "<exception str() failed: RuntimeError>", nil},
		{"class R:\n    def __repr__(self): raise ValueError('no')\nR()", "ValueError", "no", []string{"__repr__(self): raise"}},
		{"%nothing", "UsageError", "Line magic function `%nothing` not found.", nil},
		{"%%nothing\nx", "UsageError", "Cell magic `%%nothing` not found.", nil},
		{"import asyncio\nasyncio.run(asyncio.sleep(0))", "RuntimeError", "asyncio.run() cannot be called from a running event loop", nil},
	} {
		r := s.run(c.code)
		require.Len(t, r.errors, 1, c.code)
		require.Equal(t, c.name, r.errors[0]["name"], c.code)
		require.Contains(t, r.errors[0]["value"], c.value, c.code)
		for _, part := range c.traceback {
			require.Contains(t, r.errors[0]["traceback"], part, c.code)
		}
		require.NotContains(t, r.errors[0]["traceback"], "<kernel_", c.code)
	}
	require.Equal(t, "1", s.run("a").main(), "errors lose nothing")
}

func TestSystemExit(t *testing.T) {
	s := newService(t, nil)
	r := s.run("import sys\nx = 7\nsys.exit(3)")
	require.Len(t, r.errors, 1)
	require.Equal(t, "SystemExit", r.errors[0]["name"])
	require.Equal(t, "3", r.errors[0]["value"])
	require.Contains(t, r.stderr, "UserWarning: To exit: use 'exit', 'quit', or Ctrl-D.")
	r = s.run("try:\n    sys.exit()\nfinally:\n    print(x)")
	require.Equal(t, "7\n", r.stdout)
	require.Empty(t, r.stderr, "said once is enough")
}

func TestExit(t *testing.T) {
	s := newService(t, nil)
	for _, code := range []string{
		"x = 1\nexit()\nprint('still')",
		"print('still'); quit",
		"import atexit; atexit.register(print, 'late'); exit(2); print('still')",
	} {
		r := s.run(code)
		require.Equal(t, 1, r.count)
		require.Empty(t, r.errors)
		require.Equal(t, "still\n", r.stdout)
		require.Empty(t, r.results)
	}
	require.Equal(t, 1, s.run("1").count)
}

func TestOutput(t *testing.T) {
	s := newService(t, nil)
	r := s.run(`import os, subprocess, sys, threading
print("1 é 你 😀")
print("2", file=sys.stderr)
os.system("echo 3; echo 4 >&2")
sys.stdout.buffer.write(b"5\n\xff\n")
print("6", end="")
thread = threading.Thread(target=print, args=("", "7"), kwargs={"sep": ""})
thread.start(); thread.join()
_ = subprocess.run(["printf", "8\\r\\n"], stdout=sys.stdout)
print("9", file=sys.stderr, flush=True)
display("10")
print("11", flush=True)
sys.stdout.writelines(["12", "\n"])`)
	require.Empty(t, r.errors)
	var got []string
	for _, l := range r.lines[1 : len(r.lines)-1] {
		if l.kind() != "result" {
			stamp, _ := l["timestamp"].(string)
			at, err := time.Parse(time.RFC3339Nano, stamp)
			require.NoError(t, err)
			require.WithinDuration(t, time.Now(), at, time.Minute)
			require.True(t, strings.HasSuffix(stamp, "+00:00"), stamp)
		}
		// Texts of one stream that come in pieces are one text.
		if n := len(got) - 1; n >= 0 && strings.HasPrefix(got[n], l.kind()+" ") {
			got[n] += l.text()
		} else {
			got = append(got, l.kind()+" "+l.text())
		}
	}
	require.Equal(t, []string{
		"stdout 1 é 你 😀\n", "stderr 2\n", "stdout 3\n", "stderr 4\n", "stdout 5\n\ufffd\n67\n8\r\n",
		"stderr 9\n", "result 10", "stdout 11\n12\n",
	}, got)
}

func TestOutputOfChildrenIsComplete(t *testing.T) {
	s := newService(t, nil)
	// Much more than a pipe holds, and characters that are cut in two.
	r := s.run("import os\nos.system('seq 1 50000')\nos.write(1, 'é'.encode() * 100_000)\nprint('end')")
	require.Empty(t, r.errors)
	var want strings.Builder
	for i := range 50000 {
		fmt.Fprintln(&want, i+1)
	}
	want.WriteString(strings.Repeat("é", 100_000) + "end\n")
	require.True(t, want.String() == r.stdout)
}

func TestLongLine(t *testing.T) {
	s := newService(t, nil)
	const size = 20 << 20
	r := s.run("print('x' * (20 << 20))")
	require.Len(t, r.stdout, size+1)
	longest := 0
	for _, l := range r.lines {
		longest = max(longest, len(l.text()))
	}
	require.GreaterOrEqual(t, longest, size, "it comes in one line")
}

func TestManyLines(t *testing.T) {
	s := newService(t, nil)
	r := s.run("for i in range(100_000): print(i)")
	var want strings.Builder
	for i := range 100_000 {
		fmt.Fprintln(&want, i)
	}
	require.True(t, want.String() == r.stdout)
	r = s.run("for i in range(5_000): print(i, flush=True)")
	require.Equal(t, 5000, strings.Count(r.stdout, "\n"))
	require.Empty(t, r.stderr)
}

func TestLargeResult(t *testing.T) {
	s := newService(t, nil)
	r := s.run("list(range(50_000))")
	require.Len(t, r.results, 1)
	require.Len(t, r.results[0]["json"], 50_000)
	require.True(t, strings.HasSuffix(r.main(), " 999,\n ...]"))
	require.True(t, strings.Repeat("é", 1_000_000) == s.run("'é' * 1_000_000").main())
}

func TestLargeCode(t *testing.T) {
	s := newService(t, nil)
	require.Equal(t, "1000000", s.run("s = '"+strings.Repeat("é", 1_000_000)+"'\nlen(s)").main())
}

func TestShell(t *testing.T) {
	s := newService(t, nil)
	file := filepath.Join(s.dir, "f")
	for _, c := range []struct{ code, stdout, stderr, main string }{
		{"x = 'a b'\n!echo '{x}' $x $HOME_SWEET {x + '!'}; echo e >&2", "a b a b a b!\r\ne\r\n", "", ""},
		{"if True:\n    !echo in\nprint('after')", "in\r\nafter\n", "", ""},
		{"s = '''\n!no\n'''\n!echo one \\\n  two\nprint(s)", "one two\r\n\n!no\n\n", "", ""},
		{"!false\n_exit_code", "", "", "1"},
		{"l = !echo 1; echo 2\nl", "", "", "['1', '2']"},
		{"!!echo 1", "", "", "['1']"},
		{"%%bash\necho out; echo err >&2; cat", "out\n", "err\n", ""},
		{"%%sh -e\nfalse || echo sh", "sh\n", "", ""},
		{"%cd /\n%pwd", "/\n", "", "/"},
		{"%env A=1\nimport os; os.environ['A']", "env: A=1\n", "", "1"},
		{"%env A", "", "", "1"},
		{"%matplotlib inline\n7", "", "", "7"},
		{"%%writefile " + file + "\nl1\nl2", "Writing " + file + "\n", "", ""},
		{"print(open('" + file + "').read())", "l1\nl2\n", "", ""},
		{"    y = 5\n    y", "", "", "5"},
		{"10 \\\n% 4", "", "", "2"},
	} {
		r := s.run(c.code)
		require.Empty(t, r.errors, c.code)
		require.Equal(t, c.stdout, r.stdout, c.code)
		require.Equal(t, c.stderr, r.stderr, c.code)
		require.Equal(t, c.main, r.main(), c.code)
	}
	r := s.run("%time 6 * 7")
	require.Equal(t, "42", r.main())
	require.Contains(t, r.stdout, "Wall time: ")
	r = s.run("%%time\nz = 1\nz")
	require.Equal(t, "1", r.main())
	require.Contains(t, r.stdout, "Wall time: ")
	r = s.run("%%bash\nexit 3")
	require.Len(t, r.errors, 1)
	require.Equal(t, "CalledProcessError", r.errors[0]["name"])
	require.Contains(t, r.errors[0]["value"], "returned non-zero exit status 3")
}

func TestAwait(t *testing.T) {
	s := newService(t, nil)
	r := s.run(`import asyncio
async def f(n):
    await asyncio.sleep(0.001)
    return n
x = [await f(i) for i in range(3)]
await f(x)`)
	require.Empty(t, r.errors)
	require.Equal(t, "[0, 1, 2]", r.main())
	// A task goes on between cells, as in a notebook.
	require.Empty(t, s.run(`done = asyncio.Event()
async def later():
    for _ in range(5): await asyncio.sleep(0.001)
    done.set()
task = asyncio.get_running_loop().create_task(later())`).errors)
	require.Equal(t, "True", s.run("await done.wait()").main())
	// One that goes wrong harms nothing.
	require.Empty(t, s.run(`async def bad(): raise SystemExit
task = asyncio.create_task(bad())
await asyncio.sleep(0.001)`).errors)
	require.Equal(t, "[0, 1, 2]", s.run("x").main())
}

func TestFork(t *testing.T) {
	s := newService(t, nil)
	r := s.run(`import os
pid = os.fork()
if pid:
    os.waitpid(pid, 0)
print("parent" if pid else "child")`)
	require.Empty(t, r.errors)
	require.Equal(t, "child\nparent\n", r.stdout)
	r = s.run(`import multiprocessing
def work(n): return n * n
with multiprocessing.get_context("fork").Pool(2) as pool:
    squares = pool.map(work, range(4))
squares`)
	require.Empty(t, r.errors)
	require.Equal(t, "[0, 1, 4, 9]", r.main())
}

func TestVariablesOfACall(t *testing.T) {
	awkward := "it's\n\"quoted\" \\ {x} $HOME é"
	escaped := `it\'s\n"quoted" \\ {x} $HOME é` // for the quotes between which it is pasted
	s := newService(t, func(c *Config) {
		c.Environ = append(c.Environ, "WIDE=overridden", "OTHER=other")
		c.Env = map[string]string{"WIDE": "sandbox"}
	})
	env := func(pairs ...string) map[string]any {
		vars := make(map[string]string)
		for i := 0; i < len(pairs); i += 2 {
			vars[pairs[i]] = pairs[i+1]
		}
		return map[string]any{"env_vars": vars}
	}
	show := "import os; print([os.environ.get(n) for n in ('WIDE', 'OTHER', 'NEW')])"
	require.Equal(t, "['sandbox', 'other', None]\n", s.run(show).stdout)
	require.Equal(t, "['1', '2', '3']\n", s.run(show, env("WIDE", "1", "OTHER", "2", "NEW", "3")).stdout)
	require.Equal(t, "['sandbox', 'other', None]\n", s.run(show).stdout)

	r := s.run("print(os.environ['NEW'])\n1/0", env("NEW", escaped))
	require.Equal(t, awkward+"\n", r.stdout)
	require.Contains(t, r.errors[0]["traceback"], "----> 2 1/0")
	require.Equal(t, "True", s.run("'NEW' not in os.environ").main())
	require.Equal(t, "a b\n", s.run("%%bash\necho $NEW", env("NEW", "a b")).stdout)

	// Code may change them, too.
	s.run("os.environ['WIDE'] = 'mine'; os.environ['NEW'] = 'mine'; del os.environ['OTHER']", env("WIDE", "1", "OTHER", "2"))
	require.Equal(t, "['sandbox', 'other', 'mine']\n", s.run(show).stdout)

	for _, pair := range [][2]string{
		{"", "v"},
		{"A=B", "v"},
		{"A\x00", "v"},
		{"A", "it's"},
		{"A", "two\nlines"},
		{"A", "end\\"},
		{"A", "' + str(1) + '"},
		{"A", `\0`},
	} {
		r = s.run("print(1)", env(pair[0], pair[1]))
		require.Len(t, r.errors, 1, "%q", pair)
		require.Empty(t, r.stdout, "the code does not run without its variables")
	}
	require.Equal(t, "1\n", s.run("print(1)", map[string]any{"env_vars": nil}).stdout)
}
