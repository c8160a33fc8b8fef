package envd

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	unixpath "path"
	"slices"
	"strconv"
	"strings"
)

// jsonError answers a request that is no RPC with an error.
func jsonError(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(struct { // the client is gone
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{status, message})
}

// fail is jsonError for err, unless err says that the path is not served.
func fail(w http.ResponseWriter, status int, err error) {
	if errors.Is(err, errOutside) {
		status = http.StatusBadRequest
	}
	jsonError(w, status, err.Error())
}

// fileQuery has the query parameters of /files.
type fileQuery struct {
	path       string // "" also if it is not given
	username   *string
	signature  *string
	expiration *int64
}

// invalidFormat begins what the real server says of a bad parameter.
const invalidFormat = "Invalid format for parameter"

func parseFileQuery(values url.Values) (q fileQuery, err error) {
	one := func(name string) *string {
		switch list := values[name]; {
		case len(list) == 1:
			return &list[0]
		case len(list) > 1:
			err = fmt.Errorf("%s %s: multiple values for single value parameter", invalidFormat, name)
		}
		return nil
	}
	q.path = value(one("path"))
	q.username = one("username")
	q.signature = one("signature")
	if text := one("signature_expiration"); text != nil {
		n, parseErr := strconv.ParseInt(*text, 10, 64)
		if parseErr != nil {
			err = fmt.Errorf("%s signature_expiration: %w", invalidFormat, parseErr)
		}
		q.expiration = &n
	}
	return q, err
}

// admit does what both methods of /files begin with. Without a user it has
// already answered.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, operation string) (fileQuery, *User) {
	q, err := parseFileQuery(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return q, nil
	}
	if err := s.mayTransfer(r.Header, q, operation); err != nil {
		fail(w, http.StatusUnauthorized, err)
		return q, nil
	}
	u, err := s.namedUser(q.username)
	if err != nil {
		fail(w, http.StatusUnauthorized, err)
		return q, nil
	}
	return q, u
}

func (s *Server) getFile(w http.ResponseWriter, r *http.Request) {
	q, u := s.admit(w, r, "read")
	if u == nil {
		return
	}
	name, err := s.resolve(q.path, u)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	fi, err := s.tree.stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fail(w, http.StatusNotFound, fmt.Errorf("path '%s' does not exist", name))
		return
	case err != nil:
		fail(w, http.StatusInternalServerError, fmt.Errorf("error checking if path exists '%s': %w", name, err))
		return
	case fi.IsDir():
		fail(w, http.StatusBadRequest, fmt.Errorf("path '%s' is a directory", name))
		return
	case fi.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) != 0:
		fail(w, http.StatusBadRequest, fmt.Errorf("path '%s' is not a file", name))
		return
	}
	zip, err := wantsGzip(r.Header)
	if err != nil {
		fail(w, http.StatusNotAcceptable, err)
		return
	}
	f, err := s.tree.open(name, os.O_RDONLY|openNoWait, 0)
	if err != nil {
		fail(w, http.StatusInternalServerError, fmt.Errorf("error opening file '%s': %w", name, err))
		return
	}
	defer f.Close()

	h := w.Header()
	h.Set("Vary", "Accept-Encoding")
	base := unixpath.Base(name)
	if disposition := mime.FormatMediaType("inline", map[string]string{"filename": base}); disposition != "" {
		h.Set("Content-Disposition", disposition)
	}
	if !zip {
		http.ServeContent(w, r, base, fi.ModTime(), f)
		return
	}
	contentType := mime.TypeByExtension(unixpath.Ext(base))
	if contentType == "" {
		contentType = "application/octet-stream"
	}
	h.Set("Content-Type", contentType)
	h.Set("Content-Encoding", "gzip")
	zipped := gzip.NewWriter(w)
	if _, err := io.Copy(zipped, f); err != nil {
		return // the missing end tells the client
	}
	_ = zipped.Close() // the client is gone
}

// conditional are the headers that only the bytes of the file itself can answer.
var conditional = []string{"Range", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "If-Match"}

// wantsGzip chooses between the file as it is and gzip.
func wantsGzip(h http.Header) (bool, error) {
	zip, identity, err := acceptedEncoding(strings.Join(h.Values("Accept-Encoding"), ","))
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(conditional, func(name string) bool { return h.Get(name) != "" }) {
		if !identity {
			return false, errors.New("identity encoding not acceptable for Range or conditional request")
		}
		return false, nil
	}
	return zip, nil
}

// acceptedEncoding says whether gzip is what an Accept-Encoding header wants most,
// and whether it allows to do without.
func acceptedEncoding(header string) (zip, identity bool, err error) {
	var gzipQ, identityQ, anyQ float64 = -1, -1, -1
	for item := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(item, ";")
		q := 1.0
		if text, ok := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q="); ok {
			if q, err = strconv.ParseFloat(text, 64); err != nil || q < 0 || q > 1 {
				return false, false, fmt.Errorf("error parsing Accept-Encoding: invalid quality value %q", text)
			}
		}
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "gzip":
			gzipQ = q
		case "identity":
			identityQ = q
		case "*":
			anyQ = q
		}
	}
	identity = identityQ > 0 || identityQ < 0 && anyQ != 0
	// A star alone means identity, the simplest of all; it means gzip only to those
	// who refuse identity.
	zip = gzipQ > 0 && gzipQ >= identityQ || gzipQ < 0 && anyQ > 0 && !identity
	if !zip && !identity {
		return false, false, errors.New("error parsing Accept-Encoding: no acceptable encoding found, supported: [gzip]")
	}
	return zip, identity, nil
}

// upload is one entry of the answer of POST /files.
type upload struct {
	Metadata map[string]string `json:"metadata,omitempty"`
	Name     string            `json:"name"`
	Path     string            `json:"path"`
	Type     string            `json:"type"`
}

// A statusError is an error with the status of its answer.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

func withStatus(status int, format string, args ...any) error {
	return &statusError{status, fmt.Errorf(format, args...)}
}

func (s *Server) postFiles(w http.ResponseWriter, r *http.Request) {
	q, u := s.admit(w, r, "write")
	if u == nil {
		return
	}
	done, err := s.receive(r, q, u)
	if err != nil {
		status := http.StatusInternalServerError
		if e, ok := errors.AsType[*statusError](err); ok {
			status = e.status
		}
		fail(w, status, err)
		return
	}
	body, err := json.Marshal(done)
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	// Not application/json, although it is.
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write(body) // the client is gone
}

// receive writes the files of one request.
func (s *Server) receive(r *http.Request, q fileQuery, u *User) ([]upload, error) {
	var md map[string]string
	if s.since("0.6.2") {
		var err error
		if md, err = metadataFrom(r.Header); err != nil {
			return nil, withStatus(http.StatusBadRequest, "invalid metadata: %w", err)
		}
	}
	body, err := decoded(r)
	if err != nil {
		return nil, withStatus(http.StatusBadRequest, "error decompressing request body: %w", err)
	}
	contentType := r.Header.Get("Content-Type")
	media, params, err := mime.ParseMediaType(contentType)
	switch {
	case err == nil && media == "application/octet-stream" && s.since("0.5.7"):
		if q.path == "" {
			return nil, withStatus(http.StatusBadRequest, "path query parameter is required for raw body upload")
		}
		name, err := s.resolve(q.path, u)
		if err != nil {
			return nil, &statusError{http.StatusBadRequest, err}
		}
		done, err := s.receiveFile(name, body, r.ContentLength, u, md)
		if err != nil {
			return nil, err
		}
		return []upload{done}, nil
	case err == nil && strings.HasPrefix(media, "multipart/"):
		if params["boundary"] == "" {
			return nil, fmt.Errorf("error parsing multipart form: %w", http.ErrMissingBoundary)
		}
		return s.receiveParts(multipart.NewReader(body, params["boundary"]), r.ContentLength, q, u, md)
	}
	return nil, withStatus(http.StatusBadRequest,
		"unsupported content type: %s, expected multipart/form-data or application/octet-stream", contentType)
}

// decoded returns the body of r without its encoding.
func decoded(r *http.Request) (io.Reader, error) {
	switch encoding := r.Header.Get("Content-Encoding"); strings.ToLower(encoding) {
	case "", "identity":
		return r.Body, nil
	case "gzip":
		zipped, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, fmt.Errorf("failed to create gzip reader: %w", err)
		}
		return zipped, nil
	default:
		return nil, fmt.Errorf("unsupported Content-Encoding: %s, supported: [gzip]", encoding)
	}
}

// receiveParts writes every part that is named file and ignores all others.
func (s *Server) receiveParts(parts *multipart.Reader, length int64, q fileQuery, u *User, md map[string]string) ([]upload, error) {
	done := []upload{}
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return done, nil
		} else if err != nil {
			return nil, fmt.Errorf("error reading form: %w", err)
		}
		if part.FormName() != "file" {
			continue
		}
		path := q.path
		if path == "" {
			if path, err = partPath(part); err != nil {
				return nil, withStatus(http.StatusBadRequest, "error getting multipart custom part file name: %w", err)
			}
		}
		name, err := s.resolve(path, u)
		if err != nil {
			return nil, &statusError{http.StatusBadRequest, err}
		}
		if slices.ContainsFunc(done, func(d upload) bool { return d.Path == name }) {
			return nil, withStatus(http.StatusBadRequest, "you cannot upload multiple files to the same path '%s' "+
				"in one upload request, only the first specified file was uploaded", name)
		}
		one, err := s.receiveFile(name, part, length, u, md)
		if err != nil {
			return nil, err
		}
		done = append(done, one)
	}
}

// partPath returns the filename of a part with its directories, which
// multipart.Part leaves out.
func partPath(part *multipart.Part) (string, error) {
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil {
		return "", err
	}
	name, ok := params["filename"]
	if !ok {
		return "", errors.New("filename not found in Content-Disposition header")
	}
	return name, nil
}

// receiveFile writes one file in place.
func (s *Server) receiveFile(name string, body io.Reader, length int64, u *User, md map[string]string) (upload, error) {
	if err := s.makeDirs(unixpath.Dir(name), u); err != nil {
		return upload{}, fmt.Errorf("error ensuring directories: %w", err)
	}
	// A path that ends in a slash names the directory that was just made.
	if fi, err := s.tree.stat(name); err == nil && fi.IsDir() {
		return upload{}, withStatus(http.StatusBadRequest, "path is a directory: %s", name)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return upload{}, fmt.Errorf("error getting file info: %w", err)
	}
	f, err := s.tree.open(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|openNoWait, 0o644)
	if isAny(err, outOfSpace) {
		return upload{}, withStatus(http.StatusInsufficientStorage, "not enough inodes available: %w", err)
	} else if err != nil {
		return upload{}, fmt.Errorf("error opening file: %w", err)
	}
	err = s.fill(f, name, body, length, u, md)
	if closeErr := f.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("error closing file: %w", closeErr)
	}
	if err != nil {
		return upload{}, err
	}
	return upload{Metadata: md, Name: unixpath.Base(name), Path: name, Type: "file"}, nil
}

func isAny(err error, targets []error) bool {
	return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
}

// fill gives the open file its owner, content and metadata.
func (s *Server) fill(f file, name string, body io.Reader, length int64, u *User, md map[string]string) error {
	if err := f.Chown(int(u.UID), int(u.GID)); err != nil && u.Switch {
		return fmt.Errorf("error changing file ownership: %w", err)
	}
	if _, err := io.Copy(f, body); isAny(err, outOfSpace) {
		const full = "not enough disk space available"
		if length < 0 {
			return withStatus(http.StatusInsufficientStorage, full)
		}
		return withStatus(http.StatusInsufficientStorage, "attempted to write %d bytes: %s", length, full)
	} else if err != nil {
		return fmt.Errorf("error writing file: %w", err)
	}
	if err := s.setMetadata(name, f, md); isAny(err, outOfSpace) {
		return withStatus(http.StatusInsufficientStorage, "not enough space for file metadata: %w", err)
	} else if err != nil {
		return fmt.Errorf("error setting file metadata: %w", err)
	}
	return nil
}
