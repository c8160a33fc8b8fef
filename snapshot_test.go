package e2b_test

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

var (
	snapshotOp = controlOp{"snapshot", apiTestID, answerJSON(201, snapshotBody), func(ctx context.Context, c *e2b.Client) error {
		_, err := c.Snapshot(ctx, apiTestID, nil)
		return err
	}}
	snapshotsOp = controlOp{"list snapshots", "", answerJSON(200, "[]"), func(ctx context.Context, c *e2b.Client) error {
		_, err := c.SnapshotsPage(ctx, nil)
		return err
	}}
	deleteSnapshotOp = controlOp{"delete snapshot", "", answerText(204, ""), func(ctx context.Context, c *e2b.Client) error {
		return c.DeleteSnapshot(ctx, "team/name:tag")
	}}
)

const snapshotBody = `{"names":["local-dev-team/rig-snap"],"snapshotID":"local-dev-team/rig-snap:v1"}`

func sendSnapshot(body string) wantRequest {
	return wantRequest{method: http.MethodPost, path: "/sandboxes/" + apiTestID + "/snapshots", body: body}
}

func snapshotting(file string, opts e2b.SnapshotOptions, body string, want any) recordedCall {
	return recordedCall{
		file: file, op: "snapshot", sent: []wantRequest{sendSnapshot(body)}, want: want,
		call: func(ctx context.Context, c *e2b.Client) (any, error) {
			s, err := c.Snapshot(ctx, apiTestID, &opts)
			if err != nil {
				return nil, err
			}
			return *s, nil
		},
	}
}

func listingSnapshots(file string, opts e2b.SnapshotListOptions, want any, query ...string) recordedCall {
	return recordedCall{
		file: file, op: "list snapshots", sent: []wantRequest{sendListTo("/snapshots", query...)}, want: want,
		call: func(ctx context.Context, c *e2b.Client) (any, error) {
			page, err := c.SnapshotsPage(ctx, &opts)
			if err != nil {
				return nil, err
			}
			return *page, nil
		},
	}
}

func deletingSnapshot(file, id, path string, want any) recordedCall {
	return recordedCall{
		file: file, op: "delete snapshot", sent: []wantRequest{{method: http.MethodDelete, path: path}}, want: want,
		call: func(ctx context.Context, c *e2b.Client) (any, error) { return nil, c.DeleteSnapshot(ctx, id) },
	}
}

// namedSnapshot is the one of most recordings.
func namedSnapshot(tag string) e2b.Snapshot {
	return e2b.Snapshot{ID: "local-dev-team/rig-snap:" + tag, Names: []string{"local-dev-team/rig-snap"}}
}

func unnamedSnapshot(id string) e2b.Snapshot {
	return e2b.Snapshot{ID: id + ":default", Names: []string{}}
}

func snapshotsOf(next string, items ...e2b.Snapshot) e2b.Page[e2b.Snapshot] {
	return e2b.Page[e2b.Snapshot]{Items: append([]e2b.Snapshot{}, items...), NextToken: next}
}

const (
	recordedTemplate      = "template000000000001"
	recordedSnapshotToken = "MjAyNi0wMS0wMlQwMzowNDowNS40MTk1OFpfX3RlbXBsYXRlMDAwMDAwMDAwMDAx"
)

// snapshotCalls are the rows about snapshots.
func snapshotCalls() []recordedCall {
	none := e2b.SnapshotOptions{}
	busy := func(state string) wantError {
		return failsWith(409, "Sandbox '"+apiTestID+"' cannot be snapshotted while in '"+state+"' state", e2b.ErrConflict)
	}
	noAccess := func(id string) wantError {
		return failsWith(403, "You don't have access to template '"+id+"'", e2b.ErrForbidden)
	}
	paused := sandboxUnknown
	paused.kinds, paused.state = []error{e2b.ErrSandboxNotRunning}, e2b.StatePaused
	return []recordedCall{
		snapshotting("snapshot-create-unnamed-201", none, `{}`, unnamedSnapshot(recordedTemplate)),
		snapshotting("snapshot-create-named-201", e2b.SnapshotOptions{Name: "rig-snap:v1"}, `{"name":"rig-snap:v1"}`, namedSnapshot("v1")),
		snapshotting("snapshot-create-named-again-201", e2b.SnapshotOptions{Name: "rig-snap:v2"}, `{"name":"rig-snap:v2"}`, namedSnapshot("v2")),
		snapshotting("snapshot-create-namespaced-201", e2b.SnapshotOptions{Name: "local-dev-team/rig-snap"},
			`{"name":"local-dev-team/rig-snap"}`, namedSnapshot("default")),
		snapshotting("snapshot-slow-201", none, `{}`, unnamedSnapshot(recordedTemplate)),
		snapshotting("snapshot-create-foreign-namespace-400", e2b.SnapshotOptions{Name: "other/rig-snap"}, `{"name":"other/rig-snap"}`,
			badRequest("namespace 'other' must match your team 'local-dev-team'")),
		// The SDK always sends a body.
		snapshotting("snapshot-create-no-body", none, `{}`, badSchema("request body has an error: value is required but missing")),
		snapshotting("snapshot-node-busy-503", none, `{}`, failsWith(503,
			"Sandbox '"+apiTestID+"' cannot be snapshotted right now because its node is busy, please retry", e2b.ErrServiceBusy)),
		snapshotting("snapshot-node-fails-500", none, `{}`, failsWith(500, "Error creating snapshot template")),
		snapshotting("killing-snapshot-409", none, `{}`, busy("killing")),
		snapshotting("pausing-snapshot-409", none, `{}`, busy("pausing")),
		snapshotting("snapshotting-snapshot-409", none, `{}`, busy("snapshotting")),
		snapshotting("snapshot-create-unknown-404", none, `{}`, sandboxUnknown).
			answeredBy("snapshot-create-unknown-404", "info-killed-404").sending(sendSnapshot(`{}`), sendInfo()),
		snapshotting("snapshot-paused-404", none, `{}`, paused).
			answeredBy("snapshot-paused-404", "info-paused").sending(sendSnapshot(`{}`), sendInfo()),

		listingSnapshots("snapshot-list-by-sandbox", e2b.SnapshotListOptions{SandboxID: apiTestID + "-6532622b"},
			snapshotsOf("", namedSnapshot("default"), unnamedSnapshot(recordedTemplate)), "sandboxID", apiTestID),
		listingSnapshots("snapshot-list-by-name", e2b.SnapshotListOptions{Name: "rig-snap"}, snapshotsOf("", namedSnapshot("default")), "name", "rig-snap"),
		listingSnapshots("snapshot-list-by-name-tag", e2b.SnapshotListOptions{Name: "rig-snap:v1"}, snapshotsOf("", namedSnapshot("v1")), "name", "rig-snap:v1"),
		listingSnapshots("snapshot-list-by-name-unknown", e2b.SnapshotListOptions{Name: "never-made"}, snapshotsOf(""), "name", "never-made"),
		listingSnapshots("snapshot-list-page-1", e2b.SnapshotListOptions{PageSize: 1}, snapshotsOf(recordedSnapshotToken, namedSnapshot("default")), "limit", "1"),
		listingSnapshots("snapshot-list-page-2", e2b.SnapshotListOptions{PageSize: 1, PageToken: recordedSnapshotToken},
			snapshotsOf("", unnamedSnapshot("template000000000002")), "limit", "1", "nextToken", recordedSnapshotToken),
		listingSnapshots("snapshot-list-after-delete", e2b.SnapshotListOptions{}, snapshotsOf("")),
		listingSnapshots("snapshot-list-bad-token-400", e2b.SnapshotListOptions{PageToken: "garbage"}, badRequest("Invalid next token"), "nextToken", "garbage"),

		deletingSnapshot("snapshot-delete-204", recordedTemplate+":default", "/templates/"+recordedTemplate+"%3Adefault", nil),
		deletingSnapshot("snapshot-delete-named-204", "local-dev-team/rig-snap:v1", "/templates/local-dev-team%2Frig-snap%3Av1", nil),
		deletingSnapshot("snapshot-delete-foreign-403", "local-dev-team/rig-snap", "/templates/local-dev-team%2Frig-snap", noAccess("local-dev-team/rig-snap")),
		deletingSnapshot("snapshot-delete-foreign-id-403", "rki5dems9wqfm4r03t7g", "/templates/rki5dems9wqfm4r03t7g", noAccess("rki5dems9wqfm4r03t7g")),
		deletingSnapshot("snapshot-delete-in-use-paused-400", recordedTemplate+":default", "/templates/"+recordedTemplate+"%3Adefault",
			failsWith(400, "cannot delete template '"+recordedTemplate+"' because there are paused sandboxes using it", e2b.ErrConflict)),
	}
}

// TestSnapshotFilesystemOnly is the one case in which a mode is sent.
func TestSnapshotFilesystemOnly(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, answerJSON(201, snapshotBody))
	s, err := handleOf(t, api).Snapshot(t.Context(), &e2b.SnapshotOptions{Name: "rig-snap:v1", FilesystemOnly: true})
	require.NoError(t, err)
	require.Equal(t, namedSnapshot("v1"), *s)
	require.Equal(t, []string{"POST /sandboxes/" + apiTestID + "/snapshots"}, api.lines())
	require.JSONEq(t, `{"name":"rig-snap:v1","mode":"filesystem"}`, api.requests()[0].Body)
}

// handleOf is a handle that took no request to make.
func handleOf(t *testing.T, api *fakeAPI) *e2b.Sandbox {
	t.Helper()
	s, err := api.client(t, noRetries).FromRecord(e2b.Record{SandboxID: apiTestID, EnvdVersion: "0.6.13", Timeout: 7 * time.Minute})
	require.NoError(t, err)
	return s
}

// TestUserJ5SnapshotOrForkNotFound tells by one Info what a 404 means.
func TestUserJ5SnapshotOrForkNotFound(t *testing.T) {
	t.Parallel()
	const words = `{"detail":"Not Found"}` // of the route, or of the sandbox
	paused, running, gone := answerJSON(200, infoBody(e2b.StatePaused)), answerJSON(200, infoBody(e2b.StateRunning)), answerJSON(404, sandboxMissing)
	for _, row := range []struct {
		name   string
		status int
		body   string
		info   apiAnswer // nil: not asked
		kind   error
		state  e2b.State
	}{
		{"a paused sandbox", 404, sandboxMissing, paused, e2b.ErrSandboxNotRunning, e2b.StatePaused},
		{"an unknown sandbox", 404, sandboxMissing, gone, e2b.ErrSandboxNotFound, ""},
		{"one that is there again", 404, sandboxMissing, running, e2b.ErrSandboxNotFound, ""},
		{"nobody says", 404, sandboxMissing, answerJSON(500, `{}`), e2b.ErrSandboxNotFound, ""},
		{"another state", 404, sandboxMissing, answerJSON(200, infoBody("hibernating")), e2b.ErrSandboxNotFound, ""},
		{"words that fit both, of a running sandbox", 404, words, running, e2b.ErrNotSupported, ""},
		{"words that fit both, of a paused sandbox", 404, words, paused, e2b.ErrSandboxNotRunning, e2b.StatePaused},
		{"words that fit both, of an unknown sandbox", 404, words, gone, e2b.ErrSandboxNotFound, ""},
		{"no route", 404, routeMissing, nil, e2b.ErrNotSupported, ""},
		{"no such method", 404, `{"code":404,"message":"validation error: method not allowed"}`, nil, e2b.ErrNotSupported, ""},
		{"404 in text", 404, "404 page not found", nil, e2b.ErrNotSupported, ""},
		{"405", 405, "", nil, e2b.ErrNotSupported, ""},
		{"501", 501, `{"message":"not implemented"}`, nil, e2b.ErrNotSupported, ""},
	} {
		for _, op := range []controlOp{snapshotOp, forkOp} {
			t.Run(row.name+"/"+op.name, func(t *testing.T) {
				t.Parallel()
				api := newFakeAPI(t, answerText(row.status, row.body), row.info)
				err := op.call(t.Context(), api.client(t, noRetries))
				requireKinds(t, err, row.kind)
				e := requireAPIError(t, err)
				require.Equal(t, op.name, e.Op)
				require.Equal(t, apiTestID, e.SandboxID)
				require.Equal(t, row.status, e.StatusCode)
				require.Equal(t, row.state, e.State)
				lines := []string{"POST /sandboxes/" + apiTestID + "/" + map[string]string{"snapshot": "snapshots", "fork": "fork"}[op.name]}
				if row.info != nil {
					lines = append(lines, "GET /sandboxes/"+apiTestID)
				}
				require.Equal(t, lines, api.lines(), "nothing is made up for a route that is missing")
			})
		}
	}
}

// TestUserJ7SnapshotOrForkOutcomeUnknown has each way in which one may have
// worked without our learning of it, and those in which it has not.
func TestUserJ7SnapshotOrForkOutcomeUnknown(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		answer  apiAnswer
		unknown bool
		kinds   []error
	}{
		{name: "connection lost", answer: answerError(errConnectionLost), unknown: true},
		{name: "answer cut off", answer: answerCut(201, `[{"sn`), unknown: true},
		{name: "no answer in time", answer: answerNever, unknown: true, kinds: []error{e2b.ErrRequestTimeout}},
		{name: "408", answer: answerText(408, ""), unknown: true},
		{name: "502", answer: answerText(502, "Bad Gateway"), unknown: true},
		{name: "504", answer: answerText(504, "upstream request timeout"), unknown: true},
		{name: "201 without JSON", answer: answerText(201, "<html>"), unknown: true},
		{name: "201 with half of it", answer: answerJSON(201, `[{`), unknown: true},
		{name: "201 with null", answer: answerJSON(201, `null`), unknown: true},
		{name: "201 with an empty object", answer: answerJSON(201, `{}`), unknown: true},
		{name: "201 with nothing", answer: answerText(201, ``), unknown: true},
		{name: "504 with a code", answer: answerJSON(504, `{"error_code":"sandbox_placement_timeout"}`)},
		{name: "no connection", answer: answerError(errNoConnection)},
		{name: "500", answer: answerText(500, "")},
		{name: "503", answer: answerText(503, ""), kinds: []error{e2b.ErrServiceBusy}},
		{name: "400", answer: answerText(400, ""), kinds: []error{e2b.ErrInvalidArgument}},
		{name: "409", answer: answerText(409, ""), kinds: []error{e2b.ErrConflict}},
	} {
		for op, made := range map[*controlOp]string{&snapshotOp: "a snapshot may have been created", &forkOp: "sandboxes may have been created"} {
			t.Run(row.name+"/"+op.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					api := newFakeAPI(t, row.answer)
					err := op.call(t.Context(), api.client(t, noRetries))
					kinds := row.kinds
					if row.unknown {
						kinds = append(kinds, e2b.ErrOutcomeUnknown)
					}
					requireKinds(t, err, kinds...)
					require.Len(t, api.requests(), 1)
					u, is := errors.AsType[*e2b.OutcomeUnknownError](err)
					require.Equal(t, row.unknown, is)
					if is {
						require.Empty(t, u.CreateToken)
						require.ErrorContains(t, err, made)
					}
				})
			})
		}
	}
}

// TestSnapshotOutcomeStaysUnknown after an attempt whose answer was lost: what a
// later one says of the sandbox is not looked into.
func TestSnapshotOutcomeStaysUnknown(t *testing.T) {
	t.Parallel()
	for _, op := range []controlOp{snapshotOp, forkOp} {
		synctest.Test(t, func(t *testing.T) {
			api := newFakeAPI(t, answerText(502, "", "Should-Retry", "true"), answerJSON(404, sandboxMissing))
			err := op.call(t.Context(), api.client(t))
			requireKinds(t, err, e2b.ErrOutcomeUnknown, e2b.ErrSandboxNotFound)
			require.Len(t, api.requests(), 2)
		})
	}
}

// TestUserJ7SnapshotStallsAfterCommit is found by its name afterwards.
func TestUserJ7SnapshotStallsAfterCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t, answerNever, answerJSON(200, "["+snapshotBody+"]"))
		c := api.client(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Snapshot(ctx, apiTestID, &e2b.SnapshotOptions{Name: "rig-snap:v1"})
		requireKinds(t, err, e2b.ErrOutcomeUnknown, context.DeadlineExceeded)
		found, err := collectSnapshots(t, c.Snapshots(t.Context(), &e2b.SnapshotListOptions{Name: "rig-snap:v1"}))
		require.NoError(t, err)
		require.Equal(t, []e2b.Snapshot{namedSnapshot("v1")}, found)
		require.Equal(t, []string{"POST /sandboxes/" + apiTestID + "/snapshots", "GET /snapshots"}, api.lines())
	})
}

// collectSnapshots ranges over a list to its end.
func collectSnapshots(t *testing.T, seq iter.Seq2[e2b.Snapshot, error]) (all []e2b.Snapshot, err error) {
	t.Helper()
	for s, e := range seq {
		require.NoError(t, err, "a pair after the error")
		if err = e; e != nil {
			require.Zero(t, s)
			continue
		}
		all = append(all, s)
	}
	return all, err
}

// TestSnapshotsOverPages yields each once, from the page that is asked for, and
// starts over.
func TestSnapshotsOverPages(t *testing.T) {
	t.Parallel()
	page := func(next string, ids ...string) apiAnswer {
		var items []string
		for _, id := range ids {
			items = append(items, `{"snapshotID":"`+id+`:default","names":[]}`)
		}
		var header []string
		if next != "" {
			header = []string{"X-Next-Token", next}
		}
		return answerJSON(200, "["+strings.Join(items, ",")+"]", header...)
	}
	api := newFakeAPI(t, page("b==", "s1", "s2"), page("c", "s2", "s3"), page("", "s4"), page("", "s5"))
	opts := &e2b.SnapshotListOptions{Name: "n", PageSize: 2, PageToken: "a"}
	all := handleOf(t, api).Snapshots(t.Context(), opts)
	opts.Name = "changed"
	require.Empty(t, api.requests(), "a list asks when it is ranged over")
	got, err := collectSnapshots(t, all)
	require.NoError(t, err)
	require.Equal(t, []e2b.Snapshot{unnamedSnapshot("s1"), unnamedSnapshot("s2"), unnamedSnapshot("s3"), unnamedSnapshot("s4")}, got)
	got, err = collectSnapshots(t, all)
	require.NoError(t, err)
	require.Equal(t, []e2b.Snapshot{unnamedSnapshot("s5")}, got)
	for i, token := range []string{"a", "b==", "c", "a"} {
		require.Equal(t, url.Values{"sandboxID": {apiTestID}, "name": {"n"}, "limit": {"2"}, "nextToken": {token}},
			decodedQuery(t, api.requests()[i].Query))
	}

	// An error is the last pair, and so is a circle.
	got, err = collectSnapshots(t, newFakeAPI(t, page("a", "s1"), answerText(401, "")).client(t).Snapshots(t.Context(), nil))
	requireKinds(t, err, e2b.ErrUnauthenticated)
	require.Len(t, got, 1)
	got, err = collectSnapshots(t, newFakeAPI(t, page("a", "s1"), page("a", "s2")).client(t).Snapshots(t.Context(), nil))
	require.ErrorContains(t, err, "repeats a page")
	require.Len(t, got, 2)
	// Not an array is no empty list.
	for _, body := range []string{`null`, `{}`, `[1]`, `[{"snapshotID":7}]`} {
		_, err = newFakeAPI(t, answerJSON(200, body)).client(t).SnapshotsPage(t.Context(), nil)
		requireKinds(t, err)
		require.Equal(t, 200, requireAPIError(t, err).StatusCode, body)
	}
	// A server without the route.
	_, err = newFakeAPI(t, answerJSON(404, routeMissing)).client(t).SnapshotsPage(t.Context(), nil)
	requireKinds(t, err, e2b.ErrNotSupported)
}

// TestDeleteSnapshotErrors has a row for each.
func TestDeleteSnapshotErrors(t *testing.T) {
	t.Parallel()
	missing := answerJSON(404, `{"code":404,"message":"template 'team/name' not found"}`)
	for _, row := range []struct {
		name   string
		answer apiAnswer
		kind   error
	}{
		{"unknown, or deleted before", missing, e2b.ErrNotFound},
		{"used by a running one", answerJSON(400, `{"message":"cannot delete template 'x' because there are running sandboxes using it"}`), e2b.ErrConflict},
		{"used by a paused one", answerJSON(400, `{"message":"cannot delete template 'x' because there are paused sandboxes using it"}`), e2b.ErrConflict},
		{"no ID", answerJSON(400, `{"message":"Invalid template ID"}`), e2b.ErrInvalidArgument},
		{"no route", answerJSON(404, routeMissing), e2b.ErrNotSupported},
		{"405", answerText(405, ""), e2b.ErrNotSupported},
	} {
		api := newFakeAPI(t, row.answer)
		requireKinds(t, api.client(t, noRetries).DeleteSnapshot(t.Context(), "team/name"), row.kind)
		require.Equal(t, []string{"DELETE /templates/team%2Fname"}, api.lines(), row.name)
	}
	// A repeat that finds nothing any more did it itself; after an attempt that
	// certainly did nothing it did not.
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, newFakeAPI(t, answerError(errConnectionLost), missing).client(t).DeleteSnapshot(t.Context(), "name"))
		requireKinds(t, newFakeAPI(t, answerText(503, ""), missing).client(t).DeleteSnapshot(t.Context(), "name"), e2b.ErrNotFound)
		requireKinds(t, newFakeAPI(t, answerText(502, ""), answerJSON(404, routeMissing)).client(t).DeleteSnapshot(t.Context(), "name"), e2b.ErrNotSupported)
	})
}

// TestSnapshotArguments are checked before anything is sent.
func TestSnapshotArguments(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	c := api.client(t)
	for _, id := range []string{
		"", ".", "..", "../sandboxes/i1", "a/../b", "a/..", "a/...", "/a", "a/", "a//b", "a/b/c", "a:", ":a", "a:b:c", "a:b/c", "a:..", "a b", "a\n", "a%2fb", "a?b", "ü",
		strings.Repeat("a", 256),
	} {
		err := c.DeleteSnapshot(t.Context(), id)
		requireRefused(t, api, err)
		require.Contains(t, err.Error(), "snapshot ID", "%q", id)
	}
	for arg, opts := range map[string]*e2b.SnapshotListOptions{
		"PageSize must": {PageSize: 101}, "PageSize": {PageSize: -1}, "sandbox ID": {SandboxID: "a/b"}, "Name": {Name: "\xff"},
	} {
		_, err := c.SnapshotsPage(t.Context(), opts)
		requireRefused(t, api, err)
		require.ErrorContains(t, err, arg)
	}
	_, err := c.Snapshot(t.Context(), apiTestID, &e2b.SnapshotOptions{Name: "\xff"})
	requireRefused(t, api, err)
	require.ErrorContains(t, err, "Name")
}

// TestGoodSnapshotIDs are one segment of the path.
func TestGoodSnapshotIDs(t *testing.T) {
	t.Parallel()
	for id, path := range map[string]string{
		"a": "a", "A_b-c.d:v1.2": "A_b-c.d%3Av1.2", "t/n": "t%2Fn", "t/n:x": "t%2Fn%3Ax", strings.Repeat("a", 255): strings.Repeat("a", 255),
	} {
		api := newFakeAPI(t, answerText(204, ""))
		require.NoError(t, api.client(t).DeleteSnapshot(t.Context(), id))
		require.Equal(t, []string{"DELETE /templates/" + path}, api.lines())
	}
}
