package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// FuzzLoad loads arbitrary files. An accepted configuration is valid, and an error is one of this
// package with the name of the file.
func FuzzLoad(f *testing.F) {
	for _, pattern := range []string{"testdata/*.yml", "clientimport/testdata/*.txtar"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Add([]byte("backends: &a [*a]\n"))
	f.Add([]byte("backends:\n  - name: b\n    url: https://${TOKEN}@\n"))
	f.Add([]byte("a: &a\n  <<: *a\n"))
	f.Add([]byte("{\"mcpServers\":{\"\":{\"command\":\"x\"}}}"))
	f.Add(
		[]byte(
			"{\"mcpServers\":{\"a\":{\"url\":\"http://h\",\"type\":\"sse\",\"transport\":\"x\"}},\"listen\":\":1\"}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		loaded, err := load(source{path: "fuzz.yaml", data: data}, Options{Env: env})
		if err != nil {
			var errs Errors
			if !errors.As(err, &errs) || len(errs) == 0 {
				t.Fatalf("%T %v", err, err)
			}
			for _, one := range errs {
				if one.File != "fuzz.yaml" || one.Problem == "" || one.Line == 0 {
					t.Errorf("incomplete: %#v", one)
				}
			}
			return
		}
		// A backend that is invalid because of a variable is accepted and never started.
		loaded.Config.Backends = slices.DeleteFunc(loaded.Config.Backends,
			func(b Backend) bool { return b.Misconfigured != "" })
		c := &checker{}
		if c.check(loaded.Config); len(c.errs) > 0 {
			t.Errorf("accepted, but %v", c.errs)
		}
		Secrets(loaded.Config)
	})
}
