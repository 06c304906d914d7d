package config

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// server is one entry of another client, all strings already in our syntax:
// ${VAR} for variables, $$ for a dollar.
type server struct {
	theirName, name string
	client          *client
	file            string // shown

	command      string
	args         []string
	env, headers []named
	inherit      []string
	cwd, url     string
	start, call  time.Duration
	disabled     bool

	unfit   string // why it cannot be imported
	target  string // what makes two servers the same: the command line or the URL
	details string // what may differ between them all the same: env, headers
}

type named struct{ name, value string }

// whyNot tells what keeps s from being one of our backends; "" = nothing.
func (s *server) whyNot() string {
	switch {
	case isGateway(s.command):
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
		e := entry{file: f, node: value, wrong: new(string)}
		s := f.client.read(e)
		s.theirName, s.client, s.file = name, f.client, shown
		switch {
		case value.Kind != yaml.MappingNode:
			s.unfit = "it is not a mapping"
		case *e.wrong != "":
			s.unfit = *e.wrong
		}
		s.target = strings.Join(append([]string{s.url, s.command}, s.args...), "\x00")
		s.details = fmt.Sprint(s.env, s.headers)
		all = append(all, s)
	}
	return all
}

// entry reads the values of one server, translated, and remembers what was
// wrong with any of them.
type entry struct {
	file  *foreignFile
	node  *yaml.Node
	wrong *string
}

func (e entry) scalar(n *yaml.Node, key string) string {
	if n = deref(n); n.Kind != yaml.ScalarNode {
		*e.wrong = key + " is not a string"
		return ""
	}
	return e.file.translate(n.Value)
}

// text returns the first of the keys that is there.
func (e entry) text(keys ...string) string {
	for _, key := range keys {
		if n := child(e.node, key); n != nil {
			return e.scalar(n, key)
		}
	}
	return ""
}

func (e entry) list(key string) []string {
	n := child(e.node, key)
	if n != nil && n.Kind != yaml.SequenceNode {
		*e.wrong = key + " is not a list"
	}
	var all []string
	for _, item := range items(n) {
		all = append(all, e.scalar(item, key))
	}
	return all
}

func (e entry) table(key string) []named {
	n := child(e.node, key)
	if n != nil && n.Kind != yaml.MappingNode {
		*e.wrong = key + " is not a mapping"
	}
	var all []named
	for name, value := range children(n) {
		all = append(all, named{name, e.scalar(value, key)})
	}
	return all
}

func (e entry) is(key, value string) bool {
	n := child(e.node, key)
	return n != nil && n.Value == value
}

// seconds reads a number of seconds, perhaps with a fraction.
func (e entry) seconds(key string) time.Duration {
	n, err := strconv.ParseFloat(e.text(key), 64)
	if err != nil || n <= 0 || n > 1e6 {
		return 0
	}
	return time.Duration(n * float64(time.Second)).Round(time.Millisecond)
}
