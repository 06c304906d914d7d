package osservice

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// example has characters that service managers interpret.
func example() Spec {
	return Spec{
		Name: "mcp-gateway", Executable: "/usr/bin/env",
		Arguments: []string{"serve", "--config", `/etc/a b/100% $HOME "x".yaml`, "", `c:\x`, "it's"},
		User:      true, EnvironmentFile: "/home/u/50%/env", SearchPath: "/usr/bin:/opt/a b/$x",
		LogFile: "/tmp/<log>&.log", Configuration: "/etc/c.yaml", State: "/var/lib/x",
	}
}

func TestUnitEscapesWords(t *testing.T) {
	unit := example().Text("linux")
	for _, line := range []string{
		`ExecStart=/usr/bin/env serve --config "/etc/a b/100%% $$HOME \"x\".yaml" "" "c:\\x" "it's"`,
		"EnvironmentFile=-/home/u/50%%/env",
		`Environment="PATH=/usr/bin:/opt/a b/$x"`,
		"Type=notify", "WatchdogSec=60", "KillMode=mixed", "ExecReload=/bin/kill -HUP $MAINPID",
		"WantedBy=default.target",
		"# Configuration: /etc/c.yaml", "# State: /var/lib/x",
	} {
		if !strings.Contains(unit, line+"\n") {
			t.Errorf("the unit does not have the line %s\n%s", line, unit)
		}
	}
	// A Go program that panics, or that the watchdog ends with SIGABRT, also has the exit code 2.
	if strings.Contains(unit, "RestartPreventExitStatus") {
		t.Error("the service is not started again after a crash")
	}
	if strings.Contains(unit, "DynamicUser") {
		t.Error("a service of a user has another user")
	}
	d := example()
	d.User = false
	for _, line := range []string{"DynamicUser=yes", "StateDirectory=mcp-gateway",
		"Environment=HOME=%S/mcp-gateway", "WantedBy=multi-user.target"} {
		if !strings.Contains(d.Text("linux"), line+"\n") {
			t.Errorf("the unit of the system does not have the line %s", line)
		}
	}
	d.RunAs = "alice"
	if unit := d.Text("linux"); !strings.Contains(unit, "User=alice\n") ||
		strings.Contains(unit, "DynamicUser") {
		t.Errorf("unit with a user:\n%s", unit)
	}
}

// The unit in packages is the unit of gateway service install, apart from the comments about it.
func TestUnitInPackages(t *testing.T) {
	packaged, err := os.ReadFile("../../deploy/packages/mcp-gateway.service")
	if err != nil {
		t.Fatal(err)
	}
	d := Spec{Name: DefaultName, Executable: "/usr/bin/gateway",
		Arguments:       []string{"serve", "--config", "/etc/mcp-gateway/config.yaml"},
		EnvironmentFile: "/etc/mcp-gateway/env"}
	_, unit, _ := strings.Cut(d.Text("linux"), "[Unit]\n")
	unit = "[Unit]\n" + strings.Replace(unit, "\n", "\nDocumentation=man:gateway(1)\n", 1)
	if string(packaged) != unit {
		t.Errorf("%s\nwant %s", packaged, unit)
	}
}

// systemd accepts the units, and sees no unknown key.
func TestSystemdAcceptsTheUnits(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		if os.Getenv("TEST_SYSTEMD") != "" {
			t.Fatal(err)
		}
		t.Skip("needs the package systemd; TEST_SYSTEMD=1 makes this an error")
	}
	for _, user := range []bool{true, false} {
		d := example()
		d.User = user
		file := filepath.Join(t.TempDir(), d.Name+".service")
		if err := os.WriteFile(file, []byte(d.Text("linux")), 0o600); err != nil {
			t.Fatal(err)
		}
		words := []string{"verify", file}
		if user {
			words = append(words, "--user")
		}
		cmd := exec.Command("systemd-analyze", words...)
		cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("user=%t: %v\n%s", user, err, out)
		}
	}
}

func TestJobIsXML(t *testing.T) {
	d := example()
	d.RunAs = "alice"
	var texts []string
	job := xml.NewDecoder(strings.NewReader(d.Text("darwin")))
	for {
		token, err := job.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := token.(xml.CharData); ok && strings.TrimSpace(string(text)) != "" {
			texts = append(texts, string(text))
		}
	}
	got := strings.Join(texts, "|")
	want := `Label|mcp-gateway|ProgramArguments|/usr/bin/env|serve|--config|` +
		`/etc/a b/100% $HOME "x".yaml|c:\x|it's|EnvironmentVariables|PATH|/usr/bin:/opt/a b/$x|` +
		`UserName|alice|StandardErrorPath|/tmp/<log>&.log|WorkingDirectory|/tmp|RunAtLoad|` +
		`KeepAlive|SuccessfulExit|ThrottleInterval|10|ExitTimeOut|30`
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestDefinitionsThatCannotBeWritten(t *testing.T) {
	for _, change := range []func(*Spec){
		func(d *Spec) { d.Name = "" },
		func(d *Spec) { d.Name = "../x" },
		func(d *Spec) { d.Name = "-x" },
		func(d *Spec) { d.Name = "a b" },
		func(d *Spec) { d.Name = strings.Repeat("x", 65) },
		func(d *Spec) { d.Arguments = []string{"a\nExecStartPre=/bin/x"} },
		func(d *Spec) { d.Configuration = "/x\n[Service]" },
		func(d *Spec) { d.SearchPath = "/{{Name}}" },
	} {
		d := example()
		change(&d)
		if err := d.check(); err == nil {
			t.Errorf("accepted %+v", d)
		}
	}
	if err := example().check(); err != nil {
		t.Error(err)
	}
}
