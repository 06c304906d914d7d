package logging

import (
	"strings"

	"mcpgateway/internal/secrets"
)

// The texts in front of credentials. If a text contains none of them, findCredentials finds
// nothing, and the filter of a Mask skips the text. Each text must have at least three bytes,
// because newPrefixFilter reads the first three bytes.
//
// They are not the lists of package secrets, which decide which values of the configuration a Mask
// is given. A kind of secret that is added there is masked in the line of a backend only if the
// value is in the configuration. To be masked without that, it must be found here: by another text
// in one of these lists, or by a further function in findCredentials whose texts are added to
// Mask.update.
var (
	schemes = []string{"Bearer ", "BEARER ", "bearer "} // in front of a token
	headers = []string{"uthorization", "UTHORIZATION"}  // in front of the value of the header
)

// schemeEnd is in front of the user information of a URL.
const schemeEnd = "://"

// findCredentials finds secrets that the Mask was not given, by the texts in front of them. It does
// not use package regexp, because a case-insensitive pattern takes more time than the rest of the
// log line.
func findCredentials(s string) []textRange {
	return appendAuthorizations(appendBearers(appendURLs(nil, s), s), s)
}

// appendURLs appends the user information and the queries of URLs, except for expressions of a URI
// template.
func appendURLs(spans []textRange, s string) []textRange {
	for at := 0; ; {
		i := strings.Index(s[at:], schemeEnd)
		if i < 0 {
			return spans
		}
		at += i + len(schemeEnd)
		end := at + urlLength(s[at:])
		host := at + lengthUntil(s[at:end], "/?#")
		i = strings.LastIndexByte(s[at:host], '@')
		if i >= 0 && secrets.IsSecretUserInfo(s[at:at+i]) {
			spans = appendSpan(spans, s, at, at+i)
		}
		if i := secrets.QueryStart(s[at:end]); i >= 0 {
			spans = appendSpan(spans, s, at+i, end)
		}
		at = end
	}
}

// appendBearers appends tokens after "Bearer". After "bearer" in lower case, which may be prose
// ("bearer of news"), a token must be long. A word ("Bearer TOKEN", "Bearer tokens are") is not
// a token.
func appendBearers(spans []textRange, s string) []textRange {
	for _, scheme := range schemes {
		for at := 0; ; {
			i := strings.Index(s[at:], scheme)
			if i < 0 {
				break
			}
			at += i + len(scheme)
			end := at + tokenLength(s[at:])
			isLong := end-at >= 16 || scheme[0] == 'B'
			if isLong && !isChallenge(s[at:], end-at) && !secrets.IsWord(s[at:end]) {
				spans = appendSpan(spans, s, at, end)
			}
		}
	}
	return spans
}

// isChallenge reports whether s, the text after "Bearer ", is the parameter of a
// WWW-Authenticate header, as in `Bearer realm="mcp"`, and not a token of length n.
func isChallenge(s string, n int) bool {
	name := strings.TrimRight(s[:n], "=")
	return strings.Contains(name, "=") ||
		len(name) < n && n < len(s) && (s[n] == '"' || s[n] == '\\')
}

// appendAuthorizations appends values after "Authorization" and a colon or equals sign, in a
// header, a Go map or JSON. A word is not a secret ("Authorization: variable X is not set"),
// unless it is the whole value in quotes or after "=".
func appendAuthorizations(spans []textRange, s string) []textRange {
	for _, name := range headers {
		for at := 0; ; {
			i := strings.Index(s[at:], name)
			if i < 0 {
				break
			}
			at += i + len(name)
			value := strings.TrimLeft(s[at:], " :=[\"'\\")
			from := len(s) - len(value)
			separator := strings.LastIndexAny(s[at:from], ":=")
			if separator < 0 {
				continue
			}
			opening := s[at+separator+1 : from]
			secret := secrets.AfterScheme(value)
			from += len(value) - len(secret)
			at = from + tokenLength(s[from:])
			quoted := strings.ContainsAny(opening, "[\"'") && !strings.HasPrefix(s[at:], " ")
			prose := !quoted && (opening != "" || secret != value)
			text := s[from:at]
			if !isLiteral(text) && !secrets.IsPlaceholder(text) &&
				!(prose && secrets.IsWord(text)) {
				spans = appendSpan(spans, s, from, at)
			}
		}
	}
	return spans
}

// isLiteral reports whether text is a literal that contains no credential, as in
// {"authorization":true}.
func isLiteral(text string) bool {
	switch text {
	case "true", "false", "null", "nil", "none":
		return true
	}
	return false
}

// appendSpan appends the span s[from:to], unless it is empty or already masked.
func appendSpan(spans []textRange, s string, from, to int) []textRange {
	if from == to || s[from:to] == secrets.Redacted {
		return spans
	}
	return append(spans, textRange{from, to})
}

// urlLength returns the length of the URL at the beginning of s. A URL ends before quotes, angle
// brackets and backslashes, which it cannot contain, so that a mask never splits an escape
// sequence.
func urlLength(s string) int { return lengthUntil(s, " \t\r\n\"<>\\`") }

// tokenLength returns the length of the credential at the beginning of s. A credential also ends
// before punctuation.
func tokenLength(s string) int { return lengthUntil(s, " \t\r\n\"<>\\`',;()[]{}") }

func lengthUntil(s, ends string) int {
	if i := strings.IndexAny(s, ends); i >= 0 {
		return i
	}
	return len(s)
}
