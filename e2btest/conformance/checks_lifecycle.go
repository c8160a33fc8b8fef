package conformance

import (
	"fmt"
	"net/http"
	"regexp"
	"sync"
	"time"
)

func lifecycleChecks() []check {
	return []check{
		{"lifecycle/pause", pauses},
		{"lifecycle/paused", whilePaused},
		{"lifecycle/resume", resumes},
		{"lifecycle/pause-files-only", pausesFilesOnly},
		{"lifecycle/concurrent-connects", concurrentConnects},
		{"lifecycle/resume-v1", resumesByOldRoute},
		{"lifecycle/auto-resume", autoResumes},
		{"lifecycle/create-v1", createsV1},
		{"lifecycle/create-v2", createsV2},
		{"lifecycle/info", tells},
		{"lifecycle/kill", kills},
		{"lifecycle/kill-paused", killsPaused},
	}
}

var serverID = regexp.MustCompile(`^[a-z0-9]+$`)

// created checks what every answer with a sandbox has.
func created(p *probe, f fields) {
	p.holds(serverID.MatchString(f.text("sandboxID")), f.of+": a sandboxID of a-z and 0-9", f.text("sandboxID"))
	p.holds(f.text("templateID") != "", f.of+": a templateID", "")
	p.holds(!older(f.text("envdVersion"), "0.0.1"), f.of+": an envdVersion", f.text("envdVersion"))
	f.text("clientID")
}

func createsV1(p *probe) {
	a, s := p.makeOn("/sandboxes", object{"templateID": p.target.Template, "unknownField": object{"is": "ignored"}})
	f := a.fields()
	created(p, f)
	f.lacks("envdAccessToken")
	f.lacks("trafficAccessToken")
	p.lives(s, "create without a timeout", 15*time.Second)
	p.info(s.id).expect("state", "running")
	p.ask(s, envdPort, "GET", "/envs", "").is(200) // needs no token
}

func createsV2(p *probe) {
	a, s := p.makeOn("/v2/sandboxes", object{"templateID": p.target.Template})
	created(p, a.fields())
	p.holds(s.envd != "", a.expect("an envdAccessToken"), a.body)
	p.lives(s, "create without a timeout", 5*time.Minute)
	p.call("POST", "/v2/sandboxes", object{"templateID": p.target.Template, "timeout": 0}).refused(400, "validation error: …")
	p.call("POST", "/v2/sandboxes/"+s.id+"/connect", nil).is(200)
	p.lives(s, "connect without a timeout", 5*time.Minute)
	p.call("POST", "/v2/sandboxes/"+s.id+"/connect", object{"timeout": 0}).refused(400, "validation error: …")
}

func tells(p *probe) {
	s := p.make(object{"metadata": object{"who": "conformance & co"}, "envVars": object{"CONFORMANCE": "yes"}, "timeout": 100})
	f := p.info(s.id)
	created(p, f)
	f.expect("sandboxID", s.id)
	f.expect("state", "running")
	f.expect("metadata", object{metadataKey: p.tag, "who": "conformance & co"})
	f.expect("envdAccessToken", s.envd)
	f.lacks("trafficAccessToken")
	f.lacks("envVars")
	for _, name := range []string{"cpuCount", "memoryMB", "diskSizeMB"} {
		p.holds(f.number(name) > 0, f.of+": a "+name+" above zero", f.number(name))
	}
	life := f.object("lifecycle")
	life.expect("autoResume", false)
	life.expect("onTimeout", "kill")
	p.lives(s, "create with 100 s", 100*time.Second)
	p.call("GET", "/sandboxes/"+s.id+"-6532622b", nil).is(200).fields().expect("sandboxID", s.id)
	equal(p, "the output of echo $CONFORMANCE", "yes\n", p.shell(s, "echo $CONFORMANCE").stdout)
}

func kills(p *probe) {
	s := p.make(nil)
	p.call("DELETE", "/sandboxes/"+s.id, nil).is(204).says("")
	gone := `Sandbox "` + s.id + `" doesn't exist or you don't have access to it`
	p.call("GET", "/sandboxes/"+s.id, nil).refused(404, gone)
	p.call("DELETE", "/sandboxes/"+s.id, nil).refused(404, gone)
	p.connect(s, 60).refused(404, gone)
	p.call("POST", "/sandboxes/"+s.id+"/pause", object{}).refused(404, gone)
}

func killsPaused(p *probe) {
	s := p.make(nil)
	p.pause(s)
	p.call("DELETE", "/sandboxes/"+s.id, nil).is(204)
	p.call("GET", "/sandboxes/"+s.id, nil).is(404)
	p.connect(s, 60).is(404)
}

func pauses(p *probe) {
	s := p.make(object{"metadata": object{"kept": "yes"}})
	p.pause(s).says("")
	f := p.info(s.id)
	f.expect("state", "paused")
	f.object("metadata").expect("kept", "yes")
	p.call("POST", "/sandboxes/"+s.id+"/pause", object{}).
		refused(409, "Error pausing sandbox - sandbox '"+s.id+"' is already paused")
	p.ask(s, envdPort, "GET", "/health", "").is(502).fields().expect("message", "The sandbox was not found")
}

// What works on a running sandbox only.
func whilePaused(p *probe) {
	s := p.paused(p)
	missing := `Sandbox "` + s.id + `" doesn't exist or you don't have access to it`
	path := "/sandboxes/" + s.id
	p.call("POST", path+"/timeout", object{"timeout": 60}).refused(404, missing)
	p.call("POST", path+"/refreshes", object{"duration": 60}).refused(404, missing)
	if a := p.call("PUT", path+"/network", object{}); !a.noRoute() {
		a.refused(404, missing)
	}
	if a := p.call("POST", path+"/snapshots", object{}); !a.noRoute() {
		a.refused(404, missing)
	}
	if a := p.call("POST", path+"/fork", object{"timeout": 60}); !a.noRoute() {
		a.refused(409, "Sandbox '"+s.id+"' is paused and cannot be forked; resume it first")
	}
}

func resumes(p *probe) {
	s := p.make(object{"metadata": object{"kept": "yes"}, "envVars": object{"KEPT": "yes"}, "timeout": 300})
	started := p.info(s.id).time("startedAt")
	p.writeFile(s, "conformance-resume", "still here")
	sleeper := p.sleeper(s)
	p.pause(s)
	asked := time.Now()
	a := p.connect(s, 90).is(201)
	f := a.fields()
	created(p, f)
	f.expect("sandboxID", s.id)
	f.expect("envdAccessToken", s.envd) // the tokens stay those of the sandbox
	f = p.info(s.id)
	f.expect("state", "running")
	f.object("metadata").expect("kept", "yes")
	p.holds(f.time("startedAt").After(started), "a startedAt later than before the pause", f.text("startedAt"))
	p.lives(&sandbox{id: s.id, asked: asked}, "resume with 90 s", 90*time.Second)
	equal(p, "the file written before the pause", "still here", p.readFile(s, "conformance-resume"))
	p.holds(p.isRunning(s, sleeper), "the process from before the pause to run", "it is not in the list of processes")
	equal(p, "the output of echo $KEPT", "yes\n", p.shell(s, "echo $KEPT").stdout)
	p.connect(s, 60).is(200)
}

func pausesFilesOnly(p *probe) {
	s := p.make(nil)
	p.writeFile(s, "conformance-boot", "still here")
	p.shell(s, "sync")
	sleeper := p.sleeper(s)
	p.call("POST", "/sandboxes/"+s.id+"/pause", object{"memory": false}).is(204)
	p.connect(s, 60).is(201)
	equal(p, "the file written before the pause", "still here", p.readFile(s, "conformance-boot"))
	p.holds(!p.isRunning(s, sleeper), "no process from before a pause without memory", "it is in the list of processes")
}

func concurrentConnects(p *probe) {
	s := p.make(nil)
	p.pause(s)
	const callers = 4
	var answers [callers]*answer
	var errs [callers]error
	var wg sync.WaitGroup
	url, headers := p.target.APIURL+p.connectRoute(s.id), p.apiHeaders(true)
	for i := range callers {
		wg.Go(func() {
			answers[i], errs[i] = p.send(p.ctx, p.runner.api, http.MethodPost, url, `{"timeout":60}`, headers...)
		})
	}
	wg.Wait()
	// The server may get one when the others are done, which is then no start.
	started := 0
	for i, a := range answers {
		if errs[i] != nil {
			p.failErr("an answer to each of 4 connects at a time", errs[i])
		}
		a.p = p
		a.is(200, 201).fields().expect("sandboxID", s.id)
		if a.status == http.StatusCreated {
			started++
		}
	}
	p.holds(started > 0, "201 for one or more of 4 connects at a time", started)
	p.info(s.id).expect("state", "running")
}

func resumesByOldRoute(p *probe) {
	s := p.make(nil)
	path := "/sandboxes/" + s.id + "/resume"
	p.call("POST", path, object{"timeout": 60}).supported().refused(409, "Sandbox "+s.id+" is already running")
	p.pause(s)
	p.call("POST", path, object{"timeout": 60}).is(201).fields().expect("sandboxID", s.id)
}

func autoResumes(p *probe) {
	a, s, err := p.create(p.ctx, p.createRoute(), p.with(object{"autoPause": true, "autoResume": object{"enabled": true}}))
	if err != nil {
		p.failErr("a sandbox", err)
	}
	a.p = p
	a.is(201)
	p.owns(sandboxPath(s.id))
	life := p.info(s.id).object("lifecycle")
	life.expect("autoResume", true)
	life.expect("onTimeout", "pause")
	p.pause(s)
	wrong := *s
	wrong.envd = "wrong"
	p.ask(&wrong, envdPort, "GET", "/files?path=conformance", "").is(403).fields().expect("message",
		"This sandbox can't be resumed with the credentials provided. Check your access token and try again.")
	p.info(s.id).expect("state", "paused")
	p.ask(s, envdPort, "GET", "/health", "").is(204)
	p.info(s.id).expect("state", "running")
}

func timeoutChecks() []check {
	return []check{
		{"lifecycle/timeout-kills", timeoutKills},
		{"lifecycle/timeout-pauses", timeoutPauses},
		{"lifecycle/timeout-zero", timeoutZero},
		{"lifecycle/timeout-bounds", timeoutBounds},
		{"lifecycle/set-timeout", setsTimeout},
		{"lifecycle/connect-extends", connectExtends},
		{"lifecycle/refresh-extends", refreshExtends},
	}
}

func timeoutKills(p *probe) {
	s := p.make(object{"timeout": 1})
	p.eventually("a sandbox whose timeout of 1 s is over to be gone", func() (bool, string) {
		state, seen := p.state(s.id)
		return state == "", seen
	})
}

func timeoutPauses(p *probe) {
	s := p.make(object{"timeout": 1, "autoPause": true})
	p.eventually("a sandbox whose timeout of 1 s is over to be paused", func() (bool, string) {
		state, seen := p.state(s.id)
		return state == "paused", seen
	})
	p.connect(s, 60).is(201)
	p.info(s.id).object("lifecycle").expect("onTimeout", "pause")
}

func timeoutZero(p *probe) {
	s := p.make(nil)
	p.call("POST", "/sandboxes/"+s.id+"/timeout", object{"timeout": 0}).is(204)
	p.eventually("a sandbox whose timeout was set to 0 to be gone", func() (bool, string) {
		state, seen := p.state(s.id)
		return state == "", seen
	})
}

func timeoutBounds(p *probe) {
	const eleven = 1_000_000 // days, in seconds: more than any plan allows
	hours := regexp.MustCompile(`^Timeout cannot be greater than \d+ hours$`)
	tooLong := func(a *answer) {
		a.is(400)
		p.holds(hours.MatchString(a.fields().text("message")), a.expect("a message that fits %s", hours), a.body)
	}
	body := object{"templateID": p.target.Template, "timeout": eleven}
	tooLong(p.call("POST", p.createRoute(), body))
	tooLong(p.connect(&sandbox{id: unknownID}, eleven))
	body["timeout"] = -1
	p.call("POST", p.createRoute(), body).refused(400, "validation error: …")
	if p.prefix() == "" {
		body["timeout"] = 0
		p.call("POST", "/sandboxes", body).refused(400, "Timeout must be greater than 0")
		p.call("POST", "/sandboxes/"+unknownID+"/connect", object{}).refused(400, "validation error: …")
	}
	p.call("POST", "/sandboxes/"+unknownID+"/timeout", object{"timeout": -1}).refused(400, "validation error: …")
}

func setsTimeout(p *probe) {
	s := p.make(object{"timeout": 100})
	for _, seconds := range []int{300, 60} {
		p.call("POST", "/sandboxes/"+s.id+"/timeout", object{"timeout": seconds}).is(204).says("")
		p.lives(s, fmt.Sprintf("a timeout set to %d s", seconds), time.Duration(seconds)*time.Second)
	}
}

func connectExtends(p *probe) {
	s := p.make(object{"timeout": 100})
	p.connect(s, 30).is(200)
	p.lives(s, "connect with 30 s to a sandbox with 100 s", 100*time.Second)
	f := p.connect(s, 300).is(200).fields()
	f.expect("sandboxID", s.id)
	f.expect("envdAccessToken", s.envd)
	p.lives(s, "connect with 300 s to a sandbox with 100 s", 300*time.Second)
}

func refreshExtends(p *probe) {
	s := p.make(object{"timeout": 100})
	path := "/sandboxes/" + s.id + "/refreshes"
	p.call("POST", path, object{"duration": 20}).supported().is(204)
	p.lives(s, "a refresh with 20 s of a sandbox with 100 s", 100*time.Second)
	p.call("POST", path, object{"duration": 300}).is(204)
	p.lives(s, "a refresh with 300 s of a sandbox with 100 s", 300*time.Second)
}
