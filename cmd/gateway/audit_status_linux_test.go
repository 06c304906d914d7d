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
		a := &app{mask: logging.NewMask()}
		var err error
		a.journal, err = openAudit(&config.Loaded{Config: &c}, slog.New(slog.DiscardHandler),
			a.mask, nil)
		if err != nil {
			t.Fatal(err)
		}
		status := adminStatus{&adminService{service: &service{app: a}}}.auditStatus
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 3 {
			a.journal.Write(audit.Record{Tool: "t", Outcome: audit.OK})
		}
		if s := status(); s.Queued != 3 || s.Lag <= 0 || s.Written != 0 ||
			s.File.Path != file || s.File.Problem != nil {
			t.Errorf("before run: %+v", s)
		}
		a.journal.run(ctx)
		s := status()
		if s.Queued != 0 || s.Lag != 0 || s.Written+s.Lost != 3 {
			t.Errorf("after run: %+v", s)
		}
		full := file == "/dev/full"
		problem := s.File.Problem
		if (s.Lost == 3) != full || (s.File.Size == 0) != full || (problem != nil) != full ||
			full && (!strings.Contains(problem.Text, "no space left") || problem.Time.IsZero()) {
			t.Errorf("%+v", s)
		}
		a.journal.close()
	}
}
