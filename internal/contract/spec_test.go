package contract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/stretchr/testify/require"
)

// specFile is where the OpenAPI file lies beside the repository. It is not
// part of it: E2B_OPENAPI names another place.
const specFile = "../../../shared/spec/openapi.yml"

// testKey is a made-up API key; requests that carry another one are refused.
const testKey = "e2b_0123456789abcdef0123456789abcdef"

// A violation is one way in which an exchange differs from the specification.
// Operation and Where identify it, What is for the reader.
type violation struct {
	Operation string // method and path template, as in the specification
	Where     string // "body /timeout", "query state", "header X-API-Key", "status 429", …
	What      string
}

func (v violation) String() string {
	return fmt.Sprintf("%s: %s: %s", v.Operation, v.Where, v.What)
}

// A twin is a route that the servers have and the file lacks, checked as the
// operation it is a newer form of.
type twin struct {
	path    string
	like    string   // path of the operation in the file; both are POST
	without []string // body fields of the old form that the new one dropped
	reason  string
}

var twins = []twin{
	{
		path: "/v2/sandboxes", like: "/sandboxes", without: []string{"secure"},
		reason: "newer than the file; always secure, all else as in v1",
	},
	{
		path: "/v2/sandboxes/{sandboxID}/connect", like: "/sandboxes/{sandboxID}/connect",
		reason: "newer than the file; its body is optional, but the SDK always sends one",
	},
}

// A spec checks exchanges against the OpenAPI file.
type spec struct {
	router routers.Router
}

// readSpec returns the bytes of the OpenAPI file. Without the file the test is
// skipped, except under CI, where the file is always laid beside the clone.
func readSpec(t *testing.T) []byte {
	t.Helper()
	file := specFile
	if override := os.Getenv("E2B_OPENAPI"); override != "" {
		file = override
	}
	data, err := os.ReadFile(filepath.FromSlash(file))
	if errors.Is(err, os.ErrNotExist) && os.Getenv("CI") != "true" {
		t.Skipf("no OpenAPI file: set E2B_OPENAPI to E2B's openapi.yml to run the contract check (%v)", err)
	}
	require.NoError(t, err)
	return data
}

func loadDoc(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(readSpec(t))
	require.NoError(t, err)
	return doc
}

// requestSpec returns the specification in the strict form that requests are
// held to: a body may have no field that the file does not name, and the twins
// are there.
func requestSpec(t *testing.T) *spec {
	t.Helper()
	doc := loadDoc(t)
	for _, tw := range twins {
		item := doc.Paths.Value(tw.path)
		if item == nil {
			item = &openapi3.PathItem{}
			doc.Paths.Set(tw.path, item)
		}
		require.Nil(t, item.Post, "the file has POST %s now: remove its twin", tw.path)
		old := doc.Paths.Value(tw.like)
		require.NotNil(t, old, "the file has no %s", tw.like)
		item.Post = twinOperation(t, old.Post, tw.without)
	}
	closed := map[*openapi3.Schema]bool{}
	for _, item := range doc.Paths.Map() {
		for _, op := range item.Operations() {
			if op.RequestBody == nil {
				continue
			}
			for _, media := range op.RequestBody.Value.Content {
				closeSchema(media.Schema, closed)
			}
		}
	}
	return newSpec(t, doc)
}

// responseSpec returns the specification as it is, for answers: a server may
// send more than the file says.
func responseSpec(t *testing.T) *spec {
	t.Helper()
	return newSpec(t, loadDoc(t))
}

func newSpec(t *testing.T, doc *openapi3.T) *spec {
	t.Helper()
	doc.Servers = nil // match by path alone
	router, err := legacy.NewRouter(doc)
	require.NoError(t, err)
	return &spec{router: router}
}

func twinOperation(t *testing.T, op *openapi3.Operation, without []string) *openapi3.Operation {
	t.Helper()
	media := op.RequestBody.Value.Content.Get("application/json")
	require.NotNil(t, media)
	schema := *media.Schema.Value
	schema.Properties = maps.Clone(schema.Properties)
	for _, name := range without {
		require.Contains(t, schema.Properties, name)
		delete(schema.Properties, name)
	}
	body := *op.RequestBody.Value
	body.Content = openapi3.NewContentWithJSONSchema(&schema)
	clone := *op
	clone.RequestBody = &openapi3.RequestBodyRef{Value: &body}
	return &clone
}

// closeSchema forbids, all the way down, the fields that an object schema does
// not name. Fields that the file marks as not implemented are not offered to
// clients, so they count as not named.
func closeSchema(ref *openapi3.SchemaRef, seen map[*openapi3.Schema]bool) {
	if ref == nil || ref.Value == nil || seen[ref.Value] {
		return
	}
	s := ref.Value
	seen[s] = true
	for name, property := range s.Properties {
		if property.Value.Extensions["x-not-implemented"] == true {
			delete(s.Properties, name)
			continue
		}
		closeSchema(property, seen)
	}
	closeSchema(s.Items, seen)
	closeSchema(s.AdditionalProperties.Schema, seen)
	composed := len(s.AllOf)+len(s.AnyOf)+len(s.OneOf) > 0
	if len(s.Properties) > 0 && !composed && s.AdditionalProperties.Has == nil && s.AdditionalProperties.Schema == nil {
		s.AdditionalProperties.Has = new(false)
	}
}

// options makes the validator as strict as it gets. Every call needs its own
// list of violations, so everything is reported, not the first one only.
func options() *openapi3filter.Options {
	return &openapi3filter.Options{
		MultiError:            true,
		SkipSettingDefaults:   true,
		IncludeResponseStatus: true,
		AuthenticationFunc:    authenticate,
		SchemaValidationOptions: []openapi3.SchemaValidationOption{
			openapi3.WithStringFormatValidator("date-time", openapi3.NewCallbackValidator(func(s string) error {
				_, err := time.Parse(time.RFC3339Nano, s)
				return err
			})),
		},
	}
}

// authenticate accepts the API key and none of the alternatives: a client
// with a key must send that and nothing else.
func authenticate(_ context.Context, in *openapi3filter.AuthenticationInput) error {
	if in.SecuritySchemeName != "ApiKeyAuth" {
		return errors.New("not the API key")
	}
	if got := in.RequestValidationInput.Request.Header.Values(in.SecurityScheme.Name); !slices.Equal(got, []string{testKey}) {
		return fmt.Errorf("header %s is not the key", in.SecurityScheme.Name)
	}
	return nil
}

// route finds the operation of a request.
func (s *spec) route(r *http.Request) (*openapi3filter.RequestValidationInput, string, error) {
	// The servers match the escaped path, so that %2F belongs to an ID.
	escaped := &http.Request{Method: r.Method, URL: &url.URL{Path: r.URL.EscapedPath()}}
	route, params, err := s.router.FindRoute(escaped)
	if err != nil {
		return nil, r.Method + " " + r.URL.EscapedPath(), err
	}
	return &openapi3filter.RequestValidationInput{
		Request:     r,
		PathParams:  params,
		QueryParams: r.URL.Query(),
		Route:       route,
		Options:     options(),
	}, route.Method + " " + route.Path, nil
}

// checkRequest returns the operation of r and everything that is wrong with
// it. The body of r can be read again afterwards.
func (s *spec) checkRequest(r *http.Request) (operation string, _ []violation) {
	in, operation, err := s.route(r)
	if err != nil {
		return operation, []violation{{operation, "route", err.Error()}}
	}
	found := violations(operation, openapi3filter.ValidateRequest(r.Context(), in))

	// What the validator does not look at: unknown and repeated query
	// parameters, a body where there must be none, more than one body type.
	op := in.Route.Operation
	for name, values := range in.QueryParams {
		where := "query " + name
		if op.Parameters.GetByInAndName(openapi3.ParameterInQuery, name) == nil {
			found = append(found, violation{operation, where, "unknown parameter"})
		} else if len(values) > 1 {
			found = append(found, violation{operation, where, "repeated parameter"})
		}
	}
	if op.RequestBody == nil && r.Body != nil {
		data, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(data))
		if err != nil || len(data) > 0 {
			found = append(found, violation{operation, "body", "a body where the file has none"})
		}
	}
	slices.SortFunc(found, func(a, b violation) int { return strings.Compare(a.String(), b.String()) })
	return operation, found
}

// checkResponse returns everything that is wrong with an answer to r.
func (s *spec) checkResponse(r *http.Request, status int, header http.Header, body []byte) []violation {
	in, operation, err := s.route(r)
	if err != nil {
		return []violation{{operation, "route", err.Error()}}
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in,
		Status:                 status,
		Header:                 header,
		Body:                   io.NopCloser(bytes.NewReader(body)),
		Options:                options(),
	}
	if in.Route.Operation.Responses.Status(status) == nil {
		return []violation{{operation, fmt.Sprintf("status %d", status), "not in the file"}}
	}
	return violations(operation, openapi3filter.ValidateResponse(r.Context(), out))
}

// violations flattens the validator's error.
func violations(operation string, err error) []violation {
	switch err := err.(type) { //nolint:errorlint // the tree is walked node by node, As would skip siblings
	case nil:
		return nil
	case openapi3.MultiError:
		var all []violation
		for _, e := range err {
			all = append(all, violations(operation, e)...)
		}
		return all
	case *openapi3filter.SecurityRequirementsError:
		return []violation{{operation, "security", err.Error()}}
	case *openapi3filter.RequestError:
		where := "body"
		if err.Parameter != nil {
			where = err.Parameter.In + " " + err.Parameter.Name
		}
		return located(operation, where, err.Reason, err.Err)
	case *openapi3filter.ResponseError:
		return located(operation, "answer", err.Reason, err.Err)
	default:
		return []violation{{operation, "request", err.Error()}}
	}
}

// located splits an error below a body or a parameter into one violation for
// each place in the value.
func located(operation, where, reason string, err error) []violation {
	switch err := err.(type) { //nolint:errorlint // as in violations
	case openapi3.MultiError:
		var all []violation
		for _, e := range err {
			all = append(all, located(operation, where, reason, e)...)
		}
		return all
	case *openapi3.SchemaError:
		pointer := err.JSONPointer()
		// An unknown field is reported at its object; only the text names it.
		var name string
		if _, scanErr := fmt.Sscanf(err.Reason, "property %q is unsupported", &name); scanErr == nil {
			pointer = append(slices.Clone(pointer), name)
		}
		if len(pointer) > 0 {
			where += " /" + strings.Join(pointer, "/")
		}
		return []violation{{operation, where, err.Reason}}
	case nil:
		return []violation{{operation, where, reason}}
	default:
		return []violation{{operation, where, reason + ": " + err.Error()}}
	}
}

// A difference is a violation that is known and right.
type difference struct {
	operation, where string
	reason           string
}

// unexplained returns the violations that no difference covers and the
// differences that no violation needs.
func unexplained(found []violation, allowed []difference) (open []violation, idle []difference) {
	used := map[difference]bool{}
	for _, v := range found {
		i := slices.IndexFunc(allowed, func(d difference) bool { return d.operation == v.Operation && d.where == v.Where })
		if i < 0 {
			open = append(open, v)
			continue
		}
		used[allowed[i]] = true
	}
	for _, d := range allowed {
		if !used[d] {
			idle = append(idle, d)
		}
	}
	return open, idle
}

// request builds a request as the negative tests need it.
func request(t *testing.T, method, target, body string) *http.Request {
	t.Helper()
	u, err := url.Parse("https://api.e2b.app" + target)
	require.NoError(t, err)
	r, err := http.NewRequestWithContext(t.Context(), method, u.String(), nil)
	require.NoError(t, err)
	r.Header.Set("X-API-Key", testKey)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
		r.Body = io.NopCloser(strings.NewReader(body))
		r.ContentLength = int64(len(body))
	}
	return r
}

// TestChecker shows that the check can fail: each request has one flaw, and
// that flaw is reported and nothing else.
func TestChecker(t *testing.T) {
	s := requestSpec(t)
	const id = "i0123456789abcdefghij"
	tests := []struct {
		name           string
		method, target string
		body           string
		change         func(*http.Request)
		want           []string // Where of each violation
	}{
		{name: "create", method: "POST", target: "/sandboxes", body: `{"templateID":"base","timeout":300,"secure":true,"metadata":{"a":"b"}}`},
		{name: "create without body", method: "POST", target: "/sandboxes", want: []string{"body"}},
		{name: "create without template", method: "POST", target: "/sandboxes", body: `{"timeout":300}`, want: []string{"body /templateID"}},
		{name: "create with text timeout", method: "POST", target: "/sandboxes", body: `{"templateID":"base","timeout":"300"}`, want: []string{"body /timeout"}},
		{name: "create with half a second", method: "POST", target: "/sandboxes", body: `{"templateID":"base","timeout":1.5}`, want: []string{"body /timeout"}},
		{name: "create with a negative timeout", method: "POST", target: "/sandboxes", body: `{"templateID":"base","timeout":-1}`, want: []string{"body /timeout"}},
		{name: "create with a timeout above int32", method: "POST", target: "/sandboxes", body: `{"templateID":"base","timeout":2147483648}`, want: []string{"body /timeout"}},
		{name: "create with an unknown field", method: "POST", target: "/sandboxes", body: `{"templateID":"base","autopause":true}`, want: []string{"body /autopause"}},
		{name: "create with an unknown nested field", method: "POST", target: "/sandboxes", body: `{"templateID":"base","autoResume":{"enabled":true,"timeout":1}}`, want: []string{"body /autoResume/timeout"}},
		{name: "create with half a nested object", method: "POST", target: "/sandboxes", body: `{"templateID":"base","autoResume":{}}`, want: []string{"body /autoResume/enabled"}},
		{name: "create with null", method: "POST", target: "/sandboxes", body: `{"templateID":"base","metadata":null}`, want: []string{"body /metadata"}},
		{name: "create with a number in the metadata", method: "POST", target: "/sandboxes", body: `{"templateID":"base","metadata":{"a":1}}`, want: []string{"body /metadata/a"}},
		{name: "create with two flaws", method: "POST", target: "/sandboxes", body: `{"templateID":1,"timeout":true}`, want: []string{"body /templateID", "body /timeout"}},
		{name: "create with broken JSON", method: "POST", target: "/sandboxes", body: `{"templateID":"base"`, want: []string{"body"}},
		{
			name: "create without content type", method: "POST", target: "/sandboxes", body: `{"templateID":"base"}`,
			change: func(r *http.Request) { r.Header.Del("Content-Type") }, want: []string{"body"},
		},
		{
			name: "create without a key", method: "POST", target: "/sandboxes", body: `{"templateID":"base"}`,
			change: func(r *http.Request) { r.Header.Del("X-API-Key") }, want: []string{"security"},
		},
		{
			name: "create with another key", method: "POST", target: "/sandboxes", body: `{"templateID":"base"}`,
			change: func(r *http.Request) { r.Header.Set("X-API-Key", "e2b_00") }, want: []string{"security"},
		},
		{name: "v2 create", method: "POST", target: "/v2/sandboxes", body: `{"templateID":"base","timeout":300}`},
		{name: "v2 create with secure", method: "POST", target: "/v2/sandboxes", body: `{"templateID":"base","secure":true}`, want: []string{"body /secure"}},
		{name: "connect", method: "POST", target: "/sandboxes/" + id + "/connect", body: `{"timeout":300}`},
		{name: "connect without timeout", method: "POST", target: "/sandboxes/" + id + "/connect", body: `{}`, want: []string{"body /timeout"}},
		{name: "connect without body", method: "POST", target: "/sandboxes/" + id + "/connect", want: []string{"body"}},
		{name: "connect with memory", method: "POST", target: "/sandboxes/" + id + "/connect", body: `{"timeout":300,"memory":false}`, want: []string{"body /memory"}},
		{name: "v2 connect", method: "POST", target: "/v2/sandboxes/" + id + "/connect", body: `{"timeout":300}`},
		{name: "v2 connect with text", method: "POST", target: "/v2/sandboxes/" + id + "/connect", body: `{"timeout":"300"}`, want: []string{"body /timeout"}},
		{name: "pause", method: "POST", target: "/sandboxes/" + id + "/pause"},
		{name: "pause to disk", method: "POST", target: "/sandboxes/" + id + "/pause", body: `{"memory":false}`},
		{name: "pause with a typo", method: "POST", target: "/sandboxes/" + id + "/pause", body: `{"memoy":false}`, want: []string{"body /memoy"}},
		{name: "timeout", method: "POST", target: "/sandboxes/" + id + "/timeout", body: `{"timeout":60}`},
		{name: "timeout with null", method: "POST", target: "/sandboxes/" + id + "/timeout", body: `{"timeout":null}`, want: []string{"body /timeout"}},
		{name: "kill", method: "DELETE", target: "/sandboxes/" + id},
		{name: "kill with a body", method: "DELETE", target: "/sandboxes/" + id, body: `{}`, want: []string{"body"}},
		{name: "info", method: "GET", target: "/sandboxes/" + id},
		{name: "info with a query", method: "GET", target: "/sandboxes/" + id + "?verbose=1", want: []string{"query verbose"}},
		{name: "list", method: "GET", target: "/v2/sandboxes?state=running,paused&limit=100&order=asc&template=base&startedAfter=2026-11-01T00:00:00Z&nextToken=a%3D&metadata=a%3Db"},
		{name: "list with a repeated state", method: "GET", target: "/v2/sandboxes?state=running&state=paused", want: []string{"query state"}},
		{name: "list with an unknown state", method: "GET", target: "/v2/sandboxes?state=running,gone", want: []string{"query state /1"}},
		{name: "list with an unknown order", method: "GET", target: "/v2/sandboxes?order=up", want: []string{"query order"}},
		{name: "list with limit zero", method: "GET", target: "/v2/sandboxes?limit=0", want: []string{"query limit"}},
		{name: "list with limit 101", method: "GET", target: "/v2/sandboxes?limit=101", want: []string{"query limit"}},
		{name: "list with a date", method: "GET", target: "/v2/sandboxes?startedAfter=2026-11-01", want: []string{"query startedAfter"}},
		{name: "v1 list", method: "GET", target: "/sandboxes?metadata=a%3Db"},
		{name: "v1 list with a state", method: "GET", target: "/sandboxes?state=running", want: []string{"query state"}},
		{name: "unknown route", method: "GET", target: "/sandbox", want: []string{"route"}},
		{name: "unknown method", method: "PATCH", target: "/sandboxes", want: []string{"route"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := request(t, tt.method, tt.target, tt.body)
			if tt.change != nil {
				tt.change(r)
			}
			_, found := s.checkRequest(r)
			var where []string
			for _, v := range found {
				where = append(where, v.Where)
			}
			require.Equal(t, tt.want, where, "%v", found)
			if r.Body != nil {
				left, err := io.ReadAll(r.Body)
				require.NoError(t, err)
				require.Equal(t, tt.body, string(left), "the check must leave the body as it was")
			}
		})
	}
}

func TestUnexplained(t *testing.T) {
	found := []violation{{"GET /a", "status 404", "not in the file"}, {"GET /a", "status 409", "not in the file"}}
	open, idle := unexplained(found, []difference{{"GET /a", "status 404", "r"}, {"GET /a", "status 500", "r"}})
	require.Equal(t, found[1:], open)
	require.Equal(t, []difference{{"GET /a", "status 500", "r"}}, idle)
}
