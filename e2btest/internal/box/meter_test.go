//go:build linux || darwin

package box_test

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/box"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

func (g *guest) usage(t testing.TB) node.Usage {
	t.Helper()
	u, err := g.Sandbox.(node.Meter).Usage(t.Context())
	require.NoError(t, err)
	return u
}

func TestUsage(t *testing.T) {
	forEachMode(t, func(t *testing.T, n *box.Node) {
		g := start(t, n, "a")
		g.run(t, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; head -c 3000000 /dev/zero >file")
		eventually(t, func() bool { return g.usage(t).CPU >= 20*time.Millisecond }, "what has ended does not count")
		eventually(t, func() bool { return g.usage(t).Disk >= 3_000_000 }, "its files do not count")
		require.Less(t, g.usage(t).Disk, int64(20_000_000))
		if runtime.GOOS == "linux" {
			before := g.usage(t)
			g.startCounter(t)
			eventually(t, func() bool { return g.usage(t).CPU >= before.CPU+20*time.Millisecond }, "what runs does not count")
			require.Greater(t, g.usage(t).Memory, before.Memory)
			require.Less(t, g.usage(t).Memory, int64(100_000_000), "not the agent, nor anything of the host")
		}
	})
}

func TestProcesses(t *testing.T) {
	forEachMode(t, func(t *testing.T, n *box.Node) {
		g := start(t, n, "a")
		g.run(t, "(exec >/dev/null 2>&1; exec sleep 4321) &")
		commands := func() []string {
			list, err := g.Sandbox.(node.Meter).Processes(t.Context())
			require.NoError(t, err)
			var commands []string
			for _, p := range list {
				require.Positive(t, p.PID)
				commands = append(commands, p.Command)
			}
			return commands
		}
		eventually(t, func() bool {
			list := commands()
			return len(list) == 1 && strings.HasPrefix(list[0], "sleep")
		}, "it is not alone")
		start(t, n, "b").startCounter(t)
		require.False(t, slices.ContainsFunc(commands(), func(c string) bool { return strings.Contains(c, "bash") }), "of another sandbox")
	})
}

// What does not run is not measured.
func TestUsageWhilePaused(t *testing.T) {
	forEachMode(t, func(t *testing.T, n *box.Node) {
		g := start(t, n, "a")
		m := g.Sandbox.(node.Meter)
		for _, memory := range []bool{true, false} {
			require.NoError(t, g.Pause(t.Context(), memory))
			_, err := m.Usage(t.Context())
			require.ErrorIs(t, err, node.ErrBusy)
			_, err = m.Processes(t.Context())
			require.ErrorIs(t, err, node.ErrBusy)
			require.NoError(t, g.Resume(t.Context(), false))
			g.usage(t)
		}
		require.NoError(t, g.Kill())
		_, err := m.Usage(t.Context())
		require.ErrorIs(t, err, node.ErrBusy)
	})
}
