package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The example loads as it is, without a variable set, and what it shows as the
// defaults are the defaults.
func TestExampleShowsTheDefaults(t *testing.T) {
	loaded, err := Load(Options{Path: "../config.example.yaml", Env: func(name string) (string, bool) {
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
	if len(got.Backends) != 4 || got.Backends[0].StartTimeout != time.Minute || got.Backends[0].CallTimeout != 0 {
		t.Errorf("its backends are %+v", got.Backends)
	}
	got.Backends, got.StateDir, got.Expanded = nil, want.StateDir, nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("not the defaults (-want +got):\n%s", diff)
	}
}
