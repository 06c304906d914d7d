// Package expand replaces references in the strings of a configuration file. References to
// variables have the form ${VAR} or ${VAR:-default}. References to other sources are ${file:PATH},
// ${keyring:NAME} and ${command:WORDS}, see [ValueSource]. $$ is a literal dollar. The package also
// finds references without replacing them, and expands a leading ~ in paths. It reads only the
// environment that it is given.
package expand

import (
	"path/filepath"
	"strings"

	"mcpgateway/internal/config/internal/node"
)

// Expander replaces references and $$ in one string. A $ before any other character is kept.
// Malformed text that begins like a reference is an error. Values are not expanded again.
type Expander struct {
	Env func(string) (string, bool)
	// Source returns the value of a reference that is not a variable. The error, which may be nil,
	// is recorded in Errors. A nil Source means that these references have no value.
	Source func(ValueSource) (string, *ReferenceError)
	// Foreign is true for a file of another client: ${env:VAR} is ${VAR}, ${workspaceFolder} is
	// supported, ${input:x} is an error.
	Foreign   bool
	Workspace string // value of ${workspaceFolder}

	Used     bool       // there was a reference
	Expanded []Inserted // values that were inserted
	Errors   []ReferenceError

	inArgument bool // the string is the argument of a reference
}

// Inserted is a value that was inserted.
type Inserted struct {
	Variable string // name of the variable; "" = the value is that of a ValueSource
	Shown    string // description of the reference for messages, without secrets
	Value    string
}

// UnsetHint is the hint of each error about a variable that is not set.
const UnsetHint = "set the variable, or give a default: ${VAR:-default}"

// ReferenceError is a reference that cannot be expanded.
type ReferenceError struct {
	Problem, Hint string
	Remedy        string // what to do, for messages without hints; may be ""
	Unset         string // variable or source that has no value; "" = another problem
	Foreign       bool   // valid for another client, but not supported
}

// Expand returns s with all references replaced. References that cannot be expanded are recorded in
// Errors.
func (x *Expander) Expand(s string) string {
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
			x.Used = true
			text, length := x.reference(rest[1:])
			out.WriteString(text)
			s = rest[1+length:]
		default:
			out.WriteByte('$')
			s = rest
		}
	}
}

// reference returns the value and the length of the reference whose text after ${ is at the
// beginning of s. If the reference is malformed, it records an error, and returns no value and the
// length up to the end of the variable's name.
func (x *Expander) reference(s string) (text string, length int) {
	prefix := ""
	if x.Foreign {
		word, _, closed := strings.Cut(s, "}")
		if text, ok := x.foreignWord(word); closed && ok {
			return text, len(word) + 1
		}
		s, prefix = strings.TrimPrefix(s, "env:"), s[:len(s)-len(strings.TrimPrefix(s, "env:"))]
	} else if kind := sourceKind(s); kind != "" {
		return x.source(kind, s)
	}
	r, length := ParseRef(s)
	if length == 0 {
		x.Errors = append(x.Errors, malformed(s, x.Foreign))
		return "", len(prefix) + NameLength(s)
	}
	return x.lookUp(r), len(prefix) + length
}

// foreignWord returns the value of a word in ${} that has a special meaning for other clients. If
// the gateway does not support the word, foreignWord records an error and returns no value. ok is
// false if the word has no special meaning.
func (x *Expander) foreignWord(word string) (text string, ok bool) {
	if word == "userHome" {
		return x.lookUp(Ref{Name: "HOME"}), true
	}
	if text, ok := Predefined(word, x.Workspace); ok {
		return text, true
	}
	kind, name, _ := strings.Cut(word, ":")
	switch kind + ":" {
	case "input:":
		x.Errors = append(x.Errors, ReferenceError{
			Problem: "${input:" + node.OneLine(name) + "} asks the user, which a gateway cannot do",
			Hint:    "write ${" + VariableName(name) + "} and set that variable", Foreign: true,
		})
	case "file:", "keyring:":
		x.Errors = append(x.Errors, ReferenceError{
			Problem: "${" + kind + ":…} is not supported in mcpServers",
			Hint:    "move the server under backends, or write a variable, and set it", Foreign: true,
		})
	case "command:", "config:":
		x.Errors = append(x.Errors, ReferenceError{
			Problem: "${" + node.OneLine(word) + "} is only supported by VS Code",
			Hint:    "write a variable, and set it", Foreign: true,
		})
	default:
		return "", false
	}
	return "", true
}

// Predefined returns the value of a variable that Cursor and VS Code predefine.
func Predefined(word, workspace string) (text string, ok bool) {
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

func (x *Expander) lookUp(r Ref) string {
	value, set := x.Env(r.Name)
	switch {
	case r.HasDefault && value == "":
		return x.Expand(r.Default)
	case !set:
		x.Errors = append(x.Errors, ReferenceError{
			Problem: "variable " + r.Name + " is not set",
			Hint:    UnsetHint, Remedy: "set it where the gateway is started", Unset: r.Name,
		})
		return ""
	case r.HasDefault: // errors in an unused default are also reported
		unused := Expander{Env: AllSet, Foreign: x.Foreign}
		unused.Expand(r.Default)
		x.Errors = append(x.Errors, unused.Errors...)
	}
	x.Expanded = append(x.Expanded, Inserted{r.Name, "variable " + r.Name, value})
	return value
}

// AllSet is an environment in which every variable is set.
func AllSet(string) (string, bool) { return "1", true }

// Ref is a reference.
type Ref struct {
	Kind       SourceKind // "" = variable
	Name       string     // of the variable; "" = not a variable
	HasDefault bool
	Default    string // text after :-, not expanded
}

// ParseRef parses the reference whose text after ${ is at the beginning of s. It returns the
// reference and the number of bytes of s that belong to it, including the closing brace; 0 = no
// valid reference.
func ParseRef(s string) (r Ref, length int) {
	if kind := sourceKind(s); kind != "" {
		_, length, _ := parseSource(kind, s)
		return Ref{Kind: kind}, length
	}
	r.Name = s[:NameLength(s)]
	rest := s[len(r.Name):]
	if r.Name == "" {
		return Ref{}, 0
	}
	if fallback, ok := strings.CutPrefix(rest, ":-"); ok {
		end := closingBrace(fallback)
		if end < 0 {
			return Ref{}, 0
		}
		r.HasDefault, r.Default, rest = true, fallback[:end], fallback[end:]
	}
	if !strings.HasPrefix(rest, "}") {
		return Ref{}, 0
	}
	return r, len(s) - len(rest) + 1
}

// malformed returns the error for a malformed reference whose text after ${ is s. The error does
// not contain s, which may be a part of a password.
func malformed(s string, foreign bool) ReferenceError {
	t := ReferenceError{Hint: "write ${VAR} or ${VAR:-default}; $${ stands for a plain ${"}
	switch {
	case closingBrace(s) < 0:
		t.Problem = "a ${ is not closed by }"
	case strings.HasPrefix(s, "}"):
		t.Problem = "${} contains no variable name"
	case strings.HasPrefix(s, "env:"):
		t.Problem, t.Hint = "${env:VAR} is the syntax of other clients for ${VAR}",
			"write ${VAR}; $${ stands for a plain ${"
	case strings.HasPrefix(s, "input:"), strings.HasPrefix(s, "config:"):
		t.Problem, t.Hint = "${input:…} and ${config:…} are only supported by VS Code",
			"write ${VAR}, and set that variable"
	case NameLength(s) == 0:
		t.Problem = "${ must be followed by the name of a variable: letters, digits and _, no digit first"
	default:
		t.Problem = "the name of a variable in ${} must be followed by } or :-"
		if strings.HasPrefix(s[NameLength(s):], ":") && !foreign {
			t.Hint = "write ${VAR}, ${VAR:-default}, ${file:PATH}, ${keyring:NAME} or " +
				"${command:PROGRAM ARGUMENTS}; $${ stands for a plain ${"
		}
	}
	return t
}

// closingBrace returns the index of the } that ends a default, after nested references; -1 =
// none.
func closingBrace(s string) int {
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

// NameLength returns the length in bytes of the variable name at the beginning of s.
func NameLength(s string) int {
	for i := range len(s) {
		c := s[i]
		letter := c == '_' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
		if digit := '0' <= c && c <= '9'; !letter && (i == 0 || !digit) {
			return i
		}
	}
	return len(s)
}

// VariableName converts a text to a variable name: github-token → GITHUB_TOKEN.
func VariableName(text string) string {
	name := strings.Map(func(c rune) rune {
		switch {
		case 'a' <= c && c <= 'z':
			return c - 'a' + 'A'
		case 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
			return c
		}
		return '_'
	}, text)
	if NameLength(name) == 0 {
		return "_" + name
	}
	return name
}

// Variables returns the variables that a string refers to.
func Variables(s string) []string { return new(Expander).Variables(s) }

// Variables returns the variables that a string refers to, including variables in defaults. x
// cannot be used again.
func (x *Expander) Variables(s string) (names []string) {
	x.Env = func(name string) (string, bool) {
		names = append(names, name)
		return "", true
	}
	x.Source = nil
	x.Expand(s)
	return names
}

// Required returns the variables that must be set to expand a string, and "" for each malformed
// reference. It does not consider other sources.
func Required(s string) []string {
	var names []string
	x := Expander{Env: func(string) (string, bool) { return "", false }}
	x.Expand(s)
	for _, t := range x.Errors {
		names = append(names, t.Unset)
	}
	return names
}

// Reference is a reference at text[From:To].
type Reference struct {
	Ref
	From, To int
}

// References returns the references in a string, except references in defaults and in arguments of
// other references.
func References(text string) []Reference {
	var all []Reference
	for i := 0; i < len(text); i++ {
		switch {
		case strings.HasPrefix(text[i:], "$$"):
			i++
		case strings.HasPrefix(text[i:], "${"):
			if r, length := ParseRef(text[i+2:]); length > 0 {
				all = append(all, Reference{r, i, i + 2 + length})
				i += 1 + length
			}
		}
	}
	return all
}
