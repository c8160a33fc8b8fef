package e2b

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/envd"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/filesystem"
	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// DefaultPollInterval is how often a Watcher that polls asks for events.
const DefaultPollInterval = time.Second

// maxWaiting is how many events a Watcher keeps for its reader.
const maxWaiting = 1 << 16

// WatchOptions says what to watch. The zero value watches a directory, and not
// those below it.
type WatchOptions struct {
	User               string // whose home relative paths begin at; "": the template's default user
	Recursive          bool   // also the directories below, and those to come. Needs envd 0.1.4
	Entries            bool   // fill in FileEvent.Info. Needs envd 0.6.3
	AllowNetworkMounts bool   // also on a network filesystem, where changes made elsewhere go unseen. Needs envd 0.6.4

	// Polling has the sandbox keep the events, and asks for them, instead of
	// holding a stream open: for a proxy in between that does not let streams
	// through. Each poll is traffic, which wakes a paused sandbox with AutoResume.
	// What is not closed stays in the sandbox and keeps events for ever; an opening
	// that ctx ends may leave that behind, too. Without Polling it is the way on
	// servers that do not have the stream.
	Polling      bool
	PollInterval time.Duration // 0: DefaultPollInterval
}

// FileOp is what happened to a file or directory. An operation that this version
// does not know is passed on as it came.
type FileOp string

// What can happen to a file or directory.
const (
	FileCreate FileOp = "create" // also by a rename, as the new name
	FileWrite  FileOp = "write"
	FileRemove FileOp = "remove"
	FileRename FileOp = "rename" // away from this name; the new one gets a FileCreate, if it is watched
	FileChmod  FileOp = "chmod"  // also a change of owner or times
)

// FileEvent is something that happened in a watched directory.
type FileEvent struct {
	Name string // relative to the watched directory; "." for itself
	Path string // Name behind the path that was given to Watch
	Op   FileOp
	Info *FileInfo // with WatchOptions.Entries, as it was soon after; nil if it had gone by then
}

// A Watcher reports what happens in a directory, until its Close or the end of
// Events. It is safe for concurrent use.
type Watcher struct {
	f      *Files
	path   string
	gate   *streamGate
	ctx    context.Context // ends with Close, or with a pause or kill by the handle's owner
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when nothing is left of the watch
	more   chan struct{} // holds one: there is something new below

	mu      sync.Mutex
	taken   bool // by Events
	closed  bool
	waiting []FileEvent
	err     error // why no more events come; nil while they may
}

var opWatch = operation{name: "watch directory", notFound: fs.ErrNotExist, files: true}

// Watch reports what happens in a directory from now on. ctx bounds the opening
// alone; the Watcher must be closed. Files.Write, too, causes events.
//
// Errors: fs.ErrNotExist, ErrInvalidArgument (also a path that is no directory, or
// is on a network filesystem), ErrNotSupported (envd is too old for an option),
// ErrSandboxNotRunning, ErrUnauthenticated (also an unknown User),
// ErrRequestTimeout, ErrStreamInterrupted, ErrQuotaExceeded (envd can keep some
// 120 watches at a time). Those from the server are in an *fs.PathError.
//
// See https://e2b.dev/docs/filesystem/watch.
func (f *Files) Watch(ctx context.Context, path string, opts *WatchOptions) (*Watcher, error) {
	var o WatchOptions
	if opts != nil {
		o = *opts
	}
	h := f.s.state.Load()
	if err := f.checkWatch(path, h.version, &o); err != nil {
		return nil, err
	}
	what := &envd.Watch{
		Path: path, User: h.user(o.User), Recursive: o.Recursive, Entries: o.Entries, NetworkMounts: o.AllowNetworkMounts,
	}
	w := &Watcher{f: f, path: path, gate: f.s.gate.Load(), done: make(chan struct{}), more: make(chan struct{}, 1)}
	w.ctx, w.cancel = context.WithCancelCause(w.gate.ctx)
	var err error
	if !o.Polling {
		err = w.stream(ctx, h, what)
	}
	if o.Polling || errors.Is(err, ErrNotSupported) {
		err = w.poll(ctx, h, what, o.PollInterval)
	}
	if err != nil {
		w.cancel(nil)
		return nil, err
	}
	return w, nil
}

func (f *Files) checkWatch(path, version string, o *WatchOptions) error {
	if err := checkRPCFile(opWatch, path, o.User); err != nil {
		return err
	}
	switch {
	case o.PollInterval < 0:
		return invalid(opWatch.name, "PollInterval", "is negative")
	case o.Recursive && !atLeast(version, 0, 1, 4):
		return tooOld(opWatch, f.s.id, version, "Recursive", "0.1.4")
	case o.Entries && !atLeast(version, 0, 6, 3):
		return tooOld(opWatch, f.s.id, version, "Entries", "0.6.3")
	case o.AllowNetworkMounts && !atLeast(version, 0, 6, 4):
		return tooOld(opWatch, f.s.id, version, "AllowNetworkMounts", "0.6.4")
	}
	return nil
}

// stream begins to watch over a stream.
func (w *Watcher) stream(ctx context.Context, h *handle, what *envd.Watch) error {
	bound, release := w.f.s.bound(ctx, 0)
	defer release()
	stream, err := h.envd.WatchDir(bound, w.ctx, w.f.s.client.openLimit(ctx), what)
	if err != nil {
		return w.f.fail(ctx, opWatch, w.path, ended(ctx, bound, err), false)
	}
	go func() {
		defer close(w.done)
		w.finish(w.follow(stream))
	}()
	return nil
}

// follow reads a stream to its end.
func (w *Watcher) follow(stream *envd.WatchStream) error {
	defer stream.Close(nil)
	for {
		e, err := stream.Next()
		if err == nil {
			err = w.add(e)
		}
		if err != nil {
			return err
		}
	}
}

// poll begins to watch by asking again and again.
func (w *Watcher) poll(ctx context.Context, h *handle, what *envd.Watch, every time.Duration) error {
	if every == 0 {
		every = DefaultPollInterval
	}
	bound, release := w.f.s.bound(ctx, w.f.s.client.openLimit(ctx))
	defer release()
	id, err := h.envd.CreateWatcher(bound, what)
	if err != nil {
		return w.f.fail(ctx, opWatch, w.path, ended(ctx, bound, err), false)
	}
	go func() { //nolint:contextcheck // the watch outlives its opening
		defer close(w.done)
		if w.finish(w.ask(id, what.User, every)) {
			w.remove(id, what.User)
		}
	}()
	return nil
}

// ask polls for events until something ends that.
func (w *Watcher) ask(id, user string, every time.Duration) error {
	for {
		if err := sleep(w.ctx, every); err != nil {
			return err
		}
		ctx, idle := transport.WithIdle(w.ctx, w.f.s.client.timeout)
		events, err := w.f.s.state.Load().envd.WatcherEvents(ctx, id, user)
		err = ended(w.ctx, ctx, err)
		idle.Release()
		if err == nil {
			err = w.add(events...)
		}
		if err != nil {
			return err
		}
	}
}

// remove ends the watcher in the sandbox, which would keep events for ever.
func (w *Watcher) remove(id, user string) {
	ctx, cancel := context.WithTimeout(w.gate.ctx, killWait) // no request to a sandbox that is being paused
	defer cancel()
	_ = w.f.s.state.Load().envd.RemoveWatcher(ctx, id, user)
}

// add puts events in the queue. It returns an error when no more can come.
func (w *Watcher) add(events ...*filesystem.FilesystemEvent) error {
	if len(events) == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.wake()
	if len(w.waiting) >= maxWaiting {
		return w.over(ErrStreamInterrupted, fmt.Sprintf("events were lost: nobody took the %d that wait", len(w.waiting)))
	}
	for _, e := range events {
		event := w.event(e)
		w.waiting = append(w.waiting, event)
		if event.Name == "." && (event.Op == FileRemove || event.Op == FileRename) {
			return w.over(fs.ErrNotExist, "there are no events after the "+string(event.Op)+" of the directory itself")
		}
	}
	return nil
}

func (w *Watcher) event(e *filesystem.FilesystemEvent) FileEvent {
	event := FileEvent{
		Name: e.GetName(), Path: w.path,
		Op: FileOp(strings.ToLower(strings.TrimPrefix(e.GetType().String(), "EVENT_TYPE_"))),
	}
	if event.Name != "." {
		event.Path = strings.TrimSuffix(w.path, "/") + "/" + event.Name
	}
	if entry := e.GetEntry(); entry != nil {
		info := fileInfoOf(entry)
		event.Info = &info
	}
	return event
}

// over is the error for a watch that ends without one of the server.
func (w *Watcher) over(kind error, detail string) error {
	return &opError{op: opWatch.name, sandboxID: w.f.s.id, detail: detail, errs: []error{kind}}
}

// finish makes the error of a watch that err has ended. It reports whether the
// sandbox runs, as far as that is known without asking envd.
func (w *Watcher) finish(err error) (running bool) {
	s := w.f.s
	_, own := errors.AsType[*opError](err)
	_, status := errors.AsType[*transport.StatusError](err)
	switch {
	case w.ctx.Err() != nil: // see below
	case own:
		running = true
	case status, errors.Is(err, transport.ErrTimeout):
		err = s.dataError(w.ctx, opWatch, err, true)
		running = !errors.Is(err, ErrSandboxNotRunning)
	default:
		// Also an error of envd's own, which does not say what became of the sandbox.
		err, running = s.interrupted(w.ctx, opWatch, err)
	}
	if w.ctx.Err() != nil { // Close, or a pause or kill of the handle's owner
		err, running = w.cut(), w.gate.ctx.Err() == nil
	}
	w.mu.Lock()
	w.err = err
	w.mu.Unlock()
	w.wake()
	w.cancel(nil) // lets go of the gate
	return running
}

// cut is the error for the end of w.ctx.
func (w *Watcher) cut() error {
	return w.f.s.dataError(w.ctx, opWatch, context.Cause(w.ctx), true)
}

func (w *Watcher) wake() {
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// Events returns what happens, in the order in which the sandbox tells it: some
// events come twice. All events are read before the error with which the watch
// ended, which is in the last pair; there always is one, as a watch does not end
// by itself. They may be ranged over once: that ends with the loop, as Close does,
// since nobody could read on. ctx bounds the ranging.
//
// Who takes events slowly holds up nothing, until 65,536 wait and a further one is
// lost: then the watch ends.
//
// Errors, in an *fs.PathError: fs.ErrNotExist after the event for "." that says
// that the directory was removed or renamed; ErrStreamInterrupted, also when
// events were lost or a name in the directory is not UTF-8; ErrSandboxNotRunning;
// ErrClosed after Close and for a second range; ErrRequestTimeout (polling).
//
// See https://e2b.dev/docs/filesystem/watch.
func (w *Watcher) Events(ctx context.Context) iter.Seq2[FileEvent, error] {
	return func(yield func(FileEvent, error) bool) {
		if err := w.take(); err != nil {
			yield(FileEvent{}, w.fail(err))
			return
		}
		defer w.shut()
		for {
			e, err := w.next(ctx)
			if err != nil {
				yield(FileEvent{}, w.fail(err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (w *Watcher) fail(err error) error { return &fs.PathError{Op: "watch", Path: w.path, Err: err} }

// take gives the reading to the caller.
func (w *Watcher) take() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.taken {
		return w.over(ErrClosed, "its events were read already")
	}
	w.taken = true
	return nil
}

// next waits for an event.
func (w *Watcher) next(ctx context.Context) (FileEvent, error) {
	for {
		if ctx.Err() != nil {
			return FileEvent{}, &opError{op: opWatch.name, sandboxID: w.f.s.id, errs: []error{ctx.Err()}}
		}
		if e, ok, err := w.pop(); ok || err != nil {
			return e, err
		}
		select {
		case <-w.more:
		case <-w.ctx.Done(): // a transport may not let go of the reader
		case <-ctx.Done():
		}
	}
}

// pop returns the first of the events that wait.
func (w *Watcher) pop() (FileEvent, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return FileEvent{}, false, w.over(ErrClosed, "")
	case len(w.waiting) > 0:
		e := w.waiting[0]
		w.waiting[0] = FileEvent{}
		w.waiting = w.waiting[1:]
		return e, true, nil
	case w.err == nil && w.ctx.Err() != nil:
		return FileEvent{}, false, w.cut()
	}
	return FileEvent{}, false, w.err
}

// shut ends the watch without waiting for that.
func (w *Watcher) shut() {
	w.mu.Lock()
	w.closed, w.waiting = true, nil
	w.mu.Unlock()
	w.wake()
	w.cancel(ErrClosed)
}

// Close ends the watch; events that wait are dropped. A loop over Events that is
// under way ends with ErrClosed. A Watcher that polls takes up to a second to end
// the watch in the sandbox. Close may be called again, and returns nil.
func (w *Watcher) Close() error {
	w.shut()
	t := time.NewTimer(killWait)
	defer t.Stop()
	select {
	case <-w.done:
	case <-t.C:
	}
	return nil
}
