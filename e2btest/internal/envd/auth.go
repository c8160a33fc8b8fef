package envd

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

const tokenHeader = "X-Access-Token"

const unauthorizedMessage = "unauthorized access, please provide a valid access token or method signing if supported"

// sameSecret compares in constant time.
func sameSecret(a, b string) bool {
	return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}

// authorized checks the access token of r, except where the route has a check of
// its own or needs none.
func (s *Server) authorized(r *http.Request) bool {
	switch r.Method + " " + r.URL.Path {
	case "GET /health", "GET /files", "POST /files", "POST /init":
		return true
	}
	return s.cfg.AccessToken == "" || sameSecret(r.Header.Get(tokenHeader), s.cfg.AccessToken)
}

func (s *Server) user(name string) *User {
	for i := range s.cfg.Users {
		if s.cfg.Users[i].Name == name {
			return &s.cfg.Users[i]
		}
	}
	return nil
}

// actor returns the user that r names by Basic authentication. The password means
// nothing.
func (s *Server) actor(r *http.Request) (*User, error) {
	name, _, ok := r.BasicAuth()
	if !ok {
		if u := s.user(s.cfg.DefaultUser); u != nil {
			return u, nil
		}
		return nil, connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("invalid default user: '%s'", s.cfg.DefaultUser))
	}
	if u := s.user(name); u != nil {
		return u, nil
	}
	return nil, connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("invalid username: '%s'", name))
}

// A caller is what the services need to know of a request.
type caller struct {
	server *Server
	user   *User
}

type callerKey struct{}

func withCaller(ctx context.Context, s *Server, u *User) context.Context {
	return context.WithValue(ctx, callerKey{}, caller{s, u})
}

// userOf returns the user that serve found for the request.
func userOf(ctx context.Context) *User {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c.user
}

// serverOf returns the server that the request is for.
func serverOf(ctx context.Context) *Server {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c.server
}

// namedUser is who acts in a route that names the user itself. An empty name is a
// name; without one, the default user acts.
func (s *Server) namedUser(name *string) (*User, error) {
	n := s.cfg.DefaultUser
	if name != nil {
		n = *name
	}
	if u := s.user(n); u != nil {
		return u, nil
	}
	return nil, fmt.Errorf("error looking up user '%s': user: unknown user %s", n, n)
}

// sign returns the signature that stands in for the token on /files. Path and
// username are those of the query, as given.
func sign(token, operation string, q fileQuery) string {
	input := q.path + ":" + operation + ":" + value(q.username) + ":" + token
	if q.expiration != nil {
		input += ":" + strconv.FormatInt(*q.expiration, 10)
	}
	sum := sha256.Sum256([]byte(input))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

func value(s *string) string { return *cmp.Or(s, new(string)) }

// mayTransfer says why a request to /files is refused.
func (s *Server) mayTransfer(h http.Header, q fileQuery, operation string) error {
	if s.cfg.AccessToken == "" {
		return nil
	}
	if _, ok := h[tokenHeader]; ok {
		if !sameSecret(h.Get(tokenHeader), s.cfg.AccessToken) {
			return errors.New("access token present in header but does not match")
		}
		return nil
	}
	if q.signature == nil {
		return errors.New("missing signature query parameter")
	}
	if !sameSecret(*q.signature, sign(s.cfg.AccessToken, operation, q)) {
		return errors.New("invalid signature")
	}
	if q.expiration != nil && *q.expiration < s.now().Add(ahead(h)).Unix() {
		return errors.New("signature is already expired")
	}
	return nil
}

// ahead is how far the emulator's clock is ahead of this machine's.
func ahead(h http.Header) time.Duration {
	d, _ := time.ParseDuration(h.Get(node.ClockHeader)) // without one, 0
	return d
}
