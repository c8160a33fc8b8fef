package controlapi

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// Secret is what a server tells of a secret: all but its value.
type Secret struct {
	SecretID       string            `json:"secretID"`
	Name           string            `json:"name"`
	CurrentVersion int64             `json:"currentVersion"`
	Metadata       map[string]string `json:"metadata"`
	CreatedAt      Time              `json:"createdAt"`
	UpdatedAt      Time              `json:"updatedAt"`
}

// SecretValue is the body that makes or changes a secret.
type SecretValue struct {
	Name     string            `json:"name,omitempty"` // of a new one
	Value    string            `json:"value"`
	Metadata map[string]string `json:"metadata,omitzero"` // nil keeps what there is, {} clears it
}

// Secrets returns one page of the team's secrets and the token of the next, ""
// after the last.
func (c *Client) Secrets(ctx context.Context, limit int, token string) ([]Secret, string, error) {
	v := url.Values{}
	if limit > 0 {
		v.Set("limit", strconv.Itoa(limit))
	}
	if token != "" {
		v.Set("nextToken", token)
	}
	a, err := c.do(ctx, request{method: http.MethodGet, segments: []string{"secrets"}, query: v, safe: true})
	if err != nil {
		return nil, "", err
	}
	var page []Secret
	if err := a.array(&page); err != nil {
		return nil, "", err
	}
	return page, a.header.Get("X-Next-Token"), nil
}

// CreateSecret makes a secret.
func (c *Client) CreateSecret(ctx context.Context, body SecretValue) (*Secret, error) {
	a, err := c.do(ctx, request{method: http.MethodPost, segments: []string{"secrets"}, body: body, secrets: []string{body.Value}})
	if err != nil {
		return nil, err
	}
	var out Secret
	return &out, ambiguous(a.decode(&out))
}

// UpdateSecret gives a secret, by its ID or name, a new version.
func (c *Client) UpdateSecret(ctx context.Context, id string, body SecretValue) (*Secret, error) {
	a, err := c.do(ctx, request{method: http.MethodPost, segments: []string{"secrets", id}, body: body, secrets: []string{body.Value}})
	if err != nil {
		return nil, err
	}
	var out Secret
	return &out, ambiguous(a.decode(&out))
}

// Secret returns a secret, by its ID or name.
func (c *Client) Secret(ctx context.Context, id string) (*Secret, error) {
	a, err := c.do(ctx, request{method: http.MethodGet, segments: []string{"secrets", id}, safe: true})
	if err != nil {
		return nil, err
	}
	var out Secret
	return &out, a.decode(&out)
}

// DeleteSecret deletes a secret, by its ID or name.
func (c *Client) DeleteSecret(ctx context.Context, id string) error {
	return c.remove(ctx, "secrets", id)
}
