package conformance

func networkChecks() []check {
	return []check{
		{"network/put", networkPut},
		{"network/bad-requests", networkBadRequests},
		{"network/internet", networkInternet},
	}
}

func networkPut(p *probe) {
	s := p.make(object{"network": object{"denyOut": []string{"10.0.0.0/8"}, "maskRequestHost": "conformance:${PORT}"}})
	network := p.info(s.id).object("network")
	network.expect("denyOut", []string{"10.0.0.0/8"})
	path := "/sandboxes/" + s.id + "/network"
	p.call("PUT", path, object{"allowOut": []string{"192.0.2.7"}, "denyOut": []string{"0.0.0.0/0"}}).supported().is(204).says("")
	network = p.info(s.id).object("network")
	network.expect("allowOut", []string{"192.0.2.7"})
	network.expect("denyOut", []string{"0.0.0.0/0"})
	network.expect("maskRequestHost", "conformance:${PORT}") // cannot be changed
	p.call("PUT", path, object{"allowOut": []string{"192.0.2.8"}}).is(204)
	network = p.info(s.id).object("network")
	network.expect("allowOut", []string{"192.0.2.8"})
	network.lacks("denyOut") // what is left out is cleared
}

func networkBadRequests(p *probe) {
	const domains = "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out to block all other traffic."
	refused := func(network object, message string) {
		p.call("POST", p.createRoute(), p.with(object{"network": network})).refused(400, message)
		p.call("PUT", "/sandboxes/"+unknownID+"/network", network).supported().refused(400, message)
	}
	refused(object{"denyOut": []string{"example.com"}}, "invalid denied CIDR example.com")
	refused(object{"allowOut": []string{"example.com"}}, domains)
	refused(object{"allowOut": []string{"300.1.2.3/8"}, "denyOut": []string{"0.0.0.0/0"}}, "invalid allowed address 300.1.2.3/8")
	p.call("PUT", "/sandboxes/"+unknownID+"/network", object{}).refused(404, missingSandbox)
	if p.prefix() == "" {
		p.call("POST", "/sandboxes", p.with(object{"secure": false, "network": object{"allowPublicTraffic": false}})).refused(400,
			"You cannot create a sandbox without public access unless you enable secure envd access via 'secure' flag.")
	}
}

func networkInternet(p *probe) {
	s := p.make(object{"allow_internet_access": false})
	p.info(s.id).expect("allowInternetAccess", false)
	open := p.base(p)
	p.info(open.id).lacks("allowInternetAccess")
}
