//go:build linux || darwin

package envd

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/filesystem"
)

func (w *world) get(t testing.TB, path string, headers ...string) (*http.Response, string) {
	t.Helper()
	return w.do(t, http.MethodGet, "/files?path="+queryEscape(path), nil, headers...)
}

var strangeNames = []string{"sp ace", `quo"te`, "back\\slash", "semi;colon", "per%20cent", "grüße", "日本", "new\nline", "plus+and&", "#?=", "-dash", "~tilde"}

func TestStrangeNames(t *testing.T) {
	w := newWorld(t)
	for i, name := range strangeNames {
		path := "./d/" + name
		content := fmt.Sprint("content ", i)
		w.put(t, path, content)
		on, err := os.ReadFile(filepath.Join(w.home, "d", name))
		require.NoError(t, err)
		require.Equal(t, content, string(on))
		res, body := w.get(t, path)
		require.Equal(t, 200, res.StatusCode, body)
		require.Equal(t, content, body)
		disposition, params, err := mime.ParseMediaType(res.Header.Get("Content-Disposition"))
		require.NoError(t, err, res.Header)
		require.Equal(t, "inline", disposition)
		require.Equal(t, name, params["filename"])
		_, err = w.files.Remove(t.Context(), connect.NewRequest(&filesystem.RemoveRequest{Path: path}))
		require.NoError(t, err)
	}
	left, err := os.ReadDir(filepath.Join(w.home, "d"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestStrangeNamesInForms(t *testing.T) {
	w := newWorld(t)
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	for _, name := range strangeNames {
		part, err := parts.CreateFormFile("file", "d/"+name)
		require.NoError(t, err)
		_, err = part.Write([]byte(name))
		require.NoError(t, err)
	}
	ignored, err := parts.CreateFormFile("other", "d/other")
	require.NoError(t, err)
	_, err = ignored.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, parts.Close())
	res, body := w.do(t, "POST", "/files", &form, "Content-Type", parts.FormDataContentType())
	require.Equal(t, 200, res.StatusCode, body)
	for _, name := range strangeNames {
		// What Go's forms make of a line break.
		at := filepath.Join(w.home, "d", strings.ReplaceAll(name, "\n", "%0A"))
		on, err := os.ReadFile(at)
		require.NoError(t, err)
		require.Equal(t, name, string(on))
	}
	require.NoFileExists(t, filepath.Join(w.home, "d", "other"))
}

func TestForms(t *testing.T) {
	w := newWorld(t)
	const head = "--b\r\nContent-Disposition: form-data; name=\"file\""
	for _, test := range []struct {
		query, contentType, body string
		status                   int
		answer                   string
	}{
		{"", "multipart/mixed; boundary=b", head + "; filename=\"m\"\r\n\r\nx\r\n--b--\r\n", 200, `[{"name":"m","path":"` + w.home + `/m","type":"file"}]`},
		{"", "multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"m\"\r\n\r\nx\r\n--b--\r\n", 200, `[]`},
		{"", "multipart/form-data; boundary=b", head + "\r\n\r\nx\r\n--b--\r\n", 400, "error getting multipart custom part file name: filename not found in Content-Disposition header"},
		{"?path=q", "multipart/form-data; boundary=b", head + "\r\n\r\nx\r\n--b--\r\n", 200, `[{"name":"q","path":"` + w.home + `/q","type":"file"}]`},
		{"", "multipart/form-data", head + "; filename=\"m\"\r\n\r\nx\r\n--b--\r\n", 500, "error parsing multipart form: no multipart boundary param in Content-Type"},
		{"", "multipart/form-data; boundary=b", head + "; filename=\"cut\"\r\n\r\nx", 500, "error writing file: unexpected EOF"},
		{"", "multipart/form-data; boundary=b", head + "; filename=\"~root/x\"\r\n\r\nx\r\n--b--\r\n", 400, "failed to expand path '' for user 'user': cannot expand user-specific home dir"},
		{"", "multipart/form-data; boundary=b", head + "; filename=\"first\"\r\n\r\nx\r\n" + head + "; filename=\"../../../etc/x\"\r\n\r\nx\r\n--b--\r\n", 400, errOutside.Error()},
		{"", "", "x", 400, "unsupported content type: , expected multipart/form-data or application/octet-stream"},
		{"?path=p", "application/octet-stream; x=y", "x", 200, `[{"name":"p","path":"` + w.home + `/p","type":"file"}]`},
	} {
		// One of them reaches further up than any directory is deep.
		body := strings.ReplaceAll(test.body, "../../../etc", strings.Repeat("../", 40)+"etc")
		res, answer := w.do(t, "POST", "/files"+test.query, strings.NewReader(body), "Content-Type", test.contentType)
		require.Equal(t, test.status, res.StatusCode, answer)
		if test.status == 200 {
			require.Equal(t, test.answer, answer)
		} else {
			require.Contains(t, answer, strings.ReplaceAll(test.answer, `"`, `\"`))
		}
	}
	require.FileExists(t, filepath.Join(w.home, "first"), "what came before an error stays")
}

func TestParameters(t *testing.T) {
	w := newWorld(t)
	for query, message := range map[string]string{
		"path=a&path=b": "Invalid format for parameter path: multiple values for single value parameter\n",
		"path=a&signature_expiration=abc": "Invalid format for parameter signature_expiration: " +
			"strconv.ParseInt: parsing \"abc\": invalid syntax\n",
	} {
		res, body := w.do(t, "GET", "/files?"+query, nil)
		require.Equal(t, 400, res.StatusCode)
		require.Equal(t, "text/plain; charset=utf-8", res.Header.Get("Content-Type"))
		require.Equal(t, message, body)
	}
	res, body := w.do(t, "GET", "/files?path=a&username=", nil)
	require.Equal(t, 401, res.StatusCode)
	require.Equal(t, `{"code":401,"message":"error looking up user '': user: unknown user "}`+"\n", body)
}

func TestMethods(t *testing.T) {
	w := newWorld(t)
	for _, test := range []struct {
		method, path string
		allow        []string
	}{
		{"HEAD", "/files?path=x", []string{"GET", "POST"}},
		{"PUT", "/files?path=x", []string{"GET", "POST"}},
		{"HEAD", "/health", []string{"GET"}},
		{"OPTIONS", "/health", []string{"GET"}},
		{"GET", "/files/compose", []string{"POST"}},
		{"GET", "/process.Process/List", []string{"POST"}},
	} {
		res, body := w.do(t, test.method, test.path, nil)
		require.Equal(t, 405, res.StatusCode)
		require.Empty(t, body)
		require.ElementsMatch(t, test.allow, res.Header.Values("Allow"), "%s %s", test.method, test.path)
	}
	for _, path := range []string{"/", "/init", "/freeze", "/upgrade", "/files/", "/process.Process/Nosuch", "/process.Process", "//files"} {
		res, body := w.do(t, "POST", path, strings.NewReader("{}"), "Content-Type", "application/json")
		require.Equal(t, 404, res.StatusCode, path)
		require.Equal(t, "404 page not found\n", body)
	}
}

func TestCORS(t *testing.T) {
	w := newWorld(t)
	res, _ := w.do(t, "GET", "/health", nil, "Origin", "https://app.example")
	require.Equal(t, "*", res.Header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, "Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin, Location, Cache-Control, X-Content-Type-Options",
		res.Header.Get("Access-Control-Expose-Headers"))
	res, _ = w.do(t, "GET", "/health", nil)
	require.NotContains(t, res.Header, "Access-Control-Allow-Origin")
}

func TestRanges(t *testing.T) {
	w := newWorld(t)
	w.put(t, "f.txt", "hello world 0123456789\n")
	_, err := os.Stat(filepath.Join(w.home, "f.txt"))
	require.NoError(t, err)
	date := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	require.NoError(t, os.Chtimes(filepath.Join(w.home, "f.txt"), date, date))
	modified := date.Format(http.TimeFormat)
	for _, test := range []struct {
		headers []string
		status  int
		body    string
	}{
		{[]string{"Range", "bytes=-5"}, 206, "6789\n"},
		{[]string{"Range", "bytes=12-"}, 206, "0123456789\n"},
		{[]string{"Range", "bytes=6-10", "If-Range", modified}, 206, "world"},
		{[]string{"Range", "bytes=6-10", "If-Range", "Fri, 02 Jan 2025 03:04:05 GMT"}, 200, "hello world 0123456789\n"},
		{[]string{"Range", "bytes=100-"}, 416, "invalid range: failed to overlap\n"},
		{[]string{"If-None-Match", `"x"`}, 200, "hello world 0123456789\n"},
		{[]string{"If-Match", `"x"`}, 412, ""},
		{[]string{"If-Unmodified-Since", "Fri, 02 Jan 2025 03:04:05 GMT"}, 412, ""},
		{[]string{"If-Modified-Since", modified, "Accept-Encoding", "gzip"}, 304, ""},
		{
			[]string{"Range", "bytes=0-1", "Accept-Encoding", "gzip, identity;q=0"},
			406,
			`{"code":406,"message":"identity encoding not acceptable for Range or conditional request"}` + "\n",
		},
	} {
		res, body := w.get(t, "f.txt", test.headers...)
		require.Equal(t, test.status, res.StatusCode, test.headers)
		require.Equal(t, test.body, body, test.headers)
		require.Empty(t, res.Header.Get("ETag"))
		if test.status == 416 {
			require.Equal(t, "bytes */23", res.Header.Get("Content-Range"))
		}
	}
	res, _ := w.get(t, "f.txt", "Range", "bytes=0-1,4-5")
	require.Equal(t, 206, res.StatusCode)
	require.Contains(t, res.Header.Get("Content-Type"), "multipart/byteranges")
}

func TestAcceptedEncoding(t *testing.T) {
	for header, want := range map[string]struct{ zip, identity bool }{
		"":                          {false, true},
		"gzip":                      {true, true},
		"GZIP":                      {true, true},
		"br":                        {false, true},
		"*":                         {false, true},
		"br, gzip;q=0.1":            {true, true},
		"gzip;q=0":                  {false, true},
		"gzip;q=0.5, identity":      {false, true},
		"gzip, identity;q=0":        {true, false},
		"*, identity;q=0":           {true, false},
		"identity;q=0.5, *;q=0":     {false, true},
		"gzip; q=0.5,deflate":       {true, true},
		"gzip;q=1.0, *;q=0":         {true, false},
		"identity":                  {false, true},
		"deflate, br;q=1, *; q=0.3": {false, true},
	} {
		zip, identity, err := acceptedEncoding(header)
		require.NoError(t, err, header)
		require.Equal(t, want, struct{ zip, identity bool }{zip, identity}, header)
	}
	for _, header := range []string{"identity;q=0", "*;q=0", "br, identity;q=0", "gzip;q=0, *;q=0"} {
		_, _, err := acceptedEncoding(header)
		require.EqualError(t, err, "error parsing Accept-Encoding: no acceptable encoding found, supported: [gzip]", header)
	}
	_, _, err := acceptedEncoding("gzip;q=x")
	require.Error(t, err)
	_, _, err = acceptedEncoding("gzip;q=2")
	require.Error(t, err)
}

func TestGzipDownload(t *testing.T) {
	w := newWorld(t)
	content := strings.Repeat("0123456789", 100_000)
	w.put(t, "big.txt", content)
	w.put(t, "big.unknown-extension", content)
	for name, contentType := range map[string]string{"big.txt": "text/plain; charset=utf-8", "big.unknown-extension": "application/octet-stream"} {
		res, body := w.get(t, name, "Accept-Encoding", "gzip")
		require.Equal(t, 200, res.StatusCode)
		require.Equal(t, "gzip", res.Header.Get("Content-Encoding"))
		require.Equal(t, contentType, res.Header.Get("Content-Type"))
		require.Equal(t, "Accept-Encoding", res.Header.Get("Vary"))
		for _, header := range []string{"Last-Modified", "Accept-Ranges"} {
			require.Empty(t, res.Header.Get(header))
		}
		unzipped, err := gzip.NewReader(strings.NewReader(body))
		require.NoError(t, err)
		all, err := io.ReadAll(unzipped)
		require.NoError(t, err)
		require.Equal(t, content, string(all))
	}
}

func TestGzipUploadCut(t *testing.T) {
	w := newWorld(t)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, err := z.Write([]byte(strings.Repeat("abc", 1000)))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	res, body := w.do(t, "POST", "/files?path=cut", bytes.NewReader(zipped.Bytes()[:zipped.Len()-6]),
		"Content-Type", "application/octet-stream", "Content-Encoding", "gzip")
	require.Equal(t, 500, res.StatusCode)
	require.Equal(t, `{"code":500,"message":"error writing file: unexpected EOF"}`+"\n", body)
}

func TestUploadInPlace(t *testing.T) {
	w := newWorld(t)
	target := filepath.Join(w.home, "target")
	require.NoError(t, os.WriteFile(target, []byte("old and longer"), 0o600))
	before, err := os.Stat(target)
	require.NoError(t, err)
	require.NoError(t, os.Symlink("target", filepath.Join(w.home, "link")))
	require.NoError(t, os.Symlink(filepath.Join(w.home, "new"), filepath.Join(w.home, "dangling")))
	w.put(t, "link", "new")
	after, err := os.Stat(target)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
	require.Equal(t, before.Mode(), after.Mode())
	require.Equal(t, int64(3), after.Size())
	w.put(t, "dangling", "through")
	fi, err := os.Lstat(filepath.Join(w.home, "new"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), fi.Mode())

	w.put(t, "deep/er/file", "x")
	fi, err = os.Stat(filepath.Join(w.home, "deep/er"))
	require.NoError(t, err)
	require.Equal(t, os.ModeDir|0o755, fi.Mode())

	for path, message := range map[string]string{
		"newdir/":        "path is a directory: " + w.home + "/newdir",
		w.root + "/dir/": "path is a directory: " + w.root + "/dir/",
	} {
		res, body := w.do(t, "POST", "/files?path="+queryEscape(path), strings.NewReader("x"), "Content-Type", "application/octet-stream")
		if path == "newdir/" { // relative paths lose their slash
			require.Equal(t, 200, res.StatusCode, body)
			continue
		}
		require.Equal(t, 400, res.StatusCode)
		require.Equal(t, `{"code":400,"message":"`+message+`"}`+"\n", body)
	}
}

// An upload that breaks off leaves what it had.
func TestUploadAborted(t *testing.T) {
	w := newWorld(t)
	w.put(t, "f", "old")
	body, more := io.Pipe()
	go func() {
		_, _ = more.Write([]byte("part"))
		more.CloseWithError(errors.New("no more"))
	}()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/files?path=f", body)
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/octet-stream")
	_, err = w.http.Do(req)
	require.ErrorContains(t, err, "no more")
	eventually(t, "the part", func() bool {
		on, err := os.ReadFile(filepath.Join(w.home, "f"))
		return err == nil && string(on) == "part"
	})
}

func TestNotFiles(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, syscall.Mkfifo(filepath.Join(w.home, "fifo"), 0o600))
	res, body := w.get(t, "fifo")
	require.Equal(t, 400, res.StatusCode)
	require.Contains(t, body, "is not a file")
	res, _ = w.do(t, "POST", "/files?path=fifo", strings.NewReader("x"), "Content-Type", "application/octet-stream")
	require.Equal(t, 500, res.StatusCode)

	long := strings.Repeat("x", 300)
	for path, message := range map[string]string{
		long:    "error checking if path exists '" + w.home + "/" + long + "': stat " + w.home + "/" + long + ": file name too long",
		"a\x00": "error checking if path exists '" + w.home + `/a\u0000': stat ` + w.home + `/a\u0000: invalid argument`,
	} {
		res, body = w.get(t, path)
		require.Equal(t, 500, res.StatusCode)
		require.Equal(t, `{"code":500,"message":"`+message+`"}`+"\n", body)
	}
	res, body = w.do(t, "GET", "/files", nil)
	require.Equal(t, 400, res.StatusCode)
	require.Equal(t, `{"code":400,"message":"path '`+w.home+`' is a directory"}`+"\n", body)
}

func TestMetadata(t *testing.T) {
	for _, test := range []struct {
		name  string
		world func(testing.TB) *world
	}{
		{"plain mode", func(t testing.TB) *world { return newWorld(t) }},
		{"host", func(t testing.TB) *world { return newWorld(t, host) }},
		{"memory", func(t testing.TB) *world {
			w := newWorld(t)
			w.srv.tree = attrless{w.srv.tree}
			return w
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := test.world(t)
			md := func(path string) map[string]string {
				res, err := w.files.Stat(t.Context(), connect.NewRequest(&filesystem.StatRequest{Path: path}))
				require.NoError(t, err)
				return res.Msg.GetEntry().GetMetadata()
			}
			w.put(t, "d/f", "x", "X-Metadata-Author", "Me", "X-Metadata-Empty", "", "X-Metadata-", "ignored")
			require.Equal(t, map[string]string{"author": "Me", "empty": ""}, md("d/f"))
			w.put(t, "d/f", "x", "X-Metadata-Author", "You")
			require.Equal(t, map[string]string{"author": "You"}, md("d/f"))
			long := strings.Repeat("long", 500)
			w.put(t, "d/f", "x", "X-Metadata-Author", "You", "X-Metadata-Long", long)
			require.Equal(t, map[string]string{"author": "You", "long": long}, md("d/f"))
			w.put(t, "d/f", "x", "X-Metadata-Author", "You")
			_, err := w.files.Move(t.Context(), connect.NewRequest(&filesystem.MoveRequest{Source: "d", Destination: "e"}))
			require.NoError(t, err)
			require.Equal(t, map[string]string{"author": "You"}, md("e/f"))
			w.put(t, "e/f", "x")
			require.Empty(t, md("e/f"))
			w.put(t, "e/f", "x", "X-Metadata-A", "1")
			_, err = w.files.Remove(t.Context(), connect.NewRequest(&filesystem.RemoveRequest{Path: "e"}))
			require.NoError(t, err)
			require.NoError(t, os.MkdirAll(filepath.Join(w.home, "e"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(w.home, "e/f"), nil, 0o644))
			require.Empty(t, md("e/f"))
		})
	}
}

// attrless is a file system without extended attributes.
type attrless struct{ tree }

func (attrless) attrs(string) (map[string]string, error) { return nil, syscall.ENOTSUP }
func (attrless) setAttrs(file, map[string]string) error  { return syscall.ENOTSUP }

func TestMetadataErrors(t *testing.T) {
	w := newWorld(t)
	for _, test := range []struct{ key, value, message string }{
		{"k", "abcÃ", `metadata value for key "k" contains non-printable-ASCII byte 0xc3 at offset 3`},
		{"k", "a\tb", `metadata value for key "k" contains non-printable-ASCII byte 0x09 at offset 1`},
		{strings.Repeat("k", 247), "v", `metadata key "` + strings.Repeat("k", 247) + `" exceeds 246 bytes`},
		{"key", strings.Repeat("v", 4085), "total metadata size 4097 exceeds 4096 bytes"},
	} {
		res, body := w.do(t, "POST", "/files?path=f", strings.NewReader("x"),
			"Content-Type", "application/octet-stream", "X-Metadata-"+test.key, test.value)
		require.Equal(t, 400, res.StatusCode, body)
		require.Equal(t, `{"code":400,"message":"invalid metadata: `+strings.ReplaceAll(test.message, `"`, `\"`)+`"}`+"\n", body)
	}
	require.NoFileExists(t, filepath.Join(w.home, "f"))
}

func TestDiskFull(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Log("/dev/full is Linux's")
		return
	}
	// The device is not in the directory of plain mode.
	w := newWorld(t, host)
	for _, test := range []struct {
		body    io.Reader
		message string
	}{
		{strings.NewReader("four"), "attempted to write 4 bytes: not enough disk space available"},
		{io.MultiReader(strings.NewReader("four")), "not enough disk space available"},
	} {
		res, body := w.do(t, "POST", "/files?path=/dev/full", test.body, "Content-Type", "application/octet-stream")
		require.Equal(t, 507, res.StatusCode)
		require.Equal(t, `{"code":507,"message":"`+test.message+`"}`+"\n", body)
	}
}

func TestCompose(t *testing.T) {
	w := newWorld(t)
	w.put(t, "p1", "one")
	w.put(t, "p2", "two")
	w.put(t, "dest", "old", "X-Metadata-A", "1")
	compose := func(body string) (int, string) {
		res, answer := w.do(t, "POST", "/files/compose", strings.NewReader(body))
		return res.StatusCode, answer
	}
	for _, test := range []struct {
		body    string
		status  int
		message string
	}{
		{`{"source_paths":["p1"]}`, 400, "destination is required"},
		{`{"source_paths":["p1"],"destination":"./p1"}`, 400, `source path \"` + w.home + `/p1\" cannot be the same as destination`},
		{`{"source_paths":["."],"destination":"dest"}`, 400, "source path is not a regular file: " + w.home},
		{`{"source_paths":["p1"],"destination":"dest","username":"x"}`, 401, "error looking up user 'x': user: unknown user x"},
		{`{"source_paths":["p1"],"destination":"~root"}`, 400, "failed to expand path '' for user 'user': cannot expand user-specific home dir"},
		{`{`, 400, "invalid request body: unexpected EOF"},
		{`{"source_paths":["p1"],"destination":"."}`, 500, "error finalizing compose: rename"},
	} {
		status, answer := compose(test.body)
		require.Equal(t, test.status, status, answer)
		require.Contains(t, answer, test.message)
	}
	status, answer := compose(`{"source_paths":["p1","p2","p1"],"destination":"dest"}`)
	require.Equal(t, 200, status, answer)
	on, err := os.ReadFile(filepath.Join(w.home, "dest"))
	require.NoError(t, err)
	require.Equal(t, "onetwoone", string(on))
	left, err := os.ReadDir(w.home)
	require.NoError(t, err)
	require.Len(t, left, 1, "sources and temporary files are gone")
	res, err := w.files.Stat(t.Context(), connect.NewRequest(&filesystem.StatRequest{Path: "dest"}))
	require.NoError(t, err)
	require.Empty(t, res.Msg.GetEntry().GetMetadata())
}

// letters is an endless stream of text.
type letters struct{ n int64 }

var alphabet = []byte(strings.Repeat("abcdefghijklmnopqrstuvwxyz", 1<<12))

func (l *letters) Read(p []byte) (int, error) {
	n := copy(p, alphabet[l.n%int64(len(alphabet)):])
	l.n += int64(n)
	return n, nil
}

func TestTransfersInConstantMemory(t *testing.T) {
	w := newWorld(t)
	const size = 64 << 20
	allocated := func(f func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	send := func(contentType, query string, body io.Reader) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/files?"+query, body)
		require.NoError(t, err)
		req.Header.Set("Content-Type", contentType)
		res, err := w.http.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		require.Equal(t, 200, res.StatusCode)
	}
	// All that was ever allocated, by client and server, is a fraction of the file.
	require.Less(t, allocated(func() {
		send("application/octet-stream", "path=raw", io.LimitReader(&letters{}, size))
	}), uint64(size/8))
	require.Less(t, allocated(func() {
		head := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"form\"\r\n\r\n"
		send("multipart/form-data; boundary=b", "", io.MultiReader(strings.NewReader(head), io.LimitReader(&letters{}, size), strings.NewReader("\r\n--b--\r\n")))
	}), uint64(size/8))
	for _, name := range []string{"raw", "form"} {
		require.Less(t, allocated(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/files?path="+name, nil)
			require.NoError(t, err)
			res, err := w.http.Do(req)
			require.NoError(t, err)
			defer res.Body.Close()
			require.Equal(t, int64(size), res.ContentLength)
			want := &letters{}
			buf, expected := make([]byte, 64<<10), make([]byte, 64<<10)
			for {
				n, err := res.Body.Read(buf)
				_, wantErr := io.ReadFull(want, expected[:n])
				require.NoError(t, wantErr)
				require.True(t, bytes.Equal(buf[:n], expected[:n]))
				if err == io.EOF {
					break
				}
				require.NoError(t, err)
			}
			require.Equal(t, int64(size), want.n)
		}), uint64(size/8))
	}
}

func TestSystem(t *testing.T) {
	w := newWorld(t)
	res, body := w.do(t, "GET", "/envs", nil)
	require.Equal(t, "application/json", res.Header.Get("Content-Type"))
	require.Equal(t, "{}\n", body)
	for range 2 {
		res, body = w.do(t, "GET", "/metrics", nil)
		require.Equal(t, 200, res.StatusCode)
		require.Equal(t, "no-store", res.Header.Get("Cache-Control"))
		for _, name := range []string{"ts", "cpu_count", "cpu_used_pct", "mem_total_mib", "mem_used_mib", "mem_total", "mem_used", "mem_cache", "disk_used", "disk_total"} {
			require.Contains(t, body, `"`+name+`":`)
		}
	}
	require.NotContains(t, body, `"disk_total":0`)

	var clock cpuClock
	require.Zero(t, clock.used(cpuTime{}))
	require.Zero(t, clock.used(cpuTime{}))
	require.InDelta(t, 100, clock.used(cpuTime{busy: 10, total: 10}), 0)
	require.InDelta(t, 25, clock.used(cpuTime{busy: 15, total: 30}), 0)
	require.Zero(t, clock.used(cpuTime{busy: 1, total: 2}), "a clock that went back")
}

func TestMetricsOfAMachine(t *testing.T) {
	used := Machine{CPUs: 2, CPUTime: 5 * time.Second, Memory: 3 << 20, MemoryTotal: 4 << 20, Cache: 5, Disk: 6, DiskTotal: 7}
	srv := New(Config{})
	defer srv.Close()
	srv.now = func() time.Time { return srv.began.Add(10 * time.Second) }
	want := metrics{
		Time: srv.now().Unix(), CPUs: 2, CPUUsed: 25, MemTotalMiB: 4, MemUsedMiB: 3, MemTotal: 4 << 20, MemUsed: 3 << 20, MemCache: 5,
		DiskUsed: 6, DiskTotal: 7,
	}
	require.Equal(t, want, srv.metricsOf(used))

	w := newWorld(t, func(c *Config) { c.Machine = func() Machine { return used } })
	_, body := w.do(t, "GET", "/metrics", nil)
	require.Contains(t, body, `"mem_total_mib":4,"mem_used_mib":3,"mem_total":4194304,"mem_used":3145728,"mem_cache":5,"disk_used":6,"disk_total":7}`)
}
