//go:build linux || darwin

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/envd"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/interp"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/spawn"
)

// idleTimeout is how long the real envd keeps an idle connection.
const idleTimeout = 640 * time.Second

func init() {
	if len(os.Args) > 0 && os.Args[0] == Name {
		// Mounts are done on the main thread.
		runtime.LockOSThread()
		// Not os.Exit, which takes a second in a program with the race detector.
		syscall.Exit(run())
	}
}

func run() int {
	inherited := []int{ControlFD, ReplyFD, EnvdFD, InterpreterFD, ForwardFD}
	for _, fd := range inherited {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			fmt.Fprintf(os.Stderr, "%s: descriptor %d is missing: only the local runtime starts this\n", Name, fd)
			return 2
		}
		unix.CloseOnExec(fd)
	}
	closeStrays()
	unix.Umask(0o022)
	// What a command sends to all processes must not end the agent. Caught and not
	// ignored, since commands would inherit that.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGABRT, unix.SIGTERM)
	// Nor must those that otherwise tell of a fault of its own, which they still do.
	signal.Notify(make(chan os.Signal, 1), faults...)

	control := json.NewDecoder(os.NewFile(ControlFD, "control"))
	replies := json.NewEncoder(os.NewFile(ReplyFD, "replies"))
	var cfg Config
	if err := control.Decode(&cfg); errors.Is(err, io.EOF) {
		return 0 // somebody thought better of it
	} else if err != nil {
		fmt.Fprintf(os.Stderr, "%s: no configuration: %v\n", Name, err)
		return 2
	}
	s, err := boot(&cfg)
	if err != nil {
		// Encoding cannot fail, and if nobody reads there is nobody to tell.
		_ = replies.Encode(Reply{Error: err.Error()})
		return 1
	}
	s.serve()
	if err := replies.Encode(Reply{}); err != nil {
		return 1
	}
	s.obey(control, replies)
	s.stopStarting()
	s.end()
	return 0
}

// closeStrays closes what the program that started the agent had inherited itself
// without marking it; what the Go runtime opens is marked to be closed on exec.
func closeStrays() {
	dir, err := os.Open("/dev/fd")
	if err != nil {
		return
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd < endFD {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

type sandbox struct {
	cfg       *Config
	tree      tree
	meter     meter
	listeners []listener
	forward   net.Listener

	stopStarting func() // no process is started after it
}

type listener struct {
	net.Listener
	server *http.Server
}

// boot makes the sandbox ready to serve.
func boot(cfg *Config) (*sandbox, error) {
	groups, err := openGroups(cfg)
	if err != nil {
		return nil, err
	}
	defer groups.close()
	files, shm := cfg.Root, ""
	if cfg.Isolated {
		if files, err = isolate(cfg); err != nil {
			return nil, err
		}
		shm = sharedMemory
	} else {
		if err := os.Chdir(cfg.Root); err != nil {
			return nil, err
		}
		if err := adopt(); err != nil {
			return nil, err
		}
		spawn.OwnGroups()
	}

	s := &sandbox{cfg: cfg, tree: tree{whole: cfg.Isolated}}
	if s.stopStarting, err = spawn.OneThread(func() error { return prepareChildren(cfg, groups) }); err != nil {
		return nil, err
	}
	s.meter = meter{tree: &s.tree, shm: shm, files: disk{dir: files}}
	logger := log.New(os.Stderr, "", 0)
	var both http.Protocols
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	envdServer := &http.Server{Handler: envd.New(s.envdConfig()), IdleTimeout: idleTimeout, ErrorLog: logger, Protocols: &both}
	interpServer := &http.Server{Handler: interp.New(interpConfig(cfg)), IdleTimeout: idleTimeout, ErrorLog: logger}

	for _, l := range []struct {
		fd     uintptr
		port   int
		server *http.Server
	}{
		{EnvdFD, node.EnvdPort, envdServer},
		{InterpreterFD, node.InterpreterPort, interpServer},
	} {
		ln, err := inheritedListener(l.fd)
		if err != nil {
			return nil, err
		}
		s.listeners = append(s.listeners, listener{ln, l.server})
		if !cfg.OwnNetwork {
			continue
		}
		// For programs in the sandbox that look for its services.
		ln, err = new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(l.port)))
		if err != nil {
			return nil, err
		}
		inside := &http.Server{Handler: withoutClock(l.server.Handler), IdleTimeout: idleTimeout, ErrorLog: logger, Protocols: l.server.Protocols}
		s.listeners = append(s.listeners, listener{ln, inside})
	}
	if s.forward, err = inheritedListener(ForwardFD); err != nil {
		return nil, err
	}
	return s, nil
}

// withoutClock is for clients inside, who cannot know the emulator's clock.
func withoutClock(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del(node.ClockHeader)
		h.ServeHTTP(w, r)
	})
}

func inheritedListener(fd uintptr) (net.Listener, error) {
	f := os.NewFile(fd, "listener")
	defer f.Close()
	return net.FileListener(f)
}

// serve starts to serve and returns.
func (s *sandbox) serve() {
	for _, l := range s.listeners {
		// They serve until the process ends.
		go func() { _ = l.server.Serve(l) }()
	}
	go forward(s.forward)
	startReaper()
}

// obey carries out requests until nobody can make one any more.
func (s *sandbox) obey(requests *json.Decoder, replies *json.Encoder) {
	var release func() // while frozen: lets processes start again
	defer func() {
		if release != nil {
			release()
		}
	}()
	for {
		var r Request
		if err := requests.Decode(&r); err != nil {
			return
		}
		var reply Reply
		err := errors.New("unknown request")
		switch r.Op {
		case Freeze:
			if release != nil {
				err = errors.New("frozen already")
				break
			}
			// A command that a request still under way starts would run on.
			release = spawn.Hold()
			if err = s.tree.freeze(); err != nil {
				s.tree.thaw()
				release()
				release = nil
			}
		case Thaw:
			if release != nil {
				s.tree.thaw()
				release()
				release = nil
			}
			err = nil
		case Usage:
			reply.Usage, err = s.meter.usage()
		case Processes:
			reply.Processes, err = s.meter.processes()
		}
		if err != nil {
			reply.Error = err.Error()
		}
		if err := replies.Encode(reply); err != nil {
			return
		}
	}
}

// end leaves no process behind. In a pid namespace the kernel does that.
func (s *sandbox) end() {
	if !s.cfg.Isolated {
		s.tree.kill()
	}
}

func (s *sandbox) envdConfig() envd.Config {
	cfg := s.cfg
	c := envd.Config{
		DefaultUser: "user",
		Env:         sandboxEnv(cfg),
		Path:        cfg.Path,
		AccessToken: cfg.Spec.AccessToken,
		Version:     cfg.Spec.EnvdVersion,
		Start:       spawn.Start,
		Wait:        spawn.Wait,
		Machine:     s.meter.machine,
	}
	root := envd.User{Name: "root", Home: cfg.path("/root")}
	user := envd.User{Name: "user", Home: cfg.path("/home/user")}
	switch {
	case !cfg.Isolated:
		c.Root = cfg.Root
		root.UID, root.GID = uint32(os.Getuid()), uint32(os.Getgid())
		user.UID, user.GID = root.UID, root.GID
	case !cfg.OneUser:
		root.Switch = true
		user.Switch, user.UID, user.GID = true, UserID, UserID
	}
	c.Users = []envd.User{root, user}
	return c
}

// path is where the sandbox has a file that every sandbox has.
func (cfg *Config) path(name string) string {
	if cfg.Isolated {
		return name
	}
	return filepath.Join(cfg.Root, name)
}

func interpConfig(cfg *Config) interp.Config {
	env := sandboxEnv(cfg)
	// Kernels run as root, but where the user's files are.
	environ := []string{
		"PATH=" + cfg.Path,
		"HOME=" + cfg.path("/root"),
		"USER=root",
		"LOGNAME=root",
		"LANG=C.UTF-8",
	}
	if tmp, ok := env["TMPDIR"]; ok {
		environ = append(environ, "TMPDIR="+tmp)
	}
	c := interp.Config{
		Python:    cfg.Python,
		PythonErr: cfg.PythonErr,
		Node:      cfg.Node,
		NodeErr:   cfg.NodeErr,
		BashErr:   "it is in no directory of the PATH",
		Dir:       cfg.path("/home/user"),
		Environ:   environ,
		Env:       env,
		Start:     spawn.Start,
		Wait:      spawn.Wait,

		HangAfterCancel: cfg.HangAfterCancel,
	}
	// Not on the PATH of this process, which is that of the host.
	for _, dir := range filepath.SplitList(cfg.Path) {
		if bash, err := exec.LookPath(filepath.Join(dir, "bash")); err == nil && filepath.IsAbs(bash) {
			c.Bash = bash
			break
		}
	}
	return c
}

// sandboxEnv returns the variables that every command of the sandbox gets.
func sandboxEnv(cfg *Config) map[string]string {
	env := map[string]string{
		"E2B_SANDBOX":     "true",
		"E2B_SANDBOX_ID":  cfg.Spec.ID,
		"E2B_TEMPLATE_ID": cfg.Spec.Template,
	}
	if !cfg.Isolated {
		env["TMPDIR"] = cfg.path("/tmp") // or temporary files would stay behind
	}
	maps.Copy(env, cfg.Spec.Env)
	return env
}

// A tree is the processes of a sandbox, without the agent.
type tree struct {
	// whole says that all processes that can be seen are of the sandbox.
	whole bool

	// mu is held while the processes are stopped, continued or killed.
	mu sync.Mutex
	// kept has the processes that were stopped before freeze.
	kept map[int]bool
}
