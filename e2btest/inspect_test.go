package e2btest

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSandboxesTellWhatTheyCost(t *testing.T) {
	s, _ := inMemory(t, Options{})
	c := newClient(t, false)
	require.Empty(t, s.Sandboxes())
	status, body := s.send(t, c, "POST", s.APIURL()+"/sandboxes", `{"templateID":"base","timeout":3600,"metadata":{"a":"b"}}`)
	require.Equal(t, 201, status, body)
	kept := s.create(t, c)
	s.Advance(2 * time.Hour)
	list := s.Sandboxes()
	require.Len(t, list, 2)
	require.Equal(t, "gone", list[0].State)
	require.Equal(t, "gone", list[1].State)
	require.Equal(t, kept, list[1].ID)
	require.Equal(t, time.Hour, list[0].Billed.Round(time.Minute))
	require.Equal(t, list[0].Billed, list[0].EndAt.Sub(list[0].CreatedAt))
	require.Equal(t, list[0].CreatedAt, list[0].StartedAt)

	list[0].Billed = time.Hour // of 2 processors and half a GiB
	require.InDelta(t, 3600*(2*3+0.5*5), list[0].Cost(3, 5), 1e-9)
	require.Zero(t, (&SandboxStatus{CPUCount: 2, MemoryMiB: 512}).Cost(3, 5))

	id := s.create(t, c)
	list = s.Sandboxes()
	require.Equal(t, []any{id, "running", 2, 512}, []any{list[2].ID, list[2].State, list[2].CPUCount, list[2].MemoryMiB})
	require.NotEmpty(t, list[2].Template)
	require.Equal(t, []Process{{PID: 2, Command: "sleep " + id}}, list[2].Processes)
	require.Nil(t, list[0].Processes, "it is gone")
	require.WithinDuration(t, list[2].StartedAt.Add(time.Minute), list[2].EndAt, 0)
}

func TestSandboxesTellWhatIsOpen(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		s, m := inMemory(t, Options{})
		c := newClient(t, http2)
		id := s.create(t, c)
		release := make(chan struct{})
		m.Sandbox(id).Serve(8080, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-release
		}))
		require.Zero(t, s.Sandboxes()[0].Open)
		for range 2 {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.SandboxURL(), nil)
			require.NoError(t, err)
			req.Header.Set("E2b-Sandbox-Id", id)
			req.Header.Set("E2b-Sandbox-Port", "8080")
			resp, err := c.Do(req)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, resp.Body.Close()) })
		}
		require.Equal(t, 2, s.Sandboxes()[0].Open)
		close(release)
		require.Eventually(t, func() bool { return s.Sandboxes()[0].Open == 0 }, 20*time.Second, time.Millisecond)
	}
}
