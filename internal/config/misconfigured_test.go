package config

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// A variable that is not set makes only its own backend misconfigured.
func TestMisconfigured_F_CLI_11(t *testing.T) {
	vars := lookup(map[string]string{"EMPTY": "", "BLANK": " ", "SCHEME": "ftp", "WORD": "many",
		"SET": "s3cr3t"})
	const unset = "variable NO is not set: set it where the gateway is started"
	const empty = "variable EMPTY is empty: set it where the gateway is started"
	for entry, want := range map[string]string{
		`command: "${NO}"`:                                            unset,
		`command: x, args: ["${NO}", "${NO}"]`:                        unset,
		`command: x, env: {A: "${NO}"}`:                               unset,
		`url: "https://h/${NO}"`:                                      unset,
		`url: https://h, headers: {Authorization: "Bearer ${NO}"}`:    unset,
		`url: https://h, headers: {Authorization: "Bearer ${EMPTY}"}`: empty,
		`url: https://h, headers: {Authorization: "Bearer ${BLANK}"}`: strings.Replace(empty,
			"EMPTY", "BLANK", 1),
		`url: https://h, headers: {X-Key: "${EMPTY}"}`: empty,
		`url: "${EMPTY}"`:                                           empty,
		`command: "${EMPTY}"`:                                       empty,
		`url: "https://${EMPTY}/mcp"`:                               "url: has no host: check the variables in it",
		`url: "${SCHEME}://h"`:                                      "url: must begin with http:// or https://: check the variables in it",
		`command: x, max_in_flight: "${WORD}"`:                      `must be a whole number, not "${WORD}"`,
		`command: x, env: {A: "${EMPTY}"}`:                          "",
		`command: x, args: ["${EMPTY}", "${NO:-}"]`:                 "",
		`url: https://h, headers: {Authorization: "Bearer ${SET}"}`: "",
		`url: https://h, oauth: {grant: client_credentials, client_id: c, client_secret: "${NO}"}`: unset,
		`command: "${NO}", enabled: false`:                               "",
		`url: https://h, headers: {Authorization: "Bearer ${NO:-dflt}"}`: "",
	} {
		text := "backends:\n- {name: a, " + entry + "}\n- {name: b, command: y}\n"
		loaded, err := load(source{path: "g.yaml", data: []byte(text)}, Options{Env: vars})
		if err != nil {
			t.Errorf("%s: %v", entry, err)
			continue
		}
		a, b := loaded.Config.Backends[0], loaded.Config.Backends[1]
		if got := a.Misconfigured; got != want && (want == "" || !strings.Contains(got, want)) {
			t.Errorf("%s: %q, want %q", entry, got, want)
		}
		if b.Misconfigured != "" || b.Command != "y" {
			t.Errorf("%s: the other backend is %+v", entry, b)
		}
	}
}

// Other problems, and unset variables outside of backends, are errors of the file.
func TestNotMisconfigured_F_CLI_11(t *testing.T) {
	for _, text := range []string{
		`backends: [{name: a, command: "${NO}", comand: x}]`,
		`backends: [{name: a, command: "${NO}", inherit_env: ["A=b"]}]`,
		`backends: [{name: "${NO}", command: x}]`,
		`backends: [{name: a, command: "${NO"}]`,
		"state: ${NO}\nbackends: []",
	} {
		_, err := load(source{path: "g.yaml", data: []byte(text)}, Options{Env: lookup(nil)})
		if errs := (Errors)(nil); !errors.As(err, &errs) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestDiffSeesMisconfigured_F_CLI_11(t *testing.T) {
	read := func(name string) *Config {
		text := `backends: [{name: a, command: x, args: ["${` + name + `}"]}]`
		loaded, err := load(source{path: "g.yaml", data: []byte(text)},
			Options{Env: lookup(map[string]string{"SET": "1"})})
		if err != nil {
			t.Fatal(err)
		}
		return loaded.Config
	}
	for _, pair := range [][2]string{{"NO_A", "SET"}, {"SET", "NO_A"}, {"NO_A", "NO_B"}} {
		if c := Diff(read(pair[0]), read(pair[1])); len(c.Changed)+len(c.Held) != 1 {
			t.Errorf("%v: %+v", pair, c)
		}
	}
}

// If an entry lacks a variable, a reload keeps the older entry of the backend, except for its
// filters.
func TestHeld_F_CLI_11(t *testing.T) {
	read := func(entry string) *Config {
		t.Helper()
		loaded, err := load(source{path: "g.yaml",
			data: []byte("backends: [{name: a, " + entry + "}]")}, Options{
			Env: lookup(map[string]string{"SET": "s3cr3t-of-before", "BAD": "["}),
		})
		if err != nil {
			t.Fatal(err)
		}
		return loaded.Config
	}
	old := read(`command: x, args: ["--token=${SET}"], tools: {deny: [b]}`)
	for entry, want := range map[string]struct {
		held   bool
		effect Effect
	}{
		`command: x, args: ["--token=${NO}"], tools: {deny: [b]}`:    {true, InPlace},
		`command: x, args: ["--token=${NO}"], tools: {deny: [b, c]}`: {true, InPlace},
		`url: "https://${NO}/"`: {true, InPlace},
		`command: x, args: ["--token=${SET}"], tools: {deny: ["${NO}"]}`: {false, Stops},
		`command: x, tools: {allow: ["${BAD}"]}`:                         {false, Stops},
		`command: x, tools: {deny: [b], confirm: ["${NO}"]}`:             {false, Stops},
		`command: x, resources: {deny: ["${NO}"]}`:                       {false, Stops},
		`command: x, enabled: "${NO}"`:                                   {false, Stops},
	} {
		next := read(entry)
		c := Diff(old, next)
		if slices.Contains(c.Held, "a") != want.held ||
			len(c.Changed) == 1 && c.Changed[0].Effect != want.effect || c.IsEmpty() {
			t.Errorf("%s: %+v", entry, c)
			continue
		}
		if !want.held {
			continue
		}
		after := old.Effective(next, c)
		a := after.Backends[0]
		if a.Misconfigured != "" || a.Command != "x" ||
			!slices.Equal(a.Args, old.Backends[0].Args) ||
			!slices.Equal(a.Tools.Deny, next.Backends[0].Tools.Deny) {
			t.Errorf("%s: the held backend is %+v", entry, a)
		}
		if next.Backends[0].Misconfigured == "" ||
			!slices.Contains(Secrets(after), "s3cr3t-of-before") {
			t.Errorf("%s: %+v, secrets %q", entry, next.Backends[0], Secrets(after))
		}
		if again := Diff(after, next); again.AnyBackend() &&
			len(again.Changed)+len(again.Removed) > 0 || len(again.Held) != 1 {
			t.Errorf("%s: Diff after Effective is %+v", entry, again)
		}
	}
	wrong := read(`command: "${NO}"`)
	for _, step := range []struct {
		was, is *Config
		want    Effect
	}{{wrong, old, Starts}, {wrong, read(`command: "${NO_OTHER}"`), StaysDown},
		{old, read("command: y"), Restarts}} {
		if c := Diff(step.was, step.is); len(c.Changed) != 1 || c.Changed[0].Effect != step.want ||
			len(c.Held) > 0 {
			t.Errorf("want %v: %+v", step.want, c)
		}
	}
}
