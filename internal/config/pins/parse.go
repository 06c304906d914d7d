package pins

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/config/internal/node"
	"mcpgateway/internal/wire"
)

// The keys of a tool in the file.
const (
	descriptionKey = "description" // the description, as a text or as a list of lines
	definitionKey  = "definition"  // the other fields, as a text with a JSON object
	hashesKey      = "hashes"      // the hashes of fields whose values are not in the file
)

// A parser reads a lock file. It stops at the first error.
type parser struct {
	file string
	err  error
}

// parse returns the content of a lock file. The error is a *config.Error.
func parse(file string, text []byte) (*Lock, error) {
	p := &parser{file: file}
	if line := conflictLine(text); line > 0 {
		return nil, unusable(file, line, "contains a merge conflict")
	}
	root, bad := node.Parse(text)
	switch {
	case bad != nil:
		return nil, unusable(file, bad.Line, bad.Problem)
	case root == nil:
		return &Lock{}, nil
	}
	l := &Lock{Names: make(map[string]string), Backends: make(map[string]Tools)}
	found := p.checkVersion(root)
	p.eachPair(root, "the file", func(key string, value *yaml.Node) {
		switch key {
		case "version":
		case "names":
			p.eachPair(value, "names", func(name string, value *yaml.Node) {
				l.Names[name] = p.text(value, "the backend of a name")
			})
		case "backends":
			p.eachPair(value, "backends", func(backend string, value *yaml.Node) {
				l.Backends[backend] = p.tools(value)
			})
		default:
			p.fail(value.Line, fmt.Sprintf("unknown key %q", node.OneLine(key)))
		}
	})
	if !found {
		p.fail(0, "has no version")
	}
	if p.err != nil {
		return nil, p.err
	}
	return l, nil
}

// conflictLine returns the line of the first conflict marker of a version control system; 0 = none.
func conflictLine(text []byte) int {
	const marker = "<<<<<<<"
	at := bytes.Index(text, []byte("\n"+marker))
	switch {
	case bytes.HasPrefix(text, []byte(marker)):
		return 1
	case at < 0:
		return 0
	}
	return 2 + bytes.Count(text[:at], []byte("\n"))
}

// fail notes an error, unless there is one.
func (p *parser) fail(line int, problem string) {
	if p.err == nil {
		p.err = unusable(p.file, line, problem)
	}
}

// checkVersion reports whether the file has a version, and notes an error if the version is another
// one. It comes first, because a newer version may have other keys.
func (p *parser) checkVersion(root *yaml.Node) (found bool) {
	v := node.Child(root, "version")
	if v == nil {
		return false
	}
	if v.Kind != yaml.ScalarNode || v.Value != fmt.Sprint(version) {
		e := unusable(p.file, v.Line,
			fmt.Sprintf("this gateway reads version %d%s", version, node.Not(v.Value)))
		e.Hint = "update the gateway"
		p.err = e
	}
	return true
}

// eachPair calls visit with the pairs of a mapping until there is an error. An absent value counts
// as an empty mapping.
func (p *parser) eachPair(n *yaml.Node, what string, visit func(key string, value *yaml.Node)) {
	if node.IsAbsent(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		p.fail(n.Line, what+" must be a mapping")
		return
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content) && p.err == nil; i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode || key.Tag == "!!merge":
			p.fail(key.Line, "a key must be plain text")
		case seen[key.Value]:
			p.fail(key.Line, fmt.Sprintf("%q occurs twice", node.OneLine(key.Value)))
		case value.Kind == yaml.AliasNode:
			p.fail(value.Line, "aliases are not supported")
		default:
			seen[key.Value] = true
			visit(key.Value, value)
		}
	}
}

// text returns the value of a string.
func (p *parser) text(n *yaml.Node, what string) string {
	if n.Kind != yaml.ScalarNode || node.IsAbsent(n) {
		p.fail(n.Line, what+" must be a string")
		return ""
	}
	return n.Value
}

func (p *parser) tools(n *yaml.Node) Tools {
	all := make(Tools)
	p.eachPair(n, "a backend", func(tool string, value *yaml.Node) {
		all[tool] = p.definition(value)
	})
	return all
}

func (p *parser) definition(n *yaml.Node) *Definition {
	var fields []definitionField
	known := make(map[string]bool)
	add := func(f definitionField, line int) {
		if known[f.name] {
			p.fail(line, fmt.Sprintf("the field %q occurs twice", node.OneLine(f.name)))
		}
		known[f.name] = true
		fields = append(fields, f)
	}
	addValue := func(name string, value []byte, line int) {
		add(definitionField{name, value, sha256.Sum256(value)}, line)
	}
	p.eachPair(n, "a tool", func(key string, value *yaml.Node) {
		switch key {
		case descriptionKey:
			addValue(descriptionKey, appendString(nil, p.lines(value)), value.Line)
		case definitionKey:
			text := []byte(strings.TrimSpace(p.text(value, definitionKey)))
			if !json.Valid(text) || !wire.IsObject(text) {
				p.fail(value.Line, definitionKey+" must be a text with a JSON object")
				return
			}
			all, _ := members(text)
			for _, m := range all {
				addValue(m.name, m.value, value.Line)
			}
		case hashesKey:
			p.eachPair(value, hashesKey, func(name string, value *yaml.Node) {
				add(definitionField{name: name, sum: p.sum(value)}, value.Line)
			})
		default:
			p.fail(value.Line, fmt.Sprintf("unknown key %q", node.OneLine(key)))
		}
	})
	return fromFields(fields)
}

// lines returns a text that is a string or a list of lines.
func (p *parser) lines(n *yaml.Node) string {
	if n.Kind != yaml.SequenceNode {
		return p.text(n, descriptionKey)
	}
	var all []string
	for _, line := range n.Content {
		all = append(all, p.text(line, "a line of "+descriptionKey))
	}
	return strings.Join(all, "\n")
}

// sum returns the hash in a string.
func (p *parser) sum(n *yaml.Node) (sum [sha256.Size]byte) {
	digits, ok := strings.CutPrefix(p.text(n, "a hash"), hashPrefix)
	text, err := hex.DecodeString(digits)
	if !ok || err != nil || len(text) != len(sum) {
		p.fail(n.Line, "a hash must be "+hashPrefix+" and 64 hexadecimal digits")
	}
	copy(sum[:], text)
	return sum
}
