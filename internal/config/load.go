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

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"

	"mcpgateway/internal/config/internal/dialect"
	"mcpgateway/internal/config/internal/expand"
)

// Options controls how a configuration is found and loaded. The zero value corresponds to a command
// line without flags.
type Options struct {
	// Path is the file to load; "" = the file $GATEWAY_CONFIG if that is set, otherwise the first
	// existing file among ./gateway.yaml and $XDG_CONFIG_HOME/mcp-gateway/config.yaml.
	Path string
	// Flags are values from the command line, by key: "log.level" → "debug". Errors name the
	// flag: --log-level.
	Flags map[string]string
	// Env looks up a variable; nil = os.LookupEnv.
	Env func(name string) (string, bool)
	// VariableNames are the names of all variables in the environment, for warnings about misspelt
	// names; nil = none.
	VariableNames []string
	// Dir is the directory of ./gateway.yaml, and the workspace folder in files of other clients;
	// "" = the working directory.
	Dir string
	// Approve is called for the gateway.yaml of Dir if the user did not name this file. data is the
	// content that is parsed afterwards. Load returns the error of Approve. nil = every file is
	// approved.
	Approve func(path string, data []byte) error
	// RequiredKeys are the keys outside of backends that the caller reads, each with all keys below
	// it. The value of any other key is skipped if a variable in it is not set. nil = all keys.
	RequiredKeys []string
	// Strict makes problems with the variables of a backend errors of the file. Without Sources,
	// each reference that is not a variable then has the value 1, so that the rest of a value is
	// checked.
	Strict bool
	// Local is true if an earlier Load found Path in Dir, so that Approve must be called.
	Local bool
	// Sources reads the values of ${keyring:…} and ${command:…}. nil = Load reads no source, not
	// even ${file:…} and env_file: each reference counts as a variable that is not set.
	Sources *Sources
}

// Loaded is the result of Load.
type Loaded struct {
	Config *Config
	Source string // path of the file; "" = no file, the only backend is the demo
	// Local is true if Source is the gateway.yaml of Options.Dir and the user did not name it.
	Local    bool     `json:",omitzero"`
	Warnings []string // texts for the log, one line each, without secrets

	blank     bool
	locations map[string]location
	digest    [sha256.Size]byte // digest of the source
	inputs    []inputFile       // files that the configuration refers to
}

// ErrorAt returns an error about the value of a key, such as backends[0].tls.ca. The caller sets
// Problem.
func (l *Loaded) ErrorAt(key string) *Error {
	e := (&checker{file: l.Source, locations: l.locations}).errorAt(key)
	if l.Config != nil {
		nameBackends(Errors{e}, l.Config, l.locations)
	}
	return e
}

// Blank reports whether the file is empty, for example because it is being written. An empty file
// is valid.
func (l *Loaded) Blank() bool { return l.blank }

// Files returns the absolute paths of the files that Load has read, or tried to read, for ${file:…}
// and env_file.
func (l *Loaded) Files() []string {
	var all []string
	for _, f := range l.inputs {
		all = append(all, f.path)
	}
	return all
}

// Unchanged reports whether Load with these options would read and approve the same text, with the
// same warnings about users who can change the file, and whether the Files have the same content.
// The options must name the file. Unchanged runs no command and does not use the keyring. Other
// files that the configuration refers to, such as certificates, are not compared.
func (l *Loaded) Unchanged(opts Options) bool {
	if opts.Env == nil {
		opts.Env = os.LookupEnv
	}
	src, err := findSource(opts)
	return err == nil && src.path == l.Source && src.digest() == l.digest &&
		!slices.ContainsFunc(l.inputs, func(f inputFile) bool { return !f.isUnchanged() })
}

// Load finds, reads and validates the configuration. Flags have precedence over environment
// variables (GATEWAY_LOG_LEVEL for log.level), environment variables over the file, and the file
// over Default. Load returns all problems of the configuration as Errors. If the file cannot be
// read, it returns an *Error. If the file is not approved, it returns the error of Options.Approve.
//
// After that it reads the values of all other sources at the same time; see Options.Sources. It
// returns when each has a value or an error.
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

// Validate returns the error that Load would return for a file with this content. Variables that
// are not set are not an error.
func Validate(path string, data []byte) error {
	_, err := load(source{path: path, data: data},
		Options{Env: os.LookupEnv, RequiredKeys: []string{}})
	return err
}

// LoadData loads a configuration file with this content, like Load, but does not call
// Options.Approve.
func LoadData(path string, data []byte, opts Options) (*Loaded, error) {
	if opts.Env == nil {
		opts.Env = os.LookupEnv
	}
	return load(source{path: path, data: data}, opts)
}

func load(src source, opts Options) (*Loaded, error) {
	used := make(map[string]bool)
	env := func(name string) (string, bool) {
		used[name] = true
		return opts.Env(name)
	}
	path := src.path
	if absolute, err := filepath.Abs(path); err == nil { // once for many comparisons
		path = absolute
	}
	sources := newSourceReader(path, opts)
	var r *fileParser
	var vars *variableReader
	var k *koanf.Koanf
	for again := true; again; again = sources.resolve() { // see sourceReader
		report := newFileReport(src.path)
		vars = &variableReader{
			fileReport: report, requiredKeys: opts.RequiredKeys, sources: sources,
			fromVariables: map[string]bool{}, literals: literalCheck{file: src.path},
		}
		if !opts.Strict {
			vars.misconfigured = misconfigurations{}
		}
		r = &fileParser{
			fileReport: report, scalars: vars, env: env, sources: sources,
			workspace:       dialect.Workspace(path, opts.Dir, expand.HomeDir(opts.Env)),
			callTimeoutUnit: dialect.CallTimeoutUnit(path),
		}
		// The layers in ascending order of precedence. Only the layer of the file can fail to load.
		k = koanf.New(".")
		k.Load(confmap.Provider(defaultLayer(), ""), nil)
		if err := k.Load(rawbytes.Provider(src.data), r); err != nil {
			return nil, err
		}
	}
	over := &overrides{locations: r.locations}
	out := settings{}
	k.Load(over.environment(opts.Env), nil)
	k.Load(over.flags(opts.Flags), nil)
	if err := decode(k, &out); err != nil {
		return nil, Errors{{File: src.path, Problem: err.Error()}} // not a fileParser error
	}

	cfg := &out.Config
	if src.path == "" {
		cfg.Backends = []Backend{{Name: "demo", Embedded: "demo"}}
	}
	applyDefaults(cfg, out.Defaults, r.locations)
	c := &checker{
		file: src.path, locations: r.locations, reported: r.reported,
		fromVariables: vars.fromVariables, misconfigured: vars.misconfigured,
	}
	c.resolvePaths(cfg, opts.Env)
	c.resolveEnvFiles(cfg, sources)
	c.check(cfg)
	for i := range cfg.Backends {
		if b := &cfg.Backends[i]; b.Enabled {
			wrong := c.misconfigured[fmt.Sprintf("backends[%d]", i)]
			b.Misconfigured = strings.Join(wrong.problems, "; ")
			b.PermissionUnknown = wrong.affectsPermissions
		}
	}
	cfg.Expanded = slices.Concat(vars.secretValues, inheritedSecrets(cfg, opts.Env))
	cfg.Auth.TokenVariable = vars.tokenVariable

	if all := slices.Concat(r.errs, over.errs, c.errs); len(all) > 0 {
		nameBackends(all, cfg, r.locations)
		return nil, sortByLine(all)
	}
	for _, b := range cfg.Backends {
		for _, name := range b.InheritEnv {
			used[name] = true
		}
	}
	written := c.literalSecrets(cfg, vars.literals.warnings)
	nameBackends(vars.literals.warnings, cfg, r.locations)
	return &Loaded{
		Config: cfg, Source: src.path, Local: src.inWorkingDir, locations: r.locations,
		digest: src.digest(), inputs: sources.inputs,
		Warnings: slices.Concat(src.warnings, r.warnings, c.warnings(cfg), written,
			vars.literals.warnings.lines(), sources.warnings,
			misspeltVariables(opts.VariableNames, used)),
		blank: r.blank && src.path != "",
	}, nil
}

// defaultLayer returns the default values by key.
func defaultLayer() map[string]any {
	layer := make(map[string]any)
	d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{TagName: "koanf", Result: &layer})
	if err == nil {
		err = d.Decode(settings{Config: Default(), Defaults: builtinDefaults()})
	}
	if err != nil {
		panic(err) // the type settings is wrong
	}
	return layer
}

// decode is strict: each key must have a field, and each value its type.
func decode(k *koanf.Koanf, out *settings) error {
	return k.UnmarshalWithConf("", out,
		koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
			ErrorUnused: true,
			MatchName:   func(key, field string) bool { return key == field },
		}})
}

// instructionsValue returns the effective value of the key instructions; see
// [Config.Instructions].
func instructionsValue(value string, given bool) string {
	switch {
	case value == "auto":
		return ""
	case given && strings.TrimSpace(value) == "":
		return NoInstructions
	}
	return value
}

// applyDefaults sets the values that are not given and whose default depends on other keys, and the
// values of backends that the file does not set. It replaces each value of instructions by its
// effective value. The default of limits.page is at most limits.message, the default of
// limits.outbox at least limits.message, and the default of audit.keep.files the maximum if another
// key limits the files.
func applyDefaults(cfg *Config, d defaults, given map[string]location) {
	if _, ok := given["limits.page"]; !ok {
		cfg.Limits.Page = min(cfg.Limits.Page, cfg.Limits.Message)
	}
	_, written := given["audit.keep.files"]
	if k := &cfg.Audit.Keep; !written && k.Files == defaultKeepFiles && (k.Age > 0 || k.Size > 0) {
		k.Files = maxKeepFiles
	}
	if _, ok := given["limits.outbox"]; !ok {
		cfg.Limits.Outbox = max(cfg.Limits.Outbox, cfg.Limits.Message)
	}
	_, written = given["instructions"]
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
		if b.Command == "" && b.URL+b.Embedded != "" { // only programs are stopped when idle
			b.IdleStop = 0
		}
		if _, ok := given[at+"transport"]; !ok {
			b.Transport = TransportAuto
		}
		if _, ok := given[at+"sharing"]; !ok {
			b.Sharing = SharingAuto
		}
		if _, ok := given[at+"tools.pin"]; !ok {
			b.Tools.Pin = PinWarn
		}
		if _, ok := given[at+"era"]; !ok {
			b.Generation = GenerationAuto
		}
	}
}

// nameBackends replaces the index of a backend in errors by its name, if the name is valid and
// occurs in the file.
func nameBackends(all Errors, cfg *Config, locations map[string]location) {
	for i, b := range cfg.Backends {
		at := fmt.Sprintf("backends[%d]", i)
		if !backendName().MatchString(b.Name) || locations[at+".name"].text != b.Name {
			continue
		}
		for _, e := range all {
			e.setBackend(b.Name, at)
		}
	}
}

// sortByLine sorts errors by line. Errors that are not in the file come last.
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
