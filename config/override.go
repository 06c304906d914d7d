package config

import (
	"maps"
	"slices"
	"strings"
)

// overrides are the layers above the file: texts from the environment and the
// command line, converted by the type of the key they are for.
type overrides struct {
	places map[string]place
	errs   Errors
}

// fromEnv reads GATEWAY_LOG_LEVEL for log.level, and so on for every key that
// holds one value. An empty variable counts as not set, any other GATEWAY_*
// as none of ours.
func (o *overrides) fromEnv(env func(string) (string, bool)) map[string]any {
	out := map[string]any{}
	for _, f := range scalars(settingsType) {
		name := "GATEWAY_" + strings.ToUpper(strings.ReplaceAll(f.key, ".", "_"))
		if text, _ := env(name); text != "" {
			o.set(out, f, name, text)
		}
	}
	return out
}

// misspelt returns a warning for each variable that looks like one of a key, misspelt, and that the
// file does not use.
func misspelt(names []string, used map[string]bool) (warnings []string) {
	var known []string
	for _, f := range scalars(settingsType) {
		known = append(known, "GATEWAY_"+strings.ToUpper(strings.ReplaceAll(f.key, ".", "_")))
	}
	known = append(known, "GATEWAY_CONFIG")
	for _, name := range slices.Sorted(slices.Values(names)) {
		if !strings.HasPrefix(name, "GATEWAY_") || used[name] || slices.Contains(known, name) {
			continue
		}
		// The prefix is no sign that two names are alike.
		short := func(name string) string { return strings.TrimPrefix(name, "GATEWAY_") }
		var keys []string
		for _, k := range known {
			keys = append(keys, short(k))
		}
		if near, ok := Nearest(short(name), keys); ok {
			warnings = append(warnings, name+": the variable has no effect; did you mean GATEWAY_"+near+"?")
		}
	}
	return warnings
}

// fromFlags reads flags that were given, by key. They name no key but ours.
func (o *overrides) fromFlags(flags map[string]string) map[string]any {
	out := map[string]any{}
	known := map[string]field{}
	for _, f := range scalars(settingsType) {
		known[f.key] = f
	}
	for _, key := range slices.Sorted(maps.Keys(flags)) {
		name := "--" + strings.NewReplacer(".", "-", "_", "-").Replace(key)
		if f, ok := known[key]; ok {
			o.set(out, f, name, flags[key])
		} else {
			o.errs = append(o.errs, &Error{Key: name, Problem: "sets no key there is"})
		}
	}
	return out
}

func (o *overrides) set(out map[string]any, f field, name, text string) {
	v, err := convert(text, f.typ)
	if err != nil {
		o.errs = append(o.errs, &Error{Key: name, Problem: err.Error() + not(text)})
		return
	}
	out[f.key] = v
	o.places[f.key] = place{path: f.key, key: name, text: text}
}
