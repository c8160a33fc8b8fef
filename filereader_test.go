package e2b_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

var longAgo = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// cutting serves a file as envd does, but ends the first answers after so many
// bytes each.
func cutting(contents []byte, modified time.Time, after ...int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if len(after) > 0 {
			n := after[0]
			after = after[1:]
			w = &cutWriter{w, n}
		}
		http.ServeContent(w, r, "x.bin", modified, bytes.NewReader(contents))
	}
}

type cutWriter struct {
	http.ResponseWriter
	left int
}

func (w *cutWriter) Write(p []byte) (int, error) {
	if len(p) < w.left {
		w.left -= len(p)
		return w.ResponseWriter.Write(p)
	}
	_, _ = w.ResponseWriter.Write(p[:w.left])
	abort(w.ResponseWriter)
	return 0, nil
}

func (w *cutWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A download goes on where its connection broke, at every place.
func TestOpenResumes(t *testing.T) {
	contents := everyByte[:512]
	for n := range len(contents) {
		f := newFakeSandbox()
		f.files = cutting(contents, longAgo, n)
		r, err := f.inMemory(t).Files.Open(t.Context(), "/x.bin", nil)
		require.NoError(t, err)
		require.Equal(t, int64(len(contents)), r.Size())
		got, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, contents, got, "cut after %d bytes", n)
		require.NoError(t, r.Close())
		asked := f.requests("/files")
		require.Len(t, asked, 2)
		require.Equal(t, fmt.Sprintf("bytes=%d-", n), asked[1].header.Get("Range"))
		require.Equal(t, "Sun, 01 Nov 2026 12:00:00 GMT", asked[1].header.Get("If-Range"))
		require.Equal(t, 1, f.infos(), "the control plane is asked first: a request would wake the sandbox")
	}
}

func TestOpenResumesMoreThanOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.files = cutting(everyByte, time.Now().Add(-time.Hour), 100, 0, 0, 5000, 0, 1, 1, 1, 70000)
		got, err := f.inMemory(t).Files.Read(t.Context(), "/x", nil)
		require.NoError(t, err)
		require.True(t, bytes.Equal(everyByte, got))
		require.Len(t, f.requests("/files"), 10)
	})
}

func TestOpenDoesNotResume(t *testing.T) {
	now := time.Now().UTC()
	for name, tt := range map[string]struct {
		set      func(*fakeSandbox)
		want     error
		says     string
		requests int
	}{
		"a file that was just written": {func(f *fakeSandbox) { f.files = cutting(everyByte, now, 100) }, e2b.ErrStreamInterrupted, "", 1},
		"no time of change":            {func(f *fakeSandbox) { f.files = cutting(everyByte, time.Time{}, 100) }, e2b.ErrStreamInterrupted, "", 1},
		"a file that changed": {func(f *fakeSandbox) {
			first, second := cutting(everyByte, longAgo, 100), cutting(everyByte, longAgo.Add(time.Second))
			f.files = func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Range") == "" {
					first(w, r)
				} else {
					second(w, r)
				}
			}
		}, e2b.ErrStreamInterrupted, "the file changed meanwhile", 2},
		"a file that is gone": {func(f *fakeSandbox) {
			first := cutting(everyByte, longAgo, 100)
			f.files = func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Range") == "" {
					first(w, r)
					return
				}
				writeJSON(w, 404, map[string]any{"code": 404, "message": "path '/x' does not exist"})
			}
		}, e2b.ErrStreamInterrupted, "", 2},
		"another part than was asked for": {func(f *fakeSandbox) {
			first := cutting(everyByte, longAgo, 100)
			f.files = func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Range") != "" {
					r.Header.Set("Range", "bytes=101-")
				}
				first(w, r)
			}
		}, e2b.ErrStreamInterrupted, "the file changed meanwhile", 2},
		"a part with another time": {func(f *fakeSandbox) {
			first := cutting(everyByte, longAgo, 100)
			f.files = func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Range") == "" {
					first(w, r)
					return
				}
				w.Header().Set("Last-Modified", "Sun, 01 Nov 2026 12:00:05 GMT")
				w.Header().Set("Content-Range", fmt.Sprintf("bytes 100-%d/%d", len(everyByte)-1, len(everyByte)))
				w.WriteHeader(http.StatusPartialContent)
				write(w, everyByte[100:])
			}
		}, e2b.ErrStreamInterrupted, "the file changed meanwhile", 2},
		"no progress": {func(f *fakeSandbox) { f.files = cutting(everyByte, longAgo, 100, 0, 0, 0, 0, 0) }, e2b.ErrStreamInterrupted, "", 4},
		"a paused sandbox": {func(f *fakeSandbox) {
			first := cutting(everyByte, longAgo, 100)
			f.files = func(w http.ResponseWriter, r *http.Request) {
				f.setState(e2b.StatePaused)
				first(w, r)
			}
		}, e2b.ErrSandboxNotRunning, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeSandbox()
			tt.set(f)
			r, err := f.inMemory(t).Files.Open(t.Context(), "/x", nil)
			require.NoError(t, err)
			got, err := io.ReadAll(r)
			requireDataKinds(t, err, tt.want)
			require.ErrorContains(t, err, tt.says)
			var pe *fs.PathError
			require.ErrorAs(t, err, &pe)
			require.Equal(t, everyByte[:100], got, "what came is kept")
			require.Len(t, f.requests("/files"), tt.requests)
			_, again := r.Read(make([]byte, 1))
			require.Equal(t, err, again)
			require.NoError(t, r.Close())
		})
	}
}

// The reader is an ordinary one.
func TestFileReaderIsAReader(t *testing.T) {
	f := newFakeSandbox()
	f.files = cutting(everyByte[:300], longAgo, 7, 200)
	r, err := f.inMemory(t).Files.Open(t.Context(), "/x", nil)
	require.NoError(t, err)
	defer r.Close()
	require.NoError(t, iotest.TestReader(r, everyByte[:300]))
	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
	_, err = r.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err, "it was read to its end before")
	require.Equal(t, int64(3), f.dials.Load(), "one for each cut, and none beside")
}

// endless serves a file that begins and then stands still.
func endless(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Length", "1000")
	write(w, []byte("begin"))
	flush(w)
	<-r.Context().Done()
}

func TestFileReaderEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(context.CancelFunc, *e2b.Sandbox, *e2b.FileReader)
		want error
	}{
		"close": {func(_ context.CancelFunc, _ *e2b.Sandbox, r *e2b.FileReader) { _ = r.Close() }, e2b.ErrClosed},
		"ctx":   {func(cancel context.CancelFunc, _ *e2b.Sandbox, _ *e2b.FileReader) { cancel() }, context.Canceled},
		"pause": {func(_ context.CancelFunc, s *e2b.Sandbox, _ *e2b.FileReader) {
			_, _ = s.Pause(context.Background(), nil)
		}, e2b.ErrSandboxNotRunning},
		"kill":    {func(_ context.CancelFunc, s *e2b.Sandbox, _ *e2b.FileReader) { _, _ = s.Kill(context.Background()) }, e2b.ErrSandboxNotRunning},
		"silence": {func(context.CancelFunc, *e2b.Sandbox, *e2b.FileReader) {}, e2b.ErrRequestTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeSandbox()
				f.files = endless
				sbx := f.inMemory(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r, err := sbx.Files.Open(ctx, "/x", nil)
				require.NoError(t, err)
				begin := time.Now()
				ended := make(chan struct{})
				time.AfterFunc(time.Second, func() {
					tt.end(cancel, sbx, r)
					close(ended)
				})
				got, err := io.ReadAll(r)
				requireDataKinds(t, err, tt.want)
				require.Equal(t, "begin", string(got))
				if name == "silence" {
					require.Equal(t, e2b.DefaultRequestTimeout, time.Since(begin))
				} else {
					require.Equal(t, time.Second, time.Since(begin))
				}
				require.NoError(t, r.Close())
				<-ended
			})
		})
	}
}

// The time that a reader takes for itself is not the server's.
func TestFileReaderWaitsForItsUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.files = cutting(everyByte, time.Now().Add(-time.Hour))
		r, err := f.inMemory(t).Files.Open(t.Context(), "/x", nil)
		require.NoError(t, err)
		b := make([]byte, len(everyByte)/4)
		for i := range 4 {
			require.True(t, elapse(t.Context(), time.Hour))
			_, err := io.ReadFull(r, b)
			require.NoError(t, err)
			require.True(t, bytes.Equal(everyByte[i*len(b):][:len(b)], b))
		}
		require.NoError(t, r.Close())
		require.Len(t, f.requests("/files"), 1)
	})
}

// gzipped is envd's answer to who accepts gzip.
func gzipped(contents []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(contents)
	_ = w.Close()
	return b.Bytes()
}

func TestReadGzip(t *testing.T) {
	text := []byte(strings.Repeat("the same line again\n", 1000))
	body := gzipped(text)
	serve := func(body []byte, encoding string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Accept-Encoding") != "gzip" && encoding == "gzip" {
				t.Errorf("asked for %q", r.Header.Get("Accept-Encoding"))
			}
			w.Header().Set("Content-Encoding", encoding)
			for b := range bytes.SplitAfterSeq(body, []byte{0}) {
				write(w, b)
				flush(w)
			}
		}
	}
	f := newFakeSandbox()
	f.files = serve(body, "gzip")
	sbx := f.inMemory(t)
	for range 3 {
		got, err := sbx.Files.Read(t.Context(), "/x", &e2b.ReadOptions{Gzip: true})
		require.NoError(t, err)
		require.True(t, bytes.Equal(text, got))
	}
	require.Equal(t, int64(1), f.dials.Load())

	f.files = serve(text, "") // a server need not
	got, err := sbx.Files.Read(t.Context(), "/x", &e2b.ReadOptions{Gzip: true})
	require.NoError(t, err)
	require.True(t, bytes.Equal(text, got))

	for n := range len(body) { // the missing end is all that tells a cut
		f.files = serve(body[:n], "gzip")
		_, err = sbx.Files.Read(t.Context(), "/x", &e2b.ReadOptions{Gzip: true})
		requireDataKinds(t, err, e2b.ErrStreamInterrupted)
	}
	f.files = serve(bytes.Replace(body, body[20:24], []byte{1, 2, 3, 4}, 1), "gzip")
	_, err = sbx.Files.Read(t.Context(), "/x", &e2b.ReadOptions{Gzip: true})
	requireDataKinds(t, err, e2b.ErrStreamInterrupted)

	f.files = serve(body, "br")
	_, err = sbx.Files.Read(t.Context(), "/x", nil)
	require.ErrorContains(t, err, "encoding")

	old := newFakeSandbox()
	old.version = "0.5.2"
	_, err = old.inMemory(t).Files.Read(t.Context(), "/x", &e2b.ReadOptions{Gzip: true})
	requireDataKinds(t, err, e2b.ErrNotSupported)
	require.ErrorContains(t, err, "0.5.3")
	require.ErrorContains(t, err, "0.5.2")
	require.Empty(t, old.requests(""))
}

// An answer with a part of the file, when all was asked for, is no file.
func TestReadPartialAnswer(t *testing.T) {
	for _, status := range []int{202, 204, 206} {
		f := newFakeSandbox()
		f.files = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
		_, err := f.inMemory(t).Files.Read(t.Context(), "/x", nil)
		require.ErrorContains(t, err, "not the whole file")
	}
}
