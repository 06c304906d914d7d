package clientimport

import (
	"fmt"
	"iter"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mcpgateway/internal/config/internal/dialect"

	"mcpgateway/internal/config/internal/node"

	"mcpgateway/internal/config"

	"go.yaml.in/yaml/v3"
)

// server is one entry of another client, all strings already in our syntax:
// ${VAR} for variables, $$ for a dollar.
type server struct {
	theirName, name string
	client          *dialect.Client
	path, file      string // of the file; as shown, with the part of it

	command      string
	args         []string
	env, headers []named
	inherit      []string
	cwd, url     string
	transport    string // sse; "" = auto
	start, call  time.Duration
	tools        dialect.ToolFilter
	disabled     bool // there
	project      bool // it comes with the project, and nobody asked for it
	local        bool // Claude Code has it for one project, in the user's file

	unfit   string   // why it cannot be imported
	target  string   // the command line or the URL
	envFile string   // where more of the environment is, which is left out
	left    []string // the keys that are
}

type named struct{ name, value string }

// off tells whether s is written, and not served.
func (s *server) off() bool { return s.disabled || s.project }

// itself is why a gateway is not put behind itself.
const itself = "it is this gateway itself"

// whyNot tells what keeps s from being one of our backends; "" = nothing.
func (s *server) whyNot() string {
	switch {
	case s.program().IsGateway(), dialect.IsGatewayURL(s.url):
		return itself
	case s.command == "" && s.url == "":
		return "it has neither a command nor a URL"
	case s.command != "" && s.url != "":
		return "it has both a command and a URL"
	}
	return ""
}

// isOurs tells whether s is a gateway on this machine: one that answers as such, or
// is called that.
func (im *importer) isOurs(s server) bool {
	u, err := url.Parse(s.url)
	switch {
	case err != nil || !dialect.OnLoopback(u):
		return false
	case dialect.IsGatewayName(s.theirName):
		return true
	}
	return (u.Path == "/mcp" || u.Path == "/sse") && im.opts.IsGateway != nil && im.opts.IsGateway(s.url)
}

// parseForeign reads JSON with comments, TOML or YAML, whatever the file is.
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
	client      *dialect.Client
	path, shown string
	opts        Options
	project     bool             // it comes with the project
	workspace   string           // the folder that ${workspaceFolder} means
	folder      string           // of the project that it is about; "" = unknown, or that of the user
	off         map[string]bool  // servers that it says apart from them are switched off
	inputs      map[string]input // values that VS Code asks for
	notes       []string

	server string          // that is being read
	own    map[string]bool // variables that this server sets itself, while its arguments are read
}

// input is a value that VS Code asks its user for.
type input struct {
	kind     string // promptString, pickString, command
	password bool   // it is hidden while it is typed
	fallback string // its default
	options  []string
}

// servers returns the entries in the order of the file.
func (f *foreignFile) servers(root *yaml.Node) []server {
	f.readInputs(root)
	var here *yaml.Node // what Claude Code keeps for this project
	if projects := node.Child(root, "projects"); f.client.ID == "claude-code" {
		here = node.Child(projects, filepath.ToSlash(f.opts.Cwd))
		if here == nil {
			here = node.Child(projects, f.opts.Cwd)
		}
	}
	f.off = names(node.Child(here, "disabledMcpServers"))
	if f.client.ID == "gemini" {
		f.off = names(node.Child(node.Child(root, "mcp"), "excluded"))
	}
	outside := f.folder
	f.folder = f.opts.Cwd
	local := f.group(node.Child(here, f.client.Key), f.shown+", project "+f.opts.Cwd)
	for i := range local {
		local[i].local = true
	}
	f.folder = outside
	all := append(local, f.group(within(root, f.client.Key), f.shown)...)
	if f.client.ID == "claude-code" {
		f.noteProjects(node.Child(root, "projects"), here)
	}
	return all
}

// noteProjects names the servers that Claude Code has for other projects than this one.
func (f *foreignFile) noteProjects(projects, here *yaml.Node) {
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
			file = " " + shellWord(f.path)
		}
		f.note("%s: %d more %s in project %s: run gateway import --project %s%s",
			f.shown, n, servers, folder, shellWord(folder), file)
	}
}

// shellWord quotes text for a shell where that is needed.
func shellWord(text string) string {
	if strings.ContainsAny(text, " \t\"'$&();<>|*?`") {
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	return text
}

// readInputs reads the values that VS Code asks for.
func (f *foreignFile) readInputs(root *yaml.Node) {
	f.inputs = map[string]input{}
	outer, _, _ := cutLast(f.client.Key, ".")
	from := node.Child(root, "inputs")
	if outer != f.client.Key {
		from = within(root, outer+".inputs")
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
		in := input{kind: text("type"), password: text("password") == "true", fallback: text("default")}
		for _, option := range node.Items(node.Child(n, "options")) {
			if value := node.Child(option, "value"); value != nil {
				option = value
			}
			in.options = append(in.options, node.Deref(option).Value)
		}
		f.inputs[id.Value] = in
	}
}

// note adds a note, once.
func (f *foreignFile) note(format string, args ...any) {
	note := node.OneLine(fmt.Sprintf(format, args...))
	if !slices.Contains(f.notes, note) {
		f.notes = append(f.notes, note)
	}
}

// entries yields the servers in a mapping, or in a list that has their names inside.
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

// names reads a list of names.
func names(n *yaml.Node) map[string]bool {
	all := map[string]bool{}
	for _, item := range node.Items(n) {
		all[node.Deref(item).Value] = true
	}
	return all
}

// group reads the entries under one key.
func (f *foreignFile) group(n *yaml.Node, shown string) []server {
	var all []server
	for name, value := range entries(n) {
		f.server = name
		e := entry{file: f, node: value, wrong: new(string), used: map[string]bool{}}
		s := formatOf(f.client).read(e)
		s.theirName, s.client, s.path, s.file = name, f.client, f.path, shown
		s.disabled, s.project = s.disabled || f.off[name], f.project
		switch {
		case value.Kind != yaml.MappingNode:
			s.unfit = "it is not a mapping"
		case *e.wrong != "":
			s.unfit = *e.wrong
		}
		e.dropMisfits(&s)
		f.localise(&s)
		s.target = strings.Join(append([]string{s.url, s.command}, s.args...), "\x00")
		s.envFile, s.left = e.peek("envFile"), e.unused()
		s.headers = slices.DeleteFunc(s.headers, func(h named) bool {
			if config.IsReservedHeader(h.name) {
				s.left = append(s.left, "headers."+node.ShowKey(h.name))
			}
			return config.IsReservedHeader(h.name)
		})
		all = append(all, s)
	}
	return all
}

// Program returns what s starts.
func (s *server) program() dialect.Program {
	p := dialect.Program{Command: s.command, Args: s.args, Cwd: s.cwd}
	for _, v := range s.env {
		if v.name == "PATH" {
			p.Path = v.value
		}
	}
	return p
}
