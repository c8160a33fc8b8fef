//go:build linux || darwin

package box

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxDepth bounds how many directories are open at a time.
const maxDepth = 500

// copyTree copies the directory src to dst, which does not exist and which nobody
// else can reach: files, directories, links and pipes with their owners, modes,
// times and user attributes. Sockets and devices are left out. It never leaves src,
// wherever links in it lead and whatever is changed in it meanwhile; what is gone
// before it was copied is left out.
func copyTree(ctx context.Context, src, dst string) error {
	from, err := os.OpenRoot(filepath.Dir(src))
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenRoot(filepath.Dir(dst))
	if err != nil {
		return err
	}
	defer to.Close()
	c := &copier{ctx: ctx, dst: dst, top: to, names: make(map[inode]string)}
	info, err := from.Lstat(filepath.Base(src))
	if err != nil {
		return err
	}
	return c.directory(from, to, filepath.Base(src), filepath.Base(dst), info, 0)
}

// A copier copies one tree. Each step gets the directory to copy from and the
// one to copy to, both open, so that no name is looked up twice from the top.
type copier struct {
	ctx   context.Context //nolint:containedctx // of the one call
	dst   string
	top   *os.Root         // the directory of dst
	names map[inode]string // below top, of files that may have more than one
}

type inode struct{ dev, ino uint64 }

// entry copies whatever name is. path is that of the directory, below top.
func (c *copier) entry(from, to *os.Root, name, path string, depth int) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	info, err := from.Lstat(name)
	if err != nil {
		return err
	}
	path = filepath.Join(path, name)
	switch info.Mode().Type() {
	case fs.ModeDir:
		return c.directory(from, to, name, path, info, depth)
	case 0:
		return c.file(from, to, name, path, info)
	case fs.ModeSymlink:
		target, err := from.Readlink(name)
		if err != nil {
			return err
		}
		if err := to.Symlink(target, name); err != nil {
			return err
		}
		return chown(to, name, info)
	case fs.ModeNamedPipe:
		if err := unix.Mkfifo(filepath.Join(filepath.Dir(c.dst), path), 0o600); err != nil {
			return err
		}
		return finish(to, name, info)
	}
	return nil
}

// directory copies a directory to the one of path, with everything in it.
func (c *copier) directory(from, to *os.Root, name, path string, info fs.FileInfo, depth int) (err error) {
	if depth > maxDepth {
		return fmt.Errorf("a directory is in more than %d others", maxDepth)
	}
	lock, err := unlock(from, name, info, 0o700)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock()) }()
	source, err := from.OpenRoot(name)
	if err != nil {
		return err
	}
	defer source.Close()
	dir, err := source.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	name = filepath.Base(path)
	if err := to.Mkdir(name, 0o700); err != nil {
		return err
	}
	target, err := to.OpenRoot(name)
	if err != nil {
		return err
	}
	defer target.Close()
	for _, name := range names {
		if err := c.entry(source, target, name, path, depth+1); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	copied, err := target.Open(".")
	if err != nil {
		return err
	}
	defer copied.Close()
	if err := copyAttrs(dir, copied); err != nil {
		return err
	}
	return finish(to, name, info)
}

// file copies a regular file, or makes another name of one that was copied.
func (c *copier) file(from, to *os.Root, name, path string, info fs.FileInfo) (err error) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("no facts of the file %s", name)
	}
	id := inode{uint64(st.Dev), st.Ino} //nolint:unconvert // its type differs between systems
	if first, ok := c.names[id]; ok {
		return c.top.Link(first, path)
	}
	lock, err := unlock(from, name, info, 0o400)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock()) }()
	in, err := from.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	if now, err := in.Stat(); err != nil || !os.SameFile(now, info) {
		return errors.Join(err, fs.ErrNotExist) // something else has its name now
	}
	out, err := to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if st.Nlink > 1 {
		c.names[id] = path
	}
	if st.Blocks*512 < info.Size() {
		err = copySparse(c.ctx, out, in, info.Size())
	} else {
		err = copyRange(c.ctx, out, in, info.Size()) // whoever writes to it meanwhile
	}
	if err == nil {
		err = copyAttrs(in, out)
	}
	if err != nil {
		return err
	}
	return finish(to, name, info)
}

// copySparse leaves out holes, which can be larger than any disk.
func copySparse(ctx context.Context, out, in *os.File, size int64) error {
	for end := int64(0); end < size; {
		begin, err := in.Seek(end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && begin >= size {
			break // no data is left
		}
		if err != nil {
			return err
		}
		if end, err = in.Seek(begin, unix.SEEK_HOLE); err != nil {
			return err
		}
		end = min(end, size)
		for _, f := range []*os.File{in, out} {
			if _, err := f.Seek(begin, io.SeekStart); err != nil {
				return err
			}
		}
		if err := copyRange(ctx, out, in, end-begin); err != nil {
			return err
		}
	}
	return out.Truncate(size)
}

// copyRange copies up to n bytes.
func copyRange(ctx context.Context, out, in *os.File, n int64) error {
	const step = 64 << 20
	for n > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		copied, err := io.CopyN(out, in, min(n, step))
		n -= copied
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unlock gives a user who is not root the permissions that a file's owner has
// taken from itself. lock takes them away again.
func unlock(dir *os.Root, name string, info fs.FileInfo, need fs.FileMode) (lock func() error, err error) {
	if os.Geteuid() == 0 || info.Mode()&need == need {
		return func() error { return nil }, nil
	}
	return func() error { return dir.Chmod(name, info.Mode()) }, dir.Chmod(name, info.Mode()|need)
}

// finish gives the copy the owner, mode and times of what was copied.
func finish(dir *os.Root, name string, info fs.FileInfo) error {
	if err := chown(dir, name, info); err != nil {
		return err
	}
	// A change of the owner takes bits of the mode away.
	if err := dir.Chmod(name, info.Mode()); err != nil {
		return err
	}
	return dir.Chtimes(name, info.ModTime(), info.ModTime())
}

// chown gives the copy its owner, which only root can.
func chown(dir *os.Root, name string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return dir.Lchown(name, int(st.Uid), int(st.Gid))
}

// copyAttrs copies the extended attributes that users can set, in which envd keeps
// what an upload says of a file.
func copyAttrs(from, to *os.File) error {
	n, err := unix.Flistxattr(int(from.Fd()), nil)
	if err != nil || n == 0 {
		return ignoreNoAttrs(err)
	}
	const most = 64 << 10 // of Linux
	list, value := make([]byte, most), make([]byte, most)
	if n, err = unix.Flistxattr(int(from.Fd()), list); err != nil {
		return ignoreNoAttrs(err)
	}
	for name := range strings.SplitSeq(string(list[:n]), "\x00") {
		if !strings.HasPrefix(name, "user.") {
			continue
		}
		n, err := unix.Fgetxattr(int(from.Fd()), name, value)
		if err == nil {
			err = unix.Fsetxattr(int(to.Fd()), name, value[:n], 0)
		}
		if err := ignoreNoAttrs(err); err != nil {
			return fmt.Errorf("attribute %q: %w", name, err)
		}
	}
	return nil
}

// ignoreNoAttrs is for file systems that have none.
func ignoreNoAttrs(err error) error {
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}
