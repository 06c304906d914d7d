// Package clientimport turns the servers that other MCP clients have configured into a
// configuration file of the gateway.
//
// It reads files only: it starts nothing and looks up no name. Secrets are replaced by references
// to variables, and neither the YAML nor a note contains them.
//
//	Read ─ files       finds the files of known clients
//	     ├ recognize   tells which client a file belongs to
//	     ├ formats     reads its entries
//	     ├ references  translates references to variables
//	     ├ duplicates  leaves out servers that several files have
//	     ├ secrets     replaces secrets by references
//	     └ yaml        writes the backends
package clientimport

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"mcpgateway/internal/config/internal/dialect"

	"mcpgateway/internal/config/internal/expand"

	"mcpgateway/internal/config/internal/node"

	"mcpgateway/internal/config"
)

// Options says whose files Read looks at.
type Options struct {
	Home string                           // the user's home; "" = what Env says
	OS   string                           // whose paths and commands work here, as GOOS; "" = this machine's
	Cwd  string                           // the project; "" = the working directory
	Env  func(name string) (string, bool) // nil = os.LookupEnv
	// IsGateway tells whether it is a gateway that answers at a URL, which is on this
	// machine; nil = it is not asked.
	IsGateway func(url string) bool
}

// Result is what other clients have configured, in our terms.
type Result struct {
	Notes []string // for stderr, one line each, free of secrets

	servers             []importedServer
	readFiles           []string // files that were read, shown; none = no client's file is at its usual place
	filesWithoutServers []string // files at usual places that have no servers, shown
}

// Empty tells whether there was nothing to import.
func (im *Result) Empty() bool { return len(im.servers) == 0 }

// Count tells how many backends there are, and how many of them are switched off.
func (im *Result) Count() (all, off int) {
	for _, s := range im.servers {
		if s.isDisabled() {
			off++
		}
	}
	return len(im.servers), off
}

// Hint is what to try if there was nothing to import.
func (im *Result) Hint() string {
	if len(im.readFiles) > 0 {
		return "looked at " + strings.Join(im.readFiles, ", ") + "; name the file that has them: gateway import FILE"
	}
	if len(im.filesWithoutServers) > 0 {
		return "no servers in " + strings.Join(im.filesWithoutServers, ", ") + "; name another file: gateway import FILE"
	}
	return "looked where " + strings.Join(ClientTitles(), ", ") +
		" keep theirs, here and in your home directory; name another file: gateway import FILE"
}

// ClientTitles returns the names of the clients whose files Read reads.
func ClientTitles() []string {
	var titles []string
	for _, c := range dialect.Clients {
		if c.IsNamed() && c.Key != "" && !slices.Contains(titles, c.Title) {
			titles = append(titles, c.Title)
		}
	}
	return titles
}

// Read reads the files of other MCP clients; none given, those it finds at
// their usual places, the project's before the user's. What such an entry
// holds of secrets stays behind: a ${VAR} takes its place, and a note says so.
// What its client has switched off stays so, and what a project brings is
// switched off unless its file was given: somebody else may have written it.
//
// The result is never nil. An error names the files that could not be read;
// what the others hold is in the result all the same.
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
	names      map[string]bool   // taken
	variables  map[string]string // variables the YAML refers to, and what they stand for; unset = not known
	origins    []origin          // of all that was taken in, in order
	foundFiles map[string]bool   // files that nobody named; true = they come with the project
}

func newImporter(opts Options) *importer {
	return &importer{opts: opts.withDefaults(), names: map[string]bool{}, variables: map[string]string{}}
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
		return config.FileError(im.displayPath(path), err)
	}
	return im.readData(path, data)
}

// readData adds the servers of one file.
func (im *importer) readData(path string, data []byte) *config.Error {
	im.result.readFiles = append(im.result.readFiles, im.displayPath(path))
	root, bad := parseForeign(im.displayPath(path), data)
	if bad != nil {
		return bad
	}
	if root == nil {
		return nil
	}
	client := recognize(path, root)
	if client == nil {
		problem, hint := unknownFormat(path, root)
		return &config.Error{File: im.displayPath(path), Problem: problem, Hint: hint}
	}
	f := &foreignFile{
		client: client, path: path, display: im.displayPath(path), opts: im.opts, fromProject: im.foundFiles[path],
		projectDir: dialect.ProjectDir(path, im.opts.Home, dialect.AnyClient), workspace: dialect.Workspace(path, im.opts.Cwd, im.opts.Home),
	}
	for _, s := range f.readServers(root) {
		im.addServer(s)
	}
	im.result.Notes = append(im.result.Notes, f.notes...)
	return nil
}

// addServer takes one server in, or notes why not.
func (im *importer) addServer(s importedServer) {
	if s.unsupported == "" {
		s.unsupported = s.whyUnsupported()
	}
	if s.unsupported == "" && im.isGateway(s) {
		s.unsupported = isThisGateway
	}
	if s.unsupported != "" {
		im.note("%s: server %q is not imported: %s", s.file, s.origName, s.unsupported)
		return
	}
	twin, other := im.findDuplicates(s)
	if twin != nil {
		im.note("%s: server %q is not imported: it is the same as %s of %s%s", s.file, s.origName, twin.name, twin.file, s.droppedDifferences(twin))
		twin.fromProject = twin.fromProject && s.isDisabled() // or the user has it, too
		im.recordOrigin(s)
		return
	}
	s.name = "tried"
	if err := s.tryLoad(); err != nil {
		im.note("%s: server %q is not imported: %s", s.file, s.origName, err)
		return
	}
	im.assignName(&s, other)
	if len(s.droppedKeys) > 0 {
		im.note("%s: %q is imported %s", s.file, s.origName, s.droppedKeysText())
	}
	im.recordOrigin(s)
	im.result.servers = append(im.result.servers, s)
}

// tryLoad tells what Load will not accept about s. What an URL comes to once
// its variables are set nobody can tell yet.
func (s *importedServer) tryLoad() error {
	set := func(name string) (string, bool) {
		if strings.HasPrefix(name, "GATEWAY_") {
			return "", true // or it would override what is not tried here
		}
		return "1", true
	}
	_, err := config.LoadData("imported", renderYAML([]importedServer{*s}), config.Options{Env: set, Strict: true})
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

// dependsOnVariables tells whether a variable may yet make something else of a URL. Of its scheme none can, where that is
// written out.
func dependsOnVariables(url string) bool {
	scheme, _, written := strings.Cut(url, "://")
	if written && expand.Variables(scheme) == nil && scheme != "http" && scheme != "https" {
		return false
	}
	return expand.Variables(url) != nil
}

// displayPath is path as people write it.
func (im *importer) displayPath(path string) string {
	if im.opts.Home != "" {
		if rest, err := filepath.Rel(im.opts.Home, path); err == nil && filepath.IsLocal(rest) && rest != "." {
			return "~/" + filepath.ToSlash(rest)
		}
	}
	return path
}
