//go:build linux || darwin

package agent

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// startForward returns a function that connects to a forwarder.
func startForward(t *testing.T) func() *net.UnixConn {
	t.Helper()
	addr := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"}
	l, err := net.ListenUnix("unix", addr)
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() { forward(l) })
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		wg.Wait()
	})
	return func() *net.UnixConn {
		conn, err := net.DialUnix("unix", nil, addr)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		return conn
	}
}

// upperCase serves one connection: all that it gets, in upper case and after the
// end of the input.
func upperCase(t *testing.T, address string) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil && strings.Contains(address, "::1") {
		t.Skip("this machine has no IPv6: ", err)
	}
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		data, err := io.ReadAll(conn)
		if err == nil {
			_, _ = io.WriteString(conn, strings.ToUpper(string(data)))
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr().(*net.TCPAddr).Port
}

func answer(t *testing.T, conn io.Reader) string {
	t.Helper()
	got := make([]byte, len(PortOpen))
	_, err := io.ReadFull(conn, got)
	require.NoError(t, err)
	return string(got)
}

func TestForward(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			port := upperCase(t, address)
			conn := startForward(t)()
			_, err := fmt.Fprintf(conn, "%d\n", port)
			require.NoError(t, err)
			require.Equal(t, PortOpen, answer(t, conn))

			message := strings.Repeat("half closed ", 100_000)
			_, err = io.WriteString(conn, message)
			require.NoError(t, err)
			require.NoError(t, conn.CloseWrite())
			got, err := io.ReadAll(conn)
			require.NoError(t, err)
			require.Equal(t, strings.ToUpper(message), string(got))
		})
	}
}

func TestForwardClosedPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	dial := startForward(t)
	for _, request := range []string{
		fmt.Sprintf("%d\n", port), "x\n", "-1\n", "65536\n", "\n", strings.Repeat("1", 64) + "\n",
	} {
		conn := dial()
		_, err := io.WriteString(conn, request)
		require.NoError(t, err)
		require.Equal(t, PortClosed, answer(t, conn), "%q", request)
	}
}

// A server that goes away ends the connection of the client.
func TestForwardServerCloses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	conn := startForward(t)()
	_, err = fmt.Fprintf(conn, "%d\n", l.Addr().(*net.TCPAddr).Port)
	require.NoError(t, err)
	server, err := l.Accept()
	require.NoError(t, err)
	require.Equal(t, PortOpen, answer(t, conn))
	require.NoError(t, server.Close())
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}
