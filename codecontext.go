package e2b

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/seed-09a7379d/e2b-go/internal/interpreter"
)

// CodeContext is a place in which code runs: an interpreter of one language with
// its variables. What runs in one context does not hold up another.
type CodeContext struct {
	ID       string // for CodeOptions.Context
	Language string // as "python"
	// Dir is the working directory that the context was made with. The code may have
	// changed it, and so does a restart.
	Dir string
}

// CodeContextOptions says what context to make. The zero value makes one for
// Python.
type CodeContextOptions struct {
	Language string // as in CodeOptions
	// Dir is the working directory; "" means /home/user. The interpreter does not
	// say when it does not exist, and then uses /home/user.
	Dir string
}

var (
	opNewContext     = operation{name: "make code context", notFound: ErrNotFound, code: true}
	opContexts       = operation{name: "list code contexts", notFound: ErrNotFound, code: true}
	opRestartContext = operation{name: "restart code context", notFound: ErrNotFound, code: true}
	opRemoveContext  = operation{name: "remove code context", notFound: ErrNotFound, code: true}
)

// NewCodeContext makes a code context, besides the one that each language has
// anyway. It lives until it is removed or the sandbox ends, and costs the memory of
// one more interpreter. ctx bounds everything.
//
// Errors: ErrInvalidArgument, ErrNotSupported (the interpreter lacks the
// language), ErrPortClosed, ErrSandboxNotRunning, ErrStreamInterrupted (the answer
// was lost: the context may exist).
//
// See https://e2b.dev/docs/code-interpreting/contexts.
func (s *Sandbox) NewCodeContext(ctx context.Context, opts *CodeContextOptions) (*CodeContext, error) {
	var o CodeContextOptions
	if opts != nil {
		o = *opts
	}
	op := opNewContext.name
	if err := validLanguage(op, o.Language); err != nil {
		return nil, err
	}
	if o.Language != "" {
		o.Language = normalLanguage(o.Language)
	}
	if strings.Contains(o.Dir, "\x00") {
		return nil, invalid(op, "Dir", "has a NUL byte")
	}
	if err := validText(op, nil, argument{"Dir", o.Dir}); err != nil {
		return nil, err
	}
	var made *interpreter.Context
	err := s.contextCall(ctx, opNewContext, func(ctx context.Context, c *interpreter.Client) (err error) {
		made, err = c.NewContext(ctx, o.Language, o.Dir)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.client.contexts.made(s.id, made)
	return &CodeContext{ID: made.ID, Language: made.Language, Dir: made.Dir}, nil
}

// CodeContexts returns the sandbox's code contexts, the oldest first. Those that
// the languages have anyway are among them, and are not marked; that of a language
// other than Python and JavaScript is there once it was used. ctx bounds
// everything.
//
// Errors: ErrPortClosed, ErrSandboxNotRunning, ErrNotSupported.
//
// See https://e2b.dev/docs/code-interpreting/contexts.
func (s *Sandbox) CodeContexts(ctx context.Context) ([]CodeContext, error) {
	list, err := s.listContexts(ctx, opContexts)
	if err != nil {
		return nil, err
	}
	out := make([]CodeContext, len(list))
	for i, c := range list {
		out[i] = CodeContext{ID: c.ID, Language: c.Language, Dir: c.Dir}
	}
	return out, nil
}

func (s *Sandbox) listContexts(ctx context.Context, op operation) ([]interpreter.Context, error) {
	var list []interpreter.Context
	err := s.contextCall(ctx, op, func(ctx context.Context, c *interpreter.Client) (err error) {
		list, err = c.Contexts(ctx)
		return err
	})
	if err == nil {
		s.client.contexts.listed(s.id, list)
	}
	return list, err
}

// RestartCodeContext gives a context a new interpreter: all variables are gone,
// and the working directory is /home/user. Code that runs in it ends with
// ErrInterpreter. The next call in it first waits until it is ready, which takes
// two seconds or so. ctx bounds everything.
//
// Errors: ErrNotFound, ErrInvalidArgument, ErrInterpreter (it can not be
// restarted any more: make another), ErrPortClosed, ErrSandboxNotRunning.
//
// See https://e2b.dev/docs/code-interpreting/contexts.
func (s *Sandbox) RestartCodeContext(ctx context.Context, id string) error {
	if err := validContext(opRestartContext.name, "id", id); err != nil {
		return err
	}
	known, err := s.knownContext(ctx, opRestartContext, id)
	if err != nil {
		return err
	}
	// Before, for a call that comes while this one is under way, and afterwards, for
	// one that has by then settled with the interpreter that was to go.
	keys := known.keys(s.id, id)
	s.client.contexts.restarted(keys)
	err = s.contextCall(ctx, opRestartContext, func(ctx context.Context, c *interpreter.Client) error {
		return c.RestartContext(ctx, id)
	})
	if errors.Is(err, ErrNotFound) {
		s.client.contexts.removed(s.id, id)
	} else {
		s.client.contexts.restarted(keys)
	}
	return err
}

// RemoveCodeContext ends a context for good. Code that runs in it ends with
// ErrInterpreter.
//
// A context that a language has anyway is not removed, since nothing brings it
// back; use RestartCodeContext to empty it. The interpreter does not tell them
// apart, so this refuses, with ErrInvalidArgument, what may be one: a context that
// this Client did not make and that is the first of Python or JavaScript in the
// list, or of another language and has the same Dir as the first of Python.
//
// Errors: ErrNotFound, ErrInvalidArgument, ErrPortClosed, ErrSandboxNotRunning.
//
// See https://e2b.dev/docs/code-interpreting/contexts.
func (s *Sandbox) RemoveCodeContext(ctx context.Context, id string) error {
	op := opRemoveContext.name
	if err := validContext(op, "id", id); err != nil {
		return err
	}
	gates := &s.client.contexts
	if known, ok := gates.lookup(s.id, id); !ok || !known.made {
		// What was known may be old: the default of a language appears with its use.
		list, err := s.listContexts(ctx, opRemoveContext)
		if err != nil {
			return err
		}
		switch known, ok := gates.lookup(s.id, id); {
		case !ok || !hasContext(list, id):
			return s.noContext(opRemoveContext)
		case !known.made && known.keep:
			return invalid(op, "id", "may be the context that %s has anyway: %s", known.language, id)
		}
	}
	err := s.contextCall(ctx, opRemoveContext, func(ctx context.Context, c *interpreter.Client) error {
		return c.RemoveContext(ctx, id)
	})
	if err == nil || errors.Is(err, ErrNotFound) {
		gates.removed(s.id, id)
	}
	return err
}

func hasContext(list []interpreter.Context, id string) bool {
	for _, c := range list {
		if c.ID == id {
			return true
		}
	}
	return false
}

// contextCall makes one call about contexts, within the request timeout.
func (s *Sandbox) contextCall(ctx context.Context, op operation, call func(context.Context, *interpreter.Client) error) error {
	if ctx.Err() != nil {
		return s.dataError(ctx, op, ctx.Err(), false)
	}
	bound, release := s.bound(ctx, s.client.openLimit(ctx))
	defer release()
	err := ended(ctx, bound, call(bound, s.state.Load().code))
	if errors.Is(err, interpreter.ErrBadAnswer) {
		return &APIError{Op: op.name, SandboxID: s.id, StatusCode: 200, Message: err.Error(), Attempts: 1}
	}
	return s.dataError(ctx, op, err, false)
}

func (s *Sandbox) noContext(op operation) error {
	return &opError{op: op.name, sandboxID: s.id, detail: "no such code context", errs: []error{ErrNotFound}}
}

func validLanguage(op, language string) error {
	for i := range len(language) {
		if c := language[i]; c < ' ' || c == 0x7f {
			return invalid(op, "Language", "is none: %.80q", language)
		}
	}
	if len(language) > 64 || !utf8.ValidString(language) {
		return invalid(op, "Language", "is none: %.80q", language)
	}
	return nil
}

// validContext checks an ID, which becomes a segment of a path.
func validContext(op, arg, id string) error {
	if !validID(id) {
		return invalid(op, arg, "is no ID of a code context: %.80q", id)
	}
	return nil
}

// contextInfo is what is known of a context.
type contextInfo struct {
	language string
	made     bool // by this Client
	first    bool // probably what its language has anyway
	keep     bool // possibly that
}

// keys are the gates of a context. One that may be reached by its language too
// has that one's gate besides its own, so that what a call left in it is known
// either way. The language's goes first, everywhere, or two calls could wait for
// each other.
func (i contextInfo) keys(sandbox, id string) []gateKey {
	own := gateKey{sandbox: sandbox, id: id}
	if i.first {
		return []gateKey{{sandbox: sandbox, language: normalLanguage(i.language)}, own}
	}
	return []gateKey{own}
}

// knownContext tells what is known of a context, and asks if nothing is: its
// language must be known for the escaping of variables, and whether it is a
// default for its gates. That is one request per context, for those that another
// Client made.
func (s *Sandbox) knownContext(ctx context.Context, op operation, id string) (contextInfo, error) {
	if known, ok := s.client.contexts.lookup(s.id, id); ok {
		return known, nil
	}
	list, err := s.listContexts(ctx, op)
	if err != nil {
		return contextInfo{}, err
	}
	known, ok := s.client.contexts.lookup(s.id, id)
	if !ok || !hasContext(list, id) {
		return contextInfo{}, s.noContext(op)
	}
	return known, nil
}

func (g *contextGates) lookup(sandbox, id string) (contextInfo, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	info, ok := g.known[gateKey{sandbox: sandbox, id: id}]
	return info, ok
}

// made remembers a context that this Client made.
func (g *contextGates) made(sandbox string, c *interpreter.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.learn(gateKey{sandbox: sandbox, id: c.ID}, contextInfo{language: normalLanguage(c.Language), made: true})
}

// listed remembers the contexts of a sandbox.
func (g *contextGates) listed(sandbox string, list []interpreter.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	seen := make(map[string]bool)
	home, anywhere := "", true // where contexts begin that nobody chose a directory for
	for _, c := range list {
		key := gateKey{sandbox: sandbox, id: c.ID}
		if g.known[key].made {
			continue
		}
		language := normalLanguage(c.Language)
		info := contextInfo{language: language, first: !seen[language]}
		seen[language] = true
		switch {
		case language == "python" && info.first:
			home, anywhere = c.Dir, false
			info.keep = true
		case language == "python", language == "javascript":
			// Their defaults are there from the start, before any other.
			info.keep = info.first
		default:
			info.keep = anywhere || c.Dir == home
		}
		g.learn(key, info)
	}
}

// learn sets what is known of a context, under mu, and makes room for it.
func (g *contextGates) learn(key gateKey, info contextInfo) {
	if g.known == nil {
		g.known = make(map[gateKey]contextInfo)
	}
	for old := range g.known {
		if len(g.known) < maxDoubts {
			break
		}
		delete(g.known, old) // it is asked for again, if need be
	}
	g.known[key] = info
}

// removed forgets a context that does not exist any more.
func (g *contextGates) removed(sandbox, id string) {
	key := gateKey{sandbox: sandbox, id: id}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.known, key)
	if gate := g.m[key]; gate != nil && gate.refs == 0 {
		delete(g.m, key)
	}
}

// restarted makes the next call wait until a context is ready. The one that is in
// it now, if any, sees for itself.
func (g *contextGates) restarted(keys []gateKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, key := range keys {
		g.gate(key).restart = true
	}
	g.evict()
}
