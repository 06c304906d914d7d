package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/lazy"
)

// The YAML library parses most JSON, but not tabs, surrogate pairs (\ud83d\ude00), and the comments
// and trailing commas of VS Code. Therefore a file that begins like JSON is parsed as JSON, with
// YAML nodes as the result.

// maxJSONDepth is the maximum nesting of a JSON file. Clients write far less nested files, and the
// stack suffices for this depth.
const maxJSONDepth = 200

var jsonStart = lazy.Regexp(`^\s*\{\s*["}]`)

func looksLikeJSON(data []byte) bool { return jsonStart().Match(standardJSON(data)) }

// parseJSON returns the root of the document. Every node has the line of its value. If err is not
// nil, line is the line of the error.
func parseJSON(data []byte) (root *yaml.Node, line int, err error) {
	data = standardJSON(data)
	p := &jsonParser{data: data, dec: json.NewDecoder(bytes.NewReader(data)), line: 1}
	p.dec.UseNumber()
	root, err = p.value(0)
	if err == nil {
		if _, more := p.dec.Token(); more != io.EOF {
			err = errors.New("unexpected text after the closing brace")
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("unexpected end of the file")
	}
	return root, p.currentLine(), err
}

type jsonParser struct {
	data []byte
	dec  *json.Decoder

	line, seen int // line number at data[seen]
}

// currentLine returns the line of the last token. Tokens do not contain line breaks.
func (p *jsonParser) currentLine() int {
	offset := min(int(p.dec.InputOffset()), len(p.data))
	p.line += bytes.Count(p.data[p.seen:offset], []byte("\n"))
	p.seen = offset
	return p.line
}

func (p *jsonParser) value(depth int) (*yaml.Node, error) {
	token, err := p.dec.Token()
	if err != nil {
		return nil, err
	}
	delim, compound := token.(json.Delim)
	if !compound {
		return p.scalar(token), nil
	}
	if depth == maxJSONDepth {
		return nil, errors.New("nested too deeply")
	}
	n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: p.currentLine()}
	if delim == '{' {
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
	}
	for p.dec.More() { // in an object, keys and values alternate
		child, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, child)
	}
	_, err = p.dec.Token()
	return n, err
}

func (p *jsonParser) scalar(token json.Token) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: p.currentLine()}
	switch v := token.(type) {
	case string:
		n.Tag, n.Value, n.Style = "!!str", v, yaml.DoubleQuotedStyle
	case json.Number:
		n.Tag, n.Value = "!!float", v.String()
	case bool:
		n.Tag, n.Value = "!!bool", map[bool]string{true: "true", false: "false"}[v]
	default:
		n.Tag, n.Value = "!!null", "null"
	}
	return n
}

// standardJSON replaces a byte order mark, comments and trailing commas by spaces, so that lines
// and offsets do not change.
func standardJSON(data []byte) []byte {
	out := bytes.Clone(data)
	copy(out, bytes.Repeat([]byte(" "),
		len(data)-len(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))))
	comma := -1 // index of a comma without a value after it; -1 = none
	for i := 0; i < len(out); i++ {
		switch c := out[i]; {
		case c == '"':
			i, comma = stringEnd(out, i), -1
		case c == '/' && commentEnd(out, i) > 0:
			end := commentEnd(out, i)
			blankOut(out[i:end])
			i = end - 1
		case c == ',':
			comma = i
		case (c == '}' || c == ']') && comma >= 0:
			out[comma], comma = ' ', -1
		case c != ' ' && c != '\t' && c != '\r' && c != '\n':
			comma = -1
		}
	}
	return out
}

// stringEnd returns the index of the closing quote of the string that starts at i, or of the end of
// the line or of b if there is no closing quote.
func stringEnd(b []byte, i int) int {
	for i++; i < len(b) && b[i] != '"' && b[i] != '\n'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i
}

// commentEnd returns the end of the comment that starts at i; 0 = no comment.
func commentEnd(b []byte, i int) int {
	open, close := b[i:min(i+2, len(b))], "\n"
	switch string(open) {
	case "/*":
		close = "*/"
	case "//":
	default:
		return 0
	}
	n := bytes.Index(b[i+2:], []byte(close))
	switch {
	case n < 0:
		return len(b)
	case close == "\n":
		return i + 2 + n
	}
	return i + 2 + n + 2
}

func blankOut(b []byte) {
	for i, c := range b {
		if c != '\n' {
			b[i] = ' '
		}
	}
}
