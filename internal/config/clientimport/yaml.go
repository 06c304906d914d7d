package clientimport

import (
	"bytes"
	"time"

	"mcpgateway/internal/config/internal/node"

	"go.yaml.in/yaml/v3"
)

// YAML returns a configuration that Load takes, once the variables named in
// Notes are set. Each backend says where it came from. If there is none, it is
// nil.
func (im *Result) YAML() []byte {
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
		out.WriteString("  # " + node.OneLine(s.client.Title+", "+s.file) + "\n")
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
	var m node.Mapping
	m.Add("name", node.EscapedString(s.name))
	m.AddString("command", s.command)
	m.AddStrings("args", s.args)
	addTable(&m, "env", s.env)
	m.AddStrings("inherit_env", s.inherit)
	m.AddString("cwd", s.cwd)
	m.AddString("url", s.url)
	m.AddString("transport", s.transport)
	addTable(&m, "headers", s.headers)
	addDuration(&m, "start_timeout", s.start)
	addDuration(&m, "call_timeout", s.call)
	if n := s.tools.Node(0); n != nil {
		m.Add("tools", n)
	}
	if s.off() {
		m.Add("enabled", node.False())
	}
	list := &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{{Kind: yaml.MappingNode, Content: m}}}
	// Inside a mapping the encoder indents the list as it stands in the file.
	whole := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{node.String("backends"), list}}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	enc.Encode(whole) // fails only if the writer does
	enc.Close()
	return bytes.TrimPrefix(out.Bytes(), []byte("backends:\n"))
}

func addTable(m *node.Mapping, key string, values []named) {
	if len(values) == 0 {
		return
	}
	var inner node.Mapping
	for _, v := range values {
		inner.Add(v.name, node.EscapedString(v.value))
	}
	m.Add(key, &yaml.Node{Kind: yaml.MappingNode, Content: inner})
}

func addDuration(m *node.Mapping, key string, d time.Duration) {
	if d > 0 {
		m.AddString(key, d.String())
	}
}
