package e2b_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

// seqKeys is the first half of each pair.
func seqKeys[K, V any](seq iter.Seq2[K, V]) iter.Seq[K] {
	return func(yield func(K) bool) {
		for k := range seq {
			if !yield(k) {
				return
			}
		}
	}
}

// collect ranges over a list to its end.
func collect(t *testing.T, seq iter.Seq2[e2b.SandboxInfo, error]) (ids []string, err error) {
	t.Helper()
	for info, e := range seq {
		require.NoError(t, err, "a pair after the error")
		if err = e; e != nil {
			require.Zero(t, info)
			continue
		}
		ids = append(ids, info.ID)
	}
	return ids, err
}

// listBody is a page with the sandboxes from first to before end.
func listBody(first, end int) string {
	var items []string
	for i := first; i < end; i++ {
		items = append(items, fmt.Sprintf(`{"sandboxID":"i%d","state":"running"}`, i))
	}
	return "[" + strings.Join(items, ",") + "]"
}

// pagedList answers as a server with n sandboxes does.
func pagedList(n int) apiAnswer {
	return func(r *http.Request) (*http.Response, error) {
		q := r.URL.Query()
		limit, first := 100, 0
		if s := q.Get("limit"); s != "" {
			limit, _ = strconv.Atoi(s)
		}
		if s := q.Get("nextToken"); s != "" {
			first, _ = strconv.Atoi(strings.TrimSuffix(s, "=="))
		}
		end := min(first+limit, n)
		var header []string
		if end < n {
			header = []string{"X-Next-Token", strconv.Itoa(end) + "=="}
		}
		return answerJSON(200, listBody(first, end), header...)(r)
	}
}

// TestUserI1Paging goes through all pages, no further than it is ranged over.
func TestUserI1Paging(t *testing.T) {
	t.Parallel()
	page := pagedList(250)
	api := newFakeAPI(t, page, page, page, page, page, page, page, page)
	c := api.client(t)
	all := c.List(t.Context(), nil)
	require.Empty(t, api.requests(), "a list asks when it is ranged over")
	for range 2 { // it starts over
		before := len(api.requests())
		ids, err := collect(t, all)
		require.NoError(t, err)
		require.Len(t, ids, 250)
		unique := map[string]bool{}
		for _, id := range ids {
			unique[id] = true
		}
		require.Len(t, unique, 250)
		require.Len(t, api.requests(), before+3)
	}
	tokens := []string{"", "100==", "200==", "", "100==", "200=="}
	for i, r := range api.requests() {
		require.Equal(t, tokens[i], decodedQuery(t, r.Query).Get("nextToken"))
	}

	n := 0
	for _, err := range all {
		require.NoError(t, err)
		if n++; n == 5 {
			break
		}
	}
	require.Len(t, api.requests(), 7)

	ids, err := collect(t, c.List(t.Context(), &e2b.ListOptions{PageToken: "200==", PageSize: 100}))
	require.NoError(t, err)
	require.Len(t, ids, 50, "a list may begin in the middle")
	require.Equal(t, "i200", ids[0])
}

// TestUserI1NoPagingHeader is one page, of servers that have no more.
func TestUserI1NoPagingHeader(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, answerJSON(200, listBody(0, 150)))
	ids, err := collect(t, api.client(t).List(t.Context(), nil))
	require.NoError(t, err)
	require.Len(t, ids, 150)
	require.Len(t, api.requests(), 1)
}

// TestListEndsInACircle of pages.
func TestListEndsInACircle(t *testing.T) {
	t.Parallel()
	for name, tokens := range map[string][]string{"the same page": {"a", "a"}, "back to an earlier one": {"a", "b", "c", "a"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var answers []apiAnswer
			for i, token := range tokens {
				answers = append(answers, answerJSON(200, listBody(i, i+1), "X-Next-Token", token))
			}
			api := newFakeAPI(t, answers...)
			ids, err := collect(t, api.client(t).List(t.Context(), nil))
			require.ErrorContains(t, err, "repeats a page")
			require.Len(t, ids, len(tokens))
		})
	}
}

// TestListSkipsWhatMovedBetweenPages and goes on over empty pages.
func TestListSkipsWhatMovedBetweenPages(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t,
		answerJSON(200, listBody(0, 3), "X-Next-Token", "a"), answerJSON(200, listBody(2, 5), "X-Next-Token", "b"),
		answerJSON(200, "[]", "X-Next-Token", "c"), answerJSON(200, listBody(0, 6)))
	ids, err := collect(t, api.client(t).List(t.Context(), nil))
	require.NoError(t, err)
	require.Equal(t, []string{"i0", "i1", "i2", "i3", "i4", "i5"}, ids)
}

// TestListErrors are the last pair, and never an empty list.
func TestListErrors(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`null`, `{}`, `{"items":[]}`, ``, `"[]"`, `[`, `[1]`, `[{"sandboxID":7}]`, `[] []`, `<html>`} {
		page := answerJSON(200, body)
		api := newFakeAPI(t, page, answerJSON(200, listBody(0, 1), "X-Next-Token", "a"), page)
		c := api.client(t)
		p, err := c.ListPage(t.Context(), nil)
		require.Nil(t, p)
		requireKinds(t, err)
		require.Equal(t, 200, requireAPIError(t, err).StatusCode, body)
		ids, err := collect(t, c.List(t.Context(), nil))
		requireKinds(t, err)
		require.Equal(t, []string{"i0"}, ids, "what came before stays")
	}
	api := newFakeAPI(t, answerJSON(200, listBody(0, 1), "X-Next-Token", "a"), answerText(401, ""))
	ids, err := collect(t, api.client(t).List(t.Context(), nil))
	requireKinds(t, err, e2b.ErrUnauthenticated)
	require.Len(t, ids, 1)
}

// TestListCtx bounds the range, not only a page.
func TestListCtx(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	api := newFakeAPI(t, pagedList(250))
	n := 0
	var last error
	for _, err := range api.client(t).List(ctx, nil) {
		n++
		cancel()
		last = err
	}
	require.Equal(t, 101, n, "the page that is there, and the error")
	requireKinds(t, last, context.Canceled)
	require.Len(t, api.requests(), 1)
}

// TestEmptyPage is one that is there.
func TestEmptyPage(t *testing.T) {
	t.Parallel()
	page, err := newFakeAPI(t, answerJSON(200, ` [ ] `)).client(t).ListPage(t.Context(), nil)
	require.NoError(t, err)
	require.NotNil(t, page.Items)
	require.Empty(t, page.Items)
	require.Empty(t, page.NextToken)
}

// serverDecodes reads a metadata filter as the real server does: the query, then
// the whole, then each key and value.
func serverDecodes(t *testing.T, r sentRequest) map[string]string {
	t.Helper()
	whole, err := url.QueryUnescape(decodedQuery(t, r.Query).Get("metadata"))
	require.NoError(t, err)
	got := map[string]string{}
	for pair := range strings.SplitSeq(whole, "&") {
		key, value, ok := strings.Cut(pair, "=")
		require.True(t, ok, pair)
		key, err = url.QueryUnescape(key)
		require.NoError(t, err)
		value, err = url.QueryUnescape(value)
		require.NoError(t, err)
		got[key] = value
	}
	return got
}

// TestMetadataFilterSurvivesThreeDecodings whatever is in it, and create sends
// the same.
func TestMetadataFilterSurvivesThreeDecodings(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]map[string]string{
		"plain":      {"user": "abc"},
		"two":        {"user": "abc", "app": "prod"},
		"odd":        {"odd": "a&b=c d+e%f/ü"},
		"odd keys":   {"a&b": "1", "a=b": "2", "a+b": "3", "a%b": "4", "a%25b": "5", "ü/": "6", "a b": "7", "": "8"},
		"quotes":     {"q": `"a" 'b' \c`},
		"newlines":   {"n": "a\nb\r\n\tc"},
		"escaped":    {"e": "%2525%41+%2B"},
		"empty":      {"e": ""},
		"100 KiB":    {"big": strings.Repeat(strings.Repeat("a", 92)+"&=+%ü/ \"\n", 1<<10)},
		"other runs": {"emoji": "🦊", "zero": "a\x00b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t, answerJSON(200, "[]"), answerJSON(404, routeMissing), answerJSON(200, "[]"), answerJSON(201, createdBody))
			c := api.client(t)
			_, err := c.ListPage(t.Context(), &e2b.ListOptions{Metadata: m})
			require.NoError(t, err)
			_, err = c.ListPage(t.Context(), &e2b.ListOptions{Metadata: m, States: []e2b.State{e2b.StateRunning}})
			require.NoError(t, err)
			_, err = c.Create(t.Context(), &e2b.CreateOptions{Metadata: m, NoToken: true})
			require.NoError(t, err)
			sent := api.requests()
			require.Equal(t, "/sandboxes", sent[2].Path)
			for _, r := range sent[:3] {
				require.Equal(t, m, serverDecodes(t, r))
			}
			require.Equal(t, m, sentMetadata(t, sent[3]))
		})
	}
}

// TestCreateTokenIsNotShown by Info and List.
func TestCreateTokenIsNotShown(t *testing.T) {
	t.Parallel()
	for metadata, want := range map[string]map[string]string{
		`{"e2b_go_create_token":"x"}`:         nil,
		`{"e2b_go_create_token":"x","a":"1"}`: {"a": "1"},
		`{"a":"1"}`:                           {"a": "1"},
		`{}`:                                  nil,
		`null`:                                nil,
	} {
		item := `{"sandboxID":"` + apiTestID + `","metadata":` + metadata + `}`
		api := newFakeAPI(t, answerJSON(200, item), answerJSON(200, "["+item+"]"))
		c := api.client(t)
		info, err := c.Info(t.Context(), apiTestID)
		require.NoError(t, err)
		require.Equal(t, want, info.Metadata)
		page, err := c.ListPage(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, want, page.Items[0].Metadata)
	}
}

// TestInfoOfCompatibleServers leaves out much, and knows other states.
func TestInfoOfCompatibleServers(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]e2b.SandboxInfo{
		`{"sandboxID":"i1"}`: {ID: "i1"},
		`{"sandboxID":"i1","state":"hibernating","startedAt":null,"endAt":"","new":[{}],"network":null,"lifecycle":null,"domain":null,"alias":null}`: {
			ID: "i1", State: "hibernating",
		},
		`{"sandboxID":"i1","lifecycle":{"autoResume":true,"onTimeout":"hibernate"},"startedAt":"0001-01-01T00:00:00Z"}`: {ID: "i1", AutoResume: true},
	} {
		info, err := newFakeAPI(t, answerJSON(200, body)).client(t).Info(t.Context(), "i1")
		require.NoError(t, err)
		require.Equal(t, want, *info)
		require.True(t, info.StartedAt.IsZero())
		require.True(t, info.EndAt.IsZero(), "never, or not known")
	}
}

// TestOldList asks the old route where the new one is missing, and refuses what
// that cannot say: it would answer something else.
func TestOldList(t *testing.T) {
	t.Parallel()
	running := []e2b.State{e2b.StateRunning}
	for name, opts := range map[string]*e2b.ListOptions{
		"nothing":       nil,
		"paused":        {States: []e2b.State{e2b.StatePaused}},
		"both":          {States: []e2b.State{e2b.StateRunning, e2b.StatePaused}},
		"a template":    {States: running, Template: "base"},
		"a start":       {States: running, StartedAfter: time.Unix(1, 0)},
		"the order":     {States: running, Ascending: true},
		"another page":  {States: running, PageToken: "x"},
		"only metadata": {Metadata: map[string]string{"a": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t, answerJSON(404, routeMissing), answerJSON(404, routeMissing))
			c := api.client(t)
			_, err := c.ListPage(t.Context(), opts)
			requireKinds(t, err, e2b.ErrNotSupported)
			require.Equal(t, []string{"GET /v2/sandboxes"}, api.lines(), "an answer to another question is none")
			ids, err := collect(t, c.List(t.Context(), opts))
			requireKinds(t, err, e2b.ErrNotSupported)
			require.Empty(t, ids)
		})
	}
	api := newFakeAPI(t, answerJSON(404, routeMissing), answerJSON(200, listBody(0, 3)), answerJSON(200, listBody(0, 2)))
	c := api.client(t)
	ids, err := collect(t, c.List(t.Context(), &e2b.ListOptions{States: running, PageSize: 2}))
	require.NoError(t, err)
	require.Len(t, ids, 3)
	_, err = c.ListPage(t.Context(), &e2b.ListOptions{States: running})
	require.NoError(t, err)
	require.Equal(t, []string{"GET /v2/sandboxes", "GET /sandboxes", "GET /sandboxes"}, api.lines())
	_, err = c.ListPage(t.Context(), nil)
	requireKinds(t, err, e2b.ErrNotSupported)
	require.Len(t, api.requests(), 3, "now it is known without asking")
}

// TestListOnNoServer that has a list at all.
func TestListOnNoServer(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, answerText(404, ""), answerText(404, ""))
	_, err := api.client(t).ListPage(t.Context(), &e2b.ListOptions{States: []e2b.State{e2b.StateRunning}})
	requireKinds(t, err, e2b.ErrNotSupported)
	require.Equal(t, 404, requireAPIError(t, err).StatusCode)
	_, ok := errors.AsType[*e2b.APIError](err)
	require.True(t, ok)
}
