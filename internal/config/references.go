package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/config/internal/expand"
)

// A UsedReference is a reference of a configuration file to a value outside of it.
type UsedReference struct {
	Variable string // name; "" = another source
	// Shown is the reference for messages, without the arguments of a command.
	Shown string
	File  string // path as written, of a file; "" = another source
	// Required is true if the variable must be set, because a reference to it has no default.
	Required bool
	Backend  string // name of the backend that uses it; "" = the gateway
}

// References returns the references in a file, each once per backend, except those of disabled
// backends. It reads none of them. It returns an error only if the file cannot be parsed.
func References(path string, data []byte) ([]UsedReference, error) {
	found := referenceReader{new([]locatedReference)}
	r := &fileParser{fileReport: newFileReport(path), scalars: found, env: expand.AllSet}
	k := koanf.New(".")
	if err := k.Load(rawbytes.Provider(data), r); err != nil {
		return nil, err
	}
	out := settings{Config: Default(), Defaults: builtinDefaults()}
	if err := decode(k, &out); err != nil {
		return nil, err
	}
	applyDefaults(&out.Config, out.Defaults, r.locations)
	var all []UsedReference
	for _, f := range *found.all {
		for i, b := range out.Config.Backends {
			if strings.HasPrefix(f.path, fmt.Sprintf("backends[%d].", i)) {
				f.Backend = b.Name
				if !b.Enabled {
					f.path = ""
				}
			}
		}
		if f.path != "" && !slices.Contains(all, f.UsedReference) {
			all = append(all, f.UsedReference)
		}
	}
	return all, nil
}

// A locatedReference is a reference and the path of the value that has it.
type locatedReference struct {
	UsedReference
	path string
}

// A referenceReader is the scalarReader that collects references.
type referenceReader struct{ all *[]locatedReference }

// read implements scalarReader.
func (r referenceReader) read(
	n *yaml.Node, t reflect.Type, at location, b currentBackend, x *expand.Expander,
) (any, bool) {
	required := expand.Required(n.Value)
	for _, name := range x.Variables(n.Value) {
		*r.all = append(*r.all, locatedReference{UsedReference{Variable: name,
			Shown: "${" + name + "}", Required: slices.Contains(required, name)}, at.path})
	}
	if !b.inForeignEntry {
		for _, s := range expand.Sources(n.Value) {
			one := UsedReference{Shown: s.Shown()}
			if s.Kind == expand.File {
				one.File = s.Words[0]
			}
			*r.all = append(*r.all, locatedReference{one, at.path})
		}
	}
	v, err := convert(n.Value, t)
	return v, err == nil
}

// needs implements scalarReader.
func (referenceReader) needs(string, currentBackend) bool { return false }
