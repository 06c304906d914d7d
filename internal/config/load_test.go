package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite what the tests want")

// env is the environment of all test data.
var env = lookup(map[string]string{
	"HOME": "/home/u", "TOKEN": "s3cr3t-t0ken", "EMPTY": "", "NUMBER": "16",
	"MULTI": "a: b\nc: [d", "DOLLARS": "${TOKEN} $$ ${NO}",
})

func lookup(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	}
}

// TestBad loads every *.bad.yml; the *.bad.txt has the exact messages with their hints.
func TestBad(t *testing.T) {
	for _, file := range glob(t, "testdata/*.bad.yml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			_, err := loadTestFile(t, file)
			var errs Errors
			if !errors.As(err, &errs) {
				t.Fatalf("want Errors, got %v", err)
			}
			got := ""
			for line, hint := range errs.Hinted() {
				got += line + "\n"
				if hint != "" {
					got += "hint: " + hint + "\n"
				}
			}
			compare(t, strings.TrimSuffix(file, "yml")+"txt", got)
			for _, secret := range []string{"hunter", "s3cr3t", "secretsecret"} {
				if strings.Contains(got, secret) {
					t.Errorf("the message holds a secret: %s", got)
				}
			}
		})
	}
}

// TestGood loads every *.good.yml; the *.good.json has the result without empty and default
// values.
func TestGood(t *testing.T) {
	for _, file := range glob(t, "testdata/*.good.yml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			loaded, err := loadTestFile(t, file)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, strings.TrimSuffix(file, "yml")+"json", brief(t, loaded))
		})
	}
}

// TestServersFile loads files of other clients under their usual names. The client determines the
// unit of timeout, the folder determines the workspace.
func TestServersFile(t *testing.T) {
	for _, tc := range []struct {
		path, entry string
		want        Backend
		warnings    string
	}{
		{"/p/.mcp.json", `"timeout": 90000`,
			Backend{Command: "/src/project", CallTimeout: 90 * time.Second}, ""},
		{"/p/.mcp.json", `"timeout": 90`, Backend{Command: "/src/project"},
			"/p/.mcp.json:1: mcpServers.a: the gateway ignores its key timeout"},
		{"/p/.mcp.json", `"timeout": "soon"`, Backend{Command: "/src/project"},
			"/p/.mcp.json:1: mcpServers.a: the gateway ignores its key timeout"},
		{"/p/.gemini/settings.json", `"timeout": 1500`,
			Backend{Command: "/src/project", CallTimeout: 1500 * time.Millisecond}, ""},
		{"/p/.cursor/mcp.json", `"timeout": 90000`, Backend{Command: "/p"},
			"/p/.cursor/mcp.json:1: mcpServers.a: the gateway ignores its key timeout"},
		{"/home/u/.cursor/mcp.json", `"args": []`, Backend{Command: "/src/project"}, ""},
	} {
		file := `{ "mcpServers": { "a": { "command": "${workspaceFolder}", ` + tc.entry + ` } } }`
		loaded, err := load(source{path: tc.path, data: []byte(file)},
			Options{Env: env, Dir: "/src/project"})
		if err != nil {
			t.Errorf("%s: %v", tc.path, err)
			continue
		}
		got := loaded.Config.Backends[0]
		if got.Command != tc.want.Command || got.CallTimeout != tc.want.CallTimeout {
			t.Errorf("%s: %s: got %s, %s", tc.path, tc.entry, got.Command, got.CallTimeout)
		}
		if warnings := strings.Join(loaded.Warnings, "\n"); warnings != tc.warnings {
			t.Errorf("%s: %s: warns %q, want %q", tc.path, tc.entry, warnings, tc.warnings)
		}
	}
}

// TestHinted: a hint comes directly after its error, or after the last of consecutive errors with
// the same hint.
func TestHinted(t *testing.T) {
	errs := Errors{
		{Problem: "1"}, {Problem: "2", Hint: "a"}, {Problem: "3", Hint: "a"},
		{Problem: "4", Hint: "b"}, {Problem: "5"}, {Problem: "6", Hint: "a"},
	}
	var got []string
	for line, hint := range errs.Hinted() {
		got = append(got, line+hint)
	}
	if want := "1 2 3a 4b 5 6a"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func brief(t *testing.T, loaded *Loaded) string {
	t.Helper()
	got, usual := fromJSON(t, loaded), fromJSON(t, Default())
	config := got["Config"].(map[string]any)
	for key, value := range config {
		if cmp.Equal(value, usual[key]) {
			delete(config, key)
		}
	}
	delete(got, "Source")
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(lean(got)); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func fromJSON(t *testing.T, v any) map[string]any {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// lean removes empty values from mappings and formats large numbers as durations.
func lean(v any) any {
	switch v := v.(type) {
	case map[string]any:
		maps.DeleteFunc(v, func(_ string, inner any) bool {
			zero := inner == nil || inner == "" || inner == 0.0
			mapping, ok := lean(inner).(map[string]any)
			return zero || ok && len(mapping) == 0
		})
		for key, inner := range v {
			v[key] = lean(inner)
		}
	case []any:
		for i := range v {
			v[i] = lean(v[i])
		}
	case float64:
		if v >= 1e9 {
			return time.Duration(v).String()
		}
	}
	return v
}

// loadTestFile loads a file under its base name.
func loadTestFile(t *testing.T, file string) (*Loaded, error) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return load(source{path: filepath.Base(file), data: data},
		Options{Env: env, Dir: "/src/project"})
}

func glob(t testing.TB, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, %v", pattern, len(files), err)
	}
	return files
}

func compare(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}
