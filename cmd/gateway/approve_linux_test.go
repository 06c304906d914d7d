package main

import (
	"os"
	"strings"
	"testing"

	"mcpgateway/internal/mcptest/proctest"
)

// On a terminal, approve asks. Only an answer of yes approves the changes.
func TestApprove_AsksOnTerminal(t *testing.T) {
	p := newProject(t, "a:")
	p.tools("a", "one=a")
	out, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	for _, one := range []struct {
		answer string
		code   int
	}{{"n", exitFailed}, {"", exitFailed}, {"yes", exitOK}} {
		tty, person := proctest.Terminal(t)
		if _, err := person.WriteString(one.answer + "\n"); err != nil {
			t.Fatal(err)
		}
		code := run(t.Context(), []string{"approve", "-c", p.file}, stdio{tty, out, tty})
		if _, err := tty.WriteString("END"); err != nil {
			t.Fatal(err)
		}
		shown := ""
		for buf := make([]byte, 16<<10); !strings.Contains(shown, "END"); {
			n, err := person.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			shown += string(buf[:n])
		}
		_, err := os.Stat(p.lock)
		if code != one.code || (err == nil) != (one.code == exitOK) {
			t.Errorf("%q: exit code %d, %v\n%s", one.answer, code, err, shown)
		}
		wants(t, shown, "Approve these changes? [y/N] ")
		if one.code != exitOK {
			wants(t, shown, "nothing was approved")
		}
	}
}
