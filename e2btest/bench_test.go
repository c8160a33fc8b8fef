//go:build linux || darwin

package e2btest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/agent/proctab"
)

// A stopwatch collects durations.
type stopwatch []time.Duration

func (s *stopwatch) time(tb testing.TB, f func() error) {
	tb.Helper()
	began := time.Now()
	err := f()
	*s = append(*s, time.Since(began))
	require.NoError(tb, err)
}

// report reports the median.
func (s *stopwatch) report(b *testing.B, what string) {
	b.Helper()
	slices.Sort(*s)
	b.ReportMetric(float64((*s)[len(*s)/2])/float64(time.Millisecond), what+"-p50-ms")
}

func BenchmarkCreateRunKill(b *testing.B) {
	b.Run("by=local", func(b *testing.B) {
		_, client := New(b, nil)
		var whole, creates, runs, kills stopwatch
		for b.Loop() {
			began := time.Now()
			var sbx *e2b.Sandbox
			creates.time(b, func() (err error) { sbx, err = client.Create(b.Context(), nil); return err })
			runs.time(b, func() error { _, err := sbx.Commands.Run(b.Context(), "true", nil); return err })
			kills.time(b, func() error { _, err := sbx.Kill(b.Context()); return err })
			whole = append(whole, time.Since(began))
		}
		whole.report(b, "whole")
		creates.report(b, "create")
		runs.report(b, "run")
		kills.report(b, "kill")
	})
}

func BenchmarkPauseConnect(b *testing.B) {
	b.Run("by=local", func(b *testing.B) {
		_, client := New(b, nil)
		sbx, err := client.Create(b.Context(), nil)
		require.NoError(b, err)
		var pauses, connects stopwatch
		for b.Loop() {
			pauses.time(b, func() error { _, err := sbx.Pause(b.Context(), nil); return err })
			connects.time(b, func() error { return sbx.Connect(b.Context(), nil) })
		}
		pauses.report(b, "pause")
		connects.report(b, "connect")
	})
}

// Many sandboxes at a time, and what memory each one takes: all processes together
// with the server itself, compared with before.
func BenchmarkIdleSandboxes(b *testing.B) {
	for _, n := range []int{50, 500} {
		b.Run(fmt.Sprintf("n=%d/by=local", n), func(b *testing.B) {
			for b.Loop() {
				_, client := New(b, &Options{MaxSandboxes: n})
				before := memoryInUse(b)
				each := func(what string, f func(sbx *e2b.Sandbox) error, sandboxes []*e2b.Sandbox) {
					began := time.Now()
					require.NoError(b, forEach(sandboxes, f))
					b.ReportMetric((memoryInUse(b)-before)/float64(n), what+"-B/sandbox")
					b.ReportMetric(time.Since(began).Seconds(), what+"-s")
				}
				sandboxes := make([]*e2b.Sandbox, n)
				began := time.Now()
				require.NoError(b, createAll(b.Context(), client, sandboxes))
				b.ReportMetric(time.Since(began).Seconds(), "create-s")
				each("idle", func(sbx *e2b.Sandbox) error { _, err := sbx.Commands.Run(b.Context(), "true", nil); return err }, sandboxes)
				each("paused", func(sbx *e2b.Sandbox) error { _, err := sbx.Pause(b.Context(), nil); return err }, sandboxes)
				each("connected", func(sbx *e2b.Sandbox) error { return sbx.Connect(b.Context(), nil) }, sandboxes)
				each("killed", func(sbx *e2b.Sandbox) error { _, err := sbx.Kill(b.Context()); return err }, sandboxes)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// createAll fills a list with sandboxes.
func createAll(ctx context.Context, client *e2b.Client, sandboxes []*e2b.Sandbox) error {
	slots := make([]int, len(sandboxes))
	for i := range slots {
		slots[i] = i
	}
	return forEach(slots, func(i int) (err error) {
		sandboxes[i], err = client.Create(ctx, nil)
		return err
	})
}

// forEach calls f for all items, eight at a time.
func forEach[T any](items []T, f func(T) error) error {
	work := make(chan T)
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for item := range work {
				errs[i] = errors.Join(errs[i], f(item))
			}
		})
	}
	for _, item := range items {
		work <- item
	}
	close(work)
	wg.Wait()
	return errors.Join(errs...)
}

// memoryInUse is that of this process and of all below it, in bytes. What some of them
// share counts once.
func memoryInUse(b *testing.B) float64 {
	b.Helper()
	table, err := proctab.List()
	require.NoError(b, err)
	sum := 0.0
	for _, p := range append(proctab.Below(table, os.Getpid(), nil), proctab.Process{PID: os.Getpid()}) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.PID))
		if err != nil {
			b.Skip("the memory of processes cannot be read here: ", err)
		}
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); fields[0] == "Pss:" {
				kib, err := strconv.ParseFloat(fields[1], 64)
				require.NoError(b, err)
				sum += kib * 1024
			}
		}
	}
	return sum
}

// Many sandboxes at a time keep apart, through a pause.
func TestManySandboxes(t *testing.T) {
	const n = 20
	server, client := New(t, nil)
	sandboxes := make([]*e2b.Sandbox, n)
	require.NoError(t, createAll(t.Context(), client, sandboxes))
	require.NoError(t, forEach(sandboxes, func(sbx *e2b.Sandbox) error {
		_, err := sbx.Commands.Run(t.Context(), "echo $E2B_SANDBOX_ID > whose", nil)
		return err
	}))
	require.NoError(t, forEach(sandboxes, func(sbx *e2b.Sandbox) error { _, err := sbx.Pause(t.Context(), nil); return err }))
	for _, status := range server.Sandboxes() {
		require.Equal(t, "paused", status.State)
	}
	require.NoError(t, forEach(sandboxes, func(sbx *e2b.Sandbox) error { return sbx.Connect(t.Context(), nil) }))
	require.NoError(t, forEach(sandboxes, func(sbx *e2b.Sandbox) error {
		got, err := sbx.Files.Read(t.Context(), "whose", nil)
		if err == nil && string(got) != sbx.ID()+"\n" {
			err = fmt.Errorf("%s has the file of %s", sbx.ID(), got)
		}
		return err
	}))
	require.NoError(t, forEach(sandboxes, func(sbx *e2b.Sandbox) error { _, err := sbx.Kill(t.Context()); return err }))
	require.Empty(t, children(t))
}
