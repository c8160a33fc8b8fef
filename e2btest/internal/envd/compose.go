package envd

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	unixpath "path"
)

// maxComposeBody bounds the body of /files/compose.
const maxComposeBody = 8 << 20

// postCompose joins files into one.
func (s *Server) postCompose(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Sources     []string `json:"source_paths"`
		Destination string   `json:"destination"`
		Username    *string  `json:"username"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxComposeBody)).Decode(&req); err != nil {
		fail(w, http.StatusBadRequest, fmt.Errorf("invalid request body: %w", err))
		return
	}
	if len(req.Sources) == 0 {
		fail(w, http.StatusBadRequest, errors.New("source_paths must not be empty"))
		return
	}
	if req.Destination == "" {
		fail(w, http.StatusBadRequest, errors.New("destination is required"))
		return
	}
	u, err := s.namedUser(req.Username)
	if err != nil {
		fail(w, http.StatusUnauthorized, err)
		return
	}
	name, err := s.compose(req.Sources, req.Destination, u)
	if err != nil {
		status := http.StatusInternalServerError
		if e, ok := errors.AsType[*statusError](err); ok {
			status = e.status
		}
		fail(w, status, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(upload{Name: unixpath.Base(name), Path: name, Type: "file"}) // the client is gone
}

// compose writes the sources to a file beside the destination, which then takes
// its place, and removes them. It returns the path of the destination.
func (s *Server) compose(sources []string, destination string, u *User) (string, error) {
	to, err := s.resolve(destination, u)
	if err != nil {
		return "", &statusError{http.StatusBadRequest, err}
	}
	from := make([]string, len(sources))
	for i, source := range sources {
		name, err := s.resolve(source, u)
		if err != nil {
			return "", &statusError{http.StatusBadRequest, err}
		}
		if unixpath.Clean(name) == unixpath.Clean(to) {
			return "", withStatus(http.StatusBadRequest, "source path %q cannot be the same as destination", name)
		}
		fi, err := s.tree.stat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return "", withStatus(http.StatusNotFound, "source file not found: %s", name)
		case err != nil:
			return "", fmt.Errorf("error checking source path: %w", err)
		case !fi.Mode().IsRegular():
			return "", withStatus(http.StatusBadRequest, "source path is not a regular file: %s", name)
		}
		from[i] = name
	}
	if err := s.makeDirs(unixpath.Dir(to), u); err != nil {
		return "", fmt.Errorf("error ensuring directories: %w", err)
	}
	temp := unixpath.Join(unixpath.Dir(to), ".e2b-compose."+rand.Text()+".tmp")
	if err := s.concatenate(temp, from, u); err != nil {
		_ = s.tree.remove(temp) // the first error says more
		return "", err
	}
	if err := s.tree.rename(temp, to); err != nil {
		_ = s.tree.remove(temp)
		return "", fmt.Errorf("error finalizing compose: %w", err)
	}
	s.memory.move(to, "")
	for _, name := range from {
		_ = s.tree.remove(name) // as the real daemon: the file is complete
		s.memory.move(name, "")
	}
	return to, nil
}

// concatenate creates the file name from the sources.
func (s *Server) concatenate(name string, sources []string, u *User) (err error) {
	f, err := s.tree.open(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return composeError(err)
	}
	defer func() {
		if closeErr := f.Close(); err == nil && closeErr != nil {
			err = composeError(closeErr)
		}
	}()
	if err := f.Chown(int(u.UID), int(u.GID)); err != nil && u.Switch {
		return composeError(err)
	}
	for _, source := range sources {
		if err := s.appendTo(f, source); err != nil {
			return composeError(err)
		}
	}
	return nil
}

func (s *Server) appendTo(f file, source string) error {
	in, err := s.tree.open(source, os.O_RDONLY|openNoWait, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(f, in)
	return err
}

func composeError(err error) error {
	if isAny(err, outOfSpace) {
		return withStatus(http.StatusInsufficientStorage, "not enough disk space available")
	}
	return fmt.Errorf("error composing file: %w", err)
}
