package conformance

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

func proxyChecks() []check {
	return []check{
		{"proxy/unknown-sandbox", proxyUnknown},
		{"proxy/closed-port", proxyClosedPort},
		{"proxy/by-headers", proxyByHeaders},
		{"proxy/by-host", proxyByHost},
		{"proxy/reserved-routes", proxyReserved},
		{"proxy/for-browsers", proxyForBrowsers},
		{"proxy/traffic-token", proxyTrafficToken},
	}
}

// aClosedPort is one where nothing listens in a sandbox.
const aClosedPort = 4

func proxyUnknown(p *probe) {
	a := p.ask(&sandbox{id: unknownID}, envdPort, "GET", "/health", "").is(502)
	f := a.fields()
	f.expect("sandboxId", unknownID)
	f.expect("message", "The sandbox was not found")
	f.expect("code", 502)
	f.lacks("port")
	a.has("Content-Type", "application/json; charset=utf-8")
}

func proxyClosedPort(p *probe) {
	s := p.base(p)
	f := p.ask(s, aClosedPort, "GET", "/", "").is(502).fields()
	f.expect("sandboxId", s.id)
	f.expect("message", "The sandbox is running but port is not open")
	f.expect("port", aClosedPort)
	f.expect("code", 502)
}

// byHeaders is where a sandbox is found by headers alone.
func (r *runner) byHeaders() string {
	if r.target.SandboxURL != "" {
		return r.target.SandboxURL
	}
	return "https://sandbox." + r.target.Domain
}

func proxyByHeaders(p *probe) {
	s := p.base(p)
	get := func(headers ...header) *answer {
		return p.asked(p.data, "GET", p.byHeaders()+"/health", "", headers...)
	}
	id, port := header{transport.HeaderSandboxID, s.id}, header{transport.HeaderSandboxPort, strconv.Itoa(envdPort)}
	get(id, port).is(204)
	get(id).is(400).contains("missing header")
	get(port).is(400).contains("missing header")
	get(header{transport.HeaderSandboxID, s.id + "-x"}, port).is(400).contains("Invalid sandbox ID")
	get(id, header{transport.HeaderSandboxPort, "x"}).is(400, 500).contains("nvalid sandbox port")
}

func proxyByHost(p *probe) {
	s := p.base(p)
	if p.target.SandboxURL == "" {
		p.ask(s, envdPort, "GET", "/health", "").is(204)
		return
	}
	get := func(host string) *answer {
		return p.asked(p.data, "GET", p.target.SandboxURL+"/health", "", header{"Host", host})
	}
	get(fmt.Sprintf("%d-%s.%s", envdPort, s.id, p.target.Domain)).is(204)
	get(fmt.Sprintf("%d-%s.%s", aClosedPort, s.id, p.target.Domain)).is(502).fields().expect("port", aClosedPort)
	get("conformance").is(400).contains("Invalid host")
}

// The routes of envd that are for the node.
func proxyReserved(p *probe) {
	s := p.base(p)
	for _, path := range []string{"/init", "/freeze", "/unfreeze"} {
		f := p.ask(s, envdPort, "POST", path, "{}").is(404).fields()
		f.expect("message", "This endpoint is reserved for the E2B control plane and is not reachable through the sandbox URL")
		f.expect("path", path)
		f.expect("code", 404)
	}
}

func proxyForBrowsers(p *probe) {
	browser := header{"User-Agent", "Mozilla/5.0"}
	s := &sandbox{id: unknownID}
	a := p.ask(s, 80, "GET", "/", "", browser, header{"Accept", "text/html"}).is(502)
	a.has("Content-Type", "text/html; charset=utf-8")
	p.ask(s, 80, "GET", "/", "", browser).is(502).fields().expect("code", 502) // asks for JSON
	p.ask(s, 80, "GET", "/", "", browser, header{"Accept", "*/*"}, header{"Sec-Fetch-Mode", "cors"}).is(502).fields().expect("code", 502)
}

func proxyTrafficToken(p *probe) {
	s := p.make(object{"network": object{"allowPublicTraffic": false}})
	p.holds(s.traffic != "", "a trafficAccessToken of a sandbox without public traffic", "none")
	p.info(s.id).object("network").expect("allowPublicTraffic", false)
	get := func(port int, token string) *answer {
		private := *s
		private.traffic = token
		return p.ask(&private, port, http.MethodGet, "/health", "")
	}
	const secured = "Sandbox is secured with traffic access token. "
	get(aClosedPort, "").is(403).fields().expect("message", secured+"Token header 'e2b-traffic-access-token' is missing")
	get(aClosedPort, "wrong").is(403).fields().expect("message", secured+"Provided token in header 'e2b-traffic-access-token' is invalid")
	get(aClosedPort, s.traffic).is(502).fields().expect("port", aClosedPort)
	get(envdPort, "").is(204) // which has a token of its own
	p.connect(s, 60).is(200).fields().expect("trafficAccessToken", s.traffic)
}
