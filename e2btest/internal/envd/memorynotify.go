package envd

import (
	"maps"
	unixpath "path"
	"slices"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// maxNotified is how many events wait in a memoryNotifier before they are lost, as
// many as Linux has by default.
const maxNotified = 16384

// A memoryNotifier tells of changes in directories of a Memory.
type memoryNotifier struct {
	tree *Memory
	out  chan fsnotify.Event
	errs chan error
	some chan struct{} // filled when the queue has something
	done chan struct{} // closed by Close
	once sync.Once
	sent sync.WaitGroup

	// Guarded by the mutex of the tree.
	dirs  map[string]struct{}
	queue []fsnotify.Event
}

func (m *Memory) notifier() (notifier, error) {
	n := &memoryNotifier{
		tree: m,
		out:  make(chan fsnotify.Event), errs: make(chan error, 1),
		some: make(chan struct{}, 1), done: make(chan struct{}),
		dirs: make(map[string]struct{}),
	}
	m.mu.Lock()
	m.notifiers[n] = struct{}{}
	m.mu.Unlock()
	n.sent.Go(n.send)
	return n, nil
}

// send passes on what is queued until Close.
func (n *memoryNotifier) send() {
	for {
		select {
		case <-n.some:
		case <-n.done:
			return
		}
		for _, e := range n.take() {
			select {
			case n.out <- e:
			case <-n.done:
				return
			}
		}
	}
}

func (n *memoryNotifier) take() []fsnotify.Event {
	n.tree.mu.Lock()
	defer n.tree.mu.Unlock()
	queue := n.queue
	n.queue = nil
	return queue
}

func (n *memoryNotifier) Add(dir string) error {
	return n.tree.do("watch", dir, func() error {
		if _, err := n.tree.lookup(dir); err != nil {
			return err
		}
		n.dirs[unixpath.Clean(dir)] = struct{}{}
		return nil
	})
}

func (n *memoryNotifier) Remove(dir string) error {
	return n.tree.do("unwatch", dir, func() error {
		if _, ok := n.dirs[unixpath.Clean(dir)]; !ok {
			return fsnotify.ErrNonExistentWatch
		}
		delete(n.dirs, unixpath.Clean(dir))
		return nil
	})
}

func (n *memoryNotifier) WatchList() []string {
	n.tree.mu.Lock()
	defer n.tree.mu.Unlock()
	return slices.Sorted(maps.Keys(n.dirs))
}

func (n *memoryNotifier) Close() error {
	n.once.Do(func() {
		close(n.done)
		n.sent.Wait()
		n.tree.mu.Lock()
		defer n.tree.mu.Unlock()
		delete(n.tree.notifiers, n)
		close(n.errs)
	})
	return nil
}

func (n *memoryNotifier) events() <-chan fsnotify.Event { return n.out }
func (n *memoryNotifier) errors() <-chan error          { return n.errs }

// push queues an event. The caller holds the mutex of the tree.
func (n *memoryNotifier) push(e fsnotify.Event) {
	if last := len(n.queue) - 1; last >= 0 && n.queue[last] == e {
		return // as Linux does with what nobody has read yet
	}
	if len(n.queue) >= maxNotified {
		n.queue = nil
		select {
		case n.errs <- fsnotify.ErrEventOverflow:
		default: // it is known already
		}
		return
	}
	n.queue = append(n.queue, e)
	fill(n.some)
}

// tell tells who watches the directory of the file name, or the file itself if it
// is going. The caller holds mu.
func (m *Memory) tell(name string, op fsnotify.Op) {
	name = unixpath.Clean(name)
	going := op == fsnotify.Remove || op == fsnotify.Rename
	for n := range m.notifiers {
		_, inside := n.dirs[unixpath.Dir(name)]
		_, self := n.dirs[name]
		if inside || self && going {
			n.push(fsnotify.Event{Name: name, Op: op})
		}
		if op == fsnotify.Remove {
			delete(n.dirs, name)
		}
	}
}

// tellRemoved tells of the removal of a file with all below it, which comes first.
// The caller holds mu.
func (m *Memory) tellRemoved(name string, i *inode) {
	for _, base := range slices.Sorted(maps.Keys(i.entries)) {
		m.tellRemoved(unixpath.Join(name, base), i.entries[base])
	}
	m.tell(name, fsnotify.Remove)
}
