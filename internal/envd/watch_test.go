package envd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/filesystem"
	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// watchFrames are the frames of a watch, one per message.
func watchFrames(t testing.TB, asJSON bool, messages ...*filesystem.WatchDirResponse) []byte {
	t.Helper()
	var out []byte
	for _, m := range messages {
		b, err := proto.Marshal(m)
		if asJSON {
			b, err = protojson.Marshal(m)
		}
		require.NoError(t, err)
		out = append(out, 0, 0, 0, 0, byte(len(b)))
		out = append(out, b...)
	}
	return out
}

var (
	watchStarts = &filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Start{Start: &filesystem.WatchDirResponse_StartEvent{}}}
	watchPings  = &filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Keepalive{Keepalive: &filesystem.WatchDirResponse_KeepAlive{}}}
	watchOther  = &filesystem.WatchDirResponse{} // of a newer envd
)

func watchTells(name string) *filesystem.WatchDirResponse {
	return &filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Filesystem{
		Filesystem: &filesystem.FilesystemEvent{Name: name, Type: filesystem.EventType_EVENT_TYPE_CREATE},
	}}
}

// A watch passes on its events alone, and has no end without an error, whichever
// way the stream ends.
func TestWatchDir(t *testing.T) {
	end := []byte("\x02\x00\x00\x00\x02{}")
	for _, asJSON := range []bool{false, true} {
		contentType := map[bool]string{false: "application/connect+proto", true: "application/connect+json"}[asJSON]
		open := func(body []byte) (*WatchStream, error) {
			c := newClient(asJSON, respond(200, contentType, bytes.NewReader(body)))
			return c.WatchDir(t.Context(), t.Context(), 0, &Watch{Path: "/w"})
		}
		for _, last := range [][]byte{nil, end} {
			// What comes before the start is not for us.
			s, err := open(append(watchFrames(t, asJSON, watchTells("before"), watchStarts, watchPings, watchTells("a"), watchOther, watchTells("b")), last...))
			require.NoError(t, err)
			for _, want := range []string{"a", "b"} {
				e, err := s.Next()
				require.NoError(t, err)
				require.Equal(t, want, e.GetName())
			}
			_, err = s.Next()
			require.Error(t, err)
			require.NotErrorIs(t, err, io.EOF)
			if last != nil {
				require.ErrorIs(t, err, errWatchEnd)
			}
			s.Close(nil)

			s, err = open(append(watchFrames(t, asJSON, watchTells("before")), last...))
			require.Nil(t, s)
			require.Error(t, err)
			require.NotErrorIs(t, err, ErrNoEnd, "that is of commands")
			if last != nil {
				require.ErrorIs(t, err, errWatchEnd)
			}
		}
	}
}

// The opening ends with its ctx or its limit; the watch does not.
func TestWatchDirOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		defer w.Close()
		begin := time.Now()
		_, err := newClient(false, body(r)).WatchDir(t.Context(), t.Context(), time.Minute, &Watch{Path: "/w"})
		require.ErrorIs(t, err, transport.ErrTimeout)
		require.Equal(t, time.Minute, time.Since(begin))

		own := errors.New("own cause")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(own)
		_, err = newClient(false, body(r)).WatchDir(ctx, t.Context(), 0, &Watch{Path: "/w"})
		require.Equal(t, context.Canceled, err)

		r, w = io.Pipe()
		defer w.Close()
		go func() { _, _ = w.Write(watchFrames(t, false, watchStarts)) }()
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		life, end := context.WithCancelCause(t.Context())
		s, err := newClient(false, body(r)).WatchDir(ctx, life, time.Minute, &Watch{Path: "/w"})
		stop()
		require.NoError(t, err)
		time.AfterFunc(time.Hour, func() { end(own) })
		begin = time.Now()
		_, err = s.Next()
		require.ErrorIs(t, err, own)
		require.Equal(t, time.Hour, time.Since(begin))
		s.Close(nil)
	})
}

// A watcher without a name could not be asked for.
func TestCreateWatcherWithoutName(t *testing.T) {
	_, err := newClient(true, respond(200, "application/json", bytes.NewReader([]byte("{}")))).CreateWatcher(t.Context(), &Watch{Path: "/w"})
	require.ErrorIs(t, err, errNoWatcher)
	require.False(t, connect.IsWireError(asConnect(err)))
}
