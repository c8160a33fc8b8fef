package conformance

import (
	"net/url"
	"slices"
	"strings"
	"time"
)

func listChecks() []check {
	return []check{
		{"list/item", listItem},
		{"list/state", listState},
		{"list/metadata", listMetadata},
		{"list/pages", listPages},
		{"list/template", listTemplate},
		{"list/bad-query", listBadQuery},
		{"list/v1", listV1},
	}
}

// listQuery asks for the sandboxes whose metadata has key and value, which the
// server decodes twice more than other parameters.
func (p *probe) listQuery(path, key, value string, others ...string) *answer {
	twice := func(s string) string { return url.QueryEscape(url.QueryEscape(s)) }
	q := url.Values{"metadata": {twice(key) + "=" + twice(value)}}
	for i := 0; i < len(others); i += 2 {
		q.Set(others[i], others[i+1])
	}
	return p.call("GET", path+"?"+q.Encode(), nil).supported().is(200)
}

func ids(list []fields) []string {
	found := make([]string, len(list))
	for i, item := range list {
		found[i] = item.text("sandboxID")
	}
	return found
}

// lists fails the check unless the answer is the list of these, in this order.
func (a *answer) lists(want ...string) *answer {
	got := ids(a.list())
	a.p.holds(slices.Equal(got, want), a.expect("the list of %q", want), got)
	return a
}

// listsPair asks for the two sandboxes that checks share, one running and one
// paused, the newest first.
func (p *probe) listsPair(others ...string) *answer {
	p.paused(p)
	return p.listQuery("/v2/sandboxes", "listed", p.tag, others...)
}

func listItem(p *probe) {
	s := p.base(p)
	info := p.info(s.id)
	a := p.listsPair("state", "running").lists(s.id)
	item := a.list()[0]
	for _, name := range []string{"templateID", "sandboxID", "clientID", "state", "cpuCount", "memoryMB", "diskSizeMB", "envdVersion", "metadata", "startedAt"} {
		item.expect(name, info.m[name])
	}
	item.time("endAt")
	item.lacks("envdAccessToken")
}

func listState(p *probe) {
	running, paused := p.base(p), p.paused(p)
	p.listsPair("state", "running").lists(running.id).has("X-Total-Running", "1")
	a := p.listsPair("state", "paused").lists(paused.id).has("X-Total-Running", "")
	a.list()[0].expect("state", "paused")
	p.listsPair("state", "running,paused").lists(paused.id, running.id)
	p.listsPair().lists(paused.id, running.id)
	p.listsPair("order", "asc").lists(running.id, paused.id)
	since := p.info(paused.id).time("startedAt")
	p.listsPair("startedAfter", since.Format(time.RFC3339Nano)).lists(paused.id)
}

// All values can be looked for, also those with characters that mean something in a
// query.
func listMetadata(p *probe) {
	s := p.base(p)
	p.paused(p) // would be found as well
	p.listQuery("/v2/sandboxes", "odd & key", oddValue, "state", "running").contains(s.id)
	both := url.Values{"state": {"running"}, "metadata": {"listed=" + p.tag + "&" + metadataKey + "=" + p.tag}}
	p.call("GET", "/v2/sandboxes?"+both.Encode(), nil).is(200).lists(s.id)
	p.listQuery("/v2/sandboxes", "listed", p.tag+"x").lists()
	p.listQuery("/v2/sandboxes", "listed", strings.ToUpper(p.tag)).lists()
}

func listPages(p *probe) {
	running, paused := p.base(p), p.paused(p)
	first := p.listsPair("limit", "1").lists(paused.id).has("X-Total-Running", "1")
	token := first.header.Get("X-Next-Token")
	p.holds(token != "", first.expect("the header X-Next-Token, since there are more"), "no such header")
	p.listsPair("limit", "1", "nextToken", token).lists(running.id).has("X-Next-Token", "")
	p.listsPair("limit", "2", "nextToken", "").lists(paused.id, running.id).has("X-Next-Token", "")
	p.call("GET", "/v2/sandboxes?order=asc&nextToken="+url.QueryEscape(token), nil).refused(400, "Invalid next token")
}

func listTemplate(p *probe) {
	s := p.base(p)
	p.listsPair("state", "running", "template", p.info(s.id).text("templateID")).lists(s.id)
	p.call("GET", "/v2/sandboxes?template=conformance-no-such-template", nil).is(200).lists()
	p.call("GET", "/v2/sandboxes?template="+url.QueryEscape(p.target.Template)+"%3Atag", nil).
		refused(400, "Invalid template: tags are not supported here because sandboxes are not tag-scoped")
}

func listBadQuery(p *probe) {
	for query, message := range map[string]string{
		"limit=0":                    "validation error: …",
		"limit=101":                  "validation error: …",
		"limit=x":                    "validation error: …",
		"nextToken=broken":           "Invalid next token",
		"state=running&state=paused": "validation error: …",
		"state=sleeping":             "validation error: …",
		"order=up":                   "validation error: …",
		"metadata=":                  "", // any
	} {
		a := p.call("GET", "/v2/sandboxes?"+query, nil).supported().is(400)
		if message != "" {
			a.refused(400, message)
		}
	}
}

func listV1(p *probe) {
	running := p.base(p)
	p.paused(p) // is not in it
	p.listQuery("/sandboxes", "listed", p.tag).lists(running.id)
	p.call("GET", "/sandboxes?metadata=", nil).refused(400, "Error parsing metadata…")
}
