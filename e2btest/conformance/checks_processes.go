package conformance

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
)

func processChecks() []check {
	return []check{
		{"envd/start-json", func(p *probe) { startsProcess(p, inJSON) }},
		{"envd/start-proto", func(p *probe) { startsProcess(p, inProto) }},
		{"envd/exit-codes", exitCodes},
		{"envd/environment", processEnvironment},
		{"envd/cwd", processCwd},
		{"envd/list", processList},
		{"envd/connect", processConnect},
		{"envd/connect-ended", processConnectEnded},
		{"envd/disconnect", processDisconnect},
		{"envd/signals", processSignals},
		{"envd/deadline", processDeadline},
		{"envd/keepalive", processKeepalive},
		{"envd/stdin", processStdin},
		{"envd/stream-input", processStreamInput},
		{"envd/close-stdin", processCloseStdin},
		{"envd/pty", processPTY},
		{"envd/pty-input", processPTYInput},
	}
}

func startsProcess(p *probe, c codec) {
	r := p.start(p.base(p), c, script("echo out; echo err >&2; exit 3"))
	r.exits(3, true, "exit status 3")
	equal(p, "stdout", "out\n", r.stdout)
	equal(p, "stderr", "err\n", r.stderr)
	equal(p, "output of a terminal", "", r.screen)
	all := p.start(p.base(p), c, script("printf '\\000\\377'; head -c 100000 /dev/zero | tr '\\0' x")).exits(0, true, "exit status 0")
	p.holds(all.stdout == "\x00\xff"+strings.Repeat("x", 100000), "100,002 bytes of stdout as they were written", len(all.stdout))
}

func exitCodes(p *probe) {
	s := p.base(p)
	p.start(s, inJSON, script("true")).exits(0, true, "exit status 0")
	p.start(s, inJSON, script("kill -9 $$")).exits(-1, false, "signal: killed")
	missing := &process.StartRequest{Process: &process.ProcessConfig{Cmd: "conformance-no-such-command"}, Stdin: new(false)}
	r := p.start(s, inProto, missing).exits(127, true, "exit status 127")
	p.holds(strings.Contains(r.stderr, "conformance-no-such-command"), "the missing command's name on stderr", r.stderr)
	// No shell reads the arguments.
	r = p.start(s, inProto, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "echo", Args: []string{"$HOME", "*", "a  b"}}})
	equal(p, "the output of echo", "$HOME * a  b\n", r.exits(0, true, "exit status 0").stdout)
}

func processEnvironment(p *probe) {
	req := script("echo $HOME $USER $LOGNAME; echo $CONFORMANCE; echo ${TERM-none}")
	req.Process.Cmd, req.Process.Args = "/bin/sh", req.Process.Args[1:]
	req.Process.Envs = map[string]string{"CONFORMANCE": "a 'b'"}
	r := p.start(p.base(p), inProto, req).finished()
	home, rest, _ := strings.Cut(r.stdout, " ")
	p.holds(strings.HasPrefix(home, "/"), "a HOME", home)
	equal(p, "USER, LOGNAME, a variable of the request, TERM", "user user\na 'b'\nnone\n", rest)
}

func processCwd(p *probe) {
	s := p.base(p)
	p.writeFile(s, p.dir()+"/file", "x")
	home := p.home(s)
	req := script("pwd")
	equal(p, "the directory of a command without a cwd", home+"\n", p.start(s, inProto, req).finished().stdout)
	for cwd, want := range map[string]string{p.dir(): home + "/" + p.dir(), "~": home, home + "/" + p.dir(): home + "/" + p.dir()} {
		req.Process.Cwd = &cwd
		equal(p, "the directory of a command with the cwd "+cwd, want+"\n", p.start(s, inProto, req).finished().stdout)
	}
	nothing := p.nothing(s)
	req.Process.Cwd = &nothing
	p.start(s, inProto, req).finish().ends("invalid_argument", "cwd '"+nothing+"' does not exist")
	p.start(s, inJSON, req).finish().ends("invalid_argument", "cwd '"+nothing+"' does not exist")
}

func processList(p *probe) {
	s := p.base(p)
	req := script("sleep 1000")
	req.Tag = new("conformance-list")
	req.Process.Envs = map[string]string{"A": "b"}
	r := p.start(s, inProto, req)
	defer r.close()
	info := p.listedProcess(s, r.pid)
	p.holds(proto.Equal(info.GetConfig(), req.GetProcess()), fmt.Sprintf("a process with %v in the list", req.GetProcess()), info.GetConfig())
	equal(p, "the tag in the list", "conformance-list", info.GetTag())
	p.signal(s, r.pid, process.Signal_SIGNAL_SIGKILL)
	r.exits(-1, false, "signal: killed")
	p.ended(s, r.pid)
}

func processConnect(p *probe) {
	s := p.make(nil) // tags are found for sure only where they are few
	req := script("echo before; read -r line; echo $line")
	req.Stdin, req.Tag = new(true), new("conformance-connect")
	first := p.start(s, inProto, req)
	first.until("the first line", func() bool { return first.stdout == "before\n" })
	second, third := p.attach(s, inProto, byPID(first.pid)), p.attach(s, inJSON, byTag("conformance-connect"))
	equal(p, "the pid of the process with the tag", first.pid, third.pid)
	p.rpc(s, rpcInput, stdin(first.pid, "after\n"), new(process.SendInputResponse))
	for _, r := range []*running{second, third} {
		r.exits(0, true, "exit status 0")
		equal(p, "what comes after Connect", "after\n", r.stdout)
	}
	equal(p, "what the first stream has", "before\nafter\n", first.exits(0, true, "exit status 0").stdout)
	p.attach(s, inProto, byPID(aFreePID)).finish().ends("not_found", "process with pid 4000000 not found")
	p.attach(s, inJSON, byTag("conformance-none")).finish().ends("not_found", "process with tag conformance-none not found")
}

func processConnectEnded(p *probe) {
	s := p.base(p)
	p.needs(s, "0.6.12")
	r := p.start(s, inProto, script("echo gone; exit 7")).exits(7, true, "exit status 7")
	again := p.attach(s, inProto, byPID(r.pid)).exits(7, true, "exit status 7")
	equal(p, "the pid", r.pid, again.pid)
	equal(p, "output that is over", "", again.stdout)
	p.holds(!p.isRunning(s, r.pid), "no process that has ended in the list", r.pid)
}

func processDisconnect(p *probe) {
	s := p.base(p)
	pid := p.sleeper(s)
	p.wait(200 * time.Millisecond) // for the server to notice
	p.holds(p.isRunning(s, pid), "a process that goes on when its client has gone", "it is not in the list")
	r := p.attach(s, inProto, byPID(pid))
	p.signal(s, pid, process.Signal_SIGNAL_SIGTERM)
	r.exits(-1, false, "signal: terminated")
}

func processSignals(p *probe) {
	s := p.base(p)
	r := p.start(s, inProto, script("trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.05; done"))
	r.until("the script to be ready", func() bool { return r.stdout == "ready\n" })
	p.signal(s, r.pid, process.Signal_SIGNAL_SIGTERM)
	r.exits(5, true, "exit status 5")
	r = p.start(s, inProto, script("trap '' TERM; echo ready; while :; do sleep 0.05; done"))
	r.until("the script to be ready", func() bool { return r.stdout == "ready\n" })
	p.signal(s, r.pid, process.Signal_SIGNAL_SIGTERM)
	p.signal(s, r.pid, process.Signal_SIGNAL_SIGKILL)
	r.exits(-1, false, "signal: killed")
}

func processDeadline(p *probe) {
	s := p.base(p)
	r := p.start(s, inProto, script("exec sleep 1000"), header{"Connect-Timeout-Ms", "300"})
	r.finish().ends("deadline_exceeded", "context deadline exceeded")
	p.ended(s, r.pid)
	pid := p.sleeper(s)
	p.attach(s, inProto, byPID(pid), header{"Connect-Timeout-Ms", "100"}).finish().ends("deadline_exceeded", "context deadline exceeded")
	p.holds(p.isRunning(s, pid), "a process that goes on after the deadline of a Connect", "it is not in the list")
	p.signal(s, pid, process.Signal_SIGNAL_SIGKILL)
	p.start(s, inProto, script("true"), header{"Connect-Timeout-Ms", "soon"}).finish().ends("invalid_argument", "parse timeout: …")
}

func processKeepalive(p *probe) {
	r := p.start(p.base(p), inProto, script("read -r -t 5 < <(sleep 5)"), header{"Keepalive-Ping-Interval", "1"})
	r.until("a keepalive event after a second", func() bool { return r.keepalives > 0 })
	r.close()
	p.signal(p.base(p), r.pid, process.Signal_SIGNAL_SIGKILL)
}

func processStdin(p *probe) {
	s := p.base(p)
	req := script("read -r a; read -r b; echo $b $a")
	req.Stdin = new(true)
	r := p.start(s, inProto, req)
	p.rpc(s, rpcInput, stdin(r.pid, "one\ntw"), new(process.SendInputResponse))
	p.rpc(s, rpcInput, stdin(r.pid, "o\n"), new(process.SendInputResponse))
	equal(p, "stdout", "two one\n", r.exits(0, true, "exit status 0").stdout)
	r = p.start(s, inProto, script("cat; echo over")) // without an input
	equal(p, "stdout", "over\n", r.exits(0, true, "exit status 0").stdout)
}

// The input of a process as a stream of the client's.
func processStreamInput(p *probe) {
	s := p.base(p)
	inputs := func(pid uint32, texts ...string) *stream {
		messages := []proto.Message{&process.StreamInputRequest{Event: &process.StreamInputRequest_Start{
			Start: &process.StreamInputRequest_StartEvent{Process: byPID(pid)},
		}}}
		for _, text := range texts {
			messages = append(messages, &process.StreamInputRequest{Event: &process.StreamInputRequest_Data{
				Data: &process.StreamInputRequest_DataEvent{Input: stdinOf(text)},
			}})
		}
		st := p.streamOf(s, rpcInputs, inProto, inProto.framed(messages...))
		for st.next(new(process.StreamInputResponse)) {
		}
		st.close()
		return st
	}
	req := script("read -r a; read -r b; echo $b $a")
	req.Stdin = new(true)
	r := p.start(s, inProto, req)
	inputs(r.pid, "one\n").ends("", "") // does not close the input
	inputs(r.pid, "tw", "o\n").ends("", "")
	equal(p, "stdout", "two one\n", r.exits(0, true, "exit status 0").stdout)
	inputs(aFreePID, "x").ends("not_found", "process with pid 4000000 not found")
}

func processCloseStdin(p *probe) {
	s := p.base(p)
	p.needs(s, "0.5.2")
	req := script("cat; echo over")
	req.Stdin = nil // means true
	r := p.start(s, inProto, req)
	p.rpc(s, rpcInput, stdin(r.pid, "text\n"), new(process.SendInputResponse))
	closing := &process.CloseStdinRequest{Process: byPID(r.pid)}
	p.rpc(s, rpcCloseIn, closing, new(process.CloseStdinResponse))
	equal(p, "stdout", "text\nover\n", r.exits(0, true, "exit status 0").stdout)
	p.ended(s, r.pid)
	p.unary(s, rpcCloseIn, closing).refusedRPC(404, "not_found", "process with pid …")
}

func size(cols, rows uint32) *process.PTY {
	return &process.PTY{Size: &process.PTY_Size{Cols: cols, Rows: rows}}
}

// terminal is a process with one.
func terminal(text string) *process.StartRequest {
	req := script(text)
	req.Stdin, req.Pty = nil, size(80, 24)
	return req
}

func processPTY(p *probe) {
	s := p.base(p)
	r := p.start(s, inProto, terminal("stty size; trap 'stty size; exit 4' WINCH; echo ready; while :; do sleep 0.05; done"))
	r.until("the size of the terminal", func() bool { return strings.HasSuffix(r.screen, "ready\r\n") })
	equal(p, "the terminal", "24 80\r\nready\r\n", r.screen)
	p.rpc(s, rpcUpdate, &process.UpdateRequest{Process: byPID(r.pid), Pty: size(132, 50)}, new(process.UpdateResponse))
	r.exits(4, true, "exit status 4")
	equal(p, "the terminal after it was resized", "24 80\r\nready\r\n50 132\r\n", r.screen)
	equal(p, "stdout and stderr beside a terminal", "", r.stdout+r.stderr)
}

func processPTYInput(p *probe) {
	s := p.base(p)
	r := p.start(s, inJSON, terminal("stty -echo; echo ready; read -r line; echo got $line; trap 'echo interrupted; exit 6' INT; echo again; while :; do sleep 0.05; done"))
	r.until("the script to be ready", func() bool { return strings.Contains(r.screen, "ready\r\n") })
	p.unary(s, rpcInput, stdin(r.pid, "x")).refusedRPC(500, "internal", "error writing to stdin: tty assigned to process…")
	p.unary(s, rpcCloseIn, &process.CloseStdinRequest{Process: byPID(r.pid)}).refusedRPC(500, "unknown", "error closing stdin: …")
	p.rpc(s, rpcInput, keys(r.pid, "this\r"), new(process.SendInputResponse))
	r.until("what was typed", func() bool { return strings.Contains(r.screen, "got this\r\nagain\r\n") })
	p.rpc(s, rpcInput, keys(r.pid, "\x03"), new(process.SendInputResponse))
	r.exits(6, true, "exit status 6")
	p.holds(strings.HasSuffix(r.screen, "interrupted\r\n"), "an interrupt for Ctrl-C", r.screen)
}
