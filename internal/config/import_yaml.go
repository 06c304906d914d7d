package config

import (
	"bytes"
	"slices"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// YAML returns a configuration that Load takes, once the variables named in
// Notes are set. Each backend says where it came from. If there is none, it is
// nil.
func (im *Imported) YAML() []byte {
	if im.Empty() {
		return nil
	}
	return document(im.servers)
}

func document(servers []server) []byte {
	var out bytes.Buffer
	out.WriteString("# Written by gateway import. Variables in ${} are taken from the environment.\n")
	out.WriteString("backends:\n")
	for i, s := range servers {
		if i > 0 {
			out.WriteByte('\n')
		}
		out.WriteString("  # " + oneLine(s.client.title+", "+s.file) + "\n")
		switch {
		case s.project:
			out.WriteString("  # Switched off: a project's file brings it. If you trust it, remove enabled: false.\n")
		case s.disabled:
			out.WriteString("  # Switched off there.\n")
		}
		out.Write(s.item())
	}
	return out.Bytes()
}

// item renders s as an item of the list of backends.
func (s *server) item() []byte {
	var m mapping
	m.add("name", literal(s.name))
	m.text("command", s.command)
	m.texts("args", s.args)
	m.table("env", s.env)
	m.texts("inherit_env", s.inherit)
	m.text("cwd", s.cwd)
	m.text("url", s.url)
	m.text("transport", s.transport)
	m.table("headers", s.headers)
	m.duration("start_timeout", s.start)
	m.duration("call_timeout", s.call)
	if n := s.tools.node(0); n != nil {
		m.add("tools", n)
	}
	if s.off() {
		m.add("enabled", falsehood())
	}
	list := &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{{Kind: yaml.MappingNode, Content: m}}}
	// Inside a mapping the encoder indents the list as it stands in the file.
	whole := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{text("backends"), list}}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	enc.Encode(whole) // fails only if the writer does
	enc.Close()
	return bytes.TrimPrefix(out.Bytes(), []byte("backends:\n"))
}

// mapping is the content of a mapping node. What is empty is not added.
type mapping []*yaml.Node

func (m *mapping) add(key string, value *yaml.Node) {
	*m = append(*m, literal(key), value)
}

func (m *mapping) text(key, value string) {
	if value != "" {
		m.add(key, literal(value))
	}
}

func (m *mapping) texts(key string, values []string) {
	if len(values) == 0 {
		return
	}
	list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, value := range values {
		list.Content = append(list.Content, literal(value))
	}
	m.add(key, list)
}

func (m *mapping) table(key string, values []named) {
	if len(values) == 0 {
		return
	}
	var inner mapping
	for _, v := range values {
		inner.add(v.name, literal(v.value))
	}
	m.add(key, &yaml.Node{Kind: yaml.MappingNode, Content: inner})
}

func (m *mapping) duration(key string, d time.Duration) {
	if d > 0 {
		m.text(key, d.String())
	}
}

// literal is the node of a string; what does not print is escaped.
func literal(s string) *yaml.Node {
	n := text(s)
	odd := func(c rune) bool { return !unicode.IsPrint(c) || c == unicode.ReplacementChar }
	if strings.ContainsFunc(s, odd) || slices.Contains([]string{"~", "<<"}, s) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}
