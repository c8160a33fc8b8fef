package controlapi

import (
	"context"
	"errors"
	"net/http"
)

// Volume is a volume. Lists leave out what leads to its content.
type Volume struct {
	VolumeID string `json:"volumeID"`
	Name     string `json:"name"`
	Token    string `json:"token"`
	Domain   string `json:"domain"`
}

// Volumes lists the volumes of the team.
func (c *Client) Volumes(ctx context.Context) ([]Volume, error) {
	a, err := c.do(ctx, request{method: http.MethodGet, segments: []string{"volumes"}, safe: true})
	if err != nil {
		return nil, err
	}
	var out []Volume
	return out, a.array(&out)
}

// CreateVolume makes a volume.
func (c *Client) CreateVolume(ctx context.Context, name string) (*Volume, error) {
	body := struct {
		Name string `json:"name"`
	}{name}
	a, err := c.do(ctx, request{method: http.MethodPost, segments: []string{"volumes"}, body: body})
	if err != nil {
		return nil, err
	}
	var out Volume
	if err = a.decode(&out); err == nil && out.VolumeID == "" {
		err = a.bad(errors.New("it names no volume"))
	}
	return &out, ambiguous(err)
}

// Volume returns a volume, with a fresh token.
func (c *Client) Volume(ctx context.Context, id string) (*Volume, error) {
	a, err := c.do(ctx, request{method: http.MethodGet, segments: []string{"volumes", id}, safe: true})
	if err != nil {
		return nil, err
	}
	var out Volume
	return &out, a.decode(&out)
}

// DeleteVolume deletes a volume.
func (c *Client) DeleteVolume(ctx context.Context, id string) error {
	return c.remove(ctx, "volumes", id)
}

// remove deletes what a path leads to.
func (c *Client) remove(ctx context.Context, segments ...string) error {
	_, err := c.do(ctx, request{method: http.MethodDelete, segments: segments, safe: true})
	status, repeated := refused(err)
	if repeated && status != nil && status.StatusCode == http.StatusNotFound && !routeMissing(err) {
		return nil // an earlier attempt whose answer was lost is what deleted it
	}
	return err
}
