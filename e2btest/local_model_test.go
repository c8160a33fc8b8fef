//go:build linux || darwin

package e2btest

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/agent/proctab"
)

// throughSDK calls as programs do, and leaves processes in its sandboxes.
type throughSDK struct{ client *e2b.Client }

func (s throughSDK) retries() bool { return true }

func (s throughSDK) create(ctx context.Context, autoPause bool) reply {
	opts := &e2b.CreateOptions{OnTimeout: e2b.TimeoutKill, Timeout: time.Hour}
	if autoPause {
		opts.OnTimeout = e2b.TimeoutPause
	}
	sbx, err := s.client.Create(ctx, opts)
	if err != nil {
		return replyTo(err, "")
	}
	if p, err := sbx.Commands.Start(ctx, "setsid sleep 10000 & sleep 10000", nil); err == nil { // it may be gone by now
		_ = p.Close()
	}
	return reply{status: success, made: []string{sbx.ID()}}
}

func (s throughSDK) call(ctx context.Context, name, id string) reply {
	call, ok := sdkCalls[name]
	if !ok {
		panic("the SDK has no call for " + name)
	}
	return call(ctx, s.client, id)
}

var sdkCalls = map[string]func(ctx context.Context, c *e2b.Client, id string) reply{
	"connect": func(ctx context.Context, c *e2b.Client, id string) reply {
		_, err := c.Connect(ctx, id, &e2b.ConnectOptions{Timeout: time.Hour})
		return replyTo(err, "")
	},
	"pause": func(ctx context.Context, c *e2b.Client, id string) reply {
		paused, err := c.Pause(ctx, id, nil)
		if err == nil && !paused {
			return reply{status: 409, text: "is already paused"}
		}
		return replyTo(err, "")
	},
	"kill": func(ctx context.Context, c *e2b.Client, id string) reply {
		killed, err := c.Kill(ctx, id)
		if err == nil && !killed {
			return reply{status: 404, text: notFound}
		}
		return replyTo(err, "")
	},
	"timeout": func(ctx context.Context, c *e2b.Client, id string) reply {
		return replyTo(c.SetTimeout(ctx, id, time.Hour), "")
	},
	"refreshes": func(ctx context.Context, c *e2b.Client, id string) reply {
		return replyTo(c.Refresh(ctx, id, time.Hour), "")
	},
	"snapshot": func(ctx context.Context, c *e2b.Client, id string) reply {
		_, err := c.Snapshot(ctx, id, &e2b.SnapshotOptions{Name: "a"})
		return replyTo(err, "")
	},
	"fork": func(ctx context.Context, c *e2b.Client, id string) reply {
		forks, err := c.Fork(ctx, id, &e2b.ForkOptions{Timeout: time.Hour})
		r := replyTo(err, "")
		for _, f := range forks {
			if f.Err == nil {
				r.made = append(r.made, f.Sandbox.ID())
			}
		}
		return r
	},
	"info": func(ctx context.Context, c *e2b.Client, id string) reply {
		info, err := c.Info(ctx, id)
		if err != nil {
			return replyTo(err, "")
		}
		return reply{status: success, text: string(info.State)}
	},
	"list running": sdkList(e2b.StateRunning),
	"list paused":  sdkList(e2b.StatePaused),
}

func sdkList(state e2b.State) func(ctx context.Context, c *e2b.Client, id string) reply {
	return func(ctx context.Context, c *e2b.Client, id string) reply {
		page, err := c.ListPage(ctx, &e2b.ListOptions{States: []e2b.State{state}})
		if err != nil || page.NextToken != "" {
			return reply{lost: true}
		}
		if slices.ContainsFunc(page.Items, func(info e2b.SandboxInfo) bool { return info.ID == id }) {
			return reply{status: success, text: "listed"}
		}
		return reply{status: success, text: "missing"}
	}
}

// replyTo says what the server answered where the SDK returned err.
func replyTo(err error, text string) reply {
	var refused *e2b.APIError
	switch {
	case err == nil:
		return reply{status: success, text: text}
	case errors.As(err, &refused) && strings.HasPrefix(refused.Message, "{"): // it broke off
		return reply{lost: true}
	case errors.As(err, &refused) && (refused.StatusCode == http.StatusNotFound || refused.StatusCode == http.StatusConflict):
		return reply{status: refused.StatusCode, text: refused.Message}
	default:
		return reply{lost: true}
	}
}

// The same on processes and files, of which nothing is left in the end.
func TestModelOfLocalSandboxes(t *testing.T) {
	const steps = 200
	goroutines := goleak.IgnoreCurrent()
	dir := t.TempDir()
	server, err := NewServer(&Options{Dir: dir, MaxSandboxes: 1000})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	client, err := e2b.NewClient(server.ClientOptions())
	require.NoError(t, err)
	names := slices.Collect(maps.Keys(sdkCalls))
	c := &crowd{server: server, caller: throughSDK{client}, steps: steps / modelClients, names: names}
	seed := rand.Uint64()
	t.Log("seed", seed)
	require.NoError(t, c.run(t.Context(), modelClients, seed))
	require.NotEmpty(t, children(t), "nothing that could be left")
	c.settle(t, client)
	require.Empty(t, children(t), "processes of killed sandboxes")
	client.CloseIdleConnections()
	require.NoError(t, server.Close())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	goleak.VerifyNone(t, goroutines)
}

// children lists the processes that this one has below it.
func children(t *testing.T) []proctab.Process {
	t.Helper()
	table, err := proctab.List()
	require.NoError(t, err)
	return proctab.Below(table, os.Getpid(), nil)
}
