package config

import (
	"errors"
	"strings"
	"testing"
)

// A variable that a backend lacks makes this backend misconfigured, and no other.
func TestMisconfigured_F_CLI_11(t *testing.T) {
	vars := lookup(map[string]string{"EMPTY": "", "BLANK": " ", "SCHEME": "ftp", "WORD": "many", "SET": "s3cr3t"})
	const unset = "variable NO is not set: set it where the gateway is started"
	const empty = "variable EMPTY is empty: set it where the gateway is started"
	for entry, want := range map[string]string{
		`command: "${NO}"`:                                               unset,
		`command: x, args: ["${NO}", "${NO}"]`:                           unset,
		`command: x, env: {A: "${NO}"}`:                                  unset,
		`url: "https://h/${NO}"`:                                         unset,
		`url: https://h, headers: {Authorization: "Bearer ${NO}"}`:       unset,
		`url: https://h, headers: {Authorization: "Bearer ${EMPTY}"}`:    empty,
		`url: https://h, headers: {Authorization: "Bearer ${BLANK}"}`:    strings.Replace(empty, "EMPTY", "BLANK", 1),
		`url: https://h, headers: {X-Key: "${EMPTY}"}`:                   empty,
		`url: "${EMPTY}"`:                                                empty,
		`command: "${EMPTY}"`:                                            empty,
		`url: "https://${EMPTY}/mcp"`:                                    "url: names no host: check the variables in it",
		`url: "${SCHEME}://h"`:                                           "url: must begin with http:// or https://: check the variables in it",
		`command: x, max_in_flight: "${WORD}"`:                           `must be a whole number, not "${WORD}"`,
		`command: x, env: {A: "${EMPTY}"}`:                               "",
		`command: x, args: ["${EMPTY}", "${NO:-}"]`:                      "",
		`url: https://h, headers: {Authorization: "Bearer ${SET}"}`:      "",
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

// What is no matter of variables stays an error of the file, and so does a variable elsewhere.
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
		loaded, err := load(source{path: "g.yaml", data: []byte(text)}, Options{Env: lookup(map[string]string{"SET": "1"})})
		if err != nil {
			t.Fatal(err)
		}
		return loaded.Config
	}
	for _, pair := range [][2]string{{"NO_A", "SET"}, {"SET", "NO_A"}, {"NO_A", "NO_B"}} {
		if c := Diff(read(pair[0]), read(pair[1])); len(c.Changed) != 1 {
			t.Errorf("%v: %+v", pair, c)
		}
	}
}
