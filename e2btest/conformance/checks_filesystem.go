package conformance

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/filesystem"
)

const (
	rpcStat       = "filesystem.Filesystem/Stat"
	rpcMakeDir    = "filesystem.Filesystem/MakeDir"
	rpcMove       = "filesystem.Filesystem/Move"
	rpcListDir    = "filesystem.Filesystem/ListDir"
	rpcRemove     = "filesystem.Filesystem/Remove"
	rpcWatch      = "filesystem.Filesystem/WatchDir"
	rpcWatcher    = "filesystem.Filesystem/CreateWatcher"
	rpcEvents     = "filesystem.Filesystem/GetWatcherEvents"
	rpcEndWatcher = "filesystem.Filesystem/RemoveWatcher"
)

func filesystemChecks() []check {
	return []check{
		{"files/stat", statsFiles},
		{"files/symlink", statsLinks},
		{"files/make-dir", makesDirs},
		{"files/move", movesFiles},
		{"files/list", listsFiles},
		{"files/remove", removesFiles},
		{"files/watch-json", func(p *probe) { watches(p, inJSON) }},
		{"files/watch-proto", func(p *probe) { watches(p, inProto) }},
		{"files/watch-errors", watchErrors},
		{"files/watcher", pollsWatcher},
	}
}

func (p *probe) stat(s *sandbox, path string) *filesystem.EntryInfo {
	var m filesystem.StatResponse
	p.rpc(s, rpcStat, &filesystem.StatRequest{Path: path}, &m)
	return m.GetEntry()
}

// isFile fails the check unless the entry is a file of the default user.
func (p *probe) isFile(e *filesystem.EntryInfo, path string, size int64) {
	want := fmt.Sprintf("file %s of %d bytes, mode 644 -rw-r--r--, owner user", path, size)
	kind := strings.ToLower(strings.TrimPrefix(e.GetType().String(), "FILE_TYPE_"))
	got := fmt.Sprintf("%s %s of %d bytes, mode %o %s, owner %s", kind, e.GetName(), e.GetSize(), e.GetMode(), e.GetPermissions(), e.GetOwner())
	p.holds(got == want, rpcStat+": "+want, got)
}

func statsFiles(p *probe) {
	s := p.base(p)
	path := p.dir() + "/file"
	p.writeFile(s, path, "12345")
	p.isFile(p.stat(s, path), "file", 5)
	e := p.stat(s, path)
	p.holds(strings.HasSuffix(e.GetPath(), "/"+path) && e.GetPath()[0] == '/', "the absolute path of "+path, e.GetPath())
	p.holds(e.GetModifiedTime().AsTime().Year() > 2000, "the time of the last change", e.GetModifiedTime())
	p.holds(e.SymlinkTarget == nil, "no target of a file that is no link", e.GetSymlinkTarget())
	entry := p.unary(s, rpcStat, &filesystem.StatRequest{Path: path}).is(200).fields().object("entry")
	entry.expect("size", "5") // 64 bits are text in JSON
	entry.expect("type", "FILE_TYPE_FILE")
	equal(p, "the type of a directory", filesystem.FileType_FILE_TYPE_DIRECTORY, p.stat(s, p.dir()).GetType())
	p.unary(s, rpcStat, &filesystem.StatRequest{Path: p.nothing(s)}).refusedRPC(404, "not_found", "file not found: …")
	p.unary(s, rpcStat, &filesystem.StatRequest{Path: path + "/below"}).refusedRPC(500, "internal", "error getting file info: …")
	p.unary(s, rpcStat, &filesystem.StatRequest{Path: "~other"}).refusedRPC(400, "invalid_argument", "failed to expand path …")
}

func statsLinks(p *probe) {
	s := p.base(p)
	p.writeFile(s, p.dir()+"/file", "12345")
	p.shell(s, "cd "+p.dir()+" && ln -s file link && ln -s none broken")
	target := p.stat(s, p.dir()+"/file").GetPath()
	e := p.stat(s, p.dir()+"/link")
	equal(p, "the type of a link to a file", filesystem.FileType_FILE_TYPE_FILE, e.GetType())
	equal(p, "the target of a link", target, e.GetSymlinkTarget())
	p.holds(strings.HasPrefix(e.GetPermissions(), "L"), "permissions of a link that begin with L", e.GetPermissions())
	e = p.stat(s, p.dir()+"/broken")
	equal(p, "the type of a broken link", filesystem.FileType_FILE_TYPE_UNSPECIFIED, e.GetType())
	equal(p, "the target of a broken link", e.GetPath(), e.GetSymlinkTarget())
}

func makesDirs(p *probe) {
	s := p.base(p)
	path := p.dir() + "/a/b"
	makeDir := func(path string) proto.Message { return &filesystem.MakeDirRequest{Path: path} }
	var m filesystem.MakeDirResponse
	p.rpc(s, rpcMakeDir, makeDir(path), &m)
	equal(p, "the name", "b", m.GetEntry().GetName())
	equal(p, "the permissions", "drwxr-xr-x", m.GetEntry().GetPermissions())
	equal(p, "the owner of a parent", "user", p.stat(s, p.dir()+"/a").GetOwner())
	p.unary(s, rpcMakeDir, makeDir(path)).refusedRPC(409, "already_exists", "directory already exists: …")
	p.writeFile(s, path+"/file", "")
	p.unary(s, rpcMakeDir, makeDir(path+"/file")).refusedRPC(400, "invalid_argument", "path already exists but it is not a directory: …")
	p.unary(s, rpcMakeDir, makeDir(path+"/file/below")).refusedRPC(500, "internal", "…")
}

func movesFiles(p *probe) {
	s := p.base(p)
	move := func(from, to string) proto.Message {
		return &filesystem.MoveRequest{Source: p.dir() + from, Destination: p.dir() + to}
	}
	p.writeFile(s, p.dir()+"/one", "1")
	p.writeFile(s, p.dir()+"/two", "2")
	var m filesystem.MoveResponse
	p.rpc(s, rpcMove, move("/one", "/new/parents/three"), &m)
	p.isFile(m.GetEntry(), "three", 1)
	p.rpc(s, rpcMove, move("/new/parents/three", "/two"), &m) // a file is replaced
	equal(p, "the file that was moved", "1", p.readFile(s, p.dir()+"/two"))
	p.unary(s, rpcMove, move("/one", "/four")).refusedRPC(404, "not_found", "source file not found: …")
	p.unary(s, rpcMove, move("/two", "/new")).refusedRPC(500, "internal", "error renaming: …")
	p.unary(s, rpcMove, move("/new", "/new/parents/new")).refusedRPC(500, "internal", "error renaming: …")
	p.unary(s, rpcMove, move("/new", "/two/below")).refusedRPC(500, "internal", "path is a file: …")
}

func listsFiles(p *probe) {
	s := p.base(p)
	for _, name := range []string{"/b", "/a/x", "/a/c/y"} {
		p.writeFile(s, p.dir()+name, "")
	}
	root := p.stat(s, p.dir()).GetPath() + "/"
	for depth, want := range map[uint32]string{0: "a b", 1: "a b", 2: "a a/c a/x b", 9: "a a/c a/c/y a/x b"} {
		var m filesystem.ListDirResponse
		p.rpc(s, rpcListDir, &filesystem.ListDirRequest{Path: p.dir(), Depth: depth}, &m)
		var names []string
		for _, e := range m.GetEntries() {
			names = append(names, strings.TrimPrefix(e.GetPath(), root))
		}
		equal(p, fmt.Sprintf("what ListDir finds down to %d", depth), want, strings.Join(names, " "))
	}
	list := func(path string) *answer { return p.unary(s, rpcListDir, &filesystem.ListDirRequest{Path: path}) }
	p.rpc(s, rpcMakeDir, &filesystem.MakeDirRequest{Path: p.dir() + "/empty"}, new(filesystem.MakeDirResponse))
	list(p.dir() + "/empty").is(200).says("{}")
	list(p.nothing(s)).refusedRPC(404, "not_found", "path not found: …")
	list(p.dir()+"/b").refusedRPC(400, "invalid_argument", "path is not a directory: …")
}

func removesFiles(p *probe) {
	s := p.base(p)
	p.writeFile(s, p.dir()+"/tree/of/files", "")
	p.writeFile(s, p.dir()+"/file", "")
	p.shell(s, "ln -s ../file "+p.dir()+"/tree/link")
	remove := &filesystem.RemoveRequest{Path: p.dir() + "/tree"}
	p.rpc(s, rpcRemove, remove, new(filesystem.RemoveResponse))
	p.unary(s, rpcStat, &filesystem.StatRequest{Path: remove.GetPath()}).is(404)
	p.stat(s, p.dir()+"/file") // what a link leads to stays
	p.rpc(s, rpcRemove, remove, new(filesystem.RemoveResponse))
	p.unary(s, rpcRemove, &filesystem.RemoveRequest{Path: p.dir() + "/file/below"}).refusedRPC(500, "internal", "error removing file or directory: …")
}

// touched is what happens in a directory that is watched, and the events of it
// which are certain.
const touched = "echo x >new && chmod 600 new && mv new renamed && rm renamed && mkdir -p sub && touch sub/below"

var touchedEvents = []string{"CREATE new", "WRITE new", "CHMOD new", "RENAME new", "CREATE renamed", "REMOVE renamed", "CREATE sub"}

func event(e *filesystem.FilesystemEvent) string {
	return strings.TrimPrefix(e.GetType().String(), "EVENT_TYPE_") + " " + e.GetName()
}

// allOf reports whether all that is wanted was seen, which may have come more than
// once and with others.
func allOf(want, seen []string) bool {
	return !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(seen, w) })
}

func watches(p *probe, c codec) {
	s := p.base(p)
	p.writeFile(s, p.dir()+"/old", "")
	for _, recursive := range []bool{false, true} {
		st := p.stream(s, rpcWatch, c, &filesystem.WatchDirRequest{Path: p.dir(), Recursive: recursive})
		var m filesystem.WatchDirResponse
		p.holds(st.next(&m) && m.GetStart() != nil, rpcWatch+": a first event that says that it has begun", m.String())
		p.shell(s, "cd "+p.dir()+" && rm -r -f sub && "+touched+" && touch last")
		var seen []string
		for !slices.Contains(seen, "CHMOD last") && !slices.Contains(seen, "CREATE last") {
			if !st.next(&m) {
				p.fail(rpcWatch+": events until the last", fmt.Sprintf("%q, then the end: %+v", seen, st.err))
			}
			if e := m.GetFilesystem(); e != nil {
				seen = append(seen, event(e))
			}
		}
		st.close()
		p.holds(allOf(touchedEvents, seen), fmt.Sprintf("the events %q", touchedEvents), seen)
		equal(p, fmt.Sprintf("an event from a subdirectory where recursive is %t", recursive),
			recursive, slices.Contains(seen, "CREATE sub/below"))
		p.shell(s, "rm "+p.dir()+"/last")
	}
}

func watchErrors(p *probe) {
	s := p.base(p)
	p.writeFile(s, p.dir()+"/file", "")
	nothing := p.nothing(s)
	for path, want := range map[string]rpcError{
		nothing:           {"not_found", "path " + nothing + " not found: …"},
		p.dir() + "/file": {"invalid_argument", "path …"},
	} {
		st := p.stream(s, rpcWatch, inProto, &filesystem.WatchDirRequest{Path: path})
		p.holds(!st.next(new(filesystem.WatchDirResponse)), rpcWatch+" of "+path+": the end of the stream", "an event")
		st.close()
		st.ends(want.Code, want.Message)
	}
	st := p.stream(s, rpcWatch, inProto, &filesystem.WatchDirRequest{Path: p.dir()}, header{"Connect-Timeout-Ms", "200"})
	for st.next(new(filesystem.WatchDirResponse)) {
	}
	st.close()
	st.ends("deadline_exceeded", "context deadline exceeded")
}

func pollsWatcher(p *probe) {
	s := p.base(p)
	p.writeFile(s, p.dir()+"/old", "")
	var made filesystem.CreateWatcherResponse
	p.rpc(s, rpcWatcher, &filesystem.CreateWatcherRequest{Path: p.dir()}, &made)
	id := made.GetWatcherId()
	p.holds(strings.HasPrefix(id, "w"), rpcWatcher+": a watcherId that begins with w", id)
	get := &filesystem.GetWatcherEventsRequest{WatcherId: id}
	p.unary(s, rpcEvents, get).is(200).says("{}")
	p.shell(s, "cd "+p.dir()+" && "+touched)
	var seen []string
	p.eventually(fmt.Sprintf("the events %q", touchedEvents), func() (bool, string) {
		var m filesystem.GetWatcherEventsResponse
		p.rpc(s, rpcEvents, get, &m)
		for _, e := range m.GetEvents() {
			seen = append(seen, event(e))
		}
		return allOf(touchedEvents, seen), fmt.Sprintf("%q", seen)
	})
	end := &filesystem.RemoveWatcherRequest{WatcherId: id}
	p.rpc(s, rpcEndWatcher, end, new(filesystem.RemoveWatcherResponse))
	missing := "watcher with id " + id + " not found"
	p.unary(s, rpcEvents, get).refusedRPC(404, "not_found", missing)
	p.unary(s, rpcEndWatcher, end).refusedRPC(404, "not_found", missing)
	p.unary(s, rpcWatcher, &filesystem.CreateWatcherRequest{Path: p.nothing(s)}).refusedRPC(404, "not_found", "path …")
}
