package control_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/control"
)

func TestSchemaViolations(t *testing.T) {
	const (
		prefix  = "validation error: error in openapi3filter.RequestError: request body has an error: "
		create  = prefix + "doesn't match schema #/components/schemas/NewSandbox: "
		connect = prefix + "doesn't match schema #/components/schemas/ConnectSandboxV2: "
	)
	tests := []struct{ path, body, want string }{
		{"/sandboxes", `[]`, create + "value must be an object"},
		{"/sandboxes", `null`, create + "Value is not nullable"},
		{"/sandboxes", ` `, prefix + "failed to decode request body: EOF"},
		{"/sandboxes", `{"templateID":1}`, create + `Error at "/templateID": value must be a string`},
		{"/sandboxes", `{"templateID":"base","timeout":1.5}`, create + `Error at "/timeout": value must be an integer`},
		{"/sandboxes", `{"templateID":"base","timeout":1e400}`, create + `Error at "/timeout": value must be an integer`},
		{"/sandboxes", `{"templateID":"base","timeout":2147483648}`, create + `Error at "/timeout": integer doesn't match the format "int32": value should be between -2147483648 and 2147483647`},
		{"/sandboxes", `{"templateID":"base","secure":"yes"}`, create + `Error at "/secure": value must be a boolean`},
		{"/sandboxes", `{"templateID":"base","secure":null}`, create + `Error at "/secure": Value is not nullable`},
		{"/sandboxes", `{"templateID":"base","metadata":{"a":"b","c":1}}`, create + `Error at "/metadata/c": value must be a string`},
		{"/sandboxes", `{"templateID":"base","autoResume":{}}`, create + `Error at "/autoResume/enabled": property "enabled" is missing`},
		{"/sandboxes", `{"templateID":"base","network":{"denyOut":["::/0",2]}}`, create + `Error at "/network/denyOut/1": value must be a string`},
		{"/sandboxes", `{"templateID":"base","network":{"allowOut":"x"}}`, create + `Error at "/network/allowOut": value must be an array`},
		{"/sandboxes", `{"a":1,"timeout":"x"}`, create + `Error at "/timeout": value must be an integer`},
		{"/v2/sandboxes", `{"templateID":"base","timeout":0}`, prefix + `doesn't match schema #/components/schemas/NewSandboxV2: Error at "/timeout": number must be at least 1`},
		{"/v2/sandboxes/i1/connect", `{"timeout":0}`, connect + `Error at "/timeout": number must be at least 1`},
		{"/v2/sandboxes/i1/connect", `{"memory":1}`, connect + `Error at "/memory": value must be a boolean`},
		{"/sandboxes/i1/refreshes", `{"duration":-1}`, prefix + `doesn't match schema #/components/schemas/SandboxRefreshRequest: Error at "/duration": number must be at least 0`},
		{"/sandboxes/i1/pause", `{"memory":"no"}`, prefix + `doesn't match schema #/components/schemas/SandboxPauseRequest: Error at "/memory": value must be a boolean`},
	}
	inBubble(t, func(r *rig) {
		t := r.t
		for _, test := range tests {
			a := r.call(ownKey, "POST", test.path, test.body)
			require.Equal(t, 400, a.status, test.body)
			require.Equal(t, test.want, a.message(t), test.body)
		}
		require.Zero(t, r.node.Alive())
	})
}

func TestBodiesThatAreAccepted(t *testing.T) {
	inBubble(t, func(r *rig) {
		for _, body := range []string{
			`{"templateID":" BASE ","timeout":60.0,"unknown":[null]}`,
			`{"templateID":"base:default","timeout":null,"mcp":null}`,
			`{"templateID":"base","timeout":6e1,"mcp":{"x":{}},"network":{},"metadata":{},"iam":{}}`,
			`{"templateID":"base","network":{"egressProxy":null,"httpsPorts":[8443],"rules":{"*.Example.com":[{"transform":{"headers":{"a":"b"}}}]}}} trailing`,
		} {
			r.create(ownKey, body)
		}
	})
}

func TestTemplateReferences(t *testing.T) {
	inBubble(t, func(r *rig) {
		for ref, want := range map[string]string{
			"not valid!": "invalid template ID: not valid!", "": "invalid template ID: ", "a b/c d": "invalid template ID: a b/c d",
			"a/b/c": "invalid template ID: a/b/c", "base:a b": "invalid tag: a b", "base:": "invalid tag: ", "Base:x:y": "invalid tag: x:y",
			"a b/base": "invalid namespace: a b", "/base": "invalid namespace: ",
		} {
			a := r.must(400, ownKey, "POST", "/sandboxes", fmt.Sprintf(`{"templateID":%q}`, ref))
			require.Equal(r.t, "Invalid template reference: "+want, a.message(r.t), ref)
		}
	})
}

func TestContentTypeOfBodies(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		for contentType, status := range map[string]int{
			"application/json": 201, "application/json; charset=utf-8": 201, "": 400, "text/plain": 400,
		} {
			req := httptest.NewRequest(http.MethodPost, "/sandboxes", strings.NewReader(plain))
			req.Header.Set("X-API-Key", ownKey)
			req.Header.Set("Content-Type", contentType)
			a := send(r.api, req)
			require.Equal(t, status, a.status, contentType)
			if status == 400 {
				require.Contains(t, a.message(t), `request body has an error: header Content-Type has unexpected value "`+contentType+`"`)
			}
		}
	})
}

func TestBodyTooLarge(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		a := r.call(ownKey, "POST", "/sandboxes", `{"templateID":"base","x":"`+strings.Repeat("x", 16<<20)+`"}`)
		require.Equal(t, 400, a.status)
		require.Contains(t, a.message(t), "reading failed")
	})
}

func TestRoutes(t *testing.T) {
	const (
		missing = "validation error: no matching operation was found"
		method  = "validation error: method not allowed"
		badID   = "Invalid sandbox ID"
	)
	tests := []struct {
		routes        control.Routes
		request, path string
		status        int
		message       string
	}{
		{control.AllRoutes, "POST", "/v2/sandboxes", 201, ""},
		{control.AllRoutes, "POST", "/sandboxes", 201, ""},
		{control.V1Routes, "POST", "/sandboxes", 201, ""},
		{control.V2Routes, "POST", "/v2/sandboxes", 201, ""},
		{control.V2Routes, "POST", "/sandboxes", 404, method},
		{control.V1Routes, "POST", "/v2/sandboxes/i1/connect", 404, missing},
		{control.V2Routes, "POST", "/sandboxes/i1/connect", 404, missing},
		{control.AllRoutes, "PATCH", "/sandboxes/i1", 404, method},
		{control.AllRoutes, "GET", "/sandboxes/a/b", 404, missing},
		{control.AllRoutes, "GET", "/", 404, missing},
		{control.AllRoutes, "GET", "/sandboxes/a%2Fb", 400, badID},
		{control.AllRoutes, "GET", "/sandboxes/..%2Fhealth", 400, badID},
		{control.AllRoutes, "GET", "/sandboxes/a-b-c", 400, badID},
		{control.AllRoutes, "GET", "/sandboxes/A", 400, badID},
		{control.AllRoutes, "POST", "/sandboxes//pause", 400, badID},
	}
	for _, test := range tests {
		t.Run(test.request+" "+test.path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, control.Options{Routes: test.routes})
				body := ""
				if test.request == "POST" {
					body = `{"templateID":"base","timeout":60}`
				}
				req := httptest.NewRequest(test.request, "/", strings.NewReader(body))
				req.URL.Path, req.URL.RawPath = strings.ReplaceAll(test.path, "%2F", "/"), test.path
				req.Header.Set("X-API-Key", ownKey)
				req.Header.Set("Content-Type", "application/json")
				a := send(r.api, req)
				require.Equal(t, test.status, a.status, a.body)
				require.Equal(t, test.message, a.message(t))
			})
		})
	}
}

func TestSecondGenerationOfRoutes(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		a := r.must(201, ownKey, "POST", "/v2/sandboxes", `{"templateID":"base","secure":false}`)
		id := a.field(t, "sandboxID")
		require.NotEmpty(t, a.field(t, "envdAccessToken"), "always secured")
		require.Equal(t, 300*time.Second, r.at(id, "endAt").Sub(r.at(id, "startedAt")))
		r.must(200, ownKey, "POST", "/v2/sandboxes/"+id+"/connect", "")
		r.pause(id)
		r.must(201, ownKey, "POST", "/v2/sandboxes/"+id+"/connect", "{}")
		require.Equal(t, 300*time.Second, r.at(id, "endAt").Sub(r.at(id, "startedAt")))
		require.Equal(t, a.field(t, "envdAccessToken"), r.node.Sandbox(id).Spec.AccessToken)
	})
}

func TestKeysOfATeam(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		team := control.Team{Keys: []string{"any text", "e2b_00"}, MaxLength: 90 * time.Minute, MaxSandboxes: 1}
		r := newRig(t, control.Options{Teams: []control.Team{team}})
		id := r.create("any text", plain)
		r.must(200, "e2b_00", "GET", "/sandboxes/"+id, "")
		for _, key := range []string{"any", "any text ", "e2b_0", "e2b_000", "E2B_00", ""} {
			require.Equal(t, 401, r.call(key, "GET", "/sandboxes/"+id, "").status, key)
		}
		require.Equal(t, "Timeout cannot be greater than 1.5 hours", r.call("e2b_00", "POST", "/sandboxes", `{"templateID":"base","timeout":5401}`).message(t))
	})
}

func TestBlockedAndBannedTeams(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		for _, path := range []string{
			"/sandboxes", "/v2/sandboxes", "/sandboxes/i1/metrics", "/sandboxes/metrics?sandbox_ids=i1", "/sandboxes/i1/logs", "/v2/sandboxes/i1/logs",
			"/snapshots", "/volumes", "/secrets", "/teams/blocked/metrics",
		} {
			require.Equal(t, 200, r.call(blockedKey, "GET", path, "").status, path)
		}
		for _, path := range []string{"/sandboxes/i1", "/templates/x", "/volumes/" + recordedUUID, "/secrets/x"} {
			require.Equal(t, 404, r.call(blockedKey, "DELETE", path, "").status, path)
		}
		for _, path := range []string{
			"/sandboxes", "/v2/sandboxes", "/sandboxes/i1/connect", "/v2/sandboxes/i1/connect", "/sandboxes/i1/resume", "/sandboxes/i1/pause",
			"/sandboxes/i1/timeout", "/sandboxes/i1/refreshes", "/sandboxes/i1/snapshots", "/sandboxes/i1/fork", "/volumes",
		} {
			a := r.call(blockedKey, "POST", path, `{"timeout":1}`)
			require.Equal(t, 403, a.status, path)
			require.Equal(t, "team is blocked: payment failed", a.message(t))
		}
		require.Equal(t, 403, r.call(blockedKey, "PUT", "/sandboxes/i1/network", "{}").status)
		require.Equal(t, "team is banned", r.must(403, bannedKey, "DELETE", "/sandboxes/i1", "").message(t))
	})
}

func TestTemplates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, control.Options{Templates: append(control.DefaultTemplates(), control.Template{Aliases: []string{"mine"}})})
		mine := r.must(201, ownKey, "POST", "/sandboxes", `{"templateID":"mine"}`)
		byID := r.must(201, ownKey, "POST", "/sandboxes", `{"templateID":"`+mine.field(t, "templateID")+`"}`)
		require.Equal(t, "mine", byID.field(t, "alias"))
		require.Equal(t, "mine", r.node.Sandbox(byID.field(t, "sandboxID")).Spec.Template)
		own := r.must(201, ownKey, "POST", "/sandboxes", `{"templateID":"local-dev-team/mine:default"}`)
		require.Equal(t, mine.field(t, "templateID"), own.field(t, "templateID"))
		require.NotEqual(t, mine.field(t, "templateID"), r.must(201, ownKey, "POST", "/sandboxes", plain).field(t, "templateID"))
	})
	for name, valid := range map[string]bool{"a-b_1": true, "": false, "A": false, "a/b": false, "a:b": false, "a b": false} {
		require.Equal(t, valid, control.ValidTemplateName(name), name)
	}
}

func TestEnvironmentReachesTheNode(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, full)
		require.Equal(t, map[string]string{"FOO": "bar"}, r.node.Sandbox(id).Spec.Env)
		require.NotContains(t, r.info(id).body, "FOO")
	})
}

func TestNetworkIsShownWithoutThePassword(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, `{"templateID":"base","network":{"egressProxy":{"address":"proxy:1080","username":"u","password":"hunter2"},
			"rules":{"API.example.com":[{"transform":{"headers":{"X-Key":"v"}}}]},"httpsPorts":[8443]}}`)
		a := r.info(id)
		require.NotContains(t, a.body, "hunter2")
		require.Equal(t, map[string]any{
			"egressProxy": map[string]any{"address": "proxy:1080", "username": "u"},
			"rules":       map[string]any{"api.example.com": []any{map[string]any{"transform": map[string]any{"headers": map[string]any{"X-Key": "v"}}}}},
			"httpsPorts":  []any{8443.0},
		}, a.value(t, "network"))
		require.Equal(t, "invalid allowed address no domain", r.call(ownKey, "POST", "/sandboxes", `{"templateID":"base","network":{"allowOut":["no domain"]}}`).message(t))
		r.create(ownKey, `{"templateID":"base","network":{"allowOut":["*.example.com","10.0.0.0/8"],"denyOut":["0.0.0.0/0"]}}`)
	})
}

func TestLimitsOfNetworkRules(t *testing.T) {
	rules := func(domains, transforms, headers, name, value int) string {
		all := make(map[string]any)
		for d := range domains {
			h := make(map[string]string)
			for i := range headers {
				h[fmt.Sprintf("%0*d", name, i)] = strings.Repeat("v", value)
			}
			all[fmt.Sprintf("d%d.example.com", d)] = slices.Repeat([]any{map[string]any{"transform": map[string]any{"headers": h}}}, transforms)
		}
		text, err := json.Marshal(map[string]any{"rules": all})
		require.NoError(t, err)
		return string(text)
	}
	inBubble(t, func(r *rig) {
		t := r.t
		id := r.create(ownKey, plain)
		for body, want := range map[string]string{
			rules(11, 1, 1, 1, 1):       "invalid network rules: more than 10 domains",
			rules(1, 2, 1, 1, 1):        "invalid network rules: more than one transform for d0.example.com",
			rules(1, 1, 21, 2, 1):       "invalid network rules: more than 20 headers for d0.example.com",
			rules(1, 1, 1, 65, 1):       "invalid network rules: a header for d0.example.com is longer than 64 and 2048 bytes",
			rules(1, 1, 1, 1, 2049):     "invalid network rules: a header for d0.example.com is longer than 64 and 2048 bytes",
			`{"maskRequestHost":"a b"}`: "invalid mask request host a b",
		} {
			require.Equal(t, want, r.must(400, ownKey, "POST", "/sandboxes", `{"templateID":"base","network":`+body+`}`).message(t))
		}
		most := rules(10, 1, 20, 64, 2048)
		r.create(ownKey, `{"templateID":"base","network":`+most+`}`)
		r.must(204, ownKey, "PUT", "/sandboxes/"+id+"/network", most)
		r.must(400, ownKey, "PUT", "/sandboxes/"+id+"/network", rules(11, 1, 1, 1, 1))
	})
}

// oneConn is a listener with one connection.
type oneConn struct {
	conns chan net.Conn
	net.Listener
}

func (l *oneConn) Accept() (net.Conn, error) {
	c, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }
func (l *oneConn) Close() error   { return nil }

func TestBodyThatComesTooSlowly(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		client, conn := net.Pipe()
		l := &oneConn{conns: make(chan net.Conn, 1)}
		l.conns <- conn
		server := &http.Server{Handler: r.api}
		var serving sync.WaitGroup
		serving.Go(func() { _ = server.Serve(l) })
		began := time.Now()
		_, err := fmt.Fprintf(client, "POST /sandboxes HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", ownKey)
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(client), nil)
		require.NoError(t, err)
		require.Equal(t, 400, resp.StatusCode)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Contains(t, string(text), "request body has an error: reading failed")
		require.Equal(t, 10*time.Second, time.Since(began))
		close(l.conns)
		require.NoError(t, server.Close())
		require.NoError(t, client.Close())
		serving.Wait()
	})
}

func TestWorkloadTokensAreRefused(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		a := r.call(ownKey, "POST", "/sandboxes", `{"templateID":"base","iam":{"tokens":{"a":{"audience":"x","tokenType":"JWT-SVID"}}}}`)
		require.Equal(t, 400, a.status)
		require.Equal(t, "Sandbox IAM workload tokens are not available for your team.", a.message(t))
	})
}
