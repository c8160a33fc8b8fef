package envd

import (
	"fmt"
	"maps"
	"net/http"
	unixpath "path"
	"slices"
	"strings"
	"sync"
)

const (
	metadataHeader   = "X-Metadata-"
	metadataAttr     = "user.e2b."
	maxMetadataKey   = 246
	maxMetadataTotal = 4096
)

// metadataFrom reads what an upload wants to have kept with the file.
func metadataFrom(h http.Header) (map[string]string, error) {
	md := make(map[string]string)
	total := 0
	for _, name := range slices.Sorted(maps.Keys(h)) {
		key, ok := strings.CutPrefix(name, metadataHeader)
		if !ok || key == "" {
			continue
		}
		key, value := strings.ToLower(key), h[name][0]
		if len(key) > maxMetadataKey {
			return nil, fmt.Errorf("metadata key %q exceeds %d bytes", key, maxMetadataKey)
		}
		for i := range len(value) {
			if c := value[i]; c < ' ' || c > '~' {
				return nil, fmt.Errorf("metadata value for key %q contains non-printable-ASCII byte %#02x at offset %d", key, c, i)
			}
		}
		total += len(metadataAttr) + len(key) + len(value)
		md[key] = value
	}
	if total > maxMetadataTotal {
		return nil, fmt.Errorf("total metadata size %d exceeds %d bytes", total, maxMetadataTotal)
	}
	return md, nil
}

// An attrReader reads extended attributes. Given no buffer, its methods return
// the size of the answer.
type attrReader interface {
	list(buf []byte) (int, error)
	get(name string, buf []byte) (int, error)
}

// readAttrs returns the metadata among the extended attributes, without prefix.
func readAttrs(r attrReader) (map[string]string, error) {
	names, err := readAttr(r.list)
	if err != nil {
		return nil, err
	}
	var md map[string]string
	for name := range strings.SplitSeq(string(names), "\x00") {
		key, ok := strings.CutPrefix(name, metadataAttr)
		if !ok {
			continue
		}
		value, err := readAttr(func(buf []byte) (int, error) { return r.get(name, buf) })
		if err != nil {
			continue // removed since it was listed
		}
		if md == nil {
			md = make(map[string]string)
		}
		md[key] = string(value)
	}
	return md, nil
}

func readAttr(read func([]byte) (int, error)) ([]byte, error) {
	var small [1024]byte
	if n, err := read(small[:]); err == nil {
		return slices.Clone(small[:n]), nil
	}
	n, err := read(nil)
	if err != nil || n == 0 {
		return nil, err
	}
	buf := make([]byte, n)
	n, err = read(buf)
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}

// writeAttrs makes md the metadata of the file.
func writeAttrs(a fileAttrs, md map[string]string) error {
	old, err := readAttrs(a)
	if err != nil {
		return err
	}
	for key := range old {
		if _, keep := md[key]; !keep {
			if err := a.remove(metadataAttr + key); err != nil {
				return err
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(md)) {
		if err := a.set(metadataAttr+key, md[key]); err != nil {
			return err
		}
	}
	return nil
}

// memoryAttrs keeps the metadata of files whose file system cannot. It knows
// them by name, so what a command moves loses it.
type memoryAttrs struct {
	mu    sync.Mutex
	files map[string]map[string]string
}

func (m *memoryAttrs) get(name string) map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.files[unixpath.Clean(name)]
}

func (m *memoryAttrs) set(name string, md map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(md) == 0 {
		delete(m.files, unixpath.Clean(name))
		return
	}
	if m.files == nil {
		m.files = make(map[string]map[string]string)
	}
	m.files[unixpath.Clean(name)] = md
}

// move renames a file or a directory; to == "" forgets it.
func (m *memoryAttrs) move(from, to string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	moved := make(map[string]map[string]string)
	for name, md := range m.files {
		if rest, ok := relative(unixpath.Clean(from), name); ok {
			delete(m.files, name)
			if to != "" {
				moved[unixpath.Join(to, rest)] = md
			}
		}
	}
	maps.Copy(m.files, moved)
}

// metadata returns what is kept with a regular file or a directory.
func (s *Server) metadata(name string) map[string]string {
	md, err := s.tree.attrs(name)
	if err != nil && attrsUnsupported(err) {
		return s.memory.get(name)
	}
	return md // a file that cannot be read has none
}

// setMetadata keeps md with the open file.
func (s *Server) setMetadata(name string, f file, md map[string]string) error {
	err := s.tree.setAttrs(f, md)
	if err != nil && attrsUnsupported(err) {
		s.memory.set(name, md)
		return nil
	}
	return err
}
