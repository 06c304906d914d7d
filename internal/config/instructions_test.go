package config

import (
	"slices"
	"testing"
)

// Empty instructions differ from missing instructions, and each change is applied in place.
func TestInstructions_Keys(t *testing.T) {
	for _, tt := range []struct{ value, want string }{
		{"", ""}, {"instructions: auto", ""}, {"instructions:", ""},
		{`instructions: ""`, NoInstructions}, {`instructions: " "`, NoInstructions},
		{"instructions: none", NoInstructions}, {"instructions: Use a.", "Use a."},
		{`instructions: "${HINT:-Use b.}"`, "Use b."},
	} {
		backend := ""
		if tt.value != "" {
			backend = ", " + tt.value
		}
		read := func(file string) *Config {
			t.Helper()
			loaded, err := load(source{path: "g.yaml", data: []byte(file)},
				Options{Env: lookup(nil)})
			if err != nil {
				t.Fatal(err)
			}
			return loaded.Config
		}
		plain := read("backends: [{name: a, command: x}]")
		got := read(tt.value + "\nbackends: [{name: a, command: x" + backend + " }]")
		if got.Instructions != tt.want || got.Backends[0].Instructions != tt.want {
			t.Errorf("%s became %q and %q", tt.value, got.Instructions,
				got.Backends[0].Instructions)
		}
		changes := Diff(plain, got)
		if tt.want == "" {
			if !changes.IsEmpty() {
				t.Errorf("%s changes %+v", tt.value, changes)
			}
			continue
		}
		if !slices.Equal(changes.Applied, []string{"instructions"}) ||
			len(changes.NeedRestart) > 0 ||
			len(changes.Changed) != 1 || !changes.Changed[0].InPlace() {
			t.Errorf("%s changes %+v", tt.value, changes)
		}
	}
}
