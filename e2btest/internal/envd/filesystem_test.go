//go:build linux || darwin

package envd

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/filesystem"
)

func (w *world) stat(t testing.TB, path string) (*filesystem.EntryInfo, error) {
	t.Helper()
	res, err := w.files.Stat(t.Context(), connect.NewRequest(&filesystem.StatRequest{Path: path}))
	if err != nil {
		return nil, err
	}
	return res.Msg.GetEntry(), nil
}

func (w *world) mkdir(t testing.TB, path string) error {
	t.Helper()
	_, err := w.files.MakeDir(t.Context(), connect.NewRequest(&filesystem.MakeDirRequest{Path: path}))
	return err
}

func (w *world) move(t testing.TB, from, to string) error {
	t.Helper()
	_, err := w.files.Move(t.Context(), connect.NewRequest(&filesystem.MoveRequest{Source: from, Destination: to}))
	return err
}

func (w *world) remove(t testing.TB, path string) error {
	t.Helper()
	_, err := w.files.Remove(t.Context(), connect.NewRequest(&filesystem.RemoveRequest{Path: path}))
	return err
}

func (w *world) list(t testing.TB, path string, depth uint32) ([]string, error) {
	t.Helper()
	res, err := w.files.ListDir(t.Context(), connect.NewRequest(&filesystem.ListDirRequest{Path: path, Depth: depth}))
	if err != nil {
		return nil, err
	}
	paths := []string{}
	for _, e := range res.Msg.GetEntries() {
		require.Equal(t, filepath.Base(e.GetPath()), e.GetName())
		paths = append(paths, e.GetPath())
	}
	return paths, nil
}

// make creates files and, with a name that ends in a slash, directories below
// the home.
func (w *world) make(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		at := filepath.Join(w.home, name)
		if strings.HasSuffix(name, "/") {
			require.NoError(t, os.MkdirAll(at, 0o755))
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, []byte(name), 0o644))
	}
}

func TestStatKinds(t *testing.T) {
	w := newWorld(t)
	w.make(t, "file", "dir/")
	require.NoError(t, syscall.Mkfifo(filepath.Join(w.home, "fifo"), 0o640))
	require.NoError(t, os.Chmod(filepath.Join(w.home, "file"), 0o755|fs.ModeSetuid))
	require.NoError(t, os.Chmod(filepath.Join(w.home, "dir"), 0o777|fs.ModeSticky))
	require.NoError(t, os.Symlink("dir", filepath.Join(w.home, "link")))
	require.NoError(t, os.Symlink("link", filepath.Join(w.home, "link2")))
	require.NoError(t, os.Symlink("loop", filepath.Join(w.home, "loop")))
	for _, test := range []struct {
		path        string
		typ         filesystem.FileType
		mode        uint32
		permissions string
		target      string
	}{
		{"file", filesystem.FileType_FILE_TYPE_FILE, 0o755, "urwxr-xr-x", ""},
		{"dir", filesystem.FileType_FILE_TYPE_DIRECTORY, 0o777, "dtrwxrwxrwx", ""},
		{"fifo", filesystem.FileType_FILE_TYPE_UNSPECIFIED, 0o640, "prw-r-----", ""},
		{"link", filesystem.FileType_FILE_TYPE_DIRECTORY, 0o777, "Lrwxrwxrwx", w.home + "/dir"},
		{"link2", filesystem.FileType_FILE_TYPE_DIRECTORY, 0o777, "Lrwxrwxrwx", w.home + "/dir"},
		{"loop", filesystem.FileType_FILE_TYPE_UNSPECIFIED, 0, "Lrwxrwxrwx", w.home + "/loop"},
	} {
		e, err := w.stat(t, test.path)
		require.NoError(t, err)
		require.Equal(t, filepath.Base(test.path), e.GetName())
		require.Equal(t, test.typ, e.GetType(), test.path)
		require.Equal(t, test.mode, e.GetMode(), test.path)
		if test.target == "" || e.GetPermissions() != "Lrwxr-xr-x" { // as links are on macOS
			require.Equal(t, test.permissions, e.GetPermissions())
		}
		require.Equal(t, test.target, e.GetSymlinkTarget())
		require.Equal(t, test.target != "", e.SymlinkTarget != nil)
		require.NotEmpty(t, e.GetOwner())
		require.NotEmpty(t, e.GetGroup())
	}
	// Paths are not cleaned, and a slash follows the link.
	e, err := w.stat(t, w.home+"/dir/../link/")
	require.NoError(t, err)
	require.Equal(t, w.home+"/dir/../link/", e.GetPath())
	require.Equal(t, "link", e.GetName())
	require.Nil(t, e.SymlinkTarget)

	_, err = w.stat(t, strings.Repeat("x", 300))
	requireCode(t, connect.CodeInternal, "error getting file info: lstat "+w.home+"/"+strings.Repeat("x", 300)+": file name too long", err)
	_, err = w.stat(t, "a\x00")
	requireCode(t, connect.CodeInternal, "error getting file info: lstat "+w.home+"/a\x00: invalid argument", err)
	_, err = w.stat(t, "~root")
	requireCode(t, connect.CodeInvalidArgument, "failed to expand path '' for user 'user': cannot expand user-specific home dir", err)
}

func TestOwnerNames(t *testing.T) {
	s := New(Config{DefaultUser: "b", Users: []User{{Name: "a", UID: 7, GID: 8}, {Name: "b", UID: 7, GID: 9}}})
	defer s.Close()
	require.Equal(t, "b", s.ownerName(7))
	require.Equal(t, "b", s.groupName(9))
	require.Equal(t, "a", s.groupName(8))
	require.Equal(t, "root", s.ownerName(0))
	require.Equal(t, "4000000000", s.ownerName(4_000_000_000))
	require.Equal(t, "4000000000", s.groupName(4_000_000_000))
}

func TestMakeDir(t *testing.T) {
	w := newWorld(t)
	w.make(t, "file", "dir/")
	require.NoError(t, os.Symlink("dir", filepath.Join(w.home, "link")))
	require.NoError(t, os.Symlink("none", filepath.Join(w.home, "dangling")))
	require.NoError(t, w.mkdir(t, "a/b/c"))
	require.NoError(t, w.mkdir(t, w.home+"/a/b/d/"))
	fi, err := os.Stat(filepath.Join(w.home, "a/b"))
	require.NoError(t, err)
	require.Equal(t, fs.ModeDir|0o755, fi.Mode())
	for _, path := range []string{"dir", "link", "a/b", "", "."} {
		err := w.mkdir(t, path)
		requireCode(t, connect.CodeAlreadyExists, "directory already exists: "+filepath.Join(w.home, path), err)
	}
	requireCode(t, connect.CodeInternal, "error getting file info: stat "+w.home+"/file/x: not a directory", w.mkdir(t, "file/x"))
	requireCode(t, connect.CodeInternal, "failed to create directory: mkdir "+w.home+"/dangling: file exists", w.mkdir(t, "dangling"))

	// Requests for the same directories do not disturb each other.
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			err := w.mkdir(t, "same/for/all")
			if err != nil && connect.CodeOf(err) != connect.CodeAlreadyExists {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestMove(t *testing.T) {
	w := newWorld(t)
	w.make(t, "f", "g", "dir/x", "void/")
	requireCode(t, connect.CodeNotFound,
		"source file not found: rename "+w.home+"/none "+w.home+"/new/none: no such file or directory", w.move(t, "none", "new/none"))
	require.DirExists(t, filepath.Join(w.home, "new"), "parents are created anyway")
	require.NoError(t, w.move(t, "f", "g"))
	on, err := os.ReadFile(filepath.Join(w.home, "g"))
	require.NoError(t, err)
	require.Equal(t, "f", string(on))
	require.NoError(t, w.move(t, "dir", "deep/er/dir"))
	require.FileExists(t, filepath.Join(w.home, "deep/er/dir/x"))
	rename := func(from, to string) string {
		return "error renaming: rename " + w.home + "/" + from + " " + w.home + "/" + to
	}
	requireCode(t, connect.CodeInternal, rename("deep", "void")+": file exists", w.move(t, "deep", "void"))
	requireCode(t, connect.CodeInternal, rename("deep", "deep/er/x")+": invalid argument", w.move(t, "deep", "deep/er/x"))
	requireCode(t, connect.CodeInternal, rename("deep", "g")+": not a directory", w.move(t, "deep", "g"))
	requireCode(t, connect.CodeInternal, "path is a file: "+w.home+"/g", w.move(t, "deep", "g/x"))
}

func TestListDir(t *testing.T) {
	w := newWorld(t)
	w.make(t, "d/b/y/z/deep", "d/a", "d/c/", "d/b/x")
	require.NoError(t, os.Symlink("b", filepath.Join(w.home, "d/link")))
	require.NoError(t, os.Symlink("d", filepath.Join(w.home, "to-d")))
	require.NoError(t, os.Symlink("loop", filepath.Join(w.home, "loop")))
	level1 := []string{"a", "b", "c", "link"}
	for _, test := range []struct {
		path  string
		depth uint32
		want  []string
	}{
		{"d", 0, level1},
		{"d", 1, level1},
		{"d", 2, []string{"a", "b", "b/x", "b/y", "c", "link"}},
		{"d", 99, []string{"a", "b", "b/x", "b/y", "b/y/z", "b/y/z/deep", "c", "link"}},
		{"to-d", 1, level1},
		{"d/link", 1, []string{"x", "y"}},
		{"d/c", 1, []string{}},
	} {
		got, err := w.list(t, test.path, test.depth)
		require.NoError(t, err)
		want := []string{}
		for _, name := range test.want {
			want = append(want, filepath.Join(w.home, test.path, name))
		}
		require.Equal(t, want, got, "%s %d", test.path, test.depth)
	}
	_, err := w.list(t, "loop", 1)
	requireCode(t, connect.CodeFailedPrecondition, `cyclic symlink or chain >255 links at "`+w.home+`/loop"`, err)
	_, err = w.list(t, "d/a/x", 1)
	requireCode(t, connect.CodeInternal, "error resolving path: lstat "+w.home+"/d/a/x: not a directory", err)
	home, err := w.list(t, "", 1)
	require.NoError(t, err)
	require.Equal(t, []string{w.home + "/d", w.home + "/loop", w.home + "/to-d"}, home)
}

func TestRemove(t *testing.T) {
	w := newWorld(t)
	w.make(t, "f", "tree/a/b", "tree/c", "kept/x")
	require.NoError(t, os.Symlink("kept", filepath.Join(w.home, "link")))
	for _, path := range []string{"f", "tree", "link", "none", "tree"} {
		require.NoError(t, w.remove(t, path))
		require.NoFileExists(t, filepath.Join(w.home, path))
	}
	require.FileExists(t, filepath.Join(w.home, "kept/x"))
	requireCode(t, connect.CodeInvalidArgument, "an empty path would remove the home directory", w.remove(t, ""))
	requireCode(t, connect.CodeInvalidArgument, "the root directory cannot be removed: "+w.root+"/home/..", w.remove(t, w.root+"/home/.."))
	requireCode(t, connect.CodeInternal,
		"error removing file or directory: unlinkat "+w.home+"/kept/x/y: not a directory", w.remove(t, "kept/x/y"))
	require.NoError(t, w.remove(t, "~"))
	require.NoDirExists(t, w.home)

	requireCode(t, connect.CodeInvalidArgument, "the root directory cannot be removed: /", newWorld(t, host).remove(t, "/"))
}

// With and without a private directory the same is said about the same files.
func TestTreesAgree(t *testing.T) {
	w := newWorld(t)
	w.make(t, "f", "d/x", "void/")
	require.NoError(t, os.Symlink("d", filepath.Join(w.home, "rel")))
	require.NoError(t, os.Symlink(filepath.Join(w.home, "d"), filepath.Join(w.home, "abs")))
	require.NoError(t, os.Symlink("none", filepath.Join(w.home, "dangling")))
	require.NoError(t, os.Symlink("loop", filepath.Join(w.home, "loop")))
	require.NoError(t, os.Symlink("f/", filepath.Join(w.home, "slashed")))
	public, private := tree(hostTree{}), w.srv.tree
	describe := func(fi fs.FileInfo, err error) []any {
		if err != nil {
			return []any{err.Error()}
		}
		return []any{fi.Mode(), fi.Size()} // the name is that of the place, which differs
	}
	for _, name := range []string{
		"f", "f/", "f/x", "d", "d/", "d/x", "d/x/", "d/none", "none", "none/", "rel", "rel/", "rel/x", "abs", "abs/", "abs/x",
		"rel/../f", "abs/../f", "d/../d/./x", "dangling", "dangling/", "loop/x", "slashed", "a\x00b", strings.Repeat("n", 300),
	} {
		at := w.home + "/" + name
		require.Equal(t, describe(public.lstat(at)), describe(private.lstat(at)), "lstat %q", name)
		require.Equal(t, describe(public.stat(at)), describe(private.stat(at)), "stat %q", name)
		publicReal, publicErr := public.realPath(at)
		privateReal, privateErr := private.realPath(at)
		require.Equal(t, publicErr == nil, privateErr == nil, "realPath %q: %v, %v", name, publicErr, privateErr)
		require.Equal(t, publicReal, privateReal)
	}
	_, publicErr := public.realPath(w.home + "/loop")
	_, privateErr := private.realPath(w.home + "/loop")
	require.ErrorIs(t, publicErr, errLoop)
	require.ErrorIs(t, privateErr, errLoop)
	for _, pair := range [][2]string{{"none", "x"}, {"f", "void"}, {"d", "f"}, {"d", "d/y"}, {"f", "none/x"}} {
		from, to := w.home+"/"+pair[0], w.home+"/"+pair[1]
		require.EqualError(t, private.rename(from, to), public.rename(from, to).Error())
	}
	for _, name := range []string{"f/x", "f"} {
		require.EqualError(t, private.mkdir(w.home+"/"+name, 0o755), public.mkdir(w.home+"/"+name, 0o755).Error())
	}
}

func TestMissingRoot(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Root += "/none" })
	_, err := w.stat(t, w.root+"/none/x")
	require.Error(t, err)
	_, err = w.list(t, w.root+"/none", 1)
	require.Error(t, err)
}

// temptations makes links that lead out of the world and returns the file that
// nobody may see or change.
func (w *world) temptations(t testing.TB) (secret string) {
	t.Helper()
	outside, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	secret = filepath.Join(outside, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o644))
	rel, err := filepath.Rel(w.home, outside)
	require.NoError(t, err)
	w.make(t, "file", "dir/file")
	for name, target := range map[string]string{
		"abs-dir": outside, "abs-file": secret, "rel-dir": rel, "rel-file": rel + "/secret", "root": "/", "up": "..", "upup": "../..",
		"over": "upup/..", "chain": "rel-dir", "dir/back": "../rel-dir", "new": outside + "/new", "inside": w.home + "/dir",
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(w.home, name)))
	}
	return secret
}

// unharmed checks that nothing happened outside.
func unharmed(t testing.TB, secret string) {
	t.Helper()
	content, err := os.ReadFile(secret)
	require.NoError(t, err)
	require.Equal(t, "secret", string(content))
	entries, err := os.ReadDir(filepath.Dir(secret))
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

func TestNothingLeavesTheDirectory(t *testing.T) {
	w := newWorld(t)
	secret := w.temptations(t)
	rel, err := filepath.Rel(w.home, secret)
	require.NoError(t, err)
	sibling := w.root + "-sibling"
	require.NoError(t, os.Mkdir(sibling, 0o755))
	t.Cleanup(func() { os.RemoveAll(sibling) })
	for _, path := range []string{
		secret, rel, "abs-file", "rel-file", "abs-dir/secret", "rel-dir/secret", "chain/secret", "dir/back/secret", "root" + secret,
		"over/x", w.root + "/../x", w.root + "/home/../../x", sibling, sibling + "/x", "new",
	} {
		res, body := w.get(t, path)
		require.Equal(t, 400, res.StatusCode, "%s: %s", path, body)
		require.Contains(t, body, errOutside.Error())
		res, body = w.do(t, "POST", "/files?path="+queryEscape(path), strings.NewReader("x"), "Content-Type", "application/octet-stream")
		require.Equal(t, 400, res.StatusCode, "%s: %s", path, body)
		require.Contains(t, body, errOutside.Error())
		for _, err := range []error{w.mkdir(t, path+"/x"), w.move(t, "file", path+"/x"), w.move(t, path+"/x", "y")} {
			require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err), "%s: %v", path, err)
			require.ErrorContains(t, err, errOutside.Error())
		}
		_, err := w.list(t, path, 1)
		require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err), "%s: %v", path, err)
		_, err = w.files.CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: path}))
		require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err), "%s: %v", path, err)
		err = w.remove(t, path+"/x")
		require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err), "%s: %v", path, err)
		status, _ := w.do(t, "POST", "/files/compose", strings.NewReader(`{"source_paths":["`+path+`"],"destination":"z"}`))
		require.Equal(t, 400, status.StatusCode)
	}
	// A link itself is inside, wherever it leads.
	for _, name := range []string{"abs-file", "rel-dir"} {
		e, err := w.stat(t, name)
		require.NoError(t, err)
		require.Equal(t, filesystem.FileType_FILE_TYPE_UNSPECIFIED, e.GetType())
		require.Equal(t, w.home+"/"+name, e.GetSymlinkTarget())
		require.NoError(t, w.remove(t, name))
	}
	_, err = w.stat(t, "inside/file")
	require.NoError(t, err)
	require.NoError(t, w.move(t, "abs-dir", "moved"))
	unharmed(t, secret)
}

// While a link changes its target all the time, no request is fooled.
func TestContainmentIsAtomic(t *testing.T) {
	w := newWorld(t)
	secret := w.temptations(t)
	w.make(t, "safe/secret")
	turn, other := filepath.Join(w.home, "turn"), filepath.Join(w.home, "other")
	stop := make(chan struct{})
	var switcher sync.WaitGroup
	switcher.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			target := filepath.Join(w.home, "safe")
			if i%2 == 1 {
				target = filepath.Dir(secret)
			}
			if os.Symlink(target, other) != nil || os.Rename(other, turn) != nil {
				return
			}
		}
	})
	for range 100 {
		_, body := w.get(t, "turn/secret")
		require.NotEqual(t, "secret", body)
		w.do(t, "POST", "/files?path=turn/secret", strings.NewReader("harm"), "Content-Type", "application/octet-stream")
		w.do(t, "POST", "/files?path=turn/new", strings.NewReader("harm"), "Content-Type", "application/octet-stream")
		_ = w.mkdir(t, "turn/made")
		_ = w.remove(t, "turn/secret")
		_ = w.move(t, "turn/secret", "stolen")
	}
	close(stop)
	switcher.Wait()
	unharmed(t, secret)
	if stolen, err := os.ReadFile(filepath.Join(w.home, "stolen")); err == nil {
		require.NotEqual(t, "secret", string(stolen))
	}
}

// Whatever a path says, it is a place in the directory or an error.
func FuzzResolve(f *testing.F) {
	w := newWorld(f)
	secret := w.temptations(f)
	for _, path := range []string{
		"", "~", "~/x", "~root", ".", "..", "/", "//", "abs-dir/secret", "rel-file", "chain/../../x", "upup/../..", "dir/back/secret/",
		"inside/file", "inside/../file", "root/etc/passwd", "new", "new/", "new/x", "over", w.root + "/..", w.root + "x", secret, "a\x00b", "dir/./file/..",
		"\xff", strings.Repeat("../", 30) + "etc/passwd", strings.Repeat("up/", 300),
	} {
		f.Add(path)
	}
	u := w.srv.user("user")
	f.Fuzz(func(t *testing.T, path string) {
		name, err := w.srv.resolve(path, u)
		if err != nil {
			return
		}
		_, inside := relative(w.root, name)
		require.True(t, inside)
		tree := w.srv.tree
		if real, err := tree.realPath(name); err == nil {
			require.True(t, real == w.root || strings.HasPrefix(real, w.root+"/"), real)
			evaluated, err := filepath.EvalSymlinks(real)
			require.NoError(t, err)
			require.Equal(t, evaluated, real)
		}
		outside, err := os.Stat(secret)
		require.NoError(t, err)
		if fi, err := tree.stat(name); err == nil {
			require.False(t, os.SameFile(outside, fi))
		}
		if file, err := tree.open(name, os.O_RDWR|openNoWait, 0); err == nil {
			fi, err := file.(*os.File).Stat()
			require.NoError(t, err)
			require.False(t, os.SameFile(outside, fi))
			require.NoError(t, file.Close())
		}
		unharmed(t, secret)
	})
}
