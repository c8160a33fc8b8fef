package fault_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A site is a server with one effect on all requests.
type site struct {
	*httptest.Server
	client *http.Client
	closed chan struct{}
	began  chan struct{} // the first request has
	active sync.WaitGroup
}

// serve starts a server, and a client that speaks one protocol.
func serve(t *testing.T, http2 bool, e fault.Effect, h http.HandlerFunc) *site {
	t.Helper()
	s := &site{closed: make(chan struct{}), began: make(chan struct{})}
	began := sync.OnceFunc(func() { close(s.began) })
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.active.Add(1)
		defer s.active.Done()
		began()
		fault.Serve(w, r, h, &e, s.closed)
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Start()
	transport := &http.Transport{Protocols: new(http.Protocols), DisableCompression: true}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	s.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		s.Close()
		s.active.Wait()
	})
	return s
}

// ask sends a request and returns what came of it.
func (s *site) ask(t *testing.T, ctx context.Context, body io.Reader) (*http.Response, string, error) { //nolint:revive // t comes first in tests
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/a?x=1&y=%3D&x=2", body)
	require.NoError(t, err)
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, "", err
	}
	b, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // what matters is how the reading ended
	return resp, string(b), err
}

// protocols runs a test for HTTP/1.1 and for HTTP/2.
func protocols(t *testing.T, test func(t *testing.T, http2 bool)) {
	t.Helper()
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2=%t", http2), func(t *testing.T) { test(t, http2) })
	}
}

// proxied writes as httputil.ReverseProxy does: what cannot be written on panics.
func proxied(w http.ResponseWriter, parts ...string) {
	w.WriteHeader(http.StatusCreated)
	for _, part := range parts {
		if _, err := io.WriteString(w, part); err != nil {
			panic(http.ErrAbortHandler)
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

func frames(payloads ...string) string {
	var b []byte
	for _, p := range payloads {
		b = append(b, 0)
		b = binary.BigEndian.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
	}
	return string(b)
}

func TestAnswers(t *testing.T) {
	text := []string{"one\n", "two\n", "three\n"}
	for name, c := range map[string]struct {
		effect  fault.Effect
		kind    string
		parts   []string
		carried bool
		status  int // 0: no answer at all
		body    string
		cut     bool
	}{
		"untouched":           {parts: text, carried: true, status: 201, body: "one\ntwo\nthree\n"},
		"delayed":             {effect: fault.Effect{DelayBefore: 1, DelayAfter: 1}, parts: text, carried: true, status: 201, body: "one\ntwo\nthree\n"},
		"status":              {effect: fault.Effect{Status: 503, Body: "no"}, parts: text, status: 503, body: "no"},
		"status without text": {effect: fault.Effect{Status: 204}, status: 204},
		"status, committed":   {effect: fault.Effect{Status: 503, Body: "no", Commit: true}, parts: text, carried: true, status: 503, body: "no"},
		"status, committed, without text": {
			effect: fault.Effect{Status: 204, Commit: true}, parts: text, carried: true, status: 204,
		},
		"status, cut":            {effect: fault.Effect{Status: 503, Body: "nonono", Cut: fault.CutBody, CutAfter: 3}, status: 503, body: "non", cut: true},
		"status, committed, cut": {effect: fault.Effect{Status: 503, Body: "nonono", Commit: true, Cut: fault.CutBody, CutAfter: 3}, carried: true, parts: text, status: 503, body: "non", cut: true},
		"status, committed, cut late": {
			effect: fault.Effect{Status: 503, Body: "no", Commit: true, Cut: fault.CutBody, CutAfter: 9}, carried: true, parts: text, status: 503, body: "no", cut: true,
		},
		"cut before the request": {effect: fault.Effect{Cut: fault.CutRequest}, parts: text},
		"cut before the answer":  {effect: fault.Effect{Cut: fault.CutAnswer}, parts: text, carried: true},
		"cut after the header":   {effect: fault.Effect{Cut: fault.CutBody}, parts: text, carried: true, status: 201, cut: true},
		"cut in a part":          {effect: fault.Effect{Cut: fault.CutBody, CutAfter: 6}, parts: text, carried: true, status: 201, body: "one\ntw", cut: true},
		"cut between parts":      {effect: fault.Effect{Cut: fault.CutBody, CutAfter: 4}, parts: text, carried: true, status: 201, body: "one\n", cut: true},
		"cut at the end":         {effect: fault.Effect{Cut: fault.CutBody, CutAfter: 99}, parts: text, carried: true, status: 201, body: "one\ntwo\nthree\n", cut: true},
		"cut in a line":          {effect: fault.Effect{Cut: fault.CutMessage, CutAfter: 2}, parts: text, carried: true, status: 201, body: "one\ntwo\nth", cut: true},
		"cut in the first frame": {
			effect: fault.Effect{Cut: fault.CutMessage}, kind: "application/connect+proto",
			parts: []string{frames("abcd"), frames("efgh")}, carried: true, status: 201, body: frames("abcd")[:7], cut: true,
		},
		"cut in a later frame": {
			effect: fault.Effect{Cut: fault.CutMessage, CutAfter: 2}, kind: "application/connect+json",
			parts: []string{frames("abcd", "")[:8], frames("abcd", "")[8:] + frames("x")}, carried: true, status: 201,
			body: frames("abcd", "") + frames("x")[:5], cut: true,
		},
		"fields": {
			effect: fault.Effect{Fields: map[string]string{"v": "0.1.0"}}, kind: "application/json; charset=utf-8",
			parts:   []string{`{"v":"0.5.7","n":12345678901234567890,`, `"in":[{"v":{"a":1}}]}`},
			carried: true, status: 201, body: `{"in":[{"v":"0.1.0"}],"n":12345678901234567890,"v":"0.1.0"}`,
		},
		"fields, cut": {
			effect: fault.Effect{Fields: map[string]string{"v": "0.1.0"}, Cut: fault.CutBody, CutAfter: 5}, kind: "application/json",
			parts: []string{`{"v":1}`}, carried: true, status: 201, body: `{"v":`, cut: true,
		},
		"fields of what is no JSON": {
			effect: fault.Effect{Fields: map[string]string{"v": "0.1.0"}}, kind: "application/json",
			parts: []string{`{"v":1} x`}, carried: true, status: 201, body: `{"v":1} x`,
		},
		"fields of broken JSON": {
			effect: fault.Effect{Fields: map[string]string{"v": "0.1.0"}}, kind: "application/json",
			parts: []string{`{"v":`}, carried: true, status: 201, body: `{"v":`,
		},
		"fields of a text": {effect: fault.Effect{Fields: map[string]string{"v": "x"}}, parts: text, carried: true, status: 201, body: "one\ntwo\nthree\n"},
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, http2 bool) {
				var carried string
				s := serve(t, http2, c.effect, func(w http.ResponseWriter, r *http.Request) {
					b, err := io.ReadAll(r.Body)
					if err != nil {
						panic(err)
					}
					carried = string(b)
					w.Header().Set("Content-Type", c.kind)
					proxied(w, c.parts...)
				})
				// More than is fetched before a request that is not carried out.
				sent := strings.Repeat("x", 100<<10)
				resp, body, err := s.ask(t, t.Context(), strings.NewReader(sent))
				s.active.Wait()
				if c.carried {
					require.Equal(t, len(sent), len(carried))
				} else {
					require.Empty(t, carried)
				}
				if c.status == 0 {
					require.Error(t, err)
					require.Nil(t, resp)
					return
				}
				require.NotNil(t, resp, "%v", err)
				require.Equal(t, c.status, resp.StatusCode)
				require.Equal(t, c.body, body)
				if c.cut {
					require.Error(t, err)
				} else {
					require.NoError(t, err)
				}
			})
		})
	}
}

func TestHeaders(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		e := fault.Effect{Header: http.Header{"x-new": {"a", "b"}}, RemoveHeader: []string{"x-old"}, ClockSkew: time.Hour, IgnoreQuery: []string{"x"}}
		var query string
		s := serve(t, http2, e, func(w http.ResponseWriter, r *http.Request) {
			query = r.URL.RawQuery
			w.Header().Set("X-Old", "1")
			w.Header().Set("Date", "Tue, 01 Sep 2026 10:00:00 GMT")
		})
		resp, _, err := s.ask(t, t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, []string{"a", "b"}, resp.Header.Values("X-New"))
		require.Empty(t, resp.Header.Values("X-Old"))
		require.Equal(t, "Tue, 01 Sep 2026 11:00:00 GMT", resp.Header.Get("Date"))
		require.Equal(t, "y=%3D", query)
	})
}

func TestTypesOfBodies(t *testing.T) {
	for body, want := range map[string]string{
		"": "", " {}": "application/json; charset=utf-8", "[1]": "application/json; charset=utf-8",
		"<p>": "text/html; charset=utf-8", "upstream": "text/plain; charset=utf-8",
	} {
		for _, commit := range []bool{false, true} {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			fault.Serve(w, r, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Real", "1")
				_, _ = io.WriteString(w, "the real answer")
			}), &fault.Effect{Status: 500, Body: body, Commit: commit}, nil)
			require.Equal(t, 500, w.Code)
			require.Equal(t, body, w.Body.String())
			require.Empty(t, w.Header().Get("X-Real"))
			if body != "" {
				require.Equal(t, want, w.Header().Get("Content-Type"))
			}
		}
	}
}

func TestWhatAHandlerDoesAfterACut(t *testing.T) {
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	require.PanicsWithError(t, http.ErrAbortHandler.Error(), func() {
		fault.Serve(w, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, err := io.WriteString(w, "abcdef")
			require.Error(t, err)
			require.Equal(t, 3, n)
			n, err = io.WriteString(w, "x")
			require.Error(t, err)
			require.Zero(t, n)
			w.WriteHeader(http.StatusTeapot)
			require.NoError(t, http.NewResponseController(w).Flush())
			_, _, err = http.NewResponseController(w).Hijack()
			require.Error(t, err)
			require.ErrorIs(t, r.Context().Err(), context.Canceled, "a handler that waits ends too")
		}), &fault.Effect{Cut: fault.CutBody, CutAfter: 3}, nil)
	})
	require.Equal(t, "abc", w.Body.String())
	require.NoError(t, r.Context().Err())
}

func TestOtherPanicsPass(t *testing.T) {
	for _, e := range []fault.Effect{{Header: http.Header{"A": {"b"}}}, {Status: 500, Commit: true}} {
		for _, v := range []any{"text", errors.New("other")} {
			require.PanicsWithValue(t, v, func() {
				fault.Serve(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil),
					http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						w.WriteHeader(http.StatusOK)
						panic(v)
					}), &e, nil)
			})
		}
	}
}

func TestUpgradesAndInformation(t *testing.T) {
	upgrade := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Early", "1")
		w.WriteHeader(http.StatusEarlyHints)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nhello")
			_ = conn.Close()
		}
	}
	ask := func(t *testing.T, e fault.Effect) (*http.Response, bool, error) {
		t.Helper()
		s := serve(t, false, e, upgrade)
		hinted := false
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			hinted = hinted || code == http.StatusEarlyHints
			return nil
		}})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
		require.NoError(t, err)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "x")
		resp, err := s.client.Do(req)
		if err == nil {
			t.Cleanup(func() { require.NoError(t, resp.Body.Close()) })
		}
		return resp, hinted, err
	}
	resp, hinted, err := ask(t, fault.Effect{DelayAfter: 1})
	require.NoError(t, err)
	require.True(t, hinted)
	require.Equal(t, 101, resp.StatusCode)
	b, err := bufio.NewReader(resp.Body).Peek(5)
	require.NoError(t, err)
	require.Equal(t, "hello", string(b))

	_, hinted, err = ask(t, fault.Effect{Cut: fault.CutAnswer})
	require.Error(t, err)
	require.True(t, hinted)
}

// A waiting request ends with its client, and with the server.
func TestWaitsEnd(t *testing.T) {
	for name, e := range map[string]fault.Effect{
		"before": {DelayBefore: time.Hour}, "after": {DelayAfter: time.Hour}, "stall": {Stall: true},
		"before an answer of its own": {DelayBefore: time.Hour, Status: 500},
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, http2 bool) {
				for _, byServer := range []bool{false, true} {
					s := serve(t, http2, e, func(w http.ResponseWriter, r *http.Request) {
						_, _ = io.Copy(io.Discard, r.Body)
						w.WriteHeader(http.StatusNoContent)
					})
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					sent := make(chan struct{})
					ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { close(sent) }})
					failed := make(chan error, 1)
					go func() {
						_, _, err := s.ask(t, ctx, io.MultiReader(strings.NewReader("of no length that is known")))
						failed <- err
					}()
					<-sent
					<-s.began
					if byServer {
						close(s.closed)
						require.Error(t, <-failed)
					} else {
						cancel()
						require.ErrorIs(t, <-failed, context.Canceled)
					}
					s.active.Wait() // for an hour, if it is wrong
				}
			})
		})
	}
}

func TestDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		w := httptest.NewRecorder()
		fault.Serve(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			require.Equal(t, time.Second, time.Since(begin))
			w.WriteHeader(http.StatusAccepted)
			require.Equal(t, 3*time.Second, time.Since(begin))
		}), &fault.Effect{DelayBefore: time.Second, DelayAfter: 2 * time.Second}, nil)
		require.Equal(t, http.StatusAccepted, w.Code)
	})
}

// What a client sends to a process bit by bit is not waited for.
func TestInputIsNotFetched(t *testing.T) {
	pipe, feed := io.Pipe()
	defer func() { require.NoError(t, feed.Close()) }()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/process.Process/StreamInput", pipe)
	fault.Serve(w, r, nil, &fault.Effect{Status: 503, DelayBefore: 1}, nil)
	require.Equal(t, 503, w.Code)
}

// A body that breaks off does so for the handler as well.
func TestBrokenRequest(t *testing.T) {
	broken := errors.New("broken")
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", io.MultiReader(strings.NewReader("abc"), failing{broken}))
	fault.Serve(httptest.NewRecorder(), r, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		require.ErrorIs(t, err, broken)
		require.Equal(t, "abc", string(b))
	}), &fault.Effect{DelayBefore: 1}, nil)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestFlushReachesTheClient(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		release := make(chan struct{})
		s := serve(t, http2, fault.Effect{Header: http.Header{"A": {"b"}}}, func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			select {
			case <-release:
			case <-r.Context().Done():
			}
		})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
		require.NoError(t, err)
		resp, err := s.client.Do(req)
		require.NoError(t, err)
		require.Equal(t, "b", resp.Header.Get("A"))
		close(release)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	})
}

func FuzzReplaceFields(f *testing.F) {
	for _, text := range []string{`{"v":"1","a":[{"v":null}]}`, `[]`, `"v"`, `{"v":`, "", `{"v":1e400}`, "\xff"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		w := httptest.NewRecorder()
		fault.Serve(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(text)
		}), &fault.Effect{Fields: map[string]string{"v": "x"}}, nil)
		if !json.Valid(text) {
			require.Equal(t, len(text), w.Body.Len())
			return
		}
		require.True(t, json.Valid(w.Body.Bytes()))
	})
}

// FuzzCutMessage: what goes out is a beginning of what was written.
func FuzzCutMessage(f *testing.F) {
	f.Add([]byte(frames("abcd", "", "x")), int64(1), true)
	f.Add([]byte("a\nbc\n"), int64(1), false)
	f.Add([]byte("\x00\xff\xff\xff\xffabc"), int64(0), true)
	f.Fuzz(func(t *testing.T, text []byte, after int64, connect bool) {
		w := httptest.NewRecorder()
		require.Panics(t, func() {
			fault.Serve(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if connect {
					w.Header().Set("Content-Type", "application/connect+proto")
				}
				_, _ = w.Write(text)
			}), &fault.Effect{Cut: fault.CutMessage, CutAfter: max(after, 0)}, nil)
		})
		require.True(t, bytes.HasPrefix(text, w.Body.Bytes()))
	})
}

func FuzzIgnoreQuery(f *testing.F) {
	f.Add("a=1&b=2&a", "a")
	f.Add("%zz&&=", "*")
	f.Fuzz(func(t *testing.T, query, name string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.URL = &url.URL{Path: "/", RawQuery: query}
		fault.Serve(httptest.NewRecorder(), r, http.HandlerFunc(func(_ http.ResponseWriter, got *http.Request) {
			if name == "*" {
				require.Empty(t, got.URL.RawQuery)
			}
			for pair := range strings.SplitSeq(got.URL.RawQuery, "&") {
				if pair != "" {
					require.False(t, pair == name || strings.HasPrefix(pair, name+"="))
				}
			}
		}), &fault.Effect{IgnoreQuery: []string{name}}, nil)
		require.Equal(t, query, r.URL.RawQuery)
	})
}
