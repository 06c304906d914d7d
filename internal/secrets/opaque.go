package secrets

import (
	"slices"
	"strings"
	"unicode"
)

// identifierEndings are the last words of names of identifiers that services do not treat as
// secrets: MODEL, SLACK_TEAM_ID.
var identifierEndings = []string{
	"id", "ids", "model", "models", "bucket", "project", "org", "organization", "team",
	"workspace", "tenant", "account", "cluster", "namespace", "database", "db", "table", "index",
	"collection", "image", "tag", "branch", "repo", "repository", "zone", "locale", "timezone",
	"tz", "title", "label", "profile", "role", "level", "options", "opts", "flags", "args",
}

const (
	minOpaque = 8 // characters of the shortest value that IsOpaque reports
	minMixed  = 6 // characters of the shortest part that mixes letters and digits
)

// IsOpaque reports whether text, the value of a variable with an ordinary name, looks generated and
// may be a secret. Such a text has at least 8 characters and mixes letters, digits, capitals and
// signs in a way that does not occur in words, numbers, versions and names of models and regions.
// Text with spaces, options, URLs, paths, JSON and assignments are not opaque, because Find finds
// the secrets in them. Values under a name such as MODEL or TEAM_ID are not opaque either.
func IsOpaque(name, text string) bool {
	text = strings.TrimSpace(text)
	if len(text) < minOpaque || IsPlain(text) || isUUID(text) ||
		digest().MatchString(text) || isStructured(text) {
		return false
	}
	if parts := splitName(name); len(parts) > 0 {
		last := parts[len(parts)-1]
		if slices.Contains(harmlessEndings, last) ||
			slices.Contains(identifierEndings, last) || slices.Contains(digests, last) {
			return false
		}
	}
	separates := func(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsDigit(c) }
	short := 0 // parts such as x7Kp
	for _, part := range strings.FieldsFunc(text, separates) {
		if isMixed(part) {
			return true
		}
		if kindChanges(part) > 1 && strings.ContainsAny(part, digits) {
			short++
		}
	}
	if short > 1 {
		return true
	}
	kinds := 0
	for _, kind := range []string{lower, upper, digits} {
		if strings.ContainsAny(text, kind) {
			kinds++
		}
	}
	return kinds > 1 && strings.ContainsAny(text, `!"#$%^&+=|<>~\`)
}

// isStructured reports whether text is structured in a way that Find parses.
func isStructured(text string) bool {
	return strings.ContainsAny(text, " \t\r\n") || strings.IndexByte("{[<-/.~", text[0]) >= 0 ||
		strings.Contains(text, "://") || assignment().MatchString(strings.TrimRight(text, "="))
}

// isMixed reports whether a part of a value, between signs, mixes characters in a way that does not
// occur in words, numbers and versions such as word2024, 32B or v20241022.
func isMixed(part string) bool {
	if kindChanges(part) > max(2, len(part)/3) {
		return true
	}
	front := strings.TrimRight(part, digits)
	back := strings.TrimLeft(part, digits)
	after, before := len(part)-len(front), len(part)-len(back)
	switch {
	case len(part) < minMixed, len(front) == 0,
		after == 0 && before == 0 && !strings.ContainsAny(part, digits):
		return false
	case !strings.ContainsAny(front, digits):
		return after > 4 && !(len(front) <= 2 && after <= 8)
	case !strings.ContainsAny(back, digits):
		return len(back) > 3 || before > 8
	}
	return true
}
