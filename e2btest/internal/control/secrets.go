package control

import (
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A secret is what is kept under a name. Nothing shows its value.
type secret struct {
	team *Team
	view secretView
}

type secretView struct {
	CreatedAt      time.Time         `json:"createdAt"`
	CurrentVersion int64             `json:"currentVersion"`
	Metadata       map[string]string `json:"metadata"`
	Name           string            `json:"name"`
	SecretID       string            `json:"secretID"`
	UpdatedAt      time.Time         `json:"updatedAt"`
}

type secretBody struct {
	Name     string            `json:"name"`
	Metadata map[string]string `json:"metadata"`
}

// badSecret is the one text of every 400 about secrets.
const badSecret = "Invalid secrets request"

const (
	secretIDPrefix = "sec_"
	maxSecretName  = 128
)

var secretName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

func secretSchema(name string, required ...string) *schema {
	return &schema{
		kind: objectKind, name: name, required: required,
		fields: map[string]*schema{"name": text, "value": text, "metadata": mapOf(text)},
	}
}

// aboutSecrets lets a handler refuse what E2B's service for secrets refuses.
func aboutSecrets(handle func(*Server, *call) (*response, *Error)) func(*Server, *call) (*response, *Error) {
	return func(s *Server, c *call) (*response, *Error) {
		if c.team.NoSecrets {
			return nil, errNoSecrets
		}
		return handle(s, c)
	}
}

// errNoSecrets is also for teams that are blocked or banned.
var errNoSecrets = fail(http.StatusForbidden, "Secrets are not available for this team")

// refusedSecrets gives the errors of keys and teams the one text that they have here.
func refusedSecrets(err *Error) *Error {
	switch err.Status {
	case http.StatusUnauthorized:
		return fail(http.StatusUnauthorized, "You are not authenticated")
	case http.StatusForbidden:
		return errNoSecrets
	}
	return err
}

// metadata returns what a request says, and whether it may.
func (b *secretBody) metadata() (map[string]string, bool) {
	total := 0
	for key, value := range b.Metadata {
		if len(key) > 128 || len(value) > 1024 {
			return nil, false
		}
		total += len(key) + len(value)
	}
	return b.Metadata, len(b.Metadata) <= 32 && total <= 8192
}

func (s *Server) handleCreateSecret(c *call) (*response, *Error) {
	var body secretBody
	if err := decode(c.body, &body); err != nil {
		return nil, err
	}
	name := strings.ToLower(body.Name)
	metadata, ok := body.metadata()
	if !ok || !secretName.MatchString(name) || len(name) > maxSecretName || strings.HasPrefix(name, secretIDPrefix) {
		return nil, fail(http.StatusBadRequest, badSecret)
	}
	if metadata == nil {
		metadata = map[string]string{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.secrets, func(k *secret) bool { return k.team == c.team && k.view.Name == name }) {
		return nil, fail(http.StatusConflict, "Secret cannot be modified in its current state")
	}
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails
	now := micros(s.clock.Now())
	k := &secret{team: c.team, view: secretView{
		CreatedAt: now, CurrentVersion: 1, Metadata: metadata, Name: name, SecretID: secretIDPrefix + randomText(b[:]), UpdatedAt: now,
	}}
	s.secrets = append(s.secrets, k)
	return &response{status: http.StatusCreated, body: k.view}, nil
}

// findSecretLocked returns the place of the secret that a request names by its ID
// or name.
func (s *Server) findSecretLocked(c *call) (int, *Error) {
	i := slices.IndexFunc(s.secrets, func(k *secret) bool {
		return k.team == c.team && (k.view.Name == c.rawID || k.view.SecretID == c.rawID)
	})
	if i < 0 {
		return 0, fail(http.StatusNotFound, "Secret not found")
	}
	return i, nil
}

func (s *Server) handleSecret(c *call) (*response, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, err := s.findSecretLocked(c)
	if err != nil {
		return nil, err
	}
	return &response{status: http.StatusOK, body: s.secrets[i].view}, nil
}

func (s *Server) handleUpdateSecret(c *call) (*response, *Error) {
	var body secretBody
	if err := decode(c.body, &body); err != nil {
		return nil, err
	}
	metadata, ok := body.metadata()
	if !ok {
		return nil, fail(http.StatusBadRequest, badSecret)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i, err := s.findSecretLocked(c)
	if err != nil {
		return nil, err
	}
	view := &s.secrets[i].view
	if metadata != nil {
		view.Metadata = metadata
	}
	view.CurrentVersion++
	view.UpdatedAt = micros(s.clock.Now())
	return &response{status: http.StatusOK, body: *view}, nil
}

func (s *Server) handleDeleteSecret(c *call) (*response, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, err := s.findSecretLocked(c)
	if err != nil {
		return nil, err
	}
	s.secrets = slices.Delete(s.secrets, i, i+1)
	return noContent(nil)
}

// handleSecrets gives pages in the order of the names. A token has the last one.
func (s *Server) handleSecrets(c *call) (*response, *Error) {
	limit, hasLimit, err := c.integer("limit", 1, maxPage)
	after, badToken := base64.URLEncoding.DecodeString(c.query.Get("nextToken"))
	if err != nil || badToken != nil {
		return nil, fail(http.StatusBadRequest, badSecret)
	}
	if !hasLimit {
		limit = maxPage
	}
	list := []secretView{}
	s.mu.Lock()
	for _, k := range s.secrets {
		if k.team == c.team && k.view.Name > string(after) {
			list = append(list, k.view)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(list, func(a, b secretView) int { return strings.Compare(a.Name, b.Name) })
	resp := &response{status: http.StatusOK, body: list}
	if int64(len(list)) > limit {
		resp.body = list[:limit]
		resp.header = map[string]string{"X-Next-Token": base64.URLEncoding.EncodeToString([]byte(list[limit-1].Name))}
	}
	return resp, nil
}
