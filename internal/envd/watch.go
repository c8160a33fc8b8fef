package envd

import (
	"context"
	"errors"
	"io"
	"time"

	"connectrpc.com/connect"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/filesystem"
)

// Watch is a directory to watch.
type Watch struct {
	Path          string
	User          string // "": the default
	Recursive     bool
	Entries       bool
	NetworkMounts bool
}

// A WatchStream is the events of one directory.
type WatchStream struct {
	*Stream
	events *watchConn
}

var (
	errWatchEnd  = errors.New("the stream ended")
	errNoWatcher = errors.New("the answer names no watcher")
)

// WatchDir watches a directory and returns once envd does so. ctx and limit, if
// > 0, bound that alone: the stream lives until Close or the end of life.
func (c *Client) WatchDir(ctx, life context.Context, limit time.Duration, w *Watch) (*WatchStream, error) {
	req := request(&filesystem.WatchDirRequest{
		Path: w.Path, Recursive: w.Recursive, IncludeEntry: w.Entries, AllowNetworkMounts: w.NetworkMounts,
	}, w.User)
	var events *watchConn
	s, err := open(ctx, c.carry(life), limit, nil, func(ctx context.Context) (connect.StreamingClientConn, error) {
		s, err := c.filesystem.WatchDir(ctx, req)
		if err != nil {
			return nil, err
		}
		conn, err := s.Conn()
		if err != nil {
			return nil, err
		}
		events = &watchConn{StreamingClientConn: conn}
		return events, nil
	})
	if errors.Is(err, ErrNoEnd) {
		err = errWatchEnd
	}
	if err != nil {
		return nil, err
	}
	return &WatchStream{s, events}, nil
}

// Next waits for the next event. There is always an error at the end, since a
// watch has none of its own.
func (s *WatchStream) Next() (*filesystem.FilesystemEvent, error) {
	for {
		kind, err := s.Stream.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil, errWatchEnd
		case err != nil:
			return nil, err
		case kind == Output:
			return s.events.last, nil
		}
	}
}

// A watchConn shows a Stream the events of a watch as those of a process.
type watchConn struct {
	connect.StreamingClientConn
	last *filesystem.FilesystemEvent
}

// Receive fills in a *Frame.
func (c *watchConn) Receive(v any) error {
	var m filesystem.WatchDirResponse
	if err := c.StreamingClientConn.Receive(&m); err != nil {
		return err
	}
	f := v.(*Frame) //nolint:forcetypeassert,errcheck // Stream has no other
	f.Kind = Other
	switch e := m.GetEvent().(type) {
	case *filesystem.WatchDirResponse_Start:
		f.Kind = Started
	case *filesystem.WatchDirResponse_Keepalive:
		f.Kind = Keepalive
	case *filesystem.WatchDirResponse_Filesystem:
		f.Kind, c.last = Output, e.Filesystem
	}
	return nil
}

// CreateWatcher has envd watch a directory and keep what happens there until
// RemoveWatcher. It returns the name by which it is asked for.
func (c *Client) CreateWatcher(ctx context.Context, w *Watch) (string, error) {
	resp, err := unary(ctx, c, request(&filesystem.CreateWatcherRequest{
		Path: w.Path, Recursive: w.Recursive, IncludeEntry: w.Entries, AllowNetworkMounts: w.NetworkMounts,
	}, w.User), c.filesystem.CreateWatcher)
	if err == nil && resp.GetWatcherId() == "" {
		err = errNoWatcher
	}
	return resp.GetWatcherId(), err
}

// WatcherEvents returns what has happened since it was last asked; envd forgets
// it.
func (c *Client) WatcherEvents(ctx context.Context, id, user string) ([]*filesystem.FilesystemEvent, error) {
	resp, err := unary(ctx, c, request(&filesystem.GetWatcherEventsRequest{WatcherId: id}, user), c.filesystem.GetWatcherEvents)
	return resp.GetEvents(), err
}

// RemoveWatcher ends a watcher.
func (c *Client) RemoveWatcher(ctx context.Context, id, user string) error {
	_, err := unary(ctx, c, request(&filesystem.RemoveWatcherRequest{WatcherId: id}, user), c.filesystem.RemoveWatcher)
	return err
}
