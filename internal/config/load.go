package config

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"mcpgateway/internal/config/internal/dialect"
	"mcpgateway/internal/config/internal/expand"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
)

// Options says where to look. The zero value looks where the command line
// does without flags.
type Options struct {
	// Path is the file to load; "" = $GATEWAY_CONFIG, ./gateway.yaml,
	// $XDG_CONFIG_HOME/mcp-gateway/config.yaml, the first there is.
	Path string
	// Flags are what the command line said, by key: "log.level" → "debug".
	// An error names the flag: --log-level.
	Flags map[string]string
	// Env looks a variable up; nil = os.LookupEnv.
	Env func(name string) (string, bool)
	// VariableNames are the variables that are set, for warnings about misspelt ones; nil = there are none.
	VariableNames []string
	// Dir is where ./gateway.yaml is looked for, and what other clients' files mean
	// by their workspace; "" = the working directory.
	Dir string
	// Approve is called with gateway.yaml of Dir, if nobody has named it, and the bytes that are
	// parsed afterwards. Its error is that of Load. nil = every file is approved.
	Approve func(path string, data []byte) error
	// RequiredKeys are the keys outside of backends that the caller reads, with all below them: a variable
	// that is not set leaves the value of another key out. nil = all keys are needed.
	RequiredKeys []string
	// Strict makes problems with the variables of a backend errors of the file.
	Strict bool
	// Local says that Path was found in Dir by an earlier Load, so that Approve is called.
	Local bool
}

// Loaded is what Load found.
type Loaded struct {
	Config   *Config
	Source   string   // path of the file; "" = none, and the only backend is the demo
	Local    bool     `json:",omitzero"` // Source is gateway.yaml of Options.Dir, and nobody has named it
	Warnings []string // for the log, one line each, free of secrets

	blank     bool
	locations map[string]location
	digest    [sha256.Size]byte // of the file
}

// ErrorAt returns an error about the value of a key, such as backends[0].tls.ca, that has yet to say what
// is wrong.
func (l *Loaded) ErrorAt(key string) *Error {
	e := (&checker{file: l.Source, locations: l.locations}).errorAt(key)
	if l.Config != nil {
		nameBackends(Errors{e}, l.Config, l.locations)
	}
	return e
}

// Blank reports whether nothing is written in the file, as in one that is about to be
// written. It is valid nevertheless.
func (l *Loaded) Blank() bool { return l.blank }

// Unchanged reports whether Load with these options, which name the file, would read the text that l was made of, and
// approve it. Other files that the configuration names are not looked at.
func (l *Loaded) Unchanged(opts Options) bool {
	if opts.Env == nil {
		opts.Env = os.LookupEnv
	}
	src, err := findSource(opts)
	return err == nil && src.path == l.Source && src.digest() == l.digest
}

// Load finds the configuration, reads it and checks it. A flag wins over the
// environment (GATEWAY_LOG_LEVEL for log.level), that over the file, that over
// Default. What is wrong with the configuration comes as Errors, all of it; a
// file that cannot be read comes as an *Error.
func Load(opts Options) (*Loaded, error) {
	if opts.Env == nil {
		opts.Env = os.LookupEnv
	}
	src, err := findSource(opts)
	if err != nil {
		return nil, err
	}
	return load(src, opts)
}

// Validate returns what Load would say is wrong with a file of this content. A variable that is not
// set is no mistake of the file.
func Validate(path string, data []byte) error {
	_, err := load(source{path: path, data: data}, Options{Env: os.LookupEnv, RequiredKeys: []string{}})
	return err
}

// LoadData is Load for a file of this content, which is not read again.
func LoadData(path string, data []byte, opts Options) (*Loaded, error) {
	if opts.Env == nil {
		opts.Env = os.LookupEnv
	}
	return load(source{path: path, data: data}, opts)
}

func load(src source, opts Options) (*Loaded, error) {
	used := make(map[string]bool)
	r := newReader(src.path, func(name string) (string, bool) {
		used[name] = true
		return opts.Env(name)
	})
	path := src.path
	if absolute, err := filepath.Abs(path); err == nil { // here, not for each of the names that it is compared with
		path = absolute
	}
	r.workspace = dialect.Workspace(path, opts.Dir, expand.HomeDir(opts.Env))
	r.strict, r.requiredKeys = opts.Strict, opts.RequiredKeys
	r.callTimeoutUnit = dialect.CallTimeoutUnit(path)
	over := &overrides{places: r.locations}
	out := settings{Config: Default(), Defaults: builtinDefaults()}

	k := koanf.New(".")
	if err := k.Load(rawbytes.Provider(src.data), r); err != nil {
		return nil, err
	}
	k.Load(confmap.Provider(over.fromEnv(opts.Env), "."), nil)     // fails only without a provider
	k.Load(confmap.Provider(over.fromFlags(opts.Flags), "."), nil) // likewise
	if err := decode(k, &out); err != nil {
		return nil, Errors{{File: src.path, Problem: err.Error()}} // the reader has missed something
	}

	cfg := &out.Config
	if src.path == "" {
		cfg.Backends = []Backend{{Name: "demo", Embedded: "demo"}}
	}
	applyDefaults(cfg, out.Defaults, r.locations)
	c := &checker{
		file: src.path, locations: r.locations, reported: r.reported, strict: r.strict, fromVariables: r.fromVariables, misconfigured: r.misconfigured,
	}
	c.resolvePaths(cfg, opts.Env)
	c.check(cfg)
	for i := range cfg.Backends {
		if b := &cfg.Backends[i]; b.Enabled {
			wrong := c.misconfigured[fmt.Sprintf("backends[%d]", i)]
			b.Misconfigured, b.PermissionUnknown = strings.Join(wrong.problems, "; "), wrong.affectsPermissions
		}
	}
	cfg.Expanded, cfg.Auth.TokenVariable = slices.Concat(r.secretValues, inheritedSecrets(cfg, opts.Env)), r.tokenVariable

	if all := slices.Concat(r.errs, over.errs, c.errs); len(all) > 0 {
		nameBackends(all, cfg, r.locations)
		return nil, sortByLine(all)
	}
	for _, b := range cfg.Backends {
		for _, name := range b.InheritEnv {
			used[name] = true
		}
	}
	written := c.literalSecrets(cfg, r.literalWarnings)
	nameBackends(r.literalWarnings, cfg, r.locations)
	return &Loaded{
		Config: cfg, Source: src.path, Local: src.inWorkingDir, locations: r.locations, digest: src.digest(),
		Warnings: slices.Concat(src.warnings, r.warnings, c.warnings(cfg), written, r.literalWarnings.lines(), misspeltVariables(opts.VariableNames, used)), blank: r.blank && src.path != "",
	}, nil
}

// decode is strict: no key without a field, no value of another type.
func decode(k *koanf.Koanf, out *settings) error {
	return k.UnmarshalWithConf("", out, koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
		ErrorUnused: true,
		MatchName:   func(key, field string) bool { return key == field },
	}})
}

// instructionsValue returns what a value of the key instructions stands for; see [Config.Instructions].
func instructionsValue(value string, given bool) string {
	switch {
	case value == "auto":
		return ""
	case given && strings.TrimSpace(value) == "":
		return NoInstructions
	}
	return value
}

// applyDefaults gives each backend what it does not say itself. A page that nobody
// spoke of follows messages that are shorter, and an outbox those that are longer.
func applyDefaults(cfg *Config, d defaults, given map[string]location) {
	if _, ok := given["limits.page"]; !ok {
		cfg.Limits.Page = min(cfg.Limits.Page, cfg.Limits.Message)
	}
	if _, ok := given["limits.outbox"]; !ok {
		cfg.Limits.Outbox = max(cfg.Limits.Outbox, cfg.Limits.Message)
	}
	_, written := given["instructions"]
	cfg.Instructions = instructionsValue(cfg.Instructions, written)
	for i := range cfg.Backends {
		b, at := &cfg.Backends[i], fmt.Sprintf("backends[%d].", i)
		_, written := given[at+"instructions"]
		b.Instructions = instructionsValue(b.Instructions, written)
		if _, ok := given[at+"enabled"]; !ok {
			b.Enabled = true
		}
		for f, value := range reflect.ValueOf(d).Fields() {
			if _, ok := given[at+f.Tag.Get("koanf")]; !ok {
				reflect.ValueOf(b).Elem().FieldByName(f.Name).Set(value)
			}
		}
		if b.Command == "" && b.URL+b.Embedded != "" { // what is no program is not stopped
			b.IdleStop = 0
		}
		if _, ok := given[at+"transport"]; !ok {
			b.Transport = "auto"
		}
		if _, ok := given[at+"sharing"]; !ok {
			b.Sharing = "auto"
		}
		if _, ok := given[at+"era"]; !ok {
			b.Generation = "auto"
		}
	}
}

// nameBackends gives errors the names of backends in the place of their numbers, as far
// as they are names and stand in the file.
func nameBackends(all Errors, cfg *Config, places map[string]location) {
	for i, b := range cfg.Backends {
		at := fmt.Sprintf("backends[%d]", i)
		if !backendName().MatchString(b.Name) || places[at+".name"].text != b.Name {
			continue
		}
		for _, e := range all {
			e.setBackend(b.Name, at)
		}
	}
}

// sortByLine sorts by line; what is in no file comes last.
func sortByLine(all Errors) Errors {
	line := func(e *Error) int {
		if e.Line == 0 && e.File == "" {
			return math.MaxInt
		}
		return e.Line
	}
	slices.SortStableFunc(all, func(a, b *Error) int { return cmp.Compare(line(a), line(b)) })
	return all
}
