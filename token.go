package e2b

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
)

// A Token lets its bearer into a sandbox. It prints as [redacted] with every
// verb of fmt, also within a struct, and as a value of log/slog; Reveal and JSON
// give its value. The zero Token is none. Tokens cannot be compared with ==.
type Token struct {
	_ [0]func() // == would compare pointers
	p *string   // fmt prints a pointer inside a struct as an address
}

// NewToken returns the token with the value s, the zero Token for "".
func NewToken(s string) Token {
	if s == "" {
		return Token{}
	}
	return Token{p: &s}
}

// Reveal returns the token's value, "" for none.
func (t Token) Reveal() string {
	if t.p == nil {
		return ""
	}
	return *t.p
}

// IsZero reports whether there is no token.
func (t Token) IsZero() bool { return t.p == nil }

// String returns "[redacted]", or "" for no token.
func (t Token) String() string {
	if t.p == nil {
		return ""
	}
	return "[redacted]"
}

// Format writes what String returns, whatever the verb.
func (t Token) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.String()) }

// LogValue returns what String returns.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalJSON returns the token's value, so that a Record can be stored.
func (t Token) MarshalJSON() ([]byte, error) { return json.Marshal(t.Reveal()) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (t *Token) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("e2b: token is not a JSON string")
	}
	*t = NewToken(s)
	return nil
}
