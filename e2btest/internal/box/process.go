//go:build linux || darwin

package box

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/agent"
)

// endTimeout bounds how long a process may take to end. That it takes more than
// milliseconds means that the system is in trouble.
const endTimeout = 20 * time.Second

// A process is the agent of a sandbox, from one boot to its end.
type process struct {
	log      *slog.Logger
	isolated bool
	cmd      *exec.Cmd
	group    *cgroup // nil: it is not frozen by one
	limits   []*cgroup

	control *os.File // the agent ends at its end
	replies *os.File
	decoder *json.Decoder // of replies

	sockets []string // paths, in the order of the agent's descriptors

	serving atomic.Bool   // it has answered, and its end is not wanted
	ended   chan struct{} // closed at the end
}

// startProcess starts an agent and returns when it serves. While it is starting,
// prepare makes what it needs.
func (n *Node) startProcess(ctx context.Context, cfg agent.Config, log *slog.Logger, prepare func() error) (_ *process, err error) {
	p := &process{log: log, isolated: cfg.Isolated, ended: make(chan struct{})}
	var theirs []*os.File // what the agent inherits
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
		if err != nil {
			err = errors.Join(err, p.end())
		}
	}()

	in, control, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	theirs = append(theirs, in)
	p.control = control
	replies, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	theirs = append(theirs, out)
	p.replies = replies
	p.decoder = json.NewDecoder(replies)
	for range agent.ForwardFD - agent.EnvdFD + 1 {
		path := n.socketPath()
		f, err := listen(path)
		if err != nil {
			return nil, err
		}
		theirs = append(theirs, f)
		p.sockets = append(p.sockets, path)
	}
	if err := p.addGroups(n, &cfg); err != nil {
		return nil, err
	}

	self, closeSelf, err := executable()
	if err != nil {
		return nil, err
	}
	defer closeSelf()
	cmd := &exec.Cmd{
		Path:        self,
		Args:        []string{agent.Name, cfg.Spec.ID},
		Env:         []string{"PATH=" + cfg.Path},
		Dir:         "/",
		Stderr:      &lineLogger{log: log},
		ExtraFiles:  theirs,
		SysProcAttr: n.isolation.sysProcAttr(cfg.OwnNetwork, p.group),
		WaitDelay:   time.Second, // for what else has standard error
	}
	n.starter.do(func() { err = cmd.Start() })
	if err != nil {
		return nil, err
	}
	p.cmd = cmd
	go p.wait()
	// The agent must have the only other ends, or its end would not be seen.
	for _, f := range theirs {
		f.Close()
	}
	theirs = nil
	if err := prepare(); err != nil {
		return nil, err
	}
	if _, err := p.exchange(ctx, cfg); err != nil {
		return nil, err
	}
	p.serving.Store(true)
	return p, nil
}

// addGroups makes the control groups.
func (p *process) addGroups(n *Node, cfg *agent.Config) (err error) {
	name := fmt.Sprintf("%s-%x", cfg.Spec.ID, n.counter.Add(1))
	if n.cgroups != nil {
		if p.group, err = n.cgroups.add(name); err != nil {
			return err
		}
		if len(n.unlimited) > 0 {
			cfg.Commands = p.group.commands
		}
	}
	for _, limit := range n.limits {
		g, err := limit.add(name)
		if err != nil {
			return err
		}
		p.limits = append(p.limits, g)
		cfg.Tasks = append(cfg.Tasks, g.tasks())
	}
	return nil
}

// listen returns a socket that listens on path.
func listen(path string) (*os.File, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	return l.File()
}

// wait collects the process.
func (p *process) wait() {
	err := p.cmd.Wait()
	if p.serving.Load() {
		// Nothing inside should be able to do that.
		p.log.ErrorContext(context.Background(), "a sandbox has ended by itself", "status", err)
	}
	close(p.ended)
}

// exchange sends a message to the agent and waits for the reply. After an error
// that did not come from the agent, there must be no other.
func (p *process) exchange(ctx context.Context, message any) (reply agent.Reply, err error) {
	stop := context.AfterFunc(ctx, func() {
		past := time.Unix(1, 0)
		_ = p.control.SetDeadline(past)
		_ = p.replies.SetDeadline(past)
	})
	err = json.NewEncoder(p.control).Encode(message)
	if err == nil {
		err = p.decoder.Decode(&reply)
	}
	switch {
	case !stop():
		// The deadlines are, or are about to be, in the past: nothing else would succeed.
		return reply, ctx.Err()
	case err != nil:
		return reply, fmt.Errorf("the sandbox does not answer: %w", err)
	case reply.Error != "":
		return reply, errors.New(reply.Error)
	}
	return reply, nil
}

// freeze stops all processes of the sandbox; when it returns, none runs.
func (p *process) freeze(ctx context.Context) error {
	if p.group != nil {
		ctx, cancel := context.WithTimeout(ctx, endTimeout)
		defer cancel()
		return p.group.freeze(ctx)
	}
	_, err := p.request(ctx, agent.Freeze)
	return err
}

// thaw undoes freeze.
func (p *process) thaw(ctx context.Context) error {
	if p.group != nil {
		return p.group.thaw(ctx)
	}
	_, err := p.request(ctx, agent.Thaw)
	return err
}

// request asks the agent for something. Once asked, it is waited for, since the
// next reply is the one to the next request; the agent limits the time itself.
func (p *process) request(ctx context.Context, op agent.Op) (agent.Reply, error) {
	if err := ctx.Err(); err != nil {
		return agent.Reply{}, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return p.exchange(ctx, agent.Request{Op: op})
}

// end ends all processes of the sandbox and waits for that. It does so also for a
// process that was started in part.
func (p *process) end() error {
	p.serving.Store(false)
	var errs []error
	if p.control != nil {
		errs = append(errs, p.control.Close())
	}
	if p.cmd != nil {
		errs = append(errs, p.endAgent())
	}
	if p.replies != nil {
		errs = append(errs, p.replies.Close())
	}
	for _, g := range append(p.limits, p.group) {
		if g != nil {
			errs = append(errs, g.remove())
		}
	}
	for _, path := range p.sockets {
		errs = append(errs, os.Remove(path))
	}
	return errors.Join(errs...)
}

func (p *process) endAgent() error {
	timeout := time.NewTimer(endTimeout)
	defer timeout.Stop()
	if !p.isolated {
		// It sees that control is closed, and ends its processes first.
		select {
		case <-p.ended:
			return nil
		case <-timeout.C:
			timeout.Reset(endTimeout)
		}
	}
	// The kernel ends all processes of the namespace with the first one.
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-timeout.C:
		return fmt.Errorf("process %d does not end", p.cmd.Process.Pid)
	}
}

// A lineLogger logs what an agent writes to standard error, which is only about
// faults of its own.
type lineLogger struct {
	log  *slog.Logger
	rest []byte
}

func (l *lineLogger) Write(b []byte) (int, error) {
	const limit = 4096
	n := len(b)
	for {
		line, rest, ok := bytes.Cut(b, []byte("\n"))
		l.rest = append(l.rest, line[:min(len(line), limit-len(l.rest))]...)
		if !ok {
			return n, nil
		}
		l.log.WarnContext(context.Background(), "sandbox", "message", string(l.rest))
		l.rest, b = l.rest[:0], rest
	}
}
