package box

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/agent/mounts"
)

func TestFindCgroup(t *testing.T) {
	tmpfs := mounts.Mount{Root: "/", Path: "/sys/fs/cgroup", Type: "tmpfs"}
	for name, c := range map[string]struct {
		mounts      []mounts.Mount
		memberships string
		want        string // empty: an error
		controller  string
	}{
		"usual": {
			[]mounts.Mount{{Root: "/", Path: "/sys/fs/cgroup", Type: "cgroup2"}},
			"0::/user.slice/session-1.scope\n",
			"/sys/fs/cgroup/user.slice/session-1.scope", "",
		},
		"hybrid": {
			[]mounts.Mount{tmpfs, {Root: "/", Path: "/sys/fs/cgroup/unified", Type: "cgroup2"}},
			"4:memory:/a\n0::/\n",
			"/sys/fs/cgroup/unified", "",
		},
		"part is mounted": {
			[]mounts.Mount{{Root: "/docker/1", Path: "/sys/fs/cgroup", Type: "cgroup2"}},
			"0::/docker/1/x\n",
			"/sys/fs/cgroup/x", "",
		},
		"that part": {
			[]mounts.Mount{{Root: "/docker/1", Path: "/sys/fs/cgroup", Type: "cgroup2"}},
			"0::/docker/1\n",
			"/sys/fs/cgroup", "",
		},
		"another part": {
			[]mounts.Mount{{Root: "/docker/1", Path: "/sys/fs/cgroup", Type: "cgroup2"}},
			"0::/docker/10\n",
			"", "",
		},
		"outside of the namespace": {
			[]mounts.Mount{{Root: "/..", Path: "/sys/fs/cgroup", Type: "cgroup2"}},
			"0::/\n",
			"", "",
		},
		"version 1": {[]mounts.Mount{tmpfs}, "4:memory:/a\n", "", ""},
		"none":      {nil, "", "", ""},
		"pids": {
			[]mounts.Mount{
				{Root: "/", Path: "/sys/fs/cgroup/cpu", Type: "cgroup", Super: []string{"rw", "cpu"}},
				{Root: "/", Path: "/sys/fs/cgroup/pids", Type: "cgroup", Super: []string{"rw", "memory", "pids"}},
				{Root: "/", Path: "/sys/fs/cgroup/unified", Type: "cgroup2", Super: []string{"rw"}},
			},
			"4:memory,pids:/a\n3:cpu:/b\n0::/c\n",
			"/sys/fs/cgroup/pids/a", "pids",
		},
		"another controller": {
			[]mounts.Mount{{Root: "/", Path: "/sys/fs/cgroup/cpu", Type: "cgroup", Super: []string{"rw", "cpu"}}},
			"3:cpu:/b\n0::/c\n",
			"", "pids",
		},
		"a controller of version 2": {
			[]mounts.Mount{{Root: "/", Path: "/sys/fs/cgroup", Type: "cgroup2", Super: []string{"rw"}}},
			"0::/c\n",
			"", "pids",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, err := findCgroup(c.mounts, c.memberships, c.controller)
			require.Equal(t, c.want, got)
			require.Equal(t, c.want == "", err != nil, "%v", err)
		})
	}
}

// Groups are made beside each other, though each maker looks for those that are
// abandoned, as all are until they are locked.
func TestMakeCgroupsAtOnce(t *testing.T) {
	own, _, err := ownCgroup("")
	if errors.Is(err, errNotMounted) {
		t.Skip(err)
	}
	require.NoError(t, err)
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for j := range 50 {
				g, err := makeCgroups(own, fmt.Sprintf("e2btest-at-once-%d-%d", i, j), "cgroup.procs")
				if err == nil {
					err = g.remove()
				}
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	wg.Wait()
	err = errors.Join(errs...)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		t.Skip("this user makes no control groups on this system: ", err)
	}
	require.NoError(t, err)
}
