package envd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
)

// processService implements processconnect.ProcessHandler for the server of each
// request.
type processService struct{}

const (
	keepaliveHeader  = "Keepalive-Ping-Interval"
	defaultKeepalive = 90 * time.Second
)

// keepalive returns after how much silence a stream is to say that it lives.
func keepalive(h http.Header) (time.Duration, error) {
	text := h.Get(keepaliveHeader)
	seconds, err := strconv.Atoi(text)
	if err != nil {
		return defaultKeepalive, nil //nolint:nilerr // what is no number counts as absent
	}
	if seconds < 1 || int64(seconds) > math.MaxInt64/int64(time.Second) {
		return 0, connect.NewError(connect.CodeInvalidArgument,
			fmt.Errorf("%s must be a positive number of seconds: %s", keepaliveHeader, text))
	}
	return time.Duration(seconds) * time.Second, nil
}

func tooLate() error {
	return connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded)
}

// ended is the error of a call whose context has ended.
func ended(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return tooLate()
	}
	return connect.NewError(connect.CodeCanceled, ctx.Err())
}

func internal(format string, args ...any) error {
	return connect.NewError(connect.CodeInternal, fmt.Errorf(format, args...))
}

func invalid(err error) error { return connect.NewError(connect.CodeInvalidArgument, err) }

// find returns the live command that sel means.
func (s *Server) find(sel *process.ProcessSelector) (*command, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch by := sel.GetSelector().(type) {
	case *process.ProcessSelector_Pid:
		if c, ok := s.procs.live[by.Pid]; ok {
			return c, nil
		}
	case *process.ProcessSelector_Tag:
		if c := oldest(maps.Values(s.procs.live), by.Tag); c != nil {
			return c, nil
		}
	}
	return nil, unknownProcess(sel)
}

// findExit returns how the command that sel means ended, if it is still known.
func (s *Server) findExit(sel *process.ProcessSelector) (exit, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	fresh := func(e exit) bool { return now.Sub(e.at) <= exitRetention }
	switch by := sel.GetSelector().(type) {
	case *process.ProcessSelector_Pid:
		e, ok := s.procs.exits[by.Pid]
		return e, ok && fresh(e)
	case *process.ProcessSelector_Tag:
		c := oldest(func(yield func(*command) bool) {
			for _, e := range s.procs.exits {
				if fresh(e) && !yield(e.command) {
					return
				}
			}
		}, by.Tag)
		if c != nil {
			return s.procs.exits[c.pid], true
		}
	}
	return exit{}, false
}

// oldest returns the first started of the commands with the tag.
func oldest(commands iter.Seq[*command], tag string) *command {
	var first *command
	for c := range commands {
		if c.req.Tag != nil && *c.req.Tag == tag && (first == nil || c.number < first.number) {
			first = c
		}
	}
	return first
}

// unknownProcess is the error for a selector that means no live command.
func unknownProcess(sel *process.ProcessSelector) error {
	switch by := sel.GetSelector().(type) {
	case *process.ProcessSelector_Pid:
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("process with pid %d not found", by.Pid))
	case *process.ProcessSelector_Tag:
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("process with tag %s not found", by.Tag))
	}
	return connect.NewError(connect.CodeUnimplemented, fmt.Errorf("invalid input type %T", sel))
}

func (processService) List(ctx context.Context, _ *connect.Request[process.ListRequest]) (*connect.Response[process.ListResponse], error) {
	s := serverOf(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	res := &process.ListResponse{}
	for _, c := range s.procs.live {
		res.Processes = append(res.Processes, &process.ProcessInfo{Config: c.req.GetProcess(), Pid: c.pid, Tag: c.req.Tag})
	}
	slices.SortFunc(res.Processes, func(a, b *process.ProcessInfo) int { return cmp.Compare(a.Pid, b.Pid) })
	return connect.NewResponse(res), nil
}

func (processService) Start(ctx context.Context, req *connect.Request[process.StartRequest], stream *connect.ServerStream[process.StartResponse]) error {
	s := serverOf(ctx)
	ping, err := keepalive(req.Header())
	if err != nil {
		return err
	}
	deadline, ok := ctx.Deadline()
	if ok && !time.Now().Before(deadline) {
		return tooLate()
	}
	c, err := s.launch(userOf(ctx), req.Msg)
	if err != nil {
		return invalid(err)
	}
	if ok {
		c.timer = time.AfterFunc(time.Until(deadline), c.expire)
	}
	sub := c.out.subscribe()
	defer sub.leave()
	s.adopt(c)
	return follow(ctx, c.pid, sub, ping, func(ev *process.ProcessEvent) error {
		if ev.GetEnd() != nil && c.hasExpired() {
			return tooLate()
		}
		return stream.Send(&process.StartResponse{Event: ev})
	})
}

func (processService) Connect(ctx context.Context, req *connect.Request[process.ConnectRequest], stream *connect.ServerStream[process.ConnectResponse]) error {
	s := serverOf(ctx)
	ping, err := keepalive(req.Header())
	if err != nil {
		return err
	}
	send := func(ev *process.ProcessEvent) error {
		return stream.Send(&process.ConnectResponse{Event: ev})
	}
	c, err := s.find(req.Msg.GetProcess())
	if err != nil {
		// A command that ends now is found in one of the two.
		e, ok := s.findExit(req.Msg.GetProcess())
		if !ok {
			return err
		}
		if err := send(startEvent(e.command.pid)); err != nil {
			return err
		}
		return send(e.end)
	}
	sub := c.out.subscribe()
	defer sub.leave()
	return follow(ctx, c.pid, sub, ping, send)
}

func startEvent(pid uint32) *process.ProcessEvent {
	return &process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: pid}}}
}

// follow sends what sub gets until the command or ctx ends.
func follow(ctx context.Context, pid uint32, sub *subscriber, ping time.Duration, send func(*process.ProcessEvent) error) error {
	if err := send(startEvent(pid)); err != nil {
		return err
	}
	silence := time.NewTicker(ping)
	defer silence.Stop()
	for {
		// First, so that after a deadline neither output nor end is sent.
		if ctx.Err() != nil {
			return ended(ctx)
		}
		ev, err := sub.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return connect.NewError(connect.CodeResourceExhausted, err)
		case ev != nil:
			if err := send(ev); err != nil {
				return err
			}
			silence.Reset(ping)
			continue
		}
		select {
		case <-ctx.Done():
		case <-sub.ready:
		case <-silence.C:
			alive := &process.ProcessEvent{Event: &process.ProcessEvent_Keepalive{Keepalive: &process.ProcessEvent_KeepAlive{}}}
			if err := send(alive); err != nil {
				return err
			}
		}
	}
}

func (processService) Update(ctx context.Context, req *connect.Request[process.UpdateRequest]) (*connect.Response[process.UpdateResponse], error) {
	s := serverOf(ctx)
	c, err := s.find(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	if req.Msg.Pty != nil {
		if !c.terminal {
			return nil, internal("error resizing tty: tty not assigned to process")
		}
		if err := c.resize(terminalSize(req.Msg.Pty)); err != nil {
			return nil, internal("error resizing tty: %w", err)
		}
	}
	return connect.NewResponse(&process.UpdateResponse{}), nil
}

// feed writes one message of input.
func feed(ctx context.Context, c *command, input *process.ProcessInput) error {
	switch in := input.GetInput().(type) {
	case *process.ProcessInput_Stdin:
		if c.terminal {
			return internal("error writing to stdin: tty assigned to process — input should be written to the pty, not the stdin")
		}
		if err := c.feed(ctx, in.Stdin); errors.Is(err, errNoStdin) {
			return internal("error writing to stdin: %w", err)
		} else if err != nil {
			return feedError(ctx, c, "error writing to stdin: error writing to stdin of process '%d': %w", err)
		}
	case *process.ProcessInput_Pty:
		if !c.terminal {
			return internal("error writing to tty: tty not assigned to process — input should be written to the stdin, not the tty")
		}
		if err := c.feed(ctx, in.Pty); err != nil {
			return feedError(ctx, c, "error writing to tty: error writing to tty of process '%d': %w", err)
		}
	default:
		return connect.NewError(connect.CodeUnimplemented, fmt.Errorf("invalid input type %T", in))
	}
	return nil
}

// feedError is the error of a write that failed, or that its caller gave up.
func feedError(ctx context.Context, c *command, format string, err error) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	return internal(format, c.pid, err)
}

func (processService) SendInput(ctx context.Context, req *connect.Request[process.SendInputRequest]) (*connect.Response[process.SendInputResponse], error) {
	s := serverOf(ctx)
	c, err := s.find(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	if err := feed(ctx, c, req.Msg.GetInput()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&process.SendInputResponse{}), nil
}

func (processService) StreamInput(ctx context.Context, stream *connect.ClientStream[process.StreamInputRequest]) (*connect.Response[process.StreamInputResponse], error) {
	s := serverOf(ctx)
	var c *command
	for stream.Receive() {
		switch ev := stream.Msg().GetEvent().(type) {
		case *process.StreamInputRequest_Start:
			found, err := s.find(ev.Start.GetProcess())
			if err != nil {
				return nil, err
			}
			c = found
		case *process.StreamInputRequest_Data:
			if c == nil {
				return nil, invalid(errors.New("the first message must name the process"))
			}
			if err := feed(ctx, c, ev.Data.GetInput()); err != nil {
				return nil, err
			}
		case *process.StreamInputRequest_Keepalive:
		default:
			return nil, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("invalid event type %T", ev))
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	return connect.NewResponse(&process.StreamInputResponse{}), nil
}

func (processService) SendSignal(ctx context.Context, req *connect.Request[process.SendSignalRequest]) (*connect.Response[process.SendSignalResponse], error) {
	s := serverOf(ctx)
	c, err := s.find(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	var sig syscall.Signal
	switch req.Msg.GetSignal() {
	case process.Signal_SIGNAL_SIGKILL:
		sig = syscall.SIGKILL
	case process.Signal_SIGNAL_SIGTERM:
		sig = syscall.SIGTERM
	default:
		return nil, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("invalid signal: %s", req.Msg.GetSignal()))
	}
	if err := c.signal(sig); errors.Is(err, errEnded) {
		return nil, unknownProcess(req.Msg.GetProcess())
	} else if err != nil {
		return nil, internal("error sending signal: %w", err)
	}
	return connect.NewResponse(&process.SendSignalResponse{}), nil
}

func (processService) CloseStdin(ctx context.Context, req *connect.Request[process.CloseStdinRequest]) (*connect.Response[process.CloseStdinResponse], error) {
	s := serverOf(ctx)
	c, err := s.find(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	if c.terminal {
		return nil, connect.NewError(connect.CodeUnknown,
			errors.New("error closing stdin: cannot close stdin for PTY process — send Ctrl+D (0x04) instead"))
	}
	if err := c.closeInput(ctx); errors.Is(err, errEnded) {
		return nil, unknownProcess(req.Msg.GetProcess())
	} else if err != nil {
		return nil, connect.NewError(connect.CodeUnknown, fmt.Errorf("error closing stdin: %w", err))
	}
	return connect.NewResponse(&process.CloseStdinResponse{}), nil
}
