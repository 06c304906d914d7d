package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestLiteralValues_F_CFG_1(t *testing.T) {
	const op = "op://… is used literally: write ${command:op read op://…}"
	const dollar, shell, torn = "$NAME is used literally", "is not run",
		"a backslash in double quotes has become a control character"
	for entry, want := range map[string]string{
		`command: x, args: ["~/notes", "~", "a~/b", "~other/c"]`: "",
		`command: x, args: ["--root=~/notes"]`:                   "args[0]: ~/ is not expanded after =",
		`command: x, env: {ROOT: "~/notes"}`:                     "env.ROOT: ~/ is not expanded in env",
		`command: x, env: {TOKEN: "op://vault/item"}`:            "env.TOKEN: " + op,
		`command: x, env: {TOKEN: "${OP}"}`:                      "",
		`command: x, args: [--token, "op://vault/item"]`:         "args[1]: " + op,
		`command: x, args: ["--token=op://vault/item"]`:          "args[0]: " + op,
		`url: "https://h/?key=op://vault/item"`:                  "url: " + op,
		`url: https://h, headers: {X-Team: "op://vault/item"}`:   "headers.X-Team: " + op,
		`url: https://h, headers: {Authorization: "Bearer $TOKEN"}`: "headers.Authorization: " +
			dollar,
		`url: https://h/$TENANT/mcp`: "url: " + dollar,
		`command: $HOME/bin/x`: "command: " +
			dollar,
		`command: docker, args: [run, -e, "TOKEN=$TOKEN"]`: "args[2]: " +
			dollar,
		`command: docker, args: [run, -v, "$PWD:/x"]`: "args[2]: " +
			dollar,
		`command: x, cwd: $HOME`:       "cwd: " + dollar,
		`command: x, env: {A: $token}`: "env.A: " + dollar,
		`command: x, env: {A: "pa$word", B: "$1 $", C: "p$SECRETxyz", D: "a$"}`: "",
		`command: x, env: {A: $$TOKEN, B: "$${env:X}", C: "$$(date)"}`:          "",
		`command: x, env: {A: "${SET}", B: "${NO:-$SET-x}"}`:                    "",
		`command: bash, args: [-c, "echo $HOME %TEMP% $(date)"]`:                "",
		`command: cmd, args: [/c, "echo %APPDATA%"]`:                            "",
		`command: x, env: {A: "%APPDATA%\\x"}`:                                  "env.A: %NAME% is used literally: write ${NAME}",
		`url: "https://h/%AB%20%CDEF%41"`:                                       "",
		`command: x, env: {A: "{env:TOKEN}"}`:                                   "env.A: {env:NAME} is used literally",
		`command: x, env: {A: "$env:TOKEN"}`:                                    "env.A: $env:NAME is used literally",
		`command: x, env: {A: "$(pass show x)"}`:                                shell,
		"url: https://h, headers: {Authorization: \"Bearer `pass x`\"}":         shell,
		`command: x, args: ["C:\temp\new"]`:                                     "args[0]: " + torn,
		`command: x, args: ["--dir=C:\\Tools\new"]`:                             "args[0]: " + torn,
		`command: "C:\Program Files\nodejs\node"`:                               "command: " + torn,
		`command: "..\bin\tool"`:                                                "command: " + torn,
		`command: x, cwd: "\\\\server\new"`:                                     "cwd: " + torn,
		`command: 'C:\temp\new', args: ["a\tb", "x: y\nz"], cwd: "C:\\temp"`:    "",
		`command: x, env: {PEM: "-----BEGIN\nMII\n", TSV: "a\tb"}`:              "",
		`command: python3, args: [-c, "for x in y:\n  pass"]`:                   "",
		`command: x, enabled: false, env: {A: $TOKEN}`:                          "",
	} {
		text := "backends:\n- {name: a, " + entry + "}\n- {name: b, command: y}\n"
		env := lookup(map[string]string{"HOME": "/home/u", "OP": "op://x", "SET": "$TOKEN"})
		loaded, err := load(source{path: "g.yaml", data: []byte(text)}, Options{Env: env})
		if err != nil {
			t.Errorf("%s: %v", entry, err)
			continue
		}
		got := strings.Join(loaded.Warnings, "\n")
		if want == "" && got != "" || !strings.Contains(got, want) ||
			want != "" && !strings.HasPrefix(got, `g.yaml:2: backend "a": `) {
			t.Errorf("%s: %q, want %q", entry, got, want)
		}
		if strings.Contains(got, "vault") || strings.Contains(got, "TOKEN: $TOKEN") {
			t.Errorf("%s: a value in %q", entry, got)
		}
	}
}

// Warnings about literal values in files of other clients contain the keys of these files.
func TestLiteralValuesOfOtherClients_F_CFG_1(t *testing.T) {
	text := `{"mcpServers": {"a": {"command": "C:\temp\x.exe", "env": {"A": "${env:SET}", "B": "$TOKEN"}}}}`
	loaded, err := load(source{path: ".mcp.json",
		data: []byte(strings.ReplaceAll(text, `\x`, `\nx`))},
		Options{Env: lookup(map[string]string{"SET": "x"})})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(loaded.Warnings, "\n")
	if !strings.Contains(got, "has become a control character") ||
		!strings.Contains(got, "env.B: $NAME is used literally") || len(loaded.Warnings) != 2 {
		t.Errorf("%q", got)
	}
}

// Errors about an invalid backslash and about a reference of another client have a hint.
func TestEscapesAndReferences_F_CFG_1(t *testing.T) {
	for text, want := range map[string]string{
		`backends: [{name: a, command: "C:\Users\me"}]`:             "in single quotes",
		`backends: [{name: a, command: "C:\dir"}]`:                  "in single quotes",
		`backends: [{name: a, command: "C:\xyz"}]`:                  "in single quotes",
		`{"backends": [{"name": "a", "command": "C:\Users"}]}`:      "write each backslash twice",
		`{"backends": [{"name": "a", "command": "C:\users"}]}`:      "write each backslash twice",
		`backends: [{name: a, command: x, args: ["${env:TOKEN}"]}]`: "write ${VAR}",
		`backends: [{name: a, url: "https://h/${input:id}"}]`:       "write ${VAR}, and set that variable",
		`backends: [{name: a, url: "https://h/${config:id}"}]`:      "write ${VAR}, and set that variable",
	} {
		_, err := load(source{path: "g.yaml", data: []byte(text)}, Options{Env: lookup(nil)})
		errs, ok := errors.AsType[Errors](err)
		if !ok || len(errs) != 1 || !strings.Contains(errs[0].Hint, want) || errs[0].Line != 1 {
			t.Errorf("%s: %v %+v", text, err, errs)
		}
	}
}

func TestSimilarNames_F_CFG_1(t *testing.T) {
	for text, want := range map[string]bool{
		"backends: [{name: my-docs, command: x}, {name: my_docs, command: x}]":                 true,
		"backends: [{name: my-docs, command: x}, {name: my_docs, command: x, enabled: false}]": false,
		"backends: [{name: my-docs, command: x}, {name: mydocs, command: x}]":                  false,
	} {
		loaded, err := load(source{path: "g.yaml", data: []byte(text)}, Options{Env: lookup(nil)})
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(loaded.Warnings, "\n")
		warned := strings.Contains(got, "my-docs and my_docs differ in - and _ only")
		if warned != want || !want && got != "" {
			t.Errorf("%s: %q", text, got)
		}
	}
}

func TestLoginsOfClientsWithoutIdentity(t *testing.T) {
	const backend = "backends: [{name: notes, url: \"https://notes.example/mcp\", oauth: {per: %s}}]"
	for text, want := range map[string]bool{
		fmt.Sprintf(backend, "principal"):                                          true,
		fmt.Sprintf(backend, "gateway"):                                            false,
		fmt.Sprintf(backend, "principal") + "\nauth: {tokens: [0123456789abcdef]}": false,
	} {
		loaded, err := load(source{path: "g.yaml", data: []byte(text)}, Options{Env: lookup(nil)})
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(loaded.Warnings, "\n")
		warned := strings.Contains(got, "g.yaml:1: backends[0].oauth.per: auth has no tokens")
		if warned != want || !want && got != "" {
			t.Errorf("%s: %q", text, got)
		}
	}
}
