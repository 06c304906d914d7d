package config

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The forms of lines that docker compose reads.
func TestEnvFileSyntax(t *testing.T) {
	got, err := ParseEnvFile([]byte("\xef\xbb\xbf# a comment\nA=1\nexport B = two words # comment\r\n" +
		"C='$A #'\nD=\"line\\none $A\"\nE=\nF=\"two\nlines\"\nG=${A}x\nA_b9=ok\n\n"))
	want := map[string]string{"A": "1", "B": "two words", "C": "$A #", "D": "line\none 1", "E": "",
		"F": "two\nlines", "G": "1x", "A_b9": "ok"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

// An invalid file gives an error that names the line and contains no text of the file.
func TestEnvFileErrors(t *testing.T) {
	for text, want := range map[string]string{
		"A=1\nhunter2hunter2\n":               ":2: is not a line of the form NAME=value",
		"A=\"hunter2hunter2\n":                ":1: is not a line of the form NAME=value",
		"A=1\nB=\"x\ny\"\nC D hunter2=1\nE=1": ":4: is not a line of the form NAME=value",
		"hunter2-hunter2=1":                   "is not",
		"a.hunter2=1":                         ":1: is not a line of the form NAME=value",
		"A=a\x00hunter2":                      ": the value of A contains a NUL character",
		strings.Repeat("A=1\n", maxNumberedLines) + "hunter2":     ": is not a line of the form NAME=value",
		"A=" + strings.Repeat("1", maxNumberedText) + "\nhunter2": ": is not a line of the form NAME=value",
	} {
		all, err := ParseEnvFile([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "hunter") {
			t.Errorf("%.40q: %v, %v; want %q", text, all, err, want)
		}
	}
}

func TestEnvFileLine(t *testing.T) {
	for value, want := range map[string]string{
		"ghp_0123/+=": "A=ghp_0123/+=\n",
		"":            "A=\n",
		"pa$word":     "A='pa$word'\n",
		"two words":   "A='two words'\n",
		"x # y":       "A='x # y'\n",
		" padded ":    "A=' padded '\n",
		"it's":        "A=\"it's\"\n",
		"one\ntwo":    "A='one\ntwo'\n",
		`a'b $c "d`:   `A="a'b \$c \"d"` + "\n",
	} {
		if got, err := EnvFileLine("A", value); got != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", value, got, err, want)
		}
	}
	for name, value := range map[string]string{"": "x", "A B": "x", "1": "x", "A": "nul\x00"} {
		if got, err := EnvFileLine(name, value); err == nil ||
			strings.Contains(err.Error(), "nul") {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
}

func FuzzEnvFileLine(f *testing.F) {
	for _, value := range []string{"a", "'", `"\`, "$A\n", "\r\n", "#", `\n'"$`, "\ufeff", `\$'`} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		line, err := EnvFileLine("A", value)
		if err != nil {
			return
		}
		all, err := ParseEnvFile([]byte("X=1\n" + line + line + "Y=2\n"))
		want := map[string]string{"X": "1", "A": value, "Y": "2"}
		if diff := cmp.Diff(want, all); diff != "" || err != nil {
			t.Errorf("%q: %q: %v %s", value, line, err, diff)
		}
	})
}

func TestEnvFileTooLong(t *testing.T) {
	dir := writeFiles(t, map[string]string{"a.env": strings.Repeat("#", maxEnvFile+1)})
	loaded, err := loadIn(dir, "backends: [{name: a, command: x, env_file: a.env}]",
		Options{Env: lookup(nil), Sources: (&testSources{}).access()})
	if err != nil {
		t.Fatal(err)
	}
	if got := loaded.Config.Backends[0].Misconfigured; !strings.HasSuffix(got,
		"a.env: it is longer than 1024 KiB") {
		t.Error(got)
	}
}

func FuzzEnvFile(f *testing.F) {
	f.Add([]byte("A=1\nexport B='x'\nC=\"$A\\n\"\n# c\nD: e"))
	f.Add([]byte("=\n\"\n'"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<12 {
			return
		}
		all, err := ParseEnvFile(data)
		for name, value := range all {
			if name == "" || strings.ContainsAny(name+value, "\x00") ||
				strings.ContainsAny(name, "=\n") {
				t.Errorf("%q: %q=%q", data, name, value)
			}
		}
		if err != nil && len(err.Error()) > 200 {
			t.Errorf("%q: %v", data, err)
		}
	})
}

// For ${VAR} the environment of the gateway takes precedence, also if the variable is empty, then
// the file of the backend, then the file at the top level.
func TestEnvFilePrecedence(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"top.env":     "A=top\nB=top\nC=top\nEMPTY=top\nPORT=7\nNAME=a.env\n",
		"conf/a.env":  "B=backend\nC=backend\n",
		"elsewhere.e": "A=elsewhere",
	})
	vars := map[string]string{"C": "environment", "EMPTY": "", "HOME": dir}
	o := Options{Env: lookup(vars), Sources: (&testSources{}).access()}
	const text = `
env_file: top.env
listen: 127.0.0.1:${PORT}
backends:
- {name: a, command: x, env: {V: "${A} ${B} ${C} ${EMPTY:-default} ${EMPTY}"}, env_file: "conf/${NAME}"}
- {name: b, command: x, env: {V: "${A} ${B} ${C}"}}
- {name: c, url: https://h, headers: {V: "${B}"}, env_file: ~/conf/a.env}`
	loaded, err := loadIn(dir, text, o)
	if err != nil {
		t.Fatal(err)
	}
	c := loaded.Config
	if c.Listen != "127.0.0.1:7" || c.EnvFile != filepath.Join(dir, "top.env") ||
		c.Backends[0].EnvFile != filepath.Join(dir, "conf", "a.env") {
		t.Errorf("%+v", c)
	}
	if got, want := c.Backends[0].Env["V"], "top backend environment default "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := c.Backends[1].Env["V"], "top top environment"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := c.Backends[2].Headers["V"], "backend"; got != want || c.Backends[2].Env != nil {
		t.Errorf("%q, want %q; %q", got, want, c.Backends[2].Env)
	}
	vars["GATEWAY_ENV_FILE"] = "elsewhere.e"
	vars["PORT"] = "8"
	loaded, err = loadIn(dir, strings.Replace(text, "env_file: top.env", "env_file: missing", 1), o)
	if err != nil {
		t.Fatal(err)
	}
	if got := loaded.Config.Backends[1].Misconfigured; !strings.Contains(got, "variable B") ||
		loaded.Config.EnvFile != filepath.Join(dir, "elsewhere.e") {
		t.Errorf("%q, %s", got, loaded.Config.EnvFile)
	}
	vars["GATEWAY_ENV_FILE"] = "missing"
	if _, err := loadIn(dir, text, o); err == nil ||
		!strings.Contains(err.Error(), "GATEWAY_ENV_FILE: "+dir+"/missing: no such file") {
		t.Error(err)
	}
}

// The program of a backend gets the variables of its file. env takes precedence over inherit_env,
// and inherit_env over the file. The file at the top level is only for ${VAR} and inherit_env.
func TestEnvFileOfProgram(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"top.env": "TOP=top\nINHERITED_TOP=top\n",
		"a.env":   "FILE=file\nBOTH=file\nINHERITED=file\nINHERITED_FILE=file\nPATH=/file",
	})
	loaded, err := loadIn(dir, `
env_file: top.env
backends:
- name: a
  command: x
  env: {BOTH: env, ONLY: "${FILE}"}
  inherit_env: [INHERITED, INHERITED_FILE, INHERITED_TOP, UNKNOWN]
  env_file: a.env
- {name: b, command: x, inherit_env: [INHERITED_TOP]}
- {name: c, command: x}`,
		Options{Env: lookup(map[string]string{"INHERITED": "environment", "FILE": "environment"}),
			Sources: (&testSources{}).access()})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []map[string]string{
		// INHERITED is not here, so that inherit_env applies.
		{"BOTH": "env", "ONLY": "environment", "FILE": "file", "INHERITED_FILE": "file",
			"INHERITED_TOP": "top", "PATH": "/file"},
		{"INHERITED_TOP": "top"},
		nil,
	} {
		if got := loaded.Config.Backends[i].Env; !maps.Equal(got, want) {
			t.Errorf("%d: %v, want %v", i, got, want)
		}
	}
}

// The file of a disabled backend is not read.
func TestEnvFileOfDisabledBackend(t *testing.T) {
	dir := writeFiles(t, map[string]string{"a.env": "A=1\nON=false", "b.env": "A=1\nON=true"})
	loaded, err := loadIn(dir, `
backends:
- {name: a, enabled: false, command: x, env_file: a.env}
- {name: b, enabled: "${ON}", command: x, env_file: b.env}`,
		Options{Env: lookup(nil), Sources: (&testSources{}).access()})
	if err != nil {
		t.Fatal(err)
	}
	if all := loaded.Files(); len(all) != 1 || all[0] != filepath.Join(dir, "b.env") {
		t.Errorf("the files %q were read", all)
	}
	if b := loaded.Config.Backends; b[0].Enabled || !b[1].Enabled {
		t.Errorf("%+v", b)
	}
}

// A change of a file changes the backends that use it.
func TestEnvFileChange(t *testing.T) {
	read := func(content string) *Config {
		t.Helper()
		dir := writeFiles(t, map[string]string{"a.env": content})
		loaded, err := loadIn(dir, `
backends:
- {name: a, command: x, env_file: "`+filepath.Join(dir, "a.env")+`"}
- {name: b, command: x}`, Options{Env: lookup(nil), Sources: (&testSources{}).access()})
		if err != nil {
			t.Fatal(err)
		}
		loaded.Config.Backends[0].EnvFile = "a.env"
		return loaded.Config
	}
	c := Diff(read("A=1\nB=1"), read("A=2\nC=1"))
	if len(c.Changed) != 1 || c.Changed[0].Effect != Restarts ||
		strings.Join(c.Changed[0].Keys, " ") != "env.A env.B env.C" {
		t.Errorf("%+v", c)
	}
}
