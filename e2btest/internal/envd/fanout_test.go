//go:build linux || darwin

package envd

import (
	"io"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
)

func numbered(i int) *process.ProcessEvent {
	return &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: stdoutOutput([]byte(strconv.Itoa(i)))}}
}

// take takes the next n events, which must be queued.
func take(t *testing.T, s *subscriber, n int) []string {
	t.Helper()
	var texts []string
	for range n {
		ev, err := s.next()
		require.NoError(t, err)
		require.NotNil(t, ev)
		texts = append(texts, string(ev.GetData().GetStdout()))
	}
	return texts
}

// drain takes what is queued.
func drain(t *testing.T, s *subscriber) []string {
	t.Helper()
	var texts []string
	for {
		ev, err := s.next()
		require.NoError(t, err)
		if ev == nil {
			return texts
		}
		texts = append(texts, string(ev.GetData().GetStdout()))
	}
}

// publishing publishes n events in the background and closes the channel when all
// are taken.
func publishing(f *fanout, n int) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range n {
			f.publish(numbered(i))
		}
	}()
	return done
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestFanoutWaitsForItsOnlyReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFanout(time.Second)
		s := f.subscribe()
		done := publishing(f, maxQueued+1)
		<-time.After(24 * time.Hour) // fake: the reader is never dropped
		require.False(t, isClosed(done))
		take(t, s, maxQueued)
		synctest.Wait()
		require.True(t, isClosed(done))
		require.Equal(t, []string{strconv.Itoa(maxQueued)}, drain(t, s))
	})
}

func TestFanoutDropsWhoStopsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFanout(time.Second)
		fast, stalled := f.subscribe(), f.subscribe()
		const total = 10 * maxQueued
		begin := time.Now()
		done := publishing(f, total)
		var got []string
		for len(got) < total {
			<-fast.ready
			got = append(got, drain(t, fast)...)
		}
		<-done
		require.Equal(t, time.Second, time.Since(begin))
		for i, text := range got {
			require.Equal(t, strconv.Itoa(i), text)
		}
		// What was queued is not lost, and then comes the reason.
		for i := range maxQueued {
			ev, err := stalled.next()
			require.NoError(t, err)
			require.Equal(t, strconv.Itoa(i), string(ev.GetData().GetStdout()))
		}
		_, err := stalled.next()
		require.ErrorIs(t, err, errTooSlow)
	})
}

func TestFanoutDropsNobodyWhileAllStandStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFanout(time.Second)
		a, b := f.subscribe(), f.subscribe()
		done := publishing(f, maxQueued+1)
		<-time.After(time.Hour)
		require.False(t, isClosed(done))
		// One goes on: the other has the grace from now.
		take(t, a, maxQueued)
		<-time.After(time.Second - time.Nanosecond)
		synctest.Wait()
		require.False(t, isClosed(done))
		take(t, b, maxQueued)
		synctest.Wait()
		require.True(t, isClosed(done))
		require.Equal(t, []string{strconv.Itoa(maxQueued)}, drain(t, a))
		require.Equal(t, []string{strconv.Itoa(maxQueued)}, drain(t, b))
	})
}

// A reader whom nobody waits for any more is not in the way of anyone.
func TestFanoutForgivesWhenTheOthersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFanout(time.Second)
		a, b := f.subscribe(), f.subscribe()
		done := publishing(f, maxQueued+1)
		synctest.Wait()
		take(t, a, 2)
		<-time.After(time.Second / 2)
		a.leave()
		<-time.After(time.Hour)
		require.False(t, isClosed(done))
		take(t, b, maxQueued)
		synctest.Wait()
		require.True(t, isClosed(done))
	})
}

func TestFanoutReaderThatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFanout(time.Second)
		f.subscribe() // never reads
		done := publishing(f, maxQueued+2)
		synctest.Wait()
		late := f.subscribe()
		<-done
		require.Equal(t, []string{strconv.Itoa(maxQueued + 1)}, drain(t, late), "the event before was already being delivered")
	})
}

func TestFanoutReaderThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFanout(time.Second)
		s := f.subscribe()
		done := publishing(f, maxQueued+1)
		synctest.Wait()
		require.False(t, isClosed(done))
		s.leave()
		s.leave()
		synctest.Wait()
		require.True(t, isClosed(done))
		require.False(t, f.heard())
	})
}

func TestFanoutOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFanout(time.Second)
		s := f.subscribe()
		done := publishing(f, maxQueued+5)
		synctest.Wait()
		require.False(t, isClosed(done))
		close(f.over)
		<-done
		end := endEvent(nil, io.ErrUnexpectedEOF)
		f.finish(end)
		require.False(t, f.heard())
		for range maxQueued {
			ev, err := s.next()
			require.NoError(t, err)
			require.NotNil(t, ev.GetData())
		}
		ev, err := s.next()
		require.NoError(t, err)
		require.Same(t, end, ev)
		_, err = s.next()
		require.ErrorIs(t, err, io.EOF)

		after := f.subscribe()
		<-after.ready
		ev, err = after.next()
		require.NoError(t, err)
		require.Same(t, end, ev)
	})
}
