package audit

import (
	"strings"

	"mcpgateway/internal/secrets"
)

// maxName bounds what is read of the name in front of a value, and maxPlain the value that may turn
// out not to be a secret: both may be read again for what follows within them.
const (
	maxName  = 64
	maxPlain = 1 << 10
)

// redactText returns text with secrets replaced: values after the name of a secret (name=value,
// name: value, --name value) and tokens of known issuers. Its time is linear.
func redactText(text string) string {
	text = redactKeys(text)
	var out strings.Builder
	copied := 0
	replace := func(from, to int) {
		if from < copied || from == to || text[from:to] == "***" {
			return
		}
		out.WriteString(text[copied:from])
		out.WriteString("***")
		copied = to
	}
	word := 0 // where the word begins that i is in
	for i := 0; i <= len(text); i++ {
		if i < len(text) && isWord(text[i]) {
			continue
		}
		if w := text[word:i]; i-word >= 12 && strings.ContainsAny(w, "0123456789") && secrets.Issued(w) {
			replace(word, i)
		}
		if i < len(text) {
			if from, to := named(text, word, i); from < to {
				replace(from, to)
				i = to - 1
			}
		}
		word = i + 1
	}
	if copied == 0 {
		return text
	}
	out.WriteString(text[copied:])
	return out.String()
}

// isWord reports whether c can be part of a name or of most tokens.
func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.'
}

// named returns where the value after the word text[word:i] is, if that is the name of a secret;
// from == to if it is not.
func named(text string, word, i int) (from, to int) {
	name := text[word:i]
	if name == "" || len(name) > maxName {
		return 0, 0
	}
	at := skipQuotes(text, i)
	switch rest := text[at:]; {
	case strings.HasPrefix(rest, "://"):
		return 0, 0
	case rest != "" && (rest[0] == '=' || rest[0] == ':'):
		at = skipQuotes(text, at+1)
	case strings.HasPrefix(name, "--") && text[i] == ' ':
	case text[i] == '>' && word > 0 && text[word-1] == '<': // <password>
		at = i + 1
	default:
		return 0, 0
	}
	if !secrets.Name(name) {
		return 0, 0
	}
	value := secrets.AfterScheme(text[at:])
	from = len(text) - len(value)
	ends := " \t\r\n\"'\\,;&(){}[]<>"
	if strings.HasSuffix(strings.ToLower(name), "cookie") {
		ends = "\r\n\"\\"
	}
	if q := text[at-1]; q == '"' || q == '\'' {
		ends = string(q) + "\"\\\r\n"
	}
	to = len(text)
	if n := strings.IndexAny(value, ends); n >= 0 {
		to = from + n
	}
	if to-from > maxPlain || to > from && secrets.Pair(name, text[from:to]) {
		return from, to
	}
	return 0, 0
}

// skipQuotes returns where text goes on after the spaces and quotes at i, a few at most.
func skipQuotes(text string, i int) int {
	near := text[i:min(len(text), i+maxName)]
	return i + len(near) - len(strings.TrimLeft(near, ` "'\`))
}

// redactKeys returns text without the private keys in it.
func redactKeys(text string) string {
	const begin, end, line = "-----BEGIN ", "-----END ", "-----"
	if !strings.Contains(text, begin) {
		return text
	}
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, begin)
		out.WriteString(before)
		if !found {
			return out.String()
		}
		out.WriteString(begin)
		text = rest
		title := rest[:min(len(rest), maxName)]
		n := strings.Index(title, line)
		if n < 0 || !strings.Contains(title[:n], "PRIVATE") || strings.HasPrefix(rest[n+len(line):], "***") {
			continue
		}
		out.WriteString(title[:n] + line + "***")
		text = ""
		if i := strings.Index(rest[n+len(line):], end); i >= 0 {
			text = rest[n+len(line)+i:]
		}
	}
}
