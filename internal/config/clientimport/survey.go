package clientimport

import (
	"strings"

	"mcpgateway/internal/config"
	"mcpgateway/internal/config/internal/expand"
)

// A SurveyedServer is a server that a client has configured.
type SurveyedServer struct {
	Client, File string // title of the client, and path of its file for display
	Name         string // of the server
	Command      string // with variables expanded; "" = it has a URL
	Args         []string
	URL          string
	IsGateway    bool
	// Program is the path of the executable of a gateway; "" = it was not found, or the entry has a
	// URL.
	Program     string
	Disabled    bool // in the client
	FromProject bool // the file belongs to the project, so another person may have written it
}

// Survey returns the servers in the usual files of all known clients, as Read finds them. Values of
// variables are expanded, so the caller must mask secrets. It returns the error of each file that
// cannot be read or parsed beside the servers of the others.
func Survey(opts Options) ([]SurveyedServer, config.Errors) {
	im := newImporter(opts)
	var all []SurveyedServer
	var errs config.Errors
	for _, path := range im.usualFiles() {
		data, err := config.ReadFile(path)
		if err != nil {
			errs = append(errs, config.FileError(im.opts.displayPath(path), err))
			continue
		}
		f, root, bad := im.open(path, data)
		if bad != nil {
			errs = append(errs, bad)
			continue
		}
		if f == nil {
			continue
		}
		for _, s := range f.readServers(root) {
			all = append(all, surveyed(im, f, s))
		}
	}
	return all, errs
}

// surveyed describes a server.
func surveyed(im *importer, f *foreignFile, s importedServer) SurveyedServer {
	c := SurveyedServer{
		Client: f.client.Title, File: s.file, Name: s.origName,
		Command: im.opts.expanded(s.command), URL: im.opts.expanded(s.url),
		Disabled: s.disabledInClient, FromProject: s.fromProject,
	}
	for _, arg := range s.args {
		c.Args = append(c.Args, im.opts.expanded(arg))
	}
	c.IsGateway = s.whyUnsupported() == reasonGateway || im.isGateway(s)
	if c.IsGateway && c.Command != "" {
		c.Program, _ = s.program().Find()
	}
	return c
}

// expanded replaces the variables in a text; one that is not set stays.
func (o Options) expanded(text string) string {
	var out strings.Builder
	end := 0
	for _, r := range expand.References(text) {
		if value, set := o.Env(r.Name); r.Kind == "" && set {
			out.WriteString(text[end:r.From] + value)
			end = r.To
		}
	}
	return strings.ReplaceAll(out.String()+text[end:], "$$", "$")
}
