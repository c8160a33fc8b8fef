package envd

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
)

// seen is what a Frame makes of a message.
type seen struct {
	kind Kind
	pid  uint32
	end  End
	from Pipe
	data string
}

// decodeWith decodes into a Frame that has been used before, as a stream does.
func decodeWith(decode func(*Frame, []byte) error, b []byte) (seen, error) {
	var s seen
	f := Frame{Kind: Ended, PID: 99, Sink: func(from Pipe, p []byte) error {
		s.from, s.data = from, string(p)
		return nil
	}}
	if err := decode(&f, b); err != nil {
		return seen{}, err
	}
	s.kind = f.Kind
	switch f.Kind {
	case Started:
		s.pid = f.PID
	case Ended:
		s.end = f.End
	}
	return s, nil
}

// reference is what the generated code makes of it.
func reference(m *process.StartResponse) seen {
	switch e := m.GetEvent().GetEvent().(type) {
	case *process.ProcessEvent_Start:
		return seen{kind: Started, pid: e.Start.GetPid()}
	case *process.ProcessEvent_Keepalive:
		return seen{kind: Keepalive}
	case *process.ProcessEvent_End:
		return seen{kind: Ended, end: End{ExitCode: e.End.GetExitCode(), Exited: e.End.GetExited(), Status: e.End.GetStatus()}}
	case *process.ProcessEvent_Data:
		switch d := e.Data.GetOutput().(type) {
		case *process.ProcessEvent_DataEvent_Stdout:
			return seen{kind: Output, from: Stdout, data: string(d.Stdout)}
		case *process.ProcessEvent_DataEvent_Stderr:
			return seen{kind: Output, from: Stderr, data: string(d.Stderr)}
		case *process.ProcessEvent_DataEvent_Pty:
			return seen{kind: Output, from: Terminal, data: string(d.Pty)}
		}
	}
	return seen{kind: Other}
}

// field is a length-delimited protobuf field.
func field(num protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), b)
}

func output(num protowire.Number, p string) []byte { return field(1, field(2, field(num, []byte(p)))) }

// messages are what envd sends, and what it does not.
func messages() map[string][]byte {
	return map[string][]byte{
		"empty":                {},
		"no event":             field(1, nil),
		"start":                field(1, field(1, protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 8252))),
		"start without a pid":  field(1, field(1, nil)),
		"stdout":               output(1, "out\n"),
		"stderr":               output(2, "err\n"),
		"terminal":             output(3, "$ "),
		"empty output":         output(1, ""),
		"large output":         output(1, strings.Repeat("x", 32<<10)),
		"binary output":        output(1, "\x00\xff\xfe"),
		"output of a new kind": output(4, "x"),
		"no output":            field(1, field(2, nil)),
		"keepalive":            field(1, field(4, nil)),
		"end":                  field(1, field(3, append(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), protowire.EncodeZigZag(-1)), field(3, []byte("signal: killed"))...))),
		"end without anything": field(1, field(3, nil)),
		"event of a new kind":  field(1, field(9, []byte("x"))),
		"new field behind":     append(output(1, "a"), field(7, []byte("x"))...),
		"new field before":     append(field(7, []byte("x")), output(1, "a")...),
		"two events":           append(output(1, "a"), output(2, "b")...),
		"two outputs":          field(1, append(field(2, field(1, []byte("a"))), field(2, field(2, []byte("b")))...)),
		"two pieces":           field(1, field(2, append(field(1, []byte("a")), field(1, []byte("b"))...))),
		"keepalive and output": field(1, append(field(4, nil), field(2, field(1, []byte("a")))...)),
		"long length":          {0x0a, 0x87, 0x80, 0x00, 0x12, 0x05, 0x0a, 0x03, 'a', 'b', 'c'},
		"cut":                  output(1, "abc")[:6],
		"number for output":    field(1, field(2, protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 5))),
		"number for event":     protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 5),
		"bad UTF-8 in status":  field(1, field(3, field(3, []byte("\xff")))),
		"field 0":              {0x02, 0x00},
		"group":                {0x0b, 0x0c},
	}
}

// requireSame requires that the codec reads b as the generated code does.
func requireSame(t *testing.T, b []byte) {
	t.Helper()
	kept := bytes.Clone(b)
	got, err := decodeWith((*Frame).decode, b)
	require.Equal(t, kept, b, "the message was changed")
	var m process.StartResponse
	if proto.Unmarshal(b, &m) != nil {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	require.Equal(t, reference(&m), got)
	var other process.ConnectResponse // the same on the wire
	require.NoError(t, proto.Unmarshal(b, &other))
	require.Equal(t, reference(&process.StartResponse{Event: other.GetEvent()}), got)

	j, err := protojson.Marshal(&m)
	require.NoError(t, err)
	fromJSON, err := decodeWith((*Frame).decodeJSON, j)
	require.NoError(t, err)
	require.Equal(t, got, fromJSON)
}

func TestFrame(t *testing.T) {
	for name, b := range messages() {
		t.Run(name, func(t *testing.T) {
			requireSame(t, b)
			for n := range min(len(b), 100) {
				requireSame(t, b[:n])
			}
		})
	}
}

func FuzzFrame(f *testing.F) {
	for _, b := range messages() {
		f.Add(b)
	}
	f.Fuzz(requireSame)
}

// JSON of any kind is an error or a frame; what protojson reads, the codec reads.
func FuzzFrameJSON(f *testing.F) {
	for _, s := range []string{
		`{}`, `null`, `{"event":null}`, `{"event":{"start":{"pid":8258}}}`, `{"event":{"data":{"stdout":"b3V0Cg=="}}}`, `{"event":{"data":{"stderr":"_-8"}}}`,
		`{"event":{"end":{"exitCode":-1,"status":"signal: killed"}}}`, `{"event":{"keepalive":{}}}`, `{"event":{"news":{"a":[1,2]}}}`,
		`{"event":{"start":{"pid":-1}}}`, `{"event":{"data":{"stdout":"!"}}}`, `[1]`, `{"event":{"start":{},"end":{}}}`, `{"event":`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decodeWith((*Frame).decodeJSON, b)
		var m process.StartResponse
		if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, &m) != nil {
			require.ErrorIs(t, err, errFrame)
			return
		}
		require.NoError(t, err)
		require.Equal(t, reference(&m), got)
	})
}

// The sink's error is kept, ends its calls and spoils nothing else.
func TestFrameSinkError(t *testing.T) {
	calls := 0
	f := Frame{Sink: func(Pipe, []byte) error {
		calls++
		return io.ErrShortWrite
	}}
	for range 3 {
		require.NoError(t, f.decode(output(1, "x")))
		require.Equal(t, Output, f.Kind)
		require.Equal(t, io.ErrShortWrite, f.SinkErr)
	}
	require.Equal(t, 1, calls)
	require.NoError(t, f.decode(messages()["end"]))
	require.Equal(t, Ended, f.Kind)

	var silent Frame
	require.NoError(t, silent.decode(output(1, "x")))
	require.Equal(t, Output, silent.Kind)
}

// Whatever is not a Frame goes to the generated code.
func TestCodec(t *testing.T) {
	for _, c := range []codec{{"proto"}, {"json"}} {
		pid := &process.SendSignalRequest{Process: byPID(7), Signal: process.Signal_SIGNAL_SIGTERM}
		b, err := c.Marshal(pid)
		require.NoError(t, err)
		var got process.SendSignalRequest
		require.NoError(t, c.Unmarshal(b, &got))
		require.True(t, proto.Equal(pid, &got))
		require.Equal(t, c.name == "proto", c.IsBinary())
		require.Equal(t, c.name, c.Name())

		_, err = c.Marshal("text")
		require.Error(t, err)
		require.Error(t, c.Unmarshal(b, new(string)))
		var f Frame
		require.ErrorIs(t, c.Unmarshal([]byte{0xff}, &f), errFrame)
	}
	var m process.ListResponse
	require.NoError(t, codec{"json"}.Unmarshal([]byte(`{"processes":[{"pid":1,"later":true}],"more":1}`), &m), "unknown fields are no error")
	require.Len(t, m.GetProcesses(), 1)
}

// A protobuf error would print differently from build to build.
func TestFrameErrorIsStable(t *testing.T) {
	var f Frame
	err := f.decode([]byte{0xff})
	require.True(t, errors.Is(err, errFrame))
	require.Equal(t, "envd: malformed process event", err.Error())
}

// BenchmarkFrame reads an event with 32 KiB of output.
func BenchmarkFrame(b *testing.B) {
	msg := output(1, strings.Repeat("x", 32<<10))
	n := 0
	f := Frame{Sink: func(_ Pipe, p []byte) error {
		n += len(p)
		return nil
	}}
	b.SetBytes(32 << 10)
	b.ReportAllocs()
	for b.Loop() {
		if err := f.decode(msg); err != nil || f.SinkErr != nil {
			b.Fatal(err, f.SinkErr)
		}
	}
	if n == 0 {
		b.Fatal("nothing was read")
	}
}

// BenchmarkFrameGenerated reads the same with the generated code.
func BenchmarkFrameGenerated(b *testing.B) {
	msg := output(1, strings.Repeat("x", 32<<10))
	b.SetBytes(32 << 10)
	b.ReportAllocs()
	for b.Loop() {
		var m process.StartResponse
		if err := proto.Unmarshal(msg, &m); err != nil {
			b.Fatal(err)
		}
	}
}
