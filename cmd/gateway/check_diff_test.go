package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"mcpgateway/internal/config"
	"mcpgateway/internal/reload"
)

// A diffTest has a configuration file, and a record of a gateway that runs with it.
type diffTest struct {
	*testing.T
	file, state string
}

const oneBackend = "backends: [{name: a, command: a}]\n"

// newDiffTest writes the file, and the record of a gateway that runs with it: this process.
func newDiffTest(t *testing.T) *diffTest {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", filepath.Join(dir, "home"))
	d := &diffTest{t, filepath.Join(dir, "gateway.yaml"), filepath.Join(dir, "home", "mcp-gateway")}
	d.write(oneBackend)
	loaded, err := config.Load(config.Options{Path: d.file})
	if err != nil {
		t.Fatal(err)
	}
	if err := reload.WriteRunningConfig(d.file, loaded.Config, nil); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *diffTest) write(text string) {
	d.Helper()
	if err := os.WriteFile(d.file, []byte(text), 0o600); err != nil {
		d.Fatal(err)
	}
}

// changeRecord changes the record.
func (d *diffTest) changeRecord(change func(a *reload.RunningConfig)) {
	d.Helper()
	a, err := reload.ReadRunningConfig(d.state, d.file)
	if err != nil {
		d.Fatal(err)
	}
	change(a)
	text, _ := json.Marshal(a)
	if err := os.WriteFile(reload.RunningConfigPath(d.state, d.file), text, 0o600); err != nil {
		d.Fatal(err)
	}
}

// expect runs check --diff and checks the exit code and the output. A part that begins with ! must
// not be in the output.
func (d *diffTest) expect(code int, parts ...string) {
	d.Helper()
	out, err := os.Create(filepath.Join(d.TempDir(), "out"))
	if err != nil {
		d.Fatal(err)
	}
	defer out.Close()
	got := run(
		context.Background(), []string{"check", "--diff", "-c", d.file},
		stdio{os.Stdin, out, out},
	)
	text, _ := os.ReadFile(out.Name())
	fields := strings.Join(strings.Fields(string(text)), " ")
	if got != code {
		d.Errorf("exit code %d, want %d", got, code)
	}
	for _, p := range parts {
		if absent, no := strings.CutPrefix(p, "!"); strings.Contains(fields, absent) == no {
			d.Errorf("%q in\n%s", p, text)
		}
	}
}

// The file is also compared with the record of a gateway that has exited, and the output reports
// the exit.
func TestCheckDiffAfterGatewayExited(t *testing.T) {
	d := newDiffTest(t)
	d.write(oneBackend + "hosts: [gw.example]\n")
	const ended, row = "no gateway runs with this file. The file is compared with the configuration " +
		"that the last one (process ", "hosts changed"
	d.expect(0, "compared with the configuration that the gateway (process ", "!"+ended, row)

	child := exec.Command(os.Args[0], "-test.run=^$")
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	var own reload.ProcessStart
	d.changeRecord(func(a *reload.RunningConfig) { own, a.PID = a.Start, child.Process.Pid })
	d.expect(0, ended, row)
	// as on a system without /proc
	d.changeRecord(func(a *reload.RunningConfig) { a.Start = reload.ProcessStart{} })
	d.expect(0, ended, row)
	d.changeRecord(func(a *reload.RunningConfig) { a.PID = os.Getpid() })
	d.expect(0, "!"+ended, row)
	if runtime.GOOS != "linux" {
		return
	}
	d.changeRecord(func(a *reload.RunningConfig) { a.Start = own; a.Start.Ticks += "1" })
	d.expect(0, ended, row) // another process has the same PID
	d.changeRecord(func(a *reload.RunningConfig) {
		a.Start = own
		a.Start.PIDNamespace = "pid:[1]"
		a.PID = child.Process.Pid
	})
	d.expect(0, "!"+ended, row) // the process is in another PID namespace
	d.changeRecord(func(a *reload.RunningConfig) { a.Start.BootID = "another" })
	d.expect(0, ended, row)
}

// An empty file is rejected if a running gateway would reject it, although a start would accept it.
func TestCheckDiffRejectsEmptyFile(t *testing.T) {
	d := newDiffTest(t)
	for _, text := range []string{"", "# nothing\n"} {
		d.write(text)
		d.expect(2, "gateway.yaml: is empty", "hint: write backends: []", "!removed")
	}
	d.write("backends: []")
	d.expect(0, "backend a removed")
	d.write("")
	d.changeRecord(func(a *reload.RunningConfig) { a.Start.BootID, a.PID = "another", 1<<30 })
	d.expect(0, ", ended) loaded at ", "backend a removed")
	d.changeRecord(
		func(
			a *reload.RunningConfig) {
			a.PID, a.Start, a.Backends = os.Getpid(), reload.ProcessStart{}, nil
		})
	d.expect(0, "nothing would change")
	// as if the file had named the state directory
	if err := os.Remove(reload.RunningConfigPath(d.state, d.file)); err != nil {
		t.Fatal(err)
	}
	d.expect(2, "gateway.yaml: is empty")
}

// If the key state was changed, the record is in the old state directory.
func TestCheckDiffFindsRecordInOldStateDir(t *testing.T) {
	d := newDiffTest(t)
	for _, state := range []string{filepath.Join(t.TempDir(), "new"), "none"} {
		d.write(oneBackend + "state: " + state)
		d.expect(0, "compared with", "state changed needs a restart")
	}
	// the record of an earlier boot
	d.changeRecord(func(a *reload.RunningConfig) { a.Start.BootID, a.PID = "another", 1<<30 })
	d.expect(0, "no gateway has recorded", "name the old directory with --state")
}

// A reload keeps the old entry of a backend whose new entry lacks a variable, and the row reports
// this.
func TestCheckDiffOfMisconfiguredEntry_F_CLI_11(t *testing.T) {
	d := newDiffTest(t)
	d.write(
		"backends: [{name: a, command: a, args: [\"${NO_SUCH_VARIABLE}\"], tools: {deny: [x]}}]\n",
	)
	d.expect(
		0, "backend a changed tools.deny", "!restarts",
		"backend a misconfigured keeps its old entry, with the new filters",
	)
	d.write("backends: [{name: a, command: a, tools: {deny: [\"${NO_SUCH_VARIABLE}\"]}}]\n")
	d.expect(0, "backend a changed misconfigured, tools.deny; stops it", "!keeps its old entry")
}

// A running gateway rejects an empty file, although the file is otherwise valid. An earlier version
// of check --diff reported all backends as removed.
func TestCheckDiffOfEmptyFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "gateway.yaml")
	diff := func(want int, part string) {
		t.Helper()
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		errs, _ := os.Create(filepath.Join(dir, "stderr"))
		defer errs.Close()
		code := run(
			t.Context(),
			[]string{"check", "--diff", "-c", file, "--state", filepath.Join(dir, "state")},
			stdio{nil, errs, errs},
		)
		if text, _ := os.ReadFile(errs.Name()); code != want ||
			!strings.Contains(string(text), part) {
			t.Errorf("exit code %d, want %d and %q\n%s", code, want, part, text)
		}
	}
	diff(exitUsage, "gateway.yaml: is empty") // the file may have named the state directory
	c := config.Default()
	c.StateDir = filepath.Join(dir, "state")
	c.Backends = []config.Backend{{Name: "a", Enabled: true, Command: "x"}}
	if err := reload.WriteRunningConfig(file, &c, nil); err != nil {
		t.Fatal(err)
	}
	diff(exitUsage, "gateway.yaml: is empty")
}

func FuzzPrintChanges(f *testing.F) {
	f.Add([]byte(`{"salt":"s","keys":{"listen":"x"},` +
		`"backends":[{"name":"a","enabled":true,"keys":{"command":"y"}},{"name":"a"},{"name":""}]}`))
	f.Add([]byte(`{"keys":null,"backends":[{}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var before config.Digest
		if json.Unmarshal(text, &before) != nil {
			return
		}
		c := config.Default()
		c.Backends = []config.Backend{{Name: "a", Enabled: true}, {Name: "b"}}
		var out strings.Builder
		if err := printChanges(&out, before.Diff(&c, "listen")); err != nil {
			t.Error(err)
		}
		if strings.ContainsAny(out.String(), "\x1b\r\x00") {
			t.Errorf("%q", out.String())
		}
	})
}
