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

// slowReader takes a while for each byte.
type slowReader struct {
	take time.Duration
	left int
}

func (r *slowReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	<-time.After(r.take)
	r.left--
	p[0] = 'x'
	return 1, nil
}

func TestIdleWaitsForWhatMoves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, idle := WithIdle(t.Context(), time.Minute)
		defer idle.Release()
		start := time.Now()
		r := idle.FromWire(&slowReader{50 * time.Second, 6})
		for range 6 {
			n, err := r.Read(make([]byte, 1))
			require.NoError(t, err)
			require.Equal(t, 1, n)
			<-time.After(time.Hour) // what a reader takes for itself is not the server's
		}
		require.NoError(t, ctx.Err())
		require.Equal(t, 300*time.Second+6*time.Hour, time.Since(start))
		_, _ = idle.FromWire(&slowReader{time.Minute + time.Second, 1}).Read(make([]byte, 1))
		require.ErrorIs(t, context.Cause(ctx), ErrTimeout)
		idle.Start() // too late, and harmless
	})
}

func TestIdleDoesNotCountTheSource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, idle := WithIdle(t.Context(), time.Minute)
		defer idle.Release()
		r := idle.ToWire(&slowReader{time.Hour, 2})
		for range 2 {
			_, err := r.Read(make([]byte, 1))
			require.NoError(t, err)
			<-time.After(50 * time.Second) // on the wire
		}
		require.NoError(t, ctx.Err())
		_, err := r.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		sent := time.Now()
		<-ctx.Done()
		require.Equal(t, time.Minute, time.Since(sent))
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
		require.Same(t, r, idle.FromWire(r))
		require.Same(t, r, idle.ToWire(r))
		idle.Start()
		idle.Stop()
		idle.Release()
		require.NoError(t, ctx.Err())
	}
}
