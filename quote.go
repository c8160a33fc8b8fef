package e2b

import "strings"

// Quote returns args as one line of shell, each quoted so that bash and any
// POSIX shell read it as it is. A NUL byte, which no argument can hold, is left
// out.
func Quote(args ...string) string {
	var b strings.Builder
	for i, arg := range args {
		if i > 0 {
			b.WriteByte(' ')
		}
		if arg != "" && strings.Trim(arg, safeInShell) == "" {
			b.WriteString(arg)
			continue
		}
		b.WriteByte('\'')
		b.WriteString(forSingleQuotes.Replace(arg))
		b.WriteByte('\'')
	}
	return b.String()
}

var forSingleQuotes = strings.NewReplacer("'", `'\''`, "\x00", "")

// safeInShell are the characters that mean only themselves, wherever they stand.
const safeInShell = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,:@%+"
