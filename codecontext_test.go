package e2b_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

// contextsOf answers as an interpreter that has these contexts, and takes what is
// run in them.
func contextsOf(t testing.TB, f *fakeSandbox, list *[]e2b.CodeContext) (ran func() []string) {
	t.Helper()
	var log []string
	f.code = func(w http.ResponseWriter, r *http.Request) {
		body := drain(r)
		f.mu.Lock()
		defer f.mu.Unlock()
		switch r.Method + " " + r.URL.Path {
		case "GET /contexts":
			type wire struct {
				ID       string `json:"id"`
				Language string `json:"language"`
				Dir      string `json:"cwd"`
			}
			out := []wire{}
			for _, c := range *list {
				out = append(out, wire(c))
			}
			writeJSON(w, 200, out)
		case "POST /execute":
			var b struct {
				Code      string            `json:"code"`
				ContextID string            `json:"context_id"`
				Language  string            `json:"language"`
				Env       map[string]string `json:"env_vars"`
			}
			if err := json.Unmarshal(body, &b); err != nil {
				t.Error(err)
			}
			line := fmt.Sprintf("%q in %s%s", b.Code, b.ContextID, b.Language)
			if b.Env != nil {
				line += fmt.Sprint(" with ", b.Env)
			}
			log = append(log, line)
			if b.Code == "broken" {
				emit(w, `{"type":"stdout","text":"x"}`)
				return
			}
			emit(w, endLine)
		default:
			log = append(log, r.Method+" "+r.URL.Path)
			writeJSON(w, 200, nil)
		}
	}
	return func() []string {
		f.mu.Lock()
		defer f.mu.Unlock()
		out := log
		log = nil
		return out
	}
}

// The recorded answers to calls about contexts.
func TestRecordedContexts(t *testing.T) {
	play := func(name, path string) *e2b.Sandbox {
		rec := readRecording(t, "code-interpreter/"+name)
		r := emptySandbox(e2b.StateRunning, "proto")
		r.answers[path] = func() *http.Response { return answer(rec.status, rec.header, rec.body, nil) }
		made := readRecording(t, "code-interpreter/54_context_create")
		if path != "/contexts" {
			r.answers["/contexts"] = func() *http.Response { return answer(200, made.header, made.body, nil) }
		}
		return r.handle(t, "proto")
	}
	for name, want := range map[string]e2b.CodeContext{
		"54_context_create":            {ID: "e6576f74-e719-49c4-8f3f-8784d231bbb0", Language: "python", Dir: "/tmp"},
		"55_context_create_empty_body": {ID: "bac26bd1-c976-4eca-80e7-04b50b3de61e", Language: "python", Dir: "/home/user"},
		"56_context_create_js":         {ID: "d94cedf6-5e84-4320-bbdc-402ec711f923", Language: "javascript", Dir: "/home/user"},
		"58_context_create_bad_cwd":    {ID: "55adb899-e439-4f7c-8c75-03983e24ce48", Language: "python", Dir: "/does/not/exist"},
	} {
		c, err := play(name, "/contexts").NewCodeContext(t.Context(), nil)
		require.NoError(t, err, name)
		require.Equal(t, want, *c, name)
	}
	_, err := play("57_context_create_bad_language", "/contexts").NewCodeContext(t.Context(), &e2b.CodeContextOptions{Language: "cobol"})
	requireDataKinds(t, err, e2b.ErrNotSupported)

	const id = "e6576f74-e719-49c4-8f3f-8784d231bbb0"
	for _, tt := range []struct {
		name, path string
		call       func(*e2b.Sandbox) error
		want       error
	}{
		{"61_context_restart", "/contexts/" + id + "/restart", func(s *e2b.Sandbox) error { return s.RestartCodeContext(t.Context(), id) }, nil},
		{"65_context_restart_unknown", "/contexts/" + id + "/restart", func(s *e2b.Sandbox) error { return s.RestartCodeContext(t.Context(), id) }, e2b.ErrNotFound},
		{"63_context_delete", "/contexts/" + id, func(s *e2b.Sandbox) error { return s.RemoveCodeContext(t.Context(), id) }, nil},
		{"64_context_delete_again", "/contexts/" + id, func(s *e2b.Sandbox) error { return s.RemoveCodeContext(t.Context(), id) }, e2b.ErrNotFound},
		{"66_context_unknown", executePath, func(s *e2b.Sandbox) error {
			_, err := s.RunCode(t.Context(), "1", &e2b.CodeOptions{Context: id})
			return err
		}, e2b.ErrNotFound},
		{"60_context_run", executePath, func(s *e2b.Sandbox) error {
			e, err := s.RunCode(t.Context(), "1", &e2b.CodeOptions{Context: id})
			require.Equal(t, "/tmp", e.Text())
			return err
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := play(tt.name, tt.path)
			c, err := s.NewCodeContext(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, id, c.ID)
			if err = tt.call(s); tt.want != nil {
				requireDataKinds(t, err, tt.want)
			} else {
				require.NoError(t, err)
			}
		})
	}
}

// What is no answer about contexts is an error, and never "none".
func TestContextAnswers(t *testing.T) {
	for body, ok := range map[string]bool{"[]": true, "null": false, "{}": false, "": false, `{"a":`: false, `"x"`: false, "[1]": false} {
		f := newFakeSandbox()
		f.code = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }
		s := f.inMemory(t)
		list, err := s.CodeContexts(t.Context())
		if ok {
			require.NoError(t, err)
			require.Empty(t, list)
		} else {
			requireDataKinds(t, err)
			var api *e2b.APIError
			require.ErrorAs(t, err, &api)
		}
		_, err = s.NewCodeContext(t.Context(), nil)
		requireDataKinds(t, err)
	}
	f := newFakeSandbox()
	f.code = func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write([]byte("Failed to restart context c1"))
	}
	s := f.inMemory(t)
	_, err := s.CodeContexts(t.Context())
	requireDataKinds(t, err, e2b.ErrInterpreter)
	f.code = nil
	_, err = s.CodeContexts(t.Context())
	requireDataKinds(t, err, e2b.ErrPortClosed)
	f.setState(e2b.StatePaused)
	_, err = s.CodeContexts(t.Context())
	requireDataKinds(t, err, e2b.ErrSandboxNotRunning)
}

func TestContextCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.code = func(_ http.ResponseWriter, r *http.Request) {
			drain(r)
			<-r.Context().Done()
		}
		s := f.inMemory(t, func(o *e2b.ClientOptions) { o.RequestTimeout = 20 * time.Second })
		begin := time.Now()
		_, err := s.CodeContexts(t.Context())
		requireDataKinds(t, err, e2b.ErrRequestTimeout)
		require.Equal(t, 20*time.Second, time.Since(begin))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = s.NewCodeContext(ctx, nil)
		requireDataKinds(t, err, context.DeadlineExceeded)
		requireDataKinds(t, s.RestartCodeContext(ctx, "c1"), context.DeadlineExceeded)

		// A context that is not known is asked for within the same bounds.
		for name, call := range map[string]func(context.Context) error{
			"RunCode": func(ctx context.Context) error {
				_, err := s.RunCode(ctx, "x", &e2b.CodeOptions{Context: "c1"})
				return err
			},
			"StreamCode": func(ctx context.Context) error {
				_, err := s.StreamCode(ctx, "x", &e2b.CodeOptions{Context: "c1"})
				return err
			},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			requireDataKinds(t, call(ctx), context.DeadlineExceeded)
			done := make(chan error, 1)
			go func() { done <- call(t.Context()) }()
			synctest.Wait()
			_, err := s.Pause(t.Context(), nil)
			require.NoError(t, err)
			requireDataKinds(t, <-done, e2b.ErrSandboxNotRunning)
			require.NoError(t, s.Connect(t.Context(), nil), name)
		}
	})
}

func TestContextArguments(t *testing.T) {
	f := newFakeSandbox()
	s := f.inMemory(t)
	for _, id := range []string{"", ".", "..", "a/b", "a?b", "ü", "a\nb", strings.Repeat("x", 64)} {
		requireDataKinds(t, s.RestartCodeContext(t.Context(), id), e2b.ErrInvalidArgument)
		requireDataKinds(t, s.RemoveCodeContext(t.Context(), id), e2b.ErrInvalidArgument)
		if id != "" {
			_, err := s.RunCode(t.Context(), "1", &e2b.CodeOptions{Context: id})
			requireDataKinds(t, err, e2b.ErrInvalidArgument)
		}
	}
	_, err := s.RunCode(t.Context(), "1", &e2b.CodeOptions{Context: "c1", Language: "python"})
	requireDataKinds(t, err, e2b.ErrInvalidArgument)
	for _, o := range []e2b.CodeContextOptions{{Language: "a\nb"}, {Language: strings.Repeat("x", 65)}, {Language: "\xff"}, {Dir: "a\x00b"}, {Dir: "\xff"}} {
		_, err := s.NewCodeContext(t.Context(), &o)
		requireDataKinds(t, err, e2b.ErrInvalidArgument)
	}
	require.Empty(t, f.requests(""))
}

// A context that may be the default of its language is not removed.
func TestDefaultContextsAreNotRemoved(t *testing.T) {
	list := []e2b.CodeContext{
		{ID: "py0", Language: "python", Dir: "/home/user"},
		{ID: "js0", Language: "javascript", Dir: "/home/user"},
		{ID: "py1", Language: "python", Dir: "/home/user"},
		{ID: "sh1", Language: "bash", Dir: "/home/user"}, // made by another, before the default was used
		{ID: "sh0", Language: "bash", Dir: "/home/user"},
		{ID: "sh2", Language: "bash", Dir: "/tmp"},
		{ID: "js1", Language: "javascript", Dir: "/home/user"},
	}
	f := newFakeSandbox()
	ran := contextsOf(t, f, &list)
	s := f.inMemory(t)
	for _, id := range []string{"py0", "js0", "sh1", "sh0"} {
		requireDataKinds(t, s.RemoveCodeContext(t.Context(), id), e2b.ErrInvalidArgument)
	}
	requireDataKinds(t, s.RemoveCodeContext(t.Context(), "gone"), e2b.ErrNotFound)
	require.Empty(t, ran())
	for _, id := range []string{"py1", "sh2", "js1"} {
		require.NoError(t, s.RemoveCodeContext(t.Context(), id))
		require.Equal(t, []string{"DELETE /contexts/" + id}, ran())
	}

	// One that the list has lost meanwhile is not removed on the strength of an old list.
	list = list[:2]
	requireDataKinds(t, s.RemoveCodeContext(t.Context(), "sh2"), e2b.ErrNotFound)
}

// Contexts that this client made are removed without a question, also through
// another handle, and are never taken for a default.
func TestOwnContextsAreRemoved(t *testing.T) {
	list := []e2b.CodeContext{{ID: "own", Language: "bash", Dir: "/home/user"}, {ID: "sh0", Language: "bash", Dir: "/home/user"}}
	f := newFakeSandbox()
	ran := contextsOf(t, f, &list)
	others := f.code
	f.code = func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Path == "/contexts" {
			writeJSON(w, 200, map[string]string{"id": "own", "language": "bash", "cwd": "/home/user"})
			return
		}
		others(w, r)
	}
	c := f.pipe(t)
	_, err := f.handle(t, c).NewCodeContext(t.Context(), &e2b.CodeContextOptions{Language: "bash"})
	require.NoError(t, err)
	s := f.handle(t, c)
	_, err = s.CodeContexts(t.Context())
	require.NoError(t, err)
	f.forget()
	require.NoError(t, s.RemoveCodeContext(t.Context(), "own"))
	require.Equal(t, []string{"DELETE /contexts/own"}, ran())
	require.Len(t, f.requests(""), 1)
	requireDataKinds(t, s.RemoveCodeContext(t.Context(), "sh0"), e2b.ErrInvalidArgument)
}

// Variables are escaped for the language of the context, which is asked for once
// if another client made it.
func TestContextEnv(t *testing.T) {
	list := []e2b.CodeContext{
		{ID: "py0", Language: "python", Dir: "/home/user"}, {ID: "py1", Language: "python"}, {ID: "sh1", Language: "bash", Dir: "/tmp"}, {ID: "sh2", Language: "bash"},
	}
	f := newFakeSandbox()
	ran := contextsOf(t, f, &list)
	s := f.inMemory(t)
	for range 2 {
		for _, id := range []string{"py1", "sh2"} {
			_, err := s.RunCode(t.Context(), "x", &e2b.CodeOptions{Context: id, Env: map[string]string{"A": "it's"}})
			require.NoError(t, err)
		}
		require.Equal(t, []string{`"x" in py1 with map[A:it\'s]`, `"x" in sh2 with map[A:it'\''s]`}, ran())
	}
	_, err := s.RunCode(t.Context(), "x", &e2b.CodeOptions{Context: "sh2", Env: map[string]string{"a;b": "c"}})
	requireDataKinds(t, err, e2b.ErrInvalidArgument)
	require.Len(t, f.requests("/contexts"), 1)
	_, err = s.RunCode(t.Context(), "x", &e2b.CodeOptions{Context: "none"})
	requireDataKinds(t, err, e2b.ErrNotFound)
	require.Empty(t, ran())
}

// What a call left in a context is settled there, and nowhere else.
func TestContextsSettleByThemselves(t *testing.T) {
	list := []e2b.CodeContext{{ID: "py0", Language: "python"}, {ID: "py1", Language: "python"}, {ID: "py2", Language: "python"}}
	f := newFakeSandbox()
	ran := contextsOf(t, f, &list)
	s := f.inMemory(t)
	run := func(code, id string) {
		t.Helper()
		_, err := s.RunCode(t.Context(), code, &e2b.CodeOptions{Context: id})
		if code == "broken" {
			require.ErrorIs(t, err, e2b.ErrStreamInterrupted)
		} else {
			require.NoError(t, err)
		}
	}
	run("broken", "py1")
	run("a", "py2")
	run("a", "")
	run("b", "py1")
	run("c", "py1")
	require.Equal(t, []string{`"broken" in py1`, `"a" in py2`, `"a" in `, `"" in py1`, `"b" in py1`, `"c" in py1`}, ran())

	// The default one is the same by its ID and by its language.
	run("broken", "")
	run("d", "py0")
	run("broken", "py0")
	run("e", "")
	require.Equal(t, []string{`"broken" in `, `"" in `, `"d" in py0`, `"broken" in py0`, `"" in `, `"e" in `}, ran())
	run("f", "py0")
	require.Equal(t, []string{`"" in py0`, `"f" in py0`}, ran(), "its own gate remembers, too")
	run("g", "py0")
	require.Equal(t, []string{`"g" in py0`}, ran())
}

// After a restart the next call waits until the kernel may be asked.
func TestRestartedContextSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := []e2b.CodeContext{{ID: "py0", Language: "python"}, {ID: "py1", Language: "python"}}
		f := newFakeSandbox()
		ran := contextsOf(t, f, &list)
		s := f.inMemory(t)
		timed := func(id string) time.Duration {
			begin := time.Now()
			_, err := s.RunCode(t.Context(), "x", &e2b.CodeOptions{Context: id})
			require.NoError(t, err)
			return time.Since(begin)
		}
		require.NoError(t, s.RestartCodeContext(t.Context(), "py1"))
		require.Zero(t, timed(""))
		require.Equal(t, 1500*time.Millisecond, timed("py1"))
		require.Zero(t, timed("py1"))
		require.Equal(t, []string{"POST /contexts/py1/restart", `"x" in `, `"" in py1`, `"x" in py1`, `"x" in py1`}, ran())

		require.NoError(t, s.RestartCodeContext(t.Context(), "py0"))
		require.Equal(t, 1500*time.Millisecond, timed(""), "the default one, by its language")
		_, err := s.Kill(t.Context())
		require.NoError(t, err)
		f.setState(e2b.StateRunning) // another sandbox
		require.Zero(t, timed("py0"))
	})
}

// A restart does not wait for the code that it ends.
func TestRestartWhileCodeRuns(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	c, err := sbx.NewCodeContext(t.Context(), nil)
	require.NoError(t, err)
	out := &notifier{ch: make(chan struct{}, 1)}
	done := make(chan error, 1)
	go func() {
		_, err := sbx.RunCode(t.Context(), "x = 1\nprint('begun', flush=True)\nwhile True: pass", &e2b.CodeOptions{Context: c.ID, Stdout: out})
		done <- err
	}()
	<-out.ch
	require.NoError(t, sbx.RestartCodeContext(t.Context(), c.ID))
	requireDataKinds(t, <-done, e2b.ErrInterpreter)
	e, err := sbx.RunCode(t.Context(), "'x' in globals()", &e2b.CodeOptions{Context: c.ID})
	require.NoError(t, err)
	require.Equal(t, "False", e.Text())
	require.Equal(t, 1, e.Count)
}

// Contexts in a running interpreter.
func TestCodeContexts(t *testing.T) {
	t.Parallel()
	_, client, sbx := newSandbox(t, nil)
	runCode(t, sbx, "x = 'default'")
	a, err := sbx.NewCodeContext(t.Context(), &e2b.CodeContextOptions{Language: "py", Dir: "/tmp"})
	require.NoError(t, err)
	require.Equal(t, "python", a.Language)
	require.Equal(t, "/tmp", a.Dir)
	b, err := sbx.NewCodeContext(t.Context(), nil)
	require.NoError(t, err)
	list, err := sbx.CodeContexts(t.Context())
	require.NoError(t, err)
	require.Contains(t, list, *a)
	require.Contains(t, list, *b)
	in := func(s *e2b.Sandbox, id, code string) string {
		t.Helper()
		e, err := s.RunCode(t.Context(), code, &e2b.CodeOptions{Context: id})
		require.NoError(t, err)
		require.Nil(t, e.Error)
		return e.Text()
	}
	require.Equal(t, "/tmp", in(sbx, a.ID, "import os; x = 'a'; os.getcwd()"))
	require.Equal(t, "False", in(sbx, b.ID, "'x' in globals()"))
	require.Equal(t, "default", runCode(t, sbx, "x"))

	again, err := client.Connect(t.Context(), sbx.ID(), nil)
	require.NoError(t, err)
	require.Equal(t, "a", in(again, a.ID, "x"))

	require.NoError(t, sbx.RestartCodeContext(t.Context(), a.ID))
	require.Equal(t, "False", in(sbx, a.ID, "'x' in globals()"))
	require.NoError(t, sbx.RemoveCodeContext(t.Context(), a.ID))
	requireDataKinds(t, sbx.RemoveCodeContext(t.Context(), a.ID), e2b.ErrNotFound)
	_, err = sbx.RunCode(t.Context(), "1", &e2b.CodeOptions{Context: a.ID})
	requireDataKinds(t, err, e2b.ErrNotFound)
	requireDataKinds(t, sbx.RestartCodeContext(t.Context(), a.ID), e2b.ErrNotFound)
	for _, c := range list {
		if c.ID != a.ID && c.ID != b.ID {
			requireDataKinds(t, sbx.RemoveCodeContext(t.Context(), c.ID), e2b.ErrInvalidArgument)
		}
	}
	require.Equal(t, "default", runCode(t, sbx, "x"))
}
