package clientimport

import (
	"bytes"
	"time"

	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/config/internal/node"
)

// YAML returns a configuration that Load accepts if the variables in Notes are set. A comment
// contains the origin of each backend. It returns nil if there are no servers.
func (r *Result) YAML() []byte {
	if r.Empty() {
		return nil
	}
	return renderYAML(r.servers, r.source)
}

func renderYAML(servers []importedServer, source *SecretSource) []byte {
	var out bytes.Buffer
	switch {
	case source == nil:
		out.WriteString(
			"# Written by gateway import. Variables in ${} are taken from the environment.\n")
	case source.Keyring:
		out.WriteString("# Written by gateway import. ${keyring:NAME} is a secret in the keyring: " +
			"gateway secret set NAME.\n")
	default:
		out.WriteString("# Written by gateway import. Variables in ${} are taken from the " +
			"environment, then from env_file.\n")
	}
	if source != nil && source.EnvFile != "" {
		var m node.Mapping
		m.Add("env_file", node.EscapedString(source.EnvFile))
		out.Write(encodeMapping(m))
		out.WriteByte('\n')
	}
	out.WriteString("backends:\n")
	for i, s := range servers {
		if i > 0 {
			out.WriteByte('\n')
		}
		out.WriteString("  # " + node.OneLine(s.client.Title+", "+s.file) + "\n")
		switch {
		case s.fromProject:
			out.WriteString(
				"  # Disabled: it is in a file of the project. If you trust it, remove enabled: false.\n")
		case s.disabledInClient:
			out.WriteString("  # Disabled in the client.\n")
		}
		out.Write(s.yamlItem(s.isDisabled()))
	}
	return out.Bytes()
}

// yamlItem renders s as an item of the list of backends.
func (s *serverSettings) yamlItem(disabled bool) []byte {
	var m node.Mapping
	m.Add("name", node.EscapedString(s.name))
	m.AddString("command", s.command)
	m.AddStrings("args", s.args)
	addTable(&m, "env", s.env)
	m.AddString("env_file", s.envFile)
	m.AddStrings("inherit_env", s.inherit)
	m.AddString("cwd", s.cwd)
	m.AddString("url", s.url)
	m.AddString("transport", string(s.transport))
	addTable(&m, "headers", s.headers)
	addDuration(&m, "start_timeout", s.startTimeout)
	addDuration(&m, "call_timeout", s.callTimeout)
	if n := s.tools.Node(0); n != nil {
		m.Add("tools", n)
	}
	if disabled {
		m.Add("enabled", node.False())
	}
	list := &yaml.Node{Kind: yaml.SequenceNode,
		Content: []*yaml.Node{{Kind: yaml.MappingNode, Content: m}}}
	// Only inside a mapping does the encoder indent a list as in a configuration file.
	whole := encodeMapping([]*yaml.Node{node.String("backends"), list})
	return bytes.TrimPrefix(whole, []byte("backends:\n"))
}

// encodeMapping renders a mapping with these keys and values.
func encodeMapping(content []*yaml.Node) []byte {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	// fails only if the writer fails
	enc.Encode(&yaml.Node{Kind: yaml.MappingNode, Content: content})
	enc.Close()
	return out.Bytes()
}

func addTable(m *node.Mapping, key string, values []namedValue) {
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
