package dialect

import (
	"debug/buildinfo"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"mcpgateway/internal/config/internal/expand"
	"mcpgateway/internal/weburl"
)

// modulePath is the Go module of this program.
const modulePath = "mcpgateway"

// A Program is the program that an entry starts.
type Program struct {
	Command string
	Args    []string
	Cwd     string
	Path    string // PATH in the entry's environment; "" = PATH of this process
}

// IsGateway reports whether p is a gateway: the executable of this process, or a program with the
// name of the gateway that is built from the gateway's module. A program with this name whose file
// is not found counts as a gateway if its arguments are valid for serving.
func (p Program) IsGateway() bool {
	if p.Command == "" {
		return false
	}
	file, err := p.Find()
	if err != nil {
		return IsGatewayName(p.Command) && areServeArgs(p.Args)
	}
	if isThisExecutable(file) {
		return true
	}
	if !IsGatewayName(p.Command) {
		return false
	}
	info, err := buildinfo.ReadFile(file)
	return err == nil && info.Main.Path == modulePath
}

// Find returns the path of the executable.
func (p Program) Find() (string, error) {
	value := func(name string) string {
		if name == "$" { // $$ is a dollar
			return name
		}
		return os.Getenv(name)
	}
	command, cwd := expand.Home(os.Expand(p.Command, value)), expand.Home(os.Expand(p.Cwd, value))
	isPath := strings.ContainsRune(command, '/') ||
		strings.ContainsRune(command, filepath.Separator)
	switch {
	case isPath && cwd != "" && !filepath.IsAbs(command):
		return exec.LookPath(filepath.Join(cwd, command))
	case isPath || p.Path == "":
		return exec.LookPath(command)
	}
	for _, dir := range filepath.SplitList(os.Expand(p.Path, value)) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if file, err := exec.LookPath(filepath.Join(dir, command)); err == nil {
			return file, nil
		}
	}
	return "", exec.ErrNotFound
}

// isThisExecutable reports whether file is the executable of this process. It follows symbolic
// links.
func isThisExecutable(file string) bool {
	self, err := os.Executable()
	if err != nil {
		return false
	}
	selfInfo, err := os.Stat(self)
	if err != nil {
		return false
	}
	info, err := os.Stat(file)
	return err == nil && os.SameFile(selfInfo, info)
}

// areServeArgs reports whether a gateway with these arguments would serve: none, the verb serve,
// or its flags.
func areServeArgs(args []string) bool {
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

// IsGatewayName reports whether the last element of a path, or the name of an entry, is a name of
// the gateway.
func IsGatewayName(name string) bool {
	base := strings.ToLower(name[strings.LastIndexAny(name, `/\`)+1:])
	base = strings.TrimSuffix(base, ".exe")
	return base == "gateway" || base == "mcp-gateway"
}

// IsGatewayURL reports whether a URL is the usual address of a gateway on this machine.
func IsGatewayURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Port() == "7420" && weburl.IsLoopback(u.Hostname())
}
