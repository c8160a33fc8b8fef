//go:build unix

package interp

import (
	"bufio"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

//go:embed python/*.py
var pythonFiles embed.FS

// pythonBoot is given to the interpreter as its -c argument. It reads the program
// of the kernel from the request pipe, a number of ten digits before it, so that
// no file has to be put into the sandbox. Until the program is complete, the path
// of modules is without the working directory, where the user may have a file named
// like a standard module.
const pythonBoot = `import sys
PATH = sys.path[:]
sys.path[:] = [place for place in PATH if place]
import json, os
def read(size):
    data = b""
    while len(data) < size:
        part = os.read(3, size - len(data))
        if not part:
            raise SystemExit("the kernel's program is incomplete")
        data += part
    return data
SOURCES = json.loads(read(int(read(10))))
exec(compile(SOURCES["kernel_boot"], "<kernel_boot>", "exec"))`

// pythonProgram is what pythonBoot reads: the sources by module name, in JSON.
var pythonProgram = sync.OnceValues(func() ([]byte, error) {
	sources := make(map[string]string)
	names, err := fs.Glob(pythonFiles, "python/*.py")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		source, err := pythonFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		sources[strings.TrimSuffix(path.Base(name), ".py")] = string(source)
	}
	data, err := json.Marshal(sources)
	if err != nil {
		return nil, err
	}
	return append(fmt.Appendf(nil, "%010d", len(data)), data...), nil
})

// noKernels says why there can be no kernels on this system, if that is so.
const noKernels = ""

const (
	// exitGrace is how long a kernel may take to exit after code has called exit().
	exitGrace = 3 * time.Second
	// chunkSize is the longest part of a line that is passed on at once.
	chunkSize = 64 << 10
	// maxPrinted bounds what is kept of the text with which a kernel failed to start.
	maxPrinted = 2 << 10
)

// pythonKernel is a python3 process that runs the program in the directory python.
//
// Besides the goroutine of serve there is one that waits for the process, one that
// reads what the kernel says, and one that writes the orders. The last is what keeps
// an interrupt from hitting a later cell: it is sent, or found to be late and
// dropped, before the next cell is sent.
type pythonKernel struct {
	server *Server
	owner  *codeContext
	log    *slog.Logger
	cmd    *exec.Cmd
	cwd    string // where the first cell goes first

	requests *os.File // written
	events   *tail    // read
	// The read ends of descriptors 1 and 2 of the process. The kernel itself reads
	// from them; what is left in them when it dies is read here.
	stdout, stderr *os.File

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
	closed  bool // takes no cell any more
}

// order is something to tell the kernel about a cell.
type order struct {
	cell      *cell
	interrupt bool // else: run it
}

func startPython(ctx context.Context, s *Server, c *codeContext, cwd string) (kernel, error) {
	ctx = context.WithoutCancel(ctx) // a kernel outlives the request that needed it first
	program, err := pythonProgram()
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

	cmd := exec.CommandContext(ctx, s.cfg.Python, "-c", pythonBoot)
	cmd.Dir = s.cfg.Dir
	cmd.Env = append([]string{}, s.cfg.Environ...) // not nil, which would mean this process's own
	for _, name := range slices.Sorted(maps.Keys(s.cfg.Env)) {
		cmd.Env = append(cmd.Env, name+"="+s.cfg.Env[name])
	}
	cmd.Stdout, cmd.Stderr = far[2], far[3]
	cmd.ExtraFiles = []*os.File{far[0], far[1], near[2], near[3]} // descriptors 3 to 6
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	k := &pythonKernel{
		server: s, owner: c, log: s.log.With("context", c.id), cmd: cmd, cwd: cwd,
		requests: near[0], events: &tail{file: near[1]}, stdout: near[2], stderr: near[3],
		orders:  make(chan order, 16),
		readied: make(chan struct{}),
		leaving: make(chan struct{}),
		killed:  make(chan struct{}),
		gone:    make(chan struct{}),
	}
	if err := s.cfg.Start(cmd); err != nil {
		closeAll(near[:])
		return nil, err
	}
	if !s.spawn(func() { k.serve(ctx, program) }) {
		k.signal(syscall.SIGKILL)
		_ = s.cfg.Wait(cmd) // it was killed
		closeAll(near[:])
		return nil, errors.New("the code interpreter is closed")
	}
	return k, nil
}

func (k *pythonKernel) ready() <-chan struct{}  { return k.readied }
func (k *pythonKernel) exited() <-chan struct{} { return k.gone }
func (k *pythonKernel) failure() error          { return k.err }

func (k *pythonKernel) run(x *cell) bool {
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
	k.current = x
	return true
}

func (k *pythonKernel) interrupt(x *cell) {
	select {
	case k.orders <- order{cell: x, interrupt: true}:
	default: // so many orders wait that an interrupt must be among them
	}
}

func (k *pythonKernel) kill() {
	k.killOnce.Do(func() { close(k.killed) })
}

// signal sends a signal to the process and its children, as far as there are any.
func (k *pythonKernel) signal(sig syscall.Signal) {
	_ = syscall.Kill(-k.cmd.Process.Pid, sig)
}

// serve lives as long as the process.
func (k *pythonKernel) serve(ctx context.Context, program []byte) {
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
	others.Go(func() { k.write(program) })

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
	others.Wait()

	stdout, stderr := readNow(k.stdout), readNow(k.stderr)
	for _, f := range []*os.File{k.events.file, k.stdout, k.stderr} {
		_ = f.Close() // only read
	}
	if k.err == nil {
		k.err = errors.New("exit status 0")
	}
	if text := strings.TrimSpace(string(stderr)); text != "" {
		k.err = fmt.Errorf("%w: %s", k.err, text[max(0, len(text)-maxPrinted):])
	}
	k.mu.Lock()
	x := k.current
	k.current, k.closed = nil, true
	k.mu.Unlock()
	if x != nil && !k.torn {
		for _, output := range []struct {
			name string
			text []byte
		}{{"stdout", stdout}, {"stderr", stderr}} {
			if len(output.text) > 0 {
				x.deliver(chunk{outputLine(output.name, string(output.text)), true})
			}
		}
	}
	k.log.DebugContext(ctx, "kernel ended", "pid", pid, "err", k.err)
	k.owner.kernelEnded(k, x, outcomeDied)
	close(k.gone)
}

// write passes on orders until the kernel is gone.
func (k *pythonKernel) write(program []byte) {
	if _, err := k.requests.Write(program); err != nil {
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
		if !current {
			continue // has ended
		}
		var request any = interruptRequest{seq}
		if o.interrupt {
			k.signal(syscall.SIGINT)
		} else {
			request = runRequest{Run: seq, Code: o.cell.code, Env: o.cell.env, After: o.cell.after, Cwd: cwd}
			cwd = ""
		}
		line, err := json.Marshal(request)
		if err != nil {
			k.kill() // cannot happen: there are only strings
			return
		}
		if _, err := k.requests.Write(append(line, '\n')); err != nil {
			return // is going: serve will notice
		}
	}
}

// read takes what the kernel says until the end of its pipe.
func (k *pythonKernel) read(ctx context.Context) {
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
			err = k.handle(r, event)
		}
		if err != nil {
			k.log.WarnContext(ctx, "reading from a kernel", "err", err)
			return
		}
	}
}

func (k *pythonKernel) handle(r io.Reader, e kernelEvent) error {
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
func (k *pythonKernel) pass(r io.Reader, size int64, x *cell) error {
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
