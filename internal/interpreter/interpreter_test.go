package interpreter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// recordings returns the bodies of the recorded executions by their names.
func recordings(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("../../testdata/code-interpreter/*.json")
	require.NoError(t, err)
	out := map[string][]byte{}
	for _, name := range files {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		var file struct {
			Response struct {
				Status int             `json:"status"`
				Body   json.RawMessage `json:"body"`
			} `json:"response"`
		}
		require.NoError(t, json.Unmarshal(b, &file))
		var lines []string
		if file.Response.Status != http.StatusOK || json.Unmarshal(file.Response.Body, &lines) != nil || len(lines) == 0 {
			continue
		}
		if !strings.Contains(lines[0], `"type": "`) {
			continue // of another route
		}
		out[strings.TrimSuffix(filepath.Base(name), ".json")] = []byte(strings.Join(lines, "\n") + "\n")
	}
	require.Greater(t, len(out), 45)
	return out
}

// readAll reads an answer to its end.
func readAll(r io.Reader) ([]Line, error) {
	e := newExecution(io.NopCloser(r))
	var lines []Line
	for {
		var l Line
		if err := e.Next(&l); err != nil {
			return lines, err
		}
		if l.Size == 0 {
			return lines, errors.New("a line of no size")
		}
		l.Size = 0 // in a cut body the line feed may be missing
		lines = append(lines, l)
	}
}

// lines reads whole lines with encoding/json alone.
func lines(b []byte) ([]Line, bool) {
	var out []Line
	for line := range bytes.Lines(b) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var l Line
		err := json.Unmarshal(line, &l)
		if _, odd := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !odd {
			return out, false
		}
		out = append(out, l)
		if l.Type == TypeEnd {
			return out, true
		}
	}
	return out, false
}

// cuts are the places at which a body is cut: everywhere, but in bodies that
// would take seconds only near the ends of their lines.
func cuts(b []byte) []int {
	const near, all = 12, 1500
	var out []int
	for n := range len(b) + 1 {
		from, to := max(n-near, 0), min(n+near, len(b))
		if len(b) <= all || n%9973 == 0 || len(b) < 50_000 && bytes.IndexByte(b[from:to], '\n') >= 0 {
			out = append(out, n)
		}
	}
	return out
}

// The recorded executions, cut: what came before the cut is there, and only what
// has its end line is a success.
func TestRecordingsCutEverywhere(t *testing.T) {
	t.Parallel()
	for name, body := range recordings(t) {
		want, ends := lines(body)
		for _, n := range cuts(body) {
			r, cut := io.Reader(bytes.NewReader(body[:n])), n%2 == 0
			if cut {
				r = io.MultiReader(r, iotest.ErrReader(io.ErrUnexpectedEOF))
			}
			got, err := readAll(r)
			known := wholeLines(body, n)
			right := errors.Is(err, ErrNoEnd) && errors.Is(err, io.ErrUnexpectedEOF) == cut
			if ends && known == len(want) {
				right = errors.Is(err, io.EOF) && !errors.Is(err, ErrNoEnd)
			}
			if !right || !equal(got, want[:known]) {
				t.Fatalf("%s cut at %d: %d of %d lines, %v", name, n, len(got), known, err)
			}
		}
	}
}

func equal(a, b []Line) bool {
	return slices.EqualFunc(a, b, func(a, b Line) bool { return reflect.DeepEqual(a, b) })
}

// wholeLines counts the lines that are whole within the first n bytes, the last
// also without its newline.
func wholeLines(b []byte, n int) int {
	known := bytes.Count(b[:n], []byte("\n"))
	if n > 0 && n < len(b) && b[n] == '\n' {
		known++
	}
	return known
}

// It does not matter in what pieces an answer comes.
func TestPieces(t *testing.T) {
	t.Parallel()
	for name, body := range recordings(t) {
		if len(body) > 5_000 {
			continue
		}
		want, wantErr := readAll(bytes.NewReader(body))
		for _, r := range []io.Reader{iotest.OneByteReader(bytes.NewReader(body)), iotest.HalfReader(bytes.NewReader(body)), iotest.DataErrReader(bytes.NewReader(body))} {
			got, err := readAll(r)
			require.Equal(t, want, got, name)
			require.Equal(t, wantErr, err, name)
		}
	}
}

func FuzzExecution(f *testing.F) {
	for _, s := range []string{
		"", "\n\n", `{"type":"end_of_execution"}`, "{\"type\":\"end_of_execution\"}\n{\"type\":\"stdout\"}\n", "{\"type\":\"stdout\",\"text\":\"a\"}\r\n",
		"{\"type\":1,\"text\":[2]}\n", "nope\n", "null\n[]\n5\n\"x\"\n", "{\"type\":\"error\",\"name\":\"N\",\"value\":\"V\",\"traceback\":\"\"}\n",
		"{\"type\":\"result\",\"text\":\"t\",\"is_main_result\":true,\"json\":{\"type\":\"end_of_execution\"}}\n", "{\"type\":\"number_of_executions\",\"execution_count\":3}\n",
		"{\"type\":\"stdout\",\"text\":\"\\ud83d\\ude00\"}\n",
	} {
		f.Add([]byte(s), uint16(3))
	}
	f.Fuzz(func(t *testing.T, body []byte, piece uint16) {
		var chunks []io.Reader
		for c := range slices.Chunk(body, int(piece)+1) {
			chunks = append(chunks, bytes.NewReader(c))
		}
		got, err := readAll(io.MultiReader(chunks...))
		want, ended := lines(body)
		require.Equal(t, ended, err == io.EOF) //nolint:errorlint // exactly that
		require.Error(t, err)
		require.Equal(t, want, got)
	})
}

// A line without an end is bounded.
func TestLineIsBounded(t *testing.T) {
	const limit = 200 << 10
	e := newExecution(io.NopCloser(io.MultiReader(strings.NewReader(`{"type":"stdout","text":"`), endless{})))
	e.max = limit
	var l Line
	err := e.Next(&l)
	require.ErrorIs(t, err, ErrNoEnd)
	require.ErrorContains(t, err, "more than")

	fits := `{"type":"stdout","text":"` + strings.Repeat("x", limit-1000) + `"}` + "\n"
	e = newExecution(io.NopCloser(strings.NewReader(fits + fits)))
	e.max = limit
	for range 2 {
		require.NoError(t, e.Next(&l))
		require.Len(t, l.Text, limit-1000)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// What a long line needed is not kept for the rest of the answer.
func TestRoomOfLongLineIsGivenBack(t *testing.T) {
	long := `{"type":"result","png":"` + strings.Repeat("x", 1<<20) + `"}` + "\n"
	e := newExecution(io.NopCloser(strings.NewReader(long + `{"type":"stdout","text":"x"}` + "\n")))
	var l Line
	require.NoError(t, e.Next(&l))
	require.Nil(t, e.long)
	require.NoError(t, e.Next(&l))
	require.Equal(t, "x", l.Text)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newClient(rt roundTrip) *Client {
	return New(Config{
		BaseURL:   &url.URL{Scheme: "http", Host: "fake.test", Path: "/base/"},
		Header:    http.Header{"X-Access-Token": {"secret-token"}},
		Transport: rt,
	})
}

// Execute gives up on a server that does not take the code, and on none that has.
func TestExecuteLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		begin := time.Now()
		_, err := c.Execute(t.Context(), time.Minute, &Code{Code: "x"})
		require.ErrorIs(t, err, transport.ErrTimeout)
		require.Equal(t, time.Minute, time.Since(begin))

		own := errors.New("own cause")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, own)
		defer cancel()
		_, err = c.Execute(ctx, time.Minute, &Code{Code: "x"})
		require.ErrorIs(t, err, own)

		r, w := io.Pipe()
		var alive context.Context
		c = newClient(func(req *http.Request) (*http.Response, error) {
			alive = req.Context()
			return &http.Response{StatusCode: http.StatusOK, Body: r}, nil
		})
		e, err := c.Execute(t.Context(), time.Minute, &Code{Code: "x"})
		require.NoError(t, err)
		time.AfterFunc(time.Hour, func() {
			_, _ = io.WriteString(w, `{"type":"end_of_execution"}`+"\n")
			_ = w.Close()
		})
		var l Line
		require.NoError(t, e.Next(&l))
		require.Equal(t, TypeEnd, l.Type)
		require.ErrorIs(t, e.Next(&l), io.EOF)
		require.ErrorIs(t, e.Next(&l), io.EOF)
		require.NoError(t, alive.Err())
		require.NoError(t, e.Close())
		require.Error(t, alive.Err())
	})
}

// A refusal keeps what it says, without the token.
func TestExecuteRefused(t *testing.T) {
	c := newClient(func(r *http.Request) (*http.Response, error) {
		require.Equal(t, "http://fake.test/base/execute", r.URL.String())
		require.Equal(t, []string{"secret-token"}, r.Header["X-Access-Token"])
		return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader("Context secret-token not found"))}, nil
	})
	_, err := c.Execute(t.Context(), 0, &Code{Code: "x"})
	status, ok := errors.AsType[*transport.StatusError](err)
	require.True(t, ok)
	require.Equal(t, 404, status.StatusCode)
	require.Equal(t, "Context [redacted] not found", status.Message)
}

// BenchmarkLines reads an execution with a thousand lines of output.
func BenchmarkLines(b *testing.B) {
	body := []byte(strings.Repeat(`{"type": "stdout", "text": "line of output\n", "timestamp": "2026-11-29T17:00:16.349282+00:00"}`+"\n", 1000) +
		`{"type": "end_of_execution"}` + "\n")
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	var l Line
	for b.Loop() {
		e := newExecution(io.NopCloser(bytes.NewReader(body)))
		for e.Next(&l) == nil {
		}
	}
}

// BenchmarkLongLine reads a picture of 1 MB.
func BenchmarkLongLine(b *testing.B) {
	body := []byte(`{"type": "result", "text": "<Figure>", "png": "` + strings.Repeat("A", 1<<20) + `", "extra": {}, "is_main_result": false}` + "\n" +
		`{"type": "end_of_execution"}` + "\n")
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	var l Line
	for b.Loop() {
		e := newExecution(io.NopCloser(bytes.NewReader(body)))
		for e.Next(&l) == nil {
		}
	}
}
