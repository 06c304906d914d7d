// Package clientimport converts the servers that other MCP clients have configured into a
// configuration file of the gateway.
//
// It starts no process, and opens no connection except through Options.IsGateway. References
// replace secrets, so that neither the YAML nor a note contains a secret. The caller can store the
// secrets, see Options.Secrets.
//
//	Read ─ files       finds the files of known clients
//	     ├ recognize   finds the client that a file belongs to
//	     ├ formats     reads its entries
//	     ├ references  translates references to variables
//	     ├ duplicates  removes servers that are in several files
//	     ├ secrets     replaces secrets by references
//	     └ yaml        writes the backends
package clientimport

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/config"
	"mcpgateway/internal/config/internal/dialect"
	"mcpgateway/internal/config/internal/expand"
	"mcpgateway/internal/config/internal/node"
	"mcpgateway/internal/weburl"
)

// Options describes the environment in which Read searches for files.
type Options struct {
	Home string                           // home directory of the user; "" = from Env
	OS   string                           // GOOS of paths and commands; "" = this machine's
	Cwd  string                           // folder of the project; "" = the working directory
	Env  func(name string) (string, bool) // nil = os.LookupEnv
	// IsGateway reports whether a gateway responds at a URL of this machine; nil = not checked.
	IsGateway func(url string) bool
	// Secrets is where the configuration reads the secrets, which the caller stores; nil = the user
	// sets variables to them.
	Secrets *SecretSource
}

// A SecretSource describes where the configuration reads the secrets of the imported servers.
type SecretSource struct {
	Title string // for notes: "the keyring"
	// Keyring is true if the YAML refers to a secret as ${keyring:NAME}, false for ${NAME}.
	Keyring bool
	EnvFile string // value of env_file in the YAML; "" = none
	// Value returns the value that a name already has; ok is false if the name is free. A name with
	// another value is not used.
	Value func(name string) (value string, ok bool)
}

// A StoredSecret is a secret to store. The name is valid as the name of a variable.
type StoredSecret struct{ Name, Value string }

// Result contains the servers of other clients as backends.
type Result struct {
	Notes []string // texts for stderr, one line each, without secrets

	servers             []importedServer
	source              *SecretSource
	secrets             []StoredSecret
	readFiles           []string // paths for display; empty = no file of a client was found
	filesWithoutServers []string // usual files without servers, for display
}

// Empty reports whether there are no servers.
func (r *Result) Empty() bool { return len(r.servers) == 0 }

// Count returns the number of all backends, and the number of disabled backends.
func (r *Result) Count() (all, off int) {
	for _, s := range r.servers {
		if s.isDisabled() {
			off++
		}
	}
	return len(r.servers), off
}

// Secrets returns the secrets that the YAML refers to and that the caller must store; nil without
// Options.Secrets.
func (r *Result) Secrets() []StoredSecret { return r.secrets }

// Hint suggests what to do if there are no servers.
func (r *Result) Hint() string {
	if len(r.readFiles) > 0 {
		return "looked at " + strings.Join(r.readFiles, ", ") +
			"; name the file that has them: gateway import FILE"
	}
	if len(r.filesWithoutServers) > 0 {
		return "no servers in " + strings.Join(r.filesWithoutServers, ", ") +
			"; name another file: gateway import FILE"
	}
	return "looked for the files of " + strings.Join(ClientTitles(), ", ") +
		", here and in your home directory; name another file: gateway import FILE"
}

// ClientTitles returns the names of the clients whose files Read supports.
func ClientTitles() []string {
	var titles []string
	for _, c := range dialect.Clients {
		if c.IsNamed() && c.Key != "" && !slices.Contains(titles, c.Title) {
			titles = append(titles, c.Title)
		}
	}
	return titles
}

// Read imports the servers in files of other MCP clients. If files is empty, Read uses the usual
// files of all known clients, first the files of the project, then the files of the user. A
// reference ${VAR} replaces each secret, and a note contains the name of the variable. A server
// that is disabled in its client stays disabled. A server in a file of the project is disabled,
// because another person may have written the file, unless the user named the file or also has the
// server, enabled, in a file of the user.
//
// The result is never nil. The error contains one error for each file that could not be read or
// parsed, or whose format is unknown. The result contains the servers of all other files.
func Read(files []string, opts Options) (*Result, error) {
	im := newImporter(opts)
	if len(files) == 0 {
		files = im.usualFiles()
	}
	var errs config.Errors
	for _, file := range files {
		if err := im.readFile(file); err != nil {
			errs = append(errs, err)
		}
	}
	im.finish()
	if len(errs) > 0 {
		return &im.result, errs
	}
	return &im.result, nil
}

func (o Options) withDefaults() Options {
	if o.Env == nil {
		o.Env = os.LookupEnv
	}
	if o.Home == "" {
		o.Home = expand.HomeDir(o.Env)
	}
	if o.Cwd == "" {
		o.Cwd, _ = os.Getwd()
	}
	if o.OS == "" {
		o.OS = runtime.GOOS
	}
	return o
}

type importer struct {
	opts       Options
	result     Result
	names      map[string]bool // names that are taken
	secrets    secretReplacer
	sources    sourceFiles     // files of the imported servers that are enabled
	foundFiles map[string]bool // files that the user did not name; true = of the project
}

func newImporter(opts Options) *importer {
	im := &importer{opts: opts.withDefaults(), names: map[string]bool{}}
	im.secrets = secretReplacer{note: im.note, variables: map[string]string{}, source: opts.Secrets}
	im.result.source = opts.Secrets
	return im
}

func (im *importer) note(format string, args ...any) {
	im.result.Notes = append(im.result.Notes, node.OneLine(fmt.Sprintf(format, args...)))
}

func (im *importer) readFile(path string) *config.Error {
	var data []byte
	var err error
	if _, found := im.foundFiles[path]; found {
		data, err = config.ReadFile(path)
	} else {
		data, err = config.ReadNamed(path)
	}
	if err != nil {
		return config.FileError(im.opts.displayPath(path), err)
	}
	return im.readData(path, data)
}

// readData imports the servers of one file.
func (im *importer) readData(path string, data []byte) *config.Error {
	im.result.readFiles = append(im.result.readFiles, im.opts.displayPath(path))
	f, root, bad := im.open(path, data)
	if f == nil {
		return bad
	}
	for _, s := range f.readServers(root) {
		im.addServer(s)
	}
	im.result.Notes = append(im.result.Notes, f.notes...)
	return nil
}

// open parses a file. The result is nil if the file is empty or there is an error.
func (im *importer) open(path string, data []byte) (*foreignFile, *yaml.Node, *config.Error) {
	root, bad := parseForeign(im.opts.displayPath(path), data)
	if bad != nil || root == nil {
		return nil, nil, bad
	}
	client := recognize(path, root)
	if client == nil {
		problem, hint := unknownFormat(path, root)
		return nil, nil,
			&config.Error{File: im.opts.displayPath(path), Problem: problem, Hint: hint}
	}
	return &foreignFile{
		client: client, path: path, display: im.opts.displayPath(path), opts: im.opts,
		fromProject: im.foundFiles[path],
		projectDir:  dialect.ProjectDir(path, im.opts.Home, dialect.AnyClient),
		workspace:   dialect.Workspace(path, im.opts.Cwd, im.opts.Home),
	}, root, nil
}

// addServer imports one server, or adds a note with the reason for not importing it.
func (im *importer) addServer(s importedServer) {
	if s.unsupported == "" {
		s.unsupported = s.whyUnsupported()
	}
	if s.unsupported == "" && im.isGateway(s) {
		s.unsupported = reasonGateway
	}
	if s.unsupported != "" {
		im.note("%s: server %q is not imported: %s", s.file, s.origName, s.unsupported)
		return
	}
	identical, sameName := im.findDuplicates(s)
	if identical != nil {
		im.note("%s: server %q is not imported: it is the same as %s of %s%s", s.file, s.origName,
			identical.name, identical.file, s.droppedDifferences(identical))
		// A server that is also in a file of the user is not only a server of the project.
		identical.fromProject = identical.fromProject && s.isDisabled()
		im.sources.add(s, im.opts)
		return
	}
	s.name = "tried"
	if err := s.tryLoad(); err != nil {
		im.note("%s: server %q is not imported: %s", s.file, s.origName, err)
		return
	}
	im.assignName(&s, sameName)
	if len(s.droppedKeys) > 0 {
		im.note("%s: %q is imported %s", s.file, s.origName, s.droppedKeysText())
	}
	im.sources.add(s, im.opts)
	im.result.servers = append(im.result.servers, s)
}

// reasonGateway is the reason why a gateway is not imported.
const reasonGateway = "it is this gateway itself"

// isGateway reports whether s is a gateway on this machine, by its name or its response.
func (im *importer) isGateway(s importedServer) bool {
	u, err := url.Parse(s.url)
	switch {
	case err != nil || !weburl.IsLoopback(u.Hostname()):
		return false
	case dialect.IsGatewayName(s.origName):
		return true
	}
	return (u.Path == "/mcp" || u.Path == "/sse") && im.opts.IsGateway != nil &&
		im.opts.IsGateway(s.url)
}

// tryLoad returns the first error of Load for s, without file and line. It ignores errors about a
// URL that depends on variables.
func (s *importedServer) tryLoad() error {
	set := func(name string) (string, bool) {
		if strings.HasPrefix(name, "GATEWAY_") {
			return "", true // not empty, the variable would set a key
		}
		return "1", true
	}
	_, err := config.LoadData("imported", renderYAML([]importedServer{*s}, nil),
		config.Options{Env: set, Strict: true})
	var errs config.Errors
	if !errors.As(err, &errs) {
		return err
	}
	errs = slices.DeleteFunc(errs, func(e *config.Error) bool {
		return e.Key == "url" && dependsOnVariables(s.url)
	})
	if len(errs) == 0 {
		return nil
	}
	return &config.Error{Key: errs[0].Key, Problem: errs[0].Problem}
}

// dependsOnVariables reports whether the validity of a URL depends on variables. A URL with a
// literal scheme that is not supported is invalid whatever its variables are.
func dependsOnVariables(address string) bool {
	scheme, _, written := strings.Cut(address, "://")
	if written && expand.Variables(scheme) == nil && scheme != "http" && scheme != "https" {
		return false
	}
	return expand.Variables(address) != nil
}

// displayPath returns path with ~ for the home directory.
func (o Options) displayPath(path string) string {
	if o.Home != "" {
		if rest, err := filepath.Rel(o.Home, path); err == nil && filepath.IsLocal(rest) &&
			rest != "." {
			return "~/" + filepath.ToSlash(rest)
		}
	}
	return path
}
