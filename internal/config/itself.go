package config

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// module is the Go module of this program.
const module = "mcpgateway"

// A program is what an entry of a client starts.
type program struct {
	command string
	args    []string
	cwd     string
	path    string // PATH in the entry's environment; "" = that of this process
}

// isGateway reports whether p is a gateway: it is the file of this process, or it has a name of the gateway and is built
// from its module. A program that has the name and is not found is taken for a gateway if it has a gateway's arguments.
func (p program) isGateway() bool {
	if p.command == "" {
		return false
	}
	file, err := p.find()
	if err != nil {
		return isGatewayName(p.command) && areOurs(p.args)
	}
	if isThisProgram(file) {
		return true
	}
	if !isGatewayName(p.command) {
		return false
	}
	info, err := buildinfo.ReadFile(file)
	return err == nil && info.Main.Path == module
}

// find returns the file that is started.
func (p program) find() (string, error) {
	value := func(name string) string {
		if name == "$" { // $$ is a dollar
			return name
		}
		return os.Getenv(name)
	}
	command, cwd := ExpandHome(os.Expand(p.command, value)), ExpandHome(os.Expand(p.cwd, value))
	isPath := strings.ContainsRune(command, '/') || strings.ContainsRune(command, filepath.Separator)
	switch {
	case isPath && cwd != "" && !filepath.IsAbs(command):
		return exec.LookPath(filepath.Join(cwd, command))
	case isPath || p.path == "":
		return exec.LookPath(command)
	}
	for _, dir := range filepath.SplitList(os.Expand(p.path, value)) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if file, err := exec.LookPath(filepath.Join(dir, command)); err == nil {
			return file, nil
		}
	}
	return "", exec.ErrNotFound
}

// isThisProgram reports whether file is that of this process. Symbolic links are followed.
func isThisProgram(file string) bool {
	self, err := os.Executable()
	if err != nil {
		return false
	}
	ours, err := os.Stat(self)
	if err != nil {
		return false
	}
	info, err := os.Stat(file)
	return err == nil && os.SameFile(ours, info)
}

// areOurs reports whether a gateway could be started with these arguments to serve: none, the verb serve, or its flags.
func areOurs(args []string) bool {
	if len(args) == 0 {
		return true
	}
	name, _, _ := strings.Cut(args[0], "=")
	switch name {
	case "serve", "-c", "--config", "--listen", "--stdio", "--state", "--log-level", "--log-format":
		return true
	}
	return false
}

// isGatewayName reports whether a path, or the name of an entry, ends in a name that a gateway has.
func isGatewayName(name string) bool {
	base := strings.ToLower(name[strings.LastIndexAny(name, `/\`)+1:])
	base = strings.TrimSuffix(base, ".exe")
	return base == "gateway" || base == "mcp-gateway"
}

// program returns what s starts.
func (s *server) program() program {
	p := program{command: s.command, args: s.args, cwd: s.cwd}
	for _, v := range s.env {
		if v.name == "PATH" {
			p.path = v.value
		}
	}
	return p
}

// program returns what e starts.
func (e *theirs) program() program {
	var p program
	if n := e.values["command"]; n != nil {
		p.command = n.Value
	}
	if n := e.values["cwd"]; n != nil {
		p.cwd = n.Value
	}
	for arg := range texts(e.values["args"]) {
		p.args = append(p.args, arg)
	}
	if env := e.values["env"]; env != nil && env.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(env.Content); i += 2 {
			if deref(env.Content[i]).Value == "PATH" {
				p.path = deref(env.Content[i+1]).Value
			}
		}
	}
	return p
}
