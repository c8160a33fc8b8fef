package e2btest

import (
	"context"
	"net"
)

// A faultyListener breaks off the connections that a fault hits.
type faultyListener struct {
	net.Listener
	faults *faultList
	side   Side
}

// Accept returns the next connection that no fault hits.
func (l *faultyListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || !l.faults.refuses(l.side) {
			return c, err
		}
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // where that fails, the client sees an end and no reset
		}
		_ = c.Close() // there is nothing to lose
	}
}

// refuses counts a new connection and reports whether it is hit.
func (l *faultList) refuses(side Side) bool {
	for _, in := range l.now() {
		f := &in.fault
		if f.Cut == CutConnect && (f.To == "" || f.To == side) && l.fires(in) {
			l.log.DebugContext(context.Background(), "a fault hits a new connection", "side", string(side))
			return true
		}
	}
	return false
}
