package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"mcpgateway/internal/audit"
	"mcpgateway/internal/config"
	"mcpgateway/internal/logging"
)

// The status has the file, the written and lost records, the present error and since when, and the
// records that wait.
func TestAuditStatus(t *testing.T) {
	for _, file := range []string{filepath.Join(t.TempDir(), "audit.jsonl"), "/dev/full"} {
		c := config.Default()
		c.Audit.File = file
		r, err := openAudit(&config.Loaded{Config: &c}, slog.New(slog.DiscardHandler),
			logging.NewMask(), nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 3 {
			r.Write(audit.Record{Tool: "t", Outcome: audit.OK})
		}
		if s := r.status(); s.Queued != 3 || s.Lag <= 0 || s.Written != 0 ||
			s.File.Path != file || s.File.Problem != "" {
			t.Errorf("before Run: %+v", s)
		}
		r.run(ctx)
		s := r.status()
		if s.Queued != 0 || s.Lag != 0 || s.Written+s.Lost != 3 {
			t.Errorf("after Run: %+v", s)
		}
		full := file == "/dev/full"
		if (s.Lost == 3) != full || (s.File.Written == 0) != full || (s.File.Size == 0) != full ||
			strings.Contains(s.File.Problem, "no space left") != full ||
			s.File.ProblemFrom.IsZero() == full {
			t.Errorf("%+v", s)
		}
		r.close()
	}
}
