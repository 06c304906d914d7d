package config

import (
	"os"
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The example can be loaded without variables, and the values that it shows as defaults equal the
// defaults.
func TestExampleShowsTheDefaults(t *testing.T) {
	loaded, err := Load(Options{Path: "../../config.example.yaml",
		Env: func(name string) (string, bool) {
			if name == "HOME" {
				return "/home/me", true
			}
			return "", false
		}})
	if err != nil {
		t.Fatal(err)
	}
	if len(loaded.Warnings) > 0 {
		t.Errorf("warnings: %q", loaded.Warnings)
	}
	got, want := *loaded.Config, Default()
	if len(got.Backends) != 4 || got.Backends[0].StartTimeout != time.Minute ||
		got.Backends[0].CallTimeout != 0 {
		t.Errorf("its backends are %+v", got.Backends)
	}
	got.Backends, got.Profiles = nil, nil
	got.StateDir, got.Expanded = want.StateDir, nil
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("not the defaults (-want +got):\n%s", diff)
	}
}

// The example contains every key, and every key of a backend in at least one backend.
func TestExampleShowsEveryKey(t *testing.T) {
	data, err := os.ReadFile("../../config.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r := &fileParser{
		fileReport: newFileReport("config.example.yaml"), scalars: newWrittenReader(), env: env,
	}
	if _, err := r.Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	index, shown := regexp.MustCompile(`\[\d+\]`), map[string]bool{}
	for path := range r.locations {
		shown[index.ReplaceAllString(path, "")] = true
	}
	var look func(t reflect.Type, above string)
	look = func(typ reflect.Type, above string) {
		for _, f := range fields(typ) {
			if path := joinPath(above, f.key); !shown[path] {
				t.Errorf("%s is missing", path)
			} else if f.typ.Kind() == reflect.Struct {
				look(f.typ, path)
			}
		}
	}
	look(settingsType, "")
	look(backendType, "backends")
}
