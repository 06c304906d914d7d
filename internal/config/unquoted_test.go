package config

import (
	"errors"
	"strings"
	"testing"
)

// The error about an unquoted value that begins with * explains the cause, whatever text follows
// the *. The error does not contain the value.
func TestValuesThatBeginWithStar(t *testing.T) {
	const head = "backends:\n- name: a\n  command: x\n  tools:\n"
	for _, c := range []struct {
		text string
		line int
	}{
		{head + "    deny: [*]\n", 5},
		{head + "    deny: [*.hunter]\n", 5},
		{head + "    deny: [**]\n", 5},
		{head + "    deny: [ *-hunter ]\n", 5},
		{head + "    deny: [ok, *hunter bar]\n", 5},
		{head + "    deny: {*}\n", 5},
		{head + "    deny: *\n", 5},
		{head + "    deny: *hunter:x\n", 5},
		{head + "    deny:\n    - ok\n    - *hunter\n", 7},
		{head + "    deny:\n    - ok\n    - *hunter*\n    - b\n", 7},
		{head + "    deny:\n    - *\n    - b\n", 6},
		{head + "    deny: [*,\n      b]\n", 5},
		{head + "    *hunter: x\n", 5},
		{"{backends: [{name: a, command: x,\n tools: {deny: [*]}}]}", 2},
		{`{"backends": [{"name": "a", "command": "x", "tools": {"deny": [*hunter]}}]}`, 1},
	} {
		_, err := load(source{path: "g.yaml", data: []byte(c.text)}, Options{Env: lookup(nil)})
		errs, ok := errors.AsType[Errors](err)
		if !ok || len(errs) != 1 {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		e := errs[0]
		if e.Line != c.line ||
			!strings.Contains(e.Problem, "a value that begins with * must be quoted") ||
			!strings.Contains(e.Hint, `deny: ["*"]`) ||
			strings.Contains(e.Error()+e.Hint, "hunter") {
			t.Errorf("%q: %v (%s)", c.text, e, e.Hint)
		}
	}
	_, err := load(source{path: "g.yaml", data: []byte(head + "    deny: [&]\n")},
		Options{Env: lookup(nil)})
	if err == nil || !strings.Contains(err.Error(), "begins with & must be quoted") {
		t.Errorf("&: %v", err)
	}
}

// The errors of the YAML library that a wrong indentation causes have a hint. Their line is that of
// the entry with the key, or that of the key.
func TestWrongIndentation(t *testing.T) {
	const head = "backends:\n"
	for text, more := range map[string]string{
		head + "- name: a\n  url: x\n command: y\n":          "the end of a quoted value",
		head + "  - name: a\n    url: x\n - name: b\n":       "the end of a quoted value",
		head + "  - name: a\n  url: http://x\n":              "",
		head + "- name: a\n    url: x\n":                     "a colon and a space",
		head + "- name: a\n  command: x: y\n":                "a colon and a space",
		head + "- name: a\n  command: \"x\" y\n  args: []\n": "the end of a quoted value",
	} {
		_, err := load(source{path: "g.yaml", data: []byte(text)}, Options{Env: lookup(nil)})
		errs, ok := errors.AsType[Errors](err)
		if !ok || len(errs) != 1 || !strings.Contains(errs[0].Hint, "indented") ||
			!strings.Contains(errs[0].Hint, more) ||
			(more == "") != strings.HasSuffix(errs[0].Hint, "begin in the same column") {
			t.Errorf("%q: %v (%v)", text, err, errs)
		}
	}
}
