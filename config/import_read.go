package config

import (
	"path/filepath"
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
	disabled     bool

	unfit   string   // why it cannot be imported
	target  string   // the command line or the URL
	envFile string   // where more of the environment is, which is left out
	left    []string // the keys that are
}

type named struct{ name, value string }

// whyNot tells what keeps s from being one of our backends; "" = nothing.
func (s *server) whyNot() string {
	switch {
	case isGateway(s.command), isOurDoor(s.url):
		return "it is this gateway itself"
	case s.command == "" && s.url == "":
		return "it has neither a command nor a URL"
	case s.command != "" && s.url != "":
		return "it has both a command and a URL"
	}
	return ""
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
	all := f.group(child(root, f.client.key), f.shown)
	if projects := child(root, "projects"); projects != nil && f.client.id == "claude-code" {
		here := child(child(projects, filepath.ToSlash(f.opts.Cwd)), f.client.key)
		if here == nil {
			here = child(child(projects, f.opts.Cwd), f.client.key)
		}
		all = append(f.group(here, f.shown+", project "+f.opts.Cwd), all...)
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
		switch {
		case value.Kind != yaml.MappingNode:
			s.unfit = "it is not a mapping"
		case *e.wrong != "":
			s.unfit = *e.wrong
		}
		e.dropMisfits(&s)
		s.target = strings.Join(append([]string{s.url, s.command}, s.args...), "\x00")
		s.envFile, s.left = e.peek("envFile"), e.unused()
		all = append(all, s)
	}
	return all
}
