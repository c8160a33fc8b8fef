package e2b_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/filesystem"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/filesystem/filesystemconnect"
)

// USERS.md H11: any reader, of known length or not.
func TestH11WriteFrom(t *testing.T) {
	for _, version := range []string{fakeEnvd, "0.5.6"} {
		f := newFakeSandbox()
		f.version = version
		var stored map[string][]byte
		f.files, stored = storage(t)
		sbx := f.inMemory(t)
		for name, r := range map[string]io.Reader{
			"bytes":    bytes.NewReader(everyByte),
			"string":   strings.NewReader(string(everyByte)),
			"buffer":   bytes.NewBuffer(everyByte),
			"no len":   io.MultiReader(bytes.NewReader(everyByte)),
			"halves":   iotest.HalfReader(bytes.NewReader(everyByte)),
			"data EOF": iotest.DataErrReader(bytes.NewReader(everyByte)),
		} {
			require.NoError(t, sbx.Files.WriteFrom(t.Context(), name, r, nil), name)
			require.True(t, bytes.Equal(everyByte, stored[name]), name)
		}
		partly := bytes.NewReader(everyByte)
		_, err := partly.Seek(1000, io.SeekStart)
		require.NoError(t, err)
		require.NoError(t, sbx.Files.WriteFrom(t.Context(), "rest", partly, nil))
		require.True(t, bytes.Equal(everyByte[1000:], stored["rest"]))
		for _, empty := range []io.Reader{bytes.NewReader(nil), io.MultiReader(), strings.NewReader("")} {
			stored["empty"] = []byte("before")
			require.NoError(t, sbx.Files.WriteFrom(t.Context(), "empty", empty, nil))
			require.Empty(t, stored["empty"])
		}
		r, w := io.Pipe()
		go func() {
			_, err := w.Write(everyByte)
			w.CloseWithError(err)
		}()
		require.NoError(t, sbx.Files.WriteFrom(t.Context(), "pipe", r, nil))
		require.True(t, bytes.Equal(everyByte, stored["pipe"]))
		requireDataKinds(t, sbx.Files.WriteFrom(t.Context(), "x", nil, nil), e2b.ErrInvalidArgument)
		require.Equal(t, int64(1), f.dials.Load())
	}
}

// The length of what is in memory is told, so that envd can refuse it before it
// has replaced anything.
func TestWriteTellsTheLength(t *testing.T) {
	f := newFakeSandbox()
	var lengths []int64
	f.files = func(w http.ResponseWriter, r *http.Request) {
		lengths = append(lengths, r.ContentLength)
		drain(r)
		write(w, []byte("[]"))
	}
	sbx := f.inMemory(t)
	for _, r := range []io.Reader{strings.NewReader("abc"), bytes.NewBufferString("abcd"), io.MultiReader(strings.NewReader("x"))} {
		require.NoError(t, sbx.Files.WriteFrom(t.Context(), "x", r, nil))
	}
	require.NoError(t, sbx.Files.Write(t.Context(), "x", nil, nil))
	require.Equal(t, []int64{3, 4, -1, 0}, lengths)
}

// An error of the reader is what the caller gets to see.
func TestWriteFromReaderFails(t *testing.T) {
	broken := errors.New("the source broke")
	for name, r := range map[string]io.Reader{
		"a wrapped end": iotest.ErrReader(fmt.Errorf("%w: %w", broken, io.EOF)),
		"at once":       iotest.ErrReader(broken),
		"later":         io.MultiReader(bytes.NewReader(everyByte), iotest.ErrReader(broken)),
		"with a ctx":    iotest.ErrReader(fmt.Errorf("%w: %w", broken, context.Canceled)),
	} {
		f := newFakeSandbox()
		f.files, _ = storage(t)
		err := f.inMemory(t).Files.WriteFrom(t.Context(), "/x", r, nil)
		require.ErrorIs(t, err, broken, name)
		require.NotErrorIs(t, err, e2b.ErrStreamInterrupted)
		var pe *fs.PathError
		require.ErrorAs(t, err, &pe)
		require.Equal(t, "/x", pe.Path)
		require.Zero(t, f.infos())
	}
}

// stuckReader gives some bytes and then blocks until it is let go.
type stuckReader struct {
	first   []byte
	let     chan struct{}
	reading chan struct{}
	once    sync.Once
}

func (r *stuckReader) Read(p []byte) (int, error) {
	if len(r.first) > 0 {
		n := copy(p, r.first)
		r.first = r.first[n:]
		return n, nil
	}
	r.once.Do(func() { close(r.reading) })
	<-r.let
	return 0, io.EOF
}

// A Read that blocks keeps WriteFrom neither from the end of ctx nor from that of
// the handle, and is no silence of the server's.
func TestWriteFromReaderThatBlocks(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(context.CancelFunc, *e2b.Sandbox)
		want error
	}{
		"ctx":   {func(cancel context.CancelFunc, _ *e2b.Sandbox) { cancel() }, context.Canceled},
		"pause": {func(_ context.CancelFunc, s *e2b.Sandbox) { _, _ = s.Pause(context.Background(), nil) }, e2b.ErrSandboxNotRunning},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeSandbox()
				f.files, _ = storage(t)
				sbx := f.inMemory(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r := &stuckReader{first: bytes.Clone(everyByte), let: make(chan struct{}), reading: make(chan struct{})}
				go func() {
					<-r.reading
					elapse(t.Context(), time.Hour)
					tt.end(cancel, sbx)
				}()
				begin := time.Now()
				requireDataKinds(t, sbx.Files.WriteFrom(ctx, "x", r, nil), tt.want)
				require.Equal(t, time.Hour, time.Since(begin))
				close(r.let)
				synctest.Wait()
			})
		})
	}
}

// What Write was given is the caller's again when it returns, also while net/http
// would still send it. The race detector is the judge.
func TestWriteLetsGoOfItsData(t *testing.T) {
	f := newFakeSandbox()
	f.files = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyN(io.Discard, r.Body, 1000)
		writeJSON(w, 507, map[string]any{"code": 507, "message": "not enough disk space available"})
	}
	sbx := f.onLoopback(t)
	data := make([]byte, 8<<20)
	for range 3 {
		requireDataKinds(t, sbx.Files.Write(t.Context(), "x", data, nil), e2b.ErrNoSpace)
		clear(data)
	}
}

func TestWriteGzip(t *testing.T) {
	text := []byte(strings.Repeat("the same line again\n", 10000))
	for _, version := range []string{fakeEnvd, "0.5.3"} {
		f := newFakeSandbox()
		f.version = version
		keep, stored := storage(t)
		sizes := []int{}
		f.files = func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Content-Encoding") != "gzip" || r.ContentLength != -1 {
				t.Errorf("%q, %d", r.Header.Get("Content-Encoding"), r.ContentLength)
			}
			all := drain(r)
			sizes = append(sizes, len(all))
			plain, err := gzip.NewReader(bytes.NewReader(all))
			if err != nil {
				t.Error(err)
				return
			}
			r.Body = plain
			keep(w, r)
		}
		sbx := f.inMemory(t)
		require.NoError(t, sbx.Files.Write(t.Context(), "x", text, &e2b.WriteOptions{Gzip: true}))
		require.True(t, bytes.Equal(text, stored["x"]))
		require.Less(t, sizes[0], len(text)/20)
		require.NoError(t, sbx.Files.Write(t.Context(), "empty", nil, &e2b.WriteOptions{Gzip: true}))
		require.Empty(t, stored["empty"])
		f.files = func(_ http.ResponseWriter, r *http.Request) { drain(r) }
		broken := errors.New("the source broke")
		err := sbx.Files.WriteFrom(t.Context(), "x", io.MultiReader(bytes.NewReader(text), iotest.ErrReader(broken)), &e2b.WriteOptions{Gzip: true})
		require.ErrorIs(t, err, broken)
	}
}

func TestWriteOptionsRefused(t *testing.T) {
	at := func(version string, o e2b.WriteOptions, want error, says ...string) {
		t.Helper()
		f := newFakeSandbox()
		f.version = version
		err := f.inMemory(t).Files.Write(t.Context(), "/x", nil, &o)
		requireDataKinds(t, err, want)
		for _, s := range says {
			require.ErrorContains(t, err, s)
		}
		require.Empty(t, f.requests(""))
	}
	at("0.5.2", e2b.WriteOptions{Gzip: true}, e2b.ErrNotSupported, "0.5.3", "0.5.2")
	at("0.6.1", e2b.WriteOptions{Metadata: map[string]string{"a": "b"}}, e2b.ErrNotSupported, "0.6.2", "0.6.1")
	for says, md := range map[string]map[string]string{
		"no HTTP header":     {"a b": "x"},
		"a key that no":      {"": "x"},
		"246 bytes":          {strings.Repeat("k", 247): "x"},
		"twice":              {"Key": "x", "key": "y"},
		"printable ASCII":    {"k": "ü"},
		"not printable":      {"k": "a\nb"},
		"space":              {"k": " x"},
		"4097 of 4096 bytes": {"k": strings.Repeat("v", 4096-9)},
	} {
		at(fakeEnvd, e2b.WriteOptions{Metadata: md}, e2b.ErrInvalidArgument, "Metadata", says)
	}
	f := newFakeSandbox()
	sbx := f.inMemory(t)
	requireDataKinds(t, sbx.Files.Write(t.Context(), "dir/", nil, nil), e2b.ErrInvalidArgument)
	requireDataKinds(t, sbx.Files.Write(t.Context(), "a\xff", nil, &e2b.WriteOptions{Atomic: true}), e2b.ErrInvalidArgument)
	require.Empty(t, f.requests(""))
}

// The limits are envd's: what is let through here, the emulated one takes.
func TestFileMetadata(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	md := map[string]string{"Author": "a b~c", "empty": "", "x-1_2.3": strings.Repeat("v", 1000)}
	require.NoError(t, sbx.Files.Write(t.Context(), "x", []byte("1"), &e2b.WriteOptions{Metadata: md}))
	info, err := sbx.Files.Stat(t.Context(), "x", nil)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"author": "a b~c", "empty": "", "x-1_2.3": md["x-1_2.3"]}, info.Metadata)
	require.Contains(t, md, "Author", "it is the caller's")
	require.NoError(t, sbx.Files.Write(t.Context(), "y", []byte("2"), &e2b.WriteOptions{Atomic: true, Metadata: map[string]string{"k": "v"}}))
	info, err = sbx.Files.Stat(t.Context(), "y", nil)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"k": "v"}, info.Metadata)
	require.NoError(t, sbx.Files.Write(t.Context(), "x", []byte("3"), nil))
	info, err = sbx.Files.Stat(t.Context(), "x", nil)
	require.NoError(t, err)
	require.Empty(t, info.Metadata)
}

func TestWriteAtomic(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	ctx := t.Context()
	atomic := &e2b.WriteOptions{Atomic: true}
	for _, name := range []string{"new/deep/x", "plain", "~/tilde", "/tmp/abs"} {
		require.NoError(t, sbx.Files.Write(ctx, name, []byte("one"), atomic), name)
		require.NoError(t, sbx.Files.Write(ctx, name, []byte("two"), atomic), name)
		got, err := sbx.Files.Read(ctx, name, nil)
		require.NoError(t, err)
		require.Equal(t, "two", string(got))
	}
	broken := errors.New("the source broke")
	err := sbx.Files.WriteFrom(ctx, "plain", io.MultiReader(bytes.NewReader(everyByte), iotest.ErrReader(broken)), atomic)
	require.ErrorIs(t, err, broken)
	got, err := sbx.Files.Read(ctx, "plain", nil)
	require.NoError(t, err)
	require.Equal(t, "two", string(got), "what was there stays")
	err = sbx.Files.Write(ctx, "new/deep", nil, atomic)
	require.ErrorIs(t, err, fs.ErrExist)
	var pe *fs.PathError
	require.ErrorAs(t, err, &pe)
	require.Equal(t, "new/deep", pe.Path)
	err = sbx.Files.Write(ctx, "plain/x", nil, atomic)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Equal(t, "", run(t, sbx, "find ~ /tmp -name '.e2b-go*'"), "nothing is left over")
}

// fakeMoves answers the filesystem service of a fakeSandbox.
type fakeMoves struct {
	filesystemconnect.UnimplementedFilesystemHandler

	move  func(from, to string) error
	calls []string
}

func (m *fakeMoves) Move(_ context.Context, r *connect.Request[filesystem.MoveRequest]) (*connect.Response[filesystem.MoveResponse], error) {
	m.calls = append(m.calls, "move "+r.Msg.GetSource()+" "+r.Msg.GetDestination())
	if err := m.move(r.Msg.GetSource(), r.Msg.GetDestination()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystem.MoveResponse{}), nil
}

func (m *fakeMoves) Remove(_ context.Context, r *connect.Request[filesystem.RemoveRequest]) (*connect.Response[filesystem.RemoveResponse], error) {
	m.calls = append(m.calls, "remove "+r.Msg.GetPath())
	return connect.NewResponse(&filesystem.RemoveResponse{}), nil
}

// An atomic write that fails takes away what it had written, but does not wake a
// sandbox for it.
func TestWriteAtomicCleansUp(t *testing.T) {
	f := newFakeSandbox()
	keep, stored := storage(t)
	moves := &fakeMoves{}
	_, rpc := filesystemconnect.NewFilesystemHandler(moves)
	pause := false
	f.envd = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/files" {
			keep(w, r)
			return
		}
		rpc.ServeHTTP(w, r)
	}
	moves.move = func(from, _ string) error {
		if pause {
			f.setState(e2b.StatePaused)
		}
		return connect.NewError(connect.CodeInternal, fmt.Errorf("error renaming: rename %s b: no space left on device", from))
	}
	sbx := f.inMemory(t)
	err := sbx.Files.Write(t.Context(), "dir/x", []byte("new"), &e2b.WriteOptions{Atomic: true})
	requireDataKinds(t, err, e2b.ErrNoSpace)
	require.NotContains(t, stored, "dir/x")
	from := strings.Fields(moves.calls[0])[1]
	require.Equal(t, "dir", path.Dir(from))
	require.Contains(t, stored, from)
	require.Equal(t, "remove "+from, moves.calls[1])

	pause, moves.calls = true, nil
	err = sbx.Files.Write(t.Context(), "dir/x", []byte("new"), &e2b.WriteOptions{Atomic: true})
	requireDataKinds(t, err, e2b.ErrNoSpace)
	require.Len(t, moves.calls, 1)
}

// USERS.md H4: many files, one request each, a few at a time; the first error ends
// it and says which were written.
func TestH4WriteAll(t *testing.T) {
	for _, version := range []string{fakeEnvd, "0.5.0"} {
		f := newFakeSandbox()
		f.version = version
		var mu sync.Mutex
		keep, stored := storage(t)
		now, most := 0, 0
		f.files = func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			now++
			most = max(most, now)
			defer func() { now--; mu.Unlock() }()
			if strings.HasSuffix(r.URL.Query().Get("path"), "4") {
				writeJSON(w, 507, map[string]any{"code": 507, "message": "attempted to write 1 bytes: not enough disk space available"})
				return
			}
			keep(w, r)
		}
		sbx := f.inMemory(t)
		var files []e2b.NewFile
		for i := range 4 {
			files = append(files, e2b.NewFile{Path: fmt.Sprint("dir/", i), Data: []byte{byte(i)}})
		}
		files[2].Data, files[2].From = nil, bytes.NewReader([]byte{2})
		require.NoError(t, sbx.Files.WriteAll(t.Context(), files, nil))
		require.Equal(t, map[string][]byte{"dir/0": {0}, "dir/1": {1}, "dir/2": {2}, "dir/3": {3}}, stored)
		require.NoError(t, sbx.Files.WriteAll(t.Context(), nil, nil))

		clear(stored)
		files[2].From, files[2].Data = nil, []byte{2}
		for i := range 6 {
			files = append(files, e2b.NewFile{Path: fmt.Sprint("dir/", 4+i), Data: []byte{byte(4 + i)}})
		}
		err := sbx.Files.WriteAll(t.Context(), files, nil)
		requireDataKinds(t, err, e2b.ErrNoSpace)
		var all *e2b.WriteAllError
		require.ErrorAs(t, err, &all)
		require.NotContains(t, all.Written, "dir/4")
		require.True(t, slices.IsSorted(all.Written))
		mu.Lock() // an upload that was cut off may still be at work there
		require.Subset(t, keys(stored), all.Written)
		mu.Unlock()
		var pe *fs.PathError
		require.ErrorAs(t, err, &pe)
		require.Equal(t, "dir/4", pe.Path)
		if version == "0.5.0" {
			require.Equal(t, 1, most, "directories made twice at a time fail there")
			require.Equal(t, []string{"dir/0", "dir/1", "dir/2", "dir/3"}, all.Written)
		}
	}
	f := newFakeSandbox()
	sbx := f.inMemory(t)
	requireDataKinds(t, sbx.Files.WriteAll(t.Context(), []e2b.NewFile{{Path: "a"}, {Path: "a"}}, nil), e2b.ErrInvalidArgument)
	requireDataKinds(t, sbx.Files.WriteAll(t.Context(), []e2b.NewFile{{Path: "a"}, {}}, nil), e2b.ErrInvalidArgument)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	requireDataKinds(t, sbx.Files.WriteAll(ctx, []e2b.NewFile{{Path: "a"}}, nil), context.Canceled)
	require.Empty(t, f.requests(""))
}

func keys[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	return out
}

// A success that comes before the server has everything is none.
func TestWriteEarlySuccess(t *testing.T) {
	f := newFakeSandbox()
	f.files = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyN(io.Discard, r.Body, 1000)
		write(w, []byte("[]"))
	}
	sbx := f.onLoopback(t)
	requireDataKinds(t, sbx.Files.Write(t.Context(), "x", make([]byte, 8<<20), nil), e2b.ErrStreamInterrupted)
	requireDataKinds(t, sbx.Files.WriteFrom(t.Context(), "x", io.LimitReader(zeroReader{}, 64<<20), nil), e2b.ErrStreamInterrupted)
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Two spellings of one path would write one file twice at the same time.
func TestWriteAllSpellings(t *testing.T) {
	f := newFakeSandbox()
	for _, other := range []string{"./a", "b/../a", ".//a"} {
		err := f.inMemory(t).Files.WriteAll(t.Context(), []e2b.NewFile{{Path: "a"}, {Path: other}}, nil)
		requireDataKinds(t, err, e2b.ErrInvalidArgument)
	}
	require.Empty(t, f.requests(""))
}
