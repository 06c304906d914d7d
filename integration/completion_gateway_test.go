//go:build linux

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A completer completes command lines as a shell of a user does.
type completer struct {
	t   *testing.T
	s   *setup
	dir string // working directory
}

// words returns the words that the gateway proposes for the last of args.
func (c completer) words(args ...string) []string {
	c.t.Helper()
	cmd := exec.Command(gateway(c.t), append([]string{"__complete"}, args...)...)
	cmd.Env, cmd.Dir = c.s.env(), c.dir
	r := runCommand(c.t, cmd)
	if r.code != 0 {
		c.t.Fatalf("%q: exit code %d\n%s", args, r.code, r.err)
	}
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	return lines[:len(lines)-1] // the last is a directive
}

func (c completer) expect(want []string, args ...string) {
	c.t.Helper()
	if got := c.words(args...); !slices.Equal(got, want) {
		c.t.Errorf("%q: %q\nwant %q", args, got, want)
	}
}

// newCompleter returns a completer for a configuration with backends of each kind, after one run.
// ran is a file that exists if a backend or a command of the configuration was started.
func newCompleter(t *testing.T) (c completer, ran string) {
	t.Helper()
	s := newSetup(t, map[string]any{
		"profiles": map[string]any{"reader": map[string]any{
			"tools": map[string]any{"allow": []string{"add"}}}, "writer": map[string]any{}},
		"auth": map[string]any{"tokens": []map[string]any{
			{"name": "alice", "token": "${ALICE_TOKEN}"}}},
	}, backend{Name: "demo", Embedded: "demo"})
	run := exec.Command(gateway(t), "-c", s.config, "tools")
	run.Env, run.Dir = s.env("ALICE_TOKEN="+secret(t, "ALICE_TOKEN")), s.dir
	if out, err := combinedOutput(t, run); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ran = filepath.Join(s.dir, "ran")
	text, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	more := "    - {name: program, command: touch, args: [" + ran + "]}\n" +
		"    - {name: docs, url: 'https://docs.invalid/mcp', headers: " +
		"{Authorization: 'Bearer ${command:touch " + ran + "}'}}\n" +
		"    - {name: notes, url: 'https://notes.invalid/mcp', headers: " +
		"{Authorization: 'Bearer ${keyring:notes}'}}\n" +
		"    - {name: unused, command: 'true', enabled: false}\n"
	whole := strings.Replace(string(text), "backends:\n", "backends:\n"+more, 1)
	if err := os.WriteFile(s.config, []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	return completer{t, s, s.dir}, ran
}

// Names come from the configuration and from stored lists. Nothing is started, and no secret is
// read.
func TestCompletionOfNames(t *testing.T) {
	t.Parallel()
	c, ran := newCompleter(t)
	for _, test := range []struct {
		want []string
		args string
	}{
		{[]string{"docs", "notes"}, "login "},
		{[]string{"docs", "notes"}, "logout "},
		{[]string{"program", "docs", "notes", "demo"}, "approve "},
		{[]string{"program", "docs", "notes", "demo"}, "tools --backend "},
		{[]string{"add", "echo", "now"}, "tools "},
		{[]string{"add", "echo", "now"}, "call "},
		{[]string{"add"}, "call --profile reader "},
		{nil, "call --profile nobody "},
		{[]string{"a=", "b="}, "call add "},
		{[]string{"b="}, "call add a=1 "},
		{nil, "call nothing "},
		{[]string{"reader", "writer"}, "serve --profile "},
		{[]string{"reader", "writer"}, "--profile "},
		{[]string{"alice"}, "login docs --principal "},
		{[]string{"debug", "info", "warn", "error"}, "--log-level "},
		{[]string{"text", "json"}, "serve --log-format "},
		{[]string{"list", "rm", "set"}, "help secret "},
		{nil, "serve "},
		{nil, "check "},
		{nil, "health "},
	} {
		args := strings.Split(test.args, " ")
		c.expect(test.want, append([]string{"-c", c.s.config}, args...)...)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("completion has started a program")
	}
}

// Completion never asks for an approval, and does not use a file that is not approved. An invalid
// file proposes nothing, and prints nothing.
func TestCompletionWithoutUsableConfiguration(t *testing.T) {
	t.Parallel()
	c, _ := newCompleter(t)
	c.expect(nil, "login", "")
	c.expect(nil, "-c", filepath.Join(c.dir, "missing.yaml"), "login", "")
	invalid := filepath.Join(c.dir, "invalid.yaml")
	if err := os.WriteFile(invalid, []byte("backends: {"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(gateway(t), "__completeNoDesc", "-c", invalid, "call", "")
	cmd.Env, cmd.Dir = c.s.env(), c.dir
	out, err := combinedOutput(t, cmd)
	if err != nil || strings.Contains(string(out), "invalid.yaml") {
		t.Errorf("%v\n%s", err, out)
	}
}

// The script for bash works in bash, with the package bash-completion.
func TestCompletionInBash(t *testing.T) {
	const library = "/usr/share/bash-completion/bash_completion"
	if _, err := os.Stat(library); err != nil && os.Getenv("TEST_BASH_COMPLETION") == "" {
		t.Skip("needs the package bash-completion; TEST_BASH_COMPLETION=1 makes this an error")
	}
	t.Parallel()
	c, _ := newCompleter(t)
	script := `. ` + library + `; . <(gateway completion bash)
		complete -p gateway
		COMP_WORDS=(gateway "$@") COMP_CWORD=$# COMP_LINE="gateway $*" COMP_TYPE=9 COMP_KEY=9
		COMP_POINT=${#COMP_LINE}
		__start_gateway 2>/dev/null; printf '<%s>\n' "${COMPREPLY[@]}"`
	for last, want := range map[string]string{
		"e": "<echo>\n", "n": "<now>\n", "": "<add>\n<echo>\n<now>\n",
	} {
		cmd := exec.Command("bash", "-c", script, "bash", "-c", c.s.config, "call", last)
		path := filepath.Dir(gateway(t)) + ":" + os.Getenv("PATH")
		cmd.Env, cmd.Dir = append(c.s.env(), "PATH="+path), c.dir
		out, err := combinedOutput(t, cmd)
		if got := string(out); err != nil || !strings.HasSuffix(got, want) ||
			!strings.Contains(got, "__start_gateway gateway\n") || strings.Contains(got, "<>") {
			t.Errorf("gateway call %s: %v\n%s", last, err, got)
		}
	}
}
