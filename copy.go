package e2b

import (
	"archive/tar"
	"bytes"
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
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/envd"
	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// CopyOptions says how a tree is copied.
type CopyOptions struct {
	User string // on whose behalf; "": the template's default user
	// OutsideLinks lets CopyOut make links that lead out of the destination, as those
	// of a Python environment, which it refuses otherwise. Nothing is written through
	// them; but who reads the tree may end elsewhere.
	OutsideLinks bool
}

var (
	opCopyIn  = operation{name: "copyin directory", notFound: fs.ErrNotExist, files: true}
	opCopyOut = operation{name: "copyout directory", notFound: fs.ErrNotExist, files: true}
)

// CopyIn copies what is in fsys into a directory of the sandbox, which is made if
// it is not there: directories, files and, where fsys is an fs.ReadLinkFS,
// symbolic links as they are. Permissions and times, in seconds, are kept, but
// directories can always be written by their owner; an fs.FS that tells no
// permissions gives 0644 and 0755, and one that tells no times the present one. A
// file that grows meanwhile gives what it had. What is there already stays, unless
// it is a file or a link of the same name. ctx bounds everything.
//
// The tree travels as one tar archive, which lies in the home of the user for a
// while; the sandbox must have tar. When CopyIn fails, none or a part of the tree is
// there, or all if only the archive could not be removed. A Read of fsys that blocks
// does not keep CopyIn from ending with ctx.
//
// Errors: ErrInvalidArgument (also what is no file, directory or link),
// ErrNotSupported (the sandbox has no tar), ErrNoSpace, fs.ErrPermission, fs.ErrExist
// (a directory is where a file should be), those of fsys, and otherwise as
// Files.Write and Commands.Run, all in an *fs.PathError.
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
	if err = f.sendTree(ctx, fsys, archive, o.User); err == nil {
		quoted := Quote(target)
		// Nothing may outlive the process that the end of ctx kills.
		cmd := fmt.Sprintf("mkdir -p %s && echo %s && exec tar -xpof ./%[2]s -C %[1]s", quoted, archive)
		var out bytes.Buffer
		err = f.tar(ctx, opCopyIn, cmd, &o, &out)
		if err == nil && out.String() != archive+"\n" {
			// What stands in for commands in a test must not make this a success.
			err = &opError{op: opCopyIn.name, sandboxID: f.s.id, detail: "no shell has run tar", errs: []error{ErrNotSupported}}
		}
	}
	if err == nil {
		if err = f.Remove(ctx, archive, &FileOptions{User: o.User}); err == nil {
			return nil
		}
	}
	f.removeQuietly(ctx, err, archive, o.User)
	return f.aboutTree(opCopyIn, dir, err)
}

// sendTree uploads a tree as an archive.
func (f *Files) sendTree(ctx context.Context, fsys fs.FS, archive, user string) error {
	r, w := io.Pipe()
	type result struct {
		err   error
		panic any
	}
	packed := make(chan result, 1)
	go func() {
		var res result
		defer func() {
			res.panic = recover() // it is the caller's to meet
			w.CloseWithError(errors.Join(res.err, io.ErrUnexpectedEOF))
			packed <- res
		}()
		if res.err = pack(ctx, w, fsys); res.err == nil {
			res.err = w.Close()
		}
	}()
	err := f.WriteFrom(ctx, archive, r, &WriteOptions{User: user})
	_ = r.Close()
	var res result
	select {
	case res = <-packed:
	case <-ctx.Done(): // fsys may be at work, and stay so
	}
	switch {
	case res.panic != nil:
		panic(res.panic)
	case res.err != nil && !errors.Is(res.err, io.ErrClosedPipe):
		return &opError{op: opCopyIn.name, sandboxID: f.s.id, errs: []error{res.err}}
	}
	return err
}

// aboutTree is err about the directory that was to be copied.
func (f *Files) aboutTree(op operation, dir string, err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok && strings.HasPrefix(path.Base(at.Path), ".e2b-go-") {
		err = at.Err // about the archive
	}
	return f.pathError(op, dir, err)
}

// CopyOut copies what is in a directory of the sandbox into a local one, which is
// made if it is not there: directories, files and links, with permissions and the
// times of files. A local file or empty directory of the same name as a file is
// replaced. ctx bounds everything.
//
// A sandbox is not trusted: nothing is written outside of the destination, and a
// device, a pipe or, without CopyOptions.OutsideLinks, a link that leads out of it
// is refused. Sockets are left out. When CopyOut fails, a part of the tree is there.
// The sandbox must have tar.
//
// Errors: fs.ErrNotExist, ErrInvalidArgument (also a path that is no directory),
// ErrNotSupported (the sandbox has no tar, or the tree an entry that is refused),
// *ExitError (tar could not read all), those of the local files, and otherwise as
// Commands.Run, but for an empty destination all in an *fs.PathError.
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
		err := f.tar(ctx, opCopyOut, "exec tar -C "+Quote(source)+" -cf - .", &o, w)
		w.CloseWithError(err)
		sent <- err
	}()
	u := unpacker{ctx: ctx, root: root, outside: o.OutsideLinks, dirs: map[string]fs.FileMode{".": 0}}
	err = u.unpack(r)
	_ = r.CloseWithError(err)
	if serr := <-sent; serr != nil {
		if _, ours := errors.AsType[*envd.SinkError](serr); !ours || err == nil {
			return f.aboutTree(opCopyOut, dir, serr)
		}
	}
	if err != nil {
		return f.aboutTree(opCopyOut, dir, &opError{op: opCopyOut.name, sandboxID: f.s.id, errs: []error{err}})
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

// tar runs a command of CopyIn or CopyOut, without the user's profile: that could
// go to another directory, or print.
func (f *Files) tar(ctx context.Context, op operation, cmd string, o *CopyOptions, out io.Writer) error {
	res, err := f.s.Commands.run(ctx, []string{"-c", cmd}, &RunOptions{User: o.User, Stdout: out, Env: map[string]string{"LC_ALL": "C"}})
	if res != nil && res.Incomplete {
		// What came after the break was no part of the archive any more.
		return &opError{op: op.name, sandboxID: f.s.id, detail: "the connection broke", errs: []error{ErrStreamInterrupted}}
	}
	exit, ok := errors.AsType[*ExitError](err)
	if !ok {
		return err
	}
	kinds := []error{err}
	if kind := tarKind(op, exit); kind != nil {
		kinds = []error{kind, err}
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(exit.Stderr)), "\n") // the last is "exiting"
	return &opError{op: op.name, sandboxID: f.s.id, detail: transport.Clean(first, false), errs: kinds}
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
	if h.ModTime.IsZero() {
		h.ModTime = time.Now()
	}
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
	if _, err := io.Copy(out, io.LimitReader(file, h.Size)); err != nil {
		return &fs.PathError{Op: "copy", Path: name, Err: err}
	}
	if err := out.Flush(); err != nil { // a file that has become shorter
		return &fs.PathError{Op: "copy", Path: name, Err: err}
	}
	return nil
}

// An unpacker writes the entries of an archive, none of them outside of root.
type unpacker struct {
	ctx     context.Context //nolint:containedctx // it lives for one call
	root    *os.Root
	outside bool                   // links may lead out
	dirs    map[string]fs.FileMode // that are directories and no links
	made    []string               // the directories of the archive, in order
}

// unpack reads a tar archive to its end.
func (u *unpacker) unpack(r io.Reader) error {
	in := tar.NewReader(r)
	for some := false; ; some = true {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			if !some {
				return io.ErrUnexpectedEOF // an archive has the directory itself at least
			}
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
		if err := u.root.Chmod(name, u.dirs[name]); err != nil {
			return err
		}
	}
	_, err := io.Copy(io.Discard, r) // what pads the archive
	return err
}

// maxArchiveName is what no name of a real tree has.
const maxArchiveName = 64 << 10

func (u *unpacker) entry(h *tar.Header, contents io.Reader) error {
	if u.ctx.Err() != nil {
		return u.ctx.Err()
	}
	clean := path.Clean(h.Name)
	name, ok := local(clean)
	if !ok {
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
		if !u.outside && leavesBy(clean, h.Linkname) {
			return refuse(h.Name, "it is a link that may lead out of the destination: "+h.Linkname)
		}
		return u.root.Symlink(filepath.FromSlash(h.Linkname), name)
	case tar.TypeLink:
		old, ok := local(path.Clean(h.Linkname))
		if !ok {
			return refuse(h.Name, "it is a link to what is outside")
		}
		return u.root.Link(old, name)
	}
	return refuse(h.Name, fmt.Sprintf("it is neither a file nor a directory nor a link (type %q)", h.Typeflag))
}

// local returns a clean name of an archive as one below the destination. It may
// have any bytes where the system's names may.
func local(name string) (string, bool) {
	if len(name) > maxArchiveName || filepath.Separator != '/' && strings.ContainsRune(name, filepath.Separator) {
		return "", false
	}
	name = filepath.FromSlash(name)
	return name, filepath.IsLocal(name)
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
	if u.ctx.Err() != nil {
		return u.ctx.Err()
	}
	if err := u.directory(dir, 0o777); err != nil {
		return err
	}
	u.dirs[dir] = 0
	return nil
}

// directory makes one, unless it is there.
func (u *unpacker) directory(name string, mode fs.FileMode) error {
	err := u.root.Mkdir(name, mode)
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
	mode |= 0o700
	if err := u.directory(name, mode); err != nil {
		return err
	}
	u.dirs[name] = mode
	u.made = append(u.made, name)
	return nil
}

func (u *unpacker) file(name string, mode fs.FileMode, h *tar.Header, contents io.Reader) error {
	file, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, untilDone{u.ctx, contents})
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

// untilDone reads r until ctx ends: a sparse file of a hostile archive takes long
// without a byte on the wire.
type untilDone struct {
	ctx context.Context //nolint:containedctx // it lives for one call
	r   io.Reader
}

func (r untilDone) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, r.ctx.Err()
	}
	return r.r.Read(p)
}
