package transport

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// A SourceError is an error of the reader of what was to be sent.
type SourceError struct{ Err error }

func (e *SourceError) Error() string { return "contents: " + e.Err.Error() }

func (e *SourceError) Unwrap() error { return e.Err }

// A Source is the caller's reader, of which net/http must let go when a call
// returns: it may go on to read a body in the background.
type Source struct {
	turn chan struct{} // of one place: taken during a Read
	over atomic.Bool
	read atomic.Int64 // of the last reader
	end  atomic.Bool  // it was read to its end
}

// NewSource returns a Source for one call.
func NewSource() *Source { return &Source{turn: make(chan struct{}, 1)} }

var errSourceClosed = errors.New("the call that sends this has returned")

// Reader returns r, as net/http may have it. There can be one after the other, of
// the same contents.
func (s *Source) Reader(r io.Reader) io.Reader {
	s.read.Store(0)
	return sourceReader{s, r}
}

// whole reports whether all was taken, of which there are size bytes, or -1.
func (s *Source) whole(size int64) bool { return s.end.Load() || s.read.Load() == size }

type sourceReader struct {
	s *Source
	r io.Reader
}

func (r sourceReader) Read(p []byte) (int, error) {
	r.s.turn <- struct{}{}
	defer func() { <-r.s.turn }()
	if r.s.over.Load() {
		return 0, errSourceClosed
	}
	n, err := r.r.Read(p)
	r.s.read.Add(int64(n))
	switch {
	case err == io.EOF: // as io.Reader has it: a wrapped one is an error
		r.s.end.Store(true)
	case err != nil:
		err = &SourceError{err}
	}
	return n, err
}

var errEarly = errors.New("the server answered before it had everything")

// confirm makes an error of a success that came too early.
func (s *Source) confirm(err error, size int64) error {
	if err == nil && !s.whole(size) {
		return errEarly
	}
	return err
}

// close lets no other Read begin. It returns false if one is under way.
func (s *Source) close() bool {
	s.over.Store(true)
	select {
	case s.turn <- struct{}{}:
		<-s.turn
		return true
	default:
		return false
	}
}

// maxRead is how long an answer is kept back for a Read that is under way.
const maxRead = time.Second

// wait waits a moment for the Read that is under way.
func (s *Source) wait(ctx context.Context) {
	t := time.NewTimer(maxRead)
	defer t.Stop()
	select {
	case s.turn <- struct{}{}:
		<-s.turn
	case <-t.C:
	case <-ctx.Done():
	}
}

// closeAndWait is close for a reader that never takes long.
func (s *Source) closeAndWait() {
	s.over.Store(true)
	s.turn <- struct{}{}
	<-s.turn
}

// Send calls do, which makes a request with a body of a Reader of s. Size is the
// body's, or -1. A Read of the caller's that blocks does not keep Send from ending
// with ctx, nor for long with an answer; it may then still be under way, while no
// other follows. One of what is inMemory is waited for: the data is the caller's again
// when Send returns.
func (s *Source) Send(ctx context.Context, size int64, inMemory bool, do func() error) error {
	if inMemory {
		defer s.closeAndWait()
		return s.confirm(do(), size)
	}
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		if !s.close() {
			// The caller may go back to the beginning, to try again.
			s.wait(ctx)
		}
		return s.confirm(err, size)
	case <-ctx.Done():
		if s.close() {
			return s.confirm(<-done, size)
		}
		return context.Cause(ctx) // the reader is at work, and keeps net/http waiting
	}
}
