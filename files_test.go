package e2b_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

// storage keeps one file per path, as envd's /files does.
func storage(t testing.TB) (http.HandlerFunc, map[string][]byte) {
	t.Helper()
	stored := map[string][]byte{}
	return func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Query().Get("path")
		if r.Method == http.MethodGet {
			b, ok := stored[path]
			if !ok {
				writeJSON(w, 404, map[string]any{"code": 404, "message": fmt.Sprintf("path '%s' does not exist", path)})
				return
			}
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Header().Set("Content-Length", fmt.Sprint(len(b)))
			_, _ = w.Write(b)
			return
		}
		switch contentType := r.Header.Get("Content-Type"); {
		case contentType == "application/octet-stream":
			stored[path] = drain(r)
		case strings.HasPrefix(contentType, "multipart/form-data"):
			form, err := r.MultipartReader()
			if err != nil {
				t.Error(err)
				return
			}
			part, err := form.NextPart()
			if err != nil || part.FormName() != "file" {
				t.Errorf("part %q: %v", part.FormName(), err)
				return
			}
			stored[path], _ = io.ReadAll(part)
			if _, err := form.NextPart(); !errors.Is(err, io.EOF) {
				t.Errorf("a second part: %v", err)
			}
		default:
			writeJSON(w, 400, map[string]any{"code": 400, "message": "unsupported content type: " + contentType})
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = fmt.Fprintf(w, `[{"name":"x","path":%q,"type":"file"}]`, path)
	}, stored
}

var everyByte = func() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return bytes.Repeat(b, 1000)
}()

// USERS.md H1, H2: bytes come back as they went, whatever the content type says.
func TestH1FilesKeepBytes(t *testing.T) {
	for name, data := range map[string][]byte{
		"every byte": everyByte, "empty": {}, "png": {0x89, 'P', 'N', 'G'}, "bad UTF-8": []byte("\xff\xfe\r\n"), "large": bytes.Repeat(everyByte, 12),
	} {
		for _, version := range []string{"0.5.6", "0.5.7"} {
			t.Run(name+"/"+version, func(t *testing.T) {
				f := newFakeSandbox()
				f.version = version
				var stored map[string][]byte
				f.files, stored = storage(t)
				sbx := f.inMemory(t)
				before := bytes.Clone(data)
				require.NoError(t, sbx.Files.Write(t.Context(), "/x", data, nil))
				require.True(t, bytes.Equal(before, data))
				require.True(t, bytes.Equal(data, stored["/x"]))
				got, err := sbx.Files.Read(t.Context(), "/x", nil)
				require.NoError(t, err)
				require.NotNil(t, got)
				require.True(t, bytes.Equal(data, got))
			})
		}
	}
}

// USERS.md H4: a body as it is where envd takes it, a form where it does not.
func TestH4UploadForm(t *testing.T) {
	for version, want := range map[string]string{
		"0.5.6": "multipart/form-data; boundary=", "0.4.0": "multipart/form-data; boundary=", "0.5.7": "application/octet-stream",
		"0.6.13": "application/octet-stream", "1.0.0": "application/octet-stream", "": "application/octet-stream",
	} {
		f := newFakeSandbox()
		f.version = version
		var stored map[string][]byte
		f.files, stored = storage(t)
		sbx, err := f.pipe(t).FromRecord(e2b.Record{SandboxID: fakeID, EnvdVersion: version})
		require.NoError(t, err)
		for _, data := range []string{"data", ""} {
			require.NoError(t, sbx.Files.Write(t.Context(), "/d/x", []byte(data), nil), version)
			require.Equal(t, data, string(stored["/d/x"]))
		}
		for _, r := range f.requests("/files") {
			require.True(t, strings.HasPrefix(r.header.Get("Content-Type"), want), "%s: %s", version, r.header.Get("Content-Type"))
			require.NotEmpty(t, r.header.Get("Content-Length"), "the length is known")
		}
	}
}

// What goes with a transfer, and what does not.
func TestFilesOnTheWire(t *testing.T) {
	f := newFakeSandbox()
	f.files, _ = storage(t)
	sbx := f.inMemory(t)
	require.NoError(t, sbx.Files.Write(t.Context(), "/x", []byte("a"), nil))
	require.NoError(t, sbx.Files.Write(t.Context(), "/x", []byte("a"), &e2b.WriteOptions{User: "root"}))
	_, err := sbx.Files.Read(t.Context(), "/x", nil)
	require.NoError(t, err)
	_, err = sbx.Files.Read(t.Context(), "/x", &e2b.ReadOptions{User: "root"})
	require.NoError(t, err)
	for i, r := range f.requests("/files") {
		require.Equal(t, []string{"POST", "POST", "GET", "GET"}[i], r.method)
		require.Equal(t, []string{"path=%2Fx", "path=%2Fx&username=root"}[i%2], r.query, "an empty username would be looked up")
		require.Equal(t, "49983", r.port)
		require.Equal(t, fakeID, r.header.Get("E2b-Sandbox-Id"))
		require.Equal(t, fakeToken, r.header.Get("X-Access-Token"))
		require.Equal(t, "e2b-go/"+e2b.Version, r.header.Get("User-Agent"))
		for _, absent := range []string{"Authorization", "X-Api-Key", "Range", "Expect"} {
			require.Empty(t, r.header.Values(absent), absent)
		}
		require.NotContains(t, r.header.Get("Accept-Encoding"), "gzip")
	}
	require.Empty(t, f.requests(infoPath))
}

// Nobody asks for gzip, which envd makes at a fortieth of the speed: neither we,
// nor net/http by itself, nor connect-go.
func TestNoCompressionIsAskedFor(t *testing.T) {
	for name, call := range dataCalls {
		t.Run(name, func(t *testing.T) {
			f := newFakeSandbox()
			f.envd = func(w http.ResponseWriter, r *http.Request) {
				drain(r)
				w.WriteHeader(http.StatusTeapot)
			}
			f.code = f.envd
			require.Error(t, call(t.Context(), f.onLoopback(t)))
			if !strings.Contains(cleaningCalls, name) {
				require.Len(t, f.requests(""), 1)
			}
			for _, r := range f.requests("") {
				for _, k := range []string{"Accept-Encoding", "Connect-Accept-Encoding", "Content-Encoding", "Connect-Content-Encoding"} {
					require.NotContains(t, r.header.Get(k), "gzip", k)
				}
			}

			// A transport that is not ours to tune would add the header where it is missing.
			rt := roundTrip(func(r *http.Request) (*http.Response, error) {
				if strings.HasPrefix(r.URL.Path, "/process.") || r.Method == http.MethodGet {
					require.Equal(t, "identity", r.Header.Get("Accept-Encoding"))
				}
				return nil, errors.New("not sent")
			})
			require.Error(t, call(t.Context(), f.handle(t, f.client(t, "http://fake.test", refusing{rt}))))
		})
	}
}

// refusing passes on what goes to a sandbox and refuses the rest.
type refusing struct{ rt http.RoundTripper }

func (r refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Header.Get("E2b-Sandbox-Port") == "" {
		return answer(500, http.Header{}, nil, nil), nil
	}
	return r.rt.RoundTrip(req)
}

// Names are escaped so that the server reads what the caller wrote.
func TestOddFileNames(t *testing.T) {
	f := newFakeSandbox()
	var stored map[string][]byte
	f.files, stored = storage(t)
	old := newFakeSandbox()
	old.version = "0.5.0"
	old.files, _ = storage(t)
	current, form := f.inMemory(t), old.inMemory(t)
	for i, name := range []string{
		"/with space", "/quote\"s", "/it's", "/über", "/a%2Fb", "/a+b", "/new\nline", "/back\\slash", "/a&b=c", "/q?x#y", "/semi;colon",
		"relative/x", "~/x", "/./x/../y", "/tab\there", "/\xff\xfe", "/日本", "/path=/x",
	} {
		data := fmt.Appendf(nil, "file %d", i)
		require.NoError(t, current.Files.Write(t.Context(), name, data, nil))
		require.Equal(t, data, stored[name], "%q", name)
		got, err := current.Files.Read(t.Context(), name, nil)
		require.NoError(t, err)
		require.Equal(t, data, got)
		require.NoError(t, form.Files.Write(t.Context(), name, data, nil))
		got, err = form.Files.Read(t.Context(), name, nil)
		require.NoError(t, err)
		require.Equal(t, data, got, "%q as a form", name)
	}
	require.Empty(t, stored[""])
}

func TestFilesRefuse(t *testing.T) {
	f := newFakeSandbox()
	sbx := f.inMemory(t)
	for _, path := range []string{"", "a\x00b"} {
		_, err := sbx.Files.Read(t.Context(), path, nil)
		requireDataKinds(t, err, e2b.ErrInvalidArgument)
		requireDataKinds(t, sbx.Files.Write(t.Context(), path, nil, nil), e2b.ErrInvalidArgument)
	}
	for _, user := range []string{"a:b", "a\nb"} {
		_, err := sbx.Files.Read(t.Context(), "/x", &e2b.ReadOptions{User: user})
		requireDataKinds(t, err, e2b.ErrInvalidArgument)
		requireDataKinds(t, sbx.Files.Write(t.Context(), "/x", nil, &e2b.WriteOptions{User: user}), e2b.ErrInvalidArgument)
	}
	require.Empty(t, f.requests(""))
}

// An error says which file it is about, as those of package os do.
func TestFileErrorIsPathError(t *testing.T) {
	f := newFakeSandbox()
	f.files, _ = storage(t)
	_, err := f.inMemory(t).Files.Read(t.Context(), "/no/such", nil)
	requireDataKinds(t, err, fs.ErrNotExist)
	var pe *fs.PathError
	require.ErrorAs(t, err, &pe)
	require.Equal(t, "read", pe.Op)
	require.Equal(t, "/no/such", pe.Path)
}

// Answers of unknown length are read to their end, and the connection is used
// again.
func TestReadUnknownLength(t *testing.T) {
	f := newFakeSandbox()
	f.files = func(w http.ResponseWriter, _ *http.Request) {
		for c := range bytes.SplitSeq(everyByte, []byte{'\n'}) {
			_, _ = w.Write(append(c, '\n'))
			flush(w)
		}
	}
	sbx := f.inMemory(t)
	for range 3 {
		got, err := sbx.Files.Read(t.Context(), "/x", nil)
		require.NoError(t, err)
		require.True(t, bytes.Equal(append(bytes.Clone(everyByte), '\n'), got))
	}
	require.Equal(t, int64(1), f.dials.Load())

	empty := newFakeSandbox()
	empty.files = func(w http.ResponseWriter, _ *http.Request) { flush(w) }
	got, err := empty.inMemory(t).Files.Read(t.Context(), "/x", nil)
	require.NoError(t, err)
	require.NotNil(t, got)
	require.Empty(t, got)
}

// A body that ends early is no file, however long it was said to be.
func TestReadShortBody(t *testing.T) {
	for name, answer := range map[string]string{
		"of a known length":         "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabcde",
		"of a length that is a lie": "HTTP/1.1 200 OK\r\nContent-Length: 1099511627776\r\n\r\nabcde",
		"nothing of it":             "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n",
		"in chunks":                 "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n",
		"within a chunk":            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabcde",
	} {
		for state, want := range map[e2b.State]error{e2b.StateRunning: e2b.ErrStreamInterrupted, e2b.StatePaused: e2b.ErrSandboxNotRunning} {
			t.Run(name+"/"+string(state), func(t *testing.T) {
				f := newFakeSandbox()
				f.files = func(w http.ResponseWriter, _ *http.Request) {
					f.setState(state)
					c, _, err := http.NewResponseController(w).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = io.WriteString(c, answer)
					_ = c.Close()
				}
				sbx := f.inMemory(t)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				got, err := sbx.Files.Read(t.Context(), "/x", nil)
				runtime.ReadMemStats(&after)
				requireDataKinds(t, err, want)
				require.Nil(t, got)
				require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2<<20))
				require.Equal(t, 1, f.infos())
			})
		}
	}
}

// ctx bounds the reading too.
func TestReadStalls(t *testing.T) {
	stall := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "10")
		write(w, []byte("abcde"))
		flush(w)
		<-r.Context().Done()
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.files = stall
		sbx := f.inMemory(t)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		begin := time.Now()
		_, err := sbx.Files.Read(ctx, "/x", nil)
		requireDataKinds(t, err, context.Canceled)
		require.Equal(t, time.Second, time.Since(begin))

		ctx, cancel = context.WithTimeout(t.Context(), time.Hour) // longer than the request timeout, which then does not count
		defer cancel()
		begin = time.Now()
		_, err = sbx.Files.Read(ctx, "/x", nil)
		requireDataKinds(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Hour, time.Since(begin))

		begin = time.Now()
		_, err = sbx.Files.Read(t.Context(), "/x", nil)
		requireDataKinds(t, err, e2b.ErrRequestTimeout)
		require.Equal(t, e2b.DefaultRequestTimeout, time.Since(begin))
		require.Zero(t, f.infos())
	})
}

// A transfer may take as long as it likes while it moves.
func TestSlowTransfers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		var got []byte
		f.files = func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				b := make([]byte, 64<<10)
				for {
					n, err := io.ReadFull(r.Body, b)
					got = append(got, b[:n]...)
					if err != nil {
						return
					}
					if !elapse(r.Context(), time.Minute) {
						return
					}
				}
			}
			w.Header().Set("Content-Length", "10")
			for range 10 {
				if !elapse(r.Context(), time.Minute) {
					return
				}
				write(w, []byte("x"))
				flush(w)
			}
		}
		sbx := f.inMemory(t)
		begin := time.Now()
		b, err := sbx.Files.Read(t.Context(), "/x", nil)
		require.NoError(t, err)
		require.Equal(t, "xxxxxxxxxx", string(b))
		require.Equal(t, 10*time.Minute, time.Since(begin))

		data := bytes.Repeat([]byte("0123456789abcdef"), 64<<10) // 1 MiB: beyond every buffer on the way
		begin = time.Now()
		require.NoError(t, sbx.Files.Write(t.Context(), "/x", data, nil))
		require.True(t, bytes.Equal(data, got))
		require.Greater(t, time.Since(begin), 10*time.Minute)
	})
}

// A server that takes nothing of an upload holds it for the request timeout.
func TestWriteStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		release := make(chan struct{})
		defer func() {
			close(release) // a server that does not read does not see its client leave
			elapse(t.Context(), time.Second)
		}()
		f.files = func(http.ResponseWriter, *http.Request) { <-release }
		sbx := f.inMemory(t)
		data := make([]byte, 1<<20)
		begin := time.Now()
		requireDataKinds(t, sbx.Files.Write(t.Context(), "/x", data, nil), e2b.ErrRequestTimeout)
		require.LessOrEqual(t, time.Since(begin), e2b.DefaultRequestTimeout+time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin = time.Now()
		requireDataKinds(t, sbx.Files.Write(ctx, "/x", data, nil), context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(begin), 2*time.Second)
	})
}

// An answer that comes before all is sent counts.
func TestWriteEarlyAnswer(t *testing.T) {
	f := newFakeSandbox()
	f.files = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyN(io.Discard, r.Body, 100<<10)
		writeJSON(w, 507, map[string]any{"code": 507, "message": "attempted to write 4194304 bytes: not enough disk space available"})
	}
	sbx := f.onLoopback(t)
	err := sbx.Files.Write(t.Context(), "/x", make([]byte, 4<<20), nil)
	requireDataKinds(t, err, e2b.ErrNoSpace)
}

// The recorded answers of /files that are no success.
func TestRecordedFileAnswers(t *testing.T) {
	want := map[string]error{
		"files_get_directory_400":             e2b.ErrInvalidArgument,
		"files_get_header_token_wrong_401":    e2b.ErrUnauthenticated,
		"files_get_missing_404":               fs.ErrNotExist,
		"files_get_not_dir_500":               fs.ErrNotExist,
		"files_get_signature_expired_401":     e2b.ErrUnauthenticated,
		"files_get_signature_invalid_401":     e2b.ErrUnauthenticated,
		"files_get_signature_missing_401":     e2b.ErrUnauthenticated,
		"files_get_unknown_user_401":          e2b.ErrUnauthenticated,
		"files_post_content_type_400":         e2b.ErrInvalidArgument,
		"files_post_directory_400":            e2b.ErrInvalidArgument,
		"files_post_encoding_unsupported_400": e2b.ErrInvalidArgument,
		"files_post_gzip_bad_400":             e2b.ErrInvalidArgument,
		"files_post_multipart_same_path_400":  e2b.ErrInvalidArgument,
		"files_post_octet_no_path_400":        e2b.ErrInvalidArgument,
		"files_post_parent_is_file_500":       fs.ErrNotExist,
		"files_post_unknown_user_401":         e2b.ErrUnauthenticated,
		"files_get_ok":                        nil,
		"files_get_header_token_ok":           nil,
		"files_post_octet_ok":                 nil,
		"files_post_multipart_path_wins_ok":   nil,
		"files_post_multipart_two_ok":         nil,
		"files_post_octet_metadata_ok":        nil,
		"files_post_gzip_ok":                  nil,
		"files_get_signed_ok":                 nil,
		"files_get_signed_user_exp_ok":        nil,
	}
	// We ask for no range and for no newer file.
	ignored := map[string]bool{"files_get_range_206": true, "files_get_not_modified_304": true}
	for _, name := range append(recordings(t, "envd/files_get_*"), recordings(t, "envd/files_post_*")...) {
		short := strings.TrimPrefix(name, "envd/")
		kind, known := want[short]
		if ignored[short] {
			continue
		}
		t.Run(short, func(t *testing.T) {
			require.True(t, known, "a recording that this test does not know")
			rec := readRecording(t, name)
			r := &replay{answers: map[string]func() *http.Response{
				"/files": func() *http.Response { return answer(rec.status, rec.header, rec.body, nil) },
			}}
			var err error
			if strings.HasPrefix(short, "files_get") {
				var b []byte
				b, err = r.handle(t, "proto").Files.Read(t.Context(), "/x", nil)
				if err == nil {
					require.Equal(t, "hello world 0123456789\n", string(b))
				}
			} else {
				err = r.handle(t, "proto").Files.Write(t.Context(), "/x", []byte("x"), nil)
			}
			if kind == nil {
				require.NoError(t, err)
				return
			}
			requireDataKinds(t, err, kind)
			api, ok := errors.AsType[*e2b.APIError](err)
			require.True(t, ok)
			require.Equal(t, rec.status, api.StatusCode)
			require.NotEmpty(t, api.Message)
			require.NotContains(t, api.Message, "{")
		})
	}
}

// BenchmarkFiles is a file of 1 MiB, written and read.
func BenchmarkFiles(b *testing.B) {
	f := newFakeSandbox()
	f.files, _ = storage(b)
	sbx := f.onLoopback(b)
	data := make([]byte, 1<<20)
	b.SetBytes(2 * int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if err := sbx.Files.Write(b.Context(), "/x", data, nil); err != nil {
			b.Fatal(err)
		}
		if _, err := sbx.Files.Read(b.Context(), "/x", nil); err != nil {
			b.Fatal(err)
		}
	}
}

// A refusal comes while the source is being read: the caller may read on from it, or go back
// and try again, so no Read is under way any more. One that blocks is not waited for long.
func TestWriteFromGivesTheSourceBack(t *testing.T) {
	for takes, wait := range map[time.Duration]time.Duration{100 * time.Millisecond: 100 * time.Millisecond, time.Hour: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			reading := make(chan struct{})
			f := newFakeSandbox()
			f.files = func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadFull(r.Body, make([]byte, 1))
				<-reading
				w.Header().Set("Connection", "close") // or the rest would be read first
				writeJSON(w, http.StatusServiceUnavailable, map[string]any{"code": 503, "message": "x"})
			}
			var at atomic.Int64
			var busy atomic.Bool
			err := f.inMemory(t).Files.WriteFrom(t.Context(), "x", readerFunc(func(p []byte) (int, error) {
				busy.Store(true)
				defer busy.Store(false)
				if at.Add(1) == 2 {
					close(reading)
					elapse(context.Background(), takes)
				}
				return min(len(p), 10), nil
			}), nil)
			requireDataKinds(t, err, e2b.ErrServiceBusy)
			require.Equal(t, takes > wait, busy.Load())
			require.True(t, elapse(context.Background(), takes))
		})
	}
}
