package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"mcpgateway/internal/config"
	"mcpgateway/internal/logging"
)

// servedWithAutoToken runs a gateway with auth.tokens: [auto] until it logs the command for
// clients, and returns that line.
func servedWithAutoToken(t *testing.T, state string) (line string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	text := "listen: 127.0.0.1:0\nstate: \"" + state +
		"\"\nauth: { tokens: [auto] }\nbackends: [{ name: demo, embedded: demo }]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return serveUntilCommand(t, "serve", "-c", file)
}

// The token is created once, with mode 0600. It is not logged, and the logged command reads it.
func TestAutoToken_F_SEC_6(t *testing.T) {
	state := filepath.Join(t.TempDir(), "it's a state")
	line := servedWithAutoToken(t, state)
	path := filepath.Join(state, autoTokenFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(string(text))
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || len(token) != 64 {
		t.Errorf("the token has %d characters, its file is %v, %v", len(token), info.Mode(), err)
	}
	if strings.Contains(line, token) {
		t.Errorf("the token is in the log: %s", line)
	}
	_, command, _ := strings.Cut(strings.TrimSuffix(line, `"`), "claude ")
	out, err := exec.Command("sh", "-c",
		`claude() { printf '%s\n' "$@"; }; claude `+unquoted(command)).CombinedOutput()
	if args := strings.Split(strings.TrimSpace(string(out)), "\n"); err != nil ||
		args[len(args)-1] != "Authorization: Bearer "+token {
		t.Errorf("%s\n%s%v", line, out, err)
	}
	servedWithAutoToken(t, state)
	if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, text) {
		t.Errorf("the next start has another token: %v", err)
	}
	if entries, err := os.ReadDir(state); err != nil ||
		len(entries) != 1+countNot(entries, autoTokenFile) {
		t.Errorf("%v %v", entries, err)
	}
}

// unquoted reverts the escaping of backslashes in the log.
func unquoted(text string) string { return strings.ReplaceAll(text, `\\`, `\`) }

func countNot(entries []os.DirEntry, name string) (n int) {
	for _, e := range entries {
		if e.Name() != name && !strings.HasSuffix(e.Name(), ".tmp") {
			n++
		}
	}
	return n
}

// On a terminal the command contains the token itself.
func TestCommandOnTerminalHasToken_F_SEC_6(t *testing.T) {
	if got, want := claudeCommand("http://h/mcp", "secret"),
		"claude mcp add -s user --transport http gateway http://h/mcp -H 'Authorization: Bearer 'secret"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestWrongAutoTokens_F_SEC_6(t *testing.T) {
	var log bytes.Buffer
	dir := t.TempDir()
	c := &config.Config{
		StateDir: dir,
		Auth: config.Auth{Tokens: []config.Token{
			{Text: "0123456789abcdef"}, {Text: config.AutoToken, Name: "me"},
		}},
	}
	start := func() *autoToken {
		return &autoToken{log: logging.New(&log, logging.Options{Mask: logging.NewMask()})}
	}
	running := start()
	first, err := running.tokens(&config.Loaded{Source: "f", Config: c}, c)
	if err != nil || len(first) != 2 || first[0].Text != "0123456789abcdef" ||
		len(first[1].Text) != 64 || first[1].Name != "me" ||
		c.Auth.Tokens[1].Text != config.AutoToken {
		t.Fatalf("%v, %v", first, err)
	}
	if second, err := start().tokens(&config.Loaded{Source: "f", Config: c}, c); err != nil ||
		second[1] != first[1] {
		t.Errorf("another token: %v", err)
	}
	path := filepath.Join(dir, autoTokenFile)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	log.Reset()
	if _, err := start().tokens(&config.Loaded{Source: "f", Config: c}, c); err != nil ||
		!strings.Contains(log.String(), "token readable by other users") {
		t.Errorf("a token that others can read: %v\n%s", err, log.String())
	}
	for what, text := range map[string]string{
		"empty": "", "short": "abc\n", "two lines": first[1].Text + "\n" + first[1].Text,
		"large": strings.Repeat("x", maxAutoTokenFile+1),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := start().tokens(&config.Loaded{Source: "f", Config: c}, c); err == nil ||
			!strings.Contains(err.Error(), "auth.tokens[1]") ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", what, err)
		}
		if reloaded, err := running.tokens(&config.Loaded{Source: "f", Config: c},
			c); err != nil || reloaded[1] != first[1] {
			t.Errorf("%s: the tokens after a reload are %v, %v", what, reloaded, err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := start().tokens(&config.Loaded{Source: "f", Config: c}, c); err == nil {
		t.Error("a directory is accepted as the file with the token")
	}
	c.StateDir = ""
	if _, err := start().tokens(&config.Loaded{Source: "f", Config: c}, c); err == nil ||
		!strings.Contains(err.Error(), "state") {
		t.Errorf("no state directory: %v", err)
	}
}

// Without a token the log has a warning and the way to create one.
func TestLogWithoutToken_F_SEC_6(t *testing.T) {
	for tokens, want := range map[string]int{"[]": 1, "[0123456789abcdef]": 0, "[auto]": 0} {
		dir := t.TempDir()
		file := filepath.Join(dir, "gateway.yaml")
		text := "listen: 127.0.0.1:0\nstate: " + dir + "\nauth: { tokens: " + tokens +
			" }\nbackends: [{ name: demo, embedded: demo }]\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		all := strings.Join(serveLogLines(t, "serve", "-c", file), "\n")
		if got := strings.Count(all,
			"no token configured: access for every user and program of this machine"); got != want {
			t.Errorf("%s: the log has it %d times:\n%s", tokens, got, all)
		}
	}
}
