//go:build unix

package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
)

func TestTools_F_CLI_9(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	path := file(t, "gateway.yaml", "backends:\n- {name: demo, embedded: demo}\n- {name: dead, command: /nonexistent/server}\n")
	expect(t, exitFailed, "tools -c "+path, "echo", "backend dead: ", "1 of 2 backends failed")
	expect(t, exitOK, "tools --backend demo -c "+path, "echo")
	expect(t, exitFailed, "tools --backend dead -c "+path, "backend dead: ")
	expect(
		t, exitUsage, "tools --backend none -c "+path, `no backend is named "none"`, "demo, dead",
	)
	expect(t, exitOK, "tools add --backend demo -c "+path, "ARGUMENT", "a ", "number", "yes")
	expect(t, exitFailed, "tools ecko -c "+path, "did you mean echo?")
	expect(t, exitFailed, "call ecko -c "+path, "did you mean echo?")
}

// The errors distinguish denied tools and disabled backends from tools that do not exist.
func TestDeniedToolsAndDisabledBackends(t *testing.T) {
	t.Parallel()
	path := file(t, "gateway.yaml", "state: none\nbackends:\n- {name: demo, embedded: demo, tools: {deny: [echo]}}\n- {name: off, command: off, enabled: false}\n")
	for _, tool := range []string{"echo", "demo__echo"} {
		expect(
			t, exitFailed, "call "+tool+" -c "+path, "backend demo has the tool",
			"the configuration denies it", "allow and deny under tools", path,
		)
		expect(
			t, exitFailed, "tools "+tool+" -c "+path, "backend demo has the tool",
			"the configuration denies it",
		)
	}
	expect(
		t, exitFailed, "tools echo --backend off -c "+path, "backend off is disabled",
		"set enabled: true", path,
	)
	expect(t, exitFailed, "tools --backend off -c "+path, "backend off is disabled")
	expect(t, exitFailed, "call off__x -c "+path, "backend off is disabled", "set enabled: true", path)
	expect(t, exitFailed, "tools off__x -c "+path, "backend off is disabled", "set enabled: true", path)
	expect(t, exitFailed, "tools offx -c "+path, `no tool is named "offx"`)
	expect(t, exitFailed, "call ecko -c "+path, "Unknown tool")
}

// check and tools report that no backend is enabled. With --backend only the filters of this
// backend are considered.
func TestToolsOfOtherBackends(t *testing.T) {
	t.Parallel()
	none := file(t, "gateway.yaml", "state: none\nbackends:\n- {name: off, command: off, enabled: false}\n")
	for _, verb := range []string{"check", "tools", "tools --json"} {
		expect(t, exitFailed, verb+" -c "+none, "no backend is enabled",
			"remove enabled: false from a server in "+none+": off")
	}
	two := file(t, "gateway.yaml", "state: none\nbackends:\n- {name: a, embedded: demo, tools: {deny: [echo]}}\n"+
		"- {name: b, embedded: demo, tools: {deny: [add]}}\n- {name: c, embedded: demo, tools: {deny: [echo]}}\n")
	expect(t, exitFailed, "tools add --backend b -c "+two, "backend b has the tool")
	expect(t, exitFailed, "tools c__echo -c "+two, "backend c has the tool")
	expect(t, exitFailed, "tools echo --backend c -c "+two, "backend c has the tool")
	expect(t, exitFailed, "tools nothing --backend c -c "+two, `no tool is named "nothing"`)
}

// A command that needs an argument says which, and how it is written.
func TestWrongNumberOfArguments(t *testing.T) {
	t.Parallel()
	expect(t, exitUsage, "login", "gateway: name the backend: gateway login NAME\n",
		"hint: gateway login --help")
	expect(t, exitUsage, "logout", "name the backend: gateway logout NAME\n")
	expect(t, exitUsage, "secret set", "name the secret: gateway secret set NAME\n")
	expect(t, exitUsage, "secret rm", "name the secret: gateway secret rm NAME\n")
	for _, verb := range []string{"login", "logout", "secret rm", "approve", "tools", "trust",
		"untrust", "health"} {
		expect(t, exitUsage, verb+" a b", "gateway "+verb+" takes one argument, but got 2\n")
	}
	for _, verb := range []string{"login a", "logout a", "approve"} {
		expect(t, exitUsage, verb+" --principal=", `"--principal" flag: it names no client`)
	}
}

func TestHelpForUnknownCommand(t *testing.T) {
	t.Parallel()
	expect(t, exitUsage, "help tolls", `unknown command "tolls"`, "did you mean gateway tools?")
	expect(t, exitUsage, "help nothing-like-it", `unknown command "nothing-like-it"`)
	expect(t, exitUsage, "help tools nothing", `gateway tools has no subcommand "nothing"`)
	expect(t, exitUsage, "help help nothing", `gateway help has no subcommand "nothing"`)
	expect(
		t, exitUsage, "help completion bsh", `unknown command "bsh"`,
		"did you mean gateway completion bash",
	)
	expect(
		t, exitUsage, "completion bsh", `unknown command "bsh"`,
		"did you mean gateway completion bash",
	)
	expect(t, exitUsage, "completion nothing", `unknown command "nothing"`)
	expect(t, exitUsage, "tolls --help", `unknown command "tolls"`, "did you mean gateway tools?")
	expect(t, exitUsage, "-h nothing", `unknown command "nothing"`)
	expect(t, exitOK, "--help", "Available Commands")
	expect(t, exitOK, "tools nothing --help", "tools starts every backend once")
	expect(t, exitOK, "completion", "Available Commands")
	expect(t, exitOK, "completion bash", "bash completion")
	expect(t, exitOK, "help tools", "tools starts every backend once")
	expect(t, exitOK, "help", "Available Commands")
	expect(t, exitOK, "help completion bash", "autocompletion script for the bash shell")
}

// In all commands that start backends, --timeout limits the wait for a backend that hangs, and the
// backend is reported.
func TestTimeout_F_CLI_9(t *testing.T) {
	t.Parallel()
	path := file(t, "gateway.yaml", "state: none\ncatalog: {wait: 100ms}\nbackends:\n- {name: demo, embedded: demo}\n- {name: hang, command: sleep, args: ['100']}\n")
	const late, hint = "did not answer within TIME", "increase --timeout"
	for _, c := range []struct {
		code int
		args string
		want []string
	}{
		{exitFailed, "check", []string{"demo     ok", "hang     failed", "it " + late + "; " + hint, "TIME", "1 of 2 backends failed"}},
		{exitFailed, "tools", []string{"echo", "backend hang: it " + late, "1 of 2 backends failed"}},
		{exitOK, "tools --backend demo", []string{"echo"}},
		{exitFailed, "tools --backend hang", []string{"backend hang: it " + late, hint}},
		{exitFailed, "call hang__x", []string{"hang " + late, hint}},
		{exitFailed, "call nope a=1", []string{"hang " + late, hint}},
		{exitOK, "call now", nil},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			for limit := 200 * time.Millisecond; limit < 20*time.Second; limit *= 2 {
				args := fmt.Sprint(c.args, " --timeout ", limit, " -c ", path)
				code, out, stderr := runPiped(t, nil, strings.Fields(args)...).output()
				all := out + stderr
				if strings.Contains(all, "demo     failed") ||
					strings.Contains(all, "demo: it did not answer") ||
					strings.Contains(all, "demo did not answer") || c.code == exitOK && code != exitOK {
					continue // a busy machine has not started the demo within this time
				}
				if code != c.code {
					t.Errorf("exit code %d\n%s", code, all)
				}
				for _, text := range c.want {
					text = strings.ReplaceAll(text, "TIME", limit.String())
					if !strings.Contains(all, text) {
						t.Errorf("no %q in\n%s", text, all)
					}
				}
				return
			}
			t.Error("the demo does not start within 20 s")
		})
	}
	expect(t, exitUsage, "check --timeout -1s -c "+path, "--timeout must not be negative")
}

// If stderr is not a terminal, it shows after two seconds the backends that a command waits for.
func TestProgress_F_CLI_9(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := progress{w: &out, began: time.Now()}
		all := []backends.Status{{Name: "demo", Settled: true}, {Name: "slow"}, {Name: "hang"}}
		for range 40 { // 8 s
			time.Sleep(200 * time.Millisecond)
			p.show(all)
		}
		want := "waiting for slow, hang (1 of 3 have answered, 2 s)\nwaiting for slow, hang (1 of 3 have answered, 7 s)\n"
		if out.String() != want {
			t.Errorf("%q", out.String())
		}
	})
}

func TestSchemaType_F_CLI_9(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"string"}`:                                                   "string",
		`{"type":["string","null"]}`:                                          "string,null",
		`{"type":"string","enum":["asc","desc"]}`:                             "string: asc, desc",
		`{"enum":[1,null]}`:                                                   "1, null",
		`{"type":"array","items":{"type":"string"}}`:                          "array of string",
		`{"type":"array","items":true}`:                                       "array",
		`{"type":"object","properties":{"tags":{},"name":{"type":"string"}}}`: "object {name, tags}",
		`true`: "", `{}`: "",
	} {
		if got := schemaType([]byte(schema)); got != want {
			t.Errorf("%s: %q, want %q", schema, got, want)
		}
	}
}

func TestEscapeControls_F_SEC_11(t *testing.T) {
	for text, want := range map[string]string{
		"a\tb\r\nc ü 漢\u00a0": "a\tb\nc ü 漢\u00a0",
		"\x1b]0;x\x07":        `\u001b]0;x\u0007`,
		"\u009b2J":            `\u009b2J`,
		"a\u202eb\u2066":      `a\u202eb\u2066`,
		"over\rwritten":       `over\u000dwritten`,
		"\x9b":                "\ufffd",
	} {
		if got := escapeControls(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestTotals_F_CFG_2(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	path := file(t, "gateway.yaml", "backends:\n- {name: demo, embedded: demo}\n- {name: more, embedded: demo, tools: {deny: [now]}}\n")
	expect(t, exitOK, "check -c "+path, "\ntotal ", " 5 ", " KB in the lists")
	expect(t, exitOK, "tools -c "+path, "\ntotal ", "5 tools, 1.1 KB in the list")
	for n, want := range map[int]string{0: "0 bytes", 999: "999 bytes", 1000: "1.0 KB", 711_249: "711.2 KB", 2_000_000: "2.0 MB"} {
		if got := formatSize(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
