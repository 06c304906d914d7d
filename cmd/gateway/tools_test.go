//go:build unix

package main

import "testing"

func TestTools_F_CLI_9(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	path := file(t, "gateway.yaml", "backends:\n- {name: demo, embedded: demo}\n- {name: dead, command: /nonexistent/server}\n")
	expect(t, exitFailed, "tools -c "+path, "echo", "backend dead: ", "1 of 2 backends failed")
	expect(t, exitOK, "tools --backend demo -c "+path, "echo")
	expect(t, exitFailed, "tools --backend dead -c "+path, "backend dead: ")
	expect(t, exitUsage, "tools --backend none -c "+path, `no backend is named "none"`, "demo, dead")
	expect(t, exitOK, "tools add --backend demo -c "+path, "ARGUMENT", "a ", "number", "yes")
	expect(t, exitFailed, "tools ecko -c "+path, "did you mean echo?")
	expect(t, exitFailed, "call ecko -c "+path, "did you mean echo?")
}

func TestEscaped_F_SEC_11(t *testing.T) {
	for text, want := range map[string]string{
		"a\tb\r\nc ü 漢\u00a0": "a\tb\nc ü 漢\u00a0",
		"\x1b]0;x\x07":        `\u001b]0;x\u0007`,
		"\u009b2J":            `\u009b2J`,
		"a\u202eb\u2066":      `a\u202eb\u2066`,
		"over\rwritten":       `over\u000dwritten`,
		"\x9b":                "\ufffd",
	} {
		if got := escaped(text); got != want {
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
		if got := size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
