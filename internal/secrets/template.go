package secrets

import "strings"

// maxExpression is the length in bytes of the longest expression of a URI template that is
// recognized.
const maxExpression = 256

// QueryStart returns the offset after the ? of a URI or URI template, if the query may contain a
// secret. It returns -1 if there is no query or it contains only keys and expressions of a
// template: {?q}, ?q={q}.
func QueryStart(uri string) int {
	for i := 0; i < len(uri); i++ {
		switch uri[i] {
		case '{':
			i += max(0, expressionLength(uri[i:])-1)
		case '?':
			if holdsValue(uri[i+1:]) {
				return i + 1
			}
			return -1
		}
	}
	return -1
}

// IsSecretUserInfo reports whether the user information of a URI, in front of the @, may be a
// secret. Expressions of a template are not secrets.
func IsSecretUserInfo(info string) bool {
	rest, some := withoutExpressions(info)
	return !some || strings.Trim(rest, ":") != ""
}

// holdsValue reports whether a query contains more than keys and expressions of a template.
func holdsValue(query string) bool {
	rest, some := withoutExpressions(query)
	if !some {
		return rest != ""
	}
	for pair := range strings.SplitSeq(strings.ReplaceAll(rest, "#", "&"), "&") {
		if _, value, ok := strings.Cut(pair, "="); value != "" || !ok && pair != "" {
			return true
		}
	}
	return false
}

func withoutExpressions(text string) (rest string, some bool) {
	if strings.IndexByte(text, '{') < 0 {
		return text, false
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		if n := expressionLength(text[i:]); n > 0 {
			some = true
			i += n
			continue
		}
		b.WriteByte(text[i])
		i++
	}
	return b.String(), some
}

// expressionLength returns the length of the expression of a URI template (RFC 6570) at the
// beginning of text, 0 if there is none.
func expressionLength(text string) int {
	if text == "" || text[0] != '{' {
		return 0
	}
	end := strings.IndexByte(text[:min(len(text), maxExpression)], '}')
	if end < 0 {
		return 0
	}
	names := text[1:end]
	if names != "" && strings.IndexByte("+#./;?&=,!@|", names[0]) >= 0 {
		names = names[1:]
	}
	if names == "" || strings.Trim(names, lower+upper+digits+"_.,:*%") != "" {
		return 0
	}
	return end + 1
}
