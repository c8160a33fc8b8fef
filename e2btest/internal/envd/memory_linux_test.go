package envd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
)

// A twin does the same with a directory of the system and with a Memory.
type twin struct {
	t     *testing.T
	dir   string
	trees [2]tree
	heard [2]notifier
	keep  string   // a directory that is not to be renamed or removed
	done  []string // what was done, for messages
}

func newTwin(t *testing.T) *twin {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	memory := NewMemory()
	require.NoError(t, memory.mkdirAll(dir, 0, 0))
	w := &twin{t: t, dir: dir, trees: [2]tree{newRootTree(dir), memory}}
	t.Cleanup(w.trees[0].close)
	return w
}

// watch begins to watch directories.
func (w *twin) watch(names ...string) {
	for i, tree := range w.trees {
		n, err := tree.notifier()
		require.NoError(w.t, err)
		w.t.Cleanup(func() { require.NoError(w.t, n.Close()) })
		for _, name := range names {
			require.NoError(w.t, n.Add(filepath.Join(w.dir, name)))
		}
		w.heard[i] = n
	}
}

// do does op with each tree and compares what comes of it.
func (w *twin) do(what string, op func(tree) string) {
	w.t.Helper()
	w.done = append(w.done, what)
	want := op(w.trees[0])
	require.Equal(w.t, want, op(w.trees[1]), strings.Join(w.done, "\n"))
}

func outcomeOf(v any, err error) string {
	if err == nil {
		return fmt.Sprint(v)
	}
	kinds := []bool{errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrExist)}
	return fmt.Sprint(err, kinds)
}

func describe(fi fs.FileInfo, err error) string {
	if err != nil {
		return outcomeOf(nil, err)
	}
	size := fi.Size()
	if fi.IsDir() {
		size = 0 // of a directory it is the file system's affair
	}
	return fmt.Sprint(fi.Name(), fi.Mode(), size)
}

// step does something at random with one of few names.
func (w *twin) step(r *rand.Rand) {
	name := func() string {
		parts := []string{w.dir}
		for range 1 + r.IntN(3) {
			parts = append(parts, string(rune('a'+r.IntN(3))))
		}
		if at := strings.Join(parts, "/"); at != w.keep {
			return at
		}
		return w.keep + "/a"
	}
	a, b := name(), name()
	switch n := r.IntN(12); n {
	case 0, 1:
		flag := []int{0, os.O_TRUNC, os.O_EXCL}[r.IntN(3)]
		text := strings.Repeat("x", r.IntN(5))
		w.do(fmt.Sprintf("write %q to %s with %#x", text, a, flag), func(t tree) string {
			f, err := t.open(a, os.O_WRONLY|os.O_CREATE|flag, 0o666)
			if err != nil {
				return outcomeOf(nil, err)
			}
			_, err = f.Write([]byte(text))
			return outcomeOf(nil, errors.Join(err, f.Close()))
		})
	case 2, 3:
		w.do("mkdir "+a, func(t tree) string { return outcomeOf(nil, t.mkdir(a, 0o777)) })
	case 4:
		w.do("remove "+a, func(t tree) string { return outcomeOf(nil, t.remove(a)) })
	case 5:
		w.do("remove all "+a, func(t tree) string { return outcomeOf(nil, t.removeAll(a)) })
	case 6, 7:
		w.do("rename "+a+" "+b, func(t tree) string { return outcomeOf(nil, t.rename(a, b)) })
	case 8:
		w.do("stat "+a, func(t tree) string { return describe(t.stat(a)) + describe(t.lstat(a)) })
	case 9:
		w.do("read directory "+a, func(t tree) string {
			list, err := t.readDir(a)
			return outcomeOf(list, err)
		})
	case 10:
		w.do("read "+a, func(t tree) string {
			f, err := t.open(a, os.O_RDONLY, 0)
			if err != nil {
				return outcomeOf(nil, err)
			}
			text, err := io.ReadAll(f)
			return outcomeOf(string(text), errors.Join(err, f.Close()))
		})
	default:
		w.do("real path of "+a, func(t tree) string {
			if err := t.lchown(a, os.Getuid(), os.Getgid()); err != nil {
				return outcomeOf(nil, err)
			}
			return outcomeOf(t.realPath(a))
		})
	}
}

// events returns what was told up to the creation of the file mark.
func (w *twin) events(n notifier) []fsnotify.Event {
	var list []fsnotify.Event
	for e := range n.events() {
		if filepath.Base(e.Name) == "mark" {
			return list
		}
		e = fsnotify.Event{Name: e.Name, Op: e.Op}
		// The system joins what nobody has read yet.
		if len(list) == 0 || list[len(list)-1] != e {
			list = append(list, e)
		}
	}
	return list
}

func TestMemoryIsLikeTheSystem(t *testing.T) {
	for seed := range uint64(60) {
		w := newTwin(t)
		r := rand.New(rand.NewPCG(seed, 0))
		for range 120 {
			w.step(r)
		}
	}
}

// Watching, too, is as with inotify.
func TestMemoryNotifiesLikeTheSystem(t *testing.T) {
	for seed := range uint64(60) {
		w := newTwin(t)
		w.do("mkdir a", func(t tree) string { return outcomeOf(nil, t.mkdir(w.dir+"/a", 0o777)) })
		w.keep = w.dir + "/a"
		w.watch("", "a")
		r := rand.New(rand.NewPCG(seed, 1))
		for range 40 {
			w.step(r)
		}
		w.do("mark", func(t tree) string {
			f, err := t.open(w.dir+"/mark", os.O_WRONLY|os.O_CREATE, 0o666)
			require.NoError(w.t, err)
			return outcomeOf(nil, f.Close())
		})
		require.Equal(t, w.events(w.heard[0]), w.events(w.heard[1]), strings.Join(w.done, "\n"))
	}
}

// What happens to a file that is open has the name that it has by then.
func TestMemoryNotifiesOfOpenFiles(t *testing.T) {
	w := newTwin(t)
	w.do("mkdir a", func(t tree) string { return outcomeOf(nil, t.mkdir(w.dir+"/a", 0o777)) })
	w.watch("", "a")
	var open []file
	w.do("open", func(t tree) string {
		f, err := t.open(w.dir+"/before", os.O_WRONLY|os.O_CREATE, 0o666)
		open = append(open, f)
		return outcomeOf(nil, err)
	})
	write := func(what string) {
		w.done = append(w.done, what)
		for _, f := range open {
			_, err := f.Write([]byte("x"))
			require.NoError(t, err)
		}
	}
	write("write")
	w.do("rename", func(t tree) string { return outcomeOf(nil, t.rename(w.dir+"/before", w.dir+"/a/after")) })
	write("write after that")
	w.do("mark", func(t tree) string {
		f, err := t.open(w.dir+"/mark", os.O_WRONLY|os.O_CREATE, 0o666)
		require.NoError(w.t, err)
		return outcomeOf(nil, f.Close())
	})
	for _, f := range open {
		require.NoError(t, f.Close())
	}
	got := w.events(w.heard[1])
	require.Equal(t, w.events(w.heard[0]), got)
	require.Contains(t, got, fsnotify.Event{Name: w.dir + "/a/after", Op: fsnotify.Write})
}
