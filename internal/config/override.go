package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	envprovider "github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/v2"

	"mcpgateway/internal/config/internal/node"
)

// overrides are the layers with precedence over the file: values from environment variables and
// flags, converted to the types of their keys.
type overrides struct {
	locations map[string]location
	errs      Errors
}

// environment provides the values of variables for all keys with a single value, for example the
// value of GATEWAY_LOG_LEVEL for log.level. An empty variable counts as not set. Other GATEWAY_*
// variables are ignored.
func (o *overrides) environment(lookup func(string) (string, bool)) koanf.Provider {
	byName := make(map[string]field)
	var set []string // NAME=value, in the order of the keys
	for _, f := range scalarKeys(settingsType) {
		name := variableName(f.key)
		if text, _ := lookup(name); text != "" {
			byName[name] = f
			set = append(set, name+"="+text)
		}
	}
	return envprovider.Provider(".", envprovider.Opt{
		EnvironFunc: func() []string { return set },
		TransformFunc: func(name, text string) (key string, value any) {
			return o.value(byName[name], name, text)
		},
	})
}

// variableName returns the name of the variable that sets a key.
func variableName(key string) string {
	return "GATEWAY_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// misspeltVariables returns a warning for each variable that has no effect and resembles the
// variable of a key: its name is misspelt, or no variable can set the key. Variables that the file
// uses are skipped.
func misspeltVariables(names []string, used map[string]bool) (warnings []string) {
	hasPrefix := func(name string) bool { return strings.HasPrefix(name, "GATEWAY_") }
	if !slices.ContainsFunc(names, hasPrefix) {
		return nil
	}
	known := []string{"CONFIG"} // without the common prefix
	for _, f := range scalarKeys(settingsType) {
		known = append(known, shortVariable(f.key))
	}
	fixed := unsettableKeys()
	near := slices.Clone(known)
	for name, f := range fixed {
		if f.matchSimilar {
			near = append(near, name)
		}
	}
	slices.Sort(near)
	for _, name := range slices.Sorted(slices.Values(names)) {
		bare, ok := strings.CutPrefix(name, "GATEWAY_")
		if !ok || used[name] || slices.Contains(known, bare) {
			continue
		}
		if f, ok := unsettableKeyOf(bare, fixed); ok {
			warnings = append(warnings, name+": the variable has no effect: "+f.problem)
			continue
		}
		like, ok := Nearest(bare, near)
		if f, is := fixed[like]; ok && is {
			warnings = append(warnings, name+": the variable has no effect: "+f.problem)
		} else if ok {
			warnings = append(warnings,
				name+": the variable has no effect; did you mean GATEWAY_"+like+"?")
		}
	}
	return warnings
}

// An unsettableKey is a key that neither a variable nor a flag can set.
type unsettableKey struct {
	problem      string
	composite    bool // a list or a map, of which NAME_0 and NAME_X are parts
	matchSimilar bool // variables with a similar name refer to this key
}

// unsettableKeys returns the keys that no variable can set. The index is the name that the variable
// of the key would have, without GATEWAY_.
func unsettableKeys() map[string]unsettableKey {
	all := map[string]unsettableKey{}
	add := func(f field, key unsettableKey) {
		name := shortVariable(f.key)
		if _, ok := all[name]; !ok {
			all[name] = key
		}
	}
	const inFile = "; write it into the configuration file, where ${VARIABLE} stands for the value of a variable"
	var walk func(t reflect.Type, at string)
	walk = func(t reflect.Type, at string) {
		for _, f := range fields(t) {
			f.key = joinPath(at, f.key)
			switch f.typ.Kind() {
			case reflect.Slice, reflect.Map:
				key := unsettableKey{problem: f.key + " cannot be set by a variable" + inFile,
					composite: true, matchSimilar: true}
				add(f, key)
				if _, last, ok := strings.Cut(f.key, "."); ok { // GATEWAY_TOKENS for auth.tokens
					key.matchSimilar = false
					add(field{key: last}, key)
				}
			case reflect.Struct:
				example := scalarKeys(f.typ)
				problem := f.key + " has several keys and cannot be set by a variable as a whole" +
					inFile
				if len(example) > 0 {
					problem += ", or set each key, as in " + variableName(f.key+"."+example[0].key)
				}
				add(f, unsettableKey{problem: problem})
				walk(f.typ, f.key)
			}
		}
	}
	walk(settingsType, "")
	backends := all["BACKENDS"]
	for _, name := range []string{"MCPSERVERS", "MCP_SERVERS", "SERVERS"} {
		all[name] = backends
	}
	inherited := fields(reflect.TypeFor[defaults]())
	var walkBackend func(t reflect.Type, at string)
	walkBackend = func(t reflect.Type, at string) {
		for _, f := range fields(t) {
			if f.key == "name" || f.key == "url" { // such variables may belong to other programs
				continue
			}
			key := joinPath(at, f.key)
			problem := key + " is a key of each backend and cannot be set by a variable; " +
				"write it into the entry of the backend in the configuration file"
			if slices.ContainsFunc(inherited, func(g field) bool { return g.key == key }) {
				problem += ", or set " + variableName("defaults."+key) + " for all backends"
			}
			kind := f.typ.Kind()
			add(field{key: key},
				unsettableKey{problem: problem,
					composite: kind == reflect.Slice || kind == reflect.Map})
			if kind == reflect.Struct {
				walkBackend(f.typ, key)
			}
		}
	}
	walkBackend(backendType, "")
	return all
}

// shortVariable returns the name of the variable of a key, without its prefix.
func shortVariable(key string) string { return strings.TrimPrefix(variableName(key), "GATEWAY_") }

// unsettableKeyOf returns the key for the name of a variable without GATEWAY_, such as ORIGINS,
// or ORIGINS_0 from programs that number the items of a list.
func unsettableKeyOf(name string, fixed map[string]unsettableKey) (unsettableKey, bool) {
	if f, ok := fixed[name]; ok {
		return f, true
	}
	for at := len(name); ; {
		if at = strings.LastIndexByte(name[:at], '_'); at <= 0 {
			return unsettableKey{}, false
		}
		if f, ok := fixed[strings.TrimRight(name[:at], "_")]; ok && f.composite {
			return f, true
		}
	}
}

// FlagHint explains how to set the key that an unknown flag probably means, such as audit.file
// for --audit-file; "" if there is no such key.
func FlagHint(flag string) string {
	name := strings.ToUpper(strings.NewReplacer("-", "_", ".",
		"_").Replace(strings.TrimLeft(flag, "-")))
	for _, f := range scalarKeys(settingsType) {
		if shortVariable(f.key) == name {
			return f.key + " has no flag: write it into the configuration file, or set " +
				variableName(f.key)
		}
	}
	f, ok := unsettableKeyOf(name, unsettableKeys())
	if !ok {
		return ""
	}
	return strings.Replace(f.problem, "by a variable", "by a flag or a variable", 1)
}

// flags provides the values of flags, which are given by key.
func (o *overrides) flags(values map[string]string) koanf.Provider {
	out := map[string]any{}
	known := map[string]field{}
	for _, f := range scalarKeys(settingsType) {
		known[f.key] = f
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		name := "--" + strings.NewReplacer(".", "-", "_", "-").Replace(key)
		f, ok := known[key]
		if !ok {
			o.errs = append(o.errs, &Error{Key: name, Problem: "does not set any key"})
		} else if key, v := o.value(f, name, values[key]); key != "" {
			out[key] = v
		}
	}
	return confmap.Provider(out, ".")
}

// value converts the text of a variable or flag, and records the variable or flag as the location
// of the key. The key is "" if the text is invalid.
func (o *overrides) value(f field, name, text string) (key string, v any) {
	v, err := convert(text, f.typ)
	if err != nil {
		o.errs = append(o.errs, &Error{Key: name, Problem: err.Error() + node.Not(text)})
		return "", nil
	}
	o.locations[f.key] = location{path: f.key, key: name, text: text}
	return f.key, v
}
