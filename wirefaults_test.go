package e2b_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

// overHTTP2 returns a handle that reaches f over HTTP/2, and the server.
func (f *fakeSandbox) overHTTP2(t *testing.T) (*e2b.Sandbox, *httptest.Server) {
	t.Helper()
	srv := httptest.NewUnstartedServer(f)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	c := f.client(t, srv.URL, &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}})
	t.Cleanup(func() {
		c.CloseIdleConnections()
		srv.Close()
	})
	return f.handle(t, c), srv
}

// begin is the first half of an answer that is a stream or a file.
func begin(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.Header.Get("Content-Type"), "application/connect+"):
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	case r.Method == http.MethodGet:
		w.Header().Set("Content-Length", "1000")
	}
	w.WriteHeader(http.StatusOK)
	flush(w)
}

// RST_STREAM and GOAWAY end each call, before its headers and after them, with the
// right error. Code goes over HTTP/1.1, where the connection ends instead.
func TestHTTP2Breaks(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]func(*httptest.Server) http.HandlerFunc{
		"RST_STREAM": func(*httptest.Server) http.HandlerFunc {
			return func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
		},
		"RST_STREAM after the headers": func(*httptest.Server) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				begin(w, r)
				panic(http.ErrAbortHandler)
			}
		},
		"GOAWAY and the end of the connection": func(srv *httptest.Server) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				begin(w, r)
				srv.CloseClientConnections()
				<-r.Context().Done()
			}
		},
	} {
		for call, do := range dataCalls {
			if strings.Contains(cleaningCalls, call) {
				continue
			}
			t.Run(name+"/"+call, func(t *testing.T) {
				t.Parallel()
				f := newFakeSandbox()
				sbx, srv := f.overHTTP2(t)
				break1 := tt(srv)
				f.envd = func(w http.ResponseWriter, r *http.Request) {
					drain(r)
					break1(w, r)
				}
				f.code = f.envd
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				err := do(ctx, sbx)
				if err == nil && call == "open" {
					return // the break is for its Read
				}
				requireDataKinds(t, err, e2b.ErrStreamInterrupted)
				first := f.requests("")[0]
				require.Equal(t, strings.Contains(codeCalls, call), first.proto == "HTTP/1.1", first.proto)
			})
		}
	}
}

// A file whose stream is reset is read on, and one of a server that says goodbye
// too.
func TestHTTP2FileResumes(t *testing.T) {
	t.Parallel()
	f := newFakeSandbox()
	f.files = cutting(everyByte, longAgo, 100, 70000)
	sbx, _ := f.overHTTP2(t)
	got, err := sbx.Files.Read(t.Context(), "/x", nil)
	require.NoError(t, err)
	require.Equal(t, everyByte, got)
}

// A server that sends a byte now and then, and never all of an answer's head, is
// waited for as long as ctx says, or the request timeout.
func TestSlowLoris(t *testing.T) {
	for call, do := range dataCalls {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeSandbox()
				f.envd = func(w http.ResponseWriter, r *http.Request) {
					drain(r)
					c, _, err := http.NewResponseController(w).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					defer c.Close()
					for _, b := range []byte("HTTP/1.1 200 OK\r\nX-Slow: " + strings.Repeat("x", 1000)) {
						if _, err := c.Write([]byte{b}); err != nil || !elapse(t.Context(), time.Second) {
							return
						}
					}
				}
				f.code = f.envd
				sbx := f.inMemory(t)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				begin := time.Now()
				requireDataKinds(t, do(ctx, sbx), context.DeadlineExceeded)
				require.LessOrEqual(t, time.Since(begin), time.Minute+2*time.Second)
				begin = time.Now()
				requireDataKinds(t, do(t.Context(), sbx), e2b.ErrRequestTimeout)
				require.LessOrEqual(t, time.Since(begin), e2b.DefaultRequestTimeout+2*time.Second)
			})
		})
	}
}
