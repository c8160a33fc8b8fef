package e2b_test

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

func TestQuote(t *testing.T) {
	t.Parallel()
	require.Empty(t, e2b.Quote())
	require.Equal(t, "''", e2b.Quote(""))
	require.Equal(t, "ls -l /tmp/a.txt", e2b.Quote("ls", "-l", "/tmp/a.txt"))
	require.Equal(t, `echo 'it'\''s $HOME' '*'`, e2b.Quote("echo", "it's $HOME", "*"))
}

// FuzzQuote has a real shell say what it made of the line.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "a", "a b", "it's", `"$HOME"`, "`id`", "\n", "!x", "~", "a\\", "-n", "ü\xff", "\x00", "{a,b}", "#c", "a=b", "[x]"} {
		f.Add(s, "x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		out, err := exec.Command("sh", "-c", "printf '%s\\0' "+e2b.Quote(a, b)).Output()
		require.NoError(t, err)
		want := strings.ReplaceAll(a, "\x00", "") + "\x00" + strings.ReplaceAll(b, "\x00", "") + "\x00"
		require.True(t, bytes.Equal([]byte(want), out), "%q became %q", want, out)
	})
}
