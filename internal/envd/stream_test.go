package envd

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newClient(asJSON bool, rt roundTrip) *Client {
	return New(Config{
		BaseURL: &url.URL{Scheme: "http", Host: "fake.test", Path: "/base/"}, Transport: rt, JSON: asJSON,
	}).Client(http.Header{"X-Access-Token": {"secret-token"}, "User-Agent": {"agent/1"}})
}

// respond answers every request alike.
func respond(status int, contentType string, body io.Reader) roundTrip {
	return func(r *http.Request) (*http.Response, error) {
		if r.Body != nil {
			_, _ = io.Copy(io.Discard, r.Body)
			_ = r.Body.Close()
		}
		return &http.Response{
			StatusCode: status, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(body),
			ContentLength: -1, Request: r,
		}, nil
	}
}

// streams returns the recorded streams of processes by their names.
func streams(t testing.TB) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, pattern := range []string{"process_start_*", "process_connect_*"} {
		files, err := filepath.Glob("../../testdata/envd/" + pattern + ".json")
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, name := range files {
			b, err := os.ReadFile(name)
			require.NoError(t, err)
			var file struct {
				Response struct {
					Base64 string `json:"body_base64"`
				} `json:"response"`
			}
			require.NoError(t, json.Unmarshal(b, &file))
			body, err := base64.StdEncoding.DecodeString(file.Response.Base64)
			require.NoError(t, err)
			require.NotEmpty(t, body)
			out[strings.TrimSuffix(filepath.Base(name), ".json")] = body
		}
	}
	return out
}

// follow attaches and reads to the end: the kinds of the events, and why it ended.
func follow(t testing.TB, c *Client) ([]Kind, error) {
	t.Helper()
	s, err := c.Attach(t.Context(), t.Context(), 0, 7, nil)
	if err != nil {
		return []Kind{}, err
	}
	defer s.Close(nil)
	kinds := []Kind{Started}
	for {
		kind, err := s.Next()
		if err != nil {
			return kinds, err
		}
		kinds = append(kinds, kind)
	}
}

// A stream that is cut has no end event that was not there, and no clean end
// unless its end frame was.
func TestStreamsCutEverywhere(t *testing.T) {
	t.Parallel()
	for name, body := range streams(t) {
		asJSON := strings.HasSuffix(name, "_json")
		contentType := "application/connect+proto"
		if asJSON {
			contentType = "application/connect+json"
		}
		// The ends of the frames; the last is the end frame.
		var ends []int
		for n := 0; n < len(body); {
			n += 5 + int(binary.BigEndian.Uint32(body[n+1:]))
			ends = append(ends, n)
		}
		whole, wholeErr := follow(t, newClient(asJSON, respond(200, contentType, bytes.NewReader(body))))
		if len(ends) > 1 {
			require.Len(t, whole, len(ends)-1, name)
		}
		require.True(t, errors.Is(wholeErr, io.EOF) || errors.Is(wholeErr, ErrNoEnd) || connect.IsWireError(asConnect(wholeErr)), "%s: %v", name, wholeErr)
		for n := range body {
			r, cut := io.Reader(bytes.NewReader(body[:n])), n%2 == 0
			if cut {
				r = io.MultiReader(r, iotest.ErrReader(io.ErrUnexpectedEOF))
			}
			kinds, err := follow(t, newClient(asJSON, respond(200, contentType, r)))
			frames := 0
			for frames < len(ends) && ends[frames] <= n {
				frames++
			}
			require.Len(t, kinds, frames, "%s cut at %d", name, n)
			require.Equal(t, whole[:frames], kinds)
			require.Error(t, err)
			require.NotErrorIs(t, err, io.EOF, "%s cut at %d", name, n)
			require.False(t, connect.IsWireError(asConnect(err)), "%s cut at %d: %v", name, n, err)
		}
	}
}

func asConnect(err error) error {
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return nil
	}
	return ce
}

// The end of a stream's opening and the end of the stream are two things.
func TestOpening(t *testing.T) {
	frame := func(flags byte, b []byte) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(b))), b...)
	}
	start := frame(0, messages()["start"])
	synctest.Test(t, func(t *testing.T) {
		silent := newClient(false, func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		begin := time.Now()
		_, err := silent.Attach(t.Context(), t.Context(), time.Minute, 7, nil)
		require.ErrorIs(t, err, transport.ErrTimeout)
		require.Equal(t, time.Minute, time.Since(begin))

		own := errors.New("own cause")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(own) })
		begin = time.Now()
		_, err = silent.Start(ctx, t.Context(), time.Minute, &Command{Path: "true"}, nil)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, own, "the cause of the caller's ctx has nothing to do with the call")
		require.Equal(t, time.Second, time.Since(begin))
		_, err = silent.Start(ctx, t.Context(), 0, &Command{Path: "true"}, nil) // has ended already
		require.Equal(t, context.Canceled, err)

		// Headers without a first event are no opening either.
		r, w := io.Pipe()
		defer w.Close()
		_, err = newClient(false, body(r)).Attach(t.Context(), t.Context(), time.Minute, 7, nil)
		require.ErrorIs(t, err, transport.ErrTimeout)

		// Once it is open neither the limit nor ctx ends it, but the end of life does.
		r, w = io.Pipe()
		defer w.Close()
		go func() { _, _ = w.Write(start) }()
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		life, end := context.WithCancelCause(t.Context())
		s, err := newClient(false, body(r)).Attach(ctx, life, time.Minute, 7, nil)
		stop()
		require.NoError(t, err)
		require.Equal(t, uint32(8252), s.PID)
		time.AfterFunc(time.Hour, func() { end(own) })
		begin = time.Now()
		_, err = s.Next()
		require.ErrorIs(t, err, own)
		require.Equal(t, time.Hour, time.Since(begin))
		s.Close(nil)
		s.Close(nil)
		_, err = s.Next()
		require.ErrorIs(t, err, own, "the first cause stays")
	})
}

// body answers with a body that ends when the request's ctx does, as those of
// net/http do.
func body(r *io.PipeReader) roundTrip {
	return func(req *http.Request) (*http.Response, error) {
		context.AfterFunc(req.Context(), func() { _ = r.CloseWithError(req.Context().Err()) })
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/connect+proto"}}, Body: r, ContentLength: -1, Request: req,
		}, nil
	}
}

// Only what is shaped as Connect's own error is left to connect-go, and of a
// stream not even that.
func TestStatusErrors(t *testing.T) {
	for _, tt := range []struct {
		name, contentType, body string
		status                  int
		connect                 bool
		message                 string
	}{
		{"Connect's", "application/json", `{"code":"not_found","message":"no"}`, 404, true, "no"},
		{"a number for a code", "application/json", `{"code":404,"message":"no"}`, 404, false, "no"},
		{"the proxy's", "application/json", `{"sandboxId":"x","message":"gone","code":502}`, 502, false, "gone"},
		{"text", "text/plain", "404 page not found\n", 404, false, "404 page not found"},
		{"nothing", "", "", 415, false, ""},
		{"token", "text/plain", "secret-token is bad", 401, false, "[redacted] is bad"},
		{"204", "", "", 204, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := newClient(false, respond(tt.status, tt.contentType, strings.NewReader(tt.body))).List(t.Context())
			status, isStatus := errors.AsType[*transport.StatusError](err)
			require.Equal(t, !tt.connect, isStatus, "%v", err)
			if tt.connect {
				require.Equal(t, connect.CodeNotFound, connect.CodeOf(err))
				require.True(t, connect.IsWireError(asConnect(err)))
			} else {
				require.Equal(t, tt.status, status.StatusCode)
				require.Equal(t, tt.message, status.Message)
			}
			_, err = newClient(false, respond(tt.status, tt.contentType, strings.NewReader(tt.body))).Attach(t.Context(), t.Context(), 0, 7, nil)
			status, isStatus = errors.AsType[*transport.StatusError](err)
			require.True(t, isStatus, "%v", err)
			require.Equal(t, tt.message, status.Message)
		})
	}
}

// A request's headers are its own.
func TestHeadersAreNotShared(t *testing.T) {
	var seen []http.Header
	c := newClient(false, func(r *http.Request) (*http.Response, error) {
		require.True(t, strings.HasPrefix(r.URL.Path, "/base/process.Process/"), r.URL.Path)
		seen = append(seen, r.Header.Clone())
		return nil, io.ErrUnexpectedEOF
	})
	before := c.headers.Clone()
	_, err := c.Start(t.Context(), t.Context(), 0, &Command{Path: "true", User: "root", Timeout: time.Nanosecond}, nil)
	require.Error(t, err)
	_, err = c.Start(t.Context(), t.Context(), 0, &Command{Path: "true"}, nil)
	require.Error(t, err)
	require.Error(t, c.Signal(t.Context(), 7, 9))
	require.Equal(t, before, c.headers)
	require.Equal(t, "1", seen[0].Get("Connect-Timeout-Ms"), "0 would have expired already")
	require.NotEmpty(t, seen[0].Get("Authorization"))
	require.Empty(t, seen[1].Get("Connect-Timeout-Ms"))
	require.Empty(t, seen[1].Get("Authorization"))
	for _, h := range seen {
		require.Equal(t, []string{"agent/1"}, h["User-Agent"])
		require.Equal(t, []string{"secret-token"}, h["X-Access-Token"])
	}
}

// A form is one file, whatever its path.
func TestForm(t *testing.T) {
	for _, path := range []string{"/x", "/a b", `/q"uote`, "/ü", "/new\nline", `/back\slash`, "/a;b"} {
		head, tail, contentType := form(path)
		_, params, err := mime.ParseMediaType(contentType)
		require.NoError(t, err)
		r := multipart.NewReader(io.MultiReader(bytes.NewReader(head), strings.NewReader("data\r\n--x"), bytes.NewReader(tail)), params["boundary"])
		part, err := r.NextPart()
		require.NoError(t, err, path)
		require.Equal(t, "file", part.FormName())
		got, err := io.ReadAll(part)
		require.NoError(t, err)
		require.Equal(t, "data\r\n--x", string(got))
		_, err = r.NextPart()
		require.ErrorIs(t, err, io.EOF)
	}
}
