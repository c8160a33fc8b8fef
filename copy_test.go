package e2b_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
)

// tree describes all that is in a directory.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	fsys := os.DirFS(dir)
	require.NoError(t, fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		what := info.Mode().String()
		switch info.Mode().Type() {
		case fs.ModeSymlink:
			to, err := fs.ReadLink(fsys, name)
			if err != nil {
				return err
			}
			what = "-> " + to
		case 0:
			b, err := fs.ReadFile(fsys, name)
			if err != nil {
				return err
			}
			what += " " + info.ModTime().UTC().Format(time.DateTime) + " " + string(b)
		}
		out[name] = what
		return nil
	}))
	return out
}

// A tree of 10,000 files goes in and comes out byte for byte; a fifth of it where
// the race detector is at work.
func TestCopyManyFiles(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	src, dst := fstest.MapFS{}, t.TempDir()
	n := 10_000
	if raceEnabled {
		n /= 5
	}
	for i := range n {
		src[fmt.Sprintf("d%02d/%d", i%100, i)] = &fstest.MapFile{Data: everyByte[:i%700]}
	}
	require.NoError(t, sbx.Files.CopyIn(t.Context(), src, "many", nil))
	require.NoError(t, sbx.Files.CopyOut(t.Context(), "many", dst, nil))
	n = 0
	require.NoError(t, fs.WalkDir(os.DirFS(dst), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(dst, filepath.FromSlash(name)))
		if err == nil && (src[name] == nil || !bytes.Equal(src[name].Data, b)) {
			err = fmt.Errorf("%s came out as %d other bytes", name, len(b))
		}
		n++
		return err
	}))
	require.Equal(t, len(src), n)
}

func TestCopyTree(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	src, dst := t.TempDir(), filepath.Join(t.TempDir(), "new", "dir")
	odd := filepath.Join(src, "-odd 'ü\"\n")
	require.NoError(t, os.MkdirAll(filepath.Join(odd, "empty"), 0o750))
	long := filepath.Join(odd, strings.Repeat("n", 200), strings.Repeat("m", 200))
	require.NoError(t, os.MkdirAll(long, 0o755))
	for name, mode := range map[string]fs.FileMode{"x": 0o755, "secret": 0o600, "locked": 0o400, "%2F+": 0o644} {
		require.NoError(t, os.WriteFile(filepath.Join(long, name), []byte(name), mode))
		require.NoError(t, os.Chmod(filepath.Join(long, name), mode))
	}
	require.NoError(t, os.WriteFile(filepath.Join(src, "big"), everyByte, 0o644))
	require.NoError(t, os.Symlink("../big", filepath.Join(odd, "link")))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(src, "broken")))
	old := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	require.NoError(t, os.Chtimes(filepath.Join(src, "big"), old, old))

	require.NoError(t, sbx.Files.CopyIn(t.Context(), os.DirFS(src), "in to/it's", nil))
	require.NoError(t, sbx.Files.CopyOut(t.Context(), "in to/it's", dst, nil))
	require.Equal(t, tree(t, src), tree(t, dst))
	require.Empty(t, run(t, sbx, "find ~ -name '.e2b-go*'"), "the archive is gone")

	// Once more, over what is there.
	require.NoError(t, os.WriteFile(filepath.Join(dst, "big"), []byte("changed here"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dst, "mine"), []byte("mine"), 0o600))
	require.NoError(t, sbx.Files.CopyOut(t.Context(), "~/in to/it's", dst, nil))
	got := tree(t, dst)
	require.Contains(t, got, "mine")
	delete(got, "mine")
	require.Equal(t, tree(t, src), got)
}

// What tells no permissions gets the usual ones, and directories can be written.
func TestCopyInModes(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	require.NoError(t, sbx.Files.CopyIn(t.Context(), fstest.MapFS{
		"a/b":     {Data: []byte("x")},
		"a/c":     {Data: []byte("y"), Mode: 0o751},
		"a/l":     {Data: []byte("b"), Mode: fs.ModeSymlink},
		"outside": {Data: []byte("/etc/passwd"), Mode: fs.ModeSymlink},
	}, "~", nil))
	require.Equal(t, "644\n751\n755\nb\n/etc/passwd\n", run(t, sbx, "stat -c %a a/b a/c a; readlink a/l outside"))
	require.NoError(t, sbx.Files.CopyIn(t.Context(), fstest.MapFS{}, "empty/dir", nil))
	require.Equal(t, "", run(t, sbx, "ls empty/dir"))
	require.NoError(t, sbx.Files.CopyIn(t.Context(), fstest.MapFS{"f": {Data: []byte("r")}}, "mine", &e2b.CopyOptions{User: "root"}))
}

func TestCopyErrors(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	ctx, files := t.Context(), sbx.Files
	run(t, sbx, "printf x > file; mkdir -p d/f/g; mkfifo pipes; mkdir p; mkfifo p/pipe")
	small := fstest.MapFS{"f": {Data: []byte("x")}}
	require.ErrorIs(t, files.CopyIn(ctx, small, "file", nil), fs.ErrExist)
	require.ErrorIs(t, files.CopyIn(ctx, small, "d", nil), fs.ErrExist)
	require.ErrorIs(t, files.CopyOut(ctx, "missing", t.TempDir(), nil), fs.ErrNotExist)
	require.ErrorIs(t, files.CopyOut(ctx, "file", t.TempDir(), nil), e2b.ErrInvalidArgument)
	err := files.CopyOut(ctx, "p", t.TempDir(), nil)
	require.ErrorIs(t, err, e2b.ErrNotSupported)
	require.ErrorContains(t, err, "pipe")
	require.Error(t, files.CopyOut(ctx, "d", filepath.Join("/dev/null", "x"), nil))

	broken := errors.New("the tree broke")
	err = files.CopyIn(ctx, brokenFS{small, broken}, "other", nil)
	require.ErrorIs(t, err, broken)
	err = files.CopyIn(ctx, fstest.MapFS{"dev": {Mode: fs.ModeDevice}}, "other", nil)
	require.ErrorIs(t, err, e2b.ErrInvalidArgument)
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, files.CopyIn(cancelled, small, "other", nil), context.Canceled)
	require.ErrorIs(t, files.CopyOut(cancelled, "d", t.TempDir(), nil), context.Canceled)
	exists, err := files.Exists(ctx, "other", nil)
	require.NoError(t, err)
	require.False(t, exists, "nothing is unpacked of a tree that did not arrive whole")
	require.Empty(t, run(t, sbx, "find ~ -name '.e2b-go*'"))
}

type brokenFS struct {
	fstest.MapFS
	err error
}

func (b brokenFS) Open(name string) (fs.File, error) {
	if name == "f" {
		return nil, b.err
	}
	return b.MapFS.Open(name)
}

func TestCopyRefuses(t *testing.T) {
	f := newFakeSandbox()
	files := f.inMemory(t).Files
	for _, dir := range []string{"", "a\x00b", "~root/x", "a\xff"} {
		requireDataKinds(t, files.CopyIn(t.Context(), fstest.MapFS{}, dir, nil), e2b.ErrInvalidArgument)
		requireDataKinds(t, files.CopyOut(t.Context(), dir, t.TempDir(), nil), e2b.ErrInvalidArgument)
	}
	requireDataKinds(t, files.CopyIn(t.Context(), nil, "x", nil), e2b.ErrInvalidArgument)
	requireDataKinds(t, files.CopyOut(t.Context(), "x", "", nil), e2b.ErrInvalidArgument)
	requireDataKinds(t, files.CopyIn(t.Context(), fstest.MapFS{}, "x", &e2b.CopyOptions{User: "a:b"}), e2b.ErrInvalidArgument)
	require.Empty(t, f.requests(""))
}

// entry is one of an archive that a sandbox sends.
type entry struct {
	name string
	typ  byte
	link string
	body string
}

func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if e.typ == 0 {
			e.typ = tar.TypeReg
		}
		h := tar.Header{Format: tar.FormatGNU, Name: e.name, Typeflag: e.typ, Linkname: e.link, Mode: 0o644, Size: int64(len(e.body))}
		require.NoError(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, e.body)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// sends is a sandbox whose tar sends what it likes.
func sends(t testing.TB, b []byte, code int32, stderr string) *e2b.Sandbox {
	t.Helper()
	f := newFakeSandbox()
	f.start = script(evStart(1), evOut(string(b)), evErr(stderr), evExit(code))
	f.signal = func(context.Context, uint32, process.Signal) error { return nil }
	return f.inMemory(t)
}

// A sandbox that sends a hostile archive gets nothing outside of the destination,
// and no link that leads there.
func TestCopyOutHostile(t *testing.T) {
	for name, entries := range map[string][]entry{
		"up":                    {{name: "../evil", body: "x"}},
		"up from below":         {{name: "a/../../evil", body: "x"}},
		"absolute":              {{name: "/tmp/evil", body: "x"}},
		"absolute link":         {{name: "l", typ: tar.TypeSymlink, link: "/etc"}},
		"link up":               {{name: "a/l", typ: tar.TypeSymlink, link: "../../x"}},
		"link to the parent":    {{name: "l", typ: tar.TypeSymlink, link: ".."}},
		"link up from behind":   {{name: "a/l", typ: tar.TypeSymlink, link: "b/../../../x"}},
		"link by another link":  {{name: "x", typ: tar.TypeDir}, {name: "p/d", typ: tar.TypeSymlink, link: "../x"}, {name: "l", typ: tar.TypeSymlink, link: "p/d/../../q"}},
		"an empty link":         {{name: "l", typ: tar.TypeSymlink, link: ""}},
		"through a link":        {{name: "x", typ: tar.TypeDir}, {name: "l", typ: tar.TypeSymlink, link: "x"}, {name: "l/evil", body: "x"}},
		"a directory as a link": {{name: "d", typ: tar.TypeDir}, {name: "d", typ: tar.TypeSymlink, link: "e"}},
		"hard link up":          {{name: "l", typ: tar.TypeLink, link: "../outside"}},
		"hard link absolute":    {{name: "l", typ: tar.TypeLink, link: "/etc/passwd"}},
		"device":                {{name: "dev", typ: tar.TypeChar}},
		"pipe":                  {{name: "fifo", typ: tar.TypeFifo}},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(top, "outside"), []byte("safe"), 0o600))
			sbx := sends(t, archive(t, append([]entry{{name: "ok", body: "fine"}}, entries...)...), 0, "")
			err := sbx.Files.CopyOut(t.Context(), "/x", filepath.Join(top, "in"), nil)
			require.Error(t, err)
			var pe *fs.PathError
			require.ErrorAs(t, err, &pe)
			list, err := os.ReadDir(top)
			require.NoError(t, err)
			require.Len(t, list, 2, "nothing beside the destination")
			b, err := os.ReadFile(filepath.Join(top, "outside"))
			require.NoError(t, err)
			require.Equal(t, "safe", string(b))
			for name, what := range tree(t, filepath.Join(top, "in")) {
				if to, ok := strings.CutPrefix(what, "-> "); ok {
					require.True(t, filepath.IsLocal(path.Join(path.Dir(name), to)), "%s -> %s", name, to)
				}
			}
		})
	}
}

// A link that is in the destination already is not followed either.
func TestCopyOutFollowsNoLink(t *testing.T) {
	top := t.TempDir()
	in, out := filepath.Join(top, "in"), filepath.Join(top, "out")
	require.NoError(t, os.Mkdir(in, 0o755))
	require.NoError(t, os.Mkdir(out, 0o755))
	require.NoError(t, os.Symlink(out, filepath.Join(in, "d")))
	require.NoError(t, os.WriteFile(filepath.Join(out, "f"), []byte("safe"), 0o600))
	require.NoError(t, os.Symlink(filepath.Join(out, "f"), filepath.Join(in, "l")))
	sbx := sends(t, archive(t, entry{name: "l", body: "new"}, entry{name: "d/f", body: "evil"}), 0, "")
	require.Error(t, sbx.Files.CopyOut(t.Context(), "/x", in, nil))
	b, err := os.ReadFile(filepath.Join(out, "f"))
	require.NoError(t, err)
	require.Equal(t, "safe", string(b))
	b, err = os.ReadFile(filepath.Join(in, "l"))
	require.NoError(t, err)
	require.Equal(t, "new", string(b), "the link is replaced")
}

// How tar ends decides, whatever had come until then.
func TestCopyOutEnds(t *testing.T) {
	whole := archive(t, entry{name: "a", body: "x"}, entry{name: "h", typ: tar.TypeLink, link: "a"})
	for name, tt := range map[string]struct {
		body   []byte
		code   int32
		stderr string
		want   error
	}{
		"well":           {whole, 0, "", nil},
		"no tar":         {nil, 127, "bash: line 1: exec: tar: not found\n", e2b.ErrNotSupported},
		"missing":        {nil, 2, "tar: /x: Cannot open: No such file or directory\n", fs.ErrNotExist},
		"not allowed":    {whole, 2, "tar: ./a: Cannot open: Permission denied\ntar: Exiting with failure status due to previous errors\n", fs.ErrPermission},
		"changed":        {whole, 1, "tar: ./a: file changed as we read it\n", nil},
		"half":           {whole[:300], 0, "", io.ErrUnexpectedEOF},
		"no tar archive": {bytes.Repeat([]byte("x"), 2048), 0, "", tar.ErrHeader},
	} {
		t.Run(name, func(t *testing.T) {
			err := sends(t, tt.body, tt.code, tt.stderr).Files.CopyOut(t.Context(), "/x", t.TempDir(), nil)
			if tt.code == 0 && tt.want == nil {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			if tt.want != nil {
				require.ErrorIs(t, err, tt.want)
			}
			if tt.code != 0 {
				requireExit(t, err, int(tt.code))
			}
		})
	}
}

// FuzzUnpack unpacks whatever a sandbox sends.
func FuzzCopyOut(f *testing.F) {
	f.Add([]byte{})
	f.Add(archive(f, entry{name: "a/b", body: "x"}, entry{name: "l", typ: tar.TypeSymlink, link: "a"}, entry{name: "h", typ: tar.TypeLink, link: "a/b"}))
	f.Add(archive(f, entry{name: "../a", body: "x"}))
	f.Add(archive(f, entry{name: "d", typ: tar.TypeDir}, entry{name: "d/l", typ: tar.TypeSymlink, link: "../d"}, entry{name: "d/l/x", body: "y"}))
	fake := newFakeSandbox()
	var mu sync.Mutex
	var body []byte
	fake.start = func(_ context.Context, _ *startRequest, s *startStream) error {
		mu.Lock()
		defer mu.Unlock()
		return send(s, evStart(1), evOut(string(body)), evExit(0))
	}
	fake.signal = func(context.Context, uint32, process.Signal) error { return nil }
	sbx := fake.inMemory(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		mu.Lock()
		body = b
		mu.Unlock()
		top := t.TempDir()
		_ = sbx.Files.CopyOut(t.Context(), "/x", filepath.Join(top, "in"), nil)
		list, err := os.ReadDir(top)
		require.NoError(t, err)
		require.Len(t, list, 1)
	})
}

// A profile that goes elsewhere or prints changes nothing: paths begin at the home.
func TestCopyIgnoresTheProfile(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	run(t, sbx, "mkdir -p app /tmp/other/app && echo right >app/f && echo wrong >/tmp/other/app/f && echo 'cd /tmp/other; echo hello' >.bash_profile")
	dst := t.TempDir()
	require.NoError(t, sbx.Files.CopyOut(t.Context(), "app", dst, nil))
	b, err := os.ReadFile(filepath.Join(dst, "f"))
	require.NoError(t, err)
	require.Equal(t, "right\n", string(b))
	require.NoError(t, sbx.Files.CopyIn(t.Context(), fstest.MapFS{"new": {Data: []byte("x")}}, "app", nil))
	b, err = sbx.Files.Read(t.Context(), "app/new", nil)
	require.NoError(t, err)
	require.Equal(t, "x", string(b))
	info, err := sbx.Files.Stat(t.Context(), "app/new", nil)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), info.ModTime, time.Hour, "a tree that tells no times")
}

// stuckFS has a file whose Read does not return until it is let.
type stuckFS struct {
	fstest.MapFS
	let chan struct{}
}

func (s stuckFS) Open(name string) (fs.File, error) {
	f, err := s.MapFS.Open(name)
	if name == "f" && err == nil {
		f = stuckFile{f, s.let}
	}
	return f, err
}

type stuckFile struct {
	fs.File
	let chan struct{}
}

func (f stuckFile) Read([]byte) (int, error) {
	<-f.let
	return 0, io.ErrUnexpectedEOF
}

// ctx ends CopyIn also while fsys is at work.
func TestCopyInStuckTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.files, _ = storage(t)
		let := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		err := f.inMemory(t).Files.CopyIn(ctx, stuckFS{fstest.MapFS{"f": {Data: []byte("x")}}, let}, "d", nil)
		requireDataKinds(t, err, context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(begin), 3*time.Second)
		close(let)
		synctest.Wait()
	})
}

// A panic of fsys is the caller's to meet.
func TestCopyInPanic(t *testing.T) {
	f := newFakeSandbox()
	f.files = func(w http.ResponseWriter, r *http.Request) { drain(r); abort(w) }
	sbx := f.inMemory(t)
	require.PanicsWithValue(t, "of the caller", func() { _ = sbx.Files.CopyIn(t.Context(), panicFS{}, "d", nil) })
}

type panicFS struct{}

func (panicFS) Open(string) (fs.File, error) { panic("of the caller") }

// ctx ends CopyOut also where an archive has much to write for few bytes, or
// names of many parts.
func TestCopyOutEndsWithCtx(t *testing.T) {
	deep := archive(t, entry{name: strings.Repeat("d/", 20_000) + "f"})
	ctx, cancel := context.WithCancel(t.Context())
	f := newFakeSandbox()
	f.start = func(_ context.Context, _ *startRequest, s *startStream) error {
		if err := send(s, evStart(1)); err != nil {
			return err
		}
		cancel()
		return send(s, evOut(string(deep)), evExit(0))
	}
	err := f.inMemory(t).Files.CopyOut(ctx, "d", t.TempDir(), nil)
	requireDataKinds(t, err, context.Canceled)
	require.Error(t, sends(t, archive(t, entry{name: strings.Repeat("d/", 40_000) + "f"}), 0, "").Files.CopyOut(t.Context(), "d", t.TempDir(), nil), "no tree has such a name")
}

// A connection that breaks is told as that, not as a bad archive.
func TestCopyOutCut(t *testing.T) {
	whole := archive(t, entry{name: "a", body: strings.Repeat("x", 5000)}, entry{name: "b", body: "y"})
	f := newFakeSandbox()
	f.start = func(_ context.Context, _ *startRequest, s *startStream) error {
		if err := send(s, evStart(1), evOut(string(whole[:1000]))); err != nil {
			return err
		}
		panic(http.ErrAbortHandler)
	}
	f.attach = func(_ context.Context, _ *attachRequest, s *attachStream) error {
		return sendTo(s, evStart(1), evOut(string(whole[3000:])), evExit(0))
	}
	err := f.inMemory(t).Files.CopyOut(t.Context(), "d", t.TempDir(), nil)
	requireDataKinds(t, err, e2b.ErrStreamInterrupted)
	pe, ok := errors.AsType[*fs.PathError](err)
	require.True(t, ok)
	require.Equal(t, "d", pe.Path)
}

// Links that lead out are made where the caller wants them, and never followed.
func TestCopyOutsideLinks(t *testing.T) {
	dst := t.TempDir()
	b := archive(t, entry{name: "python3", typ: tar.TypeSymlink, link: "/usr/bin/python3"}, entry{name: "\xff", body: "x"}, entry{name: "ok", body: "y"})
	require.ErrorIs(t, sends(t, b, 0, "").Files.CopyOut(t.Context(), "d", dst, nil), e2b.ErrNotSupported)
	require.NoError(t, sends(t, b, 0, "").Files.CopyOut(t.Context(), "d", dst, &e2b.CopyOptions{OutsideLinks: true}))
	to, err := os.Readlink(filepath.Join(dst, "python3"))
	require.NoError(t, err)
	require.Equal(t, "/usr/bin/python3", to)
	through := archive(t, entry{name: "l", typ: tar.TypeSymlink, link: "/"}, entry{name: "l/x", body: "evil"})
	require.Error(t, sends(t, through, 0, "").Files.CopyOut(t.Context(), "d", dst, &e2b.CopyOptions{OutsideLinks: true}))
}

// When ctx ends at the last step, the archive does not stay behind, and the error is about
// the directory.
func TestCopyInLeavesNoArchive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		var removes atomic.Int32
		var archive atomic.Pointer[string]
		f.start = func(_ context.Context, _ *startRequest, s *startStream) error {
			return send(s, evStart(1), evOut(*archive.Load()+"\n"), evExit(0))
		}
		f.envd = func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/files":
				archive.Store(new(r.URL.Query().Get("path")))
				drain(r)
				writeJSON(w, http.StatusOK, []any{})
			case "/filesystem.Filesystem/Remove":
				drain(r)
				if removes.Add(1) == 1 {
					<-r.Context().Done()
					return
				}
				w.Header().Set("Content-Type", "application/proto")
			default:
				f.serveProcess(w, r)
			}
		}
		sbx := f.inMemory(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := sbx.Files.CopyIn(ctx, fstest.MapFS{"a": {Data: []byte("x")}}, "/dir", nil)
		requireDataKinds(t, err, context.DeadlineExceeded)
		var at *fs.PathError
		require.ErrorAs(t, err, &at)
		require.Equal(t, "/dir", at.Path)
		require.Greater(t, removes.Load(), int32(1))
	})
}

// What says yes to every command, as a function in a test does, is no shell with tar.
func TestCopyNeedsAShell(t *testing.T) {
	for name, run := range map[string]func(context.Context, *e2btest.Command) int{
		"silent": func(context.Context, *e2btest.Command) int { return 0 },
		"talks":  func(_ context.Context, c *e2btest.Command) int { fmt.Fprintln(c.Stdout, "ran", c.Line()); return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			_, client := e2btest.New(t, &e2btest.Options{Run: run})
			sbx, err := client.Create(t.Context(), nil)
			require.NoError(t, err)
			err = sbx.Files.CopyIn(t.Context(), fstest.MapFS{"a": {Data: []byte("x")}}, "app", nil)
			requireDataKinds(t, err, e2b.ErrNotSupported)
			require.Error(t, sbx.Files.CopyOut(t.Context(), "app", t.TempDir(), nil))
			left, err := sbx.Files.List(t.Context(), ".", nil)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}
