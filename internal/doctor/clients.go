package doctor

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"mcpgateway/internal/config"
	"mcpgateway/internal/config/clientimport"
)

// CheckClients checks the configurations of clients: whether the gateway is in them, whether its
// program exists and has this version, and whether a client has a server that is also a backend.
// versionOf returns the version of another gateway's program; "" = it is not known.
func CheckClients(
	ctx context.Context, all []clientimport.SurveyedServer, errs config.Errors,
	backends []config.Backend, version string,
	versionOf func(ctx context.Context, program string) string,
) []DoctorFinding {
	f := findingList{subject: Clients}
	for _, err := range errs {
		f.add(Warning, "correct the file", "%s", err.Error())
	}
	var files, withGateway []string
	for _, s := range all {
		if !slices.Contains(files, s.File) {
			files = append(files, s.File)
		}
		if !s.IsGateway || s.Disabled {
			continue
		}
		withGateway = append(withGateway, s.File)
		f.gateway(ctx, s, version, versionOf)
	}
	if len(files) == 0 && len(errs) == 0 {
		f.add(Note, "claude mcp add -s user gateway -- gateway",
			"no client with a configuration of servers was found")
	}
	for _, s := range all {
		if s.IsGateway || s.Disabled {
			continue
		}
		for _, b := range backends {
			if !b.Enabled || b.Misconfigured != "" || !isSameServer(s, b) {
				continue
			}
			if slices.Contains(withGateway, s.File) {
				f.add(Warning, "remove "+s.Name+" from "+s.File,
					"%s has server %s twice: directly, and behind the gateway as backend %s",
					s.Client, s.Name, b.Name)
			} else {
				f.add(Note, "replace "+s.Name+" in "+s.File+" by the gateway",
					"%s has server %s of its own, which is also backend %s", s.Client, s.Name, b.Name)
			}
		}
	}
	for _, file := range files {
		if !slices.Contains(withGateway, file) {
			f.add(Note, "add the gateway to "+file, "the gateway is not in %s", file)
		}
	}
	return f.all
}

// gateway checks the entry of a gateway.
func (f *findingList) gateway(
	ctx context.Context, s clientimport.SurveyedServer, version string,
	versionOf func(ctx context.Context, program string) string,
) {
	if s.Command == "" {
		f.add(OK, "", "%s has the gateway (%s)", s.Client, s.File)
		return
	}
	if s.Program == "" {
		f.add(Problem, "write the path of this program as command of "+s.Name+" in "+s.File,
			"%s starts %s, which does not exist (%s)", s.Client, s.Command, s.File)
		return
	}
	other := ""
	if !s.FromProject { // a program of the project is not started
		other = versionOf(ctx, s.Program)
	}
	if other != "" && other != version {
		f.add(Warning, "write the path of this program as command of "+s.Name+" in "+s.File,
			"%s starts %s, which has version %s instead of %s", s.Client, s.Program, other, version)
		return
	}
	f.add(OK, "", "%s has the gateway (%s)", s.Client, s.File)
}

// isSameServer reports whether a server of a client is the server of a backend.
func isSameServer(s clientimport.SurveyedServer, b config.Backend) bool {
	if b.URL != "" {
		return strings.TrimSuffix(s.URL, "/") == strings.TrimSuffix(b.URL, "/")
	}
	return b.Command != "" && s.Command != "" &&
		filepath.Base(s.Command) == filepath.Base(b.Command) &&
		slices.Equal(withoutYes(s.Args), withoutYes(b.Args))
}

// withoutYes returns arguments without the flag of npx that confirms an installation.
func withoutYes(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		return arg == "-y" || arg == "--yes"
	})
}
