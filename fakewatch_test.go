package e2b_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/filesystem"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/filesystem/filesystemconnect"
)

const (
	watchPath         = "/filesystem.Filesystem/WatchDir"
	createWatcherPath = "/filesystem.Filesystem/CreateWatcher"
	askWatcherPath    = "/filesystem.Filesystem/GetWatcherEvents"
	removeWatcherPath = "/filesystem.Filesystem/RemoveWatcher"
)

type (
	watchRequest = connect.Request[filesystem.WatchDirRequest]
	watchStream  = connect.ServerStream[filesystem.WatchDirResponse]
)

// A fakeWatch is as much of the filesystem service as watching needs. What it
// does is up to the functions of the test; a nil one is a method that the server
// does not have.
type fakeWatch struct {
	filesystemconnect.UnimplementedFilesystemHandler

	dir    func(context.Context, *watchRequest, *watchStream) error
	create func(context.Context, *filesystem.CreateWatcherRequest) (string, error)
	ask    func(ctx context.Context, id string) ([]*filesystem.FilesystemEvent, error)
	remove func(ctx context.Context, id string) error
}

// newFakeWatch returns a sandbox whose files are watched as w says.
func newFakeWatch(w *fakeWatch) *fakeSandbox {
	f := newFakeSandbox()
	_, rpc := filesystemconnect.NewFilesystemHandler(w)
	f.envd = rpc.ServeHTTP
	return f
}

// WatchDir does what the test says.
func (f *fakeWatch) WatchDir(ctx context.Context, r *watchRequest, s *watchStream) error {
	if f.dir == nil {
		return f.UnimplementedFilesystemHandler.WatchDir(ctx, r, s)
	}
	return f.dir(ctx, r, s)
}

// CreateWatcher does what the test says.
func (f *fakeWatch) CreateWatcher(ctx context.Context, r *connect.Request[filesystem.CreateWatcherRequest]) (*connect.Response[filesystem.CreateWatcherResponse], error) {
	if f.create == nil {
		return f.UnimplementedFilesystemHandler.CreateWatcher(ctx, r)
	}
	id, err := f.create(ctx, r.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystem.CreateWatcherResponse{WatcherId: id}), nil
}

// GetWatcherEvents does what the test says.
func (f *fakeWatch) GetWatcherEvents(ctx context.Context, r *connect.Request[filesystem.GetWatcherEventsRequest]) (*connect.Response[filesystem.GetWatcherEventsResponse], error) {
	if f.ask == nil {
		return f.UnimplementedFilesystemHandler.GetWatcherEvents(ctx, r)
	}
	events, err := f.ask(ctx, r.Msg.GetWatcherId())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystem.GetWatcherEventsResponse{Events: events}), nil
}

// RemoveWatcher does what the test says.
func (f *fakeWatch) RemoveWatcher(ctx context.Context, r *connect.Request[filesystem.RemoveWatcherRequest]) (*connect.Response[filesystem.RemoveWatcherResponse], error) {
	if f.remove == nil {
		return f.UnimplementedFilesystemHandler.RemoveWatcher(ctx, r)
	}
	if err := f.remove(ctx, r.Msg.GetWatcherId()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystem.RemoveWatcherResponse{}), nil
}

// fileEvents turns "create a" and the like into events.
func fileEvents(told ...string) []*filesystem.FilesystemEvent {
	out := make([]*filesystem.FilesystemEvent, len(told))
	for i, s := range told {
		op, name, _ := strings.Cut(s, " ")
		typ := filesystem.EventType_value["EVENT_TYPE_"+strings.ToUpper(op)]
		out[i] = &filesystem.FilesystemEvent{Name: name, Type: filesystem.EventType(typ)}
	}
	return out
}

// toldOf is what fileEvents takes.
func toldOf(e e2b.FileEvent) string { return string(e.Op) + " " + e.Name }

func watchStart() *filesystem.WatchDirResponse {
	return &filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Start{Start: &filesystem.WatchDirResponse_StartEvent{}}}
}

func watchPing() *filesystem.WatchDirResponse {
	return &filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Keepalive{Keepalive: &filesystem.WatchDirResponse_KeepAlive{}}}
}

func watchEvent(e *filesystem.FilesystemEvent) *filesystem.WatchDirResponse {
	return &filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Filesystem{Filesystem: e}}
}

// watches is a WatchDir that begins, sends events and goes on until its client is
// gone.
func watches(told ...string) func(context.Context, *watchRequest, *watchStream) error {
	return func(ctx context.Context, _ *watchRequest, s *watchStream) error {
		if err := sendWatch(s, told...); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

// sendWatch begins and sends events.
func sendWatch(s *watchStream, told ...string) error {
	if err := s.Send(watchStart()); err != nil {
		return err
	}
	for _, e := range fileEvents(told...) {
		if err := s.Send(watchEvent(e)); err != nil {
			return err
		}
	}
	return nil
}

// polled serves events by polling, a batch per request, and then none. It counts
// the watchers that are left.
func polled(left *int, batches ...[]string) *fakeWatch {
	return &fakeWatch{
		create: func(context.Context, *filesystem.CreateWatcherRequest) (string, error) {
			*left++
			return "w1", nil
		},
		ask: func(_ context.Context, id string) ([]*filesystem.FilesystemEvent, error) {
			if *left == 0 || id != "w1" {
				return nil, noSuchWatcher(id)
			}
			if len(batches) == 0 {
				return nil, nil
			}
			batch := batches[0]
			batches = batches[1:]
			return fileEvents(batch...), nil
		},
		remove: func(_ context.Context, id string) error {
			if *left == 0 || id != "w1" {
				return noSuchWatcher(id)
			}
			*left--
			return nil
		},
	}
}

func noSuchWatcher(id string) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("watcher with id %s not found", id))
}

// watched opens a watch, reads all events and closes it: the events and the error
// that ended them.
func watched(ctx context.Context, t testing.TB, sbx *e2b.Sandbox, o *e2b.WatchOptions) ([]string, error) {
	t.Helper()
	w, err := sbx.Files.Watch(ctx, "/w", o)
	if err != nil {
		require.Nil(t, w)
		return nil, err
	}
	defer func() { require.NoError(t, w.Close()) }()
	return readEvents(ctx, t, w)
}

// readEvents ranges over the events of w, of which the last pair alone must be an
// error.
func readEvents(ctx context.Context, t testing.TB, w *e2b.Watcher) (told []string, end error) {
	t.Helper()
	for e, err := range w.Events(ctx) {
		require.NoError(t, end, "a pair after the error")
		if err != nil {
			require.Zero(t, e)
			end = err
			continue
		}
		told = append(told, toldOf(e))
	}
	require.Error(t, end)
	return told, end
}

// breaking answers WatchDir as a streamBreak does, after one event.
func (b streamBreak) breaking(w http.ResponseWriter, r *http.Request) {
	drain(r)
	w.Header().Set("Content-Type", "application/connect+proto")
	if b.started {
		write(w, frame(0, marshal(watchStart())))
		write(w, frame(0, marshal(watchEvent(fileEvents("create a")[0]))))
	}
	b.end(w, r)
}
