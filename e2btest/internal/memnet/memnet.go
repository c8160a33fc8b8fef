// Package memnet has network connections in memory, which need no system call and
// so do not stop the time of a bubble of testing/synctest.
package memnet

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// A Listener accepts the connections that Dial makes.
type Listener struct {
	name   string
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Listen returns a Listener; name is its address.
func Listen(name string) *Listener {
	return &Listener{name: name, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Dial connects to the listener once it accepts. After Close it returns
// net.ErrClosed.
func (l *Listener) Dial(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It may be called again.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Done is closed by Close.
func (l *Listener) Done() <-chan struct{} { return l.closed }

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return address(l.name) }

// A Server serves HTTP in memory.
type Server struct {
	listener *Listener
	http     *http.Server
	served   chan struct{} // closed when it serves no longer
}

// Serve starts a Server, which is to be closed.
func Serve(name string, handler http.Handler) *Server {
	s := &Server{Listen(name), &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}, make(chan struct{})}
	go func() {
		defer close(s.served)
		_ = s.http.Serve(s.listener) // until Close
	}()
	return s
}

// Dial connects to the server. After Close it returns net.ErrClosed.
func (s *Server) Dial(ctx context.Context) (net.Conn, error) { return s.listener.Dial(ctx) }

// Close cuts all connections. It does not wait for handlers. It may be called again.
func (s *Server) Close() {
	_ = s.listener.Close() // has no error
	_ = s.http.Close()     // neither, and the connections are gone anyway
	<-s.served
}

type address string

func (address) Network() string  { return "memory" }
func (a address) String() string { return string(a) }
