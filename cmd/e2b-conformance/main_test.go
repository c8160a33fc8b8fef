package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-09a7379d/e2b-go/e2btest/conformance"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// call runs the program.
func call(t *testing.T, env map[string]string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	status = run(t.Context(), args, func(name string) string { return env[name] }, &out, &errs)
	return status, out.String(), errs.String()
}

// server refuses all requests without a key as E2B does.
func server(t *testing.T) map[string]string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		if r.Header.Get("X-API-Key") == "" {
			_, _ = w.Write([]byte(`{"code":401,"message":"authorization header is missing"}`))
		}
	}))
	t.Cleanup(s.Close)
	return map[string]string{"E2B_API_KEY": "e2b_0", "E2B_API_URL": s.URL, "E2B_SANDBOX_URL": s.URL}
}

func TestPassed(t *testing.T) {
	status, out, errs := call(t, server(t), "-run", "^errors/no-key$")
	require.Zero(t, status)
	require.Empty(t, errs)
	require.Contains(t, out, "pass         errors/no-key\n1 checks in ")
}

func TestFailed(t *testing.T) {
	status, out, _ := call(t, server(t), "-run", "^errors/(no-key|unknown-key)$", "-json")
	require.Equal(t, 1, status)
	var report conformance.Report
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.Equal(t, 1, report.Count(conformance.Pass))
	require.Equal(t, 1, report.Count(conformance.Fail))
	require.Equal(t, "401", report.Results[1].Seen)
}

func TestWrongCalls(t *testing.T) {
	for want, args := range map[string][]string{
		"unexpected argument": {"x"},
		"not defined":         {"-x"},
		"error parsing":       {"-run", "("},
		"set $E2B_API_KEY":    nil,
	} {
		status, out, errs := call(t, nil, args...)
		require.Equal(t, 2, status)
		require.Empty(t, out)
		require.Contains(t, errs, want)
	}
	status, _, errs := call(t, map[string]string{"E2B_API_KEY": "x"}, "-parallel", "-1")
	require.Equal(t, 2, status)
	require.Contains(t, errs, "Options.Parallel is negative")
}

func TestNoSuchCheck(t *testing.T) {
	status, out, errs := call(t, map[string]string{"E2B_API_KEY": "x"}, "-run", "^nothing$")
	require.Equal(t, 2, status)
	require.Empty(t, out)
	require.Contains(t, errs, "no check has a name that ^nothing$ matches")
}

func TestList(t *testing.T) {
	status, out, _ := call(t, nil, "-list")
	require.Zero(t, status)
	require.Equal(t, conformance.Checks(), strings.Fields(out))
	status, _, errs := call(t, nil, "-help")
	require.Zero(t, status)
	require.Contains(t, errs, "-code-template")
	require.Contains(t, errs, "$E2B_API_URL")
}
