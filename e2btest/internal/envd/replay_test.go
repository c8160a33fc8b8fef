//go:build linux || darwin

package envd

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/filesystem"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
)

// recordings has exchanges with the real daemon.
const recordings = "../../../testdata/envd"

// recordedToken is the access token of the recordings.
const recordedToken = "0123456789abcdef0123456789abcdef"

// different lists the recordings that this package answers differently on
// purpose. An entry that is not needed fails the test.
var different = map[string]string{
	"init_204": "control routes are answered by the proxy in front of this package",
	"init_401": "control routes are answered by the proxy in front of this package",
}

// linuxOnly lists recordings of what other systems do in other ways: events of
// files are those of the kernel, and not every file system takes every name.
var linuxOnly = []string{
	"fs_get_watcher_events_proto", "fs_list_dir_invalid_utf8_name_proto", "fs_watch_dir_entry_json", "fs_watch_dir_proto",
}

type recording struct {
	Name    string
	Request struct {
		Method, Path, Query string
		Headers             map[string]string
		Body                *string
		BodyBase64          *string `json:"body_base64"`
	}
	Response struct {
		Status     int
		Headers    map[string]string
		Body       *string
		BodyBase64 *string `json:"body_base64"`
	}
}

func content(t *testing.T, text, base64Text *string) []byte {
	if base64Text != nil {
		data, err := base64.StdEncoding.DecodeString(*base64Text)
		require.NoError(t, err)
		return data
	}
	return []byte(value(text))
}

// A scene is the state in which a recording is replayed. The recordings were
// made with absolute paths such as /tmp/envd-fx/dir and with processes and
// watchers of their time. A replay
//
//   - puts the test's directory before every absolute path of a request that the
//     service resolves (not before a command), makes a signature of the old path
//     anew, and takes the directory away from everything in the answer;
//   - names the processes and the watcher of the scene instead of the recorded ones;
//   - gives a Connect-Timeout-Ms one second more, as the machine may be busy;
//   - does not compare pids of new processes, times, watcher IDs, owners, the permissions
//     of links, the sizes of directories and of files that were just created, how output is cut into events and how the two outputs are
//     mixed, the number of keepalives in a row, what is said on stderr about a command
//     that does not exist (only that something is), which kind of space the protobuf
//     library puts into its errors, and the headers Date, Content-Length and
//     X-Envd-Version.
type scene struct {
	*world
	pids    map[uint32]uint32 // recorded → here
	watcher string
	step    func(proto.Message) // called for every message of a stream
}

func TestRecordings(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(recordings, "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	seen := make(map[string]bool)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		seen[name] = true
		run := func(t *testing.T, edit func(*Config)) {
			t.Parallel()
			if runtime.GOOS != "linux" && slices.Contains(linuxOnly, name) {
				t.Log("Linux only")
				return
			}
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			var rec recording
			require.NoError(t, json.Unmarshal(data, &rec))
			got, want := newScene(t, name, edit).replay(t, rec)
			if reason, ok := different[name]; ok {
				require.NotEqual(t, want, got, "is the same, although %s", reason)
				return
			}
			require.Equal(t, want, got)
		}
		t.Run("plain/"+name, func(t *testing.T) { run(t, func(*Config) {}) })
		t.Run("host/"+name, func(t *testing.T) { run(t, host) })
	}
	for name := range different {
		require.True(t, seen[name], "no recording %s", name)
	}
	for name := range scenes {
		require.True(t, seen[name], "no recording %s", name)
	}
}

// newScene makes the files that the recordings are about, and what else the one
// with the name needs.
func newScene(t *testing.T, name string, edit func(*Config)) *scene {
	secured := func(c *Config) {
		for _, prefix := range []string{"auth_", "envs_", "metrics_", "init_", "files_get_header", "files_get_sign"} {
			if strings.HasPrefix(name, prefix) {
				c.AccessToken = recordedToken
			}
		}
		c.Env = map[string]string{"E2B_SANDBOX": "false", "GLOBAL": "1"}
	}
	s := &scene{world: newWorld(t, secured, edit), pids: make(map[uint32]uint32), step: func(proto.Message) {}}
	for _, dir := range []string{"tmp/envd-fx/dir/sub", "tmp/envd-fx/void", "tmp/envd-fx/w", "tmp/envd-fx/badname", "etc"} {
		require.NoError(t, os.MkdirAll(filepath.Join(s.root, dir), 0o755))
	}
	fx := filepath.Join(s.root, "tmp/envd-fx")
	for file, text := range map[string]string{
		"a.txt": "hello world 0123456789\n", "dir/a.txt": "12345", "dir/empty": "", "dir/sub/deep": "1",
		"../../etc/passwd": "", "../../etc/hostname": "vm\n", "p1": "1", "p2": "2",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(fx, file), []byte(text), 0o644))
	}
	require.NoError(t, os.Chmod(filepath.Join(s.root, "etc/hostname"), 0o755))
	require.NoError(t, os.Chmod(filepath.Join(fx, "dir"), 0o777))
	require.NoError(t, os.Symlink("a.txt", filepath.Join(fx, "dir/link")))
	require.NoError(t, os.Symlink("missing", filepath.Join(fx, "dir/broken")))
	date := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	require.NoError(t, os.Chtimes(filepath.Join(fx, "a.txt"), date, date))
	if prepare, ok := scenes[name]; ok {
		prepare(t, s)
	}
	return s
}

// begin starts a process that takes the place of the recorded one.
func (s *scene) begin(t *testing.T, recorded uint32, msg *process.StartRequest) *reading {
	r := s.start(t, msg)
	s.pids[recorded] = r.pid
	return r
}

// cat is the process that several recordings are about.
func (s *scene) cat(t *testing.T, recorded uint32) {
	s.begin(t, recorded, &process.StartRequest{
		Process: &process.ProcessConfig{Cmd: "cat", Envs: map[string]string{"K": "V"}, Cwd: new(s.root + "/tmp")},
		Tag:     new("cat-1"),
	})
}

func (s *scene) sleeper(t *testing.T, recorded uint32) *reading {
	return s.begin(t, recorded, shell("exec sleep 600"))
}

func (s *scene) terminalCat(t *testing.T, recorded uint32) {
	s.begin(t, recorded, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "cat"}, Pty: &process.PTY{}})
}

func (s *scene) watch(t *testing.T) {
	res, err := s.files.CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{
		Path: s.root + "/tmp/envd-fx/w", IncludeEntry: true,
	}))
	require.NoError(t, err)
	require.Regexp(t, "^w[a-z0-9]{20}$", res.Msg.GetWatcherId())
	s.watcher = res.Msg.GetWatcherId()
}

// scenes prepares what single recordings need.
var scenes = map[string]func(*testing.T, *scene){
	"files_compose_missing_404": func(t *testing.T, s *scene) {
		require.NoError(t, os.Remove(s.root+"/tmp/envd-fx/p1"))
	},
	"fs_list_dir_invalid_utf8_name_proto": func(t *testing.T, s *scene) {
		require.NoError(t, os.WriteFile(s.root+"/tmp/envd-fx/badname/x\xff", nil, 0o644))
	},
	"fs_move_proto": func(t *testing.T, s *scene) {
		require.NoError(t, os.RemoveAll(s.root+"/tmp/envd-fx/moved"))
	},
	"fs_remove_proto": func(t *testing.T, s *scene) {
		require.NoError(t, os.MkdirAll(s.root+"/tmp/envd-fx/moved/here", 0o755))
	},
	"fs_get_watcher_events_drained_json": func(t *testing.T, s *scene) { s.watch(t) },
	"fs_remove_watcher_proto":            func(t *testing.T, s *scene) { s.watch(t) },
	"fs_get_watcher_events_proto": func(t *testing.T, s *scene) {
		s.watch(t)
		require.NoError(t, os.WriteFile(s.root+"/tmp/envd-fx/w/p", []byte("1"), 0o644))
		s.srv.mu.Lock()
		w := s.srv.watchers[s.watcher]
		s.srv.mu.Unlock()
		eventually(t, "two events", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.events) == 2
		})
	},
	"fs_watch_dir_entry_json": func(t *testing.T, s *scene) {
		f := s.root + "/tmp/envd-fx/w/f"
		s.step = watchSteps(
			func() { require.NoError(t, os.WriteFile(f, []byte("1"), 0o644)) }, "EVENT_TYPE_WRITE f",
			func() { require.NoError(t, os.Remove(f)) }, "",
		)
	},
	"fs_watch_dir_proto": func(t *testing.T, s *scene) {
		w := s.root + "/tmp/envd-fx/w/"
		s.step = watchSteps(
			func() {
				require.NoError(t, os.WriteFile(w+"f", []byte("1"), 0o644))
				require.NoError(t, os.Chmod(w+"f", 0o600))
				require.NoError(t, os.Rename(w+"f", w+"g"))
				require.NoError(t, os.Mkdir(w+"d", 0o755))
			}, "EVENT_TYPE_CREATE d",
			func() { require.NoError(t, os.WriteFile(w+"d/x", []byte("1"), 0o644)) }, "EVENT_TYPE_WRITE d/x",
			func() { require.NoError(t, os.Remove(w+"g")) }, "",
		)
	},
	"process_close_stdin_proto":            func(t *testing.T, s *scene) { s.cat(t, 8292) },
	"process_list_json":                    func(t *testing.T, s *scene) { s.cat(t, 8292) },
	"process_list_proto":                   func(t *testing.T, s *scene) { s.cat(t, 8292) },
	"process_send_input_wrong_kind_json":   func(t *testing.T, s *scene) { s.cat(t, 8292) },
	"process_stream_input_proto":           func(t *testing.T, s *scene) { s.cat(t, 8292) },
	"process_update_not_pty_json":          func(t *testing.T, s *scene) { s.cat(t, 8292) },
	"process_send_input_no_stdin_json":     func(t *testing.T, s *scene) { s.sleeper(t, 8293) },
	"process_send_signal_unspecified_json": func(t *testing.T, s *scene) { s.sleeper(t, 8293) },
	"process_send_signal_proto":            func(t *testing.T, s *scene) { s.sleeper(t, 8293) },
	"process_close_stdin_pty_proto":        func(t *testing.T, s *scene) { s.terminalCat(t, 8294) },
	"process_send_input_pty_proto":         func(t *testing.T, s *scene) { s.terminalCat(t, 8294) },
	"process_connect_ended_proto": func(t *testing.T, s *scene) {
		s.begin(t, 8284, shell("exit 7")).finished()
	},
	"process_connect_killed_proto": func(t *testing.T, s *scene) {
		r := s.sleeper(t, 8293)
		s.signal(t, r.pid, process.Signal_SIGNAL_SIGKILL)
		r.finished()
	},
	"process_connect_running_proto": func(t *testing.T, s *scene) {
		msg := shell("read x; echo tick; exit 7")
		msg.Stdin = new(true)
		r := s.begin(t, 8284, msg)
		s.step = func(msg proto.Message) {
			if msg.(*process.ConnectResponse).GetEvent().GetStart() != nil {
				s.sendInput(t, r.pid, "go\n")
			}
		}
	},
}

// watchSteps does one thing when a watch has begun, and each of the others after
// the event that comes before it. Events are as "EVENT_TYPE_WRITE name".
func watchSteps(steps ...any) func(proto.Message) {
	next := ""
	return func(msg proto.Message) {
		ev := msg.(*filesystem.WatchDirResponse)
		now := ""
		if fsEvent := ev.GetFilesystem(); fsEvent != nil {
			now = fsEvent.GetType().String() + " " + fsEvent.GetName()
		} else if ev.GetStart() == nil {
			return
		}
		if now == next && len(steps) > 0 {
			do := steps[0].(func())
			next, steps = steps[1].(string), steps[2:]
			do()
		}
	}
}

// An answer is what is compared.
type answer struct {
	Status  int
	Headers map[string]string
	Body    any
}

// replay sends the request of rec and returns what came and what should have.
func (s *scene) replay(t *testing.T, rec recording) (got, want answer) {
	body := s.rewriteBody(t, rec)
	query := s.rewriteQuery(t, rec)
	target := s.url + rec.Request.Path
	if query != "" {
		target += "?" + query
	}
	req, err := http.NewRequestWithContext(t.Context(), rec.Request.Method, target, bytes.NewReader(body))
	require.NoError(t, err)
	for name, text := range rec.Request.Headers {
		if ms, err := strconv.Atoi(text); err == nil && name == "Connect-Timeout-Ms" {
			text = strconv.Itoa(ms + 1000)
		}
		req.Header.Set(name, text)
	}
	res, err := s.http.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	headers := make(map[string]string)
	for name := range res.Header {
		headers[name] = strings.Join(res.Header.Values(name), ", ")
	}
	got = answer{res.StatusCode, comparable(headers), s.decode(t, rec, headers, res.Body)}

	old := content(t, rec.Response.Body, rec.Response.BodyBase64)
	s.step = func(proto.Message) {}
	want = answer{rec.Response.Status, comparable(rec.Response.Headers), s.decode(t, rec, rec.Response.Headers, bytes.NewReader(old))}
	return got, want
}

func comparable(headers map[string]string) map[string]string {
	headers = maps.Clone(headers)
	for _, name := range []string{"Date", "Content-Length", "X-Envd-Version"} {
		delete(headers, name)
	}
	return headers
}

func (s *scene) rewriteQuery(t *testing.T, rec recording) string {
	if rec.Request.Query == "" {
		return ""
	}
	values, err := url.ParseQuery(rec.Request.Query)
	require.NoError(t, err)
	old, err := parseFileQuery(values)
	require.NoError(t, err)
	if values.Has("path") {
		values.Set("path", s.root+old.path)
	}
	if old.signature != nil && *old.signature == sign(recordedToken, "read", old) {
		now, err := parseFileQuery(values)
		require.NoError(t, err)
		values.Set("signature", sign(recordedToken, "read", now))
	}
	return values.Encode()
}

func (s *scene) rewriteBody(t *testing.T, rec recording) []byte {
	body := content(t, rec.Request.Body, rec.Request.BodyBase64)
	input, _ := messages(rec.Request.Path)
	media := rec.Request.Headers["Content-Type"]
	switch {
	case rec.Request.Path == "/files" || rec.Request.Path == "/files/compose":
		text := strings.ReplaceAll(string(body), `filename="/`, `filename="`+s.root+`/`)
		return []byte(strings.ReplaceAll(text, `"/tmp/envd-fx`, `"`+s.root+`/tmp/envd-fx`))
	case input == nil || body == nil || string(body) == "{bad":
		return body
	case strings.HasPrefix(media, "application/connect+"):
		var out bytes.Buffer
		for _, f := range readFrames(t, bytes.NewReader(body), nil) {
			msg := input.New().Interface()
			unmarshal(t, media, f.payload, msg)
			s.rewrite(msg.ProtoReflect())
			payload := marshal(t, media, msg)
			out.WriteByte(f.flags)
			require.NoError(t, binary.Write(&out, binary.BigEndian, uint32(len(payload))))
			out.Write(payload)
		}
		return out.Bytes()
	default:
		msg := input.New().Interface()
		unmarshal(t, media, body, msg)
		s.rewrite(msg.ProtoReflect())
		return marshal(t, media, msg)
	}
}

// rewrite makes the paths and ids of a request those of the scene.
func (s *scene) rewrite(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsList() || f.IsMap():
		case f.Kind() == protoreflect.MessageKind:
			s.rewrite(v.Message())
		case f.Name() == "pid":
			if pid, ok := s.pids[uint32(v.Uint())]; ok {
				m.Set(f, protoreflect.ValueOfUint32(pid))
			}
		case f.Name() == "watcher_id":
			m.Set(f, protoreflect.ValueOfString(s.watcher))
		case slices.Contains([]protoreflect.Name{"path", "source", "destination", "cwd"}, f.Name()) && strings.HasPrefix(v.String(), "/"):
			m.Set(f, protoreflect.ValueOfString(s.root+v.String()))
		}
		return true
	})
}

// neutral takes out of an answer what is not compared.
func (s *scene) neutral(m protoreflect.Message) {
	directory := false
	switch msg := m.Interface().(type) {
	case *filesystem.EntryInfo:
		directory = msg.GetType() == filesystem.FileType_FILE_TYPE_DIRECTORY
		if msg.SymlinkTarget != nil {
			msg.Permissions = msg.Permissions[:1]
		}
	case *filesystem.FilesystemEvent:
		if msg.GetType() == filesystem.EventType_EVENT_TYPE_CREATE && msg.Entry != nil {
			msg.Entry.Size = 0
		}
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch name := f.Name(); {
		case name == "modified_time" || name == "owner" || name == "group" || name == "size" && directory:
			m.Clear(f)
		case f.IsMap():
		case f.IsList():
			for i := range v.List().Len() {
				s.neutral(v.List().Get(i).Message())
			}
		case f.Kind() == protoreflect.MessageKind:
			s.neutral(v.Message())
		case name == "pid":
			m.Set(f, protoreflect.ValueOfUint32(1))
		case name == "watcher_id":
			m.Set(f, protoreflect.ValueOfString("w"))
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString(strings.ReplaceAll(v.String(), s.root, "")))
		case f.Kind() == protoreflect.BytesKind:
			m.Set(f, protoreflect.ValueOfBytes(bytes.ReplaceAll(v.Bytes(), []byte(s.root), nil)))
		}
		return true
	})
}

// messages returns the types of a method.
func messages(path string) (input, output protoreflect.MessageType) {
	service, method, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil, nil
	}
	m := d.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(method))
	input, inErr := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
	output, outErr := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if inErr != nil || outErr != nil {
		return nil, nil
	}
	return input, output
}

func unmarshal(t *testing.T, media string, data []byte, msg proto.Message) {
	if strings.HasSuffix(media, "json") {
		require.NoError(t, protojson.Unmarshal(data, msg))
	} else {
		require.NoError(t, proto.Unmarshal(data, msg))
	}
}

func marshal(t *testing.T, media string, msg proto.Message) []byte {
	var data []byte
	var err error
	if strings.HasSuffix(media, "json") {
		data, err = protojson.Marshal(msg)
	} else {
		data, err = proto.Marshal(msg)
	}
	require.NoError(t, err)
	return data
}

type frame struct {
	flags   byte
	payload []byte
}

// readFrames reads the envelopes of a stream and calls each, if it is not nil,
// as soon as one is there.
func readFrames(t *testing.T, r io.Reader, each func(frame)) []frame {
	var frames []frame
	for {
		var head [5]byte
		if _, err := io.ReadFull(r, head[:]); err == io.EOF {
			return frames
		} else if err != nil {
			require.NoError(t, err)
		}
		f := frame{head[0], make([]byte, binary.BigEndian.Uint32(head[1:]))}
		_, err := io.ReadFull(r, f.payload)
		require.NoError(t, err)
		frames = append(frames, f)
		if each != nil {
			each(f)
		}
	}
}

// decode turns a body into something that can be compared.
func (s *scene) decode(t *testing.T, rec recording, headers map[string]string, body io.Reader) any {
	_, output := messages(rec.Request.Path)
	media := headers["Content-Type"]
	if strings.HasPrefix(media, "application/connect+") {
		var list []any
		readFrames(t, body, func(f frame) {
			if f.flags&2 != 0 {
				list = append(list, "end-stream", s.decodeJSON(t, f.payload))
				return
			}
			msg := output.New().Interface()
			unmarshal(t, media, f.payload, msg)
			s.step(msg)
			s.neutral(msg.ProtoReflect())
			list = append(list, msg)
		})
		return summary(t, list)
	}
	if headers["Content-Encoding"] == "gzip" {
		zipped, err := gzip.NewReader(body)
		require.NoError(t, err)
		body = zipped
	}
	data, err := io.ReadAll(body)
	require.NoError(t, err)
	switch {
	case output != nil && media == "application/proto", output != nil && media == "application/json" && !bytes.Contains(data, []byte(`"code"`)):
		msg := output.New().Interface()
		unmarshal(t, media, data, msg)
		s.neutral(msg.ProtoReflect())
		return generic(t, msg)
	case json.Valid(data):
		return s.decodeJSON(t, data)
	default:
		return strings.ReplaceAll(string(data), s.root, "")
	}
}

func (s *scene) decodeJSON(t *testing.T, data []byte) (v any) {
	text := strings.NewReplacer(s.root, "", "\u00a0", " ").Replace(string(data))
	require.NoError(t, json.Unmarshal([]byte(text), &v))
	return v
}

// generic is msg as JSON values.
func generic(t *testing.T, msg proto.Message) (v any) {
	data, err := protojson.Marshal(msg)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &v))
	return v
}

// summary joins the output of processes and makes one of several keepalives.
func summary(t *testing.T, list []any) any {
	var kept []any
	outputs := make(map[string]string)
	notFound := false
	for _, item := range list {
		msg, ok := item.(proto.Message)
		if !ok {
			kept = append(kept, item)
			continue
		}
		var event *process.ProcessEvent
		if withEvent, ok := item.(interface{ GetEvent() *process.ProcessEvent }); ok {
			event = withEvent.GetEvent()
		}
		notFound = notFound || event.GetEnd().GetExitCode() == 127
		if data := event.GetData(); data != nil {
			kind := fmt.Sprintf("%T", data.GetOutput())
			outputs[kind] += string(data.GetStdout()) + string(data.GetStderr()) + string(data.GetPty())
			continue
		}
		v := generic(t, msg)
		if keepalive := strings.Contains(fmt.Sprint(v), "keepalive"); keepalive && len(kept) > 0 && fmt.Sprint(kept[len(kept)-1]) == fmt.Sprint(v) {
			continue
		}
		kept = append(kept, v)
	}
	if stderr := fmt.Sprintf("%T", &process.ProcessEvent_DataEvent_Stderr{}); notFound && outputs[stderr] != "" {
		outputs[stderr] = "something"
	}
	if len(outputs) > 0 {
		kept = append(kept, outputs)
	}
	return kept
}
