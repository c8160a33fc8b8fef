package conformance

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

func teamChecks() []check {
	return []check{
		{"metrics/sandbox", metricsOfOne},
		{"metrics/sandboxes", metricsOfSeveral},
		{"metrics/other-team", metricsOfOtherTeam},
		{"logs/v1", logsV1},
		{"logs/v2", logsV2},
		{"team/volumes", volumes},
		{"team/secrets", secrets},
		{"team/events", events},
	}
}

// point checks one measurement.
func point(f fields) {
	f.time("timestamp")
	f.p.holds(f.number("timestampUnix") > 0, f.of+": a timestampUnix above zero", f.number("timestampUnix"))
	f.p.holds(f.number("cpuCount") > 0, f.of+": a cpuCount above zero", f.number("cpuCount"))
	for _, name := range []string{"cpuUsedPct", "memUsed", "memTotal", "memCache", "diskUsed", "diskTotal"} {
		f.p.holds(f.number(name) >= 0, f.of+": a "+name+" that is not negative", f.number(name))
	}
}

func metricsOfOne(p *probe) {
	s := p.base(p)
	path := "/sandboxes/" + s.id + "/metrics"
	for _, f := range p.call("GET", path, nil).supported().is(200).list() {
		point(f)
	}
	now := time.Now().Unix()
	p.call("GET", fmt.Sprintf("%s?start=%d&end=%d", path, now-60, now), nil).is(200).list()
	p.call("GET", path+"?start=yesterday", nil).refused(400, "validation error: …")
	p.call("GET", "/sandboxes/"+unknownID+"/metrics", nil).is(200).lists()
}

func metricsOfSeveral(p *probe) {
	s := p.base(p)
	a := p.call("GET", "/sandboxes/metrics?sandbox_ids="+s.id+","+unknownID, nil).supported().is(200)
	of := a.fields().object("sandboxes")
	of.lacks(unknownID)
	if of.has(s.id) { // not yet, perhaps
		point(of.object(s.id))
	}
	p.call("GET", "/sandboxes/metrics", nil).is(400)
	many := strings.Repeat("iconformance,", 100)
	var ids strings.Builder
	for i := range 101 {
		fmt.Fprintf(&ids, ",%s%03d", many[:12], i)
	}
	p.call("GET", "/sandboxes/metrics?sandbox_ids="+ids.String()[1:], nil).is(400)
}

func metricsOfOtherTeam(p *probe) {
	const other = "00000000-0000-0000-0000-000000000000"
	for _, path := range []string{"/metrics", "/metrics/max?metric=concurrent_sandboxes"} {
		a := p.call("GET", "/teams/"+other+path, nil).supported().is(403)
		p.holds(a.hasMessage("You ("), a.expect("a message that names both teams"), a.body)
		a.contains(other)
	}
}

func logsV1(p *probe) {
	s := p.base(p)
	f := p.call("GET", "/sandboxes/"+s.id+"/logs", nil).supported().is(200).fields()
	f.values("logs")
	f.values("logEntries")
	p.call("GET", "/sandboxes/"+unknownID+"/logs?limit=1", nil).is(200).fields().expect("logs", []string{})
}

func logsV2(p *probe) {
	s := p.base(p)
	path := "/v2/sandboxes/" + s.id + "/logs"
	for _, v := range p.call("GET", path, nil).supported().is(200).fields().values("logs") {
		m, _ := v.(object)
		f := fields{p, "GET " + path, m}
		f.time("timestamp")
		f.text("level")
		f.text("message")
		f.object("fields")
	}
	for _, query := range []string{"direction=forward&limit=1", "level=warn", "search=conformance", "limit=0", "cursor=0"} {
		p.call("GET", path+"?"+query, nil).is(200).fields().values("logs")
	}
	for _, query := range []string{"direction=up", "limit=1001", "level=loud", "search=" + strings.Repeat("x", 257)} {
		p.call("GET", path+"?"+query, nil).refused(400, "validation error: …")
	}
	p.call("GET", "/v2/sandboxes/"+unknownID+"/logs", nil).is(200).fields().expect("logs", []string{})
}

func volumes(p *probe) {
	name := "conformance_" + strings.TrimPrefix(p.tag, "run-")
	made := p.call("POST", "/volumes", object{"name": name}).enabled().is(201).fields()
	id := made.text("volumeID")
	p.owns("/volumes/" + url.PathEscape(id))
	made.expect("name", name)
	made.text("token")
	p.call("POST", "/volumes", object{"name": name}).refused(400, "Volume with name '"+name+"' already exists")
	p.call("POST", "/volumes", object{"name": "no good name"}).is(400)
	f := p.call("GET", "/volumes/"+id, nil).is(200).fields()
	f.expect("volumeID", id)
	f.expect("name", name)
	p.holds(strings.Count(f.text("token"), ".") == 2, f.of+": a token that is a JWT", f.text("token"))
	p.call("GET", "/volumes", nil).is(200).contains(id)
	p.call("GET", "/volumes/no-uuid", nil).refused(400, "Invalid volume ID")
	p.call("DELETE", "/volumes/"+id, nil).is(204)
	p.call("GET", "/volumes/"+id, nil).refused(404, "Volume not found")
	p.call("DELETE", "/volumes/"+id, nil).refused(404, "Volume not found")
}

func secrets(p *probe) {
	p.call("GET", "/secrets", nil).enabled().is(200).has("Cache-Control", "no-store").list()
	name := "conformance-" + strings.TrimPrefix(p.tag, "run-")
	path := "/secrets/" + url.PathEscape(name)
	p.call("GET", path, nil).refused(404, "Secret not found").has("Cache-Control", "no-store")
	p.call("POST", "/secrets", object{"name": 1}).refused(400, "Invalid secrets request")
	p.call("DELETE", path, nil).refused(404, "Secret not found")
}

func events(p *probe) {
	s := p.base(p)
	for _, path := range []string{"/events/sandboxes?limit=1", "/events/sandboxes/" + s.id} {
		for _, f := range p.call("GET", path, nil).supported().is(200).list() {
			f.text("id")
			f.text("sandboxId")
			p.holds(strings.HasPrefix(f.text("type"), "sandbox."), path+": a type that begins with sandbox.", f.text("type"))
			f.time("timestamp")
		}
	}
}
