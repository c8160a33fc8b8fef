//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// dir is for the built program.
var dir string

func TestMain(m *testing.M) {
	var err error
	if dir, err = os.MkdirTemp("", "e2b-local-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
		os.Exit(code)
	}))
}

// built builds the program, once.
var built = sync.OnceValues(func() (string, error) {
	real, err := filepath.EvalSymlinks(dir) // as the system names it
	if err != nil {
		return "", err
	}
	program := filepath.Join(real, "e2b-local")
	if out, err := exec.CommandContext(context.Background(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return program, nil
})

// build returns the path of the program.
func build(t *testing.T) string {
	t.Helper()
	program, err := built()
	require.NoError(t, err)
	return program
}

// A service is the program, serving.
type service struct {
	cmd    *exec.Cmd
	env    map[string]string // the exported variables
	rest   *bufio.Reader     // of standard output
	stderr *bytes.Buffer     // once it has ended
}

var export = regexp.MustCompile(`^export (E2B_[A-Z_]+)=(\S+)\n$`)

func start(t *testing.T, program string, env ...string) *service {
	t.Helper()
	s := &service{cmd: exec.CommandContext(t.Context(), program), env: make(map[string]string), stderr: new(bytes.Buffer)}
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.Stderr = s.stderr
	stdout, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	s.rest = bufio.NewReader(stdout)
	for range 3 {
		line, err := s.rest.ReadString('\n')
		require.NoError(t, err)
		m := export.FindStringSubmatch(line)
		require.NotNil(t, m, line)
		s.env[m[1]] = m[2]
	}
	return s
}

// end sends a signal and checks that the program ends well, having said nothing
// more on standard output.
func (s *service) end(t *testing.T, sig os.Signal) {
	t.Helper()
	require.NoError(t, s.cmd.Process.Signal(sig))
	rest, err := io.ReadAll(s.rest)
	require.NoError(t, err)
	require.Empty(t, string(rest))
	require.NoError(t, s.cmd.Wait(), "status 0; standard error: %s", s.stderr)
}

// create makes a sandbox by the printed variables.
func (s *service) create(t *testing.T) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.env["E2B_API_URL"]+"/sandboxes", strings.NewReader(`{"templateID":"base","timeout":60}`))
	require.NoError(t, err)
	req.Header.Set("X-API-Key", s.env["E2B_API_KEY"])
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, resp.Body.Close()) })
	return resp
}

func TestServesUntilASignal(t *testing.T) {
	program := build(t)
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run(sig.String(), func(t *testing.T) {
			s := start(t, program, "E2B_API_KEY=")
			require.Len(t, s.env, 3)
			require.Regexp(t, `^http://127\.0\.0\.1:\d+$`, s.env["E2B_API_URL"])
			require.Regexp(t, `^http://127\.0\.0\.1:\d+$`, s.env["E2B_SANDBOX_URL"])
			require.Regexp(t, `^e2b_[0-9a-f]+$`, s.env["E2B_API_KEY"])
			require.Equal(t, http.StatusCreated, s.create(t).StatusCode)
			require.Greater(t, len(processes(program)), 1, "the sandbox has processes")
			s.end(t, sig)
			require.Empty(t, processes(program))
			require.NotContains(t, s.stderr.String(), s.env["E2B_API_KEY"])
		})
	}
}

func TestKeyFromTheEnvironment(t *testing.T) {
	s := start(t, build(t), "E2B_API_KEY=my-key")
	require.Equal(t, "my-key", s.env["E2B_API_KEY"])
	require.Equal(t, http.StatusCreated, s.create(t).StatusCode)
	s.end(t, syscall.SIGTERM)
}

func TestWrongUse(t *testing.T) {
	program := build(t)
	for _, test := range []struct {
		args   []string
		env    string
		status int
		say    string
	}{
		{[]string{"-addr", "0.0.0.0:0"}, "", 2, "e2b-local: invalid value \"0.0.0.0:0\" for flag -addr: it is not an address on loopback, and no other is allowed\n"},
		{[]string{"-state-dir", "/dev/null"}, "", 1, "e2b-local: e2btest: StateDir: mkdir /dev/null: not a directory\n"},
		{[]string{"serve"}, "", 2, "e2b-local: unexpected argument \"serve\"\n"},
		{nil, "E2B_LOCAL_MAX_SANDBOXES=0", 2, "e2b-local: E2B_LOCAL_MAX_SANDBOXES: invalid value \"0\": it is below one\n"},
		{[]string{"-state-dir", "a"}, "E2B_LOCAL_DIR=b", 2, "e2b-local: -dir and -state-dir: the files of the sandboxes can be in one of them only\n"},
		{[]string{"-nonsense"}, "", 2, "e2b-local: flag provided but not defined: -nonsense\n"},
	} {
		cmd := exec.CommandContext(t.Context(), program, test.args...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		cmd.Env = append(os.Environ(), test.env)
		require.Error(t, cmd.Run())
		require.Equal(t, test.status, cmd.ProcessState.ExitCode(), stderr.String())
		require.Empty(t, stdout.String())
		if test.status == 2 {
			test.say += "see e2b-local -h\n"
		}
		require.Equal(t, test.say, stderr.String())
	}
}

func TestVersion(t *testing.T) {
	var stdout bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-version"}, &stdout, io.Discard))
	require.Regexp(t, `^e2b-local \S.*\n$`, stdout.String())
}

func TestQuote(t *testing.T) {
	for text, want := range map[string]string{
		"e2b_0af": "e2b_0af", "a b": "'a b'", "$(id)": "'$(id)'", "it's": `'it'\''s'`,
	} {
		require.Equal(t, want, quote(text))
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+quote(text)).Output()
		require.NoError(t, err)
		require.Equal(t, text, string(out))
	}
}
