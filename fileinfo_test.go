package e2b_test

import (
	"errors"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

// TestRecordedFilesystemAnswers decodes what the real envd answered.
func TestRecordedFilesystemAnswers(t *testing.T) {
	t.Parallel()
	ask := func(t *testing.T, name, method string) *e2b.Files {
		t.Helper()
		rec := readRecording(t, "envd/"+name)
		r := &replay{answers: map[string]func() *http.Response{
			"/filesystem.Filesystem/" + method: func() *http.Response { return answer(rec.status, rec.header, rec.body, nil) },
		}}
		codec := "json"
		if strings.HasSuffix(name, "_proto") {
			codec = "proto"
		}
		return r.handle(t, codec).Files
	}
	stat := func(name string) (*e2b.FileInfo, error) {
		return ask(t, name, "Stat").Stat(t.Context(), "/x", nil)
	}

	for _, name := range []string{"fs_stat_file_json", "fs_stat_file_proto"} {
		info, err := stat(name)
		require.NoError(t, err)
		require.Equal(t, "/tmp/envd-fx/dir/a.txt", info.Path)
		require.Equal(t, "a.txt", info.Name)
		require.Equal(t, int64(5), info.Size)
		require.Equal(t, fs.FileMode(0o644), info.Mode)
		require.Equal(t, "user", info.Owner)
		require.Equal(t, "user", info.Group)
		require.Equal(t, 2026, info.ModTime.Year())
		require.False(t, info.IsDir())
		require.False(t, info.IsSymlink())
	}
	info, err := stat("fs_stat_dir_proto")
	require.NoError(t, err)
	require.True(t, info.IsDir())
	require.Equal(t, fs.ModeDir|0o777, info.Mode)
	info, err = stat("fs_stat_symlink_proto")
	require.NoError(t, err)
	require.True(t, info.IsSymlink())
	require.Equal(t, "/tmp/envd-fx/dir/a.txt", info.SymlinkTarget)
	require.Zero(t, info.Mode&fs.ModeIrregular)
	info, err = stat("fs_stat_broken_symlink_json")
	require.NoError(t, err)
	require.Equal(t, fs.ModeSymlink|fs.ModeIrregular, info.Mode)
	require.Equal(t, info.Path, info.SymlinkTarget)

	list, err := ask(t, "fs_list_dir_depth2_json", "ListDir").List(t.Context(), "/x", &e2b.ListDirOptions{Depth: 2})
	require.NoError(t, err)
	var names []string
	for _, e := range list {
		names = append(names, strings.TrimPrefix(e.Path, "/tmp/envd-fx/dir/"))
	}
	require.Equal(t, []string{"a.txt", "broken", "empty", "link", "sub", "sub/deep"}, names)
	list, err = ask(t, "fs_list_dir_empty_proto", "ListDir").List(t.Context(), "/x", nil)
	require.NoError(t, err)
	require.Empty(t, list)

	made, err := ask(t, "fs_make_dir_proto", "MakeDir").MakeDir(t.Context(), "/x", nil)
	require.NoError(t, err)
	require.True(t, made)
	require.NoError(t, ask(t, "fs_move_proto", "Move").Rename(t.Context(), "/x", "/y", nil))
	require.NoError(t, ask(t, "fs_remove_proto", "Remove").Remove(t.Context(), "/x", nil))
	require.NoError(t, ask(t, "fs_remove_missing_json", "Remove").Remove(t.Context(), "/x", nil))

	for _, row := range []struct {
		name, method string
		want         []error
	}{
		{"fs_stat_missing_proto", "Stat", []error{fs.ErrNotExist}},
		{"fs_stat_not_dir_json", "Stat", []error{fs.ErrNotExist}},
		{"fs_stat_unknown_user_proto", "Stat", []error{e2b.ErrUnauthenticated}},
		{"fs_list_dir_missing_proto", "ListDir", []error{fs.ErrNotExist}},
		{"fs_list_dir_on_file_json", "ListDir", []error{e2b.ErrInvalidArgument}},
		{"fs_list_dir_invalid_utf8_name_proto", "ListDir", []error{e2b.ErrNotSupported}},
		{"fs_make_dir_on_file_json", "MakeDir", []error{e2b.ErrInvalidArgument}},
		{"fs_move_missing_proto", "Move", []error{fs.ErrNotExist}},
		{"fs_move_onto_dir_json", "Move", []error{fs.ErrExist}},
	} {
		f := ask(t, row.name, row.method)
		var err error
		switch row.method {
		case "Stat":
			_, err = f.Stat(t.Context(), "/x", nil)
		case "ListDir":
			_, err = f.List(t.Context(), "/x", nil)
		case "MakeDir":
			_, err = f.MakeDir(t.Context(), "/x", nil)
		case "Move":
			err = f.Rename(t.Context(), "/x", "/y", nil)
		}
		requireDataKinds(t, err, row.want...)
		pathErr, ok := errors.AsType[*fs.PathError](err)
		require.True(t, ok, row.name)
		require.Equal(t, "/x", pathErr.Path)
	}
}

func TestFileOperations(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	f, ctx := sbx.Files, t.Context()
	for _, name := range []string{"plain", "with space", `quo"te's`, "ü", "100%2F", "a+b", "new\nline", "-dash"} {
		dir := "/data/ops/" + name
		made, err := f.MakeDir(ctx, dir, nil)
		require.NoError(t, err)
		require.True(t, made)
		made, err = f.MakeDir(ctx, dir, nil)
		require.NoError(t, err)
		require.False(t, made)
		require.NoError(t, f.Write(ctx, dir+"/"+name, []byte("content"), nil))
		exists, err := f.Exists(ctx, dir+"/"+name, nil)
		require.NoError(t, err)
		require.True(t, exists)
		require.NoError(t, f.Rename(ctx, dir+"/"+name, dir+"/sub/moved", nil))
		exists, err = f.Exists(ctx, dir+"/"+name, nil)
		require.NoError(t, err)
		require.False(t, exists)
		info, err := f.Stat(ctx, dir+"/sub/moved", nil)
		require.NoError(t, err)
		require.Equal(t, int64(7), info.Size)
		require.Equal(t, "user", info.Owner)
		require.WithinDuration(t, time.Now(), info.ModTime, time.Minute)
		list, err := f.List(ctx, dir, &e2b.ListDirOptions{Depth: 2})
		require.NoError(t, err)
		require.Len(t, list, 2)
		require.True(t, list[0].IsDir())
		require.Equal(t, dir+"/sub/moved", list[1].Path)
	}
	list, err := f.List(ctx, "/data/ops", nil)
	require.NoError(t, err)
	require.Len(t, list, 8)
	require.True(t, slices.IsSortedFunc(list, func(a, b e2b.FileInfo) int { return strings.Compare(a.Path, b.Path) }))
	require.NoError(t, f.Remove(ctx, "/data/ops", nil))
	require.NoError(t, f.Remove(ctx, "/data/ops", nil), "nothing is there")
	_, err = f.List(ctx, "/data/ops", nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = f.Stat(ctx, "/data/ops", nil)
	require.ErrorIs(t, err, fs.ErrNotExist)

	_, err = f.MakeDir(ctx, "mine", &e2b.FileOptions{User: "root"})
	require.NoError(t, err)
	require.Equal(t, "yes\n", run(t, sbx, "[ -d /root/mine ] && echo yes"), "a relative path begins at the user's home")
}

func TestFileOperationsRefuse(t *testing.T) {
	t.Parallel()
	f := newFakeSandbox()
	files, ctx := f.inMemory(t).Files, t.Context()
	for name, err := range map[string]error{
		"remove nothing": files.Remove(ctx, "", nil), // would be the home
		"remove NUL":     files.Remove(ctx, "a\x00", nil),
		"rename nothing": files.Rename(ctx, "", "b", nil),
		"rename to none": files.Rename(ctx, "a", "", nil),
		"user":           files.Remove(ctx, "a", &e2b.FileOptions{User: "a:b"}),
		"not UTF-8":      files.Remove(ctx, "a\xff", nil),
		"to not UTF-8":   files.Rename(ctx, "a", "b\xff", nil),
	} {
		require.ErrorIs(t, err, e2b.ErrInvalidArgument, name)
	}
	_, err := files.List(ctx, "a", &e2b.ListDirOptions{Depth: -1})
	require.ErrorIs(t, err, e2b.ErrInvalidArgument)
	_, err = files.Stat(ctx, "", nil)
	require.ErrorIs(t, err, e2b.ErrInvalidArgument)
	require.Empty(t, f.requests("/"))
}

// What answers in a sandbox is not trusted, and may be anything.
func TestStatOfNothing(t *testing.T) {
	f := newFakeSandbox()
	f.envd = func(w http.ResponseWriter, r *http.Request) {
		drain(r)
		w.Header().Set("Content-Type", "application/proto")
	}
	sbx := f.inMemory(t)
	_, err := sbx.Files.Stat(t.Context(), "x", nil)
	requireDataKinds(t, err, e2b.ErrStreamInterrupted)
	_, err = sbx.Files.Exists(t.Context(), "x", nil)
	requireDataKinds(t, err, e2b.ErrStreamInterrupted)
}
