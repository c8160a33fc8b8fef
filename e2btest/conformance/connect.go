package conformance

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// A codec is one of Connect's two encodings. Its value is its name in content types.
type codec string

const (
	inJSON  codec = "json"
	inProto codec = "proto"
)

func (c codec) marshal(m proto.Message) string {
	marshal := proto.Marshal
	if c == inJSON {
		marshal = protojson.Marshal
	}
	b, err := marshal(m)
	if err != nil {
		panic(err) // of what the checks are made of
	}
	return string(b)
}

func (c codec) unmarshal(b []byte, m proto.Message) error {
	if c == inJSON {
		return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, m)
	}
	return proto.Unmarshal(b, m)
}

// unary makes a call of envd in JSON.
func (p *probe) unary(s *sandbox, method string, req proto.Message, headers ...header) *answer {
	return p.ask(s, envdPort, http.MethodPost, "/"+method, inJSON.marshal(req),
		append([]header{{"Content-Type", "application/json"}}, headers...)...)
}

// rpc makes a call of envd in JSON that must succeed.
func (p *probe) rpc(s *sandbox, method string, req, resp proto.Message) {
	a := p.unary(s, method, req).is(200)
	if err := inJSON.unmarshal([]byte(a.body), resp); err != nil {
		p.fail(a.expect("JSON that is a %s", resp.ProtoReflect().Descriptor().FullName()), a.seen())
	}
}

// refusedRPC fails the check unless the answer is an error of Connect's. A message
// that ends in "…" is the beginning of one.
func (a *answer) refusedRPC(status int, code, message string) {
	a.is(status)
	want := rpcError{code, message}
	var got rpcError
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || !got.fits(want) {
		a.p.fail(a.expect("%d with the code %s and the message %q", status, code, message), a.seen())
	}
	a.has("Content-Type", "application/json")
}

// An rpcError is how Connect tells that a call failed.
type rpcError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e rpcError) fits(want rpcError) bool {
	prefix, partly := strings.CutSuffix(want.Message, "…")
	return e.Code == want.Code && (e.Message == want.Message || partly && strings.HasPrefix(e.Message, prefix))
}

// A stream is the answer to a call that has many.
type stream struct {
	p      *probe
	method string
	codec  codec
	resp   *http.Response
	body   *bufio.Reader
	close  func()
	ended  bool
	err    rpcError // at its end; zero: none
}

// The flags of a message in a stream.
const (
	flagCompressed = 1
	flagEnd        = 2
)

const maxMessage = 16 << 20

// framed is messages as they stand in a stream.
func (c codec) framed(messages ...proto.Message) string {
	var b strings.Builder
	for _, m := range messages {
		text := c.marshal(m)
		b.Write(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))))
		b.WriteString(text)
	}
	return b.String()
}

// stream opens a call of envd that has many answers. It is to be closed.
func (p *probe) stream(s *sandbox, method string, c codec, req proto.Message, headers ...header) *stream {
	return p.streamOf(s, method, c, c.framed(req), headers...)
}

// streamOf is stream with a body of any number of messages.
func (p *probe) streamOf(s *sandbox, method string, c codec, body string, headers ...header) *stream {
	base, always := p.url(s, envdPort)
	ctx, cancel := context.WithCancel(p.ctx)
	headers = append(append(always, header{"Content-Type", "application/connect+" + string(c)}), headers...)
	resp, err := p.open(ctx, p.data, http.MethodPost, base+"/"+method, body, headers...) //nolint:bodyclose // by st.close
	if err != nil {
		cancel()
		p.failErr("an answer to "+method, err)
	}
	st := &stream{p: p, method: method, codec: c, resp: resp, body: bufio.NewReader(resp.Body)}
	st.close = func() {
		cancel()
		_ = resp.Body.Close()
	}
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || got != "application/connect+"+string(c) {
		b, _, _ := transport.ReadBody(resp.Body, maxBody)
		st.close()
		p.fail(method+": 200 with a stream in "+string(c), fmt.Sprintf("%d %s %.300s", resp.StatusCode, got, b))
	}
	return st
}

// next reads a message, and returns false at the end.
func (st *stream) next(m proto.Message) bool {
	if st.ended {
		return false
	}
	broken := func(err error) { st.p.failErr(st.method+": a stream that goes on to its end", err) }
	var head [5]byte
	if _, err := io.ReadFull(st.body, head[:]); err != nil {
		broken(err)
	}
	size := binary.BigEndian.Uint32(head[1:])
	st.p.holds(size <= maxMessage && head[0]&flagCompressed == 0, st.method+": a message without compression", head)
	b := make([]byte, size)
	if _, err := io.ReadFull(st.body, b); err != nil {
		broken(err)
	}
	if head[0]&flagEnd == 0 {
		if err := st.codec.unmarshal(b, m); err != nil {
			broken(err)
		}
		return true
	}
	var end struct{ Error rpcError }
	if err := json.Unmarshal(b, &end); err != nil { // JSON whatever the codec
		st.p.fail(st.method+": an end of the stream in JSON", fmt.Sprintf("%.300q", b))
	}
	st.ended, st.err = true, end.Error
	return false
}

// ends fails the check unless the stream ended like this. A message that ends in "…"
// is the beginning of one.
func (st *stream) ends(code, message string) {
	if want := (rpcError{code, message}); !st.err.fits(want) {
		st.p.fail(fmt.Sprintf("%s: a stream that ends with the code %q and the message %q", st.method, code, message),
			fmt.Sprintf("%+v", st.err))
	}
}
