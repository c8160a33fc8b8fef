package envd

import (
	"context"
	"errors"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/filesystem"
)

// Stat describes a file or directory.
func (c *Client) Stat(ctx context.Context, path, user string) (*filesystem.EntryInfo, error) {
	resp, err := unary(ctx, c, request(&filesystem.StatRequest{Path: path}, user), c.filesystem.Stat)
	if err != nil {
		return nil, err
	}
	if resp.GetEntry() == nil {
		return nil, errNoEntry
	}
	return resp.GetEntry(), nil
}

var errNoEntry = errors.New("the answer describes nothing")

// ListDir describes what is below a directory, depth levels deep.
func (c *Client) ListDir(ctx context.Context, path, user string, depth uint32) ([]*filesystem.EntryInfo, error) {
	resp, err := unary(ctx, c, request(&filesystem.ListDirRequest{Path: path, Depth: depth}, user), c.filesystem.ListDir)
	if err != nil {
		return nil, err
	}
	return resp.GetEntries(), nil
}

// MakeDir makes a directory and those above it.
func (c *Client) MakeDir(ctx context.Context, path, user string) error {
	_, err := unary(ctx, c, request(&filesystem.MakeDirRequest{Path: path}, user), c.filesystem.MakeDir)
	return err
}

// Move renames a file or directory, after making the directories above the new
// name.
func (c *Client) Move(ctx context.Context, from, to, user string) error {
	_, err := unary(ctx, c, request(&filesystem.MoveRequest{Source: from, Destination: to}, user), c.filesystem.Move)
	return err
}

// Remove removes a file, or a directory with all in it. The path must not be
// empty: envd would take the home for it.
func (c *Client) Remove(ctx context.Context, path, user string) error {
	_, err := unary(ctx, c, request(&filesystem.RemoveRequest{Path: path}, user), c.filesystem.Remove)
	return err
}
