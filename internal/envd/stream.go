package envd

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// pingSeconds is how often envd shows that a quiet stream is alive. Values below 1
// would crash it.
var pingSeconds = []string{"50"}

const (
	// maxSilence is how long a stream may be silent on which a ping has been seen:
	// an edge may keep a connection whose other half is dead.
	maxSilence = 150 * time.Second
	// drainWait is how long a stream that has told its end may take to close.
	drainWait = time.Second
)

// Command is a command to start.
type Command struct {
	Path    string
	Args    []string
	Env     map[string]string
	Dir     string // "": the user's home
	User    string // "": the default
	Tag     string
	Stdin   bool
	Cols    uint32 // > 0: on a terminal of this size
	Rows    uint32
	Timeout time.Duration // of the process itself, kept by envd; 0: none
}

// A Stream is the events of one process.
type Stream struct {
	PID uint32

	conn   connect.StreamingClientConn
	frame  Frame
	cancel context.CancelCauseFunc
	ctx    context.Context
	watch  *time.Timer // nil until a ping was seen
	bound  *time.Timer // cancels; nil: there was no limit
}

// ErrSilent is returned when a server has stopped to show that a stream is alive.
var ErrSilent = errors.New("the stream went silent")

// Start starts a command and returns once it runs. ctx and limit, if > 0, bound
// that alone: the stream lives until Close or the end of life, which must have no
// deadline. sink gets the output while Next waits.
func (c *Client) Start(ctx, life context.Context, limit time.Duration, cmd *Command, sink func(Pipe, []byte) error) (*Stream, error) {
	msg := &process.StartRequest{
		Process: &process.ProcessConfig{Cmd: cmd.Path, Args: cmd.Args, Envs: cmd.Env},
		Stdin:   &cmd.Stdin,
	}
	if cmd.Cols > 0 {
		msg.Pty = terminalSize(cmd.Cols, cmd.Rows)
	}
	if cmd.Dir != "" {
		msg.Process.Cwd = &cmd.Dir
	}
	if cmd.Tag != "" {
		msg.Tag = &cmd.Tag
	}
	req := request(msg, cmd.User)
	if cmd.Timeout > 0 {
		// envd kills the process when it passes, so it is set here and never
		// derived from a ctx.
		ms := max((cmd.Timeout+time.Millisecond-1)/time.Millisecond, 1)
		req.Header().Set("Connect-Timeout-Ms", strconv.FormatInt(int64(ms), 10))
	}
	return open(ctx, c.carry(life), limit, sink, func(ctx context.Context) (connect.StreamingClientConn, error) {
		s, err := c.process.Start(ctx, req)
		if err != nil {
			return nil, err
		}
		return s.Conn()
	})
}

// Attach subscribes to a running process: output from now on, no replay.
func (c *Client) Attach(ctx, life context.Context, limit time.Duration, pid uint32, sink func(Pipe, []byte) error) (*Stream, error) {
	req := request(&process.ConnectRequest{Process: byPID(pid)}, "")
	return open(ctx, c.carry(life), limit, sink, func(ctx context.Context) (connect.StreamingClientConn, error) {
		s, err := c.process.Connect(ctx, req)
		if err != nil {
			return nil, err
		}
		return s.Conn()
	})
}

// ErrNoEnd is returned when a stream ended without the event that it must end
// with.
var ErrNoEnd = errors.New("the stream ended before the command did")

// open makes a stream and reads its first event.
func open(ctx, life context.Context, limit time.Duration, sink func(Pipe, []byte) error,
	call func(context.Context) (connect.StreamingClientConn, error),
) (*Stream, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	life, cancel := context.WithCancelCause(life)
	// Not with its cause, which may look like an answer.
	stop := context.AfterFunc(ctx, func() { cancel(ctx.Err()) })
	defer stop()
	var bound *time.Timer
	inTime := func() bool { return true }
	if limit > 0 {
		bound = time.AfterFunc(limit, func() { cancel(transport.ErrTimeout) })
		defer bound.Stop()
		inTime = bound.Stop
	}
	conn, err := call(life)
	if err != nil {
		err = causeOf(life, err)
		cancel(nil)
		return nil, err
	}
	s := &Stream{conn: conn, ctx: life, cancel: cancel, bound: bound}
	if sink != nil {
		s.frame.Sink = func(from Pipe, p []byte) error {
			if s.watch != nil {
				s.watch.Stop() // the time that a reader takes is not the server's
			}
			return sink(from, p)
		}
	}
	for {
		err := s.receive()
		if err == nil && s.frame.Kind == Started && stop() && inTime() {
			s.PID = s.frame.PID
			return s, nil
		}
		if err == nil && s.frame.Kind != Ended && life.Err() == nil {
			continue // what comes before the start event is not for us
		}
		if err == nil || life.Err() == nil && errors.Is(err, io.EOF) {
			err = causeOf(life, ErrNoEnd)
		}
		s.Close(nil)
		return nil, err
	}
}

// Next returns the kind of the next event, io.EOF after the end. Output has
// gone to the sink by then.
func (s *Stream) Next() (Kind, error) {
	err := s.receive()
	if err == nil && s.frame.SinkErr != nil {
		err = &SinkError{s.frame.SinkErr}
	}
	return s.frame.Kind, err
}

// SinkError is an error of the reader of the output, not of the stream.
type SinkError struct{ Err error }

func (e *SinkError) Error() string { return "output: " + e.Err.Error() }

func (e *SinkError) Unwrap() error { return e.Err }

// End returns what the Ended event said.
func (s *Stream) End() End { return s.frame.End }

// Drain reads up to the end frame, so that the connection can be used again.
func (s *Stream) Drain() {
	if s.bound == nil {
		s.bound = time.AfterFunc(drainWait, func() { s.cancel(nil) })
	} else {
		s.bound.Reset(drainWait)
	}
	defer s.bound.Stop()
	s.frame.Sink = nil
	for s.receive() == nil {
	}
	s.Close(nil)
}

// Close ends the stream, not the process. It is for the goroutine that calls Next,
// and may be called more than once.
func (s *Stream) Close(cause error) {
	if s.watch != nil {
		s.watch.Stop()
	}
	s.cancel(cause)
	_ = s.conn.CloseResponse()
}

func (s *Stream) receive() error {
	err := s.conn.Receive(&s.frame)
	switch {
	case s.watch != nil:
		s.watch.Reset(maxSilence)
	case err == nil && s.frame.Kind == Keepalive:
		s.watch = time.AfterFunc(maxSilence, func() { s.cancel(ErrSilent) })
	}
	if err == nil {
		return nil
	}
	if s.ctx.Err() == nil && errors.Is(err, io.EOF) {
		return io.EOF // connect-go says this in other words, and only of an end frame without an error
	}
	return causeOf(s.ctx, err)
}

// causeOf returns what ended ctx if something did, else err.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
	}
	return err
}
