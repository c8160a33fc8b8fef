package conformance

import (
	"compress/gzip"
	"io"
	"strings"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

func envdChecks() []check {
	return []check{
		{"envd/health", func(p *probe) {
			s := *p.base(p)
			s.envd = "" // needs no token
			p.ask(&s, envdPort, "GET", "/health", "").is(204).says("").has("Cache-Control", "no-store")
		}},
		{"envd/auth", envdAuth},
		{"envd/user", envdUser},
		{"envd/metrics", envdMetrics},
		{"envd/protocol", envdProtocol},
		{"envd/unary-errors", unaryErrors},
		{"envd/unary-proto", unaryProto},
		{"envd/compression", envdCompression},
	}
}

func envdAuth(p *probe) {
	const message = "unauthorized access, please provide a valid access token or method signing if supported"
	s := *p.base(p)
	for _, token := range []string{"", "wrong"} {
		s.envd = token
		json := header{"Content-Type", "application/json"}
		p.ask(&s, envdPort, "POST", "/"+rpcList, "{}", json).refused(401, message)
		p.ask(&s, envdPort, "POST", "/"+rpcStart, "", header{"Content-Type", "application/connect+proto"}).refused(401, message)
		p.ask(&s, envdPort, "GET", "/envs", "").refused(401, message)
		p.ask(&s, envdPort, "GET", "/conformance", "").refused(401, message)
	}
	s.envd = ""
	p.ask(&s, envdPort, "GET", "/envs", "", header{"Authorization", "Bearer " + p.base(p).envd}).refused(401, message)
}

// asUser is the header that says on whose behalf a call is.
func asUser(base64 string) header { return header{"Authorization", "Basic " + base64} }

const (
	rootUser    = "cm9vdDo=" // root:
	unknownUser = "Y29uZm9ybWFuY2UtZ2hvc3Q6"
)

func envdUser(p *probe) {
	s := p.base(p)
	equal(p, "the output of id -un", "user\n", p.shell(s, "id -un").stdout)
	equal(p, "the output of id -un as root", "root\n", p.start(s, inProto, script("id -un"), asUser(rootUser)).finished().stdout)
	p.unary(s, rpcList, &process.ListRequest{}, asUser(unknownUser)).
		refusedRPC(401, "unauthenticated", "invalid username: 'conformance-ghost'")
	st := p.start(s, inProto, script("true"), asUser(unknownUser)).finish()
	st.ends("unauthenticated", "invalid username: 'conformance-ghost'")
}

func envdMetrics(p *probe) {
	s := p.base(p)
	f := p.ask(s, envdPort, "GET", "/metrics", "").is(200).fields()
	for _, name := range []string{"ts", "cpu_count", "mem_total", "disk_total"} {
		p.holds(f.number(name) > 0, f.of+": a "+name+" above zero", f.number(name))
	}
	for _, name := range []string{"cpu_used_pct", "mem_used", "disk_used"} {
		p.holds(f.number(name) >= 0, f.of+": a "+name+" that is not negative", f.number(name))
	}
	p.ask(s, envdPort, "GET", "/envs", "").is(200).fields().expect("E2B_SANDBOX", "true")
}

func envdProtocol(p *probe) {
	s := p.base(p)
	json := header{"Content-Type", "application/json"}
	post := func(method, body string, headers ...header) *answer {
		return p.ask(s, envdPort, "POST", "/"+method, body, headers...)
	}
	p.ask(s, envdPort, "GET", "/"+rpcList, "").is(405).has("Allow", "POST")
	post(rpcList, "{}", header{"Content-Type", "text/plain"}).is(415)
	post(rpcList, "{}", header{"Content-Type", "application/connect+json"}).is(415)
	post(rpcStart, "{}", json).is(415)
	post("process.Process/Conformance", "{}", json).is(404).says("404 page not found\n")
	post(rpcList, "{}", header{"Content-Type", "application/json; charset=utf-8"}).is(200)
	post(rpcList, `{"conformance":"unknown fields are ignored"}`, json).is(200)
	post(rpcList, "{", json).refusedRPC(400, "invalid_argument", "unmarshal message: …")
	post(rpcList, "{}", json, header{"Connect-Protocol-Version", "1"}).is(200)
	post(rpcList, "{}", json, header{"Connect-Protocol-Version", "2"}).
		refusedRPC(400, "invalid_argument", `Connect-Protocol-Version must be "1": got "2"`)
	post(rpcList, "{}", json, header{"Content-Encoding", "br"}).refusedRPC(501, "unimplemented", `unknown compression "br": …`)
}

// aFreePID is of no process.
const aFreePID = 4_000_000

func unaryErrors(p *probe) {
	s := p.base(p)
	const missing = "process with pid 4000000 not found"
	selector := byPID(aFreePID)
	p.unary(s, rpcSignal, &process.SendSignalRequest{Process: selector, Signal: process.Signal_SIGNAL_SIGKILL}).
		refusedRPC(404, "not_found", missing)
	p.unary(s, rpcInput, stdin(aFreePID, "x")).refusedRPC(404, "not_found", missing)
	p.unary(s, rpcUpdate, &process.UpdateRequest{Process: selector}).refusedRPC(404, "not_found", missing)
	p.unary(s, rpcSignal, &process.SendSignalRequest{Process: byTag("conformance-none"), Signal: process.Signal_SIGNAL_SIGKILL}).
		refusedRPC(404, "not_found", "process with tag conformance-none not found")
	pid := p.sleeper(s)
	p.unary(s, rpcSignal, &process.SendSignalRequest{Process: byPID(pid)}).
		refusedRPC(501, "unimplemented", "invalid signal: SIGNAL_UNSPECIFIED")
	p.unary(s, rpcInput, stdin(pid, "x")).refusedRPC(500, "internal", "error writing to stdin: stdin not enabled or closed")
	p.unary(s, rpcInput, keys(pid, "x")).refusedRPC(500, "internal", "error writing to tty: tty not assigned to process…")
	p.unary(s, rpcUpdate, &process.UpdateRequest{Process: byPID(pid), Pty: size(80, 24)}).
		refusedRPC(500, "internal", "error resizing tty: tty not assigned to process")
	p.signal(s, pid, process.Signal_SIGNAL_SIGKILL)
	p.ended(s, pid)
}

// Errors are JSON for calls in protobuf as well.
func unaryProto(p *probe) {
	s := p.base(p)
	proto := header{"Content-Type", "application/proto"}
	a := p.ask(s, envdPort, "POST", "/"+rpcList, "", proto).is(200).has("Content-Type", "application/proto")
	p.holds(inProto.unmarshal([]byte(a.body), new(process.ListResponse)) == nil, a.expect("a ListResponse in protobuf"), a.body)
	req := &process.SendSignalRequest{Process: byPID(aFreePID), Signal: process.Signal_SIGNAL_SIGKILL}
	p.ask(s, envdPort, "POST", "/"+rpcSignal, inProto.marshal(req), proto).
		refusedRPC(404, "not_found", "process with pid 4000000 not found")
}

func envdCompression(p *probe) {
	s := p.base(p)
	a := p.ask(s, envdPort, "POST", "/"+rpcList, "{}", header{"Content-Type", "application/json"}, header{"Accept-Encoding", "gzip"})
	a.is(200).has("Content-Encoding", "gzip")
	p.holds(strings.HasPrefix(unzipped(a), "{"), a.expect("JSON in gzip"), a.body)
}

// unzipped is the body of an answer in gzip.
func unzipped(a *answer) string {
	z, err := gzip.NewReader(strings.NewReader(a.body))
	if err != nil {
		a.p.fail(a.expect("a body in gzip"), a.seen())
	}
	b, _, err := transport.ReadBody(io.Reader(z), maxBody)
	if err != nil {
		a.p.fail(a.expect("a whole body in gzip"), err.Error())
	}
	return string(b)
}

func zipped(text string) string {
	var b strings.Builder
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(text)) // to memory
	_ = z.Close()
	return b.String()
}
