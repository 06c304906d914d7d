//go:build unix

package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"mcpgateway/internal/logging"
)

// The gateway keeps what a backend writes to stderr, and its own records, whatever log.level and
// log.stderr are.
func TestServe_KeepsTheLog(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	c := newCLI(stdio{null, null, null})
	c.source.path = file(t, "gateway.yaml", `state: none
log: {level: error, stderr: "off"}
backends:
  - {name: bad, command: sh, args: [-c, "echo the token is $TOKEN >&2; exit 3"], env: {TOKEN: very-secret}}
`)
	a, err := c.open(t.Context(), runMode{serving: true})
	if err != nil {
		t.Fatal(err)
	}
	err = a.run(t.Context(), func(ctx context.Context) error {
		a.backends.Start()
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		f := a.lines.Follow(logging.LineFilter{Backends: []string{"bad"}})
		defer f.Close()
		text := ""
		for !strings.Contains(text, "stderr: the token is ***") ||
			!strings.Contains(text, "backend failed to start; will retry") {
			lines, _, err := f.Next(ctx)
			if err != nil {
				t.Errorf("the lines are %s", text)
				return nil
			}
			for _, l := range lines {
				text += l.Message + "\n"
			}
		}
		if strings.Contains(text, "very-secret") {
			t.Errorf("not masked: %s", text)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
