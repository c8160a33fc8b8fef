package interpreter

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A server that has shown keepalives and then goes silent is given up, whether or not
// there was a limit for the beginning.
func TestSilenceIsNoticed(t *testing.T) {
	for _, limit := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			r, w := io.Pipe()
			defer r.Close()
			c := newClient(func(req *http.Request) (*http.Response, error) {
				go func() { // as net/http does
					<-req.Context().Done()
					_ = w.CloseWithError(req.Context().Err())
				}()
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(r)}, nil
			})
			e, err := c.Execute(t.Context(), limit, &Code{Code: "x"})
			require.NoError(t, err)
			go func() { _, _ = io.WriteString(w, `{"type":"keepalive"}`+"\n") }()
			var l Line
			require.NoError(t, e.Next(&l))
			require.Equal(t, TypeKeepalive, l.Type)
			begin := time.Now()
			time.AfterFunc(time.Hour, func() { _ = w.CloseWithError(io.ErrUnexpectedEOF) })
			require.ErrorIs(t, e.Next(&l), ErrSilent)
			require.Equal(t, maxSilence, time.Since(begin))
			require.NoError(t, e.Close())
		})
	}
}
