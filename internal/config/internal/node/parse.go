package node

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/lazy"
)

// A SyntaxError describes a problem that prevents the parsing of a file.
type SyntaxError struct {
	Line    int // line number from 1; 0 = the file as a whole
	Problem string
	Hint    string // possible solution; often ""
}

// Parse parses a file and returns its root node, nil if the file is empty.
func Parse(data []byte) (*yaml.Node, *SyntaxError) {
	if looksLikeJSON(data) {
		root, line, err := parseJSON(data)
		if err == nil {
			return root, nil
		}
		// The file may be a YAML flow mapping, {"a": b}; otherwise it is invalid JSON.
		root, bad := parseYAML(data)
		if bad == nil {
			return root, nil
		}
		if bad.Hint == starHint {
			return nil, bad
		}
		e := &SyntaxError{Line: line, Problem: "not valid JSON: " + err.Error()}
		if strings.Contains(e.Problem, "in string escape code") ||
			strings.Contains(e.Problem, "hexadecimal character escape") {
			e.Hint = `a backslash begins an escape: in a path write each backslash twice, as in C:\\Users\\me, or write /`
		}
		return nil, e
	}
	return parseYAML(data)
}

func parseYAML(data []byte) (*yaml.Node, *SyntaxError) {
	if bad := firstInvalidByte(data); bad >= 0 {
		return nil, &SyntaxError{Line: lineAt(data, bad),
			Problem: "not valid YAML: it is not UTF-8 text, or contains a control character"}
	}
	var document, second yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	err := dec.Decode(&document)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err == nil {
		if err = dec.Decode(&second); err == nil {
			return nil, &SyntaxError{Line: second.Line,
				Problem: "a second YAML document starts here",
				Hint:    "keep one, or give each a file"}
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, syntaxError(data, err)
	}
	root := document.Content[0]
	if IsAbsent(root) {
		return nil, nil
	}
	return root, nil
}

var (
	yamlError = lazy.Regexp(`^yaml: (?:line (\d+): )?(.*)`)
	anchor    = lazy.Regexp(`^unknown anchor '(.*)' referenced`)
	// In these errors the library counts lines from 0, in all others from 1.
	fromZero = lazy.Regexp(`^did not find expected (?:',' or|node content|key|'-' indicator|<)`)
)

const (
	starHint   = `put quotes around the value: deny: ["*"]`
	anchorHint = "put quotes around the value"
	indentHint = "a key of this entry, or of one of the lines below, is indented differently: all " +
		"keys of an entry begin in the same column"
)

// isNamelessAnchor reports whether an error is about a * or & without a following name.
func isNamelessAnchor(problem string) bool {
	return strings.HasPrefix(problem, "did not find expected alphabetic or numeric character")
}

// unquotedValueError returns an error about a line with an unquoted value that begins with * or &.
// The error does not contain the value, which may be a secret.
func unquotedValueError(data []byte, line int) *SyntaxError {
	var text []byte
	for row := range bytes.Lines(data) {
		if line--; line == 0 {
			text = row
			break
		}
	}
	e := &SyntaxError{Problem: "not valid YAML: a value that begins with * must be quoted",
		Hint: starHint}
	if !bytes.Contains(text, []byte("*")) && bytes.Contains(text, []byte("&")) {
		e.Problem, e.Hint = "not valid YAML: a value that begins with & must be quoted", anchorHint
	}
	return e
}

// syntaxError converts an error of the YAML library. It adds the line if possible, and removes
// the text of an unknown anchor, which may be a password that begins with *.
func syntaxError(data []byte, err error) *SyntaxError {
	m := yamlError().FindStringSubmatch(err.Error())
	if m == nil {
		return &SyntaxError{Problem: "not valid YAML"}
	}
	e := &SyntaxError{Problem: "not valid YAML: " + m[2]}
	e.Line, _ = strconv.Atoi(m[1])
	if e.Line == 0 || fromZero().MatchString(m[2]) {
		e.Line++
	}
	if name := anchor().FindStringSubmatch(m[2]); name != nil {
		e.Line = lineAt(data, max(0, bytes.Index(data, []byte("*"+name[1]))))
		e.Problem = "not valid YAML: a value that begins with * must be quoted; there is no anchor of that name"
		e.Hint = starHint
	}
	if isNamelessAnchor(m[2]) {
		at := e.Line
		e = unquotedValueError(data, at)
		e.Line = at
	}
	switch m[2] {
	case "did not find expected '-' indicator":
		e.Hint = indentHint
	case "did not find expected key":
		e.Hint = indentHint + "; or text follows the end of a quoted value"
	case "mapping values are not allowed in this context":
		e.Hint = "this key is indented deeper than the other keys of its entry, or a value that " +
			"contains a colon and a space needs quotes"
	}
	if strings.Contains(m[2], "hexdecimal number") ||
		strings.Contains(m[2], "unknown escape character") {
		e.Hint = "a backslash in double quotes begins an escape: write a path such as C:\\Users\\me in single quotes, or with /"
	}
	if strings.Contains(m[2], "found character that cannot start any token") {
		e.Hint = "YAML is indented with spaces, not tabs; a value that begins with %, @ or ` needs quotes"
	}
	return e
}

// firstInvalidByte returns the index of the first byte that is not UTF-8 or not allowed in YAML;
// -1 = none. UTF-16 with a byte order mark is left to the YAML library.
func firstInvalidByte(data []byte) int {
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return -1
	}
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		control := r < ' ' && r != '\t' && r != '\n' && r != '\r' ||
			0x7f <= r && r < 0xa0 && r != 0x85
		if r == utf8.RuneError && size == 1 || control {
			return i
		}
		i += size
	}
	return -1
}

func lineAt(data []byte, offset int) int {
	return 1 + bytes.Count(data[:offset], []byte("\n"))
}
