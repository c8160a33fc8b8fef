package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

func interpreterChecks() []check {
	return []check{
		{"interpreter/pause", codeAcrossPause},
		{"interpreter/interrupt", codeInterrupted},
		{"interpreter/health", func(p *probe) { p.interpret("GET", "/health", nil).is(200).says(`"OK"`) }},
		{"interpreter/output", codeOutput},
		{"interpreter/results", codeResults},
		{"interpreter/error", codeError},
		{"interpreter/state", codeState},
		{"interpreter/env-vars", codeEnvVars},
		{"interpreter/queue", codeQueue},
		{"interpreter/display", codeDisplay},
		{"interpreter/contexts", codeContexts},
		{"interpreter/context-restart", codeContextRestart},
		{"interpreter/bad-requests", codeBadRequests},
		{"interpreter/bash", codeBash},
		{"interpreter/javascript", codeJavaScript},
		{"interpreter/dataframe", codeDataFrame},
		{"interpreter/chart", codeChart},
	}
}

var inBody = header{"Content-Type", "application/json"}

// interpret sends a request to the interpreter of the sandbox that checks share.
func (p *probe) interpret(method, path string, body any) *answer {
	s := p.code(p)
	p.answersCode(s)
	return p.ask(s, codePort, method, path, encoded(body), inBody)
}

// answersCode waits until a sandbox's interpreter is up.
func (p *probe) answersCode(s *sandbox) {
	p.eventually("the interpreter to be up", func() (bool, string) {
		a := p.ask(s, codePort, http.MethodGet, "/health", "")
		return a.status != http.StatusBadGateway, a.seen()
	})
}

// An execution is the answer to code.
type execution struct {
	p              *probe
	code           string
	stdout, stderr string
	results        []fields
	errors         []fields
	count          float64
	ended          bool
}

// execute runs code to its end in the sandbox that checks share.
func (p *probe) execute(body object) *execution {
	p.answersCode(p.code(p))
	return p.executeIn(p.code(p), body)
}

func (p *probe) executeIn(s *sandbox, body object) *execution {
	e, done := p.executing(p.ctx, s, body)
	defer done()
	for e.next() {
	}
	p.holds(e.ended, "POST /execute: end_of_execution as the last line", "the end of the stream")
	return e.execution
}

// An executing is an execution under way.
type executing struct {
	*execution
	lines *bufio.Reader
}

// executing starts code; done ends the request.
func (p *probe) executing(ctx context.Context, s *sandbox, body object) (e *executing, done func()) {
	base, always := p.url(s, codePort)
	ctx, cancel := context.WithCancel(ctx)
	resp, err := p.open(ctx, p.data, http.MethodPost, base+"/execute", encoded(body), append(always, inBody)...)
	if err != nil {
		cancel()
		p.failErr("an answer to POST /execute", err)
	}
	done = func() {
		cancel()
		_ = resp.Body.Close()
	}
	if resp.StatusCode != http.StatusOK {
		b, _, _ := transport.ReadBody(resp.Body, maxBody)
		done()
		a := &answer{p: p, request: "POST /execute", status: resp.StatusCode, header: resp.Header, body: string(b)}
		if body["language"] != nil && strings.Contains(a.body, "kernel is not available") {
			p.unsupported(a.seen())
		}
		a.is(http.StatusOK)
	}
	code, _ := body["code"].(string)
	return &executing{&execution{p: p, code: code}, bufio.NewReader(resp.Body)}, done
}

// next reads a line, and returns false after the last.
func (e *executing) next() bool {
	if e.ended {
		return false
	}
	line, err := e.lines.ReadBytes('\n')
	if err != nil {
		e.p.failErr("POST /execute: lines until end_of_execution", err)
	}
	f := fields{e.p, "POST /execute", nil}
	if err := json.Unmarshal(line, &f.m); err != nil {
		e.p.fail("POST /execute: lines of JSON", fmt.Sprintf("%.300q", line))
	}
	switch f.text("type") {
	case "stdout":
		e.stdout += timed(f).text("text")
	case "stderr":
		e.stderr += timed(f).text("text")
	case "result":
		f.flag("is_main_result")
		f.object("extra")
		e.results = append(e.results, f)
	case "error":
		e.errors = append(e.errors, f)
	case "number_of_executions":
		e.count = f.number("execution_count")
	case "end_of_execution":
		e.ended = true
	}
	return true
}

func timed(f fields) fields {
	f.time("timestamp")
	return f
}

// fine fails the check if the code failed.
func (e *execution) fine() *execution {
	if len(e.errors) > 0 {
		e.p.fail(fmt.Sprintf("no error of the code %.100q", e.code), encoded(e.errors[0].m))
	}
	return e
}

// main is the result of the last expression.
func (e *execution) main() fields {
	for _, f := range e.fine().results {
		if f.flag("is_main_result") {
			return f
		}
	}
	e.p.fail(fmt.Sprintf("a main result of the code %.100q", e.code), fmt.Sprintf("%d others", len(e.results)))
	return fields{}
}

// failed fails the check unless the code failed with that error.
func (e *execution) failed(name, value string) fields {
	e.p.holds(len(e.errors) > 0, fmt.Sprintf("an error of the code %.100q", e.code), "none")
	e.errors[0].expect("name", name)
	e.errors[0].expect("value", value)
	return e.errors[0]
}

func codeOutput(p *probe) {
	e := p.execute(object{"code": "import sys\nprint('out é\\n', end='')\nprint('err', file=sys.stderr)\nNone"}).fine()
	equal(p, "stdout", "out é\n", e.stdout)
	equal(p, "stderr", "err\n", e.stderr)
	p.holds(len(e.results) == 0, "no result for None", len(e.results))
	p.holds(e.count > 0, "a number_of_executions above zero", e.count)
}

func codeResults(p *probe) {
	run := func(code string) fields { return p.execute(object{"code": code}).main() }
	run("1 + 2").expect("text", "3")
	f := run("'it is text'")
	f.expect("text", "it is text") // without its quotes
	f.lacks("json")
	f = run("{'a': [1, None, 'x']}")
	f.expect("json", object{"a": []any{1, nil, "x"}})
	f.expect("extra", object{})
	e := p.execute(object{"code": "1\n2;"}).fine()
	p.holds(len(e.results) == 0, "no result for an expression with a semicolon", len(e.results))
	p.execute(object{"code": ""}).fine()
}

func codeError(p *probe) {
	f := p.execute(object{"code": "print('before')\n1/0"}).failed("ZeroDivisionError", "division by zero")
	p.holds(strings.Contains(f.text("traceback"), "ZeroDivisionError"), f.of+": a traceback that names the error", f.text("traceback"))
	e := p.execute(object{"code": "def f(:"})
	p.holds(len(e.errors) > 0, "an error of code that is no Python", "none")
	e.errors[0].expect("name", "SyntaxError")
	p.execute(object{"code": "import sys; sys.exit(3)"}).failed("SystemExit", "3")
	p.execute(object{"code": "raise ValueError('a\\nb')"}).failed("ValueError", "a\nb")
}

// newContext makes a context of the check's own, so that others cannot disturb it.
func (p *probe) newContext(body object) string {
	return p.interpret("POST", "/contexts", body).is(200).fields().text("id")
}

func codeState(p *probe) {
	id := p.newContext(object{})
	p.execute(object{"code": "x = 41", "context_id": id}).fine()
	p.execute(object{"code": "x + 1", "context_id": id}).main().expect("text", "42")
	other := p.newContext(object{})
	p.execute(object{"code": "x", "context_id": other}).failed("NameError", "name 'x' is not defined")
	count := p.execute(object{"code": "1", "context_id": id}).count
	equal(p, "the count of the next execution", count+1, p.execute(object{"code": "1", "context_id": id}).count)
}

func codeEnvVars(p *probe) {
	id := p.newContext(object{})
	code := "import os; os.environ.get('CONFORMANCE')"
	p.execute(object{"code": code, "context_id": id, "env_vars": object{"CONFORMANCE": "set"}}).main().expect("text", "set")
	e := p.execute(object{"code": code, "context_id": id}).fine()
	p.holds(len(e.results) == 0, "no variable after the execution that had it", len(e.results))
}

// A second execution in the same context waits for the first.
func codeQueue(p *probe) {
	id := p.newContext(object{})
	first, done := p.executing(p.ctx, p.code(p), object{"context_id": id, "code": "import time\nprint('on', flush=True)\ntime.sleep(0.5)\ny = 1"})
	defer done()
	for first.stdout == "" && first.next() {
	}
	p.execute(object{"code": "y", "context_id": id}).main().expect("text", "1")
	for first.next() {
	}
	first.fine()
}

func codeDisplay(p *probe) {
	code := `
from IPython.display import display, HTML, Markdown, JSON, Latex, SVG
display(HTML("<b>bold</b>"))
display(Markdown("**bold**"))
display(JSON({"a": 1}))
display(Latex("$x$"))
display({"application/x-conformance": "extra", "text/plain": "plain"}, raw=True)
`
	e := p.execute(object{"code": code})
	if len(e.errors) > 0 && strings.HasPrefix(e.errors[0].text("name"), "ModuleNotFound") {
		p.unsupported(e.errors[0].text("value"))
	}
	e.fine()
	p.holds(len(e.results) == 5, "5 results", len(e.results))
	for i, want := range []struct {
		name  string
		value any
	}{
		{"html", "<b>bold</b>"},
		{"markdown", "**bold**"},
		{"json", object{"a": 1}},
		{"latex", "$x$"},
		{"extra", object{"application/x-conformance": "extra"}},
	} {
		e.results[i].expect(want.name, want.value)
		e.results[i].expect("is_main_result", false)
	}
}

func codeContexts(p *probe) {
	f := p.interpret("POST", "/contexts", object{"language": "Python", "cwd": "/tmp"}).is(200).fields()
	id := f.text("id")
	f.expect("language", "python")
	f.expect("cwd", "/tmp")
	p.execute(object{"code": "import os; os.getcwd()", "context_id": id}).main().expect("text", "/tmp")
	p.interpret("GET", "/contexts", nil).is(200).contains(id)
	p.interpret("DELETE", "/contexts/"+id, nil).is(200).says("null")
	missing := "Context " + id + " not found"
	p.interpret("DELETE", "/contexts/"+id, nil).is(404).says(missing)
	p.interpret("POST", "/contexts/"+id+"/restart", nil).is(404).says(missing)
	p.interpret("POST", "/execute", object{"code": "1", "context_id": id}).is(404).says(missing)
	for _, f := range p.interpret("GET", "/contexts", nil).is(200).list() {
		p.holds(f.text("id") != id, "no context that was deleted in the list", id)
		f.text("language")
		f.text("cwd")
	}
}

func codeContextRestart(p *probe) {
	id := p.newContext(object{})
	p.execute(object{"code": "z = 1", "context_id": id}).fine()
	p.interpret("POST", "/contexts/"+id+"/restart", nil).is(200).says("null")
	e := p.execute(object{"code": "z", "context_id": id})
	e.failed("NameError", "name 'z' is not defined")
	equal(p, "the count of the first execution after a restart", 1, e.count)
}

func codeBadRequests(p *probe) {
	post := func(body any) *answer { return p.interpret("POST", "/execute", body) }
	post(object{"code": "1", "context_id": "x", "language": "python"}).is(400).says("Only one of context_id or language can be provided")
	post(object{"code": "1", "context_id": "x"}).is(404).says("Context x not found")
	post(object{"code": "1", "language": "cobol"}).is(500).contains("cobol not found")
	for _, body := range []any{object{}, object{"code": 1}, "{"} {
		p.holds(len(post(body).is(422).fields().values("detail")) > 0, "POST /execute: details of what is wrong", "none")
	}
	p.interpret("GET", "/execute", nil).is(405).fields().expect("detail", "Method Not Allowed")
	p.interpret("GET", "/conformance", nil).is(404).fields().expect("detail", "Not Found")
}

func codeBash(p *probe) {
	e := p.execute(object{"code": "x=5; echo $((x + 1))", "language": "bash"}).fine()
	equal(p, "stdout", "6\n", strings.ReplaceAll(e.stdout, "\r", ""))
	p.execute(object{"code": "(exit 3)", "language": "bash"}).failed("", "3")
}

func codeJavaScript(p *probe) {
	e := p.execute(object{"code": "console.log('out'); 1 + 2", "language": "js"})
	e.main().expect("text", "3")
	equal(p, "stdout", "out\n", e.stdout)
	p.execute(object{"code": "throw new TypeError('bad')", "language": "javascript"}).failed("TypeError", "bad")
}

// withModule runs code that needs a Python module, which a template may lack.
func (p *probe) withModule(module, code string) *execution {
	if e := p.execute(object{"code": "import " + module}); len(e.errors) > 0 {
		p.unsupported("import " + module + ": " + e.errors[0].text("value"))
	}
	return p.execute(object{"code": code})
}

func codeDataFrame(p *probe) {
	f := p.withModule("pandas", "import pandas\npandas.DataFrame({'a': [1, 2], 'b': ['x', 'y']})").main()
	f.expect("data", object{"a": []int{1, 2}, "b": []string{"x", "y"}})
	p.holds(strings.Contains(f.text("html"), "<table"), f.of+": html with a table", f.text("html"))
}

func codeChart(p *probe) {
	e := p.withModule("matplotlib", "import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4], label='line')\nplt.title('a title')\nplt.show()").fine()
	p.holds(len(e.results) > 0, "a figure", "no result")
	figure := e.results[len(e.results)-1]
	p.holds(strings.HasPrefix(figure.text("png"), "iVBOR"), figure.of+": a png in base64", figure.text("png"))
	chart := figure.object("chart")
	chart.expect("type", "line")
	chart.expect("title", "a title")
	chart.expect("elements", []object{{"label": "line", "points": [][]int{{1, 3}, {2, 4}}}})
}

func codeAcrossPause(p *probe) {
	s := p.make(object{"templateID": p.target.CodeTemplate})
	p.answersCode(s)
	p.executeIn(s, object{"code": "kept = 'still here'"}).fine()
	p.pause(s)
	p.connect(s, 60).is(201)
	p.executeIn(s, object{"code": "kept"}).main().expect("text", "still here")
}

// A client that goes away interrupts its code, and the state of Python stays.
func codeInterrupted(p *probe) {
	id := p.newContext(object{})
	p.execute(object{"code": "kept = 1", "context_id": id}).fine()
	first, done := p.executing(p.ctx, p.code(p), object{"context_id": id, "code": "import time\nprint('on', flush=True)\ntime.sleep(600)"})
	for first.stdout == "" && first.next() {
	}
	done()
	// What comes before the interrupt has arrived may be lost for ever: ask anew.
	p.eventually("the context to be free after its client has gone", func() (bool, string) {
		ctx, cancel := context.WithTimeout(p.ctx, 2*time.Second)
		defer cancel()
		base, always := p.url(p.code(p), codePort)
		a, err := p.send(ctx, p.data, http.MethodPost, base+"/execute", encoded(object{"code": "kept", "context_id": id}), append(always, inBody)...)
		if err != nil {
			return false, err.Error()
		}
		return strings.Contains(a.body, `"end_of_execution"`) && strings.Contains(a.body, `"text":`), a.seen()
	})
	p.execute(object{"code": "kept", "context_id": id}).main().expect("text", "1")
}
