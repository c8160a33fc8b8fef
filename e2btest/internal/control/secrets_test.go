package control_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSecrets(t *testing.T) {
	inBubble(t, func(r *rig) {
		made := r.must(201, ownKey, "POST", "/secrets", `{"name":"My-Key","value":"s3cr3t","metadata":{"a":"1"}}`)
		id := made.field(t, "secretID")
		require.Regexp(t, `^sec_[a-z0-9]{20}$`, id)
		require.Equal(t, "my-key", made.field(t, "name"))
		require.InEpsilon(t, 1.0, made.value(t, "currentVersion"), 0)
		for _, name := range []string{"my-key", id} {
			require.Equal(t, made.body, r.must(200, ownKey, "GET", "/secrets/"+name, "").body)
		}
		require.Equal(t, "Secret not found", r.must(404, ownKey, "GET", "/secrets/My-Key", "").message(t), "names are in lower case")

		r.api.Advance(time.Minute)
		kept := r.must(200, ownKey, "POST", "/secrets/my-key", `{"value":"s3cr3t2"}`)
		require.Equal(t, map[string]any{"a": "1"}, kept.value(t, "metadata"))
		require.InEpsilon(t, 2.0, kept.value(t, "currentVersion"), 0)
		require.NotEqual(t, kept.field(t, "createdAt"), kept.field(t, "updatedAt"))
		require.Equal(t, map[string]any{}, r.must(200, ownKey, "POST", "/secrets/"+id, `{"value":"s3cr3t3","metadata":{}}`).value(t, "metadata"))

		require.Equal(t, "Secret cannot be modified in its current state", r.must(409, ownKey, "POST", "/secrets", `{"name":"MY-KEY","value":"v"}`).message(t))
		r.must(404, otherKey, "GET", "/secrets/my-key", "")
		r.must(404, otherKey, "POST", "/secrets/my-key", `{"value":"v"}`)
		r.must(404, otherKey, "DELETE", "/secrets/my-key", "")
		require.Equal(t, "[]", r.must(200, otherKey, "GET", "/secrets", "").body)
		require.NotContains(t, r.must(200, ownKey, "GET", "/secrets", "").body, "s3cr3t")
		r.must(204, ownKey, "DELETE", "/secrets/my-key", "")
		gone := r.must(404, ownKey, "DELETE", "/secrets/"+id, "")
		require.Equal(t, "no-store", gone.header.Get("Cache-Control"))
	})
}

func TestSecretsInPages(t *testing.T) {
	inBubble(t, func(r *rig) {
		for _, name := range []string{"c", "a", "e", "b", "d"} {
			r.must(201, ownKey, "POST", "/secrets", `{"name":"`+name+`","value":"v"}`)
		}
		var pages []string
		for token := ""; ; {
			a := r.must(200, ownKey, "GET", "/secrets?limit=2&nextToken="+token, "")
			list, ok := a.decoded(t).([]any)
			require.True(t, ok)
			var names strings.Builder
			for _, item := range list {
				m, ok := item.(map[string]any)
				require.True(t, ok)
				fmt.Fprint(&names, m["name"])
			}
			pages = append(pages, names.String())
			if token = a.header.Get("X-Next-Token"); token == "" {
				break
			}
		}
		require.Equal(t, []string{"ab", "cd", "e"}, pages)
		for _, query := range []string{"limit=0", "limit=101", "limit=x", "nextToken=!"} {
			require.Equal(t, "Invalid secrets request", r.must(400, ownKey, "GET", "/secrets?"+query, "").message(t), query)
		}
	})
}

func TestBadSecrets(t *testing.T) {
	inBubble(t, func(r *rig) {
		long := strings.Repeat("a", 129)
		for _, body := range []string{
			`{}`, `{"name":"a"}`, `{"value":"v"}`, `{"name":"","value":"v"}`, `{"name":"a b","value":"v"}`, `{"name":"sec_a","value":"v"}`,
			`{"name":"` + long + `","value":"v"}`, `{"name":"a","value":1}`, `{"name":"a","value":"v","metadata":{"a":1}}`,
			`{"name":"a","value":"v","metadata":{"` + long + `":""}}`, `{"name":"a","value":"v"`, `[]`, ``,
		} {
			a := r.must(400, ownKey, "POST", "/secrets", body)
			require.Equal(t, "Invalid secrets request", a.message(t), body)
			require.Equal(t, "no-store", a.header.Get("Cache-Control"))
		}
		r.must(201, ownKey, "POST", "/secrets", `{"name":"a","value":"v"}`)
		for _, body := range []string{`{}`, `{"value":null}`, `{"value":"v","metadata":{"` + long + `":""}}`} {
			require.Equal(t, "Invalid secrets request", r.must(400, ownKey, "POST", "/secrets/a", body).message(t), body)
		}
		a := r.must(403, blockedKey, "POST", "/secrets", `{"name":"a","value":"v"}`)
		require.Equal(t, "Secrets are not available for this team", a.message(t))
		require.Equal(t, "You are not authenticated", r.must(401, "e2b_00", "GET", "/secrets", "").message(t))
	})
}
