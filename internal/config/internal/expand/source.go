package expand

import "strings"

// A SourceKind is the kind of a reference that is not a variable.
type SourceKind string

const (
	File    SourceKind = "file"    // ${file:PATH}: the content of a file
	Keyring SourceKind = "keyring" // ${keyring:NAME}: a secret in the keyring
	Command SourceKind = "command" // ${command:WORDS}: the first line of the output of a program
)

// A ValueSource is a reference that is not a variable. The variables in its argument are expanded.
type ValueSource struct {
	Kind SourceKind
	// Words are the words of a command: the program and its arguments. For another kind there is
	// one word, the path or the name.
	Words   []string
	Written string // argument as written
}

// Shown returns the reference for messages. Of a command it contains only the program, because the
// arguments may be secrets.
func (s ValueSource) Shown() string {
	text := s.Words[0]
	if len(s.Words) > 1 {
		text += " …"
	}
	return "${" + string(s.Kind) + ":" + text + "}"
}

// Key returns a text that is equal for sources with the same value.
func (s ValueSource) Key() string {
	return string(s.Kind) + "\x00" + strings.Join(s.Words, "\x00")
}

// sourceKind returns the kind of the reference whose text after ${ is s; "" = not a ValueSource.
func sourceKind(s string) SourceKind {
	for _, kind := range []SourceKind{File, Keyring, Command} {
		if strings.HasPrefix(s, string(kind)+":") {
			return kind
		}
	}
	return ""
}

// Sources returns the references in a string that are not variables, including those in defaults.
// The variables in their arguments are not expanded. It skips malformed references.
func Sources(s string) (all []ValueSource) {
	for _, r := range References(s) {
		if r.Kind == "" {
			all = append(all, Sources(r.Default)...)
			continue
		}
		text := s[r.From+len("${") : r.To]
		if words, _, problem := parseSource(r.Kind, text); problem == "" {
			written := text[len(r.Kind)+1 : len(text)-1]
			all = append(all, ValueSource{Kind: r.Kind, Words: words, Written: written})
		}
	}
	return all
}

// HideSources replaces the references that are not variables by x, except those in defaults.
func HideSources(s string) string {
	var out strings.Builder
	end := 0
	for _, r := range References(s) {
		if r.Kind != "" {
			out.WriteString(s[end:r.From] + "x")
			end = r.To
		}
	}
	return out.String() + s[end:]
}

// source returns the value and the length of the reference to a source whose text after ${ is at
// the beginning of s.
func (x *Expander) source(kind SourceKind, s string) (text string, length int) {
	fail := func(problem, hint string) {
		x.Errors = append(x.Errors, ReferenceError{Problem: problem, Hint: hint})
	}
	words, length, problem := parseSource(kind, s)
	switch {
	case length == 0:
		fail(problem, "write ${"+string(kind)+":…}; $${ stands for a plain ${")
		return "", len(kind)
	case x.inArgument:
		fail("a reference contains a reference that is not a variable",
			"write only ${VAR} in it")
		return "", length
	case problem != "":
		fail(problem, "")
		return "", length
	}
	found := ValueSource{Kind: kind, Written: s[len(kind)+1 : length-1]}
	for _, word := range words {
		inner := Expander{Env: x.Env, inArgument: true}
		found.Words = append(found.Words, inner.Expand(word))
		x.Errors = append(x.Errors, inner.Errors...)
		x.Expanded = append(x.Expanded, inner.Expanded...)
		if len(inner.Errors) > 0 {
			return "", length
		}
	}
	if found.Words[0] == "" {
		fail("${"+string(kind)+":…} is empty after its variables are expanded", "")
		return "", length
	}
	if x.Source == nil {
		return "", length
	}
	value, failed := x.Source(found)
	if failed != nil {
		x.Errors = append(x.Errors, *failed)
		return "", length
	}
	x.Expanded = append(x.Expanded, Inserted{Shown: found.Shown(), Value: value})
	return value, length
}

// parseSource parses the reference to a source whose text after ${ is at the beginning of s. length
// is the number of bytes of s that belong to the reference, including the closing brace; 0 = the
// reference has no end. problem describes an invalid reference; "" = valid.
func parseSource(kind SourceKind, s string) (words []string, length int, problem string) {
	argument := s[len(kind)+1:]
	if kind == Command {
		words, length, problem = splitWords(argument)
	} else if end := closingBrace(argument); end >= 0 {
		words, length = []string{argument[:end]}, end+1
	} else {
		problem = "a ${ is not closed by }"
	}
	if length == 0 {
		return nil, 0, problem
	}
	if len(words) == 0 || words[0] == "" {
		problem = "${" + string(kind) + ":} names " + map[SourceKind]string{
			File: "no file", Keyring: "no secret", Command: "no program"}[kind]
	}
	return words, len(kind) + 1 + length, problem
}

// splitWords splits the words of a command at white space, up to the } that ends the reference.
// Text in single or double quotes is not split, and may contain }. In double quotes, \" and \\
// stand for " and \. No other character has a meaning. References to variables are kept as written.
// length includes the }; 0 = the command has no end.
func splitWords(s string) (words []string, length int, problem string) {
	var word strings.Builder
	inWord, quote := false, byte(0)
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case strings.HasPrefix(s[i:], "$$"):
			word.WriteString("$$")
			i++
			inWord = true
		case strings.HasPrefix(s[i:], "${"):
			end := closingBrace(s[i+2:])
			if end < 0 {
				return nil, 0, "a ${ is not closed by }"
			}
			word.WriteString(s[i : i+3+end])
			i += 2 + end
			inWord = true
		case quote != 0 && c == quote:
			quote = 0
		case quote == '"' && c == '\\' && i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\\'):
			i++
			word.WriteByte(s[i])
		case quote != 0:
			word.WriteByte(c)
		case c == '"' || c == '\'':
			quote, inWord = c, true
		case c == '}', c == ' ', c == '\t', c == '\n', c == '\r':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
			if c == '}' {
				return words, i + 1, ""
			}
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, 0, "a quote in ${command:…} is not closed"
	}
	return nil, 0, "a ${ is not closed by }"
}
