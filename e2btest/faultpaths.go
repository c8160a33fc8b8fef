package e2btest

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/control"
	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/filesystem"
	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/process"
)

// A knownRoute is one that E2B's clients ask for. Without a method it has them all.
type knownRoute struct {
	method, path string
	api          bool // it is one of the API, and not of a server in a sandbox
}

// anonymous reports whether requests do not tell which sandbox they are about.
func (r *knownRoute) anonymous() bool { return r.api && inPath(newPathPattern(r.path)) == "" }

// knownRoutes are those of the API, of all generations, and those of the servers that
// E2B has in each sandbox.
var knownRoutes = sync.OnceValue(func() (routes struct{ api, envd, interpreter []knownRoute }) {
	for _, r := range control.RoutePatterns() {
		routes.api = append(routes.api, knownRoute{r.Method, r.Path, true})
	}
	// Not of the emulator, but the SDK asks it for what is in a volume.
	routes.api = append(routes.api, knownRoute{"", "/volumecontent/{id}/{kind}", true})
	for _, file := range []protoreflect.FileDescriptor{process.File_process_process_proto, filesystem.File_filesystem_filesystem_proto} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				path := fmt.Sprintf("/%s/%s", service.FullName(), service.Methods().Get(j).Name())
				routes.envd = append(routes.envd, knownRoute{http.MethodPost, path, false})
			}
		}
	}
	routes.envd = append(routes.envd, []knownRoute{
		{http.MethodGet, "/health", false},
		{http.MethodGet, "/metrics", false},
		{http.MethodGet, "/envs", false},
		{http.MethodGet, "/files", false},
		{http.MethodPost, "/files", false},
		{http.MethodPost, "/files/compose", false},
	}...)
	routes.interpreter = []knownRoute{
		{http.MethodPost, "/execute", false},
		{http.MethodGet, "/contexts", false},
		{http.MethodPost, "/contexts", false},
		{http.MethodDelete, "/contexts/{id}", false},
		{http.MethodPost, "/contexts/{id}/restart", false},
	}
	return routes
})

var httpMethods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodConnect, http.MethodOptions, http.MethodTrace,
}

// problemOfTarget says why no request can be one that the Fault is about.
func (f *Fault) problemOfTarget() string {
	switch {
	case f.Method != "" && !slices.Contains(httpMethods, f.Method):
		return fmt.Sprintf("%q is no method of HTTP, such as POST, in upper case", f.Method)
	case f.To == ToAPI && f.Port != 0:
		return "its Port is that of a sandbox, and its To is " + string(ToAPI)
	case f.Path == "":
		return ""
	case f.Path[0] != '/':
		return "its path does not begin with a slash"
	}
	if problem := problemOfPattern(f.Path); problem != "" {
		return problem
	}
	all := knownRoutes()
	switch {
	case f.Port == node.EnvdPort:
		return f.problemAmong(all.envd, "")
	case f.Port != 0 || f.To == ToSandboxes:
		return "" // any server can be in a sandbox
	case f.To == ToAPI:
		return f.problemAmong(all.api, "")
	}
	return f.problemAmong(slices.Concat(all.api, all.envd, all.interpreter), "; for a server of your own in a sandbox give its Port")
}

// problemOfPattern says why no path of a request fits a pattern.
func problemOfPattern(pattern string) string {
	for segment := range strings.SplitSeq(pattern, "/") {
		if strings.Contains(segment, "*") || strings.HasPrefix(segment, ":") {
			return fmt.Sprintf("%q in its path stands for nothing else: what stands for any segment is {name}", segment)
		}
		if name, ok := placeholder(segment); ok && !strings.ContainsAny(name, "{}") {
			continue
		}
		plain, err := url.PathUnescape(segment)
		if err != nil {
			return "its path: " + err.Error()
		}
		sent := url.URL{Path: plain, RawPath: segment}
		if escaped := sent.EscapedPath(); escaped != segment {
			return fmt.Sprintf("%q cannot be in a path, which would have %q", segment, escaped)
		}
	}
	return ""
}

// problemAmong says why the Fault is about none of the routes.
func (f *Fault) problemAmong(routes []knownRoute, hint string) string {
	const far = 4
	nearest, least := "", far
	var methods []string
	unnamed := false
	for _, r := range routes {
		if newPathPattern(f.Path).overlaps(newPathPattern(r.path)) {
			if f.Sandbox != "" && r.anonymous() {
				unnamed = true
				continue
			}
			if !slices.Contains(methods, r.method) {
				methods = append(methods, r.method)
			}
		} else if d := distance(f.Path, r.path); d < least {
			nearest, least = r.path, d
		}
	}
	fits := func(method string) bool { return method == "" || method == f.Method }
	switch {
	case len(methods) == 0 && unnamed:
		return "requests to its path do not name a Sandbox"
	case len(methods) == 0 && nearest != "":
		return fmt.Sprintf("there is no route %s, but %s%s", f.Path, nearest, hint)
	case len(methods) == 0:
		return fmt.Sprintf("there is no route %s: a path looks like /sandboxes/{id}/pause%s", f.Path, hint)
	case f.Method != "" && f.Method != http.MethodOptions && !slices.ContainsFunc(methods, fits): // browsers ask for OPTIONS
		return fmt.Sprintf("there is no route %s %s, but %s%s", f.Method, f.Path, strings.Join(methods, " and "), hint)
	}
	return ""
}

// overlaps reports whether there is a path that both fit.
func (p pathPattern) overlaps(other pathPattern) bool {
	return slices.EqualFunc(p, other, func(a, b string) bool {
		_, anyA := placeholder(a)
		_, anyB := placeholder(b)
		return a == b || anyA && b != "" || anyB && a != ""
	})
}

// distance is how many bytes of a must be added, removed or changed to make b of it.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // from the part of a that is done to each part of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, before+1, row[j]+1)
		}
	}
	return row[len(b)]
}
