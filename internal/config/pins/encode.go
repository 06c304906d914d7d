package pins

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"mcpgateway/internal/config"
	"mcpgateway/internal/lazy"
	"mcpgateway/internal/wire"
)

const header = `# Approved tools of the servers in the configuration beside this file, and the server of each
# exposed name. "gateway approve" shows changes and accepts them. Commit this file.
`

// maxStored bounds the stored text of a definition, in bytes. Of a larger definition, the largest
// fields are stored as hashes.
const maxStored = 16 << 10

const hashPrefix = "sha256:"

// encode returns the text of the file. If the text would exceed the limit, all fields are stored as
// hashes; if that is not enough, encode returns an error.
func (l *Lock) encode(limit int) ([]byte, error) {
	for _, most := range []int{maxStored, 0} {
		if text := l.encodeWith(most); len(text) <= limit {
			return text, nil
		}
	}
	return nil, &config.Error{Problem: "the definitions of the tools are too large for a lock file",
		Hint: "set tools.pin: off for the backend with the most tools"}
}

func (l *Lock) encodeWith(most int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%sversion: %d\n", header, version)
	if len(l.Names) > 0 {
		b.WriteString("names:\n")
		for _, name := range slices.Sorted(maps.Keys(l.Names)) {
			fmt.Fprintf(&b, "%s %s\n", yamlPrefix("  ", name), yamlKey(l.Names[name]))
		}
	}
	if len(l.Backends) > 0 {
		b.WriteString("backends:\n")
	}
	for _, name := range slices.Sorted(maps.Keys(l.Backends)) {
		tools := l.Backends[name]
		if len(tools) == 0 {
			fmt.Fprintf(&b, "  %s: {}\n", yamlKey(name))
			continue
		}
		fmt.Fprintf(&b, "  %s:\n", yamlKey(name))
		for _, tool := range slices.Sorted(maps.Keys(tools)) {
			b.WriteString(yamlPrefix("    ", tool))
			tools[tool].encodeTo(&b, most)
		}
	}
	return b.Bytes()
}

// encodeTo writes a definition after its name.
func (d *Definition) encodeTo(b *bytes.Buffer, most int) {
	stored := d.stored(most)
	var rest []canonicalMember
	var hashed []definitionField
	description := ""
	for i, f := range d.fields {
		switch {
		case !stored[i]:
			hashed = append(hashed, f)
		case f.name == descriptionKey && f.value[0] == '"':
			description = encodeText(wire.Unquote(f.value))
		default:
			rest = append(rest, canonicalMember{f.name, f.value})
		}
	}
	if len(d.fields) == 0 {
		b.WriteString(" {}")
	}
	b.WriteByte('\n')
	if description != "" {
		fmt.Fprintf(b, "      %s:%s\n", descriptionKey, description)
	}
	if rest != nil {
		fmt.Fprintf(b, "      %s: |\n        ", definitionKey)
		_ = json.Indent(b, appendObject(nil, rest), "        ", "  ") // the value is valid
		b.WriteByte('\n')
	}
	if hashed != nil {
		fmt.Fprintf(b, "      %s:\n", hashesKey)
	}
	for _, f := range hashed {
		fmt.Fprintf(b, "%s %s%s\n", yamlPrefix("        ", f.name), hashPrefix,
			hex.EncodeToString(f.sum[:]))
	}
}

// stored reports for each field whether its value is stored: the smallest fields that together
// have at most the given number of bytes.
func (d *Definition) stored(most int) []bool {
	order := make([]int, len(d.fields))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(len(d.fields[a].value), len(d.fields[b].value))
	})
	all := make([]bool, len(d.fields))
	size := 0
	for _, i := range order {
		f := &d.fields[i]
		size += len(f.name) + len(f.value)
		all[i] = f.value != nil && size <= most
	}
	return all
}

// encodeText returns a text as a string, or as a list of its lines if there are several.
func encodeText(text string) string {
	if !strings.Contains(text, "\n") {
		return " " + yamlString(text)
	}
	var b strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		b.WriteString("\n        - " + yamlString(line))
	}
	return b.String()
}

// simpleKeyLength is the maximum number of bytes of a key before its colon. YAML permits 1024
// characters; a longer key has to be marked with a question mark.
const simpleKeyLength = 1000

// yamlPrefix returns an indented key and its colon.
func yamlPrefix(indent, name string) string {
	key := yamlKey(name)
	if len(key) > simpleKeyLength {
		return indent + "? " + key + "\n" + indent + ":"
	}
	return indent + key + ":"
}

var plainKey = lazy.Regexp(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

// yamlKey returns a name as a key or a value, in quotes if necessary.
func yamlKey(name string) string {
	if len(name) <= 200 && plainKey().MatchString(name) && !strings.EqualFold(name, "null") {
		return name
	}
	return yamlString(name)
}

// yamlString returns a string in double quotes. Characters that are not printable are escaped.
func yamlString(s string) string {
	b := []byte{'"'}
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case unicode.IsPrint(r):
			b = append(b, string(r)...)
		case r <= 0xffff:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = fmt.Appendf(b, `\U%08x`, r)
		}
	}
	return string(append(b, '"'))
}
