//go:build linux || darwin

package agent

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// forward connects those who come to l to the port they ask for, until l is
// closed.
func forward(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			upstream, err := connect(conn)
			if err != nil {
				_, _ = io.WriteString(conn, PortClosed) // else nobody is there to tell
				return
			}
			defer upstream.Close()
			if _, err := io.WriteString(conn, PortOpen); err == nil {
				splice(conn, upstream)
			}
		}()
	}
}

// connect reads which port conn is for, and connects to it.
func connect(conn net.Conn) (net.Conn, error) {
	// The client writes no more than the line before it has the answer.
	line, err := bufio.NewReaderSize(io.LimitReader(conn, 16), 16).ReadString('\n')
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(strings.TrimSuffix(line, "\n"), 10, 16)
	if err != nil {
		return nil, fmt.Errorf("port: %w", err)
	}
	// Loopback answers at once, unless the listener's queue is full.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var dialer net.Dialer
	upstream, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.FormatUint(port, 10)))
	if err != nil {
		upstream, err = dialer.DialContext(ctx, "tcp", net.JoinHostPort("::1", strconv.FormatUint(port, 10)))
	}
	return upstream, err
}

// splice copies in both directions until both have ended.
func splice(a, b net.Conn) {
	var wg sync.WaitGroup
	pass := func(dst, src net.Conn) {
		_, err := io.Copy(dst, src)
		if half, ok := dst.(interface{ CloseWrite() error }); ok && err == nil {
			err = half.CloseWrite()
		}
		if err != nil {
			// One side is gone: what the other still says has no reader.
			a.Close()
			b.Close()
		}
	}
	wg.Go(func() { pass(a, b) })
	wg.Go(func() { pass(b, a) })
	wg.Wait()
}
