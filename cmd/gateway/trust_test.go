//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mcpgateway/internal/config"
)

// writeProject changes to a working directory with a gateway.yaml, and sets an empty state
// directory.
func writeProject(t *testing.T, text string) (dir, state string) {
	t.Helper()
	dir, state = t.TempDir(), t.TempDir()
	t.Chdir(dir)
	t.Setenv("XDG_STATE_HOME", state)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(state, "none"))
	t.Setenv("GATEWAY_CONFIG", "")
	t.Setenv("GATEWAY_STATE", "")
	put(t, localFile, text)
	return dir, state
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// expect runs a command. It checks the exit code, and that the output contains all texts in want.
func expect(t *testing.T, code int, args string, want ...string) {
	t.Helper()
	got, out, stderr := runPiped(t, nil, strings.Fields(args)...).output()
	if got != code {
		t.Errorf("gateway %s: exit code %d, want %d\n%s%s", args, got, code, out, stderr)
	}
	for _, w := range want {
		if !strings.Contains(out+stderr, w) {
			t.Errorf("gateway %s: no %q in\n%s%s", args, w, out, stderr)
		}
	}
}

const demoText = "backends: [{name: demo, embedded: demo}]\n"

func TestWorkingDirectory_F_SEC_2(t *testing.T) {
	dir, _ := writeProject(t, demoText)
	expect(t, exitUsage, "check", "not approved",
		"hint: read the file, then run gateway trust '"+dir+
			"/gateway.yaml', or start the gateway with -c FILE")
	expect(t, exitUsage, "tools", "not approved")
	expect(t, exitUsage, "call echo", "not approved")
	expect(t, exitUsage, "check --diff", "not approved")
	expect(t, exitOK, "check -c gateway.yaml", "ok")

	expect(t, exitOK, "trust", "is approved")
	expect(t, exitOK, "check", "ok")
	expect(t, exitOK, "trust --list", filepath.Join(dir, localFile))
	put(t, localFile, demoText+"audit: {file: /tmp/x}\n")
	expect(t, exitUsage, "check", "not approved")
	put(t, localFile, demoText) // as if git restored an earlier version
	expect(t, exitOK, "check", "ok")
	expect(t, exitOK, "untrust", "no longer approved")
	expect(t, exitUsage, "check", "not approved")
	expect(t, exitFailed, "untrust", "is not approved")
}

// A client that starts the gateway in a folder without an approval gets the reason as an error
// response.
func TestStdioClientGetsReason_F_SEC_2(t *testing.T) {
	writeProject(t, demoText)
	_, answers, _ := runPiped(t, []string{initialize}).end()
	if len(answers) != 1 || !strings.Contains(answers[0], "gateway trust ") {
		t.Errorf("answers: %q", answers)
	}
}

// Neither the file nor the folder can change the directory of approvals.
func TestFileDoesNotApproveItself_F_SEC_2(t *testing.T) {
	dir, _ := writeProject(t, demoText+"state: mine\n")
	data := []byte(demoText + "state: mine\n")
	for _, state := range []string{"", "none", "mine"} {
		t.Setenv("GATEWAY_STATE", state)
		if err := (trustStore{filepath.Join(dir, "mine", "trust")}).add(localFile,
			data); err != nil {
			t.Fatal(err)
		}
		expect(t, exitUsage, "check", "not approved")
	}
	t.Setenv("GATEWAY_STATE", filepath.Join(dir, "mine")) // set by the user
	expect(t, exitOK, "check", "ok")
}

func TestImportedFileIsApproved_F_SEC_2(t *testing.T) {
	dir, _ := writeProject(t, "")
	if err := os.Remove(localFile); err != nil {
		t.Fatal(err)
	}
	put(t, "servers.json", `{"mcpServers": {"a": {"command": "true", "enabled": false}}}`)
	expect(t, exitOK, "import servers.json -o "+localFile, "wrote")
	data, err := os.ReadFile(localFile)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := trustStoreOf("").has(filepath.Join(dir, localFile), data); !ok {
		t.Errorf("not approved: %v", err)
	}
}

// A reload applies neither a change nor a new file without an approval.
func TestReload_F_SEC_2(t *testing.T) {
	writeProject(t, demoText)
	s := &configSource{}
	if _, err := s.reload(t.Context(), "", false); err == nil {
		t.Error("a new file was loaded")
	}
	if err := trustStoreOf("").add(localFile, []byte(demoText)); err != nil {
		t.Fatal(err)
	}
	loaded, err := s.reload(t.Context(), "", false)
	if err != nil || !loaded.Local {
		t.Fatalf("approved: %v", err)
	}
	put(t, localFile, demoText+"listen: 127.0.0.1:1\n")
	if _, err := s.reload(t.Context(), loaded.Source, loaded.Local); err == nil {
		t.Error("a change was applied")
	}
	if _, err := s.reload(t.Context(), loaded.Source, false); err != nil {
		t.Errorf("a file that was named: %v", err)
	}
}

func TestApprovals_F_SEC_2(t *testing.T) {
	dir, state := writeProject(t, demoText)
	s := trustStore{filepath.Join(state, "t")}
	for i := range keptApprovals + 2 {
		if err := s.add(localFile, fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil || len(entries) != keptApprovals {
		t.Errorf("%d records: %v", len(entries), err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", e.Name(), info.Mode(), err)
		}
	}
	last := fmt.Append(nil, keptApprovals+1)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	approved := func(file string) bool {
		ok, err := s.has(file, last)
		if err != nil {
			t.Error(err)
		}
		return ok
	}
	if !approved(filepath.Join(link, localFile)) {
		t.Error("the folder by another name is not approved")
	}
	if approved(filepath.Join(t.TempDir(), localFile)) {
		t.Error("another folder is approved")
	}
	_, path, _ := s.approvalOf(localFile, last)
	put(t, path, strings.Repeat(" ", maxApproval)+"{}")
	if approved(localFile) {
		t.Error("a record that is too long counts")
	}
}

func TestDescribeIsBounded_F_SEC_2(t *testing.T) {
	var b strings.Builder
	b.WriteString(
		"backends:\n- {name: evil, command: \"sh\\e[2J\", args: [-c, \"${X}\"], env: {NODE_OPTIONS: --require=x.js, API_KEY: s3cret}}\n" +
			"- {name: web, url: \"https://u:s3cret@h.example/mcp?k=s3cret\"}\n")
	fmt.Fprintf(&b, "- {name: long, command: \"${LONG:-%s}\"}\n",
		strings.Repeat("x", 100*maxDescribedLine))
	for i := range maxDescribed {
		fmt.Fprintf(&b, "- {name: b%d, command: x}\n", i)
	}
	b.WriteString("audit: {file: /home/u/.bashrc}\n")
	writeProject(t, b.String())
	_, _, stderr := runPiped(t, nil, "trust").output()
	for _, want := range []string{"evil starts: sh\uFFFD[2J -c ${X}", "NODE_OPTIONS=--require=x.js",
		"https://u:xxxxx@h.example/mcp", "more: read the file", "more characters: read the file"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("no %q in\n%s", want, stderr)
		}
	}
	for _, not := range []string{"s3cret", "\x1b"} {
		if strings.Contains(stderr, not) {
			t.Errorf("%q is shown", not)
		}
	}
	if len(stderr) > 20*maxDescribedLine {
		t.Errorf("%d bytes are shown", len(stderr))
	}
	lines, err := config.Describe(localFile, []byte("audit: {file: /home/u/.bashrc}"))
	if err != nil || len(lines) != 1 || !strings.Contains(lines[0], ".bashrc") {
		t.Errorf("%q %v", lines, err)
	}
}

// The approval of a file can be revoked after its folder was removed.
func TestUntrustInRemovedFolder(t *testing.T) {
	dir, _ := writeProject(t, demoText)
	gone := filepath.Join(dir, "sub", "folder")
	if err := os.MkdirAll(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(gone, localFile), demoText)
	file := filepath.Join(gone, localFile)
	if code, _, stderr := runPiped(t, nil, "trust", file).output(); code != exitOK {
		t.Fatalf("trust: %d\n%s", code, stderr)
	}
	if err := os.RemoveAll(filepath.Join(dir, "sub")); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := runPiped(t, nil, "untrust", file).output(); code != exitOK {
		t.Errorf("untrust: %d\n%s", code, stderr)
	}
}

// An invalid configuration is not approved, and the errors are printed.
func TestTrustRejectsInvalidConfiguration(t *testing.T) {
	dir, _ := writeProject(t, "apiVersion: v1\nkind: Gateway\n")
	expect(t, exitUsage, "trust", "gateway.yaml:1: apiVersion: unknown key")
	put(t, localFile, demoText+"lsten: x\n")
	expect(t, exitUsage, "trust", `gateway.yaml:2: lsten: unknown key (did you mean "listen"?)`)
	put(t, "passwd", "root:x:0:0:root:/root:/bin/sh\nme:x:1:1:me:/:/bin/sh\n")
	expect(t, exitUsage, "trust passwd", "passwd:1: ")
	put(t, "list", "- one\n")
	expect(t, exitUsage, "trust list", "list:1: must be a mapping")
	if err := syscall.Mkfifo("pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, exitUsage, "trust pipe", "pipe: is a pipe, and must be a regular file")
	expect(t, exitUsage, "trust "+dir, dir+": is a directory")
	if _, out, _ := runPiped(t, nil, "trust", "--list").output(); out != "" {
		t.Errorf("approved: %s", out)
	}
	put(t, localFile, "auth: {tokens: ['${NOT_SET_AT_ALL}']}\nlisten: 127.0.0.1:0\n"+demoText)
	expect(t, exitOK, "trust", "is approved")
}

// A pipe as gateway.yaml is an immediate error, approved or not.
func TestPipeAsLocalFileIsRejected(t *testing.T) {
	writeProject(t, "")
	if err := errors.Join(os.Remove(localFile), syscall.Mkfifo(localFile, 0o600)); err != nil {
		t.Fatal(err)
	}
	expect(
		t, exitUsage, "check",
		"gateway.yaml: is a pipe, and must be a regular file or a link to one",
	)
	_, answers, _ := runPiped(t, []string{initialize}).end()
	if len(answers) != 1 || !strings.Contains(answers[0], "is a pipe") {
		t.Errorf("answers: %q", answers)
	}
}

// A gateway.yaml of another program is skipped, and the user's file is used.
func TestLocalFileOfOtherProgram(t *testing.T) {
	_, state := writeProject(t, "apiVersion: v1\nkind: Gateway\nmetadata: {name: x}\n")
	dir := filepath.Join(state, "none", "mcp-gateway")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "config.yaml"), "backends: [{name: mine, embedded: demo}]\n")
	expect(t, exitOK, "check --log-level warn", "mine", "gateway.yaml: the file is not used")
}
