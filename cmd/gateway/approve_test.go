//go:build unix

package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mcpgateway/internal/config/pins"
	"mcpgateway/internal/logging"
)

// A project is a directory with a configuration whose servers list the content of files.
type project struct {
	t               *testing.T
	dir, file, lock string
}

// fileServer is a server that lists the tools in a file, and exits if there is no such file.
const fileServer = `read -r l; [ -f "$0" ] || exit 1
	case $l in *server/discover*) exit 1;; esac
	printf '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}\n'
	read -r l; read -r l; printf '{"jsonrpc":"2.0","id":2,"result":{"tools":[%s]}}\n' "$(cat "$0")"; cat >/dev/null`

// newProject returns a project with backends. Each argument is NAME: SETTINGS.
func newProject(t *testing.T, backends ...string) *project {
	dir := t.TempDir()
	p := &project{t: t, dir: dir, file: filepath.Join(dir, "gateway.yaml"),
		lock: filepath.Join(dir, "gateway.lock")}
	p.configure(backends...)
	return p
}

func (p *project) configure(backends ...string) {
	p.t.Helper()
	text := fmt.Sprintf("state: %s\nbackends:\n", filepath.Join(p.dir, "state"))
	for _, b := range backends {
		name, settings, _ := strings.Cut(b, ":")
		text += fmt.Sprintf("  - {name: %s, command: sh, era: legacy, args: [-c, %q, %s]%s}\n", name,
			strings.ReplaceAll(fileServer, "$", "$$"), filepath.Join(p.dir, name), settings)
	}
	p.put("gateway.yaml", text)
}

func (p *project) put(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// tools sets the tools of a server, NAME=DESCRIPTION.
func (p *project) tools(server string, tools ...string) {
	p.t.Helper()
	var all []string
	for _, tool := range tools {
		name, description, _ := strings.Cut(tool, "=")
		all = append(all, fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object"}}`,
			name, description))
	}
	p.put(server, strings.Join(all, ","))
}

// run runs a command and checks its exit code. It returns stdout and stderr.
func (p *project) run(code int, args ...string) (out, stderr string) {
	p.t.Helper()
	got, out, stderr := runPiped(p.t, nil, append(args, "-c", p.file)...).output()
	if got != code {
		p.t.Errorf("%v: exit code %d, want %d\n%s%s", args, got, code, out, stderr)
	}
	return out, stderr
}

// Without a terminal, approve shows the changes field by field, and fails until --yes approves
// them. Only a changed field is shown. Tools of other backends are not affected.
func TestApprove_ShowsAndAcceptsChanges(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a:, tools: {pin: block}", "b:, tools: {pin: block}")
	p.tools("a", "one=First.", "two=Second.\nWith two lines.")
	p.tools("b", "three=x")
	out, stderr := p.run(exitFailed, "approve")
	wants(t, out, "a: 2 new, 0 changed, 0 removed, not approved before\n",
		"  + one\n      description:\n        + First.\n      inputSchema:\n        + {\n",
		"        + Second.\n        + With two lines.\n", "b: 1 new, ")
	wants(t, stderr, "gateway: there are changes that are not approved\n",
		"hint: gateway approve -c "+p.file+" --yes approves them\n")
	if _, err := os.Stat(p.lock); err == nil {
		t.Error("approved without --yes")
	}
	out, _ = p.run(exitOK, "check")
	wants(t, out, "new tools (not approved, hidden): one, two; gateway approve a shows")

	_, stderr = p.run(exitOK, "approve", "a", "--yes")
	wants(t, stderr, "gateway: approved; wrote "+p.lock+"\n")
	out, _ = p.run(exitFailed, "approve")
	if !strings.HasPrefix(out, "b: 1 new") {
		t.Errorf("approved a; now\n%s", out)
	}
	p.run(exitOK, "approve", "--yes")
	_, stderr = p.run(exitOK, "approve")
	wants(t, stderr, "gateway: nothing to approve\n")
	out, _ = p.run(exitOK, "tools")
	wants(t, out, "one", "two", "three")

	p.tools("a", "two=Second.\nWith two other\u200b lines.", "new=n", "three=taken")
	before, err := os.ReadFile(p.lock)
	if err != nil {
		t.Fatal(err)
	}
	out, stderr = p.run(exitFailed, "approve", "a")
	wants(t, stderr, "hint: gateway approve a -c "+p.file+" --yes approves them\n")
	wants(t, out, "a: 2 new, 1 changed, 1 removed\n", "  - one\n", "  + new\n",
		"  ~ two\n      description:\n        - With two lines.\n        + With two other\\u200b lines.\n",
		"  the name three belonged to b\n")
	if strings.Count(out, "inputSchema") != 2 || strings.Contains(out, "Second.") {
		t.Errorf("unchanged fields are shown:\n%s", out)
	}
	if now, _ := os.ReadFile(p.lock); !bytes.Equal(now, before) {
		t.Error("the lock file was written")
	}
	_, stderr = p.run(exitFailed, "tools", "new")
	wants(t, stderr, "backend a: the tool new is new and not approved: run gateway approve a")
	_, stderr = p.run(exitFailed, "call", "new")
	wants(t, stderr, "the tool new is new and not approved: run gateway approve a; the call did not run")
}

// A backend that fails keeps its entry and its names, the others are approved, and the exit code is
// 1.
func TestApprove_FailedBackendKeepsItsEntry(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a:", "b:")
	p.tools("a", "one=a", "same=a")
	p.tools("b", "two=b")
	p.run(exitOK, "approve", "-y")
	if err := os.Remove(filepath.Join(p.dir, "a")); err != nil {
		t.Fatal(err)
	}
	p.tools("b", "two=changed", "same=b")
	out, stderr := p.run(exitFailed, "approve", "-y")
	wants(t, stderr, "approved; wrote", "backend a: ", "1 of 2 backends failed")
	if !strings.HasPrefix(out, "b: ") || strings.Contains(out, "belonged") {
		t.Errorf("printed\n%s", out)
	}
	l, err := pins.Read(p.lock)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Backends["a"]) != 2 || l.Names["one"] != "a" || l.Names["same"] != "a" ||
		len(l.Backends["b"]) != 2 {
		t.Errorf("%v", l)
	}
	p.tools("a", "one=a", "same=a")
	p.run(exitFailed, "approve") // b__same is new
}

// A backend that is no longer configured is removed from the lock file, and its names become free.
// A backend that is only disabled stays.
func TestApprove_RemovedBackend(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a:", "b:", "c:")
	p.tools("a", "one=a")
	p.tools("b", "one=b")
	p.tools("c", "three=c")
	p.run(exitOK, "approve", "-y")
	p.configure("b:, tools: {pin: block}", "c:, enabled: false")
	out, _ := p.run(exitOK, "tools")
	wants(t, out, "b__one") // the name one is still approved for a
	out, _ = p.run(exitFailed, "approve")
	wants(t, out, "a: removed from the configuration\n", "the name one belonged to a\n")
	p.run(exitOK, "approve", "-y")
	l, err := pins.Read(p.lock)
	if err != nil || len(l.Backends) != 2 || l.Names["one"] != "b" || l.Names["b__one"] != "" ||
		l.Names["three"] != "c" {
		t.Errorf("%v, %v", l, err)
	}
	out, _ = p.run(exitOK, "tools")
	if strings.Contains(out, "b__one") {
		t.Errorf("listed\n%s", out)
	}
}

// Mistakes on the command line and configurations without a lock file get an error that says what
// to do.
func TestApprove_Errors(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a:", "quiet:, tools: {pin: off}", "down:, enabled: false")
	p.tools("a", "one=a")
	p.tools("quiet", "two=q")
	for args, want := range map[string]struct {
		code int
		text string
	}{
		"x":     {exitUsage, `no backend is named "x"`},
		"down":  {exitFailed, "backend down is disabled in the configuration"},
		"quiet": {exitFailed, "backend quiet has tools.pin: off\nhint: set tools.pin: warn or block"},
		"a b":   {exitUsage, "takes one argument, but got 2"},
	} {
		_, stderr := p.run(want.code, append([]string{"approve"}, strings.Fields(args)...)...)
		wants(t, stderr, want.text)
	}
	out, _ := p.run(exitFailed, "approve")
	if strings.Contains(out, "quiet") || strings.Contains(out, "down") {
		t.Errorf("printed\n%s", out)
	}
	p.file = os.DevNull
	_, stderr := p.run(exitFailed, "approve")
	wants(t, stderr, "the configuration is not a regular file, and so has no lock file")
}

// A lock file that cannot be read is an error with its line, and is not overwritten. check and
// tools report it: with block nothing is listed, with warn everything.
func TestApprove_UnusableLockFile(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a:, tools: {pin: block}", "b:")
	p.tools("a", "one=a")
	p.tools("b", "two=b")
	for text, problem := range map[string]string{
		"version: 1\n\tbackends: x":          ":2: not valid YAML",
		"version: 1\nnames: {}\n<<<<<<< x\n": ":3: contains a merge conflict",
		"version: 7\nnew: x\n":               `:1: this gateway reads version 1, not "7"`,
	} {
		p.put("gateway.lock", text)
		_, stderr := p.run(exitUsage, "approve", "--yes")
		wants(t, stderr, "gateway: "+p.lock+problem, "hint: ")
		if now, _ := os.ReadFile(p.lock); string(now) != text {
			t.Errorf("overwritten with %s", now)
		}
		out, stderr := p.run(exitOK, "check")
		wants(t, stderr, "lock file unusable: nothing in it is approved", p.lock+problem[:2])
		wants(t, out, "new tools (not approved, hidden): one")
		out, _ = p.run(exitOK, "tools")
		if !strings.Contains(out, "two") || strings.Contains(out, "one") {
			t.Errorf("listed\n%s", out)
		}
	}
}

// The configuration of audit.file must not be the lock file.
func TestAuditFileIsNotLockFile(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a:")
	text, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	p.put("gateway.yaml", string(text)+"audit: {file: "+p.lock+"}\n")
	_, stderr := p.run(exitUsage, "check")
	wants(t, stderr, "audit.file: names the lock file of the configuration")
}

// With block and without a place for a lock file, there is a warning.
func TestBlockWithoutLockFile(t *testing.T) {
	t.Parallel()
	r, w := pipe(t)
	if _, err := w.WriteString("backends: [{name: a, embedded: demo, tools: {pin: block}}]"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	code, out, stderr := runPiped(t, nil, "check", "-c", fmt.Sprintf("/dev/fd/%d", r.Fd())).output()
	r.Close()
	if code != exitOK {
		t.Errorf("exit code %d", code)
	}
	wants(t, stderr, "backend a: tools.pin: block hides all tools")
	wants(t, out, "new tools (not approved, hidden): ")
}

// print returns the output of a changePrinter about a changed tool.
func printed(was, is string) string {
	var out bytes.Buffer
	p := changePrinter{out: &out, mask: logging.NewMask("hush-hush-hush")}
	c := toolChanges{backend: "a", is: pins.Tools{"t\x1b[2J": pins.New([]byte(is))}}
	if was != "" {
		c.was = pins.Tools{"t\x1b[2J": pins.New([]byte(was))}
	}
	p.print(&c)
	_ = p.flush()
	return out.String()
}

// A secret that the beginning of a shown text divides is masked as a whole.
func TestApprove_CutSecretIsMasked(t *testing.T) {
	text := "hush-hush-hush" + strings.Repeat("y", contextOfLines-9)
	got := printed(`{"description":"`+text+`1"}`, `{"description":"`+text+`2"}`)
	if strings.Contains(got, "hush") || !strings.Contains(got, "y1") {
		t.Errorf("a part of the secret is shown: %q", got)
	}
}

// The text of servers reaches a terminal without control characters, and with secrets masked.
func TestApprove_OutputIsClean(t *testing.T) {
	got := printed(`{"description":"a"}`,
		`{"description":"\u001b]0;x\u0007 hush-hush-hush \u202e","x\u001b":{"y\u001b":["\u009b"]}}`)
	if strings.ContainsAny(got, "\x1b\x07\u009b\u202e") || strings.Contains(got, "hush") {
		t.Errorf("printed %q", got)
	}
	wants(t, got, "        + \\u001b]0;x\\u0007 *** \\u202e\n", `"x\u001b":`)
}

// A difference within a long line is shown with its surroundings, wherever it is.
func TestApprove_ShowsDifferenceWithinLine(t *testing.T) {
	long := strings.Repeat("long text ", 1000)
	got := printed(`{"description":"`+long+`end"}`, `{"description":"`+long[:5000]+"EVIL"+long[5000:]+
		`end"}`)
	if len(got) > 1000 || strings.Count(got, "EVIL") != 1 || strings.Count(got, "…") != 4 {
		t.Errorf("printed %q", got)
	}
}

func TestApprove_OutputIsBounded(t *testing.T) {
	many := strings.Repeat(`x\n`, 1000)
	got := printed("", `{"description":"`+strings.Repeat("l", 2*maxShownLine)+`\n`+many+`"}`)
	if lines := strings.Count(got, "\n"); lines != maxShownLines+3 {
		t.Errorf("%d lines", lines)
	}
	wants(t, got, "… and 4000 more characters\n", "and 803 more lines: gateway tools --json")
	var out bytes.Buffer
	p := changePrinter{out: &out, mask: logging.NewMask()}
	for i := range 200 {
		p.print(&toolChanges{backend: fmt.Sprint("b", i), is: pins.Tools{
			"t": pins.New([]byte(`{"description":"` + many + `"}`))}})
	}
	_ = p.flush()
	if lines := strings.Count(out.String(), "\n"); lines > maxShownTotal+1000 {
		t.Errorf("%d lines", lines)
	}
}

// A configuration directory that cannot be written is no fault: it is logged once, at INFO. Other
// errors are warnings.
func TestReadOnlyDirectoryIsNoFault(t *testing.T) {
	var out bytes.Buffer
	k := &lockKeeper{log: slog.New(slog.NewTextHandler(&out, nil))}
	for range 2 {
		k.logFailure("x", &fs.PathError{Op: "open", Path: "x", Err: syscall.EROFS})
	}
	k.logFailure("x", &fs.PathError{Op: "open", Path: "x", Err: syscall.EACCES})
	k.logFailure("x", syscall.ENOSPC)
	if got := out.String(); strings.Count(got, "level=INFO") != 2 ||
		strings.Count(got, "level=WARN") != 1 {
		t.Errorf("logged\n%s", got)
	}
}
