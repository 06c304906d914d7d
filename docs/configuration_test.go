package docs_test

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"mcpgateway/internal/config"
)

// configKey is one row of the tables in configuration.md.
type configKey struct{ typ, value, reload string }

var configRow = regexp.MustCompile(
	"(?m)^\\| `([A-Za-z_.\\[\\]]+)` \\| ([^|]+) \\| ([^|]+) \\| ([^|]+) \\|")

// TestConfigurationDoc checks configuration.md: its tables contain each key of the configuration
// exactly once and no other, with the type and the default of the key, and state whether a reload
// applies a change.
func TestConfigurationDoc(t *testing.T) {
	text, err := os.ReadFile("configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := make(map[string]configKey)
	for _, row := range configRow.FindAllStringSubmatch(string(text), -1) {
		if _, twice := doc[row[1]]; twice {
			t.Errorf("docs/configuration.md has two rows for %s", row[1])
		}
		doc[row[1]] = configKey{row[2], row[3], row[4]}
	}
	fields := settableFields(t)
	for key, f := range fields {
		row, ok := doc[key]
		if !ok {
			t.Errorf("docs/configuration.md has no row for %s", key)
			continue
		}
		if want := typeName(f.Type()); row.typ != want {
			t.Errorf("docs/configuration.md: the type of %s is %q, want %q", key, row.typ, want)
		}
		if !isDefault(f, strings.Trim(row.value, "`")) && row.value != "required" {
			t.Errorf("docs/configuration.md: the default of %s is %s, want %v", key, row.value, f)
		}
		if slices.ContainsFunc([]string{"backends[].", "auth.tokens[].", "auth.oauth.profiles[].",
			"defaults.", "profiles.NAME."},
			func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
			continue
		}
		if live := !needsRestart(key); strings.HasPrefix(row.reload, "live") != live {
			t.Errorf("docs/configuration.md: the effect of a reload on %s is %q, want live: %v",
				key, row.reload, live)
		}
	}
	for key := range doc {
		if _, ok := fields[key]; !ok {
			t.Errorf("docs/configuration.md has a row for %s, which is not a key", key)
		}
	}
}

// settableFields returns the fields of a configuration without settings, by their keys.
func settableFields(t *testing.T) map[string]reflect.Value {
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(path, []byte("backends: [{name: x, command: x}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := func(string) (string, bool) { return "", false }
	loaded, err := config.Load(config.Options{Path: path, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	fields := make(map[string]reflect.Value)
	maps.Copy(fields, leaves(reflect.ValueOf(loaded.Config).Elem(), ""))
	delete(fields, "backends")
	for key, f := range leaves(reflect.ValueOf(loaded.Config.Backends[0]), "") {
		fields["backends[]."+key] = f
		// A key of a backend that has a default for all backends has a variable for it.
		hint := config.FlagHint("--defaults-" + key)
		if strings.Contains(hint, "set GATEWAY_DEFAULTS_"+strings.ToUpper(key)) &&
			!strings.Contains(key, ".") {
			fields["defaults."+key] = f
		}
	}
	for key, f := range leaves(reflect.ValueOf(config.Token{}), "") {
		fields["auth.tokens[]."+key] = f
	}
	for key, f := range leaves(reflect.ValueOf(config.OAuthProfile{}), "") {
		fields["auth.oauth.profiles[]."+key] = f
	}
	for key, f := range leaves(reflect.ValueOf(config.Profile{}), "") {
		fields["profiles.NAME."+key] = f
	}
	if n := len(fields); n < 50 {
		t.Fatalf("only %d keys", n)
	}
	return fields
}

// leaves returns the fields of a struct that are not structs, by their keys.
func leaves(s reflect.Value, prefix string) map[string]reflect.Value {
	all := make(map[string]reflect.Value)
	for i := range s.NumField() {
		switch key := s.Type().Field(i).Tag.Get("koanf"); {
		case key == "-":
		case s.Field(i).Kind() == reflect.Struct &&
			s.Field(i).Type() != reflect.TypeFor[time.Time]():
			maps.Copy(all, leaves(s.Field(i), prefix+key+"."))
		default:
			all[prefix+key] = s.Field(i)
		}
	}
	return all
}

func typeName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "duration"
	case t.Kind() == reflect.Int64:
		return "size"
	case t.Kind() == reflect.Int:
		return "integer"
	case t.Kind() == reflect.Bool:
		return "boolean"
	case t == reflect.TypeFor[[]config.Token]():
		return "list of tokens"
	case t == reflect.TypeFor[time.Time]():
		return "time"
	case t == reflect.TypeFor[map[string]config.Profile]():
		return "mapping of names to profiles"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return "list of mappings"
	case t.Kind() == reflect.Slice:
		return "list of strings"
	case t.Kind() == reflect.Map:
		return "map of strings"
	}
	return t.Kind().String()
}

// isDefault reports whether text, a cell of the table, is the value of f. It accepts a reference to
// defaults, and any text for the two fields that settableFields sets.
func isDefault(f reflect.Value, text string) bool {
	if strings.HasPrefix(text, "defaults.") {
		return true
	}
	switch typeName(f.Type()) {
	case "duration":
		d, err := time.ParseDuration(text)
		return err == nil && d == f.Interface()
	case "size":
		n, err := strconv.ParseInt(strings.TrimSuffix(text, "MiB"), 10, 64)
		return err == nil && n<<20 == f.Int()
	case "integer":
		return text == strconv.FormatInt(f.Int(), 10)
	case "boolean":
		return text == strconv.FormatBool(f.Bool())
	case "string":
		// Without instructions in the file, those of the servers are used: auto.
		isEmpty := f.String() == "" && (text == `""` || text == "auto")
		return isEmpty || text == f.String() || f.String() == "x" // x: see settableFields
	}
	return text == "none" && (f.Kind() == reflect.Struct || f.Len() == 0)
}

// needsRestart reports whether a change of the key from one value to another needs a restart.
func needsRestart(key string) bool {
	before, after := config.Default(), config.Default()
	changed(leaves(reflect.ValueOf(&before).Elem(), "")[key], 1)
	changed(leaves(reflect.ValueOf(&after).Elem(), "")[key], 2)
	return slices.ContainsFunc(config.Diff(&before, &after).NeedRestart, func(k string) bool {
		return k == key || strings.HasPrefix(k, key+".") // in a map
	})
}

// changed sets f to a value that depends on n.
func changed(f reflect.Value, n int64) {
	switch f.Kind() {
	case reflect.Bool:
		f.SetBool(n == 2)
	case reflect.String:
		f.SetString(strconv.FormatInt(n, 10))
	case reflect.Map:
		name := strconv.FormatInt(n, 10)
		if f.Type() == reflect.TypeFor[map[string]string]() {
			f.Set(reflect.ValueOf(map[string]string{name: name}))
			return
		}
		f.Set(reflect.ValueOf(map[string]config.Profile{name: {}}))
	case reflect.Slice:
		switch f.Type() {
		case reflect.TypeFor[[]config.Token]():
			f.Set(reflect.ValueOf([]config.Token{{Text: strconv.FormatInt(n, 10)}}))
			return
		case reflect.TypeFor[[]config.OAuthProfile]():
			f.Set(reflect.ValueOf([]config.OAuthProfile{{Scope: strconv.FormatInt(n, 10)}}))
			return
		}
		f.Set(reflect.ValueOf([]string{strconv.FormatInt(n, 10)}))
	default:
		f.SetInt(n)
	}
}
