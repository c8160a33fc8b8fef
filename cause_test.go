package e2b_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/filesystem"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
)

// The cause of the caller's ctx is whatever failed elsewhere, as with an errgroup, and
// net/http returns it as its own error. It says nothing about the call.

// A dial that failed elsewhere does not say that a create was never sent.
func TestCreateIsInDoubtWhateverTheCause(t *testing.T) {
	for name, cause := range map[string]error{
		"none": nil, "dial": errNoConnection, "EOF": io.EOF, "handshake": &net.OpError{Op: "proxyconnect", Err: io.EOF},
	} {
		for _, begun := range []bool{false, true} {
			t.Run(name+"/"+strconv.FormatBool(begun), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFakeSandbox()
					c := f.client(t, "http://fake.test", roundTripper(t, func(w http.ResponseWriter, r *http.Request) {
						drain(r)
						if begun {
							write(w, []byte(`{"sandboxID":"`+fakeID+`",`))
							flush(w)
						}
						<-r.Context().Done()
					}))
					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(time.Second, func() { cancel(cause) })
					_, err := c.Create(ctx, nil)
					requireKinds(t, err, context.Canceled, e2b.ErrOutcomeUnknown)
					var unknown *e2b.OutcomeUnknownError
					require.ErrorAs(t, err, &unknown)
					require.NotEmpty(t, unknown.CreateToken)
				})
			})
		}
	}
}

// roundTripper serves h over connections in memory.
func roundTripper(t *testing.T, h http.HandlerFunc) http.RoundTripper {
	t.Helper()
	ln := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	srv := &http.Server{Handler: h}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(ln)
	}()
	rt := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return ln.dial(ctx) }}
	t.Cleanup(func() {
		_ = srv.Close()
		<-served
	})
	return rt
}

// A file is not whole because something else has come to its end.
func TestReadIsNotWholeWhateverTheCause(t *testing.T) {
	for _, length := range []string{"", strconv.Itoa(1 << 30), "10"} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeSandbox()
			f.files = func(w http.ResponseWriter, r *http.Request) {
				if length != "" {
					w.Header().Set("Content-Length", length)
				}
				write(w, []byte("half"))
				flush(w)
				<-r.Context().Done()
			}
			sbx := f.inMemory(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(io.EOF) })
			b, err := sbx.Files.Read(ctx, "x", nil)
			requireDataKinds(t, err, context.Canceled)
			require.Nil(t, b)
			require.NotErrorIs(t, err, io.EOF)
		})
	}
}

func TestVolumeReadIsNotWholeWhateverTheCause(t *testing.T) {
	f, _ := volumeServer(t, func(w http.ResponseWriter, r *http.Request) {
		write(w, []byte("half"))
		flush(w)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	r, err := f.Open(ctx, "x")
	require.NoError(t, err)
	defer r.Close()
	_, err = io.ReadFull(r, make([]byte, 4))
	require.NoError(t, err)
	cancel(io.EOF)
	_, err = r.Read(make([]byte, 1))
	requireKinds(t, err, context.Canceled)
	require.NotErrorIs(t, err, io.EOF)
}

// An answer to an RPC of another's is none to this one.
func TestNoAnswerWhateverTheCause(t *testing.T) {
	for name, call := range map[string]func(context.Context, *e2b.Sandbox) (bool, error){
		"kill":   func(ctx context.Context, s *e2b.Sandbox) (bool, error) { return s.Commands.Kill(ctx, 7) },
		"exists": func(ctx context.Context, s *e2b.Sandbox) (bool, error) { return s.Files.Exists(ctx, "x", nil) },
		"mkdir":  func(ctx context.Context, s *e2b.Sandbox) (bool, error) { return s.Files.MakeDir(ctx, "x", nil) },
	} {
		for _, code := range []connect.Code{connect.CodeNotFound, connect.CodeAlreadyExists} {
			for _, wait := range []time.Duration{0, time.Second} {
				t.Run(fmt.Sprint(name, " ", code, " ", wait), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						f := newFakeSandbox()
						f.envd = func(_ http.ResponseWriter, r *http.Request) {
							drain(r)
							<-r.Context().Done()
						}
						sbx := f.inMemory(t)
						ctx, cancel := context.WithCancelCause(t.Context())
						elsewhere := connect.NewWireError(code, errors.New("elsewhere"))
						if wait == 0 {
							cancel(elsewhere)
						}
						time.AfterFunc(wait, func() { cancel(elsewhere) })
						_, err := call(ctx, sbx)
						requireDataKinds(t, err, context.Canceled)
					})
				})
			}
		}
	}
}

// Nor does it keep a command from being killed whose start event never came.
func TestStartIsKilledWhateverTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		tag := f.startUnheard()
		f.list = func(context.Context) ([]*process.ProcessInfo, error) {
			mine := tag()
			return []*process.ProcessInfo{{Pid: 3, Tag: &mine}}, nil
		}
		var killed []uint32
		f.signal = func(_ context.Context, pid uint32, _ process.Signal) error {
			killed = append(killed, pid)
			return nil
		}
		sbx := f.inMemory(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(connect.NewWireError(connect.CodeUnavailable, errors.New("elsewhere"))) })
		_, err := sbx.Commands.Start(ctx, "sleep 999", nil)
		requireDataKinds(t, err, context.Canceled)
		require.Equal(t, []uint32{3}, killed)
	})
}

// Half a listing reads like a whole one.
func TestListingIsNotWholeWhateverTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, err := proto.Marshal(&filesystem.ListDirResponse{Entries: []*filesystem.EntryInfo{{Name: "a", Path: "/a"}}})
		require.NoError(t, err)
		f := newFakeSandbox()
		f.envd = func(w http.ResponseWriter, r *http.Request) {
			drain(r)
			w.Header().Set("Content-Type", "application/proto")
			write(w, one)
			flush(w)
			<-r.Context().Done()
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(io.EOF) })
		list, err := f.inMemory(t).Files.List(ctx, "/", nil)
		requireDataKinds(t, err, context.Canceled)
		require.Empty(t, list)
	})
}
