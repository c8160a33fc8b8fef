package e2b_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docPages are the pages of E2B's documentation that comments may name, below
// https://e2b.dev/docs/.
var docPages = []string{
	"api-key", "api-reference", "code-interpreting", "code-interpreting/contexts", "code-interpreting/streaming",
	"commands", "commands/background", "filesystem", "filesystem/download", "filesystem/read-write", "filesystem/upload",
	"filesystem/watch", "mcp", "sandbox", "sandbox/connect", "sandbox/internet-access", "sandbox/list", "sandbox/metrics",
	"sandbox/persistence", "sandbox/pty", "sandbox/snapshots", "volumes",
}

// withoutPage are the exported types that neither name a page nor are taken or
// returned by a call that does, and why.
var withoutPage = map[string]string{
	"APIError":            "an error of any call",
	"ExitError":           "an error of the calls of Commands",
	"OutcomeUnknownError": "an error of any call that makes something",
	"WriteAllError":       "an error of Files.WriteAll",
	"ExecutionError":      "in Execution",
	"CodeResult":          "in Execution",
	"CodePart":            "made of an Execution",
	"ChartType":           "in Chart",
	"ChartAxis":           "in Chart",
	"ChartSeries":         "in Chart",
	"ChartPoint":          "in Chart",
	"ChartBarItem":        "in Chart",
	"ChartSlice":          "in Chart",
	"ChartBox":            "in Chart",
	"ChartValue":          "in Chart",
	"FileOp":              "in FileEvent",
	"OnResume":            "in ConnectOptions",
	"TimeoutAction":       "in CreateOptions",
	"State":               "in SandboxInfo",
}

// TestDocCalls wants every function that takes a ctx to name a page and to tell its
// errors, or whose they are. One without ctx that names a page and can fail tells its
// errors too.
func TestDocCalls(t *testing.T) {
	t.Parallel()
	d := readDocs(t)
	calls := 0
	for _, name := range slices.Sorted(maps.Keys(d.funcs)) {
		f := d.funcs[name]
		if has(f.Decl.Type.Params, "context.Context") {
			calls++
			assert.Regexp(t, docLink, f.Doc, "%s names no page of E2B's documentation", name)
		} else if !docLink.MatchString(f.Doc) || !has(f.Decl.Type.Results, "error") {
			continue
		}
		assert.Empty(t, d.errorsOf(name, nil), "the errors of %s", name)
	}
	assert.Greater(t, calls, 90)
}

// TestDocTypes wants a page for every type, at the type or at a call of it.
func TestDocTypes(t *testing.T) {
	t.Parallel()
	d := readDocs(t)
	linked := map[string]bool{}
	for _, typ := range d.pkg.Types {
		linked[typ.Name] = docLink.MatchString(typ.Doc)
	}
	for _, f := range d.funcs {
		if docLink.MatchString(f.Doc) {
			ast.Inspect(f.Decl.Type, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					linked[id.Name] = true
				}
				return true
			})
		}
	}
	for _, typ := range d.pkg.Types {
		_, excused := withoutPage[typ.Name]
		assert.NotEqual(t, linked[typ.Name], excused, "%s: names a page %t, is in withoutPage %t", typ.Name, linked[typ.Name], excused)
	}
	for name := range withoutPage {
		assert.Contains(t, linked, name, "withoutPage has what is no type")
	}
}

// TestDocPages lets comments name only pages that there are.
func TestDocPages(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for name, text := range readDocs(t).comments() {
		for _, m := range docURL.FindAllString(text, -1) {
			page, ok := strings.CutPrefix(strings.TrimSuffix(m, "."), "https://e2b.dev/docs/")
			assert.True(t, ok && slices.Contains(docPages, page), "%s names the page %s", name, m)
			used[page] = true
		}
	}
	for _, page := range docPages {
		assert.True(t, used[page], "no comment names the page %s", page)
	}
}

// TestDocErrorNames lets comments name only errors that there are.
func TestDocErrorNames(t *testing.T) {
	t.Parallel()
	d := readDocs(t)
	kinds := map[string]bool{
		"fs.ErrNotExist": true, "fs.ErrExist": true, "fs.ErrPermission": true,
	}
	for _, v := range d.pkg.Vars {
		for _, name := range v.Names {
			kinds[name] = true
		}
	}
	require.True(t, kinds["ErrNotFound"])
	for name, text := range d.comments() {
		for _, kind := range docKind.FindAllString(text, -1) {
			assert.True(t, kinds[kind], "%s names %s", name, kind)
		}
	}
}

// TestDocNumbers wants a comment, which tells unit and default, at every field that
// is a duration, and at every number that a caller can set.
func TestDocNumbers(t *testing.T) {
	t.Parallel()
	number := regexp.MustCompile(`^\*?(u?int|float)\d*$`)
	seen := 0
	for _, typ := range readDocs(t).pkg.Types {
		spec, ok := typ.Decl.Specs[0].(*ast.TypeSpec)
		require.True(t, ok)
		s, ok := spec.Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, field := range s.Fields.List {
			is := typeName(field.Type)
			if is != "time.Duration" && (!number.MatchString(is) || !strings.HasSuffix(typ.Name, "Options")) {
				continue
			}
			for _, name := range field.Names {
				seen++
				assert.NotEmpty(t, field.Doc.Text()+field.Comment.Text(), "%s.%s says no unit and no default", typ.Name, name)
			}
		}
	}
	assert.Greater(t, seen, 20)
}

var (
	docLink = regexp.MustCompile(`https://e2b\.dev/docs/`)
	docURL  = regexp.MustCompile(`https?://(?:www\.)?e2b\.dev\S*`)
	// docErrors is the paragraph of a comment that tells errors.
	docErrors = regexp.MustCompile(`(?ms)^Errors(?:,|:| of ).*?(?:\n\n|\z)`)
	docKind   = regexp.MustCompile(`\b(?:[a-z]+\.)?Err[A-Z]\w*`)
	// docSame is the beginning of the comment of a method that is another one.
	docSame = regexp.MustCompile(`\A\w+ (?:is|does what) (` + docName + `) (?:for|does) `)
	// docAs is where a paragraph on errors refers to others.
	docAs = regexp.MustCompile(`\bas (` + docName + `)(?: and (` + docName + `))?`)
)

const docName = `(?:[A-Z]\w*\.)?[A-Z]\w*`

// docs is what go doc shows of this package.
type docs struct {
	pkg   *doc.Package
	funcs map[string]*doc.Func // by Name or Type.Name
}

func readDocs(t *testing.T) *docs {
	t.Helper()
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, file)
	}
	d := &docs{funcs: map[string]*doc.Func{}}
	d.pkg, err = doc.NewFromFiles(fset, files, "github.com/seed-09a7379d/e2b-go")
	require.NoError(t, err)
	add := func(funcs []*doc.Func) {
		for _, f := range funcs {
			name := f.Name
			if f.Recv != "" {
				name = strings.TrimPrefix(f.Recv, "*") + "." + name
			}
			d.funcs[name] = f
		}
	}
	add(d.pkg.Funcs)
	for _, typ := range d.pkg.Types {
		add(typ.Funcs)
		add(typ.Methods)
	}
	return d
}

// comments returns what go doc shows, but for the fields of structs, by name.
func (d *docs) comments() map[string]string {
	out := map[string]string{"package": d.pkg.Doc}
	for _, v := range slices.Concat(d.pkg.Consts, d.pkg.Vars) {
		out[v.Names[0]] = v.Doc
	}
	for name, f := range d.funcs {
		out[name] = f.Doc
	}
	for _, typ := range d.pkg.Types {
		out["type "+typ.Name] = typ.Doc
		for _, v := range typ.Consts {
			out[v.Names[0]] = v.Doc
		}
	}
	return out
}

// errorsOf returns what is wrong with how a call tells its errors. A comment may
// refer to another call, which then must tell them; above are those that lead here.
func (d *docs) errorsOf(name string, above []string) (problem string) {
	f := d.funcs[name]
	switch {
	case f == nil:
		return name + " is no call"
	case slices.Contains(above, name):
		return name + " refers to itself"
	}
	text := docErrors.FindString(f.Doc)
	others := docAs.FindAllStringSubmatch(text, -1)
	if same := docSame.FindStringSubmatch(f.Doc); text == "" && same != nil {
		others = [][]string{same}
	}
	if len(others) == 0 && !docKind.MatchString(text) {
		return name + " does not tell them"
	}
	for _, names := range others {
		for _, other := range names[1:] {
			if other == "" {
				continue
			}
			if typ, _, ok := strings.Cut(name, "."); ok && !strings.Contains(other, ".") {
				other = typ + "." + other
			}
			if problem := d.errorsOf(other, append(above, name)); problem != "" {
				return problem
			}
		}
	}
	return ""
}

// has reports whether parameters or results are of a type.
func has(list *ast.FieldList, name string) bool {
	return list != nil && slices.ContainsFunc(list.List, func(f *ast.Field) bool { return typeName(f.Type) == name })
}

// typeName is a type as it is written, if it is a name or a pointer to one.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return "*" + typeName(e.X)
	case *ast.SelectorExpr:
		return typeName(e.X) + "." + e.Sel.Name
	}
	return ""
}
