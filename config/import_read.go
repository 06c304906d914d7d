package config

import (
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// server is one entry of another client, all strings already in our syntax:
// ${VAR} for variables, $$ for a dollar.
type server struct {
	theirName, name string
	client          *client
	path, file      string // of the file; as shown, with the part of it

	command      string
	args         []string
	env, headers []named
	inherit      []string
	cwd, url     string
	transport    string // sse; "" = auto
	start, call  time.Duration
	tools        Tools
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
	case isGateway(s.command), isOurDoor(s.url):
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
	case err != nil || !onLoopback(u):
		return false
	case isGateway(s.theirName):
		return true
	}
	return (u.Path == "/mcp" || u.Path == "/sse") && im.opts.Ours != nil && im.opts.Ours(s.url)
}

// parseForeign reads JSON with comments, TOML or YAML, whatever the file is.
func parseForeign(file string, data []byte) (*yaml.Node, *Error) {
	if filepath.Ext(file) == ".toml" {
		return parseTOML(file, data)
	}
	root, bad := parse(file, data)
	if bad == nil && root != nil && root.Kind != yaml.MappingNode {
		bad = &Error{File: file, Line: root.Line, Problem: "must be a mapping"}
	}
	return root, bad
}

// foreignFile is a file of another client.
type foreignFile struct {
	client      *client
	path, shown string
	opts        ImportOptions
	project     bool            // it comes with the project
	off         map[string]bool // servers that it says apart from them are switched off
	passwords   map[string]bool // VS Code inputs that hide what is typed
	notes       []string
}

// servers returns the entries in the order of the file.
func (f *foreignFile) servers(root *yaml.Node) []server {
	f.passwords = map[string]bool{}
	for _, input := range items(child(root, "inputs")) {
		id, password := child(input, "id"), child(input, "password")
		if id != nil && password != nil && password.Value == "true" {
			f.passwords[id.Value] = true
		}
	}
	var here *yaml.Node // what Claude Code keeps for this project
	if projects := child(root, "projects"); f.client.id == "claude-code" {
		here = child(projects, filepath.ToSlash(f.opts.Cwd))
		if here == nil {
			here = child(projects, f.opts.Cwd)
		}
	}
	f.off = names(child(here, "disabledMcpServers"))
	if f.client.id == "gemini" {
		f.off = names(child(child(root, "mcp"), "excluded"))
	}
	local := f.group(child(here, f.client.key), f.shown+", project "+f.opts.Cwd)
	for i := range local {
		local[i].local = true
	}
	return append(local, f.group(child(root, f.client.key), f.shown)...)
}

// names reads a list of names.
func names(n *yaml.Node) map[string]bool {
	all := map[string]bool{}
	for _, item := range items(n) {
		all[deref(item).Value] = true
	}
	return all
}

// group reads the entries under one key.
func (f *foreignFile) group(n *yaml.Node, shown string) []server {
	var all []server
	for name, value := range children(n) {
		e := entry{file: f, node: value, wrong: new(string), used: map[string]bool{}}
		s := f.client.read(e)
		s.theirName, s.client, s.path, s.file = name, f.client, f.path, shown
		s.disabled, s.project = s.disabled || f.off[name], f.project
		switch {
		case value.Kind != yaml.MappingNode:
			s.unfit = "it is not a mapping"
		case *e.wrong != "":
			s.unfit = *e.wrong
		}
		e.dropMisfits(&s)
		s.target = strings.Join(append([]string{s.url, s.command}, s.args...), "\x00")
		s.envFile, s.left = e.peek("envFile"), e.unused()
		s.headers = slices.DeleteFunc(s.headers, func(h named) bool {
			if isReserved(h.name) {
				s.left = append(s.left, "headers."+showKey(h.name))
			}
			return isReserved(h.name)
		})
		all = append(all, s)
	}
	return all
}
