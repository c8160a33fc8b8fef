package e2btest

import (
	"net/http"

	e2b "github.com/seed-09a7379d/e2b-go"
)

// TB is what New needs of a *testing.T, *testing.B or *testing.F. It stands here so
// that programs which use this package do not link package testing.
type TB interface {
	Helper()
	Cleanup(f func())
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// New starts a server for a test, with a client of it, and ends both with the test.
// opts may be nil. It says in the test's log when sandboxes are not isolated, and at the
// end which faults of the server have hit nothing.
func New(tb TB, opts *Options) (*Server, *e2b.Client) {
	tb.Helper()
	server, err := NewServer(opts)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	client, err := e2b.NewClient(server.ClientOptions())
	if err != nil {
		_ = server.Close() // the other error is the one to tell
		tb.Fatalf("e2btest: %v", err)
	}
	if ok, reason := server.Isolated(); !ok {
		tb.Logf("e2btest: sandboxes are not isolated: %s", reason)
	}
	tb.Cleanup(func() {
		tb.Helper()
		client.CloseIdleConnections()
		for _, f := range server.Faults() {
			if f.Fired == 0 {
				tb.Logf("e2btest: this fault never fired: %v", f.Fault)
			}
		}
		if err := server.Close(); err != nil {
			tb.Fatalf("%v", err)
		}
	})
	return server, client
}

// ClientOptions returns options for a client of the server, with the key of
// Options.APIKey, and with a Transport if there is no other way to the server.
func (s *Server) ClientOptions() *e2b.ClientOptions {
	o := &e2b.ClientOptions{APIKey: s.APIKey(), APIURL: s.APIURL(), SandboxURL: s.SandboxURL(), Domain: s.Domain()}
	if s.memory != nil {
		o.Transport = &http.Transport{DialContext: s.memory.dial}
	}
	return o
}
