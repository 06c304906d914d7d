package secrets

import "strings"

// maxExpression bounds the expressions of URI templates that are known as such, in bytes.
const maxExpression = 256

// Query returns where the query of a URI or URI template begins, behind the ?, if it may hold a secret: -1 if there is
// none, or none but keys and expressions of a template: {?q}, ?q={q}.
func Query(uri string) int {
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

// User reports whether what stands before the @ of the authority of a URI may be a secret: not if it is
// expressions of a template.
func User(info string) bool {
	rest, some := withoutExpressions(info)
	return !some || strings.Trim(rest, ":") != ""
}

// holdsValue reports whether there is more in a query than keys and expressions of a template.
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

// expressionLength returns the length of the expression of a URI template (RFC 6570) that text begins with, 0 if there is none.
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
