package main

import (
	"os"
	"strings"
	"testing"

	"mcpgateway/internal/mcptest/proctest"
)

// On a terminal a command prints the effects of the file, asks, and stores the approval.
func TestAskApprovalOnTerminal_F_SEC_2(t *testing.T) {
	writeProject(t, demoText+"audit: {file: audit.jsonl}\n")
	out, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	ask := func(answer string) (code int, shown string) {
		t.Helper()
		tty, person := proctest.Terminal(t)
		if _, err := person.WriteString(answer + "\n"); err != nil {
			t.Fatal(err)
		}
		code = run(t.Context(), []string{"tools"}, stdio{tty, out, tty})
		// The terminal may deliver the output in pieces, and echo an answer that nobody reads
		// after it.
		if _, err := tty.WriteString("END"); err != nil {
			t.Fatal(err)
		}
		for buf := make([]byte, 16<<10); !strings.Contains(shown, "END"); {
			n, err := person.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			shown += string(buf[:n])
		}
		return code, shown
	}
	if code, shown := ask("n"); code != exitUsage || !strings.Contains(shown, "audit.jsonl") {
		t.Errorf("no: exit code %d\n%s", code, shown)
	}
	if code, shown := ask(""); code != exitUsage {
		t.Errorf("no answer: exit code %d\n%s", code, shown)
	}
	if code, shown := ask("y"); code != exitOK {
		t.Errorf("yes: exit code %d\n%s", code, shown)
	}
	if code, shown := ask("n"); code != exitOK {
		t.Errorf("asked again: exit code %d\n%s", code, shown)
	}
}

// A terminal gets no control characters from a backend.
func TestTerminalGetsNoControls_F_SEC_11(t *testing.T) {
	path := file(t, "gateway.yaml", demoText)
	for _, terminal := range []bool{false, true} {
		tty, person := proctest.Terminal(t)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		from, to := r, w
		if terminal {
			from, to = person, tty
		}
		if code := run(t.Context(), []string{"call", "echo", "{\"text\":\"a\\u001b]0;x\\u0007\"}", "-c", path, "--state", "none"}, stdio{r, to, w}); code != exitOK {
			t.Errorf("exit code %d", code)
		}
		w.Close()
		buf := make([]byte, 4<<10)
		n, err := from.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(buf[:n]); strings.Contains(got, "\x1b") == terminal {
			t.Errorf("terminal %v: %q", terminal, got)
		}
	}
}
