package contract

import (
	"fmt"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// calls are the operations that the SDK sends, and by which calls. Of two forms of
// one operation the SDK sends the second where the server lacks the first.
var calls = []struct {
	operations []string
	call       string
}{
	{[]string{"POST /sandboxes", "POST /v2/sandboxes"}, "`Create`, `BetaCreate`"},
	{[]string{"POST /sandboxes/{sandboxID}/connect", "POST /v2/sandboxes/{sandboxID}/connect"}, "`Connect`"},
	{[]string{"POST /sandboxes/{sandboxID}/pause"}, "`Pause`, `BetaPause`"},
	{[]string{"DELETE /sandboxes/{sandboxID}"}, "`Kill`"},
	{[]string{"POST /sandboxes/{sandboxID}/timeout"}, "`SetTimeout`"},
	{[]string{"POST /sandboxes/{sandboxID}/refreshes"}, "`Refresh`"},
	{[]string{"GET /sandboxes/{sandboxID}"}, "`Info`, `IsRunning`"},
	{[]string{"GET /v2/sandboxes", "GET /sandboxes"}, "`List`, `ListPage`"},
	{[]string{"POST /sandboxes/{sandboxID}/snapshots"}, "`Snapshot`"},
	{[]string{"GET /snapshots"}, "`Snapshots`, `SnapshotsPage`"},
	{[]string{"DELETE /templates/{templateID}"}, "`DeleteSnapshot`"},
	{[]string{"POST /sandboxes/{sandboxID}/fork"}, "`Fork`"},
	{[]string{"PUT /sandboxes/{sandboxID}/network"}, "`SetNetwork`, `UpdateNetwork`"},
	{[]string{"GET /sandboxes/{sandboxID}/metrics", "GET /sandboxes/metrics"}, "`Metrics`; `MetricsOf`"},
	{[]string{"GET /teams/{teamID}/metrics", "GET /teams/{teamID}/metrics/max"}, "`TeamMetrics`; `TeamMetricsMax`"},
	{[]string{"GET /v2/sandboxes/{sandboxID}/logs", "GET /sandboxes/{sandboxID}/logs"}, "`Logs`, `FollowLogs`"},
	{[]string{"POST /volumes", "GET /volumes"}, "`CreateVolume`; `Volumes`"},
	{[]string{"GET /volumes/{volumeID}", "DELETE /volumes/{volumeID}"}, "`Volume`; `DeleteVolume`"},
	{[]string{"POST /secrets", "GET /secrets"}, "`CreateSecret`; `Secrets`, `SecretsPage`"},
	{[]string{"GET /secrets/{secretID}", "POST /secrets/{secretID}", "DELETE /secrets/{secretID}"}, "`Secret`; `UpdateSecret`; `DeleteSecret`"},
}

// leftOut are the operations that the SDK does not send, by patterns of their
// paths, and why.
var leftOut = []struct {
	paths []string
	why   string
}{
	{[]string{"/sandboxes/*/resume"}, "deprecated: `Connect` does the same"},
	{[]string{"/health"}, "about E2B, not about a sandbox"},
	{[]string{"/teams"}, "an API key has one team; needs another kind of credential"},
	{
		[]string{"/templates", "/templates/*", "/templates/*/*", "/templates/*/*/*", "/templates/*/*/*/*", "/v2/templates", "/v2/templates/*", "/v2/templates/*/*/*", "/v3/templates"},
		"building templates is for E2B's own tools",
	},
	{[]string{"/nodes", "/nodes/*", "/admin/*/*", "/admin/*/*/*", "/admin/*/*/*/*"}, "for those who operate a cluster"},
	{[]string{"/access-tokens", "/access-tokens/*", "/api-keys", "/api-keys/*"}, "managing an account; needs another kind of credential"},
}

const (
	readme      = "../../README.md"
	parityBegin = "<!-- parity: written by make parity -->\n"
	parityEnd   = "<!-- end of parity -->\n"
)

// checkParity holds the README's table of routes against the file and against
// what the SDK was seen to send. With E2B_WRITE_PARITY=1 it writes the table.
func checkParity(t *testing.T, asked map[string]bool) {
	t.Helper()
	sent := map[string]bool{}
	for _, c := range calls {
		for _, operation := range c.operations {
			require.False(t, sent[operation], "%s is there twice", operation)
			sent[operation] = true
			require.True(t, asked[operation], "the SDK was not seen to send %s", operation)
		}
	}
	for operation := range asked {
		require.True(t, sent[operation], "%s is missing from calls", operation)
	}
	counts := make([]int, len(leftOut))
	doc := loadDoc(t)
	for name, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			operation := method + " " + name
			if sent[operation] {
				continue
			}
			i := reasonFor(name)
			require.GreaterOrEqual(t, i, 0, "%s is neither sent nor left out for a reason", operation)
			counts[i]++
		}
	}
	var table strings.Builder
	table.WriteString("| route | call |\n|---|---|\n")
	for _, c := range calls {
		fmt.Fprintf(&table, "| `%s` | %s |\n", strings.Join(c.operations, "`, `"), c.call)
	}
	table.WriteString("\n| left out | why |\n|---|---|\n")
	for i, l := range leftOut {
		require.Positive(t, counts[i], "nothing is left out because: %s", l.why)
		shown := fmt.Sprintf("`%s`", strings.Join(l.paths[:1], ""))
		if counts[i] > 1 {
			shown += fmt.Sprintf(" and what belongs to it, %d routes", counts[i])
		}
		fmt.Fprintf(&table, "| %s | %s |\n", shown, l.why)
	}
	b, err := os.ReadFile(readme)
	require.NoError(t, err)
	head, rest, ok := strings.Cut(string(b), parityBegin)
	require.True(t, ok, "the README has no place for the table")
	old, tail, ok := strings.Cut(rest, parityEnd)
	require.True(t, ok)
	if os.Getenv("E2B_WRITE_PARITY") == "1" {
		require.NoError(t, os.WriteFile(readme, []byte(head+parityBegin+table.String()+parityEnd+tail), 0o600))
		return
	}
	require.Equal(t, table.String(), old, "the README's table is not what the SDK does: make parity")
}

func reasonFor(name string) int {
	for i, l := range leftOut {
		for _, pattern := range l.paths {
			if ok, err := path.Match(pattern, name); err == nil && ok {
				return i
			}
		}
	}
	return -1
}
