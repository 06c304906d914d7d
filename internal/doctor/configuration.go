package doctor

import (
	"os"
	"slices"
	"strings"

	"mcpgateway/internal/config"
)

// Places finds out why a configuration is used. named is the file that the user named, and by what
// says how: "--config" or "GATEWAY_CONFIG"; "" = the places were searched in order. used is the
// file that was loaded or has an error; "" = none.
func Places(named, by string, places []string, used string) []DoctorFinding {
	f := findingList{subject: Configuration}
	switch {
	case named != "":
		f.add(OK, "", "%s is used, because %s names it", named, by)
	case used == "":
		f.add(Note, "gateway import -o gateway.yaml",
			"no configuration: searched %s; the demo backend is served", strings.Join(places, ", "))
	default:
		f.add(OK, "", "%s is used: the first that exists of %s", used, strings.Join(places, ", "))
	}
	for _, place := range places {
		if _, err := os.Stat(place); err == nil && named+used != "" && place != used {
			f.add(Note, "gateway doctor -c "+place, "%s exists, and is not used", place)
		}
	}
	return f.all
}

// CheckReferences checks the references of a configuration. isSet reports whether
// a variable is set, file returns the path of a file, and readError reports whether the keyring or
// command has failed; known is false if it was not read.
func CheckReferences(
	all []config.UsedReference, isSet func(name, backend string) bool,
	file func(written string) string,
	readError func(shown string) (failed, known bool),
) []DoctorFinding {
	f := findingList{subject: Variables}
	var done []config.UsedReference
	for _, r := range all {
		whose := "the gateway"
		if r.Backend != "" {
			whose = "backend " + r.Backend
		}
		same := func(d config.UsedReference) bool {
			return d.Shown == r.Shown && d.Backend == r.Backend
		}
		if slices.ContainsFunc(done, same) {
			continue
		}
		done = append(done, r)
		failed, known := readError(r.Shown)
		switch {
		case r.Variable != "" && isSet(r.Variable, r.Backend):
			f.add(OK, "", "%s of %s is set", r.Shown, whose)
		case r.Variable != "" && r.Required:
			f.add(Problem, "set "+r.Variable+" where the gateway is started, or in env_file",
				"%s of %s is not set", r.Shown, whose)
		case r.Variable != "":
			f.add(OK, "", "%s of %s is not set, and has a default", r.Shown, whose)
		case r.File != "":
			path := file(r.File)
			if err := canRead(path); err != nil {
				f.add(Problem, "create "+path+", or make it readable", "%s of %s cannot be read: %s",
					r.Shown, whose, config.SystemMessage(err))
			} else {
				f.add(OK, "", "%s of %s can be read", r.Shown, whose)
			}
		case !known:
			f.add(Note, "", "%s of %s was not read", r.Shown, whose)
		case failed:
			next := "run the command in a shell"
			if name, is := strings.CutPrefix(r.Shown, "${keyring:"); is {
				next = "gateway secret set " + strings.TrimSuffix(name, "}")
			}
			f.add(Problem, next, "%s of %s cannot be read", r.Shown, whose)
		default:
			f.add(OK, "", "%s of %s can be read", r.Shown, whose)
		}
	}
	return f.all
}

// canRead returns the error of opening a file. It does not open a pipe, which could block.
func canRead(path string) error {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	open, err := os.Open(path)
	if err == nil {
		open.Close()
	}
	return err
}
