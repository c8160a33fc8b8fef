package e2b_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

// USERS.md G4: a command can be attached to long after it was started and let go,
// and stays attached until its end.
func TestG4AttachLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSandbox()
		f.start = runs(evStart(4))
		f.attach = func(ctx context.Context, _ *attachRequest, s *attachStream) error {
			if err := sendTo(s, evStart(4)); err != nil {
				return err
			}
			for range 12 {
				if !elapse(ctx, 50*time.Second) {
					return ctx.Err()
				}
				if err := sendTo(s, evKeepalive()); err != nil {
					return err
				}
			}
			return sendTo(s, evOut("done\n"), evExit(3))
		}
		sbx := f.inMemory(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		p, err := sbx.Commands.Start(ctx, "server", nil)
		require.NoError(t, err)
		require.NoError(t, p.Close())
		cancel()
		require.True(t, elapse(t.Context(), 2*time.Minute))
		var out bytes.Buffer
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		p, err = sbx.Commands.Attach(ctx, p.PID(), &e2b.AttachOptions{Stdout: &out})
		require.NoError(t, err)
		cancel()
		begin := time.Now()
		_, err = p.Wait(t.Context())
		requireExit(t, err, 3)
		require.Equal(t, 10*time.Minute, time.Since(begin))
		require.Equal(t, "done\n", out.String())
	})
}

// USERS.md G6: one reader that stops keeps its command from the other readers, as
// envd has it, only for so long as it is connected.
func TestG6SlowReader(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	held, let := make(chan struct{}), make(chan struct{})
	stuck := writerFunc(func(p []byte) (int, error) {
		close(held)
		<-let
		return len(p), nil
	})
	slow, err := sbx.Commands.Start(t.Context(), "read -r _; seq 1000; exit 5", &e2b.RunOptions{Stdout: stuck, KeepStdin: true})
	require.NoError(t, err)
	var out bytes.Buffer
	fast, err := sbx.Commands.Attach(t.Context(), slow.PID(), &e2b.AttachOptions{Stdout: &out})
	require.NoError(t, err)
	_, err = slow.Write([]byte("go\n"))
	require.NoError(t, err)
	<-held
	_, err = fast.Wait(t.Context())
	requireExit(t, err, 5)
	require.Equal(t, 1000, strings.Count(out.String(), "\n"))
	close(let)
	_, err = slow.Wait(t.Context())
	requireExit(t, err, 5)
}

// USERS.md G7: a kill ends the command, not its children.
func TestG7ChildrenSurvive(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	p, err := sbx.Commands.Start(t.Context(), "sleep 987 >/dev/null 2>&1 & echo $! >child; wait", nil)
	require.NoError(t, err)
	var child string
	eventually(t, func() bool {
		b, err := sbx.Files.Read(t.Context(), "child", nil)
		child = strings.TrimSpace(string(b))
		return err == nil && child != ""
	})
	killed, err := p.Kill(t.Context())
	require.NoError(t, err)
	require.True(t, killed)
	_, err = p.Wait(t.Context())
	exit, ok := errors.AsType[*e2b.ExitError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, "killed", exit.Signal)
	require.Equal(t, "sleep\n", run(t, sbx, "cat /proc/"+child+"/comm"))
	killed, err = p.Kill(t.Context())
	require.NoError(t, err)
	require.False(t, killed)
}

// USERS.md H2: the content type changes no byte.
func TestH2ContentType(t *testing.T) {
	f := newFakeSandbox()
	magic := []byte{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}
	f.files = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		write(w, magic)
	}
	got, err := f.inMemory(t).Files.Read(t.Context(), "/x.png", nil)
	require.NoError(t, err)
	require.Equal(t, magic, got)
}

// USERS.md H9: an error about permissions says so, and names the path.
func TestH9Permissions(t *testing.T) {
	f := newFakeSandbox()
	f.files = func(w http.ResponseWriter, r *http.Request) {
		drain(r)
		writeJSON(w, 500, map[string]any{"code": 500, "message": "error opening file: open /home/user/x: permission denied"})
	}
	for _, call := range []func(context.Context, *e2b.Sandbox) error{dataCalls["write"], dataCalls["writefrom"], dataCalls["read"], dataCalls["open"]} {
		err := call(t.Context(), f.inMemory(t))
		requireDataKinds(t, err, fs.ErrPermission)
		pe, ok := errors.AsType[*fs.PathError](err)
		require.True(t, ok)
		require.Equal(t, "/x", pe.Path)
	}
}

// USERS.md K2: a kernel that is lost in the middle is an error, and what came before
// is kept.
func TestK2KernelLost(t *testing.T) {
	f := newFakeSandbox()
	f.code = func(w http.ResponseWriter, r *http.Request) {
		drain(r)
		emit(w, `{"type":"number_of_executions","execution_count":1}`, `{"type":"stdout","text":"so far\n"}`,
			`{"type":"error","name":"UnexpectedEndOfExecution","value":"Connection to the execution was closed before the execution was finished","traceback":""}`, endLine)
	}
	e, err := f.inMemory(t).RunCode(t.Context(), "x", nil)
	requireDataKinds(t, err, e2b.ErrInterpreter)
	require.Equal(t, "so far\n", e.Stdout)
	require.Nil(t, e.Error)
}

// USERS.md K7: one sandbox for one piece of code, gone also when the code raises; and
// an SDK that brings little along.
func TestK7OneShot(t *testing.T) {
	t.Parallel()
	_, client, first := newSandbox(t, nil)
	oneShot := func() (*e2b.Execution, error) {
		sbx, err := client.Create(t.Context(), &e2b.CreateOptions{Template: "code-interpreter"})
		if err != nil {
			return nil, err
		}
		defer func() { _, _ = sbx.Kill(context.WithoutCancel(t.Context())) }()
		return sbx.RunCode(t.Context(), "raise ValueError(7)", nil)
	}
	e, err := oneShot()
	require.NoError(t, err)
	require.Equal(t, "ValueError: 7", e.Error.Error())
	var left []string
	for info, err := range client.List(t.Context(), nil) {
		require.NoError(t, err)
		left = append(left, info.ID)
	}
	require.Equal(t, []string{first.ID()}, left)

	b, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	direct, _, _ := strings.Cut(string(b), ")")
	require.LessOrEqual(t, len(regexp.MustCompile(`(?m)^\t\S+ v`).FindAllString(direct, -1)), 9)
}

// Results are bounded as a whole.
func TestResultsAreBounded(t *testing.T) {
	f := newFakeSandbox()
	f.code = func(w http.ResponseWriter, r *http.Request) {
		drain(r)
		emit(w, `{"type":"number_of_executions","execution_count":1}`)
		for i := range 100 {
			emit(w, fmt.Sprintf(`{"type":"result","text":"%d","html":"%s"}`, i, strings.Repeat("x", 1000)))
		}
		emit(w, `{"type":"result","text":"small"}`, endLine)
	}
	sbx := f.inMemory(t)
	e, err := sbx.RunCode(t.Context(), "x", &e2b.CodeOptions{MaxOutput: 10 << 10})
	require.NoError(t, err)
	require.True(t, e.ResultsTruncated)
	require.Len(t, e.Results, 9)
	require.Equal(t, "8", e.Results[8].Text)
	e, err = sbx.RunCode(t.Context(), "x", nil)
	require.NoError(t, err)
	require.False(t, e.ResultsTruncated)
	require.Len(t, e.Results, 101)
}

// FuzzSignedURL: what a URL says is what was asked for, whatever the path, and its
// signature is that of what it says.
func FuzzSignedURL(f *testing.F) {
	for _, path := range []string{"a", "/a b", "a/../b", "ü", "%2F", "+", "a&b=c", "?x#y", "\xff", "a\nb"} {
		f.Add(path, "", int64(0))
		f.Add(path, "root", int64(3600))
	}
	fake := newFakeSandbox()
	sbx := fake.inMemory(f)
	f.Fuzz(func(t *testing.T, path, user string, seconds int64) {
		opts := &e2b.URLOptions{User: user, Expires: time.Duration(seconds%(1<<31)) * time.Second}
		for verb, sign := range map[string]func(string, *e2b.URLOptions) (string, error){"read": sbx.DownloadURL, "write": sbx.UploadURL} {
			text, err := sign(path, opts)
			if err != nil {
				requireDataKinds(t, err, e2b.ErrInvalidArgument)
				continue
			}
			u, err := url.Parse(text)
			require.NoError(t, err)
			q := u.Query()
			require.Equal(t, path, q.Get("path"))
			require.Equal(t, user, q.Get("username"))
			require.NotContains(t, text, fakeToken)
			said := []string{path, verb, user, fakeToken}
			if at := q.Get("signature_expiration"); at != "" || opts.Expires != 0 {
				said = append(said, at)
			}
			sum := sha256.Sum256([]byte(strings.Join(said, ":")))
			require.Equal(t, "v1_"+base64.RawStdEncoding.EncodeToString(sum[:]), q.Get("signature"))
		}
	})
}
