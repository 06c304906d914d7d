package clientimport

import (
	"slices"
	"time"

	"mcpgateway/internal/config"
	"mcpgateway/internal/config/internal/dialect"
)

// importedServer is an entry of another client.
type importedServer struct {
	serverSettings
	origName   string // name in the client
	client     *dialect.Client
	path, file string // path of the file; file and section for display

	disabledInClient bool
	fromProject      bool // it is in a file of the project that the user did not name
	projectScoped    bool // it is in the user's file of Claude Code, for one project

	unsupported string   // reason for not importing the server
	target      string   // command line or URL
	droppedKeys []string // keys that are not imported
}

// serverSettings are the settings of a server as a backend. All strings are in the syntax of the
// gateway: ${VAR} for variables, $$ for a dollar.
type serverSettings struct {
	name                      string
	command                   string
	args                      []string
	env, headers              []namedValue
	inherit                   []string
	envFile                   string // file with further variables
	cwd, url                  string
	transport                 config.Transport // TransportSSE; "" = TransportAuto
	startTimeout, callTimeout time.Duration
	tools                     dialect.ToolFilter
}

type namedValue struct{ name, value string }

// whyUnsupported returns the reason if s cannot be a backend; "" = it can be a backend.
func (s *serverSettings) whyUnsupported() string {
	switch {
	case s.program().IsGateway(), dialect.IsGatewayURL(s.url):
		return reasonGateway
	case s.command == "" && s.url == "":
		return "it has neither a command nor a URL"
	case s.command != "" && s.url != "":
		return "it has both a command and a URL"
	}
	return ""
}

// program returns the program that s starts.
func (s *serverSettings) program() dialect.Program {
	p := dialect.Program{Command: s.command, Args: s.args, Cwd: s.cwd}
	for _, v := range s.env {
		if v.name == "PATH" {
			p.Path = v.value
		}
	}
	return p
}

// texts returns the strings of s that may contain references.
func (s *serverSettings) texts() []string {
	all := slices.Concat([]string{s.command, s.cwd, s.url, s.envFile}, s.args)
	for _, n := range slices.Concat(s.env, s.headers) {
		all = append(all, n.value)
	}
	return slices.Concat(all, s.inherit, s.tools.Allow, s.tools.Deny)
}

// isDisabled reports whether s is written with enabled: false.
func (s *importedServer) isDisabled() bool { return s.disabledInClient || s.fromProject }

// disabledReason returns the file of s and the reason why s is disabled.
func (s *importedServer) disabledReason() string {
	if s.fromProject {
		return s.file + ": disabled here (enabled: false), because it is in a file of the project"
	}
	return s.file + ": disabled in the client, and therefore here (enabled: false)"
}

// droppedKeysText describes the keys of s that are not imported and their replacement.
func (s *importedServer) droppedKeysText() string {
	text := "without its " + dialect.IgnoredKeys(s.droppedKeys)
	if slices.Contains(s.droppedKeys, "timeout") {
		text += "; set call_timeout instead of timeout"
	}
	return text
}
