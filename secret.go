package e2b

import (
	"context"
	"iter"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-09a7379d/e2b-go/internal/controlapi"
)

// A Secret is what can be known of a secret that is kept at E2B: all but its value,
// which no call returns.
//
// See https://e2b.dev/docs/api-reference.
type Secret struct {
	ID        string
	Name      string // in lower case
	Version   int64  // grows with each UpdateSecret
	Metadata  map[string]string
	CreatedAt time.Time
	UpdatedAt time.Time
}

func secretOf(s *controlapi.Secret) Secret {
	return Secret{
		ID: s.SecretID, Name: s.Name, Version: s.CurrentVersion, Metadata: s.Metadata,
		CreatedAt: s.CreatedAt.Time, UpdatedAt: s.UpdatedAt.Time,
	}
}

// SecretOptions is what can be told of a secret besides its value.
//
// See https://e2b.dev/docs/api-reference.
type SecretOptions struct {
	// Metadata is shown by Secret: at most 32 entries, keys of at most 128 bytes,
	// values of 1,024, all together of 8,192. For UpdateSecret nil keeps what there is, and
	// an empty map clears it.
	Metadata map[string]string
}

// SecretListOptions says where a list of secrets begins. The zero value begins with
// the first.
//
// See https://e2b.dev/docs/api-reference.
type SecretListOptions struct {
	PageSize  int    // 1 to 100; 0 means 100
	PageToken string // Page.NextToken of the page before; "": the first page
}

var (
	opCreateSecret = operation{name: "create secret", creates: "a secret"}
	opUpdateSecret = operation{name: "update secret", notFound: ErrNotFound, creates: "a version of the secret"}
	opSecret       = operation{name: "get secret", notFound: ErrNotFound}
	opSecrets      = operation{name: "list secrets"}
	opDeleteSecret = operation{name: "delete secret", notFound: ErrNotFound}
)

// CreateSecret stores a secret under a name of 1 to 128 letters, digits, - and _,
// which the server turns into lower case. The value goes to the server and into no
// error or log. opts may be nil.
//
// Errors: ErrInvalidArgument, ErrUnauthenticated, ErrForbidden (the team has no
// secrets, or the feature is off), ErrConflict (the name is taken), ErrRateLimited,
// ErrNotSupported, ErrOutcomeUnknown: Secret then tells whether it is there.
//
// Experimental: of this route only refusals could be recorded.
//
// See https://e2b.dev/docs/api-reference.
func (c *Client) CreateSecret(ctx context.Context, name string, value Token, opts *SecretOptions) (*Secret, error) {
	if !validName(name, maxSecretName) || strings.HasPrefix(strings.ToLower(name), secretIDPrefix) {
		return nil, invalid(opCreateSecret.name, "name", "must be 1 to %d letters, digits, - and _, and not begin with %s: %.80q", maxSecretName, secretIDPrefix, name)
	}
	body, err := secretValue(opCreateSecret, value, opts)
	if err != nil {
		return nil, err
	}
	body.Name = name
	s, err := c.api.CreateSecret(ctx, body)
	if err != nil {
		return nil, controlError(ctx, opCreateSecret, "", err)
	}
	out := secretOf(s)
	return &out, nil
}

// UpdateSecret gives the secret with that ID or name a new value, as a new version.
// opts may be nil: the metadata stays.
//
// Errors: as CreateSecret, and ErrNotFound, ErrConflict (it cannot be changed now).
//
// Experimental: this route could not be recorded.
//
// See https://e2b.dev/docs/api-reference.
func (c *Client) UpdateSecret(ctx context.Context, idOrName string, value Token, opts *SecretOptions) (*Secret, error) {
	id, err := secretID(opUpdateSecret, idOrName)
	if err != nil {
		return nil, err
	}
	body, err := secretValue(opUpdateSecret, value, opts)
	if err != nil {
		return nil, err
	}
	s, err := c.api.UpdateSecret(ctx, id, body)
	if err != nil {
		return nil, controlError(ctx, opUpdateSecret, "", err)
	}
	out := secretOf(s)
	return &out, nil
}

// Secret describes the secret with that ID or name.
//
// Errors: ErrInvalidArgument, ErrNotFound, ErrUnauthenticated, ErrForbidden,
// ErrNotSupported.
//
// Experimental: this route could not be recorded.
//
// See https://e2b.dev/docs/api-reference.
func (c *Client) Secret(ctx context.Context, idOrName string) (*Secret, error) {
	id, err := secretID(opSecret, idOrName)
	if err != nil {
		return nil, err
	}
	s, err := c.api.Secret(ctx, id)
	if err != nil {
		return nil, controlError(ctx, opSecret, "", err)
	}
	out := secretOf(s)
	return &out, nil
}

// DeleteSecret deletes the secret with that ID or name, all versions of it.
//
// Errors: as Secret, and ErrConflict (it cannot be changed now).
//
// Experimental: this route could not be recorded.
//
// See https://e2b.dev/docs/api-reference.
func (c *Client) DeleteSecret(ctx context.Context, idOrName string) error {
	id, err := secretID(opDeleteSecret, idOrName)
	if err != nil {
		return err
	}
	return controlError(ctx, opDeleteSecret, "", c.api.DeleteSecret(ctx, id))
}

// SecretsPage returns one page of the team's secrets. opts may be nil.
//
// Errors: ErrInvalidArgument, ErrUnauthenticated, ErrForbidden (the team has no
// secrets, or the feature is off), ErrNotSupported.
//
// Experimental: of this route only a refusal could be recorded.
//
// See https://e2b.dev/docs/api-reference.
func (c *Client) SecretsPage(ctx context.Context, opts *SecretListOptions) (*Page[Secret], error) {
	var o SecretListOptions
	if opts != nil {
		o = *opts
	}
	if o.PageSize < 0 || o.PageSize > 100 {
		return nil, invalid(opSecrets.name, "PageSize", "must be 1 to 100, or 0 for 100: %d", o.PageSize)
	}
	list, next, err := c.api.Secrets(ctx, o.PageSize, o.PageToken)
	if err != nil {
		return nil, controlError(ctx, opSecrets, "", err)
	}
	page := &Page[Secret]{Items: make([]Secret, len(list)), NextToken: next}
	for i := range list {
		page.Items[i] = secretOf(&list[i])
	}
	return page, nil
}

// Secrets returns all secrets of the team, page after page, each once. It yields at
// most one error, as its last pair, and starts over when it is ranged over again.
// ctx bounds the whole range. opts may be nil.
//
// Errors: as SecretsPage.
//
// Experimental: as SecretsPage.
//
// See https://e2b.dev/docs/api-reference.
func (c *Client) Secrets(ctx context.Context, opts *SecretListOptions) iter.Seq2[Secret, error] {
	var o SecretListOptions
	if opts != nil {
		o = *opts
	}
	return pages(opSecrets, o.PageToken, func(s Secret) string { return s.ID }, func(token string) (*Page[Secret], error) {
		return c.SecretsPage(ctx, &SecretListOptions{PageSize: o.PageSize, PageToken: token})
	})
}

const (
	maxSecretName     = 128
	secretIDPrefix    = "sec_"
	maxSecretEntries  = 32
	maxSecretKey      = 128
	maxSecretMetadata = 1024
	maxSecretTotal    = 8192
)

// secretID checks what names a secret. Servers know names in lower case alone.
func secretID(op operation, s string) (string, error) {
	if !validName(s, maxName) {
		return "", invalid(op.name, "secret", "must be the ID or name of one: %.80q", s)
	}
	if !strings.HasPrefix(s, secretIDPrefix) {
		s = strings.ToLower(s)
	}
	return s, nil
}

func secretValue(op operation, value Token, opts *SecretOptions) (body controlapi.SecretValue, err error) {
	switch v := value.Reveal(); {
	case v == "":
		return body, invalid(op.name, "value", "is empty")
	case !utf8.ValidString(v):
		return body, invalid(op.name, "value", "is not UTF-8")
	}
	body.Value = value.Reveal()
	if opts == nil {
		return body, nil
	}
	total := 0
	for key, v := range opts.Metadata {
		total += len(key) + len(v)
		switch {
		case len(key) > maxSecretKey || len(v) > maxSecretMetadata:
			return body, invalid(op.name, "Metadata", "has a key of more than %d bytes, or a value of more than %d: %.40q", maxSecretKey, maxSecretMetadata, key)
		case !utf8.ValidString(key) || !utf8.ValidString(v):
			return body, invalid(op.name, "Metadata", "has a key or value that is not UTF-8: %.40q", key)
		}
	}
	if len(opts.Metadata) > maxSecretEntries || total > maxSecretTotal {
		return body, invalid(op.name, "Metadata", "has more than %d entries, or more than %d bytes", maxSecretEntries, maxSecretTotal)
	}
	body.Metadata = opts.Metadata
	return body, nil
}
