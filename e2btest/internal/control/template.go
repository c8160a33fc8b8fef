package control

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// EnvdVersion is the version of envd that templates have by default.
const EnvdVersion = "0.6.13"

// A Template is what sandboxes are created from.
type Template struct {
	ID          string // default: derived from the first alias
	Aliases     []string
	Tags        []string // of ready builds; nil: "default" alone; empty: no build is ready
	EnvdVersion string   // default: EnvdVersion
}

// DefaultTemplates returns the templates of E2B's own that the emulator knows.
func DefaultTemplates() []Template {
	return []Template{
		{Aliases: []string{"base"}},
		{Aliases: []string{"code-interpreter", "code-interpreter-v1"}},
	}
}

// alias is the name that answers show: the alphabetically first one.
func (t *Template) alias() string {
	if len(t.Aliases) == 0 {
		return ""
	}
	return slices.Min(t.Aliases)
}

// withDefaults fills in what a Template may leave out.
func (t Template) withDefaults() *Template {
	if t.ID == "" {
		t.ID = templateID(t.alias())
	}
	if t.Tags == nil {
		t.Tags = []string{"default"}
	}
	if t.EnvdVersion == "" {
		t.EnvdVersion = EnvdVersion
	}
	return &t
}

// templateID makes an ID for a name, the same on each run.
func templateID(name string) string {
	sum := sha256.Sum256([]byte("template " + name))
	return randomText(sum[:20])
}

var templateRef = regexp.MustCompile(`^(?:([a-z0-9_-]+)/)?([a-z0-9_-]+)(?::([a-z0-9._-]+))?$`)

// ValidTemplateName reports whether sandboxes can be created from a template of
// that name.
func ValidTemplateName(name string) bool {
	m := templateRef.FindStringSubmatch(name)
	return m != nil && m[1] == "" && m[3] == ""
}

// template resolves the templateID of a create request.
func (s *Server) template(team *Team, ref string) (*Template, *Error) {
	m := templateRef.FindStringSubmatch(strings.ToLower(strings.TrimSpace(ref)))
	if m == nil {
		return nil, fail(http.StatusBadRequest, "Invalid template reference: invalid template ID: "+ref)
	}
	namespace, name, tag := m[1], m[2], m[3]
	t := s.findTemplate(name)
	if namespace != "" {
		name = namespace + "/" + name
		if namespace != team.Slug {
			t = nil
		}
	}
	if t == nil {
		return nil, fail(http.StatusNotFound, fmt.Sprintf("template '%s' not found", name))
	}
	if tag == "" {
		tag = "default"
	}
	if !slices.Contains(t.Tags, tag) {
		return nil, fail(http.StatusNotFound, fmt.Sprintf("tag '%s' does not exist for template '%s'", tag, name))
	}
	return t, nil
}

// findTemplate returns nil for an unknown ID or alias.
func (s *Server) findTemplate(name string) *Template {
	for _, t := range s.templates {
		if t.ID == name || slices.Contains(t.Aliases, name) {
			return t
		}
	}
	return nil
}

// versionBefore compares dotted versions. What is no number counts as zero.
func versionBefore(a, b string) bool {
	parts := func(v string) []int {
		var n []int
		for part := range strings.SplitSeq(v, ".") {
			i, _ := strconv.Atoi(part)
			n = append(n, i)
		}
		return n
	}
	return slices.Compare(parts(a), parts(b)) < 0
}
