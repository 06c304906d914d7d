package clientimport

import (
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/config"
	"mcpgateway/internal/config/internal/dialect"
	"mcpgateway/internal/config/internal/node"
	"mcpgateway/internal/text"
)

// parseForeign parses JSON with comments, TOML or YAML. The node is nil if the file is empty. A
// file that is not a mapping is an error.
func parseForeign(file string, data []byte) (*yaml.Node, *config.Error) {
	if filepath.Ext(file) == ".toml" {
		return parseTOML(file, data)
	}
	root, bad := node.Parse(data)
	switch {
	case bad != nil:
		return nil, &config.Error{File: file, Line: bad.Line, Problem: bad.Problem, Hint: bad.Hint}
	case root != nil && root.Kind != yaml.MappingNode:
		return root, &config.Error{File: file, Line: root.Line, Problem: "must be a mapping"}
	}
	return root, nil
}

// foreignFile is a file of another client.
type foreignFile struct {
	client          *dialect.Client
	path, display   string
	opts            Options
	fromProject     bool             // file of the project, not named by the user
	workspace       string           // value of ${workspaceFolder}
	projectDir      string           // folder of its project; "" = unknown, or a file of the user
	disabledServers map[string]bool  // servers disabled by a list outside of their entries
	inputs          map[string]input // id → input variable of VS Code
	notes           []string

	currentServer  string          // name of the server that is being read
	entryVariables map[string]bool // set by the current server, while its arguments are read
}

// input is an input variable of VS Code, whose value the user enters.
type input struct {
	kind     string // promptString, pickString, command
	password bool   // hidden while the user types
	fallback string // default value
	options  []string
}

// readServers returns the entries in the order of the file, those that Claude Code has for this
// project first.
func (f *foreignFile) readServers(root *yaml.Node) []importedServer {
	f.readInputs(root)
	var here *yaml.Node // section of Claude Code for this project
	if projects := node.Child(root, "projects"); f.client.ID == "claude-code" {
		here = node.Child(projects, filepath.ToSlash(f.opts.Cwd))
		if here == nil {
			here = node.Child(projects, f.opts.Cwd)
		}
	}
	f.disabledServers = nameSet(node.Child(here, "disabledMcpServers"))
	if f.client.ID == "gemini" {
		f.disabledServers = nameSet(node.Child(node.Child(root, "mcp"), "excluded"))
	}
	outside := f.projectDir
	f.projectDir = f.opts.Cwd
	local := f.readEntries(node.Child(here, f.client.Key), f.display+", project "+f.opts.Cwd)
	for i := range local {
		local[i].projectScoped = true
	}
	f.projectDir = outside
	all := append(local, f.readEntries(lookUpPath(root, f.client.Key), f.display)...)
	if f.client.ID == "claude-code" {
		f.noteOtherProjects(node.Child(root, "projects"), here)
	}
	return all
}

// noteOtherProjects adds notes about servers that Claude Code has for other projects.
func (f *foreignFile) noteOtherProjects(projects, here *yaml.Node) {
	for folder, project := range node.Children(projects) {
		n := 0
		for range node.Children(node.Child(project, f.client.Key)) {
			n++
		}
		if n == 0 || project == here {
			continue
		}
		servers, file := "server", ""
		if n > 1 {
			servers = "servers"
		}
		if f.path != filepath.Join(f.opts.Home, ".claude.json") {
			file = " " + text.ShellWord(f.path)
		}
		f.note("%s: %d more %s in project %s: run gateway import --project %s%s",
			f.display, n, servers, folder, text.ShellWord(folder), file)
	}
}

// absolute returns the path of a file that an entry names, which is relative to the workspace. It
// returns the path unchanged if it is absolute, or begins with ~ or a variable.
func (f *foreignFile) absolute(path string) string {
	if path == "" || filepath.IsAbs(path) || strings.HasPrefix(path, "~") ||
		strings.HasPrefix(path, "${") || windowsPath().MatchString(path) {
		return path
	}
	return filepath.Join(strings.ReplaceAll(f.workspace, "$", "$$"), path)
}

// readInputs reads the input variables of VS Code.
func (f *foreignFile) readInputs(root *yaml.Node) {
	f.inputs = map[string]input{}
	outer, _, _ := cutLast(f.client.Key, ".")
	from := node.Child(root, "inputs")
	if outer != f.client.Key {
		from = lookUpPath(root, outer+".inputs")
	}
	for _, n := range node.Items(from) {
		id := node.Child(n, "id")
		if id == nil {
			continue
		}
		text := func(key string) string {
			if value := node.Child(n, key); value != nil {
				return value.Value
			}
			return ""
		}
		in := input{kind: text("type"), password: text("password") == "true",
			fallback: text("default")}
		for _, option := range node.Items(node.Child(n, "options")) {
			if value := node.Child(option, "value"); value != nil {
				option = value
			}
			in.options = append(in.options, node.Deref(option).Value)
		}
		f.inputs[id.Value] = in
	}
}

// note adds a note, unless the file already has the same note.
func (f *foreignFile) note(format string, args ...any) {
	note := node.OneLine(fmt.Sprintf(format, args...))
	if !slices.Contains(f.notes, note) {
		f.notes = append(f.notes, note)
	}
}

// entries yields the servers of a mapping or a list. In a list, the nth item is called server-n if
// it has no name.
func entries(n *yaml.Node) iter.Seq2[string, *yaml.Node] {
	if n == nil || n.Kind != yaml.SequenceNode {
		return node.Children(n)
	}
	return func(yield func(string, *yaml.Node) bool) {
		for i, item := range node.Items(n) {
			name := fmt.Sprintf("server-%d", i+1)
			if given := node.Child(node.Deref(item), "name"); given != nil && given.Value != "" {
				name = given.Value
			}
			if !yield(name, node.Deref(item)) {
				return
			}
		}
	}
}

// nameSet reads a list of names.
func nameSet(n *yaml.Node) map[string]bool {
	all := map[string]bool{}
	for _, item := range node.Items(n) {
		all[node.Deref(item).Value] = true
	}
	return all
}

// readEntries reads the entries under one key.
func (f *foreignFile) readEntries(n *yaml.Node, shown string) []importedServer {
	var all []importedServer
	for name, value := range entries(n) {
		f.currentServer = name
		e := serverReader{file: f, node: value, problem: new(string), readKeys: map[string]bool{}}
		s := formatOf(f.client).read(e)
		s.origName, s.client, s.path, s.file = name, f.client, f.path, shown
		s.disabledInClient, s.fromProject = s.disabledInClient || f.disabledServers[name],
			f.fromProject
		switch {
		case value.Kind != yaml.MappingNode:
			s.unsupported = "it is not a mapping"
		case *e.problem != "":
			s.unsupported = *e.problem
		}
		e.dropInapplicable(&s)
		f.localize(&s)
		s.target = strings.Join(append([]string{s.url, s.command}, s.args...), "\x00")
		if s.command != "" {
			s.envFile = f.absolute(e.text("envFile"))
		}
		s.droppedKeys = e.unreadKeys()
		s.headers = slices.DeleteFunc(s.headers, func(h namedValue) bool {
			if config.IsReservedHeader(h.name) {
				s.droppedKeys = append(s.droppedKeys, "headers."+node.ShowKey(h.name))
			}
			return config.IsReservedHeader(h.name)
		})
		all = append(all, s)
	}
	return all
}
