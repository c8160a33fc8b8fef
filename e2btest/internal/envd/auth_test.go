//go:build linux || darwin

package envd

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/filesystem"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
)

const unauthorizedBody = `{"code":401,"message":"unauthorized access, please provide a valid access token or method signing if supported"}` + "\n"

func TestToken(t *testing.T) {
	w := newWorld(t, withToken("secret"))
	json := []string{"Content-Type", "application/json"}
	for _, test := range []struct {
		method, path string
		headers      []string
		status       int
	}{
		{"GET", "/health", nil, 204},
		{"POST", "/init", json, 404}, // exempt, but not there
		{"GET", "/files?path=x", nil, 401},
		{"HEAD", "/files?path=x", nil, 401},
		{"HEAD", "/health", nil, 401},
		{"GET", "/files/", nil, 401},
		{"GET", "/nosuch", nil, 401},
		{"GET", "/metrics", nil, 401},
		{"GET", "/envs", nil, 401},
		{"POST", "/files/compose", json, 401},
		{"POST", "/process.Process/List", json, 401},
		{"POST", "/process.Process/List", append(json, "X-Access-Token", "secre"), 401},
		{"POST", "/process.Process/List", append(json, "Authorization", "Bearer secret"), 401},
		{"POST", "/process.Process/List", append(json, "X-Access-Token", "secret"), 200},
		{"GET", "/metrics", []string{"X-Access-Token", "secret"}, 200},
	} {
		res, body := w.do(t, test.method, test.path, strings.NewReader("{}"), test.headers...)
		require.Equal(t, test.status, res.StatusCode, "%s %s", test.method, test.path)
		if test.status == 401 && test.method != "HEAD" && !strings.HasPrefix(test.path, "/files?") {
			require.Equal(t, unauthorizedBody, body)
			require.Equal(t, "application/json; charset=utf-8", res.Header.Get("Content-Type"))
		}
	}
	// On a stream it is a plain answer too.
	stream, err := w.procs.Start(t.Context(), connect.NewRequest(shell("true")))
	require.NoError(t, err)
	require.False(t, stream.Receive())
	require.Equal(t, connect.CodeUnauthenticated, connect.CodeOf(stream.Err()))
	require.NoError(t, stream.Close())
}

func TestUserOfRequest(t *testing.T) {
	w := newWorld(t)
	home := func(headers ...string) (string, error) {
		req := connect.NewRequest(&filesystem.StatRequest{Path: "~"})
		for i := 0; i < len(headers); i += 2 {
			req.Header().Set(headers[i], headers[i+1])
		}
		res, err := w.files.Stat(t.Context(), req)
		if err != nil {
			return "", err
		}
		return res.Msg.GetEntry().GetPath(), nil
	}
	for _, headers := range [][]string{
		nil,
		{"Authorization", basic("user")},
		{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("user:any password"))},
		{"Authorization", "Bearer root"},
		{"Authorization", "Basic ***"},
	} {
		path, err := home(headers...)
		require.NoError(t, err)
		require.Equal(t, w.home, path, "%q", headers)
	}
	for _, name := range []string{"", "1000", "nobody at all"} {
		_, err := home("Authorization", basic(name))
		requireCode(t, connect.CodeUnauthenticated, "invalid username: '"+name+"'", err)
		// Before anything else.
		for _, path := range []string{"/health", "/files?path=x", "/nosuch"} {
			res, body := w.do(t, "GET", path, nil, "Authorization", basic(name))
			require.Equal(t, 401, res.StatusCode)
			require.JSONEq(t, `{"code":"unauthenticated","message":"invalid username: '`+name+`'"}`, body)
		}
	}

	ghost := newWorld(t, func(c *Config) { c.DefaultUser = "ghost" })
	_, err := ghost.procs.List(t.Context(), connect.NewRequest(&process.ListRequest{}))
	requireCode(t, connect.CodeUnauthenticated, "invalid default user: 'ghost'", err)
}

// The queries are those that the real daemon accepted.
func TestRecordedSignatures(t *testing.T) {
	s := New(Config{AccessToken: recordedToken})
	defer s.Close()
	accepted := []string{
		"path=%2Ftmp%2Fenvd-fx%2Fa.txt&signature=v1_9iIbLZHZmAgw2L8vo8ZJ5OecOxQhF2MCN%2BngQFuHPCQ",
		"path=%2Ftmp%2Fenvd-fx%2Fa.txt&signature=v1_I51EA%2FcoTaCj9ujQhzp6I7Uof8lbXvSKH2XXlUgpc0E&signature_expiration=4102444800&username=user",
	}
	for _, query := range accepted {
		values, err := url.ParseQuery(query)
		require.NoError(t, err)
		q, err := parseFileQuery(values)
		require.NoError(t, err)
		require.NoError(t, s.mayTransfer(nil, q, "read"))
		require.EqualError(t, s.mayTransfer(nil, q, "write"), "invalid signature")
		*q.signature += "="
		require.EqualError(t, s.mayTransfer(nil, q, "read"), "invalid signature")
	}
}

func TestTransferAccess(t *testing.T) {
	s := New(Config{AccessToken: "secret"})
	defer s.Close()
	now := time.Unix(1000, 0)
	s.now = func() time.Time { return now }
	at := func(expiration int64) fileQuery {
		q := fileQuery{path: "p", expiration: &expiration}
		q.signature = new(sign("secret", "read", q))
		return q
	}
	require.NoError(t, s.mayTransfer(nil, at(1001), "read"))
	require.NoError(t, s.mayTransfer(nil, at(1000), "read"), "the second itself is still valid")
	require.EqualError(t, s.mayTransfer(nil, at(999), "read"), "signature is already expired")
	require.EqualError(t, s.mayTransfer(nil, fileQuery{path: "p"}, "read"), "missing signature query parameter")
	ahead := http.Header{node.ClockHeader: {"1s"}}
	require.NoError(t, s.mayTransfer(ahead, at(1001), "read"))
	require.EqualError(t, s.mayTransfer(ahead, at(1000), "read"), "signature is already expired", "by the emulator's clock")
	header := http.Header{tokenHeader: {"wrong"}}
	require.EqualError(t, s.mayTransfer(header, at(1001), "read"), "access token present in header but does not match")
	header = http.Header{tokenHeader: {"secret"}}
	require.NoError(t, s.mayTransfer(header, fileQuery{path: "p"}, "read"))
	later := at(1001)
	later.expiration = new(int64(2000))
	require.EqualError(t, s.mayTransfer(nil, later, "read"), "invalid signature")
	later.expiration = nil
	require.EqualError(t, s.mayTransfer(nil, later, "read"), "invalid signature")
}

// Only the one right signature opens the door.
func FuzzSignature(f *testing.F) {
	f.Add("/tmp/envd-fx/a.txt", "user", recordedToken, "v1_I51EA/coTaCj9ujQhzp6I7Uof8lbXvSKH2XXlUgpc0E", "4102444800", true)
	f.Add("/tmp/envd-fx/a.txt", "", recordedToken, "v1_9iIbLZHZmAgw2L8vo8ZJ5OecOxQhF2MCN+ngQFuHPCQ", "", true)
	f.Add("a:read", ":", "t", "v1_", "-1", false)
	f.Add("", "", "x", "", "+5", false)
	f.Fuzz(func(t *testing.T, path, user, token, signature, expiration string, exact bool) {
		if token == "" {
			token = "t" // no token, no check
		}
		input := path + ":read:" + user + ":" + token
		values := url.Values{"path": {path}, "username": {user}}
		expires, expErr := strconv.ParseInt(expiration, 10, 64)
		if expErr == nil {
			values.Set("signature_expiration", expiration)
			input += ":" + strconv.FormatInt(expires, 10)
		}
		sum := sha256.Sum256([]byte(input))
		right := "v1_" + base64.StdEncoding.WithPadding(base64.NoPadding).EncodeToString(sum[:])
		if exact {
			signature = right
		}
		values.Set("signature", signature)
		q, err := parseFileQuery(values)
		require.NoError(t, err)
		s := &Server{cfg: Config{AccessToken: token}, now: func() time.Time { return time.Unix(1_700_000_000, 0) }}
		allowed := s.mayTransfer(http.Header{}, q, "read") == nil
		require.Equal(t, signature == right && (expErr != nil || expires >= 1_700_000_000), allowed)
	})
}
