package config

import (
	"path/filepath"
	"strings"
)

// expander replaces ${VAR}, ${VAR:-default} and $$ in one string of the file.
// A $ before anything but { or $ stays as it is; what begins like a reference
// and is none is wrong. What comes in is never looked at again.
type expander struct {
	env       func(string) (string, bool)
	foreign   bool   // a file of another client: ${env:VAR} is ${VAR}, ${workspaceFolder} known, ${input:x} not to be had
	workspace string // what ${workspaceFolder} is

	used  bool      // a reference was found
	came  []arrival // what the variables brought in
	wrong []trouble
}

type arrival struct{ name, value string }

// UnsetHint is the Hint of each Error about a variable that is not set.
const UnsetHint = "set the variable, or give a default: ${VAR:-default}"

type trouble struct {
	problem, hint string
	unset         string // the variable that is not set; "" = it is something else
	theirs        bool   // means something to another client, and nothing here
}

func (x *expander) expand(s string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(s, "$")
		out.WriteString(before)
		switch {
		case !found:
			return out.String()
		case strings.HasPrefix(rest, "$"):
			out.WriteByte('$')
			s = rest[1:]
		case strings.HasPrefix(rest, "{"):
			x.used = true
			text, length := x.reference(rest[1:])
			out.WriteString(text)
			s = rest[1+length:]
		default:
			out.WriteByte('$')
			s = rest
		}
	}
}

// reference returns what stands for the reference that s, which follows ${,
// begins with, and how long it is.
func (x *expander) reference(s string) (text string, length int) {
	prefix := ""
	if x.foreign {
		word, _, closed := strings.Cut(s, "}")
		if text, ok := x.theirWord(word); closed && ok {
			return text, len(word) + 1
		}
		s, prefix = strings.TrimPrefix(s, "env:"), s[:len(s)-len(strings.TrimPrefix(s, "env:"))]
	}
	r, length := parseRef(s)
	if length == 0 {
		x.wrong = append(x.wrong, malformed(s))
		return "", len(prefix) + nameLength(s)
	}
	return x.value(r), len(prefix) + length
}

// theirWord knows what other clients have in ${} that is no variable.
func (x *expander) theirWord(word string) (text string, ok bool) {
	if word == "userHome" {
		return x.value(ref{name: "HOME"}), true
	}
	if text, ok := folder(word, x.workspace); ok {
		return text, true
	}
	kind, name, _ := strings.Cut(word, ":")
	switch kind + ":" {
	case "input:":
		x.wrong = append(x.wrong, trouble{
			problem: "${input:" + oneLine(name) + "} asks a person, which a gateway cannot",
			hint:    "write ${" + variable(name) + "} and set that variable", theirs: true,
		})
	case "command:", "config:":
		x.wrong = append(x.wrong, trouble{
			problem: "${" + oneLine(word) + "} means something to VS Code only",
			hint:    "write a variable, and set it", theirs: true,
		})
	default:
		return "", false
	}
	return "", true
}

// folder returns what Cursor and VS Code put in the place of ${word}.
func folder(word, workspace string) (text string, ok bool) {
	switch word {
	case "workspaceFolder":
		return workspace, true
	case "workspaceFolderBasename":
		return filepath.Base(workspace), true
	case "pathSeparator", "/":
		return string(filepath.Separator), true
	}
	return "", false
}

func (x *expander) value(r ref) string {
	value, set := x.env(r.name)
	switch {
	case r.hasDefault && value == "":
		return x.expand(r.fallback)
	case !set:
		x.wrong = append(x.wrong, trouble{
			problem: "variable " + r.name + " is not set",
			hint:    UnsetHint, unset: r.name,
		})
		return ""
	case r.hasDefault: // a mistake in it must not wait for the day it is needed
		unused := expander{env: anything, foreign: x.foreign}
		unused.expand(r.fallback)
		x.wrong = append(x.wrong, unused.wrong...)
	}
	x.came = append(x.came, arrival{r.name, value})
	return value
}

// anything is an environment in which every variable is set.
func anything(string) (string, bool) { return "1", true }

// ref is a reference to a variable.
type ref struct {
	name       string
	hasDefault bool
	fallback   string // what follows :-, not yet expanded
}

// parseRef reads the reference that s, which follows ${, begins with and tells
// how long it is; 0 = it is none.
func parseRef(s string) (r ref, length int) {
	r.name = s[:nameLength(s)]
	rest := s[len(r.name):]
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

// malformed says what is wrong with s, which follows ${. It does not show it:
// it may be a piece of a password.
func malformed(s string) trouble {
	t := trouble{hint: "write ${VAR} or ${VAR:-default}; $${ stands for a plain ${"}
	switch {
	case closing(s) < 0:
		t.problem = "a ${ is not closed by }"
	case strings.HasPrefix(s, "}"):
		t.problem = "${} names no variable"
	case strings.HasPrefix(s, "env:"):
		t.problem, t.hint = "${env:VAR} is other clients' way to write ${VAR}", "write ${VAR}; $${ stands for a plain ${"
	case strings.HasPrefix(s, "input:"), strings.HasPrefix(s, "command:"), strings.HasPrefix(s, "config:"):
		t.problem, t.hint = "${input:…}, ${command:…} and ${config:…} mean something to VS Code only", "write ${VAR}, and set that variable"
	case nameLength(s) == 0:
		t.problem = "what follows ${ is no name of a variable: letters, digits and _, no digit first"
	default:
		t.problem = "the name of a variable in ${} must be followed by } or :-"
	}
	return t
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
