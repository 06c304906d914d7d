package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/config/internal/expand"
	"mcpgateway/internal/config/internal/node"
)

// fileParser converts a file to the map that koanf merges. It implements koanf.Parser, because
// koanf's own parsers lose lines, order and duplicates. It continues after an error, so that all
// errors are reported.
type fileParser struct {
	*fileReport
	scalars scalarReader
	env     func(string) (string, bool)
	sources *sourceReader // nil = no source is read

	workspace       string        // ${workspaceFolder} of other clients
	callTimeoutUnit time.Duration // unit of timeout in entries of the file's client; 0 = unknown

	backend currentBackend
	blank   bool // the file is empty
}

// A scalarReader converts the scalars of a file.
type scalarReader interface {
	// read converts n to type t. x expands the variables of this value. ok is false if the value is
	// invalid or a variable is not set.
	read(n *yaml.Node, t reflect.Type, at location, b currentBackend, x *expand.Expander) (
		v any, ok bool)
	// needs reports whether the value at path is needed, so that references other than variables in
	// it must be read.
	needs(path string, b currentBackend) bool
}

// currentBackend is the backend whose values are being read.
type currentBackend struct {
	path           string // "" = outside of backends
	disabled       bool
	inForeignEntry bool // its entry is in mcpServers

	env func(string) (string, bool) // environment for its values; nil = that of the file
}

// A fileReport collects the positions of the values in a file, and the problems with them.
type fileReport struct {
	file      string
	locations map[string]location // path → location of its value
	reported  map[string]bool     // paths for which an error has been reported
	errs      Errors
	warnings  []string
}

func newFileReport(file string) *fileReport {
	return &fileReport{file: file, locations: map[string]location{}, reported: map[string]bool{}}
}

func (r *fileReport) fail(at location, problem, hint string) {
	r.errs = append(r.errs, &Error{File: r.file, Line: at.line, Key: at.key, Problem: problem,
		Hint: hint})
	r.reported[at.path] = true
}

func (r *fileReport) warn(at location, text string) {
	r.warnings = append(r.warnings,
		(&Error{File: r.file, Line: at.line, Key: at.key, Problem: text}).Error())
}

// location is the position of a value in the file.
type location struct {
	path string // in the gateway's keys: backends[0].url
	key  string // in the keys of the file: mcpServers.docs.serverUrl
	line int
	text string // a scalar as written, before ${VAR} is expanded; errors may show it
}

func (p location) child(key, shown string, line int) location {
	return location{path: joinPath(p.path, key), key: joinPath(p.key, shown), line: line}
}

func (p location) item(i, line int) location {
	index := fmt.Sprintf("[%d]", i)
	return location{path: p.path + index, key: p.key + index, line: line}
}

func joinPath(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// Unmarshal reads the file. It returns an error, an Errors, only if the file cannot be parsed. It
// appends all other errors to r.errs.
func (r *fileParser) Unmarshal(data []byte) (map[string]any, error) {
	root, bad := parse(r.file, data)
	if bad != nil {
		return nil, Errors{bad}
	}
	if root == nil {
		r.blank = true
		return map[string]any{}, nil
	}
	top := location{line: root.Line}
	pairs := r.pairs(root, top)
	r.readTopEnvFile(pairs)
	for i, p := range pairs {
		if p.key == "mcpServers" {
			return r.readServersFile(pairs, i, top), nil
		}
	}
	return r.record(pairs, settingsType, top), nil
}

// parse parses a file and returns its nodes. root is nil if the file is empty.
func parse(file string, data []byte) (*yaml.Node, *Error) {
	root, bad := node.Parse(data)
	if bad != nil {
		return nil, &Error{File: file, Line: bad.Line, Problem: bad.Problem, Hint: bad.Hint}
	}
	return root, nil
}

// Marshal implements koanf.Parser.
func (r *fileParser) Marshal(map[string]any) ([]byte, error) {
	return nil, fmt.Errorf("%s: not to be written", r.file)
}

// value converts n to type t. ok is false if the value is absent, or if it is invalid. An invalid
// value is reported, unless it is in a disabled backend and a variable in it is not set.
func (r *fileParser) value(n *yaml.Node, t reflect.Type, at location) (v any, ok bool) {
	if n = node.Deref(n); node.IsAbsent(n) {
		return nil, false
	}
	kind, isList := t.Kind(), n.Kind == yaml.SequenceNode
	switch {
	case kind == reflect.Slice && isList:
		return r.list(n, t.Elem(), at), true
	case t == backendType && n.Kind == yaml.MappingNode:
		return r.readBackend(r.pairs(n, at), at), true
	case kind == reflect.Struct && n.Kind == yaml.MappingNode:
		return r.record(r.pairs(n, at), t, at), true
	case kind == reflect.Map && n.Kind == yaml.MappingNode:
		return r.mapping(n, t.Elem(), at), true
	case shortForms[t] != "" && n.Kind == yaml.ScalarNode:
		f, _ := fieldOf(t, shortForms[t])
		if f.typ.Kind() != reflect.Int {
			f.typ = reflect.TypeFor[string]()
		}
		value, ok := r.value(n, f.typ, at)
		return map[string]any{shortForms[t]: value}, ok
	case n.Kind == yaml.ScalarNode && (t == timeType || kind != reflect.Slice &&
		kind != reflect.Struct && kind != reflect.Map):
		x := r.newExpander(at.path)
		return r.scalars.read(n, t, at, r.backend, &x)
	}
	r.fail(at, "must be "+expectedForm(t), listHint(t))
	return nil, false
}

// listHint returns an example of a list of type t, in a form that is valid in YAML and JSON; "" for
// other types.
func listHint(t reflect.Type) string {
	switch {
	case t.Kind() != reflect.Slice:
		return ""
	case t.Elem() == backendType:
		return `write it like [{"name": "NAME", "url": "URL"}], with one item for each server`
	case t.Elem() == reflect.TypeFor[OAuthProfile]():
		return `write it like [{"scope": "SCOPE", "profile": "NAME"}]`
	}
	return `write it like ["one", "two"], also if there is only one`
}

func (r *fileParser) list(n *yaml.Node, elem reflect.Type, at location) []any {
	out := []any{}
	for i, child := range n.Content {
		here := at.item(i, child.Line)
		r.locations[here.path] = here
		if node.IsAbsent(node.Deref(child)) {
			r.fail(here, "is empty", "")
		}
		v, ok := r.value(child, elem, here)
		switch {
		case ok:
			out = append(out, v)
		case !r.reported[here.path]: // an unset variable of a disabled backend
		case elem.Kind() == reflect.Struct:
			out = append(out, map[string]any{}) // keeps the indexes of the following items
		default:
			out = append(out, "") // keep the indexes
		}
	}
	return out
}

// record reads a mapping with the keys of the struct t.
func (r *fileParser) record(pairs []pair, t reflect.Type, at location) map[string]any {
	out := map[string]any{}
	for _, p := range pairs {
		here := at.child(p.key, p.shown, p.line)
		f, known := fieldOf(t, p.key)
		if !known {
			r.fail(here, "unknown key"+didYouMean(p.key, t), foreignFileHint(p.key, at))
			continue
		}
		if v, ok := r.value(p.value, f.typ, here); ok {
			out[p.key] = v
			here.text = node.Deref(p.value).Value
			r.locations[here.path] = here
		}
	}
	return out
}

// foreignFileHint returns a hint for top-level keys of other clients' files.
func foreignFileHint(key string, at location) string {
	if at.path == "" && (key == "servers" || key == "mcp" || key == "mcp_servers") {
		return "a file of another MCP client? gateway import FILE converts it"
	}
	return ""
}

// mapping reads a mapping whose keys are names that the user chooses, to values of type elem: texts
// or records.
func (r *fileParser) mapping(n *yaml.Node, elem reflect.Type, at location) map[string]any {
	out := map[string]any{}
	for _, p := range r.pairs(n, at) {
		here := at.child(p.key, p.shown, p.line)
		r.locations[here.path] = here
		absent := node.IsAbsent(node.Deref(p.value))
		switch {
		case absent && elem.Kind() == reflect.Struct:
			out[p.key] = map[string]any{}
			continue
		case absent:
			r.fail(here, "has no value", `write "" for an empty one`)
			continue
		}
		if v, ok := r.value(p.value, elem, here); ok {
			out[p.key] = v
		}
	}
	return out
}

// readBackend reads the entries of one backend, with the gateway's keys.
func (r *fileParser) readBackend(pairs []pair, at location) map[string]any {
	before := len(r.errs)
	r.backend.path = at.path
	if r.backend.disabled = r.isBackendOff(pairs); !r.backend.disabled {
		r.backend.env = withVariables(r.env, r.envFileOf(pairs).variables)
		if r.sources != nil {
			r.backend.env = withVariables(r.backend.env, r.sources.topFile.variables)
		}
		r.backend.disabled = r.isBackendDisabled(pairs)
	}
	out := r.record(pairs, backendType, at)
	r.backend.path, r.backend.disabled, r.backend.env = "", false, nil
	r.reported[at.path] = len(r.errs) > before
	return out
}

// readTopEnvFile reads env_file at the top level. Errors are reported when the value is converted.
func (r *fileParser) readTopEnvFile(pairs []pair) {
	if r.sources == nil || r.sources.access == nil {
		return
	}
	if path := r.sources.envFilePath; path != "" {
		r.sources.topFile = r.sources.envFile(path)
	} else {
		r.sources.topFile = r.envFileOf(pairs)
	}
}

// envFileOf reads the file of the key env_file.
func (r *fileParser) envFileOf(pairs []pair) (f envFile) {
	if r.sources == nil || r.sources.access == nil {
		return envFile{}
	}
	for _, p := range pairs {
		value := node.Deref(p.value)
		if p.key != "env_file" || value.Kind != yaml.ScalarNode || node.IsAbsent(value) {
			continue
		}
		x := expand.Expander{
			Env: r.topEnv(), Foreign: r.backend.inForeignEntry, Workspace: r.workspace,
		}
		if path := x.Expand(value.Value); path != "" && len(x.Errors) == 0 {
			f = r.sources.envFile(path)
		}
	}
	return f
}

// topEnv returns the environment for values outside of backends.
func (r *fileParser) topEnv() func(string) (string, bool) {
	if r.sources == nil {
		return r.env
	}
	return withVariables(r.env, r.sources.topFile.variables)
}

// newExpander returns an Expander for the value at path.
func (r *fileParser) newExpander(path string) expand.Expander {
	x := expand.Expander{
		Env: r.topEnv(), Foreign: r.backend.inForeignEntry, Workspace: r.workspace,
	}
	if r.backend.env != nil {
		x.Env = r.backend.env
	}
	x.Source = notRead
	if r.sources != nil && r.scalars.needs(path, r.backend) {
		x.Source = r.sources.lookUp
	}
	return x
}

// isBackendOff reports whether enabled is false as written, without a variable: then the files of
// the backend are not read.
func (r *fileParser) isBackendOff(pairs []pair) bool {
	return slices.ContainsFunc(pairs, func(p pair) bool {
		return p.key == "enabled" && strings.EqualFold(node.Deref(p.value).Value, "false")
	})
}

// isBackendDisabled reports whether a backend is disabled, before its other entries are read.
func (r *fileParser) isBackendDisabled(pairs []pair) bool {
	for _, p := range pairs {
		if p.key == "enabled" {
			x := r.newExpander(joinPath(r.backend.path, p.key))
			return strings.EqualFold(x.Expand(node.Deref(p.value).Value), "false")
		}
	}
	return false
}

// pair is one entry of a mapping.
type pair struct {
	key   string
	shown string // key for display, see node.ShowKey
	line  int
	value *yaml.Node
}

// pairs returns the entries of the mapping n in order. It reports duplicate keys, merge keys and
// keys that are not plain text.
func (r *fileReport) pairs(n *yaml.Node, at location) []pair {
	n = node.Deref(n)
	if n.Kind != yaml.MappingNode {
		r.fail(at, "must be a mapping", "")
		return nil
	}
	var all []pair
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		here := at.child(key.Value, node.ShowKey(key.Value), key.Line)
		switch first := lines[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			r.fail(location{key: at.key, line: key.Line}, "a key must be plain text", "")
		case key.Tag == "!!merge":
			r.fail(here, "merge keys are not supported",
				"write the keys out; what all backends share goes under defaults")
		case first > 0:
			r.fail(here, fmt.Sprintf("is already set on line %d", first), "")
		default:
			lines[key.Value] = key.Line
			all = append(all, pair{key.Value, node.ShowKey(key.Value), key.Line, value})
		}
	}
	return all
}
