package conformance

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
)

const (
	rpcStart   = "process.Process/Start"
	rpcConnect = "process.Process/Connect"
	rpcList    = "process.Process/List"
	rpcUpdate  = "process.Process/Update"
	rpcInput   = "process.Process/SendInput"
	rpcInputs  = "process.Process/StreamInput"
	rpcSignal  = "process.Process/SendSignal"
	rpcCloseIn = "process.Process/CloseStdin"
)

// A running is a stream of the events of a process.
type running struct {
	*stream
	pid                    uint32
	stdout, stderr, screen string
	keepalives             int
	end                    *process.ProcessEvent_EndEvent // nil: it has not ended
}

// script is a process that runs a script of Bash, without an input.
func script(text string) *process.StartRequest {
	return &process.StartRequest{
		Process: &process.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-l", "-c", text}},
		Stdin:   new(false),
	}
}

// start starts a process and reads its first event.
func (p *probe) start(s *sandbox, c codec, req *process.StartRequest, headers ...header) *running {
	r := &running{stream: p.stream(s, rpcStart, c, req, headers...)}
	r.begin()
	return r
}

// attach follows a process that was started by another call.
func (p *probe) attach(s *sandbox, c codec, selector *process.ProcessSelector, headers ...header) *running {
	r := &running{stream: p.stream(s, rpcConnect, c, &process.ConnectRequest{Process: selector}, headers...)}
	r.begin()
	return r
}

func (r *running) begin() {
	if r.step() {
		r.p.holds(r.pid != 0, r.method+": a first event with the pid", "another event")
	}
}

// step reads an event, and returns false at the end of the stream. Start and Connect
// have the same message.
func (r *running) step() bool {
	var m process.StartResponse
	if !r.next(&m) {
		return false
	}
	switch e := m.GetEvent().GetEvent().(type) {
	case *process.ProcessEvent_Start:
		r.pid = e.Start.GetPid()
	case *process.ProcessEvent_Data:
		r.stdout += string(e.Data.GetStdout())
		r.stderr += string(e.Data.GetStderr())
		r.screen += string(e.Data.GetPty())
	case *process.ProcessEvent_End:
		r.end = e.End
	case *process.ProcessEvent_Keepalive:
		r.keepalives++
	}
	return true
}

// until reads events until done, or fails the check at the end of the stream.
func (r *running) until(what string, done func() bool) {
	for !done() {
		if !r.step() {
			r.p.fail(r.method+": "+what, fmt.Sprintf("the end of the stream, after stdout %.100q, stderr %.100q, terminal %.100q, end %v, error %+v",
				r.stdout, r.stderr, r.screen, r.end, r.err))
		}
	}
}

// finish reads to the end of the stream and closes it.
func (r *running) finish() *running {
	for r.step() {
	}
	r.close()
	return r
}

// finished is finish for a process that is expected to tell its end.
func (r *running) finished() *running {
	r.finish()
	r.p.holds(r.err == rpcError{}, r.method+": a stream that ends without an error", fmt.Sprintf("%+v", r.err))
	r.p.holds(r.end != nil, r.method+": an end event", "none")
	return r
}

// exits fails the check unless the process ended like this.
func (r *running) exits(code int32, exited bool, status string) *running {
	r.finished()
	want := fmt.Sprintf("exit code %d, exited %t, status %q", code, exited, status)
	got := fmt.Sprintf("exit code %d, exited %t, status %q", r.end.GetExitCode(), r.end.GetExited(), r.end.GetStatus())
	r.p.holds(want == got, r.method+": an end event with "+want, got)
	if code == 0 {
		r.p.holds(r.end.Error == nil, r.method+": an end event without an error", r.end.GetError())
	} else {
		equal(r.p, "the error of the end event", status, r.end.GetError())
	}
	return r
}

// shell runs a script to its end.
func (p *probe) shell(s *sandbox, text string) *running {
	return p.start(s, inProto, script(text)).finished()
}

// sleeper starts a process that does nothing for long, leaves it and returns its pid.
func (p *probe) sleeper(s *sandbox) uint32 {
	r := p.start(s, inProto, script("exec sleep 1000"))
	r.close()
	return r.pid
}

func byPID(pid uint32) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: pid}}
}

func byTag(tag string) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Tag{Tag: tag}}
}

// listedProcess finds a process in the list, or nil.
func (p *probe) listedProcess(s *sandbox, pid uint32) *process.ProcessInfo {
	var list process.ListResponse
	p.rpc(s, rpcList, &process.ListRequest{}, &list)
	for _, info := range list.GetProcesses() {
		if info.GetPid() == pid {
			return info
		}
	}
	return nil
}

func (p *probe) isRunning(s *sandbox, pid uint32) bool { return p.listedProcess(s, pid) != nil }

// ended waits until a process is in the list no longer.
func (p *probe) ended(s *sandbox, pid uint32) {
	p.eventually("process "+strconv.Itoa(int(pid))+" to have ended", func() (bool, string) {
		return !p.isRunning(s, pid), "it is in the list of processes"
	})
}

// signal sends a signal that must arrive.
func (p *probe) signal(s *sandbox, pid uint32, signal process.Signal) {
	p.rpc(s, rpcSignal, &process.SendSignalRequest{Process: byPID(pid), Signal: signal}, new(process.SendSignalResponse))
}

func stdinOf(text string) *process.ProcessInput {
	return &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte(text)}}
}

// stdin sends text to a process, keys to its terminal.
func stdin(pid uint32, text string) proto.Message {
	return &process.SendInputRequest{Process: byPID(pid), Input: stdinOf(text)}
}

func keys(pid uint32, text string) proto.Message {
	return &process.SendInputRequest{Process: byPID(pid), Input: &process.ProcessInput{
		Input: &process.ProcessInput_Pty{Pty: []byte(text)},
	}}
}

// file is the query for a file in the sandbox.
func file(path string, others ...string) string {
	q := url.Values{"path": {path}}
	for i := 0; i < len(others); i += 2 {
		q.Set(others[i], others[i+1])
	}
	return "/files?" + q.Encode()
}

var octets = header{"Content-Type", "application/octet-stream"}

// writeFile writes a file, where relative paths are those of the user's home.
func (p *probe) writeFile(s *sandbox, path, content string) *answer {
	return p.ask(s, envdPort, "POST", file(path), content, octets).is(200)
}

func (p *probe) readFile(s *sandbox, path string) string {
	return p.ask(s, envdPort, "GET", file(path), "").is(200).body
}

// home is the absolute path of the default user's home.
func (p *probe) home(s *sandbox) string { return p.stat(s, "~").GetPath() }

// nothing is the absolute path of no file.
func (p *probe) nothing(s *sandbox) string { return p.home(s) + "/conformance-none" }

// dir is a directory for the files of this check, relative to the user's home.
func (p *probe) dir() string { return "conformance-" + strings.ReplaceAll(p.result.Name, "/", "-") }
