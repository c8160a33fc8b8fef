package control_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/nodetest"
)

// createVolume makes a volume of ownKey and returns its ID.
func (r *rig) createVolume(name string) string {
	r.t.Helper()
	return r.must(201, ownKey, "POST", "/volumes", `{"name":"`+name+`"}`).field(r.t, "volumeID")
}

func TestVolumes(t *testing.T) {
	inBubble(t, func(r *rig) {
		require.Equal(t, "[]", r.must(200, ownKey, "GET", "/volumes", "").body)
		a, b := r.createVolume("a"), r.createVolume("B_2-x")
		require.Equal(t, `[{"name":"a","volumeID":"`+a+`"},{"name":"B_2-x","volumeID":"`+b+`"}]`, r.must(200, ownKey, "GET", "/volumes", "").body)
		require.Equal(t, "a", r.must(200, ownKey, "GET", "/volumes/"+strings.ToUpper(a), "").field(t, "name"))
		// Other teams have their own.
		require.Equal(t, "[]", r.must(200, otherKey, "GET", "/volumes", "").body)
		r.must(404, otherKey, "GET", "/volumes/"+a, "")
		r.must(404, otherKey, "DELETE", "/volumes/"+a, "")
		r.must(201, otherKey, "POST", "/volumes", `{"name":"a"}`)

		r.must(204, ownKey, "DELETE", "/volumes/"+a, "")
		require.Equal(t, "Volume not found", r.must(404, ownKey, "DELETE", "/volumes/"+a, "").message(t))
		require.Equal(t, "Invalid volume ID", r.must(400, ownKey, "DELETE", "/volumes/a", "").message(t))
		require.NotEqual(t, a, r.createVolume("a"))
		for _, name := range []string{"", "a b", "ü", "a/b"} {
			require.Equal(t, "Invalid volume name", r.must(400, ownKey, "POST", "/volumes", `{"name":"`+name+`"}`).message(t))
		}
		require.Contains(t, r.must(400, ownKey, "POST", "/volumes", `{"name":1}`).message(t), "value must be a string")
		r.must(403, blockedKey, "POST", "/volumes", `{"name":"a"}`)
		r.must(200, blockedKey, "GET", "/volumes", "")
	})
}

// A volume may have many files.
func TestSlowRemovalOfAVolume(t *testing.T) {
	inKeptBubble(t, func(k *kept) {
		id := k.createVolume("a")
		require.Contains(k.t, string(k.state), id)
		release := k.hold(nodetest.RemoveVolume)
		deleted := k.background(ownKey, "DELETE", "/volumes/"+id, "")
		require.NotContains(k.t, string(k.state), id, "a state does not name what is half gone")
		listed := k.background(ownKey, "GET", "/volumes", "")
		require.Len(k.t, listed, 1, "others do not wait")
		require.Equal(k.t, "[]", (<-listed).body)
		require.Empty(k.t, deleted)
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			k.api.Close()
		}()
		synctest.Wait()
		select {
		case <-closed:
			require.Fail(k.t, "the end does not wait")
		default:
		}
		release()
		require.Equal(k.t, 204, (<-deleted).status)
		<-closed
	})
}

func TestTokensOfVolumesExpireByTheEmulatorsClock(t *testing.T) {
	inBubble(t, func(r *rig) {
		id := r.createVolume("a")
		fresh := func() (token string, issued, expires int64) {
			token = r.must(200, ownKey, "GET", "/volumes/"+id, "").field(t, "token")
			parts := strings.Split(token, ".")
			require.Len(t, parts, 3)
			text, err := base64.RawURLEncoding.DecodeString(parts[1])
			require.NoError(t, err)
			var claims struct {
				Sub, Aud string
				Iat, Exp int64
			}
			require.NoError(t, json.Unmarshal(text, &claims))
			require.Equal(t, id, claims.Sub)
			require.Equal(t, "https://api.e2b.app", claims.Aud)
			return token, claims.Iat, claims.Exp
		}
		first, issued, expires := fresh()
		require.Equal(t, time.Now().Unix(), issued)
		require.Equal(t, int64(3600), expires-issued)
		r.api.Advance(time.Hour)
		second, again, _ := fresh()
		require.Equal(t, expires, again)
		require.NotEqual(t, first, second)
	})
}

func TestMounts(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.createVolume("a")
		r.must(201, otherKey, "POST", "/volumes", `{"name":"theirs"}`)
		id := r.create(ownKey, `{"templateID":"base","volumeMounts":[{"name":"a","path":"/mnt/a"},{"name":"a","path":"/mnt/b"}]}`)
		mounts := []any{map[string]any{"name": "a", "path": "/mnt/a"}, map[string]any{"name": "a", "path": "/mnt/b"}}
		require.Equal(t, mounts, r.info(id).value(t, "volumeMounts"))
		r.pause(id)
		require.NotContains(t, r.info(id).body, "volumeMounts", "as E2B leaves them out")
		r.connect(id, "60")
		require.Equal(t, mounts, r.info(id).value(t, "volumeMounts"))

		a := r.must(400, ownKey, "POST", "/sandboxes", `{"templateID":"base","volumeMounts":[{"name":"a","path":"/a"},
			{"name":"theirs","path":"/b"},{"name":"a","path":"rel"},{"name":"a","path":"/a/"},{"name":"a","path":"/a"},{"name":"a","path":"/"}]}`)
		require.Equal(t, "invalid mounts:\n\t- volume mount #1: volume 'theirs' not found\n\t- volume mount #2: path 'rel' is not absolute and clean"+
			"\n\t- volume mount #3: path '/a/' is not absolute and clean\n\t- volume mount #4: path '/a' is used twice"+
			"\n\t- volume mount #5: path '/' is not absolute and clean", a.message(t))
	})
}
