package config

import "strings"

// expander replaces ${VAR}, ${VAR:-default} and $$ in one string of the file.
// Any other $ stays as it is. What comes in is never looked at again.
type expander struct {
	env     func(string) (string, bool)
	foreign bool // a file of another client: ${env:VAR} is ${VAR}, ${input:x} an error

	used  bool      // a reference was found
	came  []arrival // what the variables brought in
	wrong []trouble
}

type arrival struct{ name, value string }

type trouble struct{ problem, hint string }

func (x *expander) expand(s string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(s, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		ref, length := parseRef(rest, x.foreign)
		switch {
		case strings.HasPrefix(rest, "$"):
			out.WriteByte('$')
			s = rest[1:]
		case length == 0:
			out.WriteByte('$')
			s = rest
		default:
			x.used = true
			out.WriteString(x.value(ref))
			s = rest[length:]
		}
	}
}

func (x *expander) value(r ref) string {
	if r.input {
		x.wrong = append(x.wrong, trouble{
			"${input:" + r.name + "} asks a person, which a gateway cannot",
			"write ${" + variable(r.name) + "} and set that variable",
		})
		return ""
	}
	value, set := x.env(r.name)
	switch {
	case r.hasDefault && value == "":
		return x.expand(r.fallback)
	case !set:
		x.wrong = append(x.wrong, trouble{
			"variable " + r.name + " is not set",
			"set the variable, or give a default: ${VAR:-default}",
		})
		return ""
	}
	x.came = append(x.came, arrival{r.name, value})
	return value
}

// ref is a reference to a variable, or to a VS Code input.
type ref struct {
	name       string
	input      bool
	hasDefault bool
	fallback   string // what follows :-, not yet expanded
}

// parseRef reads the reference that s, which follows a dollar, begins with and
// tells how long it is; 0 = there is none.
func parseRef(s string, foreign bool) (r ref, length int) {
	body, ok := strings.CutPrefix(s, "{")
	if !ok {
		return ref{}, 0
	}
	if foreign {
		body, _ = strings.CutPrefix(body, "env:")
		if body, r.input = strings.CutPrefix(body, "input:"); r.input {
			name, rest, closed := strings.Cut(body, "}")
			if !closed {
				return ref{}, 0
			}
			r.name = name
			return r, len(s) - len(rest)
		}
	}
	r.name = body[:nameLength(body)]
	rest := body[len(r.name):]
	if r.name == "" {
		return ref{}, 0
	}
	if fallback, ok := strings.CutPrefix(rest, ":-"); ok {
		end := closing(fallback)
		if end < 0 {
			return ref{}, 0
		}
		r.hasDefault, r.fallback, rest = true, fallback[:end], fallback[end:]
	}
	if !strings.HasPrefix(rest, "}") {
		return ref{}, 0
	}
	return r, len(s) - len(rest) + 1
}

// closing finds the } that ends a default, past the references inside it.
func closing(s string) int {
	depth := 0
	for i := range len(s) {
		switch {
		case s[i] == '}' && depth == 0:
			return i
		case s[i] == '}':
			depth--
		case strings.HasPrefix(s[i:], "${"):
			depth++
		}
	}
	return -1
}

// nameLength tells how many bytes of s are a variable's name.
func nameLength(s string) int {
	for i := range len(s) {
		c := s[i]
		letter := c == '_' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
		if digit := '0' <= c && c <= '9'; !letter && (i == 0 || !digit) {
			return i
		}
	}
	return len(s)
}

// variable makes a variable's name of any text: github-token → GITHUB_TOKEN.
func variable(text string) string {
	name := strings.Map(func(c rune) rune {
		switch {
		case 'a' <= c && c <= 'z':
			return c - 'a' + 'A'
		case 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
			return c
		}
		return '_'
	}, text)
	if nameLength(name) == 0 {
		return "_" + name
	}
	return name
}
