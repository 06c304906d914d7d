package logging

import (
	"strings"

	"mcpgateway/internal/secrets"
)

// What credentials goes by: one of these is in every text that it finds anything in.
var (
	schemes = []string{"Bearer ", "BEARER ", "bearer "}
	headers = []string{"uthorization", "UTHORIZATION"}
)

const afterProtocol = "://"

// credentials finds what looks like a secret, whoever wrote it. By hand and not by regexp: a case-insensitive pattern
// costs more than the rest of the log line.
func credentials(s string) []span {
	return authorizations(bearers(urls(nil, s), s), s)
}

// urls finds what stands before the @ of an authority, and the query. Expressions of a URI template are neither.
func urls(spans []span, s string) []span {
	for at := 0; ; {
		i := strings.Index(s[at:], afterProtocol)
		if i < 0 {
			return spans
		}
		at += i + len(afterProtocol)
		end := at + word(s[at:])
		host := at + upTo(s[at:end], "/?#")
		if i := strings.LastIndexByte(s[at:host], '@'); i >= 0 && secrets.User(s[at:at+i]) {
			spans = appendSpan(spans, s, at, at+i)
		}
		if i := secrets.Query(s[at:end]); i >= 0 {
			spans = appendSpan(spans, s, at+i, end)
		}
		at = end
	}
}

// bearers finds the token after "Bearer". In lower case it may be prose ("bearer of news"), so there it has to be long.
// A word ("Bearer TOKEN", "Bearer tokens are") is not a token.
func bearers(spans []span, s string) []span {
	for _, scheme := range schemes {
		for at := 0; ; {
			i := strings.Index(s[at:], scheme)
			if i < 0 {
				break
			}
			at += i + len(scheme)
			end := at + token(s[at:])
			if (end-at >= 16 || scheme[0] == 'B') && !challenge(s[at:], end-at) && !secrets.Word(s[at:end]) {
				spans = appendSpan(spans, s, at, end)
			}
		}
	}
	return spans
}

// challenge tells a WWW-Authenticate header, `Bearer realm="mcp"`, from a token: it is worth reading and no secret.
func challenge(s string, n int) bool {
	name := strings.TrimRight(s[:n], "=")
	return strings.Contains(name, "=") || len(name) < n && n < len(s) && (s[n] == '"' || s[n] == '\\')
}

// authorizations finds what follows "Authorization" and a colon or equals sign, in a header, a Go map or JSON. A word is
// not a secret ("Authorization: variable X is not set"), unless it is all that a value in quotes or after "=" holds.
func authorizations(spans []span, s string) []span {
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
			at = from + token(s[from:])
			quoted := strings.ContainsAny(opening, "[\"'") && !strings.HasPrefix(s[at:], " ")
			prose := !quoted && (opening != "" || secret != value)
			text := s[from:at]
			if !isLiteral(text) && !secrets.Placeholder(text) && !(prose && secrets.Word(text)) {
				spans = appendSpan(spans, s, from, at)
			}
		}
	}
	return spans
}

// isLiteral reports whether text only tells if there is a credential: {"authorization":true}.
func isLiteral(text string) bool {
	switch text {
	case "true", "false", "null", "nil", "none":
		return true
	}
	return false
}

// appendSpan adds s[from:to], unless there is nothing left to hide.
func appendSpan(spans []span, s string, from, to int) []span {
	if from == to || s[from:to] == blot {
		return spans
	}
	return append(spans, span{from, to})
}

// word is the length of a URL at the head of s: quotes, brackets and backslashes, which a URL cannot hold, end it, so
// that a mask never splits an escape sequence. token is the same for credentials, where punctuation ends it, too.
func word(s string) int  { return upTo(s, " \t\r\n\"<>\\`") }
func token(s string) int { return upTo(s, " \t\r\n\"<>\\`',;()[]{}") }

func upTo(s, ends string) int {
	if i := strings.IndexAny(s, ends); i >= 0 {
		return i
	}
	return len(s)
}
