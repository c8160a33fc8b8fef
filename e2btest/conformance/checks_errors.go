package conformance

import (
	"strings"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// A well-formed ID that no sandbox has.
const unknownID = "i0000000000000000conf"

const missingSandbox = `Sandbox "` + unknownID + `" doesn't exist or you don't have access to it`

func errorChecks() []check {
	const badKey = "Invalid API key, please visit https://e2b.dev/docs/api-key for more information.\n"
	return []check{
		{"errors/no-key", func(p *probe) {
			p.asked(p.runner.api, "GET", p.target.APIURL+"/v2/sandboxes", "").refused(401, "authorization header is missing")
		}},
		{"errors/key-without-prefix", refusedKey("0123456789abcdef", "authorization header is malformed")},
		{"errors/key-not-hex", refusedKey("e2b_conformance", badKey+"Invalid API key format")},
		{"errors/unknown-key", refusedKey("e2b_"+strings.Repeat("0", 40), badKey+"Cannot get the team for the given API key")},
		{"errors/shape", errorShape},
		{"errors/unknown-route", func(p *probe) {
			p.call("GET", "/sandboxes/"+unknownID+"/conformance", nil).refused(404, "validation error: no matching operation was found")
		}},
		{"errors/wrong-method", func(p *probe) {
			p.call("PATCH", "/sandboxes/"+unknownID, object{}).refused(404, "validation error: method not allowed")
		}},
		{"errors/invalid-id", invalidIDs},
		{"errors/unknown-sandbox", unknownSandbox},
		{"errors/schema", schemaErrors},
		{"errors/broken-json", func(p *probe) {
			p.call("POST", p.createRoute(), `{"templateID":`).refused(400, "validation error: …")
		}},
		{"errors/order", errorOrder},
		{"errors/template", templateErrors},
	}
}

func refusedKey(key, message string) func(*probe) {
	return func(p *probe) {
		p.call("GET", "/v2/sandboxes", nil, header{transport.HeaderAPIKey, key}).refused(401, message)
	}
}

func errorShape(p *probe) {
	a := p.call("GET", "/sandboxes/"+unknownID, nil).refused(404, missingSandbox)
	p.holds(strings.HasPrefix(a.header.Get("Content-Type"), "application/json"),
		a.expect("an answer of type application/json"), a.header.Get("Content-Type"))
	a.fields().lacks("error_code")
}

func invalidIDs(p *probe) {
	for _, id := range []string{"CONFORMANCE", "a-b-c", "under_score"} {
		p.call("GET", "/sandboxes/"+id, nil).refused(400, "Invalid sandbox ID")
		p.call("DELETE", "/sandboxes/"+id, nil).refused(400, "Invalid sandbox ID")
		p.call("POST", "/sandboxes/"+id+"/pause", object{}).refused(400, "Invalid sandbox ID")
		p.call("POST", "/sandboxes/"+id+"/timeout", object{"timeout": 60}).refused(400, "Invalid sandbox ID")
	}
}

func unknownSandbox(p *probe) {
	path := "/sandboxes/" + unknownID
	p.call("DELETE", path, nil).refused(404, missingSandbox)
	p.call("POST", path+"/pause", object{}).refused(404, missingSandbox)
	p.call("POST", path+"/timeout", object{"timeout": 60}).refused(404, missingSandbox)
	p.call("POST", path+"/refreshes", object{"duration": 60}).refused(404, missingSandbox)
	p.connect(&sandbox{id: unknownID}, 60).refused(404, missingSandbox)
	// The old form of an ID has a suffix, which does not count.
	p.call("DELETE", path+"-6532622b", nil).refused(404, missingSandbox)
	long := unknownID + "-6532622b"
	p.call("GET", "/sandboxes/"+long, nil).refused(404, `Sandbox "`+long+`" doesn't exist or you don't have access to it`)
}

func schemaErrors(p *probe) {
	const wrong = "validation error: error in openapi3filter.RequestError: request body has an error: …"
	for _, body := range []object{
		{},                                     // no template
		{"templateID": 1},                      // of another type
		{"templateID": "x", "timeout": "60"},   // of another type
		{"templateID": "x", "timeout": 1.5},    // no integer
		{"templateID": "x", "timeout": -1},     // below the minimum
		{"templateID": "x", "metadata": nil},   // null
		{"templateID": "x", "autoPause": "no"}, // of another type
	} {
		p.call("POST", p.createRoute(), body).refused(400, wrong)
	}
	p.call("POST", "/sandboxes/"+unknownID+"/refreshes", object{"duration": 3601}).refused(400, wrong)
	p.call("POST", "/sandboxes/"+unknownID+"/timeout", object{}).refused(400, wrong)
}

// The key is looked at before the body, the body before the sandbox.
func errorOrder(p *probe) {
	path := "/sandboxes/" + unknownID + "/timeout"
	p.call("POST", path, object{"timeout": "x"}, header{transport.HeaderAPIKey, "x"}).refused(401, "authorization header is malformed")
	p.call("POST", path, object{"timeout": "x"}).refused(400, "validation error: …")
}

func templateErrors(p *probe) {
	const name = "conformance-no-such-template"
	create := func(template string) *answer {
		return p.call("POST", p.createRoute(), object{"templateID": template, "timeout": 60})
	}
	create(name).refused(404, "template '"+name+"' not found")
	create("in valid").refused(400, "Invalid template reference: …")
	tag := create(p.target.Template + ":conformance-no-such-tag").is(404)
	p.holds(tag.hasMessage("tag 'conformance-no-such-tag' does not exist for template '"), tag.expect("that the tag does not exist"), tag.body)
}
