package interp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxBody bounds the body of a request, code included. The real service has no bound.
const maxBody = 16 << 20

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for path, methods := range map[string]map[string]http.HandlerFunc{
		"/health":                {http.MethodGet: s.health},
		"/execute":               {http.MethodPost: s.execute},
		"/contexts":              {http.MethodGet: s.listContexts, http.MethodPost: s.createContext},
		"/contexts/{id}":         {http.MethodDelete: s.deleteContext},
		"/contexts/{id}/restart": {http.MethodPost: s.restartContext},
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if handle := methods[r.Method]; handle != nil {
				handle(w, r)
				return
			}
			for method := range methods {
				w.Header().Add("Allow", method)
			}
			writeJSON(w, http.StatusMethodNotAllowed, detail("Method Not Allowed"))
		})
		mux.HandleFunc(path+"/{$}", func(w http.ResponseWriter, r *http.Request) {
			u := *r.URL
			u.Path = strings.TrimSuffix(u.Path, "/")
			u.RawPath = strings.TrimSuffix(u.RawPath, "/")
			http.Redirect(w, r, u.String(), http.StatusTemporaryRedirect)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusNotFound, detail("Not Found"))
	})
	return mux
}

// ServeHTTP answers one request of the code-interpreter protocol.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Origin") != "" { // any site may call it from a browser
		w.Header().Set("Access-Control-Allow-Origin", "*")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			w.Header().Set("Access-Control-Allow-Methods", "*")
			w.Header().Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
			writeText(w, http.StatusOK, "OK")
			return
		}
	}
	s.mux.ServeHTTP(w, r)
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, "OK")
}

func (s *Server) execute(w http.ResponseWriter, r *http.Request) {
	body, ok := readBody(w, r)
	if !ok {
		return
	}
	req, problems := decodeExecute(r.Header.Get("Content-Type"), body)
	if len(problems) > 0 {
		writeInvalid(w, problems)
		return
	}
	if req.contextID != "" && req.language != "" {
		writeText(w, http.StatusBadRequest, "Only one of context_id or language can be provided")
		return
	}
	out := &stream{w: w, keepAlive: s.cfg.KeepAlive}
	c, err := s.contextFor(req)
	if err != nil {
		if missing, ok := errors.AsType[*noContextError](err); ok && !missing.byLanguage && req.contextID == "" {
			// The real service finds this out when it has sent the headers.
			out.start()
			panic(http.ErrAbortHandler)
		}
		writeError(w, err)
		return
	}

	ctx := r.Context()
	if mine := c.turn.take(); mine == nil {
		if c.cold() {
			// The headers wait for the kernel, so that a failure gets a status.
			if _, err := c.ready(ctx); err != nil && !errors.Is(err, errRemoved) {
				c.release()
				writeError(w, err)
				return
			}
		}
		out.start()
	} else {
		out.start()
		select {
		case <-mine:
		case <-ctx.Done():
			c.turn.giveUp(mine)
			return // never ran
		}
	}
	c.execute(ctx, out, req)
}

func (s *Server) listContexts(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	contexts := make([]contextInfo, 0, len(s.contexts))
	for _, c := range s.contexts {
		contexts = append(contexts, c.info())
	}
	s.mu.Unlock()
	writeJSON(w, http.StatusOK, contexts)
}

func (s *Server) createContext(w http.ResponseWriter, r *http.Request) {
	body, ok := readBody(w, r)
	if !ok {
		return
	}
	req, problems := decodeContext(r.Header.Get("Content-Type"), body)
	if len(problems) > 0 {
		writeInvalid(w, problems)
		return
	}
	if err := s.supported(req.language); err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, s.addContext(req.language, req.cwd, false).info())
}

func (s *Server) restartContext(w http.ResponseWriter, r *http.Request) {
	c := s.context(r.PathValue("id"))
	if c == nil {
		writeError(w, &noContextError{id: r.PathValue("id")})
		return
	}
	c.reset(outcomeLost, false)
	writeJSON(w, http.StatusOK, nil)
}

func (s *Server) deleteContext(w http.ResponseWriter, r *http.Request) {
	c := s.removeContext(r.PathValue("id"))
	if c == nil {
		writeError(w, &noContextError{id: r.PathValue("id")})
		return
	}
	c.reset(outcomeLost, true)
	writeJSON(w, http.StatusOK, nil)
}

// contextInfo is a context as the API shows it.
type contextInfo struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
}

func (c *codeContext) info() contextInfo {
	return contextInfo{ID: c.id, Language: c.language, Cwd: c.listedCwd}
}

// The errors that a caller of /execute and /contexts can get instead of a context.

type noContextError struct {
	id         string
	byLanguage bool
}

func (e *noContextError) Error() string { return fmt.Sprintf("Context %s not found", e.id) }

type noKernelError struct {
	language string
	reason   string // may be ""
}

func (e *noKernelError) Error() string {
	name, reason := inJSON(e.language), ""
	if e.reason != "" {
		reason = " " + inJSON(e.reason)
	}
	return fmt.Sprintf(`{"message": "The '%s' kernel is not available. `+
		`Please pick another suitable kernel instead, or install that kernel.%s", "short_message": "%s not found"}`, name, reason, name)
}

// inJSON returns what stands for text between the quotes of a JSON string.
func inJSON(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		return ""
	}
	return string(asciiJSON(data[1 : len(data)-1]))
}

// contextFor returns the context that req names.
func (s *Server) contextFor(req executeRequest) (*codeContext, error) {
	if req.contextID != "" {
		if c := s.context(req.contextID); c != nil {
			return c, nil
		}
		return nil, &noContextError{id: req.contextID}
	}
	language := req.language
	if language == "" {
		language = languagePython
	}
	if err := s.supported(language); err != nil {
		return nil, err
	}
	s.mu.Lock()
	id, known := s.defaults[language]
	s.mu.Unlock()
	if !known {
		return s.addContext(language, "", true), nil
	}
	if c := s.context(id); c != nil {
		return c, nil
	}
	return nil, &noContextError{id: "None", byLanguage: req.language != ""}
}

// supported returns an error if there is no kernel for language.
func (s *Server) supported(language string) error {
	if s.cfg.Script != nil {
		return nil
	}
	switch language {
	case languagePython, "python3":
		if s.cfg.Python == "" {
			return fmt.Errorf("there is no Python to run the kernel with: %s", s.cfg.PythonErr)
		}
	case languageJavaScript:
		if s.cfg.Node == "" {
			return &noKernelError{language, "It needs node: " + s.cfg.NodeErr}
		}
	case languageBash:
		if s.cfg.Bash == "" {
			return &noKernelError{language, "There is no bash: " + s.cfg.BashErr}
		}
	default:
		return &noKernelError{language: language}
	}
	return nil
}

// startKernel starts a kernel for c, in the directory cwd, or if that is "" or does
// not exist, in the usual one.
func (s *Server) startKernel(ctx context.Context, c *codeContext, cwd string) (kernel, error) {
	if s.cfg.Script != nil {
		return newScriptKernel(s, c), nil
	}
	return startProcess(ctx, s, c, cwd)
}

// addContext makes a context; as the default of its language if isDefault, unless
// there is one already.
func (s *Server) addContext(language, cwd string, isDefault bool) *codeContext {
	c := &codeContext{
		id: newContextID(), language: language, listedCwd: cwd,
		server: s,
	}
	if cwd == "" {
		c.listedCwd = s.cfg.Dir
	}
	c.cwd = c.listedCwd
	s.mu.Lock()
	defer s.mu.Unlock()
	if isDefault {
		if id, ok := s.defaults[language]; ok {
			for _, other := range s.contexts {
				if other.id == id {
					return other
				}
			}
		}
		s.defaults[language] = c.id
	}
	c.removed = s.closed
	s.contexts = append(s.contexts, c)
	return c
}

func (s *Server) context(id string) *codeContext {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.contexts {
		if c.id == id {
			return c
		}
	}
	return nil
}

func (s *Server) removeContext(id string) *codeContext {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.contexts, func(c *codeContext) bool { return c.id == id })
	if i < 0 {
		return nil
	}
	c := s.contexts[i]
	s.contexts = slices.Delete(s.contexts, i, i+1)
	return c
}

// readBody reads the whole body of a request, or answers it and reports false.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	switch {
	case err == nil && utf8.Valid(body):
		return body, true
	case err == nil:
		writeJSON(w, http.StatusBadRequest, detail("There was an error parsing the body"))
	default:
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			writeJSON(w, http.StatusRequestEntityTooLarge, detail("Request Entity Too Large"))
		}
		// Else the client is gone.
	}
	return nil, false
}

func detail(v any) any {
	return struct {
		Detail any `json:"detail"`
	}{v}
}

func writeInvalid(w http.ResponseWriter, problems []invalid) {
	writeJSON(w, http.StatusUnprocessableEntity, detail(problems))
}

func writeError(w http.ResponseWriter, err error) {
	if _, ok := errors.AsType[*noContextError](err); ok {
		writeText(w, http.StatusNotFound, err.Error())
		return
	}
	writeText(w, http.StatusInternalServerError, "Failed to create context: "+err.Error())
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		http.Error(w, "Internal Server Error", http.StatusInternalServerError)
		return
	}
	write(w, status, "application/json", bytes.TrimSuffix(body.Bytes(), []byte("\n")))
}

func writeText(w http.ResponseWriter, status int, text string) {
	write(w, status, "text/plain; charset=utf-8", []byte(text))
}

func write(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(body) // or the client is gone
}
