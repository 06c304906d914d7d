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

	servers []server
	looked  []string // files that were read, shown; none = no client's file is at its usual place
	empty   []string // files at usual places that have no servers, shown
}

// Empty tells whether there was nothing to import.
func (im *Result) Empty() bool { return len(im.servers) == 0 }

// Count tells how many backends there are, and how many of them are switched off.
func (im *Result) Count() (all, off int) {
	for _, s := range im.servers {
		if s.off() {
			off++
		}
	}
	return len(im.servers), off
}

// Hint is what to try if there was nothing to import.
func (im *Result) Hint() string {
	if len(im.looked) > 0 {
		return "looked at " + strings.Join(im.looked, ", ") + "; name the file that has them: gateway import FILE"
	}
	if len(im.empty) > 0 {
		return "no servers in " + strings.Join(im.empty, ", ") + "; name another file: gateway import FILE"
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
		if err := im.read(file); err != nil {
			errs = append(errs, err)
		}
	}
	im.finish()
	if len(errs) > 0 {
		return &im.out, errs
	}
	return &im.out, nil
}

func (o Options) filled() Options {
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
	opts  Options
	out   Result
	names map[string]bool   // taken
	vars  map[string]string // variables the YAML refers to, and what they stand for; unset = not known
	from  []origin          // of all that was taken in, in order
	found map[string]bool   // files that nobody named; true = they come with the project
}

func newImporter(opts Options) *importer {
	return &importer{opts: opts.filled(), names: map[string]bool{}, vars: map[string]string{}}
}

func (im *importer) note(format string, args ...any) {
	im.out.Notes = append(im.out.Notes, node.OneLine(fmt.Sprintf(format, args...)))
}

func (im *importer) read(path string) *config.Error {
	var data []byte
	var err error
	if _, found := im.found[path]; found {
		data, err = config.ReadFile(path)
	} else {
		data, err = config.ReadNamed(path)
	}
	if err != nil {
		return config.FileError(im.shown(path), err)
	}
	return im.file(path, data)
}

// file adds the servers of one file.
func (im *importer) file(path string, data []byte) *config.Error {
	im.out.looked = append(im.out.looked, im.shown(path))
	root, bad := parseForeign(im.shown(path), data)
	if bad != nil {
		return bad
	}
	if root == nil {
		return nil
	}
	client := recognise(path, root)
	if client == nil {
		problem, hint := unknownFormat(path, root)
		return &config.Error{File: im.shown(path), Problem: problem, Hint: hint}
	}
	f := &foreignFile{
		client: client, path: path, shown: im.shown(path), opts: im.opts, project: im.found[path],
		folder: dialect.ProjectDir(path, im.opts.Home, dialect.AnyClient), workspace: dialect.Workspace(path, im.opts.Cwd, im.opts.Home),
	}
	for _, s := range f.servers(root) {
		im.add(s)
	}
	im.out.Notes = append(im.out.Notes, f.notes...)
	return nil
}

// add takes one server in, or notes why not.
func (im *importer) add(s server) {
	if s.unfit == "" {
		s.unfit = s.whyNot()
	}
	if s.unfit == "" && im.isOurs(s) {
		s.unfit = itself
	}
	if s.unfit != "" {
		im.note("%s: server %q is not imported: %s", s.file, s.theirName, s.unfit)
		return
	}
	twin, other := im.kin(s)
	if twin != nil {
		im.note("%s: server %q is not imported: it is the same as %s of %s%s", s.file, s.theirName, twin.name, twin.file, s.lost(twin))
		twin.project = twin.project && s.off() // or the user has it, too
		im.origin(s)
		return
	}
	s.name = "tried"
	if err := s.tryLoad(); err != nil {
		im.note("%s: server %q is not imported: %s", s.file, s.theirName, err)
		return
	}
	im.nameIt(&s, other)
	if len(s.left) > 0 {
		im.note("%s: %q is imported %s", s.file, s.theirName, s.without())
	}
	im.origin(s)
	im.out.servers = append(im.out.servers, s)
}

// tryLoad tells what Load will not accept about s. What an URL comes to once
// its variables are set nobody can tell yet.
func (s *server) tryLoad() error {
	set := func(name string) (string, bool) {
		if strings.HasPrefix(name, "GATEWAY_") {
			return "", true // or it would override what is not tried here
		}
		return "1", true
	}
	_, err := config.LoadData("imported", document([]server{*s}), config.Options{Env: set, Strict: true})
	var errs config.Errors
	if !errors.As(err, &errs) {
		return err
	}
	errs = slices.DeleteFunc(errs, func(e *config.Error) bool {
		return e.Key == "url" && isOpen(s.url)
	})
	if len(errs) == 0 {
		return nil
	}
	return &config.Error{Key: errs[0].Key, Problem: errs[0].Problem}
}

// isOpen tells whether a variable may yet make something else of a URL. Of its scheme none can, where that is
// written out.
func isOpen(url string) bool {
	scheme, _, written := strings.Cut(url, "://")
	if written && expand.Variables(scheme) == nil && scheme != "http" && scheme != "https" {
		return false
	}
	return expand.Variables(url) != nil
}

// shown is path as people write it.
func (im *importer) shown(path string) string {
	if im.opts.Home != "" {
		if rest, err := filepath.Rel(im.opts.Home, path); err == nil && filepath.IsLocal(rest) && rest != "." {
			return "~/" + filepath.ToSlash(rest)
		}
	}
	return path
}
