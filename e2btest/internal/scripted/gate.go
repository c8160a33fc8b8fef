package scripted

import (
	"context"
	"io"
)

// A gate lets a function read and write while its sandbox is not paused.
type gate struct {
	sandbox *Sandbox
	ctx     context.Context //nolint:containedctx // that of the function whose input or output it is
	r       io.Reader
	w       io.Writer
}

func (g *gate) Read(p []byte) (int, error) {
	if err := g.sandbox.wait(g.ctx); err != nil {
		return 0, err
	}
	return g.r.Read(p)
}

func (g *gate) Write(p []byte) (int, error) {
	if err := g.sandbox.wait(g.ctx); err != nil {
		return 0, err
	}
	return g.w.Write(p)
}
