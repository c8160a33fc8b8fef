package e2btest

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const asBrowser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

func TestStatusPage(t *testing.T) {
	s, _ := inMemory(t, Options{StatusPage: true, APIKey: "e2b_5ec4e7"})
	client := newClient(t, false)
	page := func() string {
		status, body := s.send(t, client, http.MethodGet, s.APIURL()+"/", "", "Accept", asBrowser)
		require.Equal(t, http.StatusOK, status)
		return body
	}
	require.Contains(t, page(), "There is no sandbox yet.")
	require.Contains(t, page(), "Sandboxes are not isolated from this machine: it is in memory")

	create := func(more string) string {
		status, body := s.send(t, client, http.MethodPost, s.APIURL()+"/sandboxes", `{"templateID":"base","secure":true`+more+`}`)
		require.Equal(t, http.StatusCreated, status, body)
		_, rest, _ := strings.Cut(body, `"sandboxID":"`)
		id, _, _ := strings.Cut(rest, `"`)
		return id
	}
	running := create(`,"timeout":3600,"metadata":{"b":"<script>alert(1)</script>","a":"\"&x"}`)
	paused := create(`,"timeout":3600`)
	status, _ := s.send(t, client, http.MethodPost, s.APIURL()+"/sandboxes/"+paused+"/pause", "")
	require.Equal(t, http.StatusNoContent, status)
	create(`,"timeout":10`)
	s.Advance(time.Minute)

	requests := len(s.Requests())
	got := page()
	require.Len(t, s.Requests(), requests, "the page is no request of a client")
	require.Contains(t, got, "1 running, 1 paused, 1 gone")
	for _, sb := range s.Sandboxes() {
		at := map[string]string{running: "ends at ", paused: "paused at "}[sb.ID]
		if at == "" {
			at = "ended at "
		}
		_, row, ok := strings.Cut(got, `<tr id="`+sb.ID+`" class="`+sb.State+`">`)
		require.True(t, ok, got)
		row, _, _ = strings.Cut(row, "</tr>")
		require.Contains(t, row, at+sb.EndAt.Local().Format(time.DateTime))
		require.Contains(t, row, ">"+sb.Billed.Round(time.Second).String()+"<")
		if sb.State != "gone" {
			require.Contains(t, row, "<td>base</td>")
		}
	}
	require.Contains(t, got, "<code>a=&#34;&amp;x</code><br><code>b=&lt;script&gt;alert(1)&lt;/script&gt;</code>")
	require.Less(t, strings.Index(got, paused), strings.Index(got, running), "the newest one is first")
	require.NotContains(t, got, s.APIKey())
	for _, sb := range s.Sandboxes() {
		require.NotContains(t, got, s.envdToken(t, client, sb.ID))
	}
}

// envdToken asks for the token of a sandbox.
func (s *Server) envdToken(t *testing.T, client *http.Client, id string) string {
	t.Helper()
	_, body := s.send(t, client, http.MethodGet, s.APIURL()+"/sandboxes/"+id, "")
	_, rest, ok := strings.Cut(body, `"envdAccessToken":"`)
	if !ok {
		return "a sandbox that is gone has no token"
	}
	token, _, _ := strings.Cut(rest, `"`)
	return token
}

func TestStatusPageIsForLocalBrowsers(t *testing.T) {
	const missing = `{"code":404,"message":"validation error: no matching operation was found"}`
	with, _ := inMemory(t, Options{StatusPage: true})
	without, _ := inMemory(t, Options{})
	client := newClient(t, false)
	get := func(s *Server, method, path, host, accept string) (*http.Response, bool) {
		req, err := http.NewRequestWithContext(t.Context(), method, s.APIURL()+path, http.NoBody)
		require.NoError(t, err)
		req.Host = host
		req.Header.Set("Accept", accept)
		resp, err := client.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp, strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html")
	}
	for _, host := range []string{"127.0.0.1", "127.0.0.1:3000", "localhost", "LOCALHOST:1", "[::1]", "[::1]:3000", "127.9.9.9"} {
		resp, isPage := get(with, http.MethodGet, "/", host, asBrowser)
		require.True(t, isPage, host)
		require.Contains(t, resp.Header.Get("Content-Security-Policy"), "default-src 'none'")
		require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
	}
	for _, host := range []string{"evil.example", "evil.example:3000", "127.0.0.1.evil.example", "localhost.evil.example", "192.168.0.1", "0.0.0.0"} {
		resp, isPage := get(with, http.MethodGet, "/", host, asBrowser)
		require.False(t, isPage, host)
		require.Equal(t, http.StatusNotFound, resp.StatusCode)
	}
	_, isPage := get(with, http.MethodHead, "/", "localhost", asBrowser)
	require.True(t, isPage)
	for _, test := range []struct{ method, path, accept string }{
		{http.MethodPost, "/", asBrowser}, {http.MethodGet, "/x", asBrowser}, {http.MethodGet, "/", "*/*"}, {http.MethodGet, "/", ""},
	} {
		_, isPage := get(with, test.method, test.path, "localhost", test.accept)
		require.False(t, isPage, test)
	}
	status, body := with.send(t, client, http.MethodGet, with.APIURL()+"/", "")
	require.Equal(t, http.StatusNotFound, status)
	require.JSONEq(t, missing, body)
	_, isPage = get(without, http.MethodGet, "/", "localhost", asBrowser)
	require.False(t, isPage)
}

// TestRootWithoutABrowser is no unknown route where there is a page.
func TestRootWithoutABrowser(t *testing.T) {
	client := newClient(t, false)
	for _, test := range []struct {
		page         bool
		method, path string
		warns        bool
	}{
		{true, http.MethodGet, "/", false},
		{true, http.MethodHead, "/", false},
		{true, http.MethodPost, "/", true},
		{true, http.MethodGet, "/x", true},
		{false, http.MethodGet, "/", true},
	} {
		var log bytes.Buffer
		s, _ := inMemory(t, Options{StatusPage: test.page, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		status, _ := s.send(t, client, test.method, s.APIURL()+test.path, "")
		require.Equal(t, http.StatusNotFound, status)
		require.NoError(t, s.Close())
		require.Equal(t, test.warns, strings.Contains(log.String(), "no such route"), "%v: %s", test, log.String())
	}
}

// TestStatusPageOfMany shows some of those that are gone.
func TestStatusPageOfMany(t *testing.T) {
	s, _ := inMemory(t, Options{StatusPage: true})
	var all []SandboxStatus
	for i := range maxGone + 2 {
		all = append(all, SandboxStatus{ID: fmt.Sprint(i), State: "gone"})
	}
	v := s.statusOf(all)
	require.Len(t, v.Rows, maxGone)
	require.Equal(t, 2, v.Hidden)
	require.Equal(t, fmt.Sprint(maxGone+1), v.Rows[0].ID)
}
