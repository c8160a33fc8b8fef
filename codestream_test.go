package e2b_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

// told names an event.
func told(e e2b.CodeEvent) string {
	switch {
	case e.Count != 0:
		return fmt.Sprint("count ", e.Count)
	case e.Stdout != "":
		return "out " + e.Stdout
	case e.Stderr != "":
		return "err " + e.Stderr
	case e.Result != nil:
		return "result " + e.Result.Text
	case e.Error != nil:
		return "error " + e.Error.Error()
	}
	return "nothing"
}

// events reads a stream to its end.
func events(ctx context.Context, t testing.TB, s *e2b.CodeStream) (all []string, last error) {
	t.Helper()
	for e, err := range s.Events(ctx) {
		require.NoError(t, last, "an error is the last pair")
		if last = err; err != nil {
			require.Zero(t, e)
			continue
		}
		all = append(all, told(e))
	}
	return all, last
}

// A stream tells what RunCode collects, of every recorded execution.
func TestStreamOfRecordings(t *testing.T) {
	ran := 0
	for _, name := range recordings(t, "code-interpreter/*") {
		rec := readRecording(t, name)
		if rec.status != 200 || !strings.Contains(string(rec.body), `"type": `) || !rec.whole {
			continue
		}
		ran++
		handle := func() *e2b.Sandbox {
			r := emptySandbox(e2b.StateRunning, "proto")
			r.answers[executePath] = func() *http.Response { return answer(200, rec.header, rec.body, nil) }
			return r.handle(t, "proto")
		}
		want, wantErr := handle().RunCode(t.Context(), "x", nil)
		s, err := handle().StreamCode(t.Context(), "x", nil)
		require.NoError(t, err)
		got := &e2b.Execution{Error: wantExecutionError(want)}
		var last error
		for e, err := range s.Events(t.Context()) {
			last = err
			switch {
			case e.Count != 0:
				got.Count = e.Count
			case e.Result != nil:
				got.Results = append(got.Results, *e.Result)
			case e.Error != nil:
				got.Errors = append(got.Errors, *e.Error)
			}
			got.Stdout += e.Stdout
			got.Stderr += e.Stderr
		}
		res, resErr := s.Result()
		require.Equal(t, want, res, name)
		require.Equal(t, last, resErr)
		if wantErr != nil {
			require.ErrorContains(t, last, strings.TrimPrefix(wantErr.Error(), "e2b: run code "))
		} else {
			require.NoError(t, last)
		}
		if want != nil {
			require.Equal(t, want, got, name)
		}
		require.NoError(t, s.Close())
		again, err := s.Result()
		require.Equal(t, want, again, "Close changes nothing after the end")
		require.Equal(t, last, err)
	}
	require.Greater(t, ran, 40)
}

func wantExecutionError(e *e2b.Execution) *e2b.ExecutionError {
	if e == nil {
		return nil
	}
	return e.Error
}

// Events come while the code runs, and ctx bounds the opening alone.
func TestStreamCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.code = func(w http.ResponseWriter, r *http.Request) {
			drain(r)
			emit(w, `{"type":"number_of_executions","execution_count":2}`)
			for i := range 3 {
				if !elapse(r.Context(), time.Minute) {
					return
				}
				emit(w, fmt.Sprintf(`{"type":"stdout","text":"%d"}`, i), `{"type":"news"}`, `{}`)
			}
			emit(w, endLine)
		}
		sbx := f.inMemory(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		var out strings.Builder
		s, err := sbx.StreamCode(ctx, "x", &e2b.CodeOptions{Stdout: &out, Timeout: time.Hour})
		require.NoError(t, err)
		cancel()
		_, err = s.Result()
		require.ErrorContains(t, err, "not ended")
		begin := time.Now()
		var at []string
		for e, err := range s.Events(t.Context()) {
			require.NoError(t, err)
			at = append(at, fmt.Sprint(told(e), " at ", time.Since(begin)))
		}
		require.Equal(t, []string{"count 2 at 0s", "out 0 at 1m0s", "out 1 at 2m0s", "out 2 at 3m0s"}, at)
		e, err := s.Result()
		require.NoError(t, err)
		require.Equal(t, "012", out.String())
		require.Empty(t, e.Stdout)

		_, err = events(t.Context(), t, s)
		requireDataKinds(t, err, e2b.ErrClosed)
		_, err = s.Result()
		require.NoError(t, err, "the result stays")
	})
}

// However a stream ends before the code did: the code is interrupted, the right
// error comes, what came is kept, and the next call settles and goes on.
func TestStreamEnds(t *testing.T) {
	type ending struct {
		opts *e2b.CodeOptions
		end  func(ctx context.Context, t *testing.T, sbx *e2b.Sandbox, s *e2b.CodeStream) error // returns what Events told
		want error
	}
	read := func(ctx context.Context, t *testing.T, s *e2b.CodeStream) error {
		all, err := events(ctx, t, s)
		require.Equal(t, []string{"count 1", "out so far\n"}, all)
		return err
	}
	for name, tt := range map[string]ending{
		"ctx of Events": {end: func(ctx context.Context, t *testing.T, _ *e2b.Sandbox, s *e2b.CodeStream) error {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			return read(ctx, t, s)
		}, want: context.DeadlineExceeded},
		"break": {end: func(ctx context.Context, _ *testing.T, _ *e2b.Sandbox, s *e2b.CodeStream) error {
			for e := range s.Events(ctx) {
				if e.Stdout != "" {
					break
				}
			}
			_, err := s.Result()
			return err
		}, want: e2b.ErrClosed},
		"panic": {end: func(ctx context.Context, t *testing.T, _ *e2b.Sandbox, s *e2b.CodeStream) error {
			require.Panics(t, func() {
				for e := range s.Events(ctx) {
					if e.Stdout != "" {
						panic("of the caller")
					}
				}
			})
			_, err := s.Result()
			return err
		}, want: e2b.ErrClosed},
		"Close while it is read": {end: func(ctx context.Context, t *testing.T, _ *e2b.Sandbox, s *e2b.CodeStream) error {
			var wg sync.WaitGroup
			wg.Go(func() {
				elapse(ctx, time.Minute)
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			err := read(ctx, t, s)
			wg.Wait()
			return err
		}, want: e2b.ErrClosed},
		"Close in the loop": {end: func(ctx context.Context, t *testing.T, _ *e2b.Sandbox, s *e2b.CodeStream) (last error) {
			for e, err := range s.Events(ctx) {
				if last = err; e.Stdout != "" {
					require.NoError(t, s.Close())
				}
			}
			return last
		}, want: e2b.ErrClosed},
		"own pause": {end: func(ctx context.Context, t *testing.T, sbx *e2b.Sandbox, s *e2b.CodeStream) error {
			var wg sync.WaitGroup
			wg.Go(func() {
				elapse(ctx, time.Minute)
				if _, err := sbx.Pause(ctx, nil); err != nil {
					t.Error(err)
				}
			})
			err := read(ctx, t, s)
			wg.Wait()
			require.NoError(t, sbx.Connect(ctx, nil))
			return err
		}, want: e2b.ErrSandboxNotRunning},
		"timeout": {
			opts: &e2b.CodeOptions{Timeout: time.Minute},
			end: func(ctx context.Context, t *testing.T, _ *e2b.Sandbox, s *e2b.CodeStream) error {
				return read(ctx, t, s)
			}, want: e2b.ErrCommandTimeout,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				interp := newFakeInterpreter(time.Second)
				f := newFakeSandbox()
				f.code = interp.serve
				sbx := f.inMemory(t)
				s, err := sbx.StreamCode(t.Context(), "forever", tt.opts)
				require.NoError(t, err)
				err = tt.end(t.Context(), t, sbx, s)
				requireDataKinds(t, err, tt.want)
				e, rerr := s.Result()
				require.Equal(t, err, rerr)
				require.Equal(t, "so far\n", e.Stdout)
				synctest.Wait()
				require.Equal(t, "forever:left", interp.log()[0], "the server saw the connection close")
				_, err = sbx.RunCode(t.Context(), "next", nil)
				require.NoError(t, err)
				synctest.Wait()
				require.Equal(t, []string{"forever:left", ":swallowed", ":ended", "next:ended"}, interp.log())
			})
		})
	}
}

// A writer that panics leaves the context free, and in doubt.
func TestCodeWriterPanics(t *testing.T) {
	opts := &e2b.CodeOptions{Stdout: writerFunc(func([]byte) (int, error) { panic("of the caller") })}
	for name, call := range map[string]func(context.Context, *e2b.Sandbox){
		"RunCode": func(ctx context.Context, sbx *e2b.Sandbox) { _, _ = sbx.RunCode(ctx, "forever", opts) },
		"StreamCode": func(ctx context.Context, sbx *e2b.Sandbox) {
			if s, err := sbx.StreamCode(ctx, "forever", opts); err == nil {
				_, _ = events(ctx, t, s)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				interp := newFakeInterpreter(0)
				f := newFakeSandbox()
				f.code = interp.serve
				sbx := f.inMemory(t)
				require.PanicsWithValue(t, "of the caller", func() { call(t.Context(), sbx) })
				synctest.Wait()
				_, err := sbx.RunCode(t.Context(), "next", nil)
				require.NoError(t, err)
				synctest.Wait()
				require.Equal(t, []string{"forever:left", ":ended", "next:ended"}, interp.log())
			})
		})
	}
}

// A stream that nobody reads ends too, and lets the next in.
func TestStreamThatNobodyReads(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(context.Context, *e2b.Sandbox, *e2b.CodeStream) error
		want error
	}{
		"Close": {func(_ context.Context, _ *e2b.Sandbox, s *e2b.CodeStream) error { return s.Close() }, e2b.ErrClosed},
		"pause": {func(ctx context.Context, sbx *e2b.Sandbox, _ *e2b.CodeStream) error {
			if _, err := sbx.Pause(ctx, nil); err != nil {
				return err
			}
			return sbx.Connect(ctx, nil)
		}, e2b.ErrSandboxNotRunning},
		"timeout": {func(ctx context.Context, _ *e2b.Sandbox, _ *e2b.CodeStream) error {
			elapse(ctx, time.Minute)
			return nil
		}, e2b.ErrCommandTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				interp := newFakeInterpreter(0)
				f := newFakeSandbox()
				f.code = interp.serve
				sbx := f.inMemory(t)
				s, err := sbx.StreamCode(t.Context(), "forever", &e2b.CodeOptions{Timeout: time.Minute})
				require.NoError(t, err)
				next := make(chan error, 1)
				go func() {
					_, err := sbx.RunCode(t.Context(), "next", nil)
					next <- err
				}()
				synctest.Wait()
				require.Len(t, interp.log(), 1, "the next waits")
				require.NoError(t, tt.end(t.Context(), sbx, s))
				err = <-next
				if name == "pause" {
					requireDataKinds(t, err, e2b.ErrSandboxNotRunning)
					_, err = sbx.RunCode(t.Context(), "next", nil)
				}
				require.NoError(t, err)
				synctest.Wait()
				require.Equal(t, []string{"forever:left", ":ended", "next:ended"}, interp.log())
				_, err = s.Result()
				requireDataKinds(t, err, tt.want)
				all, err := events(t.Context(), t, s)
				requireDataKinds(t, err, tt.want)
				require.Empty(t, all)
				require.NoError(t, s.Close())
			})
		})
	}
}

// ctx bounds the opening: the wait for the one before, the settling, the headers.
func TestStreamOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.code = func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(string(drain(r)), "hang") {
				<-r.Context().Done()
			}
			emit(w, endLine)
		}
		sbx := f.inMemory(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_, err := sbx.StreamCode(ctx, "hang", nil)
		requireDataKinds(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(begin))
		f.forget()
		_, err = sbx.StreamCode(ctx, "x", nil)
		requireDataKinds(t, err, context.DeadlineExceeded)
		require.Empty(t, f.requests(""))
		_, err = sbx.StreamCode(t.Context(), "x", &e2b.CodeOptions{Timeout: -1})
		requireDataKinds(t, err, e2b.ErrInvalidArgument)

		s, err := sbx.StreamCode(t.Context(), "x", nil)
		require.NoError(t, err)
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = sbx.StreamCode(ctx, "behind", nil)
		requireDataKinds(t, err, context.DeadlineExceeded)
		all, err := events(t.Context(), t, s)
		require.NoError(t, err)
		require.Empty(t, all)
	})
}

// A stream that is cut is no success, and what came is kept.
func TestStreamCut(t *testing.T) {
	f := newFakeSandbox()
	f.code = func(w http.ResponseWriter, r *http.Request) {
		drain(r)
		emit(w, `{"type":"stdout","text":"kept"}`)
		abort(w)
	}
	s, err := f.onLoopback(t).StreamCode(t.Context(), "x", nil)
	require.NoError(t, err)
	all, err := events(t.Context(), t, s)
	requireDataKinds(t, err, e2b.ErrStreamInterrupted)
	require.Equal(t, []string{"out kept"}, all)
	e, rerr := s.Result()
	require.Equal(t, err, rerr)
	require.Equal(t, "kept", e.Stdout)
}

// A stream of a running interpreter.
func TestStreamCodeEndToEnd(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	c, err := sbx.NewCodeContext(t.Context(), nil)
	require.NoError(t, err)
	s, err := sbx.StreamCode(t.Context(), "import sys\nprint('a', flush=True)\nprint('b', file=sys.stderr, flush=True)\n[1]", &e2b.CodeOptions{Context: c.ID})
	require.NoError(t, err)
	all, err := events(t.Context(), t, s)
	require.NoError(t, err)
	require.Equal(t, "count 1", all[0])
	require.Contains(t, strings.ReplaceAll(strings.Join(all, ""), "err ", ""), "b\n", "in one piece or in two")
	require.Equal(t, "result [1]", all[len(all)-1])
	e, err := s.Result()
	require.NoError(t, err)
	require.Equal(t, "a\n", e.Stdout)

	s, err = sbx.StreamCode(t.Context(), "x = 7\nwhile True: print('on', flush=True)", &e2b.CodeOptions{Context: c.ID})
	require.NoError(t, err)
	n := 0
	for e, err := range s.Events(t.Context()) {
		require.NoError(t, err)
		if e.Stdout != "" {
			n++
		}
		if n == 2 {
			break
		}
	}
	e, err = sbx.RunCode(t.Context(), "x", &e2b.CodeOptions{Context: c.ID})
	require.NoError(t, err)
	require.Equal(t, "7", e.Text())
}

// MaxOutput bounds what Result collects, not what the events tell.
func TestStreamCodeTellsWhatResultHasNoRoomFor(t *testing.T) {
	f := newFakeSandbox()
	f.code = lines(`{"type":"result","text":"1"}`, `{"type":"result","text":"`+strings.Repeat("x", 200)+`"}`, `{"type":"result","text":"3"}`, endLine)
	for limit, kept := range map[int64]int{1: 0, 100: 1} {
		s, err := f.inMemory(t).StreamCode(t.Context(), "x", &e2b.CodeOptions{MaxOutput: limit})
		require.NoError(t, err)
		var got []string
		for e, err := range s.Events(t.Context()) {
			require.NoError(t, err)
			got = append(got, e.Result.Text)
		}
		require.Equal(t, []string{"1", strings.Repeat("x", 200), "3"}, got)
		e, err := s.Result()
		require.NoError(t, err)
		require.Len(t, e.Results, kept)
		require.True(t, e.ResultsTruncated)
	}
}
