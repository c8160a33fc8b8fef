package e2b_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
)

// TestSnapshotOnTheEmulator makes two sandboxes from one and sees that each goes
// its own way.
func TestSnapshotOnTheEmulator(t *testing.T) {
	t.Parallel()
	_, client, sbx := newSandbox(t, &e2b.CreateOptions{Env: map[string]string{"COLOUR": "blue"}})
	run(t, sbx, "mkdir -p data; echo 1 >data/n; ln -s data/n link; printf '#!/bin/sh\\necho $COLOUR' >tool; chmod 750 tool")
	proc, err := sbx.Commands.Start(t.Context(), "while read line; do echo got $line; done", &e2b.RunOptions{KeepStdin: true})
	require.NoError(t, err)
	snap, err := sbx.Snapshot(t.Context(), &e2b.SnapshotOptions{Name: "ready:v1"})
	require.NoError(t, err)
	require.Equal(t, e2b.Snapshot{ID: "local/ready:v1", Names: []string{"local/ready"}}, *snap)

	// The stream was not cut, and the sandbox goes on.
	_, err = proc.Write([]byte("on\n"))
	require.NoError(t, err)
	require.NoError(t, proc.CloseStdin())
	res, err := proc.Wait(t.Context())
	require.NoError(t, err)
	require.Empty(t, res.Stdout)
	run(t, sbx, "echo changed >data/n")

	var made []*e2b.Sandbox
	for i, ref := range []string{snap.ID, "ready:v1"} {
		s, err := client.Create(t.Context(), &e2b.CreateOptions{Template: ref})
		require.NoError(t, err)
		require.NotEqual(t, sbx.ID(), s.ID())
		require.Equal(t, "1\nblue\n", run(t, s, "cat link; ./tool"))
		require.Equal(t, "2", runCode(t, s, "1+1"), "it has what its template has")
		list, err := s.Commands.List(t.Context())
		require.NoError(t, err)
		require.Empty(t, list, "processes are not carried")
		run(t, s, fmt.Sprintf("echo own %d >data/n", i))
		made = append(made, s)
	}
	require.Equal(t, "own 0\n", run(t, made[0], "cat data/n"))
	require.Equal(t, "own 1\n", run(t, made[1], "cat data/n"))
	require.Equal(t, "changed\n", run(t, sbx, "cat data/n"))

	found, err := collectSnapshots(t, sbx.Snapshots(t.Context(), nil))
	require.NoError(t, err)
	require.Equal(t, []e2b.Snapshot{*snap}, found)
	for _, s := range made {
		require.ErrorIs(t, client.DeleteSnapshot(t.Context(), snap.ID), e2b.ErrConflict)
		_, err = s.Kill(t.Context())
		require.NoError(t, err)
	}
	require.NoError(t, client.DeleteSnapshot(t.Context(), snap.ID))
	require.ErrorIs(t, client.DeleteSnapshot(t.Context(), snap.ID), e2b.ErrNotFound)
	_, err = client.Create(t.Context(), &e2b.CreateOptions{Template: snap.ID})
	require.ErrorIs(t, err, e2b.ErrNotFound)

	_, err = sbx.Pause(t.Context(), nil)
	require.NoError(t, err)
	_, err = sbx.Snapshot(t.Context(), nil)
	requireKinds(t, err, e2b.ErrSandboxNotRunning)
	require.Equal(t, e2b.StatePaused, requireAPIError(t, err).State)
	_, err = sbx.Fork(t.Context(), nil)
	requireKinds(t, err, e2b.ErrSandboxNotRunning)
	require.Equal(t, e2b.StatePaused, requireAPIError(t, err).State)
	_, err = sbx.Kill(t.Context())
	require.NoError(t, err)
	_, err = sbx.Snapshot(t.Context(), nil)
	requireKinds(t, err, e2b.ErrSandboxNotFound)
}

// TestSnapshotsPagesOnTheEmulator lists more than a page.
func TestSnapshotsPagesOnTheEmulator(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	var made []string
	for i := range 5 {
		s, err := sbx.Snapshot(t.Context(), &e2b.SnapshotOptions{Name: fmt.Sprintf("s%d", i), FilesystemOnly: i == 0})
		require.NoError(t, err)
		made = append([]string{s.ID}, made...)
	}
	found, err := collectSnapshots(t, sbx.Snapshots(t.Context(), &e2b.SnapshotListOptions{PageSize: 2}))
	require.NoError(t, err)
	var ids []string
	for _, s := range found {
		ids = append(ids, s.ID)
	}
	require.Equal(t, made, ids, "the newest first")
}

func TestForkOnTheEmulator(t *testing.T) {
	t.Parallel()
	_, client, sbx := newSandbox(t, &e2b.CreateOptions{Metadata: map[string]string{"a": "1"}, Env: map[string]string{"COLOUR": "blue"}})
	run(t, sbx, "echo 1 >n")
	before, err := sbx.Info(t.Context())
	require.NoError(t, err)
	results, err := sbx.Fork(t.Context(), &e2b.ForkOptions{Count: 2, Timeout: time.Minute})
	require.NoError(t, err)
	require.Len(t, results, 2)
	for i, r := range results {
		require.NoError(t, r.Err)
		require.Equal(t, "1 blue\n", run(t, r.Sandbox, "echo $(cat n) $COLOUR"))
		require.Equal(t, "2", runCode(t, r.Sandbox, "1+1"))
		run(t, r.Sandbox, fmt.Sprintf("echo fork %d >n", i))
		info, err := r.Sandbox.Info(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]string{"a": "1"}, info.Metadata)
		require.Equal(t, time.Minute, info.EndAt.Sub(info.StartedAt))
		require.Equal(t, before.TemplateID, info.TemplateID)
		require.NotEqual(t, sbx.Record().EnvdAccessToken.Reveal(), r.Sandbox.Record().EnvdAccessToken.Reveal())
	}
	require.Equal(t, "fork 0\n", run(t, results[0].Sandbox, "cat n"))
	require.Equal(t, "fork 1\n", run(t, results[1].Sandbox, "cat n"))
	require.Equal(t, "1\n", run(t, sbx, "cat n"))
	after, err := sbx.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, before.EndAt, after.EndAt)
	found, err := collectSnapshots(t, client.Snapshots(t.Context(), nil))
	require.NoError(t, err)
	require.Empty(t, found, "a fork leaves no snapshot")
}

// TestForkQuotaOnTheEmulator lets one of two forks find no place.
func TestForkQuotaOnTheEmulator(t *testing.T) {
	t.Parallel()
	_, client := e2btest.New(t, &e2btest.Options{MaxSandboxes: 3})
	sbx, err := client.Create(t.Context(), nil)
	require.NoError(t, err)
	_, err = client.Create(t.Context(), nil)
	require.NoError(t, err)
	_, err = sbx.Fork(t.Context(), &e2b.ForkOptions{Count: 3})
	requireKinds(t, err, e2b.ErrInvalidArgument)
	require.Contains(t, err.Error(), "(3)")
	results, err := sbx.Fork(t.Context(), &e2b.ForkOptions{Count: 2})
	require.NoError(t, err)
	require.Len(t, results, 2)
	good, bad := results[0], results[1]
	if good.Err != nil {
		good, bad = bad, good
	}
	require.NoError(t, good.Err)
	require.Equal(t, "ok\n", run(t, good.Sandbox, "echo ok"))
	require.Nil(t, bad.Sandbox)
	requireKinds(t, bad.Err, e2b.ErrQuotaExceeded, e2b.ErrRateLimited)
	require.Equal(t, 429, requireAPIError(t, bad.Err).StatusCode)
}

// A lossyTransport lets the answers to some requests get lost on the way.
type lossyTransport struct {
	*http.Transport

	to string
}

func (l lossyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.Transport.RoundTrip(r)
	if err == nil && strings.HasSuffix(r.URL.Path, l.to) {
		return nil, errors.Join(errConnectionLost, resp.Body.Close())
	}
	return resp, err
}

// TestUserJ7LostAnswersOnTheEmulator finds what was made.
func TestUserJ7LostAnswersOnTheEmulator(t *testing.T) {
	t.Parallel()
	server, client := e2btest.New(t, nil)
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	lossy := func(to string) *e2b.Client {
		opts := server.ClientOptions()
		opts.Transport = lossyTransport{transport, to}
		c, err := e2b.NewClient(opts)
		require.NoError(t, err)
		return c
	}
	sbx, err := client.Create(t.Context(), &e2b.CreateOptions{Metadata: map[string]string{"task": "7"}})
	require.NoError(t, err)
	_, err = lossy("/snapshots").Snapshot(t.Context(), sbx.ID(), &e2b.SnapshotOptions{Name: "ready"})
	requireKinds(t, err, e2b.ErrOutcomeUnknown)
	found, err := collectSnapshots(t, client.Snapshots(t.Context(), &e2b.SnapshotListOptions{Name: "ready"}))
	require.NoError(t, err)
	require.Len(t, found, 1)

	_, err = lossy("/fork").Fork(t.Context(), sbx.ID(), &e2b.ForkOptions{Count: 2})
	requireKinds(t, err, e2b.ErrOutcomeUnknown)
	ids, err := collect(t, client.List(t.Context(), &e2b.ListOptions{Metadata: map[string]string{"task": "7"}}))
	require.NoError(t, err)
	require.Len(t, ids, 3)
}

// TestForkEndsWithCtx although the emulator would go on.
func TestForkEndsWithCtx(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := sbx.Fork(ctx, nil)
	requireKinds(t, err, context.Canceled)
	_, err = sbx.Snapshot(ctx, nil)
	requireKinds(t, err, context.Canceled)
	require.Equal(t, "still there", strings.TrimSpace(run(t, sbx, "echo still there")))
}
