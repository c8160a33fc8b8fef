package transport

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestIdleEndsWhatStandsStill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, idle := WithIdle(t.Context(), time.Minute)
		defer idle.Release()
		<-ctx.Done()
		require.Equal(t, time.Minute, time.Since(start))
		require.ErrorIs(t, context.Cause(ctx), ErrTimeout)
	})
}

func TestIdleWaitsForWhatMoves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, idle := WithIdle(t.Context(), time.Minute)
		defer idle.Release()
		start := time.Now()
		r := idle.Reader(strings.NewReader("abcdef"))
		tick := time.NewTicker(50 * time.Second)
		defer tick.Stop()
		for range 6 {
			<-tick.C
			n, err := io.ReadFull(r, make([]byte, 1))
			require.NoError(t, err)
			require.Equal(t, 1, n)
		}
		require.NoError(t, ctx.Err())
		// Reading nothing is no movement.
		_, err := r.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		<-ctx.Done()
		require.Equal(t, 300*time.Second+time.Minute, time.Since(start))
		idle.Touch() // too late, and harmless
		require.ErrorIs(t, context.Cause(ctx), ErrTimeout)
	})
}

func TestIdleStopAndRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, idle := WithIdle(t.Context(), time.Minute)
		idle.Stop()
		wait := time.NewTimer(time.Hour)
		<-wait.C
		require.NoError(t, ctx.Err(), "the limit was lifted")
		idle.Release()
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		require.NotErrorIs(t, context.Cause(ctx), ErrTimeout)
	})
}

func TestIdleWithoutLimit(t *testing.T) {
	t.Parallel()
	for _, limit := range []time.Duration{0, -1} {
		ctx, idle := WithIdle(t.Context(), limit)
		require.Equal(t, t.Context(), ctx)
		r := strings.NewReader("x")
		require.Same(t, r, idle.Reader(r))
		idle.Touch()
		idle.Stop()
		idle.Release()
		require.NoError(t, ctx.Err())
	}
}
