package e2b_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

const volumeID = "00000000-0000-4000-8000-000000000001"

// volumeServer answers for the contents of a volume as h does, and keeps what was
// asked.
func volumeServer(t *testing.T, h http.HandlerFunc) (*e2b.VolumeFiles, func() []string) {
	t.Helper()
	var mu sync.Mutex
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		line := r.Method + " " + r.URL.Path + "?" + r.URL.RawQuery
		if r.Header.Get("Authorization") != "Bearer s3cr3t-token" || r.Header.Get("X-Api-Key") != "" {
			t.Errorf("sent %v", r.Header)
		}
		if r.Method == http.MethodPatch {
			line += " " + string(drain(r))
		}
		mu.Lock()
		asked = append(asked, line)
		mu.Unlock()
		h(w, r)
	}))
	c, err := e2b.NewClient(&e2b.ClientOptions{APIKey: fakeAPIKey, APIURL: srv.URL})
	require.NoError(t, err)
	t.Cleanup(func() {
		c.CloseIdleConnections()
		srv.Close()
	})
	f, err := c.VolumeFiles(&e2b.Volume{ID: volumeID, Token: e2b.NewToken("s3cr3t-token")})
	require.NoError(t, err)
	return f, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(asked)
	}
}

const volumeEntryJSON = `{"name":"f","path":"/d/f","type":"file","size":3,"mode":420,"uid":1,"gid":2,"mtime":"2026-11-01T00:00:00Z",` +
	`"atime":"2026-11-02T00:00:00Z","ctime":"2026-11-03T00:00:00Z","later":1}`

func TestVolumeFiles(t *testing.T) {
	t.Parallel()
	var stored []byte
	f, asked := volumeServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/dir") && r.Method == http.MethodGet:
			write(w, []byte("["+volumeEntryJSON+`,{"name":"l","type":"symlink","target":"f"},{"name":"x","type":"unknown"},{"name":"d","type":"directory","mode":493}]`))
		case strings.HasSuffix(r.URL.Path, "/file") && r.Method == http.MethodPut:
			stored = drain(r)
			write(w, []byte(volumeEntryJSON))
		case strings.HasSuffix(r.URL.Path, "/file"):
			write(w, stored)
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		default:
			write(w, []byte(volumeEntryJSON))
		}
	})
	ctx := t.Context()
	entry := e2b.VolumeEntry{
		Name: "f", Path: "/d/f", Size: 3, Mode: 0o644, UID: 1, GID: 2, ModTime: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC),
		AccessTime: time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC), ChangeTime: time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC),
	}
	list, err := f.List(ctx, "/d", 0)
	require.NoError(t, err)
	require.Equal(t, []e2b.VolumeEntry{entry, {Name: "l", Mode: fs.ModeSymlink, Target: "f"}, {Name: "x", Mode: fs.ModeIrregular}, {Name: "d", Mode: fs.ModeDir | 0o755}}, list)
	got, err := f.Stat(ctx, "/d/f")
	require.NoError(t, err)
	require.Equal(t, &entry, got)
	opts := &e2b.VolumeWriteOptions{UID: new(uint32(7)), Mode: new(fs.FileMode(0o600)), Parents: true}
	for _, data := range [][]byte{everyByte, {}} {
		_, err = f.Write(ctx, "/ü &+%2F", data, opts)
		require.NoError(t, err)
		back, err := f.Read(ctx, "/ü &+%2F")
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, back))
	}
	_, err = f.WriteFrom(ctx, "/d/f", io.MultiReader(strings.NewReader("abc")), nil)
	require.NoError(t, err)
	require.Equal(t, "abc", string(stored))
	_, err = f.MakeDir(ctx, "/d", opts)
	require.NoError(t, err)
	_, err = f.Change(ctx, "/d/f", opts)
	require.NoError(t, err)
	require.NoError(t, f.Remove(ctx, "/d"))
	base := "/volumecontent/" + volumeID
	odd := url.Values{"path": {"/ü &+%2F"}}.Encode()
	require.Equal(t, []string{
		"GET " + base + "/dir?depth=1&path=%2Fd",
		"GET " + base + "/path?path=%2Fd%2Ff",
		"PUT " + base + "/file?force=true&mode=384&" + odd + "&uid=7", "GET " + base + "/file?" + odd,
		"PUT " + base + "/file?force=true&mode=384&" + odd + "&uid=7", "GET " + base + "/file?" + odd,
		"PUT " + base + "/file?force=false&path=%2Fd%2Ff",
		"POST " + base + "/dir?force=true&mode=384&path=%2Fd&uid=7",
		"PATCH " + base + `/path?path=%2Fd%2Ff {"uid":7,"mode":384}`,
		"DELETE " + base + "/path?path=%2Fd",
	}, asked())
}

func TestVolumeFilesErrors(t *testing.T) {
	t.Parallel()
	calls := map[string]func(context.Context, *e2b.VolumeFiles) error{
		"list": func(ctx context.Context, f *e2b.VolumeFiles) error { _, err := f.List(ctx, "/x", 2); return err },
		"stat": func(ctx context.Context, f *e2b.VolumeFiles) error { _, err := f.Stat(ctx, "/x"); return err },
		"read": func(ctx context.Context, f *e2b.VolumeFiles) error { _, err := f.Read(ctx, "/x"); return err },
		"write": func(ctx context.Context, f *e2b.VolumeFiles) error {
			_, err := f.Write(ctx, "/x", []byte("x"), nil)
			return err
		},
		"mkdir":  func(ctx context.Context, f *e2b.VolumeFiles) error { _, err := f.MakeDir(ctx, "/x", nil); return err },
		"change": func(ctx context.Context, f *e2b.VolumeFiles) error { _, err := f.Change(ctx, "/x", nil); return err },
		"remove": func(ctx context.Context, f *e2b.VolumeFiles) error { return f.Remove(ctx, "/x") },
	}
	for status, want := range map[int]error{
		400: e2b.ErrInvalidArgument, 401: e2b.ErrUnauthenticated, 403: e2b.ErrForbidden, 404: fs.ErrNotExist, 503: e2b.ErrServiceBusy, 507: e2b.ErrNoSpace,
	} {
		f, _ := volumeServer(t, func(w http.ResponseWriter, r *http.Request) {
			drain(r)
			writeJSON(w, status, map[string]any{"code": status, "message": "no: s3cr3t-token"})
		})
		for name, call := range calls {
			err := call(t.Context(), f)
			requireKinds(t, err, want)
			require.NotContains(t, err.Error(), "s3cr3t", name)
			pe, ok := errors.AsType[*fs.PathError](err)
			require.True(t, ok, name)
			require.Equal(t, "/x", pe.Path)
		}
	}
	stall, _ := volumeServer(t, func(_ http.ResponseWriter, r *http.Request) {
		drain(r)
		<-r.Context().Done()
	})
	cut, _ := volumeServer(t, func(w http.ResponseWriter, r *http.Request) {
		drain(r)
		w.Header().Set("Content-Length", "100")
		write(w, []byte(`[{"name"`))
		abort(w)
	})
	odd, _ := volumeServer(t, func(w http.ResponseWriter, r *http.Request) { drain(r); write(w, []byte(`null`)) })
	for name, call := range calls {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		requireKinds(t, call(ctx, stall), context.DeadlineExceeded)
		cancel()
		err := call(t.Context(), cut)
		require.Error(t, err, name)
		if name == "read" {
			requireKinds(t, err, e2b.ErrStreamInterrupted)
		}
	}
	_, err := odd.List(t.Context(), "/x", 0)
	require.ErrorContains(t, err, "no list")
	broken := errors.New("the source broke")
	_, err = odd.WriteFrom(t.Context(), "/x", iotest.ErrReader(broken), nil)
	require.ErrorIs(t, err, broken)

	none, asked := volumeServer(t, nil)
	for _, path := range []string{"", "a\x00b"} {
		for name, call := range map[string]error{
			"stat": second(none.Stat(t.Context(), path)), "write": second(none.Write(t.Context(), path, nil, nil)), "open": second(none.Open(t.Context(), path)),
			"remove": none.Remove(t.Context(), path),
		} {
			require.ErrorIs(t, call, e2b.ErrInvalidArgument, name)
		}
	}
	requireKinds(t, second(none.List(t.Context(), "/x", -1)), e2b.ErrInvalidArgument)
	requireKinds(t, second(none.WriteFrom(t.Context(), "/x", nil, nil)), e2b.ErrInvalidArgument)
	require.Empty(t, asked())
	c, err := e2b.NewClient(&e2b.ClientOptions{APIKey: fakeAPIKey})
	require.NoError(t, err)
	for _, v := range []*e2b.Volume{nil, {}, {ID: volumeID}, {ID: volumeID, Token: e2b.NewToken("a\nb")}, {ID: volumeID, Token: e2b.NewToken("x"), Domain: "a/b"}} {
		_, err := c.VolumeFiles(v)
		requireKinds(t, err, e2b.ErrInvalidArgument)
	}
}

func second[T any](_ T, err error) error { return err }

// The answer of a server says where the contents are, over TLS.
func TestVolumeFilesDomain(t *testing.T) {
	t.Parallel()
	var asked string
	c, err := e2b.NewClient(&e2b.ClientOptions{APIKey: fakeAPIKey, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		asked = r.URL.String()
		return nil, fmt.Errorf("not sent")
	})})
	require.NoError(t, err)
	f, err := c.VolumeFiles(&e2b.Volume{ID: volumeID, Token: e2b.NewToken("x"), Domain: "volumes.example"})
	require.NoError(t, err)
	require.Error(t, f.Remove(t.Context(), "/x"))
	require.Equal(t, "https://api.volumes.example/volumecontent/"+volumeID+"/path?path=%2Fx", asked)
}

// What is not there cannot be taken for what was asked for.
func TestVolumeAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	f, _ := volumeServer(t, func(w http.ResponseWriter, r *http.Request) {
		drain(r)
		if strings.HasSuffix(r.URL.Path, "/file") && r.Method == http.MethodGet {
			w.Header().Set("Content-Encoding", "gzip")
			write(w, []byte{0x1f, 0x8b})
			return
		}
		write(w, []byte("null"))
	})
	_, err := f.Read(t.Context(), "/f")
	require.Error(t, err, "compressed contents are not the file's")
	_, err = f.Stat(t.Context(), "/f")
	require.Error(t, err)
	_, err = f.Write(t.Context(), "/f", []byte("x"), nil)
	require.Error(t, err)
}

// The end of a Read by Close is not that of the caller's ctx.
func TestVolumeReaderClosed(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 1)
	f, _ := volumeServer(t, func(w http.ResponseWriter, r *http.Request) {
		write(w, []byte("x"))
		flush(w)
		begun <- struct{}{}
		<-r.Context().Done()
	})
	for _, limited := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		if limited {
			ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
		}
		defer cancel()
		r, err := f.Open(ctx, "/f")
		require.NoError(t, err)
		<-begun
		_, err = io.ReadFull(r, make([]byte, 1))
		require.NoError(t, err)
		read := make(chan error)
		go func() {
			_, err := r.Read(make([]byte, 1))
			read <- err
		}()
		require.NoError(t, r.Close())
		requireKinds(t, <-read, e2b.ErrClosed)
		_, err = r.Read(make([]byte, 1))
		requireKinds(t, err, e2b.ErrClosed)
	}
}
