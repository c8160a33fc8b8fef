package conformance

import (
	"net/url"
	"strings"
	"time"
)

func snapshotChecks() []check {
	return []check{
		{"snapshots/unnamed", snapshotUnnamed},
		{"snapshots/named", snapshotNamed},
		{"snapshots/bad-requests", snapshotBadRequests},
		{"snapshots/fork", forks},
		{"snapshots/fork-bad-requests", forkBadRequests},
	}
}

// snapshot takes one of a running sandbox.
func (p *probe) snapshot(s *sandbox, body object) fields {
	p.mu.Lock()
	p.sources[s.id] = true
	p.mu.Unlock()
	f := p.call("POST", "/sandboxes/"+s.id+"/snapshots", body).enabled().is(201).fields()
	p.owns(templatePath(f.text("snapshotID")))
	return f
}

func (p *probe) listsSnapshot(query string, want fields) {
	list := p.call("GET", "/snapshots?"+query, nil).is(200).list()
	p.holds(len(list) == 1, "GET /snapshots?"+query+": one snapshot", len(list))
	list[0].expect("snapshotID", want.m["snapshotID"])
	list[0].expect("names", want.m["names"])
}

func snapshotUnnamed(p *probe) {
	s := p.make(nil)
	p.writeFile(s, "conformance-snapshot", "in it")
	f := p.snapshot(s, object{})
	id := f.text("snapshotID")
	p.holds(strings.HasSuffix(id, ":default"), f.of+": a snapshotID that ends in :default", id)
	f.expect("names", []string{})
	p.info(s.id).expect("state", "running")
	p.listsSnapshot("sandboxID="+s.id, f)

	p.writeFile(s, "conformance-snapshot", "too late")
	made := p.make(object{"templateID": id})
	equal(p, "the file as it was when the snapshot was taken", "in it", p.readFile(made, "conformance-snapshot"))
	path := templatePath(id)
	p.call("DELETE", path, nil).refused(400, "cannot delete template '…")
	p.call("DELETE", "/sandboxes/"+made.id, nil).is(204)
	p.call("DELETE", path, nil).is(204)
	p.call("DELETE", path, nil).is(404)
	p.call("GET", "/snapshots?sandboxID="+s.id, nil).is(200).lists()
	p.call("POST", p.createRoute(), object{"templateID": id, "timeout": 60}).is(404)
}

func snapshotNamed(p *probe) {
	s := p.make(nil)
	name := "conformance-" + strings.TrimPrefix(p.tag, "run-")
	f := p.snapshot(s, object{"name": name})
	team, tagged, _ := strings.Cut(f.text("snapshotID"), "/")
	p.holds(team != "" && tagged == name+":default", f.of+": the snapshotID <team>/"+name+":default", f.text("snapshotID"))
	f.expect("names", []string{team + "/" + name})
	p.listsSnapshot("name="+name, f)
	p.listsSnapshot("name="+url.QueryEscape(team+"/"+name), f)
	p.call("GET", "/snapshots?name="+name+"-other", nil).is(200).lists()

	again := p.snapshot(s, object{"name": name + ":second"})
	again.expect("snapshotID", team+"/"+name+":second")
	p.listsSnapshot("name="+name, again) // the newest of the name
	p.call("DELETE", "/templates/"+team+"/"+name, nil).refused(404, "validation error: no matching operation was found")
	p.call("DELETE", templatePath(team+"/"+name), nil).is(204) // all tags
	p.call("GET", "/snapshots?name="+name, nil).is(200).lists()
}

func snapshotBadRequests(p *probe) {
	s := p.base(p)
	path := "/sandboxes/" + s.id + "/snapshots"
	p.call("POST", path, object{"name": "no good name"}).enabled().refused(400, "Invalid name: …")
	p.call("POST", path, object{"name": "conformance-no-such-team/x"}).refused(400, "namespace 'conformance-no-such-team' must match your team '…")
	p.call("POST", "/sandboxes/"+unknownID+"/snapshots", object{}).refused(404, missingSandbox)
	p.call("DELETE", "/templates/conformance-no-such-template", nil).refused(404, "template 'conformance-no-such-template' not found")
}

// fork forks a sandbox, and has all forks removed.
func (p *probe) fork(s *sandbox, count int) []*sandbox {
	if !p.spend(count) {
		p.failErr("forks", errBudget)
	}
	asked := time.Now()
	a := p.call("POST", "/sandboxes/"+s.id+"/fork", object{"timeout": 60, "count": count}).enabled().is(201)
	list := a.list()
	for _, f := range list {
		if f.has("sandbox") {
			p.owns(sandboxPath(f.object("sandbox").text("sandboxID")))
		}
	}
	p.holds(len(list) == count, a.expect("a list of %d", count), a.body)
	var made []*sandbox
	for _, f := range list {
		f.lacks("error")
		fork := &sandbox{asked: asked}
		p.holds(fork.read(encoded(f.object("sandbox").m)), a.expect("sandboxes"), a.body)
		made = append(made, fork)
	}
	return made
}

func forks(p *probe) {
	s := p.make(object{"metadata": object{"kept": "yes"}})
	p.writeFile(s, "conformance-fork", "in both")
	made := p.fork(s, 2)
	p.holds(made[0].id != made[1].id && made[0].id != s.id && made[1].id != s.id, "sandboxes with IDs of their own", made[0].id+" "+made[1].id)
	for _, fork := range made {
		p.holds(fork.envd != "" && fork.envd != s.envd, "an envdAccessToken of the fork's own", fork.envd)
		f := p.info(fork.id)
		f.expect("state", "running")
		f.object("metadata").expect("kept", "yes")
		p.lives(fork, "a fork with 60 s", time.Minute)
		equal(p, "the file in the fork", "in both", p.readFile(fork, "conformance-fork"))
	}
	p.writeFile(made[0], "conformance-fork", "in one")
	equal(p, "the file after it was changed in a fork", "in both", p.readFile(s, "conformance-fork"))
}

func forkBadRequests(p *probe) {
	path := "/sandboxes/" + unknownID + "/fork"
	if p.call("POST", path, object{"timeout": 60}).enabled().status == 404 {
		p.call("POST", path, object{"timeout": 60}).refused(404, missingSandbox)
	}
	p.call("POST", path, object{"timeout": 60, "count": 0}).is(400)
	p.call("POST", path, object{"timeout": 60, "count": 101}).is(400)
	p.call("POST", path, object{"timeout": 0}).refused(400, "Timeout must be greater than 0")
}
