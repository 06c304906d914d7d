package catalog

import (
	"fmt"
	"iter"
	"regexp"
	"strings"
	"sync"

	"github.com/yosida95/uritemplate/v3"
)

// What a template may be for URIs to be found by it. One with more is listed all the
// same, for clients may expand it.
const (
	maxTemplate  = 1 << 10 // bytes
	maxVariables = 32
)

// A pattern tells which URIs a template (RFC 6570) can be expanded to. It takes
// a little more than those: query parameters in any order, values longer than the
// prefix that {name:3} asks for, and letters beyond ASCII that are not encoded.
//
// The library reads templates, but does not match them here: its Match copies a
// map at each byte for each state, which takes 0.2 ms if all is well and minutes
// if the template is made for it, and its Regexp takes any name in {?name}.
// Package regexp takes time in proportion to template times URI, whatever they are.
type pattern struct {
	template string
	prefix   string // with which each URI begins
	compiled func() *regexp.Regexp
}

// withPattern reads the item's template. wrong says why it is none: mcp-go, which reads templates
// with the same library, then refuses the whole list.
func (i Item) withPattern(r *repair) (_ Item, wrong string) {
	if _, err := uritemplate.New(i.Original); err != nil {
		return i, "its uriTemplate is not valid by RFC 6570: " + syntaxFault(err)
	}
	problem := ""
	if len(i.Original) > maxTemplate {
		problem = fmt.Sprintf("it has more than %d bytes", maxTemplate)
	} else if variables(i.Original) > maxVariables {
		problem = fmt.Sprintf("it has more than %d variables", maxVariables)
	}
	if problem != "" {
		r.note("uriTemplate", "finds no resource: "+problem)
		return i, ""
	}
	p := &pattern{template: i.Original, prefix: i.Original}
	if n := strings.IndexFunc(i.Original, func(r rune) bool { return r == '{' || r > '~' }); n >= 0 {
		p.prefix = i.Original[:n]
	}
	p.compiled = sync.OnceValue(p.compile)
	i.template = p
	return i, ""
}

// ExpandTemplate returns what a URI template (RFC 6570) expands to. A variable without a value stays as
// {name}, with the braces encoded. The error says that it is no template.
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

// syntaxFault returns an error of the library without the template, which a Issue has as its Item.
func syntaxFault(err error) string {
	what, _, _ := strings.Cut(err.Error(), ": ")
	what, _, _ = strings.Cut(what, " (hint")
	return what
}

// match reports whether the template can be expanded to the URI.
func (p *pattern) match(uri string) bool {
	return p.fits(uri) && p.compiled().MatchString(uri)
}

// fits is what can be said without effort.
func (p *pattern) fits(uri string) bool { return strings.HasPrefix(uri, p.prefix) }

func variables(template string) int {
	n := 0
	for _, expression := range parts(template) {
		if expression != "" {
			n += 1 + strings.Count(expression, ",")
		}
	}
	return n
}

// parts cuts a template that the library has read into literals and the
// expression behind each, "" if there is none.
func parts(template string) iter.Seq2[string, string] {
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

func (p *pattern) compile() *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`\A`)
	for literal, expression := range parts(p.template) {
		for _, r := range literal {
			b.WriteString(literally(r))
		}
		if expression != "" {
			b.WriteString(expanded(expression))
		}
	}
	return regexp.MustCompile(b.String() + `\z`)
}

// literally matches a character of a literal, which beyond ASCII is expanded to
// its encoding (§3.1).
func literally(r rune) string {
	if r < 0x80 {
		return regexp.QuoteMeta(string(r))
	}
	return fmt.Sprintf(`(?:%c|(?i:%s))`, r, encoded(string(r)))
}

func encoded(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

// An operator says how an expression is expanded (RFC 6570, appendix A).
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

// What a value may be made of, as the inside of a character class. A list has
// commas; the pairs of a map that is exploded have equals signs.
const (
	unreserved = `A-Za-z0-9\x{80}-\x{10ffff}\-._~%,`
	reserved   = unreserved + `:/?#\[\]@!$&'()*+;=`
)

// expanded matches what an expression, without its braces, can be expanded to.
// That is nothing at all if no variable has a value.
func expanded(expression string) string {
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
	if explodes { // a map brings its own
		name = `[` + unreserved + `]+`
	}
	pair := name + `(?:=` + value + `)?`
	return `(?:` + first + pair + `(?:` + separator + pair + `)*)?`
}
