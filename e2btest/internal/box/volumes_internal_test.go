//go:build linux || darwin

package box

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// Whichever sandbox makes a volume, no other begins before all users can write to it.
func TestVolumeIsMadeOnce(t *testing.T) {
	n := &Node{dir: &ownedDir{path: t.TempDir()}, isolation: userNamespaces}
	n.config.OneUser = true
	for i := range 500 {
		v := node.Volume{ID: fmt.Sprint(i), Path: "/v"}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				_, err := n.volumes([]node.Volume{v})
				if err == nil {
					var info fs.FileInfo
					if info, err = os.Stat(filepath.Join(n.dir.path, volumesName, v.ID)); err == nil && info.Mode().Perm() != 0o777 {
						err = fmt.Errorf("mode %v", info.Mode())
					}
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.False(t, t.Failed())
	}
}
