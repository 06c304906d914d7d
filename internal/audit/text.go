package audit

import (
	"strings"

	"mcpgateway/internal/secrets"
)

// maxName bounds the length of a name in front of a value. maxPlain bounds the length of a value
// that may turn out not to be a secret. Both parts may be scanned again; the bounds keep the time
// linear.
const (
	maxName  = 64
	maxPlain = 1 << 10
)

// textEdits returns the edits that mask secrets in text: values after the name of a secret
// (name=value, name: value, --name value), tokens of known issuers, and private keys. Its time
// is linear.
func textEdits(text string) []replacement {
	all := privateKeys(text)
	done := 0
	hide := func(from, to int) {
		if from < done || from == to || text[from:to] == secrets.Redacted {
			return
		}
		all = append(all, replacement{from, to, secrets.Redacted})
		done = to
	}
	word := 0 // start of the word around i
	for i := 0; i <= len(text); i++ {
		if i < len(text) && isNameByte(text[i]) {
			continue
		}
		w := text[word:i]
		if len(w) >= 12 && strings.ContainsAny(w, "0123456789") && secrets.IsIssuedToken(w) {
			hide(word, i)
		}
		if i < len(text) {
			if from, to := valueAfterName(text, word, i); from < to {
				hide(from, to)
				i = to - 1
			}
		}
		word = i + 1
	}
	return all
}

// isNameByte reports whether c can be part of a name or of most tokens.
func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '_' || c == '-' || c == '.'
}

// valueAfterName returns the range of the value after the word text[word:i] if the word is the name
// of a secret; otherwise an empty range.
func valueAfterName(text string, word, i int) (from, to int) {
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
	if !secrets.IsSecretName(name) {
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
	if to-from > maxPlain || to > from && secrets.IsSecret(name, text[from:to]) {
		return from, to
	}
	return 0, 0
}

// skipQuotes returns the offset after the spaces, quotes and backslashes at i. It skips at most
// maxName bytes.
func skipQuotes(text string, i int) int {
	near := text[i:min(len(text), i+maxName)]
	return i + len(near) - len(strings.TrimLeft(near, ` "'\`))
}

// privateKeys returns the edits that mask private keys in PEM format.
func privateKeys(text string) (all []replacement) {
	const begin, end, line = "-----BEGIN ", "-----END ", "-----"
	for at := 0; ; {
		i := strings.Index(text[at:], begin)
		if i < 0 {
			return all
		}
		at += i + len(begin)
		title := text[at:min(len(text), at+maxName)]
		n := strings.Index(title, line)
		if n < 0 || !strings.Contains(title[:n], "PRIVATE") {
			continue
		}
		from := at + n + len(line)
		if i := strings.Index(text[from:], end); i >= 0 {
			at = from + i
		} else {
			at = from + stringEnd(text[from:])
		}
		if at > from && text[from:at] != secrets.Redacted {
			all = append(all, replacement{from, at, secrets.Redacted})
		}
	}
}

// stringEnd returns the end of a JSON string whose content continues at the start of text, or the
// length of text if the string does not end.
func stringEnd(text string) int {
	for i := range len(text) {
		if text[i] == '"' {
			rest := strings.TrimLeft(text[i+1:min(len(text), i+maxName)], " \t\r\n")
			if rest != "" && strings.IndexByte(",}]", rest[0]) >= 0 {
				return i
			}
		}
	}
	return len(text)
}
