package control_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/control"
)

// ids returns the IDs of a list, in its order.
func (a answer) ids(t *testing.T) []string {
	t.Helper()
	var ids []string
	var items []struct {
		SandboxID string `json:"sandboxID"`
	}
	require.NoError(t, json.Unmarshal([]byte(a.body), &items), a.body)
	for _, item := range items {
		ids = append(ids, item.SandboxID)
	}
	return ids
}

func TestPagesOfManySandboxes(t *testing.T) {
	const count = 250
	for _, order := range []string{"desc", "asc"} {
		t.Run(order, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts := control.Options{Teams: teams()}
				opts.Teams[0].MaxSandboxes = count
				r := newRig(t, opts)
				for n := range count {
					id := r.create(ownKey, long)
					switch n % 5 {
					case 0:
						r.pause(id)
					case 1:
						r.api.Advance(time.Millisecond) // so that some start together
					}
				}
				var all []string
				path, pages := "/v2/sandboxes?order="+order, 0
				for token := ""; ; {
					a := r.must(200, ownKey, "GET", path+"&nextToken="+url.QueryEscape(token), "")
					require.Equal(t, "200", a.header.Get("X-Total-Running"))
					all = append(all, a.ids(t)...)
					pages++
					if token = a.header.Get("X-Next-Token"); token == "" {
						break
					}
				}
				require.Equal(t, 3, pages)
				require.Len(t, all, count)
				seen := make(map[string]bool)
				for i, id := range all {
					require.False(t, seen[id])
					seen[id] = true
					if i == 0 {
						continue
					}
					newer, older := all[i-1], id
					if order == "asc" {
						newer, older = older, newer
					}
					switch a, b := r.at(newer, "startedAt"), r.at(older, "startedAt"); {
					case a.Truncate(time.Microsecond).Equal(b.Truncate(time.Microsecond)):
						require.Less(t, newer, older)
					default:
						require.True(t, a.After(b))
					}
				}
				require.Len(t, r.must(200, ownKey, "GET", "/sandboxes", "").ids(t), 200, "v1 has no pages")
			})
		})
	}
}

func TestFullPageIsTheLast(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		for range 2 {
			r.create(ownKey, long)
		}
		a := r.must(200, ownKey, "GET", "/v2/sandboxes?limit=2", "")
		require.Len(t, a.ids(t), 2)
		require.Empty(t, a.header.Get("X-Next-Token"))
	})
}

func TestMetadataOfAnyText(t *testing.T) {
	values := []string{
		"&", "=", "+", "%", "ü", "/", `"quoted"`, "'", "a\nb", "a&b=c d+e%f/ü", "%2F", "%252F", "", " ", "<script>",
		"\u2028", strings.Repeat("x", 100<<10),
	}
	inBubble(t, func(r *rig) {
		t := r.t
		ids := make(map[string]string)
		for _, value := range values {
			body, err := json.Marshal(map[string]any{"templateID": "base", "metadata": map[string]string{"key " + value: value, "all": "yes"}})
			require.NoError(t, err)
			ids[value] = r.create(ownKey, string(body))
		}
		twice := func(s string) string { return url.QueryEscape(url.QueryEscape(s)) }
		for _, value := range values {
			filter := twice("key "+value) + "=" + twice(value) + "&all=yes"
			for _, path := range []string{"/v2/sandboxes", "/sandboxes"} {
				a := r.must(200, ownKey, "GET", path+"?metadata="+url.QueryEscape(filter), "")
				require.Equal(t, []string{ids[value]}, a.ids(t), "%.40q", value)
			}
			var info struct {
				Metadata map[string]string `json:"metadata"`
			}
			require.NoError(t, json.Unmarshal([]byte(r.info(ids[value]).body), &info))
			require.Equal(t, value, info.Metadata["key "+value])
		}
	})
}

func TestListFilters(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		old := r.create(ownKey, long)
		r.api.Advance(time.Second)
		fresh := r.create(ownKey, `{"templateID":"code-interpreter","timeout":600}`)
		r.create(otherKey, long)
		start := r.at(fresh, "startedAt").Truncate(time.Microsecond)
		list := func(query string) []string { return r.must(200, ownKey, "GET", "/v2/sandboxes?"+query, "").ids(t) }
		require.Equal(t, []string{fresh, old}, list(""), "newest first, own ones only")
		require.Equal(t, []string{old, fresh}, list("order=asc"))
		require.Equal(t, []string{fresh}, list("startedAfter="+url.QueryEscape(start.Format(time.RFC3339Nano))), "inclusive")
		require.Empty(t, list("startedAfter="+url.QueryEscape(start.Add(time.Microsecond).Format(time.RFC3339Nano))))
		require.Equal(t, []string{fresh}, list("template=code-interpreter-v1"))
		require.Equal(t, []string{fresh}, list("template="+r.info(fresh).field(t, "templateID")))
		require.Equal(t, []string{old}, list("template=base&state=running"))
		require.Empty(t, list("template=base&state=paused"))
		r.api.Advance(time.Second)
		r.pause(old)
		r.connect(old, "600")
		require.Equal(t, []string{old, fresh}, list(""), "a resume moves a sandbox to the front")
		r.pause(old)
		a := r.must(200, ownKey, "GET", "/v2/sandboxes?state=paused", "")
		require.Equal(t, []string{old}, a.ids(t))
		require.NotContains(t, a.header, "X-Total-Running")
	})
}

func TestListRefusals(t *testing.T) {
	const validation = "validation error: error in openapi3filter.RequestError: "
	inBubble(t, func(r *rig) {
		t := r.t
		for query, want := range map[string]string{
			"limit=x":                validation + `parameter "limit" in query has an error: value x: an invalid integer: invalid syntax`,
			"state=running,gone":     validation + `parameter "state" in query has an error: Error at "/1": value is not one of the allowed values ["running","paused"]`,
			"startedAfter=yesterday": "validation error: Invalid format for parameter startedAfter: error parsing 'yesterday' as RFC3339 time",
			"template=base:v1":       "Invalid template: tags are not supported here because sandboxes are not tag-scoped",
			"metadata=a%3D%2525":     "Error parsing metadata",
			"metadata=%25":           "Error parsing metadata",
			"nextToken=bm8=":         "Invalid next token", // "no"
			"nextToken=bm9fX3k=":     "Invalid next token", // "no__y"
		} {
			a := r.call(ownKey, "GET", "/v2/sandboxes?"+query, "")
			require.Equal(t, 400, a.status, query)
			require.Equal(t, want, a.message(t), query)
		}
	})
}

func TestForeignSandboxesLookUnknown(t *testing.T) {
	inBubble(t, func(r *rig) {
		t := r.t
		running, paused := r.create(ownKey, long), r.create(ownKey, long)
		r.pause(paused)
		for _, id := range []string{running, paused} {
			for _, request := range [][2]string{
				{"GET", ""}, {"DELETE", ""}, {"POST", "/pause"}, {"POST", "/connect"}, {"POST", "/resume"}, {"POST", "/timeout"}, {"POST", "/refreshes"},
			} {
				body := ""
				if request[1] == "/connect" {
					body = `{"timeout":1}`
				}
				a := r.call(otherKey, request[0], "/sandboxes/"+id+request[1], body)
				require.Equal(t, 404, a.status, request)
				require.Equal(t, fmt.Sprintf(`Sandbox "%s" doesn't exist or you don't have access to it`, id), a.message(t))
			}
		}
		require.Equal(t, "running", r.state(running))
		require.Equal(t, "paused", r.state(paused))
	})
}
