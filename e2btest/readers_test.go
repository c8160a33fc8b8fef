//go:build linux || darwin

package e2btest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
)

// counter counts what is written to it.
type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// stuck is a writer that takes nothing until it is let go.
type stuck struct {
	counter
	let chan struct{}
}

func (s *stuck) Write(p []byte) (int, error) {
	<-s.let
	return s.counter.Write(p)
}

// Of two readers of one process, the one that stands still is dropped, and the other
// one gets everything.
func TestReaderBesidesAStuckOne(t *testing.T) {
	const size = 32 << 20
	_, client := e2btest.New(t, nil)
	sbx, err := client.Create(t.Context(), nil)
	require.NoError(t, err)
	var all counter
	process, err := sbx.Commands.Start(t.Context(), "read x; head -c 33554432 /dev/zero", &e2b.RunOptions{KeepStdin: true, Stdout: &all})
	require.NoError(t, err)
	still := &stuck{let: make(chan struct{})}
	other, err := sbx.Commands.Attach(t.Context(), process.PID(), &e2b.AttachOptions{Stdout: still})
	require.NoError(t, err)

	_, err = process.Write([]byte("\n"))
	require.NoError(t, err)
	result, err := process.Wait(t.Context())
	require.NoError(t, err)
	require.Zero(t, result.ExitCode)
	require.EqualValues(t, size, all)

	close(still.let)
	_, err = other.Wait(t.Context())
	require.ErrorContains(t, err, "output was not read for too long")
	require.Positive(t, still.counter, "what was on its way is not lost")
	require.Less(t, still.counter, counter(size))
}
