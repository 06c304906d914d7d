package config

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The form of a list in a hint is valid in JSON and YAML.
func TestListHints(t *testing.T) {
	for _, c := range []struct{ before, wrong, after string }{
		{`{"backends": [{"name": "a", "command": "x", "args": `, `"-y"`, `}]}`},
		{`{"mcpServers": {"a": {"command": "x", "args": `, `"-y"`, `}}}`},
		{`{"backends": `, `{}`, `}`},
		{"backends:\n- name: a\n  command: x\n  args: ", "-y", "\n"},
		{"backends: ", "{}", "\n"},
	} {
		path := filepath.Join(t.TempDir(), "x.json")
		try := func(value string) error {
			if err := os.WriteFile(path, []byte(c.before+value+c.after), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Load(Options{Path: path, Env: lookup(nil)})
			return err
		}
		errs, ok := errors.AsType[Errors](try(c.wrong))
		if !ok {
			t.Fatalf("%s%s%s is accepted", c.before, c.wrong, c.after)
		}
		form := regexp.MustCompile(`\[.*\]`).FindString(errs[0].Hint)
		if form == "" {
			t.Errorf("%s: the hint is %q", c.wrong, errs[0].Hint)
		}
		if form != "" && form[1] == '{' {
			form = strings.NewReplacer("URL", "https://h", "NAME", "a").Replace(form)
		}
		if err := try(form); err != nil {
			t.Errorf("%s%s%s: %v", c.before, form, c.after, err)
		}
	}
}
