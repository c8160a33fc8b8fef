//go:build linux || darwin

package box

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/agent"
)

// A lateContext ends when somebody has seen that it has not.
type lateContext struct {
	context.Context //nolint:containedctx // it is one
	end             func()
}

func (c lateContext) Err() error {
	err := c.Context.Err()
	c.end()
	return err
}

// After the end of its context an exchange cuts the pipes. One that has succeeded must
// have left them as they were.
func TestExchangeAtTheEndOfItsContext(t *testing.T) {
	for range 100 {
		requests, control, err := os.Pipe()
		require.NoError(t, err)
		replies, out, err := os.Pipe()
		require.NoError(t, err)
		served := make(chan struct{})
		go func() {
			defer close(served)
			defer out.Close()
			d, e := json.NewDecoder(requests), json.NewEncoder(out)
			for {
				var r agent.Request
				if d.Decode(&r) != nil || e.Encode(agent.Reply{}) != nil {
					return
				}
			}
		}()
		p := &process{control: control, replies: replies, decoder: json.NewDecoder(replies)}
		ctx, cancel := context.WithCancel(t.Context())
		_, err = p.exchange(lateContext{ctx, cancel}, agent.Request{Op: agent.Usage})
		for range 20 {
			if err != nil {
				break
			}
			_, err = p.request(t.Context(), agent.Usage)
			require.NoError(t, err)
		}
		cancel()
		require.NoError(t, control.Close())
		<-served
		require.NoError(t, requests.Close())
		require.NoError(t, replies.Close())
	}
}
