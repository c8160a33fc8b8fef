package control

import (
	"cmp"
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
		t.Tags = []string{defaultTag}
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

// A templateName is the name or ID of a template, with what may be left out.
type templateName struct{ namespace, name, tag string }

func parseTemplateName(ref string) (templateName, bool) {
	m := templateRef.FindStringSubmatch(strings.ToLower(strings.TrimSpace(ref)))
	if m == nil {
		return templateName{}, false
	}
	return templateName{m[1], m[2], m[3]}, true
}

// badTemplateRef says what is wrong with a reference that is none.
func badTemplateRef(ref string) *Error {
	what := "invalid template ID: " + ref
	rest, tag, tagged := strings.Cut(ref, ":")
	namespace, name, spaced := strings.Cut(rest, "/")
	if !spaced {
		namespace, name = "", rest
	}
	if name = strings.TrimSpace(name); ValidTemplateName(strings.ToLower(name)) {
		switch {
		case spaced && !ValidTemplateName(strings.ToLower(namespace)):
			what = "invalid namespace: " + namespace
		case tagged:
			what = "invalid tag: " + tag
		}
	}
	return fail(http.StatusBadRequest, "Invalid template reference: "+what)
}

// untagged is how messages show the name.
func (n templateName) untagged() string {
	if n.namespace != "" {
		return n.namespace + "/" + n.name
	}
	return n.name
}

// defaultTag is the tag where none is named.
const defaultTag = "default"

// template resolves the templateID of a create request. The team's own templates,
// which snapshots made, come first; of those it also returns the build.
func (s *Server) template(team *Team, ref string) (*Template, *build, *Error) {
	name, ok := parseTemplateName(ref)
	if !ok {
		return nil, nil, badTemplateRef(ref)
	}
	tag := cmp.Or(name.tag, defaultTag)
	if name.namespace == "" || name.namespace == team.Slug {
		s.mu.Lock()
		defer s.mu.Unlock()
		if own := s.findSavedLocked(team, name.name); own != nil {
			if b := own.tagged(tag, ""); b != nil {
				return own.Template, b, nil
			}
			return nil, nil, tagNotFound(tag, name)
		}
		if t := s.findTemplate(name.name); t != nil {
			if slices.Contains(t.Tags, tag) {
				return t, nil, nil
			}
			return nil, nil, tagNotFound(tag, name)
		}
	}
	return nil, nil, templateNotFound(name.untagged())
}

func templateNotFound(name string) *Error {
	return fail(http.StatusNotFound, fmt.Sprintf("template '%s' not found", name))
}

func tagNotFound(tag string, name templateName) *Error {
	return fail(http.StatusNotFound, fmt.Sprintf("tag '%s' does not exist for template '%s'", tag, name.untagged()))
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

// VersionBefore compares dotted versions. What is no number counts as zero.
func VersionBefore(a, b string) bool {
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
