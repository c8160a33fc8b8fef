//go:build linux

package mounts

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	got, err := parse(strings.NewReader(
		`26 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
40 30 0:37 /a\040b /sys/fs/c\134d ro,nosuid shared:9 master:1 - cgroup2 cgroup2 rw`))
	require.NoError(t, err)
	require.Equal(t, []Mount{
		{Root: "/", Path: "/", Options: []string{"rw", "relatime"}, Type: "ext4", Super: []string{"rw", "discard"}},
		{Root: "/a b", Path: `/sys/fs/c\d`, Options: []string{"ro", "nosuid"}, Type: "cgroup2", Super: []string{"rw"}},
	}, got)
}

func TestParseUnknownForm(t *testing.T) {
	for _, line := range []string{"\n", "26 1 254:0 / / rw\n", "26 1 254:0 / / rw -\n"} {
		_, err := parse(strings.NewReader(line))
		require.Error(t, err, "%q", line)
	}
}

func TestListHasRoot(t *testing.T) {
	got, err := List()
	require.NoError(t, err)
	paths := make([]string, 0, len(got))
	for _, m := range got {
		paths = append(paths, m.Path)
	}
	require.Contains(t, paths, "/")
}
