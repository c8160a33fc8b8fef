package e2btest_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
)

// newestMetric is what a sandbox does now: the server's clock moves on, so that it is
// measured again.
func newestMetric(t *testing.T, server *e2btest.Server, sbx *e2b.Sandbox) e2b.Metric {
	t.Helper()
	server.Advance(5 * time.Second)
	list, err := sbx.Metrics(t.Context(), nil)
	require.NoError(t, err)
	require.NotEmpty(t, list)
	return list[len(list)-1]
}

// shown waits until the metrics of a sandbox are such.
func shown(t *testing.T, server *e2btest.Server, sbx *e2b.Sandbox, such func(e2b.Metric) bool) e2b.Metric {
	t.Helper()
	var m e2b.Metric
	require.Eventually(t, func() bool {
		m = newestMetric(t, server, sbx)
		return such(m)
	}, time.Minute, time.Millisecond)
	return m
}

// background starts a command that runs until the sandbox is killed.
func background(t *testing.T, sbx *e2b.Sandbox, command string) *e2b.Process {
	t.Helper()
	p, err := sbx.Commands.Start(t.Context(), command, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func TestMetricsAreThoseOfTheProcesses(t *testing.T) {
	server, client := e2btest.New(t, nil)
	create := func() *e2b.Sandbox {
		sbx, err := client.Create(t.Context(), &e2b.CreateOptions{Timeout: 24 * time.Hour, Insecure: true})
		require.NoError(t, err)
		return sbx
	}
	sbx, idle := create(), create()
	const mb = 1_000_000
	first := newestMetric(t, server, sbx)
	require.Less(t, first.MemoryUsedBytes, int64(50*mb))
	require.Less(t, first.DiskUsedBytes, int64(10*mb))

	background(t, sbx, "while :; do :; done")
	shown(t, server, sbx, func(m e2b.Metric) bool { return m.CPUUsedPercent > 1 })
	background(t, sbx, "(head -c 200000000 /dev/zero; exec sleep 1000) | tail -c 200000000")
	shown(t, server, sbx, func(m e2b.Metric) bool { return m.MemoryUsedBytes > 200*mb })
	_, err := sbx.Commands.Run(t.Context(), "head -c 50000000 /dev/zero >big", nil)
	require.NoError(t, err)
	m := shown(t, server, sbx, func(m e2b.Metric) bool { return m.DiskUsedBytes > 50*mb })
	require.Less(t, m.MemoryUsedBytes, int64(300*mb))
	require.Less(t, m.DiskUsedBytes, int64(60*mb))

	var running []string
	for _, p := range server.Sandboxes()[0].Processes {
		running = append(running, p.Command)
	}
	require.Contains(t, running, "sleep 1000")
	require.Empty(t, server.Sandboxes()[1].Processes)

	other := newestMetric(t, server, idle)
	require.Less(t, other.MemoryUsedBytes, int64(50*mb), "of another sandbox")
	require.Less(t, other.DiskUsedBytes, int64(10*mb))

	inside := ownMetrics(t, server, sbx)
	require.Greater(t, inside.MemoryUsed, int64(200*mb))
	require.Greater(t, inside.DiskUsed, int64(50*mb))
	require.Positive(t, inside.CPUUsed)
	require.Equal(t, []int64{m.MemoryTotalBytes, m.DiskTotalBytes, int64(m.CPUCount)}, []int64{inside.MemoryTotal, inside.DiskTotal, inside.CPUs})

	_, err = sbx.Pause(t.Context(), nil)
	require.NoError(t, err)
	found, err := client.MetricsOf(t.Context(), []string{sbx.ID(), idle.ID()})
	require.NoError(t, err)
	require.Equal(t, []string{idle.ID()}, slices.Collect(maps.Keys(found)), "it is paused")
}

type envdMetrics struct {
	CPUs        int64   `json:"cpu_count"`
	CPUUsed     float64 `json:"cpu_used_pct"`
	MemoryTotal int64   `json:"mem_total"`
	MemoryUsed  int64   `json:"mem_used"`
	DiskUsed    int64   `json:"disk_used"`
	DiskTotal   int64   `json:"disk_total"`
}

// ownMetrics are those that the sandbox itself tells.
func ownMetrics(t *testing.T, server *e2btest.Server, sbx *e2b.Sandbox) envdMetrics {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.SandboxURL()+"/metrics", nil)
	require.NoError(t, err)
	req.Header.Set("E2b-Sandbox-Id", sbx.ID())
	req.Header.Set("E2b-Sandbox-Port", "49983")
	resp, err := (&http.Client{Transport: transport}).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	var m envdMetrics
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&m))
	return m
}
