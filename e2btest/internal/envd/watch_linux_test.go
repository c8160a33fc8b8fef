package envd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"
	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/filesystem"
)

// What exactly is reported is the system's: these tests are for Linux.

// A watching is a stream of file events that is being read.
type watching struct {
	t      testing.TB
	dir    string
	stream *connect.ServerStreamForClient[filesystem.WatchDirResponse]
	fences int
	alive  int
}

func (w *world) watch(t testing.TB, msg *filesystem.WatchDirRequest, headers ...string) *watching {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	req := connect.NewRequest(msg)
	for i := 0; i < len(headers); i += 2 {
		req.Header().Set(headers[i], headers[i+1])
	}
	stream, err := w.files.WatchDir(withoutDeadline(ctx), req)
	require.NoError(t, err)
	t.Cleanup(func() {
		cancel()
		stream.Close()
	})
	require.True(t, stream.Receive(), "%v", stream.Err())
	require.NotNil(t, stream.Msg().GetStart())
	return &watching{t: t, dir: filepath.Join(w.home, msg.GetPath()), stream: stream}
}

func (w *watching) next() *filesystem.FilesystemEvent {
	for w.stream.Receive() {
		if ev := w.stream.Msg().GetFilesystem(); ev != nil {
			return ev
		}
		w.alive++
	}
	return nil
}

func name(ev *filesystem.FilesystemEvent) string {
	return strings.TrimPrefix(ev.GetType().String(), "EVENT_TYPE_") + " " + ev.GetName()
}

// events returns what was reported up to now. To know, it makes a directory.
func (w *watching) events() []string {
	w.t.Helper()
	w.fences++
	fence := fmt.Sprint("fence", w.fences)
	require.NoError(w.t, os.Mkdir(filepath.Join(w.dir, fence), 0o755))
	var list []string
	for {
		ev := w.next()
		require.NotNil(w.t, ev, "%v after %q", w.stream.Err(), list)
		if name(ev) == "CREATE "+fence {
			return list
		}
		list = append(list, name(ev))
	}
}

func TestWatch(t *testing.T) {
	w := newWorld(t)
	w.make(t, "d/old", "d/sub/x", "elsewhere")
	watch := w.watch(t, &filesystem.WatchDirRequest{Path: "d"})
	in := func(name string) string { return filepath.Join(w.home, name) }
	for _, test := range []struct {
		what string
		do   func() error
		want []string
	}{
		{"create and write", func() error { return os.WriteFile(in("d/a"), []byte("1"), 0o644) }, []string{"CREATE a", "WRITE a"}},
		{"create empty", func() error { return os.WriteFile(in("d/b"), nil, 0o644) }, []string{"CREATE b"}},
		{"truncate", func() error { return os.Truncate(in("d/a"), 0) }, []string{"WRITE a"}},
		{"chmod", func() error { return os.Chmod(in("d/a"), 0o600) }, []string{"CHMOD a"}},
		{"move", func() error { return os.Rename(in("d/a"), in("d/c")) }, []string{"RENAME a", "CREATE c"}},
		{"move out", func() error { return os.Rename(in("d/c"), in("c")) }, []string{"RENAME c"}},
		{"move in", func() error { return os.Rename(in("elsewhere"), in("d/e")) }, []string{"CREATE e"}},
		{"link", func() error { return os.Symlink("e", in("d/l")) }, []string{"CREATE l"}},
		{"mkdir", func() error { return os.Mkdir(in("d/n"), 0o755) }, []string{"CREATE n"}},
		{"below", func() error { return os.WriteFile(in("d/sub/y"), []byte("1"), 0o644) }, nil},
		{"read", func() error { _, err := os.ReadFile(in("d/old")); return err }, nil},
		{"remove", func() error { return os.Remove(in("d/e")) }, []string{"REMOVE e"}},
		{"rmdir", func() error { return os.Remove(in("d/n")) }, []string{"REMOVE n"}},
		{"upload", func() error { w.put(t, "d/up", "x"); return nil }, []string{"CREATE up", "CHMOD up", "WRITE up"}},
	} {
		require.NoError(t, test.do(), test.what)
		require.Equal(t, test.want, watch.events(), test.what)
	}
}

func TestWatchRecursive(t *testing.T) {
	w := newWorld(t)
	w.make(t, "d/old/deep/x", "tree/in/y")
	watch := w.watch(t, &filesystem.WatchDirRequest{Path: "d", Recursive: true})
	in := func(name string) string { return filepath.Join(w.home, "d", name) }
	// Some events come twice: when a directory is new, it is not sure which of its
	// files were there before it was watched.
	steps := func(what string, do func() error, want ...string) {
		t.Helper()
		require.NoError(t, do(), what)
		got := watch.events()
		slices.Sort(got)
		slices.Sort(want)
		require.Equal(t, want, slices.Compact(got), what)
	}
	steps("below", func() error { return os.Truncate(in("old/deep/x"), 0) }, "WRITE old/deep/x")
	steps("mkdir -p", func() error { return os.MkdirAll(in("a/b/c/d"), 0o755) },
		"CREATE a", "CREATE a/b", "CREATE a/b/c", "CREATE a/b/c/d")
	steps("in a new one", func() error { return os.Mkdir(in("a/b/c/d/e"), 0o755) }, "CREATE a/b/c/d/e")
	steps("move a directory", func() error { return os.Rename(in("a"), in("a2")) },
		"RENAME a", "CREATE a2", "CREATE a2/b", "CREATE a2/b/c", "CREATE a2/b/c/d", "CREATE a2/b/c/d/e")
	steps("below the moved one", func() error { return os.Mkdir(in("a2/b/c/f"), 0o755) }, "CREATE a2/b/c/f")
	steps("move in", func() error { return os.Rename(filepath.Join(w.home, "tree"), in("tree")) },
		"CREATE tree", "CREATE tree/in", "CREATE tree/in/y")
	steps("below what came in", func() error { return os.Remove(in("tree/in/y")) }, "REMOVE tree/in/y")
	steps("move out", func() error { return os.Rename(in("tree"), filepath.Join(w.home, "tree")) }, "RENAME tree")
	steps("below what went out", func() error { return os.WriteFile(filepath.Join(w.home, "tree/in/z"), nil, 0o644) })
	steps("remove a tree", func() error { return os.RemoveAll(in("a2")) },
		"REMOVE a2", "REMOVE a2/b", "REMOVE a2/b/c", "REMOVE a2/b/c/d", "REMOVE a2/b/c/d/e", "REMOVE a2/b/c/f")
	steps("the same name again", func() error { return os.MkdirAll(in("a2/b"), 0o755) }, "CREATE a2", "CREATE a2/b")
	steps("below it", func() error { return os.WriteFile(in("a2/b/x"), []byte("1"), 0o644) }, "CREATE a2/b/x", "WRITE a2/b/x")
}

func TestWatchEntries(t *testing.T) {
	w := newWorld(t)
	w.make(t, "d/")
	require.NoError(t, os.Symlink("d", filepath.Join(w.home, "link")))
	watch := w.watch(t, &filesystem.WatchDirRequest{Path: "link", IncludeEntry: true})
	require.NoError(t, os.Symlink("target", filepath.Join(w.home, "d/f")))
	ev := watch.next()
	require.Equal(t, "CREATE f", name(ev))
	require.Equal(t, w.home+"/link/f", ev.GetEntry().GetPath())
	require.NotNil(t, ev.GetEntry().SymlinkTarget)
	require.NoError(t, os.Remove(filepath.Join(w.home, "d/f")))
	ev = watch.next()
	require.Equal(t, "REMOVE f", name(ev))
	require.Nil(t, ev.Entry)

	old := newWorld(t, func(c *Config) { c.Version = "0.6.2" })
	old.make(t, "d/")
	watch = old.watch(t, &filesystem.WatchDirRequest{Path: "d", IncludeEntry: true})
	require.NoError(t, os.Mkdir(filepath.Join(old.home, "d/f"), 0o755))
	require.Nil(t, watch.next().Entry)
}

// When the directory is gone, it is said once, and then the stream is silent.
func TestWatchedDirectoryGone(t *testing.T) {
	for _, recursive := range []bool{false, true} {
		for _, test := range []struct {
			do   func(dir string) error
			want string
		}{
			{os.Remove, "REMOVE ."},
			{func(dir string) error { return os.Rename(dir, dir+"-moved") }, "RENAME ."},
		} {
			t.Run(fmt.Sprint(test.want, recursive), func(t *testing.T) {
				t.Parallel() // it waits for its deadline
				w := newWorld(t)
				w.make(t, "d/sub/")
				watch := w.watch(t, &filesystem.WatchDirRequest{Path: "d", Recursive: recursive}, "Connect-Timeout-Ms", "2500")
				if test.want == "REMOVE ." {
					require.NoError(t, os.Remove(filepath.Join(watch.dir, "sub")))
					require.Equal(t, "REMOVE sub", name(watch.next()))
				}
				require.NoError(t, test.do(watch.dir))
				require.Equal(t, test.want, name(watch.next()))
				// A new one of the name is another one; so is the one that has moved.
				w.make(t, "d/x", "d-moved/sub/x")
				require.Nil(t, watch.next())
				requireCode(t, connect.CodeDeadlineExceeded, "context deadline exceeded", watch.stream.Err())
			})
		}
	}
}

func TestWatchNameThatCannotBeSent(t *testing.T) {
	w := newWorld(t)
	w.make(t, "d/")
	watch := w.watch(t, &filesystem.WatchDirRequest{Path: "d"})
	require.NoError(t, os.WriteFile(filepath.Join(watch.dir, "\xff"), nil, 0o644))
	require.Nil(t, watch.next())
	require.Equal(t, connect.CodeUnknown, connect.CodeOf(watch.stream.Err()))
	require.ErrorContains(t, watch.stream.Err(), "error sending filesystem event: internal: marshal message: ")
}

func TestWatcher(t *testing.T) {
	w := newWorld(t)
	w.make(t, "d/")
	create := func() string {
		res, err := w.files.CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: "d"}))
		require.NoError(t, err)
		return res.Msg.GetWatcherId()
	}
	get := func(id string) ([]*filesystem.FilesystemEvent, error) {
		res, err := w.files.GetWatcherEvents(t.Context(), connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: id}))
		if err != nil {
			return nil, err
		}
		return res.Msg.GetEvents(), nil
	}
	id, other := create(), create()
	require.NotEqual(t, id, other)
	w.make(t, "d/f")
	var got []string
	eventually(t, "two events", func() bool {
		events, err := get(id)
		require.NoError(t, err)
		for _, ev := range events {
			got = append(got, name(ev))
		}
		return len(got) == 2
	})
	require.Equal(t, []string{"CREATE f", "WRITE f"}, got)

	failing := &watcher{cancel: func() {}}
	require.True(t, failing.add(make([]*filesystem.FilesystemEvent, maxPending)))
	require.False(t, failing.add(make([]*filesystem.FilesystemEvent, 1)))
	w.srv.mu.Lock()
	w.srv.watchers["wfailing"] = failing
	w.srv.mu.Unlock()
	for range 2 {
		_, err := get("wfailing")
		requireCode(t, connect.CodeInternal, errPending.Error(), err)
	}

	remove := func(id string) error {
		_, err := w.files.RemoveWatcher(t.Context(), connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: id}))
		return err
	}
	require.NoError(t, remove(id))
	gone := "watcher with id " + id + " not found"
	requireCode(t, connect.CodeNotFound, gone, remove(id))
	_, err := get(id)
	requireCode(t, connect.CodeNotFound, gone, err)
}

// Errors are received at once, and only what makes the watch useless is one.
func TestWatchDrain(t *testing.T) {
	errs := make(chan error)
	w := &watch{notify: hostNotifier{&fsnotify.Watcher{Errors: errs}}, failed: make(chan error, 1), drained: make(chan struct{})}
	go w.drain()
	errs <- os.NewSyscallError("inotify_rm_watch", syscall.EINVAL)
	errs <- fsnotify.ErrEventOverflow
	errs <- errors.New("another")
	close(errs)
	<-w.drained
	require.ErrorIs(t, <-w.failed, fsnotify.ErrEventOverflow)
	require.Empty(t, w.failed)
}

// A directory that is moved about and removed while it is watched stops nothing.
func TestWatchTurmoil(t *testing.T) {
	w := newWorld(t)
	w.make(t, "d/")
	watch := w.watch(t, &filesystem.WatchDirRequest{Path: "d", Recursive: true})
	for i := range 200 {
		a, b := filepath.Join(watch.dir, "a"), filepath.Join(watch.dir, fmt.Sprint("b", i))
		require.NoError(t, os.MkdirAll(filepath.Join(a, "x/y"), 0o755))
		require.NoError(t, os.Rename(a, b))
		require.NoError(t, os.RemoveAll(b))
	}
	watch.events()
	require.NoError(t, os.Mkdir(filepath.Join(watch.dir, "last"), 0o755))
	require.Equal(t, []string{"CREATE last"}, watch.events())
}
