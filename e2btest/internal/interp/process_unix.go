//go:build unix

package interp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"
)

// noKernels says why there can be no kernels on this system, if that is so.
const noKernels = ""

const (
	// exitGrace is how long a kernel may take to exit after code has called exit().
	exitGrace = 3 * time.Second
	// firstReminder is the time after which an interrupt of a shell is repeated. Each
	// further time is twice as long.
	firstReminder = 20 * time.Millisecond
	// chunkSize is the longest part of a line that is passed on at once.
	chunkSize = 64 << 10
	// maxPrinted bounds what is kept of the text with which a kernel failed to start.
	maxPrinted = 2 << 10
)

// process is a kernel: an interpreter that runs the program of its launcher.
//
// Besides the goroutine of serve there is one that waits for the process, one that
// reads what the kernel says, one that writes the orders, and if the kernel does not
// do that itself, one for each output that reads it. The one that writes is what
// keeps an interrupt from hitting a later cell: it is sent, or found to be late and
// dropped, before the next cell is sent.
type process struct {
	launcher

	server *Server
	owner  *codeContext
	log    *slog.Logger
	cmd    *exec.Cmd
	cwd    string // where the first cell goes first

	requests *os.File // written
	events   *tail    // read
	outputs  []*output

	// talk is held while something is delivered, so that the lines stay whole.
	talk sync.Mutex
	buf  []byte // for drain

	orders   chan order
	readied  chan struct{}
	leaving  chan struct{} // closed when the process says that it exits
	killed   chan struct{}
	killOnce sync.Once
	gone     chan struct{}
	err      error // valid when gone is closed
	torn     bool  // the last line was delivered in part; for the reader, then for serve

	mu      sync.Mutex
	current *cell
	seq     int  // its number
	begun   bool // it has said something
	closed  bool // takes no cell any more
}

// output is the read end of descriptor 1 or 2 of the process, or of both. What is
// left in it when the process dies is read here in any case.
type output struct {
	name string // of the stream
	file *os.File
	rest []byte // of what was read: the beginning of a character
}

// order is something to tell the kernel about a cell.
type order struct {
	cell      *cell
	interrupt bool          // else: run it
	after     time.Duration // since the last interrupt
}

// startProcess starts a kernel for c, in the directory cwd, or if that does not
// exist or is "", in the usual one.
func startProcess(ctx context.Context, s *Server, c *codeContext, cwd string) (kernel, error) {
	ctx = context.WithoutCancel(ctx) // a kernel outlives the request that needed it first
	l, err := s.launcher(c.language)
	if err != nil {
		return nil, fmt.Errorf("the program of the kernel: %w", err)
	}
	var near, far [4]*os.File // requests, events, stdout, stderr
	closeAll := func(files []*os.File) {
		for _, f := range files {
			_ = f.Close() // a nil one too, which gives an error only
		}
	}
	defer func() { closeAll(far[:]) }()
	for i := range near {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(near[:])
			return nil, err
		}
		near[i], far[i] = r, w
	}
	near[0], far[0] = far[0], near[0] // the one that is written here

	cmd := exec.CommandContext(ctx, l.path, l.args...)
	cmd.Dir = s.cfg.Dir
	cmd.Env = append([]string{}, s.cfg.Environ...) // not nil, which would mean this process's own
	for _, name := range slices.Sorted(maps.Keys(s.cfg.Env)) {
		cmd.Env = append(cmd.Env, name+"="+s.cfg.Env[name])
	}
	cmd.Stdout, cmd.Stderr = far[2], far[3]
	cmd.ExtraFiles = []*os.File{far[0], far[1]} // descriptors 3 and 4
	// A session, too, so that a shell does not find the terminal of another one.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	k := &process{
		launcher: l,
		server:   s, owner: c, log: s.log.With("context", c.id), cmd: cmd, cwd: cwd,
		requests: near[0], events: &tail{file: near[1]},
		outputs: []*output{{name: "stdout", file: near[2]}, {name: "stderr", file: near[3]}},
		orders:  make(chan order, 16),
		readied: make(chan struct{}),
		leaving: make(chan struct{}),
		killed:  make(chan struct{}),
		gone:    make(chan struct{}),
	}
	switch l.style {
	case styleOwn:
		cmd.ExtraFiles = append(cmd.ExtraFiles, near[2], near[3]) // descriptors 5 and 6
	case stylePumped:
		k.buf = make([]byte, chunkSize)
	case styleShell:
		k.buf = make([]byte, chunkSize)
		cmd.Stdin, cmd.Stderr = far[0], far[2]
	}
	if err := s.cfg.Start(cmd); err != nil {
		closeAll(near[:])
		return nil, err
	}
	if !s.spawn(func() { k.serve(ctx) }) {
		k.signal(syscall.SIGKILL)
		_ = s.cfg.Wait(cmd) // it was killed
		closeAll(near[:])
		return nil, errors.New("the code interpreter is closed")
	}
	return k, nil
}

func (k *process) ready() <-chan struct{}  { return k.readied }
func (k *process) exited() <-chan struct{} { return k.gone }
func (k *process) failure() error          { return k.err }

func (k *process) run(x *cell) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return false
	}
	select {
	case k.orders <- order{cell: x}:
	default:
		k.kill() // so many orders have piled up that it cannot be alive
		return false
	}
	k.seq++
	k.current, k.begun = x, false
	return true
}

func (k *process) interrupt(x *cell) { k.send(order{cell: x, interrupt: true}) }

func (k *process) send(interrupt order) {
	select {
	case k.orders <- interrupt:
	default: // so many orders wait that an interrupt must be among them
	}
}

func (k *process) kill() {
	k.killOnce.Do(func() { close(k.killed) })
}

// signal sends a signal to the process and its children, as far as there are any.
func (k *process) signal(sig syscall.Signal) {
	_ = syscall.Kill(-k.cmd.Process.Pid, sig)
}

// serve lives as long as the process.
func (k *process) serve(ctx context.Context) {
	pid := k.cmd.Process.Pid
	k.log.DebugContext(ctx, "kernel started", "pid", pid)
	var others sync.WaitGroup
	waited, read := make(chan struct{}), make(chan struct{})
	others.Go(func() {
		defer close(waited)
		k.err = k.server.cfg.Wait(k.cmd)
	})
	others.Go(func() {
		defer close(read)
		k.read(ctx)
		k.kill() // without its pipe it is of no use
	})
	others.Go(k.write)
	if k.style != styleOwn {
		for _, o := range k.outputs {
			others.Go(func() { k.pump(o) })
		}
	}

	select {
	case <-k.leaving:
		select {
		case <-time.After(exitGrace):
		case <-waited:
		case <-k.killed:
		case <-k.server.closing:
		}
	case <-waited:
	case <-k.killed:
	case <-k.server.closing:
	}
	// Also when the process has ended by itself: its children would live on.
	k.signal(syscall.SIGKILL)
	<-waited
	k.kill()
	k.events.end()
	<-read
	_ = k.requests.Close()
	for _, o := range k.outputs {
		_ = o.file.SetReadDeadline(time.Unix(1, 0)) // wakes up a pump
	}
	others.Wait()

	var last [][]byte
	for _, o := range k.outputs {
		last = append(last, append(o.rest, readNow(o.file)...))
		_ = o.file.Close() // only read
	}
	_ = k.events.file.Close()
	if k.err == nil {
		k.err = errors.New("exit status 0")
	}
	if text := strings.TrimSpace(string(bytes.Join(last, nil))); text != "" {
		k.err = fmt.Errorf("%w: %s", k.err, text[max(0, len(text)-maxPrinted):])
	}
	k.mu.Lock()
	x, begun := k.current, k.begun
	k.current, k.closed = nil, true
	k.mu.Unlock()
	died := outcomeDied
	if x != nil && begun && !k.torn {
		for i, o := range k.outputs {
			if len(last[i]) > 0 {
				x.deliver(chunk{outputLine(o.name, string(last[i])), true})
			}
		}
		if k.lastWords != "" {
			x.deliver(chunk{outputLine("stdout", k.lastWords), true})
			died = outcomeExited
		}
	}
	k.log.DebugContext(ctx, "kernel ended", "pid", pid, "err", k.err)
	k.owner.kernelEnded(k, x, died)
	close(k.gone)
}

// write passes on orders until the kernel is gone.
func (k *process) write() {
	if _, err := k.requests.Write(k.program); err != nil {
		return
	}
	cwd := k.cwd
	for {
		var o order
		select {
		case o = <-k.orders:
		case <-k.killed:
			return
		}
		k.mu.Lock()
		seq, current := k.seq, k.current == o.cell
		k.mu.Unlock()
		switch {
		case !current:
			continue // has ended
		case o.interrupt && (k.stop == nil || o.after > k.server.patience):
			k.kill()
			return
		}
		var request []byte
		if o.interrupt {
			k.signal(syscall.SIGINT)
			request = k.stop(seq)
			if k.style == styleShell {
				k.remind(o)
			}
		} else {
			request = k.give(seq, o.cell, cwd)
			cwd = ""
		}
		if _, err := k.requests.Write(request); err != nil {
			return // is going: serve will notice
		}
	}
}

// remind repeats an interrupt of a shell some time later, unless the cell has ended.
// One that comes before the cell, or just as a child is forked, is lost; and one that
// comes just as the shell begins to wait for a child can make it send itself signals
// for ever, and then only its end helps: after some seconds it is killed.
func (k *process) remind(o order) {
	o.after = max(2*o.after, firstReminder)
	time.AfterFunc(o.after, func() { k.send(o) })
}

// read takes what the kernel says until the end of its pipe.
func (k *process) read(ctx context.Context) {
	r := bufio.NewReaderSize(k.events, chunkSize)
	for {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return
		}
		var event kernelEvent
		if err == nil {
			event, err = decodeEvent(line)
		}
		if err == nil {
			k.talk.Lock()
			err = k.handle(r, event)
			k.talk.Unlock()
		}
		if err != nil {
			k.log.WarnContext(ctx, "reading from a kernel", "err", err)
			return
		}
	}
}

func (k *process) handle(r io.Reader, e kernelEvent) error {
	// What was printed before the event comes before it. Nothing of a cell is before
	// its first.
	k.drain(e.End)
	defer func() { k.drain(false) }()
	if e.Ready {
		select {
		case <-k.readied:
			return errEvent
		default:
			close(k.readied)
			return nil
		}
	}
	k.mu.Lock()
	var x *cell
	if e.Seq == k.seq {
		x = k.current
		k.begun = true
		if e.End {
			k.current = nil
			k.closed = e.Exit
		}
	}
	k.mu.Unlock()
	switch {
	case x == nil:
		_, err := io.CopyN(io.Discard, r, e.Size)
		return err
	case !e.End:
		return k.pass(r, e.Size, x)
	case e.Exit:
		k.owner.kernelEnded(k, x, outcomeExited)
		close(k.leaving)
	default:
		k.owner.kernelEnded(k, x, outcomeEnded)
	}
	return nil
}

// pass delivers a line of size bytes.
func (k *process) pass(r io.Reader, size int64, x *cell) error {
	for left := size; left > 0; {
		data := make([]byte, min(left, chunkSize))
		if _, err := io.ReadFull(r, data); err != nil {
			k.torn = left < size
			return err
		}
		left -= int64(len(data))
		x.deliver(chunk{data, left == 0})
	}
	return nil
}

// pump delivers what comes from an output until the process is gone.
func (k *process) pump(o *output) {
	select {
	case <-k.readied:
	case <-k.killed:
		return // what it printed says why it did not start
	}
	conn, err := o.file.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Read(func(uintptr) bool { // until its deadline
		for more := true; more; {
			k.talk.Lock()
			more = k.drain(false)
			k.talk.Unlock()
			select {
			case <-k.killed:
				more = false
			default:
			}
		}
		return false
	})
}

// drain delivers what there is in the outputs, but for the beginning of a character
// if more is to come. It reads no more than a pipe holds, which is all that was
// printed before, and reports whether there may be more. What no cell has printed is
// dropped. The caller holds talk.
func (k *process) drain(all bool) (more bool) {
	if k.style == styleOwn {
		return false
	}
	k.mu.Lock()
	x, begun := k.current, k.begun
	if x == nil {
		// No cell is given to the kernel meanwhile, or what it prints would be dropped too.
		defer k.mu.Unlock()
		return k.pour(nil, all)
	}
	k.mu.Unlock()
	if !begun {
		return false // it may be of the cell, or from before
	}
	return k.pour(x, all)
}

// pour delivers to a cell, or to nobody, for drain.
func (k *process) pour(x *cell, all bool) (more bool) {
	for _, o := range k.outputs {
		read := 0
		for n := 1; n > 0 && read < chunkSize; read += n {
			n = readAvailable(o.file, k.buf)
			text := append(o.rest, k.buf[:n]...)
			whole := len(text)
			if n > 0 || !all {
				whole = wholeCharacters(text)
			}
			o.rest = bytes.Clone(text[whole:])
			if x != nil && whole > 0 {
				x.deliver(chunk{outputLine(o.name, string(text[:whole])), true})
			}
		}
		more = more || read >= chunkSize
	}
	return more
}

// wholeCharacters returns the length of text without a character that it may hold
// only the beginning of.
func wholeCharacters(text []byte) int {
	for i := len(text) - 1; i >= max(0, len(text)-utf8.UTFMax); i-- {
		if utf8.RuneStart(text[i]) {
			if utf8.FullRune(text[i:]) {
				break
			}
			return i
		}
	}
	return len(text)
}

// tail reads a pipe. Once the process at its other end is gone, what is left in it
// is the end, even if a descendant of the process has the pipe open, too.
type tail struct {
	file *os.File
	over atomic.Bool
}

// end says that the process is gone.
func (t *tail) end() {
	t.over.Store(true)
	_ = t.file.SetReadDeadline(time.Unix(1, 0)) // wakes up a waiting Read
}

func (t *tail) Read(p []byte) (int, error) {
	if !t.over.Load() {
		n, err := t.file.Read(p)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
	n := readAvailable(t.file, p)
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// readNow returns what is in a pipe.
func readNow(f *os.File) []byte {
	var all []byte
	buf := make([]byte, chunkSize)
	for {
		n := readAvailable(f, buf)
		if n == 0 {
			return all
		}
		all = append(all, buf[:n]...)
	}
}

// readAvailable reads from a pipe without waiting. It returns 0 if there is nothing.
func readAvailable(f *os.File, p []byte) int {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	err = conn.Control(func(fd uintptr) { // not Read, which minds the deadline
		if err := syscall.SetNonblock(int(fd), true); err != nil {
			return
		}
		for again := true; again; {
			var err error
			n, err = syscall.Read(int(fd), p)
			again = errors.Is(err, syscall.EINTR)
		}
	})
	if err != nil {
		return 0
	}
	return max(n, 0)
}
