package e2b_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

const blockSize = 64 << 10

// blocks is a file of which each block begins with where it is. It looks at the
// memory now and then.
type blocks struct {
	at, size int64
	block    []byte // the one that at is in
	most     uint64
}

func (b *blocks) fill() {
	if b.block == nil {
		b.block = bytes.Repeat([]byte("0123456789abcdef"), blockSize/16)
	}
	binary.LittleEndian.PutUint64(b.block, uint64(b.at))
	if b.at&(32<<20-1) == 0 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.most = max(b.most, m.HeapInuse+m.StackInuse)
	}
}

func (b *blocks) Read(p []byte) (int, error) {
	if b.at == b.size {
		return 0, io.EOF
	}
	if b.at%blockSize == 0 {
		b.fill()
	}
	n := copy(p, b.block[b.at%blockSize:])
	b.at += int64(n)
	return n, nil
}

// check reads r to its end.
func (b *blocks) check(r io.Reader) error {
	got := make([]byte, blockSize)
	for {
		b.fill()
		n, err := io.ReadFull(r, got)
		// The race detector makes each look at a byte expensive.
		if n > 0 && (n != blockSize || !bytes.Equal(got[:64], b.block[:64]) || !bytes.Equal(got[n-64:], b.block[n-64:])) {
			return fmt.Errorf("something else after %d bytes", b.at)
		}
		b.at += int64(n)
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// A gigabyte goes up and down in little memory; a quarter of one where the race
// detector is at work.
func TestGigabyte(t *testing.T) {
	const ceiling = 64 << 20
	size := int64(1 << 30)
	if raceEnabled {
		size /= 4
	}
	f := newFakeSandbox()
	received := make(chan error, 1)
	f.files = func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			got := &blocks{}
			err := got.check(r.Body)
			if err == nil && got.at != size {
				err = fmt.Errorf("%d bytes", got.at)
			}
			received <- err
			write(w, []byte("[]"))
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(size))
		_, err := io.Copy(w, &blocks{size: size})
		received <- err
	}
	sbx := f.onLoopback(t)
	runtime.GC()
	start := &blocks{}
	start.fill()

	up := &blocks{size: size}
	require.NoError(t, sbx.Files.WriteFrom(t.Context(), "x", up, nil))
	require.NoError(t, <-received)
	require.Less(t, up.most, start.most+ceiling)

	r, err := sbx.Files.Open(t.Context(), "x", nil)
	require.NoError(t, err)
	down := &blocks{}
	require.NoError(t, down.check(r))
	require.NoError(t, r.Close())
	require.NoError(t, <-received)
	require.Equal(t, size, down.at)
	require.Less(t, down.most, start.most+ceiling)
}

// A listing of 20,000 entries comes whole.
func TestLargeListing(t *testing.T) {
	t.Parallel()
	_, _, sbx := newSandbox(t, nil)
	run(t, sbx, "mkdir many && cd many && seq -f f%05g 20000 | xargs touch")
	list, err := sbx.Files.List(t.Context(), "many", nil)
	require.NoError(t, err)
	require.Len(t, list, 20_000)
	for i, info := range list {
		require.Equal(t, fmt.Sprintf("f%05d", i+1), info.Name)
	}
	var deep []e2b.FileInfo
	deep, err = sbx.Files.List(t.Context(), ".", &e2b.ListDirOptions{Depth: 2})
	require.NoError(t, err)
	require.Greater(t, len(deep), 20_000)
}
