//go:build unix

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWritableByOthers_F_SEC_2(t *testing.T) {
	for _, tc := range []struct {
		file, dir os.FileMode
		want      string
	}{
		{0o600, 0o755, ""},
		{0o644, 0o755, ""},
		{0o666, 0o755, "the file can be written by every user"},
		{0o600, 0o777, "can be written by every user"},
		{0o600, 0o777 | os.ModeSticky, ""},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "g.yaml")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, tc.file); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, tc.dir); err != nil {
			t.Fatal(err)
		}
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			t.Fatal(err)
		}
		loaded, err := Load(Options{Path: path, Env: lookup(nil)})
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(loaded.Warnings, "\n")
		if strings.Contains(got, "written by") != (tc.want != "") ||
			!strings.Contains(got, tc.want) || strings.Count(got, "chmod") > 1 ||
			tc.want != "" && !strings.Contains(got, "run chmod go-w "+real) {
			t.Errorf("%v %v: %q", tc.file, tc.dir, got)
		}
	}
}

// A file of env_file that other users can read causes one warning, with the mode to set. It is read
// nevertheless.
func TestReadableEnvFileIsReported(t *testing.T) {
	for mode, want := range map[os.FileMode]string{
		0o600: "", 0o400: "", 0o644: "run chmod 600", 0o604: "run chmod 600",
	} {
		dir := writeFiles(t, map[string]string{"a.env": "A=1\n"})
		path := filepath.Join(dir, "a.env")
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		loaded, err := loadIn(dir, `
env_file: a.env
backends:
- {name: a, command: x, args: ["${A}", "${command:c}"], env_file: a.env}
- {name: b, command: x, args: ["${A}"], env_file: a.env}`,
			Options{Env: lookup(nil), Sources: (&testSources{}).access()})
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(loaded.Warnings, "\n")
		if strings.Count(got, path+": ") != strings.Count(want, "chmod") ||
			want != "" && !strings.Contains(got, want+" "+path) ||
			loaded.Config.Backends[1].Args[0] != "1" {
			t.Errorf("%v: %q", mode, got)
		}
	}
}

func TestForeignOwner_F_SEC_2(t *testing.T) {
	info, err := os.Stat(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	me := os.Geteuid()
	if foreignOwner(info, me) != "" || WritableByOthers(info) != "" {
		t.Error("a folder of our own")
	}
	if got := foreignOwner(info, me+1); (got == "") != (me == 0) { // root can write all files
		t.Errorf("as another user: %q", got)
	}
}

func TestLiteralSecrets_F_CLI_13(t *testing.T) {
	for entry, want := range map[string]string{
		`url: https://h, headers: {Authorization: "Bearer hunter2hunter2"}`: "headers.Authorization: a secret is written",
		`url: https://u:hunter2@h`:                                  "url: a secret is written",
		`url: https://h, headers: {Authorization: "Bearer ${T}"}`:   "",
		`url: "https://u:${T}@h"`:                                   "",
		`url: https://u@h, headers: {X-Name: x}`:                    "",
		`url: https://h, headers: {X-Goog-Api-Key: hunter2hunter2}`: "headers.X-Goog-Api-Key: a secret is written",
		`url: https://h, headers: {Cookie: "sid=hunter2hunter2"}`:   "headers.Cookie: a secret is written",
		`url: "https://h/?api_key=hunter2hunter2"`:                  "url: a secret is written",
		`url: "https://h/?page=2", headers: {X-Team: "platform"}`:   "",
	} {
		text := "backends:\n- {name: a, " + entry + "}\n"
		loaded, err := load(source{path: "g.yaml", data: []byte(text)},
			Options{Env: lookup(map[string]string{"T": "s3cr3t"})})
		if err != nil {
			t.Errorf("%s: %v", entry, err)
			continue
		}
		got := strings.Join(loaded.Warnings, "\n")
		if (got == "") != (want == "") || !strings.Contains(got, want) ||
			strings.Contains(got, "hunter2") || len(loaded.Warnings) > 1 {
			t.Errorf("%s: %q", entry, got)
		}
	}
}
