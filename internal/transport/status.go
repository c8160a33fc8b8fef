package transport

import (
	"encoding/json"
	"fmt"
	"html"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// MaxErrorBody is how much of an error's body is read.
const MaxErrorBody = 1 << 20

// redacted stands where a secret stood.
const redacted = "[redacted]"

// maxMessage is how much of it is shown.
const maxMessage = 300

// StatusError is an answer that is not a success, with what it said of itself.
type StatusError struct {
	StatusCode int
	Code       string // error_code of the control plane, or a Connect code; often empty
	Message    string // as the server put it, without HTML and control characters, and bounded
	RequestID  string
	RetryAfter time.Duration // whole seconds only; 0: absent or in another form
	HasRetry   bool          // a usable Retry-After was there
	JSON       bool          // the body was a JSON object
	Proxy      bool          // made by E2B's proxy in front of the sandbox, not by the sandbox
	Port       int           // the closed port that the proxy names
}

func (e *StatusError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("%d %s", e.StatusCode, http.StatusText(e.StatusCode))
	}
	return fmt.Sprintf("%d: %s", e.StatusCode, e.Message)
}

// PortClosed reports the proxy's answer for a port where nothing listens.
func (e *StatusError) PortClosed() bool {
	return e.Proxy && e.StatusCode == http.StatusBadGateway && strings.Contains(e.Message, "port is not open")
}

// SandboxGone reports the proxy's answer for a sandbox that is killed, paused
// or unknown: it does not tell them apart.
func (e *StatusError) SandboxGone() bool {
	return e.Proxy && e.StatusCode == http.StatusBadGateway && strings.Contains(e.Message, "sandbox was not found")
}

// errorBody is every shape of error object that the servers send: the control
// plane's, the proxy's, envd's, and that of an RPC, whose code is a string. A
// member of another type than expected must not hide the others.
type errorBody struct {
	Code      json.RawMessage `json:"code"`
	Message   json.RawMessage `json:"message"`
	ErrorCode json.RawMessage `json:"error_code"`
	SandboxID json.RawMessage `json:"sandboxId"`
	Port      json.RawMessage `json:"port"`
	Detail    json.RawMessage `json:"detail"` // of the interpreter
}

// text returns the string in raw, if it is one.
func text(raw json.RawMessage) (string, bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

// NewStatusError reads what the answer to a request says of itself. sent are the
// request's headers: what was secret in them is taken out of the text, and so are
// the other secrets that were sent. body is what was read of the answer, at most
// MaxErrorBody.
func NewStatusError(status int, sent, h http.Header, body []byte, secrets ...string) *StatusError {
	hide := hider(sent, secrets)
	e := &StatusError{StatusCode: status, RequestID: Clean(hide(rawRequestID(h)), false)}
	e.RetryAfter, e.HasRetry = RetryAfter(h)
	var b errorBody
	if err := json.Unmarshal(body, &b); err != nil {
		e.Message = clean(string(body), isHTML(h, body), hide)
		return e
	}
	e.JSON = true
	code, ok := text(b.ErrorCode)
	if !ok || code == "" {
		code, _ = text(b.Code)
	}
	e.Code = clean(code, false, hide)
	msg, ok := text(b.Message)
	if !ok && len(b.Detail) > 0 {
		if msg, ok = text(b.Detail); !ok {
			msg = string(b.Detail)
		}
	}
	e.Message = clean(msg, false, hide)
	if _, e.Proxy = text(b.SandboxID); e.Proxy {
		_ = json.Unmarshal(b.Port, &e.Port)
	}
	return e
}

// hider returns what takes the secrets of a request out of text, also
// where that is JSON or HTML still.
func hider(sent http.Header, secrets []string) func(string) string {
	var forms []string
	for _, v := range append(slices.Clip(secrets), sent.Get(HeaderAPIKey), sent.Get(HeaderEnvdToken), sent.Get(HeaderTrafficToken)) {
		if v == "" {
			continue
		}
		forms = append(forms, v, html.EscapeString(v))
		if quoted, err := json.Marshal(v); err == nil {
			forms = append(forms, string(quoted[1:len(quoted)-1]))
		}
	}
	// The first that fits is taken: of two that begin alike it must be the longer one.
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(forms))
	for _, form := range forms {
		pairs = append(pairs, form, redacted)
	}
	return strings.NewReplacer(pairs...).Replace
}

// RequestID returns the ID by which the server's operators find a request.
func RequestID(h http.Header) string { return Clean(rawRequestID(h), false) }

func rawRequestID(h http.Header) string {
	for _, name := range []string{"X-E2b-Trace-Id", "X-Request-Id"} {
		if v := h.Get(name); v != "" {
			return v
		}
	}
	return ""
}

// RetryAfter reads a Retry-After of whole seconds; a date or anything else
// counts as none.
func RetryAfter(h http.Header) (time.Duration, bool) {
	s, err := strconv.ParseUint(strings.TrimSpace(h.Get("Retry-After")), 10, 31)
	if err != nil {
		return 0, false
	}
	return time.Duration(s) * time.Second, true
}

func isHTML(h http.Header, body []byte) bool {
	if t, _, err := mime.ParseMediaType(h.Get("Content-Type")); err == nil {
		return t == "text/html"
	}
	return strings.HasPrefix(http.DetectContentType(body), "text/html")
}

var (
	invisible = regexp.MustCompile(`(?is)<(style|script|head)\b.*?</(style|script|head)>`)
	title     = regexp.MustCompile(`(?is)<title>(.*?)</title>`)
	tag       = regexp.MustCompile(`(?s)<[^>]*>`)
	signature = regexp.MustCompile(`\bv1_[A-Za-z0-9+/%_-]{20,}`)
	apiKey    = regexp.MustCompile(`\b(?:sk_)?e2b_[0-9A-Za-z]{8,}`)
)

// Clean makes text of a server fit to be shown: no markup, no control
// characters, no key or signature, one line, bounded in length.
func Clean(s string, markup bool) string {
	return clean(s, markup, func(s string) string { return s })
}

// clean is Clean, with hide to take out what else is secret.
func clean(s string, markup bool, hide func(string) string) string {
	if markup {
		t := ""
		if m := title.FindStringSubmatch(s); m != nil {
			t = m[1] + " "
		}
		s = t + tag.ReplaceAllString(invisible.ReplaceAllString(s, " "), " ")
		// Entities may hide markup of their own, and secrets.
		s = strings.NewReplacer("<", " ", ">", " ").Replace(hide(html.UnescapeString(s)))
	}
	s = hide(s)
	// The longest secret is far shorter than the second bound, so that cutting
	// first cannot leave half of one.
	if len(s) > 16*maxMessage {
		s = s[:16*maxMessage]
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	s = signature.ReplaceAllString(s, redacted)
	s = apiKey.ReplaceAllString(s, redacted)
	if len(s) > maxMessage {
		// The end often says why, and what it is about stands before.
		const tail = maxMessage / 3
		s = strings.ToValidUTF8(s[:maxMessage-tail-len("…")], "") + "…" + strings.ToValidUTF8(s[len(s)-tail:], "")
	}
	return s
}
