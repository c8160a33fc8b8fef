package e2b_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

const endLine = `{"type": "end_of_execution"}`

// lines answers an execution with these lines.
func lines(l ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		drain(r)
		emit(w, l...)
	}
}

func emit(w http.ResponseWriter, l ...string) {
	w.Header()["Content-Type"] = nil // as the real one
	for _, s := range l {
		write(w, []byte(s+"\n"))
	}
	flush(w)
}

// What RunCode sends.
func TestRunCodeOnTheWire(t *testing.T) {
	f := newFakeSandbox()
	var body map[string]any
	f.code = func(w http.ResponseWriter, r *http.Request) {
		body = nil
		if err := json.Unmarshal(drain(r), &body); err != nil {
			t.Error(err)
		}
		emit(w, endLine)
	}
	c := f.pipe(t)
	sbx, err := c.FromRecord(e2b.Record{
		SandboxID: fakeID, EnvdVersion: fakeEnvd, EnvdAccessToken: e2b.NewToken(fakeToken), TrafficAccessToken: e2b.NewToken("traffic"),
	})
	require.NoError(t, err)
	for _, tt := range []struct {
		opts *e2b.CodeOptions
		want map[string]any
	}{
		{nil, map[string]any{"code": "x"}},
		{&e2b.CodeOptions{Language: "python"}, map[string]any{"code": "x"}},
		{&e2b.CodeOptions{Language: " Python "}, map[string]any{"code": "x"}},
		{&e2b.CodeOptions{Language: "js"}, map[string]any{"code": "x", "language": "javascript"}},
		{&e2b.CodeOptions{Language: "TypeScript"}, map[string]any{"code": "x", "language": "typescript"}},
		{&e2b.CodeOptions{Language: "r", Env: map[string]string{"A": "1"}}, map[string]any{"code": "x", "language": "r", "env_vars": map[string]any{"A": "1"}}},
		{&e2b.CodeOptions{Timeout: time.Minute}, map[string]any{"code": "x"}},
	} {
		_, err := sbx.RunCode(t.Context(), "x", tt.opts)
		require.NoError(t, err)
		require.Equal(t, tt.want, body)
	}
	r := f.requests(executePath)[0]
	require.Equal(t, http.MethodPost, r.method)
	require.Equal(t, "49999", r.port)
	require.Equal(t, fakeID, r.header.Get("E2b-Sandbox-Id"))
	require.Equal(t, fakeToken, r.header.Get("X-Access-Token"))
	require.Equal(t, "traffic", r.header.Get("E2b-Traffic-Access-Token"))
	require.Equal(t, "application/json", r.header.Get("Content-Type"))
	require.Equal(t, "application/json", r.header.Get("Accept"), "or the proxy answers browsers with a page")
	require.Equal(t, "e2b-go/"+e2b.Version, r.header.Get("User-Agent"))
	require.Empty(t, r.header.Values("X-Api-Key"))
	require.Equal(t, int64(1), f.dials.Load(), "one connection for executions in a row")
}

// expect reads an answer's lines as CODE_INTERPRETER.md describes them, without
// the SDK.
func expect(t testing.TB, body []byte) (e2b.Execution, bool) {
	t.Helper()
	var e e2b.Execution
	ended := false
	for line := range bytes.Lines(body) {
		var m map[string]any
		require.NoError(t, json.Unmarshal(line, &m))
		str := func(k string) string { s, _ := m[k].(string); return s }
		switch m["type"] {
		case "number_of_executions":
			n, ok := m["execution_count"].(float64)
			require.True(t, ok)
			e.Count = int(n)
		case "stdout":
			e.Stdout += str("text")
		case "stderr":
			e.Stderr += str("text")
		case "result":
			e.Results = append(e.Results, expectResult(t, line))
		case "error":
			e.Errors = append(e.Errors, e2b.ExecutionError{Name: str("name"), Value: str("value"), Traceback: str("traceback")})
		case "end_of_execution":
			ended = true
		}
	}
	return e, ended
}

// infrastructure are the recordings in which the interpreter failed, not the code.
var infrastructure = map[string][]string{
	"code-interpreter/77_kernel_death":           {"ContextRestarting"},
	"code-interpreter/80_running_when_restarted": {"WebSocketError", "UnexpectedEndOfExecution"},
}

// The recorded answers of the interpreter give the right Execution.
func TestRecordedExecutions(t *testing.T) {
	ran := 0
	for _, name := range recordings(t, "code-interpreter/*") {
		rec := readRecording(t, name)
		if rec.status != 200 || len(rec.body) > 0 && !bytes.Contains(rec.body, []byte(`"type": `)) {
			continue // of another route, or an error, which TestDataErrorTable has
		}
		ran++
		t.Run(strings.TrimPrefix(name, "code-interpreter/"), func(t *testing.T) {
			want, ended := expect(t, rec.body)
			require.Equal(t, rec.whole, ended)
			r := emptySandbox(e2b.StateRunning, "proto")
			end := error(nil)
			if !rec.whole {
				end = io.ErrUnexpectedEOF
			}
			r.answers[executePath] = func() *http.Response { return answer(200, rec.header, rec.body, end) }
			got, err := r.handle(t, "proto").RunCode(t.Context(), "x", nil)
			if strings.HasPrefix(string(rec.body), `{"type": "keepalive"}`) {
				// Swallowed by a context in which other code was cancelled.
				requireDataKinds(t, err, e2b.ErrInterpreter)
				require.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			switch names := infrastructure[name]; {
			case !rec.whole:
				requireDataKinds(t, err, e2b.ErrStreamInterrupted)
			case names != nil:
				requireDataKinds(t, err, e2b.ErrInterpreter)
				require.ErrorContains(t, err, names[0])
				require.Len(t, got.Errors, len(names), "all errors are kept")
				require.Nil(t, got.Error, "the code did nothing wrong")
			default:
				require.NoError(t, err)
				if len(want.Errors) > 0 {
					require.Equal(t, &want.Errors[0], got.Error)
				} else {
					require.Nil(t, got.Error)
				}
			}
			got.Error = nil
			require.Equal(t, want, *got)
		})
	}
	require.Greater(t, ran, 45)
}

// USERS.md K3: an exception in the code is a value, not an error.
func TestK3ExceptionsAreValues(t *testing.T) {
	rec := readRecording(t, "code-interpreter/12_exception_traceback")
	r := emptySandbox(e2b.StateRunning, "proto")
	r.answers[executePath] = func() *http.Response { return answer(200, rec.header, rec.body, nil) }
	e, err := r.handle(t, "proto").RunCode(t.Context(), "1/0", nil)
	require.NoError(t, err)
	require.Equal(t, "ZeroDivisionError", e.Error.Name)
	require.Equal(t, "division by zero", e.Error.Value)
	require.Contains(t, e.Error.Traceback, "return 1 / n")
	require.Equal(t, "ZeroDivisionError: division by zero", e.Error.Error())
	require.Equal(t, "before\n", e.Stdout)
	require.Equal(t, []string{executePath}, r.paths, "no probe after an exception")
	_, err = r.handle(t, "proto").RunCode(t.Context(), "1", nil)
	require.NoError(t, err)
}

// An exception that the code itself gave the name of an interpreter's error has a
// traceback.
func TestExceptionWithTheNameOfAnInterpreterError(t *testing.T) {
	f := newFakeSandbox()
	f.code = lines(`{"type":"error","name":"WebSocketError","value":"mine","traceback":"line 1"}`, endLine)
	sbx := f.inMemory(t)
	for range 2 {
		e, err := sbx.RunCode(t.Context(), "raise", nil)
		require.NoError(t, err)
		require.Equal(t, "mine", e.Error.Value)
	}
	require.Len(t, f.requests(executePath), 2)
}

// USERS.md K4: Text of anything.
func TestK4Text(t *testing.T) {
	var none *e2b.Execution
	require.Empty(t, none.Text())
	require.Empty(t, (&e2b.Execution{}).Text())
	require.Empty(t, (&e2b.Execution{Results: []e2b.CodeResult{{Text: "shown"}}}).Text())
	require.Equal(t, "42", (&e2b.Execution{Results: []e2b.CodeResult{{Text: "shown"}, {Text: "42", Main: true}}}).Text())
	require.Equal(t, "2", (&e2b.ExecutionError{Value: "2"}).Error())
}

// USERS.md K2, K5: recorded answers cut after every byte. Only one whose end line
// is there is a success; what came before the cut is kept.
func TestExecutionsCutEverywhere(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"08_empty_code", "11_stdout_and_stderr", "46_js_console_and_value", "77_kernel_death", "80_running_when_restarted"} {
		rec := readRecording(t, "code-interpreter/"+name)
		want, ended := expect(t, rec.body)
		require.True(t, ended)
		whole := len(bytes.TrimRight(rec.body, "\n"))
		for _, state := range []e2b.State{e2b.StateRunning, e2b.StatePaused} {
			t.Run(fmt.Sprintf("%s/%s", name, state), func(t *testing.T) {
				r := emptySandbox(state, "proto")
				sbx := r.handle(t, "proto")
				for n := range len(rec.body) + 1 {
					end := []error{io.ErrUnexpectedEOF, nil}[n%2] // what a cut looks like in HTTP/1.1, and may in HTTP/2
					r.paths = nil
					r.answers[executePath] = func() *http.Response { return answer(200, rec.header, rec.body[:n], end) }
					fresh := &e2b.CodeOptions{Language: fmt.Sprint("context ", n)} // one that no cut left in doubt
					got, err := sbx.RunCode(t.Context(), "x", fresh)
					require.NotNil(t, got, "%d", n)
					if n >= whole {
						if infrastructure["code-interpreter/"+name] != nil {
							require.ErrorIs(t, err, e2b.ErrInterpreter)
						} else {
							require.NoError(t, err, "%d", n)
						}
						got.Error = nil
						require.Equal(t, want, *got)
						continue
					}
					kind := e2b.ErrStreamInterrupted
					if state == e2b.StatePaused {
						kind = e2b.ErrSandboxNotRunning
					}
					require.ErrorIs(t, err, kind, "%d", n)
					known, _ := expect(t, wholeLines(rec.body[:n]))
					got.Error = nil
					require.Equal(t, known, *got, "%d", n)
					require.Equal(t, []string{executePath, infoPath}, r.paths)
				}
			})
		}
	}
}

// wholeLines cuts b behind its last line that is whole, its newline or not.
func wholeLines(b []byte) []byte {
	i := bytes.LastIndexByte(b, '\n') + 1
	if json.Valid(b[i:]) {
		return b
	}
	return b[:i]
}

// Lines may be as long as they like, and of kinds that nobody knows.
func TestLongAndUnknownLines(t *testing.T) {
	t.Parallel()
	const size = 20 << 20
	png := strings.Repeat("A", size)
	f := newFakeSandbox()
	f.code = func(w http.ResponseWriter, r *http.Request) {
		drain(r)
		emit(w, `{"type":"number_of_executions","execution_count":5}`, "", `{"type":"news","text":["not text"]}`)
		write(w, []byte(`{"type":"result","text":"<Figure>","png":"`))
		write(w, []byte(png))
		write(w, []byte(`","extra":{},"is_main_result":false}`+"\r\n"))
		emit(w, `{"type":"result","extra":{},"is_main_result":true,"json":{"text":1}}`, `{"type":"stdout","text":null}`, `{}`, `null`, endLine)
	}
	e, err := f.onLoopback(t).RunCode(t.Context(), "plot", nil)
	require.NoError(t, err)
	require.Equal(t, 5, e.Count)
	require.Equal(t, []e2b.CodeResult{{Text: "<Figure>", PNG: make([]byte, size/4*3)}, {Main: true, JSON: json.RawMessage(`{"text":1}`)}}, e.Results)
}

// A line that is no JSON ends the reading, with an error that says so.
func TestGarbageLine(t *testing.T) {
	f := newFakeSandbox()
	f.code = lines(`{"type":"stdout","text":"kept"}`, `<html>oh</html>`, endLine)
	e, err := f.inMemory(t).RunCode(t.Context(), "x", nil)
	requireDataKinds(t, err, e2b.ErrStreamInterrupted)
	require.Equal(t, "kept", e.Stdout)
}

// Output is capped or goes to writers; a writer's error interrupts the code.
func TestRunCodeOutput(t *testing.T) {
	f := newFakeSandbox()
	f.code = lines(
		`{"type":"stdout","text":"abc"}`, `{"type":"stderr","text":"xyz"}`, `{"type":"stdout","text":"d\u00e9f"}`, endLine)
	sbx := f.inMemory(t)
	e, err := sbx.RunCode(t.Context(), "x", &e2b.CodeOptions{MaxOutput: 4})
	require.NoError(t, err)
	require.Equal(t, "abcd", e.Stdout)
	require.True(t, e.StdoutTruncated)
	require.Equal(t, "xyz", e.Stderr)
	require.False(t, e.StderrTruncated)

	var both strings.Builder
	e, err = sbx.RunCode(t.Context(), "x", &e2b.CodeOptions{Stdout: &both, Stderr: &both})
	require.NoError(t, err)
	require.Equal(t, "abcxyzdéf", both.String())
	require.Empty(t, e.Stdout+e.Stderr)

	synctest.Test(t, func(t *testing.T) {
		interp := newFakeInterpreter(0)
		f := newFakeSandbox()
		f.code = interp.serve
		sbx := f.inMemory(t)
		errFull := errors.New("the disk is full")
		e, err := sbx.RunCode(t.Context(), "forever", &e2b.CodeOptions{Stdout: writerFunc(func([]byte) (int, error) { return 0, errFull })})
		requireDataKinds(t, err, errFull)
		require.NotNil(t, e)
		synctest.Wait()
		require.Equal(t, []string{"forever:left"}, interp.log(), "the server saw the connection close")
		_, err = sbx.RunCode(t.Context(), "next", nil)
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, []string{"forever:left", ":ended", "next:ended"}, interp.log(), "it was probed")
		require.Zero(t, f.infos(), "the fault is ours")
	})
}

// A fakeInterpreter is an interpreter that, after a client has left an execution,
// swallows what is sent to the default context for a while: it gives keepalives
// and nothing else, until that client leaves too.
type fakeInterpreter struct {
	begin time.Time
	deaf  time.Duration // after a client has left
	boot  time.Duration // after the kernel has died, when it takes requests and answers later

	mu      sync.Mutex
	until   time.Time // deaf or booting
	booting bool
	calls   []*codeCall
}

type codeCall struct {
	at, over time.Duration // since begin
	code     string
	language string
	how      string
}

func newFakeInterpreter(deaf time.Duration) *fakeInterpreter {
	return &fakeInterpreter{begin: time.Now(), deaf: deaf}
}

func (i *fakeInterpreter) serve(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Code     string `json:"code"`
		Language string `json:"language"`
	}
	if err := json.Unmarshal(drain(r), &body); err != nil {
		panic(err)
	}
	call := &codeCall{at: time.Since(i.begin), code: body.Code, language: body.Language}
	i.mu.Lock()
	i.calls = append(i.calls, call)
	deaf := body.Language == "" && !i.booting && time.Now().Before(i.until)
	booting := time.Duration(0)
	if i.booting {
		booting = time.Until(i.until)
	}
	i.mu.Unlock()
	over := func(how string) {
		i.mu.Lock()
		defer i.mu.Unlock()
		call.how, call.over = how, time.Since(i.begin)
	}
	emit(w)
	if deaf {
		for elapse(r.Context(), 5*time.Second) {
			emit(w, `{"type":"keepalive"}`)
		}
		over("swallowed")
		return
	}
	if booting > 0 && !elapse(r.Context(), booting) {
		over("left")
		return
	}
	i.mu.Lock()
	i.booting = false
	i.mu.Unlock()
	emit(w, `{"type":"number_of_executions","execution_count":1}`)
	switch body.Code {
	case "forever":
		emit(w, `{"type":"stdout","text":"so far\n"}`)
		for elapse(r.Context(), 5*time.Second) {
			emit(w, `{"type":"keepalive"}`)
		}
		i.mu.Lock()
		i.until = time.Now().Add(i.deaf)
		i.mu.Unlock()
		over("left")
	case "die":
		i.mu.Lock()
		i.booting, i.until = true, time.Now().Add(i.boot)
		i.mu.Unlock()
		over("died")
		emit(w, `{"type":"error","name":"ContextRestarting","value":"Context was restarted","traceback":""}`, endLine)
	case "slow":
		if !elapse(r.Context(), 3*time.Second) {
			over("left")
			return
		}
		over("ended")
		emit(w, endLine)
	default:
		over("ended")
		emit(w, endLine)
	}
}

// log tells the calls and how they ended.
func (i *fakeInterpreter) log() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	var out []string
	for _, c := range i.calls {
		out = append(out, c.code+":"+c.how)
	}
	return out
}

// times tells when the calls came and how long each was there, from the first
// that came after since.
func (i *fakeInterpreter) times(since time.Duration) []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	var out []string
	for _, c := range i.calls {
		if c.at >= since {
			out = append(out, fmt.Sprintf("%q at %v for %v", c.code, c.at-since, c.over-c.at))
		}
	}
	return out
}

// interrupted makes a fake sandbox whose default context a cancelled call has
// just left.
func interrupted(t *testing.T, deaf time.Duration, set ...func(*e2b.ClientOptions)) (*fakeSandbox, *fakeInterpreter, *e2b.Client, *e2b.Sandbox) {
	t.Helper()
	interp := newFakeInterpreter(deaf)
	f := newFakeSandbox()
	f.code = interp.serve
	c := f.pipe(t, set...)
	sbx := f.handle(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	e, err := sbx.RunCode(ctx, "forever", nil)
	requireDataKinds(t, err, context.DeadlineExceeded)
	require.Equal(t, "so far\n", e.Stdout)
	require.Equal(t, 10*time.Second, time.Since(interp.begin))
	synctest.Wait() // until the interpreter has noticed
	return f, interp, c, sbx
}

// After a call that was cut short the next sends empty code until one ends. A
// probe is given up after 1 s, and the next is sent 250 ms later.
func TestRunCodeSettlesAfterCancel(t *testing.T) {
	for deaf, want := range map[time.Duration][]string{
		0:                       {`"" at 0s for 0s`, `"next" at 0s for 0s`},
		time.Second:             {`"" at 0s for 1s`, `"" at 1.25s for 0s`, `"next" at 1.25s for 0s`},
		1400 * time.Millisecond: {`"" at 0s for 1s`, `"" at 1.25s for 1s`, `"" at 2.5s for 0s`, `"next" at 2.5s for 0s`},
		3 * time.Second:         {`"" at 0s for 1s`, `"" at 1.25s for 1s`, `"" at 2.5s for 1s`, `"" at 3.75s for 0s`, `"next" at 3.75s for 0s`},
	} {
		t.Run(deaf.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, interp, _, sbx := interrupted(t, deaf)
				synctest.Wait()
				require.Equal(t, []string{"forever:left"}, interp.log(), "the server sees the connection close at once")
				_, err := sbx.RunCode(t.Context(), "next", nil)
				require.NoError(t, err)
				require.Equal(t, want, interp.times(10*time.Second))

				// And once it has settled, no more.
				synctest.Wait()
				n := len(interp.log())
				_, err = sbx.RunCode(t.Context(), "again", nil)
				require.NoError(t, err)
				synctest.Wait()
				require.Len(t, interp.log(), n+1)
				require.Zero(t, f.infos())
			})
		})
	}
}

// The mark stays with the client: another handle of it probes too, and so does
// one after a pause. Other contexts do not.
func TestRunCodeSettlesForAllHandles(t *testing.T) {
	want := []string{`"" at 0s for 1s`, `"" at 1.25s for 0s`, `"next" at 1.25s for 0s`}
	t.Run("another handle", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, interp, c, _ := interrupted(t, time.Second)
			other, err := c.Connect(t.Context(), fakeID, nil)
			require.NoError(t, err)
			_, err = other.RunCode(t.Context(), "js", &e2b.CodeOptions{Language: "js"})
			require.NoError(t, err)
			_, err = other.RunCode(t.Context(), "next", &e2b.CodeOptions{Language: "py"})
			require.NoError(t, err)
			require.Equal(t, append([]string{`"js" at 0s for 0s`}, want...), interp.times(10*time.Second))
		})
	})
	t.Run("own pause", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			interp := newFakeInterpreter(time.Second)
			f := newFakeSandbox()
			f.code = interp.serve
			c := f.pipe(t)
			sbx := f.handle(t, c)
			done := make(chan error, 1)
			go func() {
				e, err := sbx.RunCode(t.Context(), "forever", nil)
				if e == nil || e.Stdout != "so far\n" {
					t.Errorf("%+v", e)
				}
				done <- err
			}()
			elapse(t.Context(), 10*time.Second)
			_, err := sbx.Pause(t.Context(), nil)
			require.NoError(t, err)
			requireDataKinds(t, <-done, e2b.ErrSandboxNotRunning)
			synctest.Wait()
			again, err := c.Connect(t.Context(), fakeID, nil)
			require.NoError(t, err)
			require.True(t, again.Resumed())
			_, err = again.RunCode(t.Context(), "next", nil)
			require.NoError(t, err)
			require.Equal(t, want, interp.times(10*time.Second))
		})
	})
	t.Run("kill forgets", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f, interp, c, sbx := interrupted(t, 0)
			_, err := sbx.Kill(t.Context())
			require.NoError(t, err)
			f.setState(e2b.StateRunning) // as another sandbox
			_, err = f.handle(t, c).RunCode(t.Context(), "next", nil)
			require.NoError(t, err)
			require.Equal(t, []string{`"next" at 0s for 0s`}, interp.times(10*time.Second))
		})
	})
}

// After the kernel has died the next call waits 1.5 s, and gives a probe 5 s: a
// shorter one would interrupt the boot.
func TestRunCodeSettlesAfterKernelDeath(t *testing.T) {
	for boot, want := range map[time.Duration][]string{
		0:               {`"" at 1.5s for 0s`, `"next" at 1.5s for 0s`},
		3 * time.Second: {`"" at 1.5s for 1.5s`, `"next" at 3s for 0s`},
		8 * time.Second: {`"" at 1.5s for 5s`, `"" at 8.25s for 0s`, `"next" at 8.25s for 0s`},
	} {
		t.Run(boot.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				interp := newFakeInterpreter(0)
				interp.boot = boot
				f := newFakeSandbox()
				f.code = interp.serve
				sbx := f.inMemory(t)
				elapse(t.Context(), time.Second)
				e, err := sbx.RunCode(t.Context(), "die", nil)
				requireDataKinds(t, err, e2b.ErrInterpreter)
				require.ErrorContains(t, err, "Context was restarted")
				require.Len(t, e.Errors, 1)
				_, err = sbx.RunCode(t.Context(), "next", nil)
				require.NoError(t, err)
				require.Equal(t, want, interp.times(time.Second)[1:])
			})
		})
	}
}

// A kernel that dies while it is probed is waited for as one that died.
func TestRunCodeSettlesAfterDeathInProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, interp, _, sbx := interrupted(t, 0)
		serve, died := f.code, false
		f.code = func(w http.ResponseWriter, r *http.Request) {
			if !died {
				died = true
				lines(`{"type":"error","name":"ContextRestarting","value":"Context was restarted","traceback":""}`, endLine)(w, r)
				return
			}
			serve(w, r)
		}
		_, err := sbx.RunCode(t.Context(), "next", nil)
		require.NoError(t, err, "the call itself lost nothing")
		require.Equal(t, []string{`"" at 1.5s for 0s`, `"next" at 1.5s for 0s`}, interp.times(10*time.Second))
	})
}

// The settling is bounded by ctx or the request timeout, and an answer that is an
// error, or a server that is not there, ends it. The mark stays.
func TestRunCodeSettlingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, interp, _, sbx := interrupted(t, time.Hour, func(o *e2b.ClientOptions) { o.RequestTimeout = 20 * time.Second })
		begin := time.Now()
		_, err := sbx.RunCode(t.Context(), "next", nil)
		requireDataKinds(t, err, e2b.ErrRequestTimeout)
		require.Equal(t, 20*time.Second, time.Since(begin))

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin = time.Now()
		_, err = sbx.RunCode(ctx, "next", nil)
		requireDataKinds(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(begin))

		synctest.Wait()
		serve := f.code
		f.code = nil
		_, err = sbx.RunCode(t.Context(), "next", nil)
		requireDataKinds(t, err, e2b.ErrPortClosed)
		synctest.Wait()
		f.code = serve
		interp.mu.Lock()
		interp.until = time.Time{}
		interp.calls = nil
		interp.mu.Unlock()
		_, err = sbx.RunCode(t.Context(), "next", nil)
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, []string{":ended", "next:ended"}, interp.log())
	})
}

// A server that cannot be reached any more ends the settling at once.
func TestRunCodeSettlingWithoutServer(t *testing.T) {
	f := newFakeSandbox()
	f.code = lines(`{"type":"stdout","text":"x"}`) // no end
	var down atomic.Bool
	srv := httptest.NewServer(f)
	defer srv.Close()
	dead := &http.Transport{}
	defer dead.CloseIdleConnections()
	c := f.client(t, srv.URL, roundTrip(func(r *http.Request) (*http.Response, error) {
		if down.Load() {
			r = r.Clone(r.Context())
			r.URL.Host = "127.0.0.1:1"
		}
		return dead.RoundTrip(r)
	}))
	sbx := f.handle(t, c)
	_, err := sbx.RunCode(t.Context(), "x", nil)
	requireDataKinds(t, err, e2b.ErrStreamInterrupted)
	down.Store(true)
	_, err = sbx.RunCode(t.Context(), "x", nil)
	requireDataKinds(t, err)
	require.ErrorContains(t, err, "refused")
}

// A body that stays open behind its end line keeps nobody.
func TestRunCodeBodyThatStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.code = func(w http.ResponseWriter, r *http.Request) {
			drain(r)
			emit(w, `{"type":"stdout","text":"x"}`, endLine)
			<-r.Context().Done()
		}
		sbx := f.inMemory(t)
		for range 2 {
			begin := time.Now()
			e, err := sbx.RunCode(t.Context(), "x", nil)
			require.NoError(t, err)
			require.Equal(t, "x", e.Stdout)
			require.LessOrEqual(t, time.Since(begin), time.Second)
		}
		require.Len(t, f.requests(executePath), 2, "no probe")
	})
}

// CodeOptions.Timeout closes the connection, and is not a deadline of ctx.
func TestRunCodeTimeoutOption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		interp := newFakeInterpreter(time.Second)
		f := newFakeSandbox()
		f.code = interp.serve
		sbx := f.inMemory(t)
		e, err := sbx.RunCode(t.Context(), "forever", &e2b.CodeOptions{Timeout: 7 * time.Second})
		requireDataKinds(t, err, e2b.ErrCommandTimeout)
		require.Equal(t, "so far\n", e.Stdout)
		require.Equal(t, 7*time.Second, time.Since(interp.begin))
		synctest.Wait() // until the interpreter has noticed
		require.Equal(t, []string{"forever:left"}, interp.log())

		// It counts the settling too.
		e, err = sbx.RunCode(t.Context(), "slow", &e2b.CodeOptions{Timeout: 10 * time.Second})
		require.NoError(t, err)
		require.Equal(t, 1, e.Count)

		// Also before the server has taken the code.
		f.code = func(_ http.ResponseWriter, r *http.Request) {
			drain(r)
			<-r.Context().Done()
		}
		_, err = sbx.RunCode(t.Context(), "x", &e2b.CodeOptions{Timeout: time.Second})
		requireDataKinds(t, err, e2b.ErrCommandTimeout)
		require.Zero(t, f.infos())
	})
}

// USERS.md K5: a server that goes quiet holds the call no longer than ctx.
func TestK5IdleServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.code = func(w http.ResponseWriter, r *http.Request) {
			drain(r)
			emit(w, `{"type":"stdout","text":"one line\n"}`)
			<-r.Context().Done()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		begin := time.Now()
		e, err := f.inMemory(t).RunCode(ctx, "x", nil)
		requireDataKinds(t, err, context.DeadlineExceeded)
		require.Equal(t, 300*time.Millisecond, time.Since(begin))
		require.Equal(t, "one line\n", e.Stdout)
	})
}

// Code may run for as long as it likes.
func TestRunCodeHasNoHiddenDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.code = func(w http.ResponseWriter, r *http.Request) {
			drain(r)
			emit(w, `{"type":"number_of_executions","execution_count":1}`)
			for range 24 * 60 * 12 {
				if !elapse(r.Context(), 5*time.Second) {
					return
				}
				emit(w, `{"type":"keepalive"}`)
			}
			emit(w, `{"type":"result","text":"morning","is_main_result":true}`, endLine)
		}
		e, err := f.inMemory(t).RunCode(t.Context(), "sleep", nil)
		require.NoError(t, err)
		require.Equal(t, "morning", e.Text())
	})
}

// Calls in one context run one after another, in our queue: the interpreter's own
// would lose a call that waits behind one that is cancelled. Other contexts do
// not wait, and a call that gives up in the queue is never sent.
func TestRunCodeQueuesPerContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		interp := newFakeInterpreter(0)
		f := newFakeSandbox()
		f.code = interp.serve
		c := f.pipe(t)
		sbx, other := f.handle(t, c), f.handle(t, c)
		var wg sync.WaitGroup
		call := func(ctx context.Context, s *e2b.Sandbox, code, language string, want error) {
			wg.Go(func() {
				_, err := s.RunCode(ctx, code, &e2b.CodeOptions{Language: language})
				if !errors.Is(err, want) || want == nil && err != nil {
					t.Errorf("%s: %v", code, err)
				}
			})
			synctest.Wait()
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		call(t.Context(), sbx, "slow", "", nil)
		call(t.Context(), other, "second", "python", nil)
		call(short, sbx, "given up", "py", context.DeadlineExceeded)
		call(t.Context(), sbx, "elsewhere", "bash", nil)
		wg.Wait()
		require.Equal(t, []string{`"slow" at 0s for 3s`, `"elsewhere" at 0s for 0s`, `"second" at 3s for 0s`}, interp.times(0))

		// Our own pause ends those that wait, too.
		done := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := sbx.RunCode(t.Context(), "slow", nil)
				done <- err
			}()
		}
		synctest.Wait()
		_, err := sbx.Pause(t.Context(), nil)
		require.NoError(t, err)
		for range 2 {
			requireDataKinds(t, <-done, e2b.ErrSandboxNotRunning)
		}
		synctest.Wait()
		require.Equal(t, []string{"slow:ended", "elsewhere:ended", "second:ended", "slow:left"}, interp.log())
	})
}

// A ctx that has ended already sends nothing and leaves no doubt behind.
func TestRunCodeEndedContext(t *testing.T) {
	f := newFakeSandbox()
	f.code = lines(endLine)
	sbx := f.inMemory(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // two ways to end, and select takes either
		_, err := sbx.RunCode(ctx, "x", nil)
		requireDataKinds(t, err, context.Canceled)
	}
	require.Empty(t, f.requests(""))
	_, err := sbx.RunCode(t.Context(), "x", nil)
	require.NoError(t, err)
	require.Len(t, f.requests(executePath), 1)
}

// Code runs over HTTP/1.1, where the end of a connection interrupts it, also where
// the rest goes over HTTP/2.
func TestRunCodeOverHTTP1(t *testing.T) {
	interp := newFakeInterpreter(0)
	f := newFakeSandbox()
	f.code = interp.serve
	f.start = script(evStart(1), evExit(0))
	f.files, _ = storage(t)
	srv := httptest.NewUnstartedServer(f)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	base, ok := srv.Client().Transport.(*http.Transport)
	require.True(t, ok)
	for name, used := range map[string]bool{"new": false, "used": true} {
		t.Run(name, func(t *testing.T) {
			rt := base.Clone()
			if used { // a transport that has set itself up for HTTP/2
				resp, err := (&http.Client{Transport: rt}).Get(srv.URL)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, 2, resp.ProtoMajor)
				defer rt.CloseIdleConnections()
			}
			f.forget()
			c := f.client(t, srv.URL, rt)
			defer c.CloseIdleConnections()
			sbx := f.handle(t, c)
			_, err := sbx.Commands.Run(t.Context(), "true", nil)
			require.NoError(t, err)
			require.NoError(t, sbx.Files.Write(t.Context(), "/x", nil, nil))
			_, err = sbx.RunCode(t.Context(), "1", nil)
			require.NoError(t, err)
			_, err = sbx.Info(t.Context())
			require.NoError(t, err)
			for _, r := range f.requests("") {
				require.Equal(t, cmp.Or(map[string]string{executePath: "HTTP/1.1"}[r.path], "HTTP/2.0"), r.proto, r.path)
			}
		})
	}
}

// codeEnv returns the variables that arrive for those of the caller.
func codeEnv(t testing.TB, language string, env map[string]string) (map[string]string, error) {
	t.Helper()
	var body struct {
		Env map[string]string `json:"env_vars"`
	}
	f := newFakeSandbox()
	rt := roundTrip(func(r *http.Request) (*http.Response, error) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		return answer(200, http.Header{}, []byte(endLine), nil), json.Unmarshal(b, &body)
	})
	_, err := f.handle(t, f.client(t, "http://fake.test", rt)).RunCode(t.Context(), "x", &e2b.CodeOptions{Language: language, Env: env})
	return body.Env, err
}

// awkward are values that break naive quoting.
var awkward = []string{
	"", "plain", "it's", `say "hi"`, `back\slash`, `trailing\`, `\'`, `\\'`, `'\''`, "two\nlines", "cr\r\nlf\r", "tab\t", "$HOME `id` $(id)",
	"ünïcödé 日本 😀", "\u2028\u2029", "\x01\x1b[0m\x7f", `\n\x41\u0041\N{DASH}`, "'; import os; os._exit(1) #", `"); quit("`, "%d {x} \v\f", "#!not", "?", "!ls",
}

// names of the variables that hold them.
func awkwardEnv() map[string]string {
	env := map[string]string{}
	for i, v := range awkward {
		env[fmt.Sprintf("V%d", i)] = v
	}
	return env
}

// needs skips a test whose program is not installed, but not where all must run.
func needs(t testing.TB, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("CI must have %s", program)
		}
		t.Skipf("the check against the real %s needs it installed", program)
	}
	return path
}

// The interpreter pastes a value into Python as os.environ['K'] = 'V'.
func TestCodeEnvPython(t *testing.T) {
	python := needs(t, "python3")
	env := awkwardEnv()
	env["odd name-1.x;"] = "v"
	_, err := codeEnv(t, "python", env)
	requireDataKinds(t, err, e2b.ErrInvalidArgument)
	delete(env, "odd name-1.x;")
	env["odd-name.1;x"] = "v"
	sent, err := codeEnv(t, "python", env)
	require.NoError(t, err)
	var program strings.Builder
	program.WriteString("import ast, json, os\nout = {}\n")
	literals := map[string]string{}
	for k, v := range sent {
		literals[k] = "'" + v + "'"
		program.WriteString("os.environ['" + k + "'] = '" + v + "'\n")
	}
	in, err := json.Marshal(literals)
	require.NoError(t, err)
	program.WriteString("literals = json.load(open(0, encoding='utf-8'))\n" +
		"print(json.dumps([{k: ast.literal_eval(v) for k, v in literals.items()}, {k: os.environ[k] for k in literals}]))\n")
	cmd := exec.CommandContext(t.Context(), python, "-X", "utf8", "-c", program.String())
	cmd.Stdin = bytes.NewReader(in)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	var got []map[string]string
	require.NoError(t, json.Unmarshal(out, &got))
	require.Equal(t, []map[string]string{env, env}, got)
}

// And into bash as export K='V'.
func TestCodeEnvBash(t *testing.T) {
	bash := needs(t, "bash")
	env := awkwardEnv()
	sent, err := codeEnv(t, "bash", env)
	require.NoError(t, err)
	var program strings.Builder
	var want []string
	for k, v := range sent {
		program.WriteString("export " + k + "='" + v + "'\nprintf '%s\\0' \"$" + k + "\"\n")
		want = append(want, env[k])
	}
	out, err := exec.CommandContext(t.Context(), bash, "-c", program.String()).Output()
	require.NoError(t, err)
	require.Equal(t, want, strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"))
}

// unquote reads what stands between quotes as JavaScript, Python, R and Java do,
// as far as the SDK makes use of it; false if the quote would end before.
func unquote(s string, quote byte) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case quote, '\n', '\r':
			return "", false
		case '\\':
			i++
			if i == len(s) {
				return "", false
			}
			switch s[i] {
			case '\\', '\'', '"':
				b.WriteByte(s[i])
			case 'n':
				b.WriteByte('\n')
			case 'r':
				b.WriteByte('\r')
			default:
				return "", false
			}
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), true
}

func TestCodeEnvOtherLanguages(t *testing.T) {
	for language, quote := range map[string]byte{"python": '\'', "js": '\'', "javascript": '\'', "ts": '\'', "typescript": '\'', "r": '"', "java": '"'} {
		env := awkwardEnv()
		sent, err := codeEnv(t, language, env)
		require.NoError(t, err)
		for k, v := range sent {
			got, ok := unquote(v, quote)
			require.True(t, ok, "%s: %q", language, v)
			require.Equal(t, env[k], got, language)
		}
		require.Len(t, sent, len(env))
	}
	// Where the quoting is not known only values that need none pass.
	sent, err := codeEnv(t, "julia", map[string]string{"A": "plain value = 1"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"A": "plain value = 1"}, sent)
	for _, v := range []string{"it's", `"`, `\`, "\n", "`x`", "$x"} {
		_, err := codeEnv(t, "julia", map[string]string{"A": v})
		requireDataKinds(t, err, e2b.ErrInvalidArgument)
	}
}

func TestRunCodeRefuses(t *testing.T) {
	f := newFakeSandbox()
	f.code = lines(endLine)
	sbx := f.inMemory(t)
	for name, o := range map[string]e2b.CodeOptions{
		"language":          {Language: "a\nb"},
		"long language":     {Language: strings.Repeat("x", 65)},
		"timeout":           {Timeout: -1},
		"max output":        {MaxOutput: -1},
		"empty name":        {Env: map[string]string{"": "x"}},
		"name with =":       {Env: map[string]string{"a=b": "x"}},
		"quote in name":     {Env: map[string]string{"a'b": "x"}},
		"newline in name":   {Env: map[string]string{"a\nb": "x"}},
		"NUL":               {Env: map[string]string{"a": "\x00"}},
		"not UTF-8":         {Env: map[string]string{"a": "\xff"}},
		"name not UTF-8":    {Env: map[string]string{"\xff": "a"}},
		"command in bash":   {Language: "bash", Env: map[string]string{"a;reboot;b": "x"}},
		"call in R":         {Language: "r", Env: map[string]string{"a);quit(": "x"}},
		"dash in bash":      {Language: "bash", Env: map[string]string{"a-b": "x"}},
		"digit in bash":     {Language: "bash", Env: map[string]string{"1a": "x"}},
		"substitution":      {Language: "bash", Env: map[string]string{"a<(id)": "x"}},
		"name, not a known": {Language: "julia", Env: map[string]string{"a;b": "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := sbx.RunCode(t.Context(), "1", &o)
			requireDataKinds(t, err, e2b.ErrInvalidArgument)
		})
	}
	_, err := sbx.RunCode(t.Context(), "x = '\xff'", nil)
	requireDataKinds(t, err, e2b.ErrInvalidArgument)
	require.Empty(t, f.requests(""))
	_, err = sbx.RunCode(t.Context(), "", nil)
	require.NoError(t, err, "empty code is code")
}

// FuzzCodeEnv: what is pasted is the value and nothing more, or it is refused.
func FuzzCodeEnv(f *testing.F) {
	for i, v := range awkward {
		f.Add(uint8(i), "V", v)
	}
	languages := []string{"python", "javascript", "typescript", "bash", "r", "java", "julia", ""}
	f.Fuzz(func(t *testing.T, n uint8, name, value string) {
		language := languages[int(n)%len(languages)]
		sent, err := codeEnv(t, language, map[string]string{name: value})
		if err != nil {
			require.ErrorIs(t, err, e2b.ErrInvalidArgument)
			return
		}
		require.Len(t, sent, 1)
		got, ok := sent[name]
		require.True(t, ok, "the name changed")
		plain := true
		switch language {
		case "", "python", "javascript", "typescript":
			got, plain = unquote(got, '\'')
		case "r", "java":
			got, plain = unquote(got, '"')
		case "bash":
			got, plain = unquoteShell(got)
		}
		require.True(t, plain)
		require.Equal(t, value, got)
		if !slices.Contains([]string{"", "python", "javascript", "typescript", "java"}, language) {
			require.Equal(t, -1, strings.IndexFunc(name, func(r rune) bool {
				return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
			}))
		}
		_, plain = unquote(name, '\'')
		require.True(t, plain && !strings.ContainsRune(name, '\\'))
	})
}

// unquoteShell reads what stands between single quotes of a shell.
func unquoteShell(s string) (string, bool) {
	parts := strings.Split(s, `'\''`)
	return strings.Join(parts, "'"), !strings.Contains(strings.Join(parts, ""), "'")
}

// BenchmarkRunCode is an execution with a little output.
func BenchmarkRunCode(b *testing.B) {
	f := newFakeSandbox()
	f.code = lines(`{"type":"number_of_executions","execution_count":1}`, `{"type":"stdout","text":"hello\n"}`,
		`{"type":"result","text":"42","extra":{},"is_main_result":true}`, endLine)
	sbx := f.onLoopback(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := sbx.RunCode(b.Context(), "x", nil); err != nil {
			b.Fatal(err)
		}
	}
}

// What the interpreter reports is bounded as the rest is: code can make it report
// exceptions without end.
func TestRunCodeBoundsErrors(t *testing.T) {
	trace := strings.Repeat("x", 1000)
	f := newFakeSandbox()
	f.code = func(w http.ResponseWriter, r *http.Request) {
		drain(r)
		emit(w, `{"type":"error","name":"ContextRestarting","value":"first"}`)
		for i := range 100 {
			emit(w, fmt.Sprintf(`{"type":"error","name":"E","value":"%d","traceback":%q}`, i, trace))
		}
		emit(w, endLine)
	}
	e, err := f.inMemory(t).RunCode(t.Context(), "x", &e2b.CodeOptions{MaxOutput: 10_000})
	require.ErrorIs(t, err, e2b.ErrInterpreter)
	size := 0
	for _, e := range e.Errors {
		size += len(e.Name) + len(e.Value) + len(e.Traceback)
	}
	require.LessOrEqual(t, size, 10_000)
	require.NotNil(t, e.Error)
	require.Equal(t, "0", e.Error.Value)

	// The first is there whatever its size: it tells that the code has failed.
	e, err = f.inMemory(t).RunCode(t.Context(), "x", &e2b.CodeOptions{MaxOutput: 1})
	require.ErrorIs(t, err, e2b.ErrInterpreter)
	require.Len(t, e.Errors, 1)
	require.NotNil(t, e.Error)
	require.Equal(t, "0", e.Error.Value)
}
