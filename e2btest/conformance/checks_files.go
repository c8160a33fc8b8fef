package conformance

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"time"
)

func fileChecks() []check {
	return []check{
		{"files/write-read", filesWriteRead},
		{"files/multipart", filesMultipart},
		{"files/overwrite", filesOverwrite},
		{"files/range", filesRange},
		{"files/gzip", filesGzip},
		{"files/errors", filesErrors},
		{"files/signature", filesSignature},
		{"files/metadata", filesMetadata},
		{"files/compose", filesCompose},
	}
}

func filesWriteRead(p *probe) {
	s := p.base(p)
	p.needs(s, "0.5.7")
	path := p.dir() + "/a/b/note.txt"
	a := p.writeFile(s, path, "first\x00\xff").has("Content-Type", "text/plain; charset=utf-8")
	item := a.list()[0]
	item.expect("name", "note.txt")
	item.expect("type", "file")
	p.holds(strings.HasSuffix(item.text("path"), "/"+path) && strings.HasPrefix(item.text("path"), "/"),
		a.expect("an absolute path that ends in %s", path), item.text("path"))
	a = p.ask(s, envdPort, "GET", file(path), "").is(200).says("first\x00\xff")
	a.has("Content-Length", "7").has("Accept-Ranges", "bytes").has("Content-Disposition", "inline; filename=note.txt")
	if _, err := http.ParseTime(a.header.Get("Last-Modified")); err != nil {
		p.fail(a.expect("a time in the header Last-Modified"), a.header.Get("Last-Modified"))
	}
	a.has("Etag", "")
	equal(p, "the file by its absolute path", "first\x00\xff", p.readFile(s, item.text("path")))
	p.writeFile(s, p.dir()+"/empty", "")
	p.ask(s, envdPort, "GET", file(p.dir()+"/empty"), "").is(200).says("").has("Content-Length", "0")
}

// form is a body of multipart/form-data with files, and its header.
func form(files ...string) (string, header) {
	var b strings.Builder
	w := multipart.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		part, _ := w.CreateFormFile("file", files[i]) // to memory
		_, _ = part.Write([]byte(files[i+1]))
	}
	_ = w.Close()
	return b.String(), header{"Content-Type", w.FormDataContentType()}
}

func filesMultipart(p *probe) {
	s := p.base(p)
	body, kind := form("ignored", "one")
	p.ask(s, envdPort, "POST", file(p.dir()+"/one"), body, kind).is(200)
	equal(p, "the file of a form", "one", p.readFile(s, p.dir()+"/one"))
	body, kind = form(p.dir()+"/two", "2", p.dir()+"/sub dir/three", "3")
	a := p.ask(s, envdPort, "POST", "/files", body, kind).is(200)
	p.holds(len(a.list()) == 2, a.expect("a list of 2 files"), a.body)
	equal(p, "the first file of a form", "2", p.readFile(s, p.dir()+"/two"))
	equal(p, "the second file of a form", "3", p.readFile(s, p.dir()+"/sub dir/three"))
	body, kind = form(p.dir()+"/two", "new", p.dir()+"/two", "newer")
	p.ask(s, envdPort, "POST", "/files", body, kind).refused(400, "you cannot upload multiple files to the same path '…")
}

func filesOverwrite(p *probe) {
	s := p.base(p)
	path := p.dir() + "/file"
	p.writeFile(s, path, "a longer text")
	p.shell(s, "chmod 600 "+path)
	p.writeFile(s, path, "short")
	equal(p, "the file after it was written again", "short", p.readFile(s, path))
	equal(p, "its mode, which stays", 0o600, p.stat(s, path).GetMode())
	p.shell(s, "ln -s file "+p.dir()+"/link")
	p.writeFile(s, p.dir()+"/link", "through a link")
	equal(p, "the file after a write to a link to it", "through a link", p.readFile(s, path))
}

func filesRange(p *probe) {
	s := p.base(p)
	path := p.dir() + "/digits"
	p.writeFile(s, path, "0123456789")
	get := func(headers ...header) *answer { return p.ask(s, envdPort, "GET", file(path), "", headers...) }
	get(header{"Range", "bytes=2-4"}).is(206).says("234").has("Content-Range", "bytes 2-4/10")
	get(header{"Range", "bytes=-3"}).is(206).says("789")
	get(header{"Range", "bytes=8-"}).is(206).says("89")
	get(header{"Range", "bytes=10-"}).is(416).has("Content-Range", "bytes */10")
	modified := get().is(200).header.Get("Last-Modified")
	get(header{"Range", "bytes=2-4"}, header{"If-Range", modified}).is(206)
	get(header{"Range", "bytes=2-4"}, header{"If-Range", "Mon, 02 Jan 2006 15:04:05 GMT"}).is(200).says("0123456789")
	get(header{"If-Modified-Since", modified}).is(304)
}

func filesGzip(p *probe) {
	s := p.base(p)
	p.needs(s, "0.5.3")
	text := strings.Repeat("gzip makes this smaller. ", 1000)
	path := p.dir() + "/text"
	p.ask(s, envdPort, "POST", file(path), zipped(text), octets, header{"Content-Encoding", "gzip"}).is(200)
	get := func(accept string, others ...header) *answer {
		return p.ask(s, envdPort, "GET", file(path), "", append(others, header{"Accept-Encoding", accept})...)
	}
	p.holds(get("identity").is(200).has("Content-Encoding", "").body == text, "the text that was sent in gzip", "another")
	a := get("gzip").is(200).has("Content-Encoding", "gzip")
	p.holds(unzipped(a) == text, a.expect("the text in gzip"), "another")
	get("br").is(200).has("Content-Encoding", "")
	get("gzip", header{"Range", "bytes=0-3"}).is(206).says("gzip")
	get("gzip;q=1, identity;q=0", header{"Range", "bytes=0-3"}).is(406)
	p.ask(s, envdPort, "POST", file(path), "no gzip", octets, header{"Content-Encoding", "gzip"}).
		refused(400, "error decompressing request body: …")
	p.ask(s, envdPort, "POST", file(path), "x", octets, header{"Content-Encoding", "br"}).is(400).contains("unsupported Content-Encoding: br")
}

func filesErrors(p *probe) {
	s := p.base(p)
	p.needs(s, "0.5.7")
	path := p.dir() + "/file"
	p.writeFile(s, path, "x")
	get := func(query string) *answer { return p.ask(s, envdPort, "GET", query, "") }
	post := func(query string, headers ...header) *answer {
		return p.ask(s, envdPort, "POST", query, "x", headers...)
	}
	home, nothing := p.home(s), p.nothing(s)
	get(file(nothing)).refused(404, "path '"+nothing+"' does not exist")
	get(file(home)).refused(400, "path '"+home+"' is a directory")
	get(file(path + "/below")).is(500)
	get(file("~other/x")).is(400)
	get(file(path, "username", "conformance-ghost")).refused(401, "error looking up user 'conformance-ghost': …")
	get("/files?path=x&signature_expiration=soon").is(400)
	post(file(home), octets).refused(400, "path is a directory: "+home)
	post(file(path+"/below"), octets).is(500)
	post("/files", octets).refused(400, "path query parameter is required for raw body upload")
	post(file(path), header{"Content-Type", "text/plain"}).
		refused(400, "unsupported content type: text/plain, expected multipart/form-data or application/octet-stream")
	p.ask(s, envdPort, "HEAD", file(path), "").is(405)
	p.ask(s, envdPort, "DELETE", file(path), "").is(405)
}

// signature lets who has it make one request for a file, by E2B's recipe.
func signature(path, operation, username, token string, expires int64) string {
	input := path + ":" + operation + ":" + username + ":" + token
	if expires != 0 {
		input += ":" + strconv.FormatInt(expires, 10)
	}
	sum := sha256.Sum256([]byte(input))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

func filesSignature(p *probe) {
	s := p.base(p)
	path := p.dir() + "/signed"
	p.writeFile(s, path, "signed")
	open := *s
	open.envd = ""
	get := func(others ...string) *answer { return p.ask(&open, envdPort, "GET", file(path, others...), "") }
	sign := func(operation, username string, expires int64) string {
		return signature(path, operation, username, s.envd, expires)
	}
	get("signature", sign("read", "", 0)).is(200).says("signed")
	get("signature", sign("read", "user", 0), "username", "user").is(200).says("signed")
	later, before := time.Now().Add(time.Hour).Unix(), time.Now().Add(-time.Hour).Unix()
	get("signature", sign("read", "", later), "signature_expiration", fmt.Sprint(later)).is(200).says("signed")
	get("signature", sign("read", "", before), "signature_expiration", fmt.Sprint(before)).refused(401, "signature is already expired")
	get("signature", sign("read", "", later), "signature_expiration", fmt.Sprint(later+1)).refused(401, "invalid signature")
	get("signature", sign("write", "", 0)).refused(401, "invalid signature")
	get().refused(401, "missing signature query parameter")
	p.ask(&open, envdPort, "POST", file(path, "signature", sign("write", "", 0)), "rewritten", octets).is(200)
	p.ask(&open, envdPort, "POST", file(path, "signature", sign("read", "", 0)), "x", octets).refused(401, "invalid signature")
	equal(p, "the file after a signed write", "rewritten", p.readFile(s, path))
	open.envd = "wrong" // counts more than a signature
	get("signature", sign("read", "", 0)).refused(401, "access token present in header but does not match")
}

func filesMetadata(p *probe) {
	s := p.base(p)
	p.needs(s, "0.6.2")
	path := p.dir() + "/file"
	post := func(headers ...header) *answer {
		return p.ask(s, envdPort, "POST", file(path), "x", append(headers, octets)...)
	}
	post(header{"X-Metadata-Who", "conformance"}).is(200).list()[0].expect("metadata", object{"who": "conformance"})
	entry := p.stat(s, path)
	p.holds(len(entry.GetMetadata()) == 1 && entry.GetMetadata()["who"] == "conformance", "the metadata in Stat", entry.GetMetadata())
	post(header{"X-Metadata-Bad", "é"}).refused(400, "invalid metadata: …")
	post().is(200)
	p.holds(len(p.stat(s, path).GetMetadata()) == 0, "no metadata after an upload without any", "some")
}

func filesCompose(p *probe) {
	s := p.base(p)
	p.needs(s, "0.5.5")
	one, two := p.dir()+"/one", p.dir()+"/two"
	p.writeFile(s, one, "1")
	p.writeFile(s, two, "2")
	compose := func(body object) *answer {
		return p.ask(s, envdPort, "POST", "/files/compose", encoded(body), header{"Content-Type", "application/json"})
	}
	f := compose(object{"source_paths": []string{two, one, two}, "destination": p.dir() + "/all"}).is(200).fields()
	f.expect("name", "all")
	f.expect("type", "file")
	equal(p, "the composed file", "212", p.readFile(s, p.dir()+"/all"))
	p.ask(s, envdPort, "GET", file(one), "").is(404) // the sources are gone
	compose(object{"source_paths": []string{}, "destination": one}).refused(400, "source_paths must not be empty")
	compose(object{"source_paths": []string{two}}).refused(400, "destination is required")
	compose(object{"source_paths": []string{two}, "destination": one}).refused(404, "source file not found: …")
}
