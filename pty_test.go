package e2b_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

// until reads what a terminal prints until it has printed want.
func until(t *testing.T, r io.Reader, want string) string {
	t.Helper()
	var seen bytes.Buffer
	buf := make([]byte, 4096)
	for !strings.Contains(seen.String(), want) {
		n, err := r.Read(buf)
		seen.Write(buf[:n])
		require.NoError(t, err, "%q", seen.String())
	}
	return seen.String()
}

func typeIn(t *testing.T, w io.Writer, line string) {
	t.Helper()
	_, err := io.WriteString(w, line+"\r")
	require.NoError(t, err)
}

func TestG15Terminal(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	term, err := sbx.PTY.Start(t.Context(), nil)
	require.NoError(t, err)
	typeIn(t, term, "stty size; echo $TERM $LANG $LC_ALL; echo do''ne")
	seen := until(t, term, "done\r\n")
	require.Contains(t, seen, "24 80\r\n")
	require.Contains(t, seen, "xterm-256color C.UTF-8 C.UTF-8\r\n")
	require.NoError(t, term.Resize(t.Context(), 100, 40))
	typeIn(t, term, "stty size; echo do''ne")
	require.Contains(t, until(t, term, "done\r\n"), "40 100\r\n")

	// Disconnecting does not end it.
	require.NoError(t, term.Close())
	require.NoError(t, term.Close())
	_, err = term.Read(make([]byte, 1))
	require.ErrorIs(t, err, e2b.ErrClosed)
	_, err = term.Write([]byte("x"))
	require.ErrorIs(t, err, e2b.ErrClosed)
	_, err = term.Wait(t.Context())
	require.ErrorIs(t, err, e2b.ErrClosed)
	again, err := sbx.PTY.Attach(t.Context(), term.PID())
	require.NoError(t, err)
	typeIn(t, again, "echo ali''ve; exit 7")
	until(t, again, "alive\r\n")
	_, err = io.Copy(io.Discard, again)
	require.NoError(t, err, "the end of the shell is the end of what is read")
	code, err := again.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, 7, code)
	killed, err := again.Kill(t.Context())
	require.NoError(t, err)
	require.False(t, killed)
	_, err = sbx.PTY.Attach(t.Context(), 999_999)
	require.ErrorIs(t, err, e2b.ErrProcessNotFound)
}

func TestG16TwoTerminals(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	require.NoError(t, sbx.Files.Write(t.Context(), "/data/a/x", nil, nil))
	require.NoError(t, sbx.Files.Write(t.Context(), "/data/b/x", nil, nil))
	var terms []*e2b.Terminal
	for _, dir := range []string{"/data/a", "/data/b"} {
		term, err := sbx.PTY.Start(t.Context(), &e2b.TerminalOptions{Tag: dir, Cols: 120, Rows: 50, Env: map[string]string{"TERM": "dumb"}})
		require.NoError(t, err)
		typeIn(t, term, "cd "+dir)
		terms = append(terms, term)
	}
	for i, dir := range []string{"/data/a", "/data/b"} {
		typeIn(t, terms[i], "echo at:$(pwd):$TERM")
		require.Contains(t, until(t, terms[i], "at:"+dir), "at:"+dir)
		killed, err := terms[i].Kill(t.Context())
		require.NoError(t, err)
		require.True(t, killed)
		_, err = io.Copy(io.Discard, terms[i])
		require.NoError(t, err)
		code, err := terms[i].Wait(t.Context())
		exit, ok := errors.AsType[*e2b.ExitError](err)
		require.True(t, ok)
		require.Equal(t, "killed", exit.Signal)
		require.Equal(t, -1, code)
	}
}

func TestTerminalCommand(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	term, err := sbx.PTY.Start(t.Context(), &e2b.TerminalOptions{Cmd: "cat -v", Dir: "/tmp"})
	require.NoError(t, err)
	typeIn(t, term, "ü")
	until(t, term, "M-CM-<")
	_, err = term.Write([]byte("\x04"))
	require.NoError(t, err)
	code, err := term.Wait(t.Context())
	require.NoError(t, err)
	require.Zero(t, code)
}

func TestTerminalPauseAndClose(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	term, err := sbx.PTY.Start(t.Context(), nil)
	require.NoError(t, err)
	_, err = sbx.Pause(t.Context(), nil)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, term)
	require.ErrorIs(t, err, e2b.ErrSandboxNotRunning)
	require.NoError(t, sbx.Connect(t.Context(), nil))
	term, err = sbx.PTY.Attach(t.Context(), term.PID())
	require.NoError(t, err)
	typeIn(t, term, "echo st''ill")
	until(t, term, "still\r\n")

	// Close ends a Read under way, also when output waits that nobody takes.
	typeIn(t, term, "yes")
	_, err = bufio.NewReader(term).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, term.Close())
	_, err = term.Read(make([]byte, 1))
	require.ErrorIs(t, err, e2b.ErrClosed)
	_, err = sbx.Commands.Kill(t.Context(), term.PID())
	require.NoError(t, err)
}

func TestTerminalRefuses(t *testing.T) {
	t.Parallel()
	f := newFakeSandbox()
	sbx, ctx := f.inMemory(t), t.Context()
	for _, o := range []*e2b.TerminalOptions{
		{Cols: -1}, {Rows: 65536}, {Cmd: "a\x00"}, {User: "a:b"}, {Dir: "\x00"}, {Env: map[string]string{"": "x"}}, {Tag: "\xff"},
	} {
		_, err := sbx.PTY.Start(ctx, o)
		require.ErrorIs(t, err, e2b.ErrInvalidArgument, "%+v", o)
	}
	_, err := sbx.PTY.Attach(ctx, 0)
	require.ErrorIs(t, err, e2b.ErrInvalidArgument)
	require.Empty(t, f.requests("/"))
}

func TestG9Stdin(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	var out bytes.Buffer
	p, err := sbx.Commands.Start(t.Context(), "cat", &e2b.RunOptions{KeepStdin: true, Stdout: &out})
	require.NoError(t, err)
	big := bytes.Repeat([]byte("0123456789abcdef"), 20<<10)
	n, err := p.Write(big)
	require.NoError(t, err)
	require.Equal(t, len(big), n)
	_, err = io.WriteString(p, "end")
	require.NoError(t, err)
	require.NoError(t, p.CloseStdin())
	res, err := p.Wait(t.Context())
	require.NoError(t, err)
	require.Zero(t, res.ExitCode)
	require.Equal(t, string(big)+"end", out.String())
	_, err = p.Write([]byte("late"))
	require.ErrorIs(t, err, e2b.ErrClosed)
	require.ErrorIs(t, p.CloseStdin(), e2b.ErrClosed)

	p, err = sbx.Commands.Start(t.Context(), "exec sleep 999", &e2b.RunOptions{KeepStdin: true})
	require.NoError(t, err)
	other, err := sbx.Commands.Attach(t.Context(), p.PID(), nil)
	require.NoError(t, err)
	_, err = other.Write([]byte("from elsewhere"))
	require.NoError(t, err)
	require.NoError(t, other.Close())
	require.NoError(t, p.CloseStdin())
	require.NoError(t, p.CloseStdin())
	_, err = p.Write([]byte("x"))
	require.ErrorIs(t, err, e2b.ErrClosed)
	_, err = p.Kill(t.Context())
	require.NoError(t, err)
	_, err = p.Wait(t.Context())
	var exit *e2b.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, "killed", exit.Signal)
}

func TestStdinNotKept(t *testing.T) {
	t.Parallel()
	f := newFakeSandbox()
	f.start = func(ctx context.Context, _ *startRequest, s *startStream) error {
		if err := send(s, evStart(7)); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
	sbx := f.inMemory(t)
	p, err := sbx.Commands.Start(t.Context(), "cat", nil)
	require.NoError(t, err)
	_, err = p.Write([]byte("x"))
	require.ErrorIs(t, err, e2b.ErrClosed)
	require.ErrorContains(t, err, "KeepStdin")
	require.ErrorIs(t, p.CloseStdin(), e2b.ErrClosed)
	require.Empty(t, f.requests("/process.Process/SendInput"))
	require.NoError(t, p.Close())
	_, err = p.Wait(t.Context())
	require.ErrorIs(t, err, e2b.ErrClosed)
	_, err = sbx.Commands.Run(t.Context(), "cat", &e2b.RunOptions{KeepStdin: true})
	require.ErrorIs(t, err, e2b.ErrInvalidArgument)
}

// TestCloseUnblocksWrite has a command that takes no input.
func TestCloseUnblocksWrite(t *testing.T) {
	t.Parallel()
	f := newFakeSandbox()
	began := make(chan struct{})
	f.start = func(ctx context.Context, _ *startRequest, s *startStream) error {
		if err := send(s, evStart(7)); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
	f.stdin = func(ctx context.Context, _ uint32, _ []byte) error {
		close(began)
		<-ctx.Done()
		return ctx.Err()
	}
	p, err := f.inMemory(t).Commands.Start(t.Context(), "sleep 1", &e2b.RunOptions{KeepStdin: true})
	require.NoError(t, err)
	wrote := make(chan error, 1)
	go func() {
		_, err := p.Write([]byte("x"))
		wrote <- err
	}()
	<-began
	require.NoError(t, p.Close())
	select {
	case err := <-wrote:
		require.ErrorIs(t, err, e2b.ErrClosed)
	case <-time.After(10 * time.Second):
		t.Fatal("Write still blocks")
	}
}
