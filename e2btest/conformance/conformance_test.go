//go:build linux

package conformance_test

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest"
	"github.com/seed-09a7379d/e2b-go/e2btest/conformance"
)

func target(s *e2btest.Server) conformance.Target {
	return conformance.Target{APIKey: s.APIKey(), APIURL: s.APIURL(), SandboxURL: s.SandboxURL(), Domain: s.Domain()}
}

// run runs a part of the kit against a server.
func run(t *testing.T, s *e2btest.Server, checks string) *conformance.Report {
	t.Helper()
	report, err := conformance.Run(t.Context(), target(s), &conformance.Options{Checks: regexp.MustCompile(checks)})
	require.NoError(t, err)
	return report
}

// with returns the names of the checks with an outcome.
func with(r *conformance.Report, o conformance.Outcome) []string {
	var names []string
	for _, res := range r.Results {
		if res.Outcome == o {
			names = append(names, res.Name)
		}
	}
	slices.Sort(names)
	return names
}

func text(t *testing.T, r *conformance.Report) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, r.WriteText(&b))
	return b.String()
}

// nothingLeft holds that a server has no sandbox, no snapshot and no volume.
func nothingLeft(t *testing.T, s *e2btest.Server) {
	t.Helper()
	for _, sandbox := range s.Sandboxes() {
		require.Equal(t, "gone", sandbox.State, sandbox.ID)
	}
	for _, path := range []string{"/v2/sandboxes", "/snapshots", "/volumes"} {
		require.Equal(t, "[]", get(t, s, path), path)
	}
}

// The whole kit, of which the emulator supports all but what the documentation lists.
func TestEmulator(t *testing.T) {
	server, _ := e2btest.New(t, nil)
	lacks := map[string]bool{
		"team/events":            true,
		"interpreter/dataframe":  !hasModule(t, server, "pandas"),
		"interpreter/chart":      !hasModule(t, server, "matplotlib"),
		"interpreter/javascript": !has("node"),
	}
	var want []string
	for name, missing := range lacks {
		if missing {
			want = append(want, name)
		}
	}
	slices.Sort(want)

	report, err := conformance.Run(t.Context(), target(server), nil)
	require.NoError(t, err)
	isolated, _ := server.Isolated()
	if isolated {
		require.Empty(t, with(report, conformance.Fail), text(t, report))
	} else { // all commands run as this process's user there
		require.Equal(t, []string{"envd/user"}, with(report, conformance.Fail), text(t, report))
	}
	require.Equal(t, isolated, report.OK())
	require.Empty(t, with(report, conformance.NotRun), text(t, report))
	require.Equal(t, want, with(report, conformance.Unsupported), text(t, report))
	require.Len(t, report.Results, len(conformance.Checks()))
	require.Empty(t, report.Left)
	require.Len(t, server.Sandboxes(), report.Sandboxes)
	nothingLeft(t, server)

	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	for _, documented := range regexp.MustCompile(`(?m)^//   - (\w+/\w+):`).FindAllSubmatch(doc, -1) {
		require.Contains(t, lacks, string(documented[1]))
		delete(lacks, string(documented[1]))
	}
	require.Empty(t, lacks, "not documented")
}

func has(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

func hasModule(t *testing.T, s *e2btest.Server, name string) bool {
	t.Helper()
	python, err := s.Python()
	require.NoError(t, err)
	return exec.CommandContext(t.Context(), python, "-c", "import "+name).Run() == nil
}

// Servers with one generation of the routes for create and connect are checked by it.
func TestRoutes(t *testing.T) {
	const checks = "^lifecycle/(create|connect|timeout-bounds)|^errors/"
	for routes, missing := range map[e2btest.Routes]string{e2btest.V1Routes: "lifecycle/create-v2", e2btest.V2Routes: "lifecycle/create-v1"} {
		server, _ := e2btest.New(t, &e2btest.Options{Routes: routes})
		report := run(t, server, checks)
		require.Empty(t, with(report, conformance.Fail), text(t, report))
		require.Equal(t, []string{missing}, with(report, conformance.Unsupported))
	}
}
