package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mcpgateway/internal/config"
)

// A relative path in the configuration is relative to the working directory. If it does not exist,
// the error has the absolute path, the line and the key.
func TestMissingPaths(t *testing.T) {
	const relative = "hint: a relative path is relative to the folder in which the gateway is started"
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for name, text := range map[string]string{"file": "", "cert.pem": "no certificate",
		"key.pem": "no key"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	remote := httptest.NewTLSServer(nil)
	defer remote.Close()
	backends := "backends:\n- name: demo\n  embedded: demo\n"
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, tt := range map[string]struct {
		text string
		code int
		want []string
	}{
		"cert": {"tls:\n  cert: none.pem\n  key: key.pem\n", exitUsage,
			[]string{":3: tls.cert: " + at("none.pem") + ": ", relative}},
		"key": {"tls:\n  cert: cert.pem\n  key: sub/none.pem\n", exitUsage,
			[]string{":4: tls.key: " + at("sub/none.pem") + ": ", relative}},
		"an absolute": {"tls: {cert: /none.pem, key: /none.pem}\n", exitUsage,
			[]string{":2: tls.cert: /none.pem: ", "hint: tls.cert and tls.key name PEM files"}},
		"no certificate": {"tls:\n  cert: cert.pem\n  key: key.pem\n", exitUsage,
			[]string{":2: tls: ", "hint: tls.cert and tls.key name PEM files"}},
		"audit": {"audit:\n  file: file/audit.jsonl\n", exitUsage,
			[]string{":3: audit.file: " + at("file/audit.jsonl") + ": ", relative}},
		"ca": {backends + "- name: web\n  url: " + remote.URL + "\n  tls: {ca: ca.pem}\n",
			exitFailed,
			[]string{":7: backend \"web\": tls.ca: " + at("ca.pem") + ": ",
				" tls.ca: " + at("ca.pem")}},
		"client": {backends + "- name: web\n  url: " + remote.URL +
			"\n  tls: {cert: c.pem, key: k.pem}\n", exitFailed,
			[]string{":7: backend \"web\": tls.cert: " + at("c.pem") + ": ",
				":7: backend \"web\": tls.key: " + at("k.pem") + ": "}},
		"cwd": {backends + "- name: local\n  command: cat\n  cwd: nowhere\n", exitFailed,
			[]string{":7: backend \"local\": cwd: " + at("nowhere") + ": ",
				"its cwd " + at("nowhere") + " is not a directory"}},
		"state": {backends + "state: file\n", exitOK,
			[]string{":5: state: " + at("file") + ": not a directory"}},
		"below state": {backends + "state: file/sub\n", exitOK,
			[]string{":5: state: " + at("file/sub") + ": not a directory"}},
		"new state": {backends + "state: new\n", exitOK, nil},
		"off": {backends +
			"- name: web\n  url: https://h\n  enabled: false\n  tls: {ca: ca.pem}\n", exitOK, nil},
	} {
		t.Run(name, func(t *testing.T) {
			first := "state: none\n"
			if strings.Contains(tt.text, "state: ") {
				first = "\n"
			}
			path := file(t, "g.yaml", first+tt.text)
			code, stdout, stderr := runCommand(t, "check", "-c", path)
			text := strings.Join(strings.Fields(stdout+stderr), " ")
			for _, want := range tt.want {
				if strings.HasPrefix(want, ":") {
					want = path + want
				}
				if want = strings.Join(strings.Fields(want), " "); !strings.Contains(text, want) {
					t.Errorf("no %q in\n%s%s", want, stdout, stderr)
				}
			}
			if code != tt.code || tt.want == nil && strings.Contains(text, "ca.pem") {
				t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
			}
		})
	}
}

// An audit file that is also another file of the gateway is an error, even if the paths differ.
func TestAuditFileConflicts(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	t.Setenv("HOME", dir)
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"cert.pem", "ca.pem", "other"} {
		if err := os.WriteFile(at(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("ca.pem", at("link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(at("cert.pem"), at("hard")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ audit, want string }{
		{"g.yaml", "names the configuration file itself, " + at("g.yaml")},
		{"./x/../g.yaml", "names the configuration file itself"},
		{"~/g.yaml", "names the configuration file itself"},
		{at("g.yaml"), "names the configuration file itself"},
		{"cert.pem", "names the same file as tls.cert, " + at("cert.pem")},
		{"hard", "names the same file as tls.cert"},
		{"~/key.pem", "names the same file as tls.key"},
		{"link", "names the same file as tls.ca of the backend b"},
		{"state/token", "names the file with the token for auto in auth.tokens"},
		{"other", ""},
		{"none", ""},
	} {
		text := "audit: { file: '" + c.audit + "' }\ntls: { cert: cert.pem, key: ~/key.pem }\n" +
			"listen: 127.0.0.1:0\nauth: { tokens: [auto] }\nstate: state\n" +
			"backends: [{name: b, url: 'https://h', tls: { ca: ca.pem }}]\n"
		if err := os.WriteFile(at("g.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := loadFrom(config.Options{Path: "g.yaml"})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.audit, err)
		case c.want != "" &&
			(err == nil || !strings.Contains(err.Error(), "audit.file") ||
				!strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v; want %q", c.audit, err, c.want)
		}
	}
}

// If an unknown flag looks like a key of the configuration, the hint shows where the key must be
// written. The value is not shown.
func TestHintsForKeysAsFlags(t *testing.T) {
	for flag, want := range map[string]string{
		"--auth-tokens=hunter2":   "hint: auth.tokens cannot be set by a flag or a variable; write it into the configuration file",
		"--audit-file=hunter2":    "hint: audit.file has no flag: write it into the configuration file, or set GATEWAY_AUDIT_FILE",
		"--nothing-like=hunter2":  "hint: gateway --help",
		"--log-levels-no=hunter2": "hint: gateway --help",
	} {
		code, _, stderr := runCommand(t, flag)
		if code != exitUsage || !strings.Contains(stderr, want) ||
			strings.Contains(stderr, "hunter2") {
			t.Errorf("%s: %d %s", flag, code, stderr)
		}
	}
}
