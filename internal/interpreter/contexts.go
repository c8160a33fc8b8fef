package interpreter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// A Context is a kernel with its variables.
type Context struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Dir      string `json:"cwd"`
}

// maxContexts bounds the answer to a call about contexts.
const maxContexts = 16 << 20

// ErrBadAnswer is returned for a success that cannot be read.
var ErrBadAnswer = errors.New("the interpreter's answer cannot be read")

// NewContext makes a context. "" leaves the choice to the server.
func (c *Client) NewContext(ctx context.Context, language, dir string) (*Context, error) {
	b, err := json.Marshal(struct {
		Language string `json:"language,omitempty"`
		Dir      string `json:"cwd,omitempty"`
	}{language, dir})
	if err != nil {
		return nil, err
	}
	answer, err := c.call(ctx, http.MethodPost, bytes.NewReader(b), "contexts")
	if err != nil {
		return nil, err
	}
	var out Context
	if err := json.Unmarshal(answer, &out); err != nil || out.ID == "" {
		return nil, fmt.Errorf("%w: no context in it", ErrBadAnswer)
	}
	return &out, nil
}

// Contexts returns all contexts, the oldest first.
func (c *Client) Contexts(ctx context.Context) ([]Context, error) {
	answer, err := c.call(ctx, http.MethodGet, nil, "contexts")
	if err != nil {
		return nil, err
	}
	var out []Context
	if err := json.Unmarshal(answer, &out); err != nil || out == nil {
		return nil, fmt.Errorf("%w: no list in it", ErrBadAnswer)
	}
	return out, nil
}

// RestartContext gives a context a new kernel. id must be a path segment.
func (c *Client) RestartContext(ctx context.Context, id string) error {
	_, err := c.call(ctx, http.MethodPost, nil, "contexts", id, "restart")
	return err
}

// RemoveContext ends a context. id must be a path segment.
func (c *Client) RemoveContext(ctx context.Context, id string) error {
	_, err := c.call(ctx, http.MethodDelete, nil, "contexts", id)
	return err
}

func (c *Client) call(ctx context.Context, method string, body io.Reader, segments ...string) ([]byte, error) {
	resp, err := c.send(ctx, method, body, segments...)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, whole, err := transport.ReadBody(resp.Body, maxContexts)
	switch {
	case err != nil:
		return nil, err
	case !whole:
		return nil, fmt.Errorf("%w: it has more than %d bytes", ErrBadAnswer, maxContexts)
	}
	return b, nil
}
