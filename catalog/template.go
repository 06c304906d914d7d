package catalog

import (
	"fmt"
	"iter"
	"regexp"
	"strings"
	"sync"

	"github.com/yosida95/uritemplate/v3"
)

// Bounds for templates that are matched. A template that exceeds these bounds is still listed,
// because clients may expand it.
const (
	maxTemplate  = 1 << 10 // bytes
	maxVariables = 32
)

// A uriPattern matches the URIs that a template (RFC 6570) can be expanded to. It also accepts
// query parameters in any order, values that are longer than a prefix modifier such as {name:3}
// allows, and non-ASCII letters that are not encoded.
//
// The gateway uses package uritemplate only to parse and expand templates, not to match them: its
// Match copies a map per byte and state, which normally takes 0.2 ms but takes minutes for a
// malicious template, and its Regexp accepts any name for {?name}. Package regexp takes time
// proportional to the product of the lengths of template and URI.
type uriPattern struct {
	template string
	prefix   string // the literal with which each URI begins
	compiled func() *regexp.Regexp
}

// withURIPattern parses the item's template. If the template is invalid, the result wrong is the
// reason: mcp-go, which uses the same library, would reject the whole list. If the template exceeds
// the bounds, the item gets no pattern, and r notes the reason.
func (i Item) withURIPattern(r *repair) (_ Item, wrong string) {
	if _, err := uritemplate.New(i.Original); err != nil {
		return i, "its uriTemplate is not valid by RFC 6570: " + syntaxFault(err)
	}
	problem := ""
	if len(i.Original) > maxTemplate {
		problem = fmt.Sprintf("it has more than %d bytes", maxTemplate)
	} else if countVariables(i.Original) > maxVariables {
		problem = fmt.Sprintf("it has more than %d variables", maxVariables)
	}
	if problem != "" {
		r.note("uriTemplate", "matches no resource: "+problem)
		return i, ""
	}
	p := &uriPattern{template: i.Original, prefix: i.Original}
	if n := strings.IndexFunc(i.Original,
		func(r rune) bool { return r == '{' || r > '~' }); n >= 0 {
		p.prefix = i.Original[:n]
	}
	p.compiled = sync.OnceValue(p.compile)
	i.uriPattern = p
	return i, ""
}

// ExpandTemplate expands a URI template (RFC 6570). A variable without a value becomes {name},
// with the braces encoded. It returns an error if the template is invalid.
func ExpandTemplate(template string, given map[string]string) (uri string, err error) {
	t, err := uritemplate.New(template)
	if err != nil {
		return "", err
	}
	values := make(uritemplate.Values)
	for _, name := range t.Varnames() {
		value, ok := given[name]
		if !ok {
			value = "{" + name + "}"
		}
		values.Set(name, uritemplate.String(value))
	}
	return t.Expand(values)
}

// syntaxFault returns the text of the library's error without the template, because the Issue
// already contains the template.
func syntaxFault(err error) string {
	text, _, _ := strings.Cut(err.Error(), ": ")
	text, _, _ = strings.Cut(text, " (hint")
	return text
}

// matches reports whether the template can be expanded to the URI.
func (p *uriPattern) matches(uri string) bool {
	return p.hasPrefix(uri) && p.compiled().MatchString(uri)
}

// hasPrefix is a quick check: if it returns false, the template does not match.
func (p *uriPattern) hasPrefix(uri string) bool { return strings.HasPrefix(uri, p.prefix) }

func countVariables(template string) int {
	n := 0
	for _, expression := range templateParts(template) {
		if expression != "" {
			n += 1 + strings.Count(expression, ",")
		}
	}
	return n
}

// templateParts splits a valid template into literals, each with the expression that follows the
// literal, "" at the end.
func templateParts(template string) iter.Seq2[string, string] {
	return func(yield func(literal, expression string) bool) {
		for template != "" {
			literal, rest, _ := strings.Cut(template, "{")
			expression, behind, _ := strings.Cut(rest, "}")
			if !yield(literal, expression) {
				return
			}
			template = behind
		}
	}
}

func (p *uriPattern) compile() *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`\A`)
	for literal, expression := range templateParts(p.template) {
		for _, r := range literal {
			b.WriteString(literalPattern(r))
		}
		if expression != "" {
			b.WriteString(expressionPattern(expression))
		}
	}
	return regexp.MustCompile(b.String() + `\z`)
}

// literalPattern returns the pattern for a character of a literal. A non-ASCII character may be
// encoded (RFC 6570 §3.1).
func literalPattern(r rune) string {
	if r < 0x80 {
		return regexp.QuoteMeta(string(r))
	}
	return fmt.Sprintf(`(?:%c|(?i:%s))`, r, percentEncoded(string(r)))
}

func percentEncoded(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

// An operator determines how an expression is expanded (RFC 6570, appendix A).
type operator struct {
	first, separator string
	named, reserved  bool
}

var operators = map[byte]operator{
	'+': {"", ",", false, true},
	'#': {"#", ",", false, true},
	'.': {".", ".", false, false},
	'/': {"/", "/", false, false},
	';': {";", ";", true, false},
	'?': {"?", "&", true, false},
	'&': {"&", "&", true, false},
}

// The characters of a value, as the content of a character class. Lists contain commas; the pairs
// of an exploded map contain equals signs.
const (
	unreserved = `A-Za-z0-9\x{80}-\x{10ffff}\-._~%,`
	reserved   = unreserved + `:/?#\[\]@!$&'()*+;=`
)

// expressionPattern returns the pattern for the expansions of an expression, which is given
// without its braces. The expansion is empty if no variable has a value.
func expressionPattern(expression string) string {
	o, hasOperator := operators[expression[0]]
	if hasOperator {
		expression = expression[1:]
	} else {
		o = operator{separator: ","}
	}
	names := strings.Split(expression, ",")
	explodes := strings.Contains(expression, "*")
	class := unreserved
	switch {
	case o.reserved:
		class = reserved
	case explodes && !o.named:
		class += "="
	}
	value := `[` + class + `]*`
	first, separator := regexp.QuoteMeta(o.first), regexp.QuoteMeta(o.separator)
	if !o.named {
		times := fmt.Sprintf(`{0,%d}`, len(names)-1)
		if explodes {
			times = `*`
		}
		return `(?:` + first + value + `(?:` + separator + value + `)` + times + `)?`
	}
	for i, name := range names {
		name, _, _ = strings.Cut(name, ":")
		names[i] = regexp.QuoteMeta(name)
	}
	name := `(?:` + strings.Join(names, `|`) + `)`
	if explodes { // the map contains the names
		name = `[` + unreserved + `]+`
	}
	pair := name + `(?:=` + value + `)?`
	return `(?:` + first + pair + `(?:` + separator + pair + `)*)?`
}
