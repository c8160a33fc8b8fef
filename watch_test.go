package e2b_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/filesystem"
)

// Opening a watch is under all rules that hold for every call into a sandbox.
func init() {
	open := func(ctx context.Context, s *e2b.Sandbox, o *e2b.WatchOptions) error {
		w, err := s.Files.Watch(ctx, "/w", o)
		if err == nil {
			return w.Close()
		}
		if _, ok := errors.AsType[*fs.PathError](err); !ok {
			return fmt.Errorf("no PathError: %w", err)
		}
		return err
	}
	dataCalls["watch"] = func(ctx context.Context, s *e2b.Sandbox) error { return open(ctx, s, nil) }
	dataCalls["watch by polling"] = func(ctx context.Context, s *e2b.Sandbox) error {
		return open(ctx, s, &e2b.WatchOptions{Polling: true})
	}
}

var polling = &e2b.WatchOptions{Polling: true}

// The recorded streams, whole.
func TestRecordedWatch(t *testing.T) {
	entry := &e2b.FileInfo{
		Name: "f", Path: "/tmp/envd-fx/w/f", Size: 1, Mode: 0o644, Owner: "root", Group: "root",
		ModTime: time.Date(2026, 11, 29, 16, 51, 55, 719653588, time.UTC),
	}
	want := map[string]struct {
		events []e2b.FileEvent
		err    error
	}{
		"entry_json": {[]e2b.FileEvent{
			{Name: "f", Path: "/w/f", Op: e2b.FileCreate, Info: entry},
			{Name: "f", Path: "/w/f", Op: e2b.FileWrite, Info: entry},
			{Name: "f", Path: "/w/f", Op: e2b.FileRemove},
		}, e2b.ErrStreamInterrupted},
		"missing_proto": {nil, fs.ErrNotExist},
		"on_file_json":  {nil, e2b.ErrInvalidArgument},
		"proto": {[]e2b.FileEvent{
			{Name: "f", Path: "/w/f", Op: e2b.FileCreate},
			{Name: "f", Path: "/w/f", Op: e2b.FileWrite},
			{Name: "f", Path: "/w/f", Op: e2b.FileChmod},
			{Name: "f", Path: "/w/f", Op: e2b.FileRename},
			{Name: "g", Path: "/w/g", Op: e2b.FileCreate},
			{Name: "d", Path: "/w/d", Op: e2b.FileCreate},
			{Name: "d/x", Path: "/w/d/x", Op: e2b.FileCreate},
			{Name: "d/x", Path: "/w/d/x", Op: e2b.FileWrite},
			{Name: "g", Path: "/w/g", Op: e2b.FileRemove},
		}, e2b.ErrStreamInterrupted},
	}
	for _, name := range recordings(t, "envd/fs_watch_dir_*") {
		short := strings.TrimPrefix(name, "envd/fs_watch_dir_")
		t.Run(short, func(t *testing.T) {
			tt, ok := want[short]
			require.True(t, ok, "a recording that this test does not know")
			rec, codec := readRecording(t, name), codecOf(name)
			r := emptySandbox(e2b.StateRunning, codec)
			r.answers[watchPath] = func() *http.Response { return answer(rec.status, rec.header, rec.body, nil) }
			w, err := r.handle(t, codec).Files.Watch(t.Context(), "/w/", &e2b.WatchOptions{Recursive: true, Entries: true})
			if tt.events == nil {
				requireDataKinds(t, err, tt.err)
				require.Equal(t, []string{watchPath}, r.paths)
				return
			}
			require.NoError(t, err)
			var events []e2b.FileEvent
			for e, err := range w.Events(t.Context()) {
				if err != nil {
					requireDataKinds(t, err, tt.err)
					require.ErrorContains(t, err, "deadline_exceeded")
					break
				}
				events = append(events, e)
			}
			require.NoError(t, w.Close())
			for i := range events { // times are in UTC, whatever the zone here
				if info := events[i].Info; info != nil {
					info.ModTime = info.ModTime.UTC()
				}
			}
			require.Equal(t, tt.events, events)
			require.Equal(t, []string{watchPath, infoPath}, r.paths)
		})
	}
}

// The recorded answers of polling.
func TestRecordedWatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := func(name string) func() *http.Response {
			rec := readRecording(t, "envd/"+name)
			return func() *http.Response { return answer(rec.status, rec.header, rec.body, nil) }
		}
		r := emptySandbox(e2b.StateRunning, "json")
		r.answers[createWatcherPath] = of("fs_create_watcher_missing_json")
		_, err := r.handle(t, "json").Files.Watch(t.Context(), "/w", polling)
		requireDataKinds(t, err, fs.ErrNotExist)
		require.Equal(t, []string{createWatcherPath}, r.paths)

		r = emptySandbox(e2b.StateRunning, "json")
		r.answers[createWatcherPath] = of("fs_create_watcher_json")
		r.answers[askWatcherPath] = of("fs_get_watcher_events_drained_json")
		r.answers[removeWatcherPath] = func() *http.Response {
			return answer(200, http.Header{"Content-Type": {"application/json"}}, []byte("{}"), nil)
		}
		w, err := r.handle(t, "json").Files.Watch(t.Context(), "/w", polling)
		require.NoError(t, err)
		require.True(t, elapse(t.Context(), 2500*time.Millisecond))
		require.NoError(t, w.Close())
		require.Equal(t, []string{createWatcherPath, askWatcherPath, askWatcherPath, removeWatcherPath}, r.paths)

		r = emptySandbox(e2b.StateRunning, "proto")
		r.answers[createWatcherPath] = func() *http.Response {
			return answer(200, http.Header{"Content-Type": {"application/proto"}}, marshal(&filesystem.CreateWatcherResponse{WatcherId: "w"}), nil)
		}
		r.answers[askWatcherPath] = of("fs_get_watcher_events_proto")
		r.answers[removeWatcherPath] = of("fs_remove_watcher_proto")
		w, err = r.handle(t, "proto").Files.Watch(t.Context(), "/w", &e2b.WatchOptions{Polling: true, Entries: true})
		require.NoError(t, err)
		var told []string
		for e, err := range w.Events(t.Context()) {
			require.NoError(t, err)
			require.Equal(t, "/tmp/envd-fx/w/p", e.Info.Path)
			if told = append(told, toldOf(e)); len(told) == 2 {
				break
			}
		}
		require.NoError(t, w.Close())
		require.Equal(t, []string{"create p", "write p"}, told)
		require.Equal(t, []string{createWatcherPath, askWatcherPath, removeWatcherPath}, r.paths)
	})
}

// watchKnownAt reads the first n bytes of a stream with the generated code alone.
func watchKnownAt(t testing.TB, body []byte, n int, codec string) (started bool, told []string) {
	t.Helper()
	for rest := body[:n]; len(rest) >= 5; {
		size := int(binary.BigEndian.Uint32(rest[1:]))
		if len(rest) < 5+size || rest[0]&2 != 0 {
			break
		}
		var m filesystem.WatchDirResponse
		if codec == "json" {
			require.NoError(t, protojson.Unmarshal(rest[5:5+size], &m))
		} else {
			require.NoError(t, proto.Unmarshal(rest[5:5+size], &m))
		}
		rest = rest[5+size:]
		started = started || m.GetStart() != nil
		if e := m.GetFilesystem(); e != nil {
			told = append(told, strings.ToLower(strings.TrimPrefix(e.GetType().String(), "EVENT_TYPE_"))+" "+e.GetName())
		}
	}
	return started, told
}

// Every recorded stream, cut after every byte, with and without an error of the
// connection: what arrived is there, then comes an error, and the control plane
// is asked why.
func TestWatchStreamsCutEverywhere(t *testing.T) {
	t.Parallel()
	for _, name := range recordings(t, "envd/fs_watch_dir_*") {
		rec, codec := readRecording(t, name), codecOf(name)
		t.Run(strings.TrimPrefix(name, "envd/fs_watch_dir_"), func(t *testing.T) {
			where := 0
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("cut after %d of %d bytes", where, len(rec.body))
				}
			})
			for n := range rec.body {
				where = n
				state, kind := e2b.StateRunning, e2b.ErrStreamInterrupted
				if n/2%2 == 1 {
					state, kind = e2b.StatePaused, e2b.ErrSandboxNotRunning
				}
				r := emptySandbox(state, codec)
				end := []error{io.ErrUnexpectedEOF, nil}[n%2]
				r.answers[watchPath] = func() *http.Response { return answer(200, rec.header, rec.body[:n], end) }
				started, want := watchKnownAt(t, rec.body, n, codec)
				w, err := r.handle(t, codec).Files.Watch(t.Context(), "/w", nil)
				require.Equal(t, started, err == nil, "%v", err)
				if err == nil {
					var told []string
					told, err = readEvents(t.Context(), t, w)
					require.NoError(t, w.Close())
					require.Equal(t, want, told)
				}
				requireDataKinds(t, err, kind)
				require.Equal(t, []string{watchPath, infoPath}, r.paths)
			}
		})
	}
}

// The same of an answer to polling.
func TestPolledEventsCutEverywhere(t *testing.T) {
	rec := readRecording(t, "envd/fs_get_watcher_events_proto")
	for n := range rec.body {
		synctest.Test(t, func(t *testing.T) {
			r := emptySandbox(e2b.StateRunning, "proto")
			h := http.Header{"Content-Type": {"application/proto"}}
			r.answers[createWatcherPath] = func() *http.Response {
				return answer(200, h, marshal(&filesystem.CreateWatcherResponse{WatcherId: "w"}), nil)
			}
			r.answers[askWatcherPath] = func() *http.Response { return answer(200, rec.header, rec.body[:n], io.ErrUnexpectedEOF) }
			r.answers[removeWatcherPath] = func() *http.Response { return answer(200, h, nil, nil) }
			told, err := watched(t.Context(), t, r.handle(t, "proto"), polling)
			require.Empty(t, told)
			requireDataKinds(t, err, e2b.ErrStreamInterrupted)
			require.Equal(t, []string{createWatcherPath, askWatcherPath, infoPath, removeWatcherPath}, r.paths)
		})
	}
}

// Whatever ends a stream, it is told, and is not taken for the end of the
// directory.
func TestBrokenWatch(t *testing.T) {
	for name, b := range streamBreaks {
		for state, want := range map[e2b.State]error{
			e2b.StateRunning: e2b.ErrStreamInterrupted, e2b.StatePaused: e2b.ErrSandboxNotRunning, "": e2b.ErrSandboxNotRunning,
		} {
			t.Run(fmt.Sprintf("%s/%q", name, state), func(t *testing.T) {
				f := newFakeSandbox()
				f.envd = func(w http.ResponseWriter, r *http.Request) {
					f.setState(state)
					b.breaking(w, r)
				}
				told, err := watched(t.Context(), t, f.onLoopback(t), nil)
				requireDataKinds(t, err, want)
				if b.started {
					require.Equal(t, "create a", strings.Join(told, ""))
				} else {
					require.Empty(t, told)
				}
				require.Equal(t, []string{watchPath, infoPath}, f.paths(), "no further request to the sandbox")
			})
		}
	}
}

// What envd answers when it will not watch.
func TestWatchIsRefused(t *testing.T) {
	for _, tt := range []struct {
		code    connect.Code
		message string
		want    []error
	}{
		{connect.CodeNotFound, "path /w not found: stat /w: no such file or directory", []error{fs.ErrNotExist}},
		{connect.CodeInvalidArgument, "path /w not a directory: %!w(<nil>)", []error{e2b.ErrInvalidArgument}},
		{connect.CodeInvalidArgument, "cannot watch path on network filesystem: /w", []error{e2b.ErrInvalidArgument}},
		{connect.CodeInternal, "error statting path /w: stat /w: not a directory", []error{fs.ErrNotExist}},
		{connect.CodeUnauthenticated, "invalid username: 'x'", []error{e2b.ErrUnauthenticated}},
		{connect.CodeResourceExhausted, "too many", []error{e2b.ErrRateLimited}},
		{connect.CodeDeadlineExceeded, "context deadline exceeded", nil},
	} {
		refuse := connect.NewError(tt.code, errors.New(tt.message))
		f := newFakeWatch(&fakeWatch{
			dir:    func(context.Context, *watchRequest, *watchStream) error { return refuse },
			create: func(context.Context, *filesystem.CreateWatcherRequest) (string, error) { return "", refuse },
		})
		sbx := f.inMemory(t)
		for _, o := range []*e2b.WatchOptions{nil, polling} {
			_, err := sbx.Files.Watch(t.Context(), "/w", o)
			requireDataKinds(t, err, tt.want...)
			api, ok := errors.AsType[*e2b.APIError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, tt.code.String(), api.Code)
			require.Equal(t, tt.message, api.Message)
			path, ok := errors.AsType[*fs.PathError](err)
			require.True(t, ok)
			require.Equal(t, "watch", path.Op)
			require.Equal(t, "/w", path.Path)
		}
		require.Equal(t, []string{watchPath, createWatcherPath}, f.paths())
	}

	// One that has no name could not be asked for.
	f := newFakeWatch(&fakeWatch{create: func(context.Context, *filesystem.CreateWatcherRequest) (string, error) { return "", nil }})
	_, err := f.inMemory(t).Files.Watch(t.Context(), "/w", polling)
	require.ErrorContains(t, err, "names no watcher")
}

// What ends a watch that was open: envd's error at the end of the stream, or as
// the answer to a poll. What happened before is told first.
func TestWatchFails(t *testing.T) {
	for _, tt := range []struct {
		code    connect.Code
		message string
	}{
		{connect.CodeInternal, "watcher error: fsnotify: queue or buffer overflow"},
		{connect.CodeUnknown, "error sending filesystem event: internal: marshal message: string field contains invalid UTF-8"},
		{connect.CodeNotFound, "watcher with id w1 not found"},
		{connect.CodeDeadlineExceeded, "context deadline exceeded"},
		{connect.CodeUnavailable, "token " + fakeToken + "\nis bad"},
	} {
		t.Run(tt.message, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fails := connect.NewError(tt.code, errors.New(tt.message))
				left := 0
				fake := polled(&left, []string{"create a"})
				ask := fake.ask
				fake.ask = func(ctx context.Context, id string) ([]*filesystem.FilesystemEvent, error) {
					events, err := ask(ctx, id)
					if len(events) == 0 && err == nil {
						err = fails
					}
					return events, err
				}
				fake.dir = func(_ context.Context, _ *watchRequest, s *watchStream) error {
					return errors.Join(sendWatch(s, "create a"), fails)
				}
				for i, o := range []*e2b.WatchOptions{nil, polling} {
					f := newFakeWatch(fake)
					if i == 0 {
						fake.dir = func(_ context.Context, _ *watchRequest, s *watchStream) error {
							if err := sendWatch(s, "create a"); err != nil {
								return err
							}
							return fails
						}
					}
					told, err := watched(t.Context(), t, f.inMemory(t), o)
					requireDataKinds(t, err, e2b.ErrStreamInterrupted)
					require.ErrorContains(t, err, strings.ReplaceAll(strings.ReplaceAll(tt.message, fakeToken, "[redacted]"), "\n", " "))
					require.Equal(t, []string{"create a"}, told)
					require.Equal(t, 1, f.infos())
				}
				require.Zero(t, left, "the watcher is removed")
			})
		})
	}
}

// An answer to a poll that is not envd's.
func TestPollIsRefused(t *testing.T) {
	for status, want := range map[int][]error{
		401: {e2b.ErrUnauthenticated}, 429: {e2b.ErrQuotaExceeded, e2b.ErrRateLimited}, 502: {e2b.ErrSandboxNotRunning}, 503: {e2b.ErrServiceBusy},
	} {
		synctest.Test(t, func(t *testing.T) {
			left := 0
			f := newFakeWatch(polled(&left))
			rpc := f.envd
			f.envd = func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == askWatcherPath {
					proxyError(w, status, "The sandbox was not found")
					return
				}
				rpc(w, r)
			}
			_, err := watched(t.Context(), t, f.inMemory(t), polling)
			requireDataKinds(t, err, want...)
			if status == 502 { // what goes there might wake it
				require.Equal(t, []string{createWatcherPath, askWatcherPath}, f.paths())
			} else {
				require.Equal(t, []string{createWatcherPath, askWatcherPath, removeWatcherPath}, f.paths())
				require.Zero(t, left)
			}
		})
	}
}

// A poll that breaks off ends the watch, and the sandbox is left alone unless it is
// known to run.
func TestBrokenPoll(t *testing.T) {
	for state, want := range map[e2b.State]error{
		e2b.StateRunning: e2b.ErrStreamInterrupted, e2b.StatePaused: e2b.ErrSandboxNotRunning, "": e2b.ErrSandboxNotRunning,
		"unknown": e2b.ErrStreamInterrupted,
	} {
		synctest.Test(t, func(t *testing.T) {
			left := 0
			f := newFakeWatch(polled(&left))
			rpc := f.envd
			f.envd = func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != askWatcherPath {
					rpc(w, r)
					return
				}
				drain(r)
				f.setState(state)
				panic(http.ErrAbortHandler)
			}
			if state == "unknown" {
				state = e2b.StateRunning // for the sandbox's own port
				f.info = func(w http.ResponseWriter, _ *http.Request) {
					writeJSON(w, 500, map[string]any{"code": 500, "message": "x"})
				}
			}
			told, err := watched(t.Context(), t, f.inMemory(t), polling)
			requireDataKinds(t, err, want)
			require.Empty(t, told)
			paths := []string{createWatcherPath, askWatcherPath, infoPath}
			if state == e2b.StateRunning && f.info == nil {
				paths = append(paths, removeWatcherPath)
				require.Zero(t, left)
			}
			require.Equal(t, paths, f.paths())
		})
	}
}

// A poll that is not answered ends the watch: what it would have said may be lost.
func TestPollTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := 0
		fake := polled(&left)
		fake.ask = func(ctx context.Context, _ string) ([]*filesystem.FilesystemEvent, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		f := newFakeWatch(fake)
		sbx := f.inMemory(t, func(o *e2b.ClientOptions) { o.RequestTimeout = 7 * time.Second })
		begin := time.Now()
		_, err := watched(t.Context(), t, sbx, polling)
		requireDataKinds(t, err, e2b.ErrRequestTimeout)
		require.Equal(t, 8*time.Second, time.Since(begin))
		requireRemoved(t, f)
	})
}

// A connection whose other half is dead is noticed once pings have been seen on it.
func TestSilentWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeWatch(&fakeWatch{dir: func(ctx context.Context, _ *watchRequest, s *watchStream) error {
			if err := sendWatch(s); err != nil {
				return err
			}
			for range 100 {
				if err := s.Send(watchPing()); err != nil || !elapse(ctx, 50*time.Second) {
					return err
				}
			}
			<-ctx.Done()
			return ctx.Err()
		}})
		begin := time.Now()
		told, err := watched(t.Context(), t, f.inMemory(t), nil)
		requireDataKinds(t, err, e2b.ErrStreamInterrupted)
		require.ErrorContains(t, err, "silent")
		require.Empty(t, told)
		require.Equal(t, 99*50*time.Second+150*time.Second, time.Since(begin))
	})
}

// What is asked for, in both forms.
func TestWatchRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := 0
		fake := polled(&left)
		var got []string
		fake.dir = func(ctx context.Context, r *watchRequest, s *watchStream) error {
			got = append(got, fmt.Sprint(r.Msg.GetPath(), r.Msg.GetRecursive(), r.Msg.GetIncludeEntry(), r.Msg.GetAllowNetworkMounts()))
			return watches()(ctx, r, s)
		}
		create := fake.create
		fake.create = func(ctx context.Context, r *filesystem.CreateWatcherRequest) (string, error) {
			got = append(got, fmt.Sprint(r.GetPath(), r.GetRecursive(), r.GetIncludeEntry(), r.GetAllowNetworkMounts()))
			return create(ctx, r)
		}
		for _, o := range []e2b.WatchOptions{
			{},
			{Recursive: true, User: "root"},
			{Entries: true, User: "root"},
			{AllowNetworkMounts: true, User: "root"},
		} {
			for _, byPolling := range []bool{false, true} {
				got = nil
				o.Polling = byPolling
				f := newFakeWatch(fake)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				w, err := f.inMemory(t).Files.Watch(ctx, "d", &o)
				require.NoError(t, err)
				require.True(t, elapse(t.Context(), 1500*time.Millisecond))
				require.NoError(t, w.Close())
				cancel()
				require.Equal(t, []string{fmt.Sprint("d", o.Recursive, o.Entries, o.AllowNetworkMounts)}, got)
				for _, r := range f.requests("") {
					require.Empty(t, r.header.Get("Connect-Timeout-Ms"), "the watch would end with the ctx of its opening")
					require.Equal(t, o.User != "", r.header.Get("Authorization") == "Basic cm9vdDo=", r.path)
					require.Equal(t, fakeToken, r.header.Get("X-Access-Token"))
					if r.path == watchPath {
						require.Equal(t, "50", r.header.Get("Keepalive-Ping-Interval"))
					}
				}
				if byPolling {
					require.Equal(t, []string{createWatcherPath, askWatcherPath, removeWatcherPath}, f.paths())
				}
			}
		}
		require.Zero(t, left)
	})
}

// Arguments are refused before any request.
func TestWatchBadInput(t *testing.T) {
	f := newFakeWatch(&fakeWatch{})
	sbx := f.inMemory(t)
	for _, tt := range []struct {
		path string
		o    e2b.WatchOptions
	}{
		{"", e2b.WatchOptions{}},
		{"a\x00b", e2b.WatchOptions{}},
		{"a\xff", e2b.WatchOptions{}},
		{"/w", e2b.WatchOptions{User: "a:b"}},
		{"/w", e2b.WatchOptions{User: "a\n"}},
		{"/w", e2b.WatchOptions{PollInterval: -1}},
	} {
		w, err := sbx.Files.Watch(t.Context(), tt.path, &tt.o)
		requireDataKinds(t, err, e2b.ErrInvalidArgument)
		require.Nil(t, w)
	}
	require.Empty(t, f.requests(""))
}

// USERS.md H7: what envd is too old for is refused before any request, naming both
// versions.
func TestH7WatchVersions(t *testing.T) {
	for _, tt := range []struct {
		o         e2b.WatchOptions
		what      string
		old, need string
	}{
		{e2b.WatchOptions{Recursive: true}, "Recursive", "0.1.3", "0.1.4"},
		{e2b.WatchOptions{Entries: true}, "Entries", "0.6.2", "0.6.3"},
		{e2b.WatchOptions{AllowNetworkMounts: true}, "AllowNetworkMounts", "0.6.3", "0.6.4"},
	} {
		f := newFakeWatch(&fakeWatch{dir: watches()})
		f.version = tt.old
		_, err := f.inMemory(t).Files.Watch(t.Context(), "/w", &tt.o)
		requireDataKinds(t, err, e2b.ErrNotSupported)
		for _, part := range []string{tt.what, tt.old, tt.need} {
			require.ErrorContains(t, err, part)
		}
		require.Empty(t, f.requests(""))
		for _, version := range []string{tt.need, "0.10.0", "1.0.0", "what"} {
			f.version = version
			w, err := f.inMemory(t).Files.Watch(t.Context(), "/w", &tt.o)
			require.NoError(t, err, version)
			require.NoError(t, w.Close())
		}
		f.version = tt.old
		w, err := f.inMemory(t).Files.Watch(t.Context(), "/w", nil)
		require.NoError(t, err, "nothing is asked for that it does not have")
		require.NoError(t, w.Close())
	}
}

// The ctx of the opening has no say afterwards, nor has the request timeout.
func TestWatchContextBoundsTheOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := 0
		fake := polled(&left, nil, []string{"create a"})
		fake.dir = func(ctx context.Context, _ *watchRequest, s *watchStream) error {
			if err := sendWatch(s); err != nil || !elapse(ctx, time.Hour) {
				return err
			}
			return s.Send(watchEvent(fileEvents("create a")[0]))
		}
		for _, o := range []*e2b.WatchOptions{nil, {Polling: true, PollInterval: time.Hour}} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			w, err := newFakeWatch(fake).inMemory(t).Files.Watch(ctx, "/w", o)
			cancel()
			require.NoError(t, err)
			for e, err := range w.Events(t.Context()) {
				require.NoError(t, err)
				require.Equal(t, "create a", toldOf(e))
				break
			}
			require.NoError(t, w.Close())
		}
		require.Zero(t, left)
	})
}

// A server that does not have the stream is asked by polling; one that refuses to
// watch, or may come back, is not.
func TestWatchFallsBack(t *testing.T) {
	text := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "404 page not found", status) }
	}
	end := func(code string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/connect+proto")
			write(w, frame(2, fmt.Appendf(nil, `{"error":{"code":%q,"message":"x"}}`, code)))
		}
	}
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		falls  bool
	}{
		"404":              {text(404), true},
		"405":              {text(405), true},
		"415":              {text(415), true},
		"501":              {text(501), true},
		"unimplemented":    {end("unimplemented"), true},
		"not found":        {end("not_found"), false},
		"invalid argument": {end("invalid_argument"), false},
		"unavailable":      {end("unavailable"), false},
		"401":              {text(401), false},
		"500":              {text(500), false},
		"503":              {text(503), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				left := 0
				f := newFakeWatch(polled(&left, nil, []string{"create a"}))
				rpc := f.envd
				f.envd = func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == watchPath {
						drain(r)
						tt.answer(w, r)
						return
					}
					rpc(w, r)
				}
				begin := time.Now()
				w, err := f.inMemory(t).Files.Watch(t.Context(), "/w", nil)
				if !tt.falls {
					require.Error(t, err)
					require.NotErrorIs(t, err, e2b.ErrNotSupported)
					require.Equal(t, []string{watchPath}, f.paths())
					return
				}
				require.NoError(t, err)
				for e, err := range w.Events(t.Context()) {
					require.NoError(t, err)
					require.Equal(t, "create a", toldOf(e))
					break
				}
				require.Equal(t, 2*e2b.DefaultPollInterval, time.Since(begin))
				require.NoError(t, w.Close())
				require.Equal(t, []string{watchPath, createWatcherPath, askWatcherPath, askWatcherPath, removeWatcherPath}, f.paths())
				require.Zero(t, left)
			})
		})
	}

	_, err := newFakeWatch(&fakeWatch{}).inMemory(t).Files.Watch(t.Context(), "/w", nil)
	requireDataKinds(t, err, e2b.ErrNotSupported)
}

// Polls come at the interval that was asked for, whoever reads.
func TestPollInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := 0
		f := newFakeWatch(polled(&left))
		w, err := f.inMemory(t).Files.Watch(t.Context(), "/w", &e2b.WatchOptions{Polling: true, PollInterval: 10 * time.Second})
		require.NoError(t, err)
		require.True(t, elapse(t.Context(), 35*time.Second))
		require.Len(t, f.requests(askWatcherPath), 3)
		require.NoError(t, w.Close())
	})
}

// bothWays runs a test for a watch over a stream and for one by polling, of which
// both tell of the creation of a and b and then of nothing.
func bothWays(t *testing.T, test func(t *testing.T, f *fakeSandbox, sbx *e2b.Sandbox, w *e2b.Watcher)) {
	for _, o := range []*e2b.WatchOptions{nil, polling} {
		t.Run(map[bool]string{false: "stream", true: "polling"}[o != nil], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				left := 0
				fake := polled(&left, []string{"create a", "create b"})
				gone := make(chan struct{})
				fake.dir = func(ctx context.Context, r *watchRequest, s *watchStream) error {
					defer close(gone)
					return watches("create a", "create b")(ctx, r, s)
				}
				f := newFakeWatch(fake)
				sbx := f.inMemory(t)
				w, err := sbx.Files.Watch(t.Context(), "/w", o)
				require.NoError(t, err)
				require.True(t, elapse(t.Context(), 1500*time.Millisecond)) // both events wait
				test(t, f, sbx, w)
				require.NoError(t, w.Close())
				if o == nil {
					<-gone // envd sees the end of the stream
				}
				if f.infos() == 0 && len(f.requests(removeWatcherPath)) > 0 {
					require.Zero(t, left)
				}
			})
		})
	}
}

func requireRemoved(t *testing.T, f *fakeSandbox) {
	t.Helper()
	if len(f.requests(createWatcherPath)) > 0 {
		require.Len(t, f.requests(removeWatcherPath), 1)
	}
	require.Zero(t, f.infos())
}

// USERS.md H8: a loop that is left ends the watch, Close may be called as often as
// one likes, and the events are there once.
func TestH8LoopIsLeft(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fakeSandbox, _ *e2b.Sandbox, w *e2b.Watcher) {
		events := w.Events(t.Context())
		for e, err := range events {
			require.NoError(t, err)
			require.Equal(t, e2b.FileEvent{Name: "a", Path: "/w/a", Op: e2b.FileCreate}, e)
			break
		}
		synctest.Wait()
		requireRemoved(t, f) // without Close
		for range 2 {
			require.NoError(t, w.Close())
			told, err := readEvents(t.Context(), t, w)
			requireDataKinds(t, err, e2b.ErrClosed)
			require.ErrorContains(t, err, "already")
			require.Empty(t, told)
		}
		for _, err := range events {
			requireDataKinds(t, err, e2b.ErrClosed)
		}
		requireRemoved(t, f)
	})
}

// A loop that panics leaves nothing behind either.
func TestWatchLoopPanics(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fakeSandbox, _ *e2b.Sandbox, w *e2b.Watcher) {
		require.PanicsWithValue(t, "oops", func() {
			for range w.Events(t.Context()) {
				panic("oops")
			}
		})
		synctest.Wait()
		requireRemoved(t, f)
	})
}

// USERS.md H8: Close ends a loop in another goroutine, at once, and whoever calls
// it at the same time.
func TestH8CloseEndsTheLoop(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fakeSandbox, _ *e2b.Sandbox, w *e2b.Watcher) {
		type end struct {
			told []string
			err  error
		}
		ended := make(chan end, 1)
		go func() {
			var e end
			for event, err := range w.Events(t.Context()) {
				if err != nil {
					e.err = err
					break
				}
				e.told = append(e.told, toldOf(event))
			}
			ended <- e
		}()
		synctest.Wait() // it waits for a third event
		begin := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { _ = w.Close() })
		}
		wg.Wait()
		e := <-ended
		require.Zero(t, time.Since(begin))
		requireDataKinds(t, e.err, e2b.ErrClosed)
		require.Equal(t, []string{"create a", "create b"}, e.told)
		requireRemoved(t, f)
	})
}

// Close before a loop, and inside of one.
func TestWatchClosedEarly(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fakeSandbox, _ *e2b.Sandbox, w *e2b.Watcher) {
		require.NoError(t, w.Close())
		told, err := readEvents(t.Context(), t, w)
		requireDataKinds(t, err, e2b.ErrClosed)
		require.Empty(t, told)
		requireRemoved(t, f)
	})
	bothWays(t, func(t *testing.T, f *fakeSandbox, _ *e2b.Sandbox, w *e2b.Watcher) {
		pairs := 0
		for _, err := range w.Events(t.Context()) {
			if pairs++; pairs == 1 {
				require.NoError(t, err)
				require.NoError(t, w.Close())
				continue
			}
			requireDataKinds(t, err, e2b.ErrClosed)
		}
		require.Equal(t, 2, pairs)
		requireRemoved(t, f)
	})
}

// The ctx of Events ends the loop with its own error, and the watch.
func TestWatchLoopContext(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fakeSandbox, _ *e2b.Sandbox, w *e2b.Watcher) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, io.EOF)
		defer cancel()
		begin := time.Now()
		told, err := readEvents(ctx, t, w)
		requireDataKinds(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(begin))
		require.Equal(t, []string{"create a", "create b"}, told)
		synctest.Wait()
		requireRemoved(t, f)
	})
	bothWays(t, func(t *testing.T, _ *fakeSandbox, _ *e2b.Sandbox, w *e2b.Watcher) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		told, err := readEvents(ctx, t, w)
		requireDataKinds(t, err, context.Canceled)
		require.Empty(t, told)
	})
}

// USERS.md G14: the handle's own pause or kill ends a watch, and nothing goes to the
// sandbox any more, which could wake it.
func TestG14PauseEndsTheWatch(t *testing.T) {
	for name, stop := range map[string]func(context.Context, *e2b.Sandbox) error{
		"pause": func(ctx context.Context, s *e2b.Sandbox) error { _, err := s.Pause(ctx, nil); return err },
		"kill":  func(ctx context.Context, s *e2b.Sandbox) error { _, err := s.Kill(ctx); return err },
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, f *fakeSandbox, sbx *e2b.Sandbox, w *e2b.Watcher) {
				f.forget()
				begin := time.Now()
				require.NoError(t, stop(t.Context(), sbx))
				told, err := readEvents(t.Context(), t, w)
				requireDataKinds(t, err, e2b.ErrSandboxNotRunning)
				require.Equal(t, []string{"create a", "create b"}, told)
				require.Zero(t, time.Since(begin))
				require.NoError(t, w.Close())
				require.True(t, elapse(t.Context(), time.Minute))
				require.Len(t, f.requests(""), 1, "%v", f.paths())
			})
		})
	}
}

// A removal that the sandbox does not answer keeps Close for a second, and a pause
// meanwhile ends it.
func TestCloseOfAPolledWatchIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := 0
		fake := polled(&left)
		fake.remove = func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		}
		f := newFakeWatch(fake)
		sbx := f.inMemory(t)
		w, err := sbx.Files.Watch(t.Context(), "/w", polling)
		require.NoError(t, err)
		begin := time.Now()
		require.NoError(t, w.Close())
		require.Equal(t, time.Second, time.Since(begin))

		w, err = sbx.Files.Watch(t.Context(), "/w", polling)
		require.NoError(t, err)
		begin = time.Now()
		closed := make(chan struct{})
		go func() {
			_ = w.Close()
			close(closed)
		}()
		synctest.Wait()
		_, err = sbx.Pause(t.Context(), nil)
		require.NoError(t, err)
		<-closed
		require.Zero(t, time.Since(begin))
	})
}

// A transport that does not end its bodies keeps nobody: neither Close nor a loop.
func TestWatchOverADeafTransport(t *testing.T) {
	for name, stop := range map[string]func(*testing.T, *e2b.Sandbox, *e2b.Watcher) error{
		"close": func(t *testing.T, _ *e2b.Sandbox, w *e2b.Watcher) error {
			require.NoError(t, w.Close())
			return e2b.ErrClosed
		},
		"pause": func(t *testing.T, s *e2b.Sandbox, _ *e2b.Watcher) error {
			_, err := s.Pause(t.Context(), nil)
			require.NoError(t, err)
			return e2b.ErrSandboxNotRunning
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body, server := io.Pipe()
				go func() { _, _ = server.Write(frame(0, marshal(watchStart()))) }()
				r := &replay{answers: map[string]func() *http.Response{
					watchPath: func() *http.Response {
						resp := answer(200, http.Header{"Content-Type": {"application/connect+proto"}}, nil, nil)
						resp.Body = deafBody{body}
						return resp
					},
					infoPath + "/pause": func() *http.Response { return answer(204, nil, nil, nil) },
				}}
				sbx := r.handle(t, "proto")
				w, err := sbx.Files.Watch(t.Context(), "/w", nil)
				require.NoError(t, err)
				ended := make(chan error, 1)
				go func() {
					for _, err := range w.Events(context.WithoutCancel(t.Context())) {
						ended <- err
					}
				}()
				synctest.Wait()
				begin := time.Now()
				want := stop(t, sbx, w)
				requireDataKinds(t, <-ended, want)
				require.LessOrEqual(t, time.Since(begin), time.Second)
				require.NoError(t, server.Close())
				require.NoError(t, w.Close())
			})
		})
	}
}

// A deafBody is one that Close does not end.
type deafBody struct{ io.Reader }

func (deafBody) Close() error { return nil }

// Close does not wait for the answer to why the stream broke.
func TestWatchClosedWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeWatch(&fakeWatch{dir: func(_ context.Context, _ *watchRequest, s *watchStream) error { return sendWatch(s) }})
		f.info = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		w, err := f.inMemory(t).Files.Watch(t.Context(), "/w", nil)
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, 1, f.infos())
		begin := time.Now()
		require.NoError(t, w.Close())
		require.Zero(t, time.Since(begin))
		_, err = readEvents(t.Context(), t, w)
		requireDataKinds(t, err, e2b.ErrClosed)
	})
}

// envd falls silent for ever when the watched directory itself is gone; the watch
// ends instead.
func TestWatchedDirectoryIsGone(t *testing.T) {
	for _, last := range []string{"remove .", "rename ."} {
		synctest.Test(t, func(t *testing.T) {
			told := []string{"chmod .", "remove a", "rename b", last}
			left := 0
			fake := polled(&left, told[:2], append(told[2:], "create too-late"))
			fake.dir = watches(append(told, "create too-late")...)
			for _, o := range []*e2b.WatchOptions{nil, polling} {
				f := newFakeWatch(fake)
				got, err := watched(t.Context(), t, f.inMemory(t), o)
				requireDataKinds(t, err, fs.ErrNotExist)
				require.ErrorContains(t, err, "directory itself")
				require.Equal(t, told, got)
				requireRemoved(t, f)
			}
			require.Zero(t, left)
		})
	}
}

// Events have the path that was given, joined to their names, and tell what a
// newer envd may send as it came.
func TestFileEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, asked := range []struct{ path, self, child string }{
			{"/", "/", "/d/x"},
			{"/a/../b", "/a/../b", "/a/../b/d/x"},
			{"/a/", "/a/", "/a/d/x"},
			{"rel", "rel", "rel/d/x"},
			{"~", "~", "~/d/x"},
			{".", ".", "./d/x"},
		} {
			events := fileEvents("chmod .", "write d/x", "unspecified d/x")
			events = append(events, &filesystem.FilesystemEvent{Name: "d/x", Type: 77})
			f := newFakeWatch(&fakeWatch{dir: func(_ context.Context, _ *watchRequest, s *watchStream) error {
				if err := s.Send(watchStart()); err != nil {
					return err
				}
				if err := s.Send(&filesystem.WatchDirResponse{}); err != nil { // of a newer envd
					return err
				}
				for _, e := range events {
					if err := s.Send(watchEvent(e)); err != nil {
						return err
					}
				}
				return nil
			}})
			w, err := f.inMemory(t).Files.Watch(t.Context(), asked.path, nil)
			require.NoError(t, err)
			var got []e2b.FileEvent
			for e, err := range w.Events(t.Context()) {
				if err != nil {
					requireDataKinds(t, err, e2b.ErrStreamInterrupted)
					continue
				}
				got = append(got, e)
			}
			require.Equal(t, []e2b.FileEvent{
				{Name: ".", Path: asked.self, Op: e2b.FileChmod},
				{Name: "d/x", Path: asked.child, Op: e2b.FileWrite},
				{Name: "d/x", Path: asked.child, Op: "unspecified"},
				{Name: "d/x", Path: asked.child, Op: "77"},
			}, got)
		}
	})
}

// maxWaiting is how many events wait before one is lost.
const maxWaiting = 1 << 16

// USERS.md H8: who takes no events holds up nobody. What waits is bounded, and
// that events were lost is told after those that were not.
func TestH8SlowReader(t *testing.T) {
	t.Parallel()
	flood := make([]byte, 0, 20*maxWaiting)
	flood = append(flood, frame(0, marshal(watchStart()))...)
	one := frame(0, marshal(watchEvent(fileEvents("write f")[0])))
	for range maxWaiting + 1 {
		flood = append(flood, one...)
	}
	f := newFakeSandbox()
	gone := make(chan struct{})
	f.envd = func(w http.ResponseWriter, r *http.Request) {
		drain(r)
		w.Header().Set("Content-Type", "application/connect+proto")
		write(w, flood)
		flush(w)
		<-r.Context().Done() // the client has gone, though nobody has read a single event
		close(gone)
	}
	sbx := f.onLoopback(t)
	w, err := sbx.Files.Watch(t.Context(), "/w", nil)
	require.NoError(t, err)
	<-gone
	n := 0
	for e, err := range w.Events(t.Context()) {
		if err != nil {
			requireDataKinds(t, err, e2b.ErrStreamInterrupted)
			require.ErrorContains(t, err, "lost")
			break
		}
		if toldOf(e) == "write f" {
			n++
		}
	}
	require.Equal(t, maxWaiting, n)
	require.NoError(t, w.Close())
	require.Zero(t, f.infos(), "it is known why")
}

// One answer to a poll may hold more than what may wait; the next is too much.
func TestSlowReaderOfAPolledWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		many := make([]string, maxWaiting+10)
		for i := range many {
			many[i] = "write f"
		}
		left := 0
		f := newFakeWatch(polled(&left, many, nil, []string{"create lost"}, []string{"create later"}))
		w, err := f.inMemory(t).Files.Watch(t.Context(), "/w", polling)
		require.NoError(t, err)
		require.True(t, elapse(t.Context(), time.Minute))
		require.Len(t, f.requests(askWatcherPath), 3)
		told, err := readEvents(t.Context(), t, w)
		requireDataKinds(t, err, e2b.ErrStreamInterrupted)
		require.ErrorContains(t, err, "lost")
		require.Equal(t, many, told)
		require.NoError(t, w.Close())
		require.Zero(t, left)
	})
}

// Reading keeps pace with any number of events in constant memory.
func TestWatchMemory(t *testing.T) {
	const batch, rounds = 1000, 100
	synctest.Test(t, func(t *testing.T) {
		fake := polled(new(int))
		events := fileEvents(strings.Split(strings.Repeat("write some-name,", batch), ",")[:batch]...)
		fake.ask = func(context.Context, string) ([]*filesystem.FilesystemEvent, error) { return events, nil }
		w, err := newFakeWatch(fake).inMemory(t).Files.Watch(t.Context(), "/w", polling)
		require.NoError(t, err)
		var before, after runtime.MemStats
		n := 0
		for _, err := range w.Events(t.Context()) {
			require.NoError(t, err)
			if n++; n == batch {
				runtime.GC()
				runtime.ReadMemStats(&before)
			}
			if n == batch*rounds {
				break
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		require.NoError(t, w.Close())
		require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(4<<20))
	})
}

// A changing is a directory in the emulator that is watched.
type changing struct {
	t   *testing.T
	sbx *e2b.Sandbox
	w   *e2b.Watcher

	events chan e2b.FileEvent // closed after end is set
	end    error
}

// ended returns the error that ended the events, and drops those before it.
func (c *changing) ended() error {
	for range c.events {
	}
	return c.end
}

// watchReal begins to watch a new directory d in the home.
func watchReal(t *testing.T, sbx *e2b.Sandbox, o *e2b.WatchOptions) *changing {
	t.Helper()
	_, err := sbx.Files.MakeDir(t.Context(), "d", nil)
	require.NoError(t, err)
	w, err := sbx.Files.Watch(t.Context(), "d", o)
	require.NoError(t, err)
	c := &changing{t: t, sbx: sbx, w: w, events: make(chan e2b.FileEvent, 1000)}
	ctx := context.WithoutCancel(t.Context()) // Close ends it
	go func() {
		defer close(c.events)
		for e, err := range w.Events(ctx) {
			if c.end = err; err == nil {
				c.events <- e
			}
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, w.Close())
		require.Error(t, c.ended())
	})
	return c
}

// do runs a command and returns the events up to the one that it waits for, of
// which those that come twice in a row are left out.
func (c *changing) do(cmd, until string) (told []string, last e2b.FileEvent) {
	c.t.Helper()
	run(c.t, c.sbx, cmd)
	timeout := time.After(20 * time.Second)
	for {
		select {
		case e, more := <-c.events:
			if !more {
				require.NoError(c.t, c.end, "after %v", told)
			}
			if s := toldOf(e); len(told) == 0 || told[len(told)-1] != s {
				told = append(told, s)
			}
			if toldOf(e) == until {
				return told, e
			}
		case <-timeout:
			require.Fail(c.t, "no event", "%s after %v", until, told)
		}
	}
}

// realWatches are the ways to watch in the emulator.
func realWatches(t *testing.T, test func(t *testing.T, sbx *e2b.Sandbox, o e2b.WatchOptions)) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the emulator tells other events on other systems")
	}
	server, _, _ := newSandbox(t, nil)
	for name, asJSON := range map[string]bool{"proto": false, "json": true} {
		for form, o := range map[string]e2b.WatchOptions{"stream": {}, "polling": {Polling: true, PollInterval: 20 * time.Millisecond}} {
			t.Run(name+"/"+form, func(t *testing.T) {
				opts := server.ClientOptions()
				opts.JSON = asJSON
				client, err := e2b.NewClient(opts)
				require.NoError(t, err)
				t.Cleanup(client.CloseIdleConnections)
				sbx, err := client.Create(t.Context(), nil)
				require.NoError(t, err)
				test(t, sbx, o)
			})
		}
	}
}

func TestWatchEmulator(t *testing.T) {
	t.Parallel()
	realWatches(t, func(t *testing.T, sbx *e2b.Sandbox, o e2b.WatchOptions) {
		c := watchReal(t, sbx, &o)
		for _, step := range []struct {
			cmd  string
			want []string
		}{
			{"echo x >d/a", []string{"create a", "write a"}},
			{"echo y >>d/a", []string{"write a"}},
			{"chmod 600 d/a", []string{"chmod a"}},
			{"mv d/a d/b", []string{"rename a", "create b"}},
			{"mv d/b .", []string{"rename b"}},
			{"mv b d/c", []string{"create c"}},
			{"rm d/c", []string{"remove c"}},
			{"mkdir d/sub; touch d/sub/unseen; mkdir d/end", []string{"create sub", "create end"}},
		} {
			told, last := c.do(step.cmd, step.want[len(step.want)-1])
			require.Equal(t, step.want, told, step.cmd)
			require.Equal(t, "d/"+last.Name, last.Path)
			require.Nil(t, last.Info)
		}
		require.NoError(t, sbx.Files.Write(t.Context(), "d/up", []byte("x"), nil))
		_, _ = c.do("true", "write up")
		require.NoError(t, c.w.Close())
		require.ErrorIs(t, c.ended(), e2b.ErrClosed)

		_, err := sbx.Files.Watch(t.Context(), "no-such", &o)
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, err = sbx.Files.Watch(t.Context(), "/etc/passwd", &o)
		require.ErrorIs(t, err, e2b.ErrInvalidArgument)
		o.User = "nobody-here"
		_, err = sbx.Files.Watch(t.Context(), "d", &o)
		require.ErrorIs(t, err, e2b.ErrUnauthenticated)
	})
}

func TestWatchEmulatorRecursiveWithEntries(t *testing.T) {
	t.Parallel()
	realWatches(t, func(t *testing.T, sbx *e2b.Sandbox, o e2b.WatchOptions) {
		run(t, sbx, "mkdir -p d/old/deep")
		o.Recursive, o.Entries = true, true
		c := watchReal(t, sbx, &o)
		told, last := c.do("touch d/old/deep/f", "create old/deep/f")
		require.Equal(t, []string{"create old/deep/f"}, told)
		require.Equal(t, "d/old/deep/f", last.Path)
		_, _ = c.do("mkdir -p d/new/x", "create new/x") // what happens in it before may not be seen
		_, last = c.do("echo hello >d/new/x/g; chmod 640 d/new/x/g", "chmod new/x/g")
		require.NotNil(t, last.Info)
		require.Equal(t, "g", last.Info.Name)
		require.True(t, strings.HasSuffix(last.Info.Path, "/d/new/x/g"), last.Info.Path)
		require.Equal(t, fs.FileMode(0o640), last.Info.Mode)
		require.Equal(t, int64(6), last.Info.Size)
		_, last = c.do("rm d/new/x/g", "remove new/x/g")
		require.Nil(t, last.Info)
		_, last = c.do("mkdir d/end", "create end")
		require.True(t, last.Info.IsDir())
	})
}

// The directory goes; a new one of its name is not the watched one.
func TestWatchEmulatorDirectoryIsGone(t *testing.T) {
	t.Parallel()
	realWatches(t, func(t *testing.T, sbx *e2b.Sandbox, o e2b.WatchOptions) {
		for cmd, until := range map[string]string{"rm -r d; mkdir d": "remove .", "mv d elsewhere; mkdir d; rm -r elsewhere": "rename ."} {
			run(t, sbx, "rm -rf d")
			c := watchReal(t, sbx, &o)
			_, last := c.do("touch d/f; "+cmd, until)
			require.Equal(t, "d", last.Path)
			require.ErrorIs(t, c.ended(), fs.ErrNotExist)
		}
	})
}

func TestWatchEmulatorPauseAndKill(t *testing.T) {
	t.Parallel()
	realWatches(t, func(t *testing.T, sbx *e2b.Sandbox, o e2b.WatchOptions) {
		c := watchReal(t, sbx, &o)
		_, _ = c.do("touch d/a", "create a")
		_, err := sbx.Pause(t.Context(), nil)
		require.NoError(t, err)
		require.ErrorIs(t, c.ended(), e2b.ErrSandboxNotRunning)
		require.NoError(t, c.w.Close())
		running, err := sbx.IsRunning(t.Context())
		require.NoError(t, err)
		require.False(t, running)

		require.NoError(t, sbx.Connect(t.Context(), nil))
		c = watchReal(t, sbx, &o)
		_, _ = c.do("touch d/b", "create b")
		_, err = sbx.Kill(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, c.ended(), e2b.ErrSandboxNotRunning)
	})
}

// A watch that is closed is closed in the sandbox, too: there is a limit.
func TestWatchEmulatorManyTimes(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	for range 140 {
		for _, o := range []*e2b.WatchOptions{nil, polling} {
			w, err := sbx.Files.Watch(t.Context(), "/tmp", o)
			require.NoError(t, err)
			require.NoError(t, w.Close())
		}
	}
}
