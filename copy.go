package e2b

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-09a7379d/e2b-go/internal/envd"
)

// CopyOptions says on whose behalf a tree is copied.
type CopyOptions struct {
	User string // "": the template's default user
}

var (
	opCopyIn  = operation{name: "copyin directory", notFound: fs.ErrNotExist, files: true}
	opCopyOut = operation{name: "copyout directory", notFound: fs.ErrNotExist, files: true}
)

// CopyIn copies what is in fsys into a directory of the sandbox, which is made if
// it is not there: directories, files and, where fsys is an fs.ReadLinkFS,
// symbolic links as they are. Permissions and times are kept, but directories can
// always be written by their owner, and an fs.FS that tells no permissions gives
// 0644 and 0755. What is there already stays, unless it is a file of the same
// name. ctx bounds everything.
//
// The tree travels as one tar archive, which lies in the home of the user for a
// while; the sandbox must have tar. When CopyIn fails, none or a part of the tree is
// there.
//
// Errors: ErrInvalidArgument (also what is no file, directory or link),
// ErrNotSupported (the sandbox has no tar), ErrNoSpace, fs.ErrPermission, fs.ErrExist
// (a directory is where a file should be), those of fsys, and otherwise as
// Files.Write and Commands.Run.
//
// See https://e2b.dev/docs/filesystem/upload.
func (f *Files) CopyIn(ctx context.Context, fsys fs.FS, dir string, opts *CopyOptions) error {
	var o CopyOptions
	if opts != nil {
		o = *opts
	}
	if fsys == nil {
		return invalid(opCopyIn.name, "fsys", "is nil")
	}
	target, err := shellPath(opCopyIn, dir, o.User)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return f.fail(ctx, opCopyIn, dir, ctx.Err(), false)
	}
	archive := ".e2b-go-" + rand.Text()[:16] + ".tar"
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := pack(ctx, w, fsys)
		w.CloseWithError(err)
		packed <- err
	}()
	err = f.WriteFrom(ctx, archive, r, &WriteOptions{User: o.User})
	_ = r.Close()
	if perr := <-packed; perr != nil && !errors.Is(perr, io.ErrClosedPipe) {
		err = f.pathError(opCopyIn, dir, &opError{op: opCopyIn.name, sandboxID: f.s.id, errs: []error{perr}})
	}
	if err != nil {
		f.removeQuietly(ctx, err, archive, o.User)
		return err
	}
	quoted := Quote(target)
	cmd := fmt.Sprintf("mkdir -p %s && tar -xpof ./%s -C %[1]s; s=$?; rm -f ./%[2]s; exit $s", quoted, archive)
	if err = f.tar(ctx, opCopyIn, dir, cmd, &o, nil); err != nil {
		f.removeQuietly(ctx, err, archive, o.User)
	}
	return err
}

// CopyOut copies what is in a directory of the sandbox into a local one, which is
// made if it is not there: directories, files and links, with permissions and the
// times of files. A local file of the same name is replaced. ctx bounds
// everything.
//
// A sandbox is not trusted: nothing is written outside of the destination, and a
// link that leads out of it, a device or a pipe is refused. Sockets are left out.
// When CopyOut fails, a part of the tree is there. The sandbox must have tar.
//
// Errors: fs.ErrNotExist, ErrInvalidArgument (also a path that is no directory),
// ErrNotSupported (the sandbox has no tar, or the tree an entry that is refused),
// *ExitError (tar could not read all), those of the local files, and otherwise as
// Commands.Run.
//
// See https://e2b.dev/docs/filesystem/download.
func (f *Files) CopyOut(ctx context.Context, dir, destination string, opts *CopyOptions) error {
	var o CopyOptions
	if opts != nil {
		o = *opts
	}
	if destination == "" {
		return invalid(opCopyOut.name, "destination", "is empty")
	}
	source, err := shellPath(opCopyOut, dir, o.User)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(destination, 0o777); err != nil { //nolint:gosec // as the umask has it
		return err
	}
	root, err := os.OpenRoot(destination)
	if err != nil {
		return err
	}
	defer root.Close()
	r, w := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := f.tar(ctx, opCopyOut, dir, "exec tar -C "+Quote(source)+" -cf - .", &o, w)
		w.CloseWithError(err)
		sent <- err
	}()
	err = unpack(r, root)
	_ = r.CloseWithError(err)
	if serr := <-sent; serr != nil {
		if _, ours := errors.AsType[*envd.SinkError](serr); !ours {
			return serr
		}
	}
	if err != nil {
		return f.pathError(opCopyOut, dir, &opError{op: opCopyOut.name, sandboxID: f.s.id, errs: []error{err}})
	}
	return nil
}

// shellPath returns a path of the files API as the shell's tools understand it.
func shellPath(op operation, dir, user string) (string, error) {
	if err := checkRPCFile(op, dir, user); err != nil {
		return "", err
	}
	if dir == "~" {
		return ".", nil
	}
	if rest, ok := strings.CutPrefix(dir, "~/"); ok {
		return "./" + rest, nil
	}
	if dir[0] == '~' {
		return "", invalid(op.name, "dir", "begins at the home of another user: %.80q", dir)
	}
	if dir[0] != '/' {
		return "./" + dir, nil // it may begin as an option does
	}
	return dir, nil
}

// tar runs a command of CopyIn or CopyOut.
func (f *Files) tar(ctx context.Context, op operation, dir, cmd string, o *CopyOptions, out io.Writer) error {
	_, err := f.s.Commands.Run(ctx, cmd, &RunOptions{User: o.User, Stdout: out, Env: map[string]string{"LC_ALL": "C"}})
	exit, ok := errors.AsType[*ExitError](err)
	if !ok || errors.Is(err, ErrStreamInterrupted) {
		return err
	}
	kinds := []error{err}
	if kind := tarKind(op, exit); kind != nil {
		kinds = []error{kind, err}
	}
	return f.pathError(op, dir, &opError{op: op.name, sandboxID: f.s.id, errs: kinds})
}

// tarKind reads what tar and mkdir say.
func tarKind(op operation, exit *ExitError) error {
	says := func(text string) bool { return strings.Contains(string(exit.Stderr), text) }
	switch {
	case exit.ExitCode == 127:
		return ErrNotSupported
	case says("No space left"):
		return ErrNoSpace
	case says("Permission denied"):
		return fs.ErrPermission
	case op.name == opCopyOut.name && says("No such file or directory"):
		return fs.ErrNotExist
	case says("File exists"), says("Is a directory"), says("Cannot open: File exists"):
		return fs.ErrExist
	case says("Not a directory"):
		return ErrInvalidArgument
	}
	return nil
}

// pack writes what is in fsys as a tar archive.
func pack(ctx context.Context, w io.Writer, fsys fs.FS) error {
	out := tar.NewWriter(w)
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if name == "." {
			if !d.IsDir() {
				return fmt.Errorf("%w: fsys is no directory", ErrInvalidArgument)
			}
			return nil
		}
		return packEntry(out, fsys, name, d)
	})
	if err != nil {
		return err
	}
	return out.Close()
}

func packEntry(out *tar.Writer, fsys fs.FS, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	// This format holds names as they are, whatever their bytes and their length.
	h := tar.Header{Format: tar.FormatGNU, Name: name, ModTime: info.ModTime(), Mode: int64(info.Mode().Perm())}
	switch info.Mode().Type() {
	case fs.ModeDir:
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		h.Mode |= 0o700
		return out.WriteHeader(&h)
	case fs.ModeSymlink:
		h.Typeflag, h.Mode = tar.TypeSymlink, 0o777
		if h.Linkname, err = fs.ReadLink(fsys, name); err != nil {
			return err
		}
		return out.WriteHeader(&h)
	case 0:
	default:
		return &fs.PathError{Op: "copy", Path: name, Err: fmt.Errorf("%w: neither a file nor a directory nor a link: %v", ErrInvalidArgument, info.Mode())}
	}
	file, err := fsys.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	if h.Typeflag, h.Size = tar.TypeReg, info.Size(); h.Mode == 0 {
		h.Mode = 0o644
	}
	if err := out.WriteHeader(&h); err != nil {
		return err
	}
	if _, err := io.Copy(out, file); err != nil {
		return &fs.PathError{Op: "copy", Path: name, Err: err}
	}
	if err := out.Flush(); err != nil { // a file that has become shorter
		return &fs.PathError{Op: "copy", Path: name, Err: err}
	}
	return nil
}

// An unpacker writes the entries of an archive, none of them outside of root.
type unpacker struct {
	root *os.Root
	dirs map[string]fs.FileMode // that are directories and no links
	made []string               // the directories of the archive, in order
}

// unpack reads a tar archive to its end.
func unpack(r io.Reader, root *os.Root) error {
	u := unpacker{root: root, dirs: map[string]fs.FileMode{".": 0}}
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := u.entry(h, in); err != nil {
			return err
		}
	}
	for _, name := range slices.Backward(u.made) {
		if err := root.Chmod(name, u.dirs[name]); err != nil {
			return err
		}
	}
	_, err := io.Copy(io.Discard, r) // what pads the archive
	return err
}

func (u *unpacker) entry(h *tar.Header, contents io.Reader) error {
	clean := path.Clean(h.Name)
	name, err := filepath.Localize(clean)
	if err != nil {
		return refuse(h.Name, "its name leads out of the destination, or is none here")
	}
	mode := fs.FileMode(h.Mode) & fs.ModePerm //nolint:gosec // masked
	if clean == "." {
		return nil
	}
	if err := u.parent(name); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeDir {
		return u.mkdir(name, mode)
	}
	if _, isDir := u.dirs[name]; isDir {
		return refuse(h.Name, "it was a directory before")
	}
	if err := u.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		return u.file(name, mode, h, contents)
	case tar.TypeSymlink:
		if leavesBy(clean, h.Linkname) {
			return refuse(h.Name, "it is a link that may lead out of the destination: "+h.Linkname)
		}
		return u.root.Symlink(filepath.FromSlash(h.Linkname), name)
	case tar.TypeLink:
		old, err := filepath.Localize(path.Clean(h.Linkname))
		if err != nil {
			return refuse(h.Name, "it is a link to what is outside")
		}
		return u.root.Link(old, name)
	}
	return refuse(h.Name, fmt.Sprintf("it is neither a file nor a directory nor a link (type %q)", h.Typeflag))
}

// leavesBy reports whether a link may lead out of the destination. Behind a name,
// which may be a link too, nobody knows where ".." leads.
func leavesBy(name, target string) bool {
	up := target
	for strings.HasPrefix(up, "../") {
		up = strings.TrimLeft(up[3:], "/")
	}
	if up != ".." && slices.Contains(strings.Split(up, "/"), "..") {
		return true
	}
	return target == "" || path.IsAbs(target) || !filepath.IsLocal(filepath.FromSlash(path.Join(path.Dir(name), target)))
}

func refuse(name, why string) error {
	return &fs.PathError{Op: "copy", Path: name, Err: fmt.Errorf("%w: %s", ErrNotSupported, why)}
}

// parent makes sure that what is above name are directories, and not links by
// which a later entry would land elsewhere.
func (u *unpacker) parent(name string) error {
	dir := filepath.Dir(name)
	if _, ok := u.dirs[dir]; ok {
		return nil
	}
	if err := u.parent(dir); err != nil {
		return err
	}
	if err := u.directory(dir); err != nil {
		return err
	}
	u.dirs[dir] = 0
	return nil
}

// directory makes one, unless it is there.
func (u *unpacker) directory(name string) error {
	err := u.root.Mkdir(name, 0o777)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, serr := u.root.Lstat(name)
	if serr == nil && !info.IsDir() {
		return err
	}
	return serr
}

func (u *unpacker) mkdir(name string, mode fs.FileMode) error {
	if err := u.directory(name); err != nil {
		return err
	}
	u.dirs[name] = mode | 0o700
	u.made = append(u.made, name)
	return nil
}

func (u *unpacker) file(name string, mode fs.FileMode, h *tar.Header, contents io.Reader) error {
	file, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, contents)
	if err == nil {
		err = file.Chmod(mode)
	}
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = u.root.Chtimes(name, h.ModTime, h.ModTime)
	}
	return err
}
