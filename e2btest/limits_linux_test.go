package e2btest_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
)

// What runs in a sandbox has no more than the limits, and what goes beyond fails alone.
func TestLimitsOfALocalSandbox(t *testing.T) {
	server, err := e2btest.NewServer(&e2btest.Options{Dir: t.TempDir(), MemoryLimit: 64 << 20, ProcessLimit: 30})
	for _, why := range []error{
		fs.ErrPermission, unix.EROFS,
		fs.ErrNotExist, // the group above does not give the controller on
		unix.EBUSY,     // there is none above that this user sees, as in a container
	} {
		if errors.Is(err, why) {
			t.Skip("this user cannot limit processes on this system: ", err)
		}
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	client, err := e2b.NewClient(server.ClientOptions())
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	sbx, err := client.Create(t.Context(), nil)
	require.NoError(t, err)

	// Of two shells one ends when it cannot fork, and the other kills what there is.
	const fill = "exec sh -c '(while :; do sleep 3600 >/dev/null 2>&1 & echo; done); kill -9 -1'"
	res, err := sbx.Commands.Run(t.Context(), fill, nil)
	require.NoError(t, err)
	require.Len(t, res.Stdout, 28)

	_, err = sbx.Commands.Run(t.Context(), `x=$(head -c 200M /dev/zero | tr '\0' x)`, nil)
	exit, ok := errors.AsType[*e2b.ExitError](err)
	require.True(t, ok, err)
	require.ErrorContains(t, exit, "killed")
	res, err = sbx.Commands.Run(t.Context(), "echo on", nil)
	require.NoError(t, err)
	require.Equal(t, "on\n", string(res.Stdout))
}
