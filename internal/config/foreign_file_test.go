package config

import (
	"path/filepath"
	"strings"
	"testing"
)

// A gateway.yaml of another program is ignored with a warning. A file with a key of the gateway
// is used.
func TestForeignFileIsIgnored(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		foreign    bool
	}{
		{"Kubernetes",
			"apiVersion: v1\nkind: Gateway\nmetadata: {name: x}\nspec:\n  listen: x\nstatus: {}\n",
			true},
		{"documents", "---\n---\napiVersion: v1\n---\nkind: Gateway\n", true},
		{"template",
			"{{- if .Values.x }}\napiVersion: v1\nkind: Gateway\nspec:\n  limits: {{ .x }}\n{{- end }}\n",
			true},
		{"JSON", `{"apiVersion": "v1", "spec": {"backends": []}}`, true},
		{"list", "- hosts: all\n  tasks: []\n", true},
		{"ours", "apiVersion: v1\nlisten: 127.0.0.1:1\n", false},
		{"second document", "kind: x\n---\nbackends: []\n", false},
		{"mcpServers", `{"mcpServers": {}}`, false},
		{"another client's", "servers: {}\n", false},
		{"misspelt", "backens: []\n", false},
		{"broken", "kind: x\nbackends: [\n", false},
		{"broken JSON", `{"mcpServers": {`, false},
		{"empty", "# kind: x\n", false},
		{"long", "kind: x\n#" + strings.Repeat("x", foreignCheckLimit) + "\n", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := isForeign([]byte(tc.text)); got != tc.foreign {
				t.Fatalf("foreign: %v", got)
			}
			dir := t.TempDir()
			write(t, dir, map[string]string{"gateway.yaml": tc.text,
				"mcp-gateway/config.yaml": "state: mine\n"})
			asked := false
			loaded, err := Load(Options{
				Dir: dir, Env: lookup(map[string]string{"XDG_CONFIG_HOME": dir}),
				Approve: func(string,
					[]byte) error {
					asked = true
					return &Error{Problem: "not approved"}
				},
			})
			if asked == tc.foreign || (err == nil) != tc.foreign {
				t.Fatalf("approval asked for: %v, error: %v", asked, err)
			}
			if !tc.foreign {
				return
			}
			path, warned := filepath.Join(dir, "gateway.yaml"), 0
			for _, w := range loaded.Warnings {
				if strings.HasPrefix(w, path+": the file is not used") {
					warned++
				}
			}
			if loaded.Config.State != "mine" || loaded.Local || warned != 1 {
				t.Errorf("state %q, local %v, warnings %q", loaded.Config.State, loaded.Local,
					loaded.Warnings)
			}
		})
	}
	if loaded, err := Load(Options{Path: "", Dir: t.TempDir(), Env: lookup(nil)}); err != nil ||
		loaded.Source != "" {
		t.Errorf("Load without a file: %v", err)
	}
}
