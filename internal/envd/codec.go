package envd

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
)

// codec is connect's protobuf or JSON codec with one difference: a *Frame is
// filled in by hand, so that output goes from connect's buffer to its reader
// without a copy or an allocation.
type codec struct{ name string }

// Name returns "proto" or "json".
func (c codec) Name() string { return c.name }

// Marshal encodes a generated message.
func (c codec) Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("envd: %T is not a message", v)
	}
	if c.name == "json" {
		return protojson.Marshal(m)
	}
	return proto.Marshal(m)
}

// Unmarshal decodes a generated message or a Frame.
func (c codec) Unmarshal(b []byte, v any) error {
	switch v := v.(type) {
	case *Frame:
		if c.name == "json" {
			return v.decodeJSON(b)
		}
		return v.decode(b)
	case proto.Message:
		if c.name == "json" {
			return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, v)
		}
		return proto.Unmarshal(b, v)
	}
	return fmt.Errorf("envd: %T is not a message", v)
}

// IsBinary reports whether the encoding is not text.
func (c codec) IsBinary() bool { return c.name != "json" }

// Kind tells the events of a process apart.
type Kind int

// The events of a process. Other is one that a newer envd may send.
const (
	Other Kind = iota
	Started
	Output
	Ended
	Keepalive
)

// Pipe is where output came from.
type Pipe int

// The pipes of a process. Their values are the field numbers on the wire.
const (
	Stdout   Pipe = 1
	Stderr   Pipe = 2
	Terminal Pipe = 3
)

// End tells how a process ended.
type End struct {
	ExitCode int32
	Exited   bool // false: a signal ended it
	Status   string
}

// A Frame is one event of a process. One Frame serves a whole stream.
type Frame struct {
	Kind Kind
	PID  uint32 // of Started
	End  End    // of Ended

	// Sink gets output while the frame is read; it must not keep p. Its error
	// does not spoil the frame: it is kept in SinkErr.
	Sink    func(from Pipe, p []byte) error
	SinkErr error
}

var errFrame = errors.New("envd: malformed process event")

// decode reads StartResponse and ConnectResponse, which are the same on the
// wire: field 1 is the event.
func (f *Frame) decode(b []byte) error {
	f.Kind = Other
	event, ok := only(b, 1)
	if !ok {
		return f.decodeSlow(b)
	}
	data, ok := only(event, 2)
	if !ok {
		if pid, ok := only(event, 1); ok && f.started(pid) {
			return nil
		}
		if end, ok := only(event, 3); ok && f.ended(end) {
			return nil
		}
		return f.decodeSlow(b)
	}
	num, typ, n := protowire.ConsumeTag(data)
	if n < 0 || typ != protowire.BytesType || num < 1 || num > 3 {
		return f.decodeSlow(b)
	}
	p, m := protowire.ConsumeBytes(data[n:])
	if m < 0 || n+m != len(data) {
		return f.decodeSlow(b)
	}
	f.output(Pipe(num), p)
	return nil
}

// started reads a start event of the usual shape.
func (f *Frame) started(b []byte) bool {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 || num != 1 || typ != protowire.VarintType {
		return false
	}
	pid, m := protowire.ConsumeVarint(b[n:])
	if m < 0 || n+m != len(b) {
		return false
	}
	f.Kind, f.PID = Started, uint32(pid) //nolint:gosec // as protobuf cuts it
	return true
}

// ended reads an end event of the usual shape.
func (f *Frame) ended(b []byte) bool {
	var end End
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		switch {
		case num <= 2 && typ == protowire.VarintType:
			v, m := protowire.ConsumeVarint(b)
			if m < 0 {
				return false
			}
			if b = b[m:]; num == 1 {
				end.ExitCode = int32(protowire.DecodeZigZag(v & math.MaxUint32)) //nolint:gosec // as protobuf cuts it
			} else {
				end.Exited = v != 0
			}
		case num == 3 && typ == protowire.BytesType:
			v, m := protowire.ConsumeBytes(b)
			if m < 0 || !utf8.Valid(v) {
				return false
			}
			b, end.Status = b[m:], string(v)
		default:
			return false
		}
	}
	f.Kind, f.End = Ended, end
	return true
}

// only returns the contents of b's field num if that is all there is in b.
func only(b []byte, num protowire.Number) ([]byte, bool) {
	got, typ, n := protowire.ConsumeTag(b)
	if n < 0 || got != num || typ != protowire.BytesType {
		return nil, false
	}
	v, m := protowire.ConsumeBytes(b[n:])
	return v, m >= 0 && n+m == len(b)
}

// decodeSlow reads everything that is not plainly output.
func (f *Frame) decodeSlow(b []byte) error {
	var m process.StartResponse
	if err := proto.Unmarshal(b, &m); err != nil {
		return errFrame // protobuf's own text differs from build to build
	}
	f.fill(m.GetEvent())
	return nil
}

func (f *Frame) decodeJSON(b []byte) error {
	var m process.StartResponse
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, &m); err != nil {
		return errFrame
	}
	f.fill(m.GetEvent())
	return nil
}

func (f *Frame) fill(e *process.ProcessEvent) {
	f.Kind = Other
	switch e := e.GetEvent().(type) {
	case *process.ProcessEvent_Start:
		f.Kind, f.PID = Started, e.Start.GetPid()
	case *process.ProcessEvent_Keepalive:
		f.Kind = Keepalive
	case *process.ProcessEvent_End:
		f.Kind = Ended
		f.End = End{ExitCode: e.End.GetExitCode(), Exited: e.End.GetExited(), Status: e.End.GetStatus()}
	case *process.ProcessEvent_Data:
		switch d := e.Data.GetOutput().(type) {
		case *process.ProcessEvent_DataEvent_Stdout:
			f.output(Stdout, d.Stdout)
		case *process.ProcessEvent_DataEvent_Stderr:
			f.output(Stderr, d.Stderr)
		case *process.ProcessEvent_DataEvent_Pty:
			f.output(Terminal, d.Pty)
		}
	}
}

func (f *Frame) output(from Pipe, p []byte) {
	f.Kind = Output
	if f.Sink != nil && f.SinkErr == nil {
		f.SinkErr = f.Sink(from, p)
	}
}
