package envd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	unixpath "path"
	"strings"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/fsnotify/fsnotify"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/filesystem"
)

// maxPending is how many events a polled watcher keeps before it fails. The real
// daemon has no bound.
const maxPending = 1 << 18

// errPending is what a watcher says that nobody polls.
var errPending = errors.New("watcher error: too many events were not asked for")

// A notifier tells of what happens in directories.
type notifier interface {
	Add(dir string) error
	Remove(dir string) error
	WatchList() []string
	Close() error
	events() <-chan fsnotify.Event
	errors() <-chan error // closed by Close, as events is not
}

// A watch turns what happens in a directory into events.
type watch struct {
	srv       *Server
	notify    notifier
	real      string // the directory without links
	shown     string // as it was asked for
	recursive bool
	entries   bool
	silent    bool // the directory is gone; nothing is reported ever after

	failed  chan error    // has what made notify useless
	drained chan struct{} // closed when nothing more comes from notify.Errors
}

// openWatch starts to watch a directory.
func (s *Server) openWatch(path string, u *User, recursive, entries bool) (*watch, error) {
	name, err := s.resolve(path, u)
	if err != nil {
		return nil, invalid(err)
	}
	fi, err := s.tree.stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("path %s not found: %w", name, err))
	} else if err != nil {
		return nil, fileError(connect.CodeInternal, fmt.Errorf("error getting path info: %w", err))
	}
	if !fi.IsDir() {
		// The end of this message is what the real daemon sends.
		return nil, invalid(fmt.Errorf("path %s not a directory: %s", name, "%!w(<nil>)"))
	}
	real, err := s.tree.realPath(name)
	if err != nil {
		return nil, fileError(connect.CodeInternal, fmt.Errorf("error resolving path: %w", err))
	}
	notify, err := s.tree.notifier()
	if err != nil {
		return nil, internal("error creating watcher: %w", err)
	}
	w := &watch{
		srv:       s,
		notify:    notify,
		real:      real,
		shown:     unixpath.Clean(name),
		recursive: recursive,
		entries:   entries && s.since("0.6.3"),
		failed:    make(chan error, 1),
		drained:   make(chan struct{}),
	}
	go w.drain()
	if err := notify.Add(real); err != nil {
		w.close()
		return nil, internal("error adding path %s to watcher: %w", name, err)
	}
	if recursive {
		w.addBelow(real, nil)
	}
	return w, nil
}

// drain receives errors at once: notify holds a lock while it sends some of them
// that adding a directory takes too.
func (w *watch) drain() {
	defer close(w.drained)
	for err := range w.notify.errors() {
		if errors.Is(err, syscall.EINVAL) {
			continue // a directory was gone before it could be given up
		}
		select {
		case w.failed <- err:
		default: // the first is enough
		}
	}
}

// close may be called again.
func (w *watch) close() {
	_ = w.notify.Close() // the only error is that it was closed before
	<-w.drained
}

// addBelow watches the directories below dir, and calls found for everything
// there if it is not nil.
func (w *watch) addBelow(dir string, found func(name string)) {
	entries, err := w.srv.tree.readDir(dir)
	if err != nil {
		return // removed meanwhile, of which there is an event
	}
	for _, d := range entries {
		name := unixpath.Join(dir, d.Name())
		if found != nil {
			found(name)
		}
		if d.IsDir() && w.notify.Add(name) == nil {
			w.addBelow(name, found)
		}
	}
}

// forget stops watching dir and what is below. Without that a renamed directory
// would go on under its old name.
func (w *watch) forget(dir string) {
	for _, name := range w.notify.WatchList() {
		if _, ok := relative(dir, name); ok {
			_ = w.notify.Remove(name) // gone by itself is as good
		}
	}
}

// events returns what one notification means.
func (w *watch) events(n fsnotify.Event) []*filesystem.FilesystemEvent {
	name, ok := relative(w.real, n.Name)
	if !ok || w.silent {
		return nil
	}
	var list []*filesystem.FilesystemEvent
	add := func(typ filesystem.EventType, name string) {
		e := &filesystem.FilesystemEvent{Name: name, Type: typ}
		gone := typ == filesystem.EventType_EVENT_TYPE_REMOVE || typ == filesystem.EventType_EVENT_TYPE_RENAME
		if w.entries && !gone {
			// It may be gone already; then the event goes without.
			e.Entry, _ = w.srv.inspector().entry(unixpath.Join(w.real, name), unixpath.Join(w.shown, name))
		}
		list = append(list, e)
	}
	if n.Has(fsnotify.Create) {
		add(filesystem.EventType_EVENT_TYPE_CREATE, name)
		if fi, err := w.srv.tree.lstat(n.Name); w.recursive && err == nil && fi.IsDir() && w.notify.Add(n.Name) == nil {
			w.addBelow(n.Name, func(below string) {
				if rel, ok := relative(w.real, below); ok {
					add(filesystem.EventType_EVENT_TYPE_CREATE, rel)
				}
			})
		}
	}
	if n.Has(fsnotify.Write) {
		add(filesystem.EventType_EVENT_TYPE_WRITE, name)
	}
	if n.Has(fsnotify.Remove) {
		add(filesystem.EventType_EVENT_TYPE_REMOVE, name)
	}
	if n.Has(fsnotify.Rename) {
		add(filesystem.EventType_EVENT_TYPE_RENAME, name)
	}
	if n.Has(fsnotify.Chmod) {
		add(filesystem.EventType_EVENT_TYPE_CHMOD, name)
	}
	if gone := n.Has(fsnotify.Remove) || n.Has(fsnotify.Rename); gone && (w.recursive || name == ".") {
		w.forget(n.Name)
		w.silent = name == "."
	}
	return list
}

func (filesystemService) WatchDir(ctx context.Context, req *connect.Request[filesystem.WatchDirRequest], stream *connect.ServerStream[filesystem.WatchDirResponse]) error {
	s := serverOf(ctx)
	ping, err := keepalive(req.Header())
	if err != nil {
		return err
	}
	w, err := s.openWatch(req.Msg.GetPath(), userOf(ctx), req.Msg.GetRecursive(), req.Msg.GetIncludeEntry())
	if err != nil {
		return err
	}
	defer w.close()
	start := &filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Start{Start: &filesystem.WatchDirResponse_StartEvent{}}}
	if err := stream.Send(start); err != nil {
		return err
	}
	silence := time.NewTicker(ping)
	defer silence.Stop()
	for {
		select {
		case <-ctx.Done():
			return ended(ctx)
		case err := <-w.failed:
			return internal("watcher error: %w", err)
		case n := <-w.notify.events():
			for _, e := range w.events(n) {
				if err := stream.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Filesystem{Filesystem: e}}); err != nil {
					return connect.NewError(connect.CodeUnknown, fmt.Errorf("error sending filesystem event: %w", err))
				}
				silence.Reset(ping)
			}
		case <-silence.C:
			alive := &filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Keepalive{Keepalive: &filesystem.WatchDirResponse_KeepAlive{}}}
			if err := stream.Send(alive); err != nil {
				return err
			}
		}
	}
}

// A watcher keeps its events until they are asked for.
type watcher struct {
	cancel context.CancelFunc

	mu     sync.Mutex
	events []*filesystem.FilesystemEvent
	err    error
}

func (w *watcher) stop() { w.cancel() }

// run collects events until ctx ends or the watch fails.
func (w *watcher) run(ctx context.Context, source *watch) {
	defer source.close()
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-source.failed:
			w.fail(fmt.Errorf("watcher error: %w", err))
			return
		case n := <-source.notify.events():
			if !w.add(source.events(n)) {
				return
			}
		}
	}
}

func (w *watcher) add(events []*filesystem.FilesystemEvent) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.events)+len(events) > maxPending {
		w.events, w.err = nil, errPending
		return false
	}
	w.events = append(w.events, events...)
	return true
}

func (w *watcher) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// take returns the events and forgets them.
func (w *watcher) take() ([]*filesystem.FilesystemEvent, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	return events, w.err
}

func (filesystemService) CreateWatcher(ctx context.Context, req *connect.Request[filesystem.CreateWatcherRequest]) (*connect.Response[filesystem.CreateWatcherResponse], error) {
	s := serverOf(ctx)
	source, err := s.openWatch(req.Msg.GetPath(), userOf(ctx), req.Msg.GetRecursive(), req.Msg.GetIncludeEntry())
	if err != nil {
		return nil, err
	}
	// It outlives the request.
	ctx, cancel := context.WithCancel(context.Background())
	w := &watcher{cancel: cancel}
	id := "w" + strings.ToLower(rand.Text()[:20])
	s.mu.Lock()
	if s.closed {
		cancel()
	}
	s.watchers[id] = w
	s.running.Go(func() { w.run(ctx, source) })
	s.mu.Unlock()
	return connect.NewResponse(&filesystem.CreateWatcherResponse{WatcherId: id}), nil
}

func unknownWatcher(id string) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("watcher with id %s not found", id))
}

func (filesystemService) GetWatcherEvents(ctx context.Context, req *connect.Request[filesystem.GetWatcherEventsRequest]) (*connect.Response[filesystem.GetWatcherEventsResponse], error) {
	s := serverOf(ctx)
	s.mu.Lock()
	w, ok := s.watchers[req.Msg.GetWatcherId()]
	s.mu.Unlock()
	if !ok {
		return nil, unknownWatcher(req.Msg.GetWatcherId())
	}
	events, err := w.take()
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	return connect.NewResponse(&filesystem.GetWatcherEventsResponse{Events: events}), nil
}

func (filesystemService) RemoveWatcher(ctx context.Context, req *connect.Request[filesystem.RemoveWatcherRequest]) (*connect.Response[filesystem.RemoveWatcherResponse], error) {
	s := serverOf(ctx)
	s.mu.Lock()
	w, ok := s.watchers[req.Msg.GetWatcherId()]
	delete(s.watchers, req.Msg.GetWatcherId())
	s.mu.Unlock()
	if !ok {
		return nil, unknownWatcher(req.Msg.GetWatcherId())
	}
	w.stop()
	return connect.NewResponse(&filesystem.RemoveWatcherResponse{}), nil
}
