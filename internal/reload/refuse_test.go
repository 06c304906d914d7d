package reload

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mcpgateway/internal/config"
)

// At a reload, the hint about an unset variable contains that the variable requires a restart.
func TestUnsetVariableHintAsksForRestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(file, []byte("state: ${MCPG_NOT_SET}"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := config.Load(config.Options{Path: file})
	var out bytes.Buffer
	r := &Reloader{log: slog.New(slog.NewTextHandler(&out, nil)), source: file}
	r.refuse(err)
	if !strings.Contains(out.String(),
		"MCPG_NOT_SET is not set (the gateway's own environment counts") {
		t.Error(out.String())
	}
}

// At most maxProblems errors of a file are logged, and the number of further errors.
func TestLoggedProblemsAreLimited(t *testing.T) {
	for n, want := range map[int]int{1: 1, maxProblems: maxProblems,
		maxProblems + 1: maxProblems + 1, 500: maxProblems + 1} {
		var all config.Errors
		for i := range n {
			all = append(all, &config.Error{Key: fmt.Sprint("key", i), Problem: "is wrong"})
		}
		var out bytes.Buffer
		r := &Reloader{log: slog.New(slog.NewTextHandler(&out, nil)), source: "x.yaml"}
		r.refuse(errors.Join(all))
		if got := strings.Count(out.String(), `msg="configuration error"`); got != want ||
			strings.Contains(out.String(),
				fmt.Sprintf("%d more problems", n-maxProblems)) != (n > maxProblems) {
			t.Errorf("%d errors: %d logged\n%.300s", n, got, out.String())
		}
	}
}
