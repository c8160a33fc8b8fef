package envd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/user"
	unixpath "path"
	"strconv"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/seed-09a7379d/e2b-go/internal/envd/gen/filesystem"
)

// filesystemService implements filesystemconnect.FilesystemHandler for the server of
// each request.
type filesystemService struct{}

// fileError is err with the code, unless err says that the path is not served.
func fileError(code connect.Code, err error) error {
	if errors.Is(err, errOutside) {
		code = connect.CodeInvalidArgument
	}
	return connect.NewError(code, err)
}

// An inspector describes files. It remembers names of owners for as long as one
// request takes.
type inspector struct {
	srv    *Server
	owners map[uint32]string
	groups map[uint32]string
}

func (s *Server) inspector() *inspector {
	return &inspector{s, make(map[uint32]string), make(map[uint32]string)}
}

func (in *inspector) owner(uid uint32) string {
	name, ok := in.owners[uid]
	if !ok {
		name = in.srv.ownerName(uid)
		in.owners[uid] = name
	}
	return name
}

func (in *inspector) group(gid uint32) string {
	name, ok := in.groups[gid]
	if !ok {
		name = in.srv.groupName(gid)
		in.groups[gid] = name
	}
	return name
}

// ownerName prefers the default user, as users may share an id.
func (s *Server) ownerName(uid uint32) string {
	if u := s.user(s.cfg.DefaultUser); u != nil && u.UID == uid {
		return u.Name
	}
	for i := range s.cfg.Users {
		if s.cfg.Users[i].UID == uid {
			return s.cfg.Users[i].Name
		}
	}
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

// groupName takes a group of a user to have the user's name.
func (s *Server) groupName(gid uint32) string {
	if u := s.user(s.cfg.DefaultUser); u != nil && u.GID == gid {
		return u.Name
	}
	for i := range s.cfg.Users {
		if s.cfg.Users[i].GID == gid {
			return s.cfg.Users[i].Name
		}
	}
	id := strconv.FormatUint(uint64(gid), 10)
	if g, err := user.LookupGroupId(id); err == nil {
		return g.Name
	}
	return id
}

// entry describes the file at name and calls it shown. Of a link, type and mode
// are those of its target; the rest is the link's own.
func (in *inspector) entry(name, shown string) (*filesystem.EntryInfo, error) {
	fi, err := in.srv.tree.lstat(name)
	if err != nil {
		return nil, err
	}
	e := &filesystem.EntryInfo{
		Name:         unixpath.Base(shown),
		Type:         fileType(fi),
		Path:         shown,
		Size:         fi.Size(),
		Mode:         uint32(fi.Mode().Perm()),
		Permissions:  fi.Mode().String(),
		ModifiedTime: timestamppb.New(fi.ModTime()),
	}
	if uid, gid, ok := ownerOf(fi); ok {
		e.Owner, e.Group = in.owner(uid), in.group(gid)
	}
	if fi.Mode()&fs.ModeSymlink != 0 {
		e.Type, e.Mode, e.SymlinkTarget = filesystem.FileType_FILE_TYPE_UNSPECIFIED, 0, &shown
		if target, err := in.srv.tree.realPath(name); err == nil {
			if fi, err := in.srv.tree.lstat(target); err == nil {
				e.Type, e.Mode, e.SymlinkTarget = fileType(fi), uint32(fi.Mode().Perm()), &target
			}
		}
	} else if fi.Mode().IsRegular() || fi.IsDir() {
		e.Metadata = in.srv.metadata(name)
	}
	return e, nil
}

func fileType(fi fs.FileInfo) filesystem.FileType {
	switch {
	case fi.Mode().IsRegular():
		return filesystem.FileType_FILE_TYPE_FILE
	case fi.IsDir():
		return filesystem.FileType_FILE_TYPE_DIRECTORY
	}
	return filesystem.FileType_FILE_TYPE_UNSPECIFIED
}

// describe is entry as the answer of a method.
func (s *Server) describe(name string) (*filesystem.EntryInfo, error) {
	e, err := s.inspector().entry(name, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fileError(connect.CodeNotFound, fmt.Errorf("file not found: %w", err))
	} else if err != nil {
		return nil, fileError(connect.CodeInternal, fmt.Errorf("error getting file info: %w", err))
	}
	return e, nil
}

func (filesystemService) Stat(ctx context.Context, req *connect.Request[filesystem.StatRequest]) (*connect.Response[filesystem.StatResponse], error) {
	s := serverOf(ctx)
	name, err := s.resolve(req.Msg.GetPath(), userOf(ctx))
	if err != nil {
		return nil, invalid(err)
	}
	e, err := s.describe(name)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystem.StatResponse{Entry: e}), nil
}

func (filesystemService) MakeDir(ctx context.Context, req *connect.Request[filesystem.MakeDirRequest]) (*connect.Response[filesystem.MakeDirResponse], error) {
	s := serverOf(ctx)
	u := userOf(ctx)
	name, err := s.resolve(req.Msg.GetPath(), u)
	if err != nil {
		return nil, invalid(err)
	}
	fi, err := s.tree.stat(name)
	switch {
	case err == nil && fi.IsDir():
		return nil, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("directory already exists: %s", name))
	case err == nil:
		return nil, invalid(fmt.Errorf("path already exists but it is not a directory: %s", name))
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fileError(connect.CodeInternal, fmt.Errorf("error getting file info: %w", err))
	}
	if err := s.makeDirs(name, u); err != nil {
		return nil, fileError(connect.CodeInternal, err)
	}
	e, err := s.describe(name)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystem.MakeDirResponse{Entry: e}), nil
}

func (filesystemService) Move(ctx context.Context, req *connect.Request[filesystem.MoveRequest]) (*connect.Response[filesystem.MoveResponse], error) {
	s := serverOf(ctx)
	u := userOf(ctx)
	from, err := s.resolve(req.Msg.GetSource(), u)
	if err != nil {
		return nil, invalid(err)
	}
	to, err := s.resolve(req.Msg.GetDestination(), u)
	if err != nil {
		return nil, invalid(err)
	}
	if err := s.makeDirs(unixpath.Dir(to), u); err != nil {
		return nil, fileError(connect.CodeInternal, err)
	}
	if err := s.tree.rename(from, to); errors.Is(err, fs.ErrNotExist) {
		return nil, fileError(connect.CodeNotFound, fmt.Errorf("source file not found: %w", err))
	} else if err != nil {
		return nil, fileError(connect.CodeInternal, fmt.Errorf("error renaming: %w", err))
	}
	s.memory.move(from, to)
	e, err := s.describe(to)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystem.MoveResponse{Entry: e}), nil
}

func (filesystemService) ListDir(ctx context.Context, req *connect.Request[filesystem.ListDirRequest]) (*connect.Response[filesystem.ListDirResponse], error) {
	s := serverOf(ctx)
	name, err := s.resolve(req.Msg.GetPath(), userOf(ctx))
	if err != nil {
		return nil, invalid(err)
	}
	real, err := s.tree.realPath(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fileError(connect.CodeNotFound, fmt.Errorf("path not found: %w", err))
	case errors.Is(err, errLoop):
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("cyclic symlink or chain >%d links at %q", maxLinks, name))
	case err != nil:
		return nil, fileError(connect.CodeInternal, fmt.Errorf("error resolving path: %w", err))
	}
	fi, err := s.tree.stat(real)
	if err != nil {
		return nil, fileError(connect.CodeInternal, fmt.Errorf("error getting file info: %w", err))
	}
	if !fi.IsDir() {
		return nil, invalid(fmt.Errorf("path is not a directory: %s", name))
	}
	res := &filesystem.ListDirResponse{}
	list := lister{ctx: ctx, in: s.inspector(), res: res}
	if err := list.dir(real, unixpath.Clean(name), max(req.Msg.GetDepth(), 1)); err != nil {
		return nil, err
	}
	return connect.NewResponse(res), nil
}

type lister struct {
	ctx context.Context
	in  *inspector
	res *filesystem.ListDirResponse
}

// dir adds what is in the directory, depth first.
func (l *lister) dir(name, shown string, depth uint32) error {
	if l.ctx.Err() != nil {
		return ended(l.ctx)
	}
	entries, err := l.in.srv.tree.readDir(name)
	if err != nil {
		return fileError(connect.CodeInternal, fmt.Errorf("error reading directory %s: %w", shown, err))
	}
	for _, d := range entries {
		at, as := unixpath.Join(name, d.Name()), unixpath.Join(shown, d.Name())
		e, err := l.in.entry(at, as)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since the directory was read
		} else if err != nil {
			return fileError(connect.CodeInternal, fmt.Errorf("error getting file info: %w", err))
		}
		l.res.Entries = append(l.res.Entries, e)
		if d.IsDir() && depth > 1 {
			if err := l.dir(at, as, depth-1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (filesystemService) Remove(ctx context.Context, req *connect.Request[filesystem.RemoveRequest]) (*connect.Response[filesystem.RemoveResponse], error) {
	s := serverOf(ctx)
	if req.Msg.GetPath() == "" {
		return nil, invalid(errors.New("an empty path would remove the home directory"))
	}
	name, err := s.resolve(req.Msg.GetPath(), userOf(ctx))
	if err != nil {
		return nil, invalid(err)
	}
	clean := unixpath.Clean(name)
	if clean == s.cfg.Root || clean == unixpath.Dir(clean) {
		return nil, invalid(fmt.Errorf("the root directory cannot be removed: %s", name))
	}
	if err := s.tree.removeAll(name); err != nil {
		return nil, fileError(connect.CodeInternal, fmt.Errorf("error removing file or directory: %w", err))
	}
	s.memory.move(name, "")
	return connect.NewResponse(&filesystem.RemoveResponse{}), nil
}
