package main

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"mcpgateway/internal/adminapi"
)

// reportsForPrinting are two gateways: the first has much to report, the second does not answer.
func reportsForPrinting(now time.Time) []gatewayReport {
	p50, p99 := 12.4, 61_234.0
	return []gatewayReport{{
		ID: "k3f9q2x7",
		GatewayStatus: &adminapi.GatewayStatus{
			Gateway: adminapi.GatewayInfo{ID: "k3f9q2x7", PID: 4711, Version: "1.2.3",
				Started: now.Add(-3*time.Hour - 12*time.Minute), Stdio: true},
			Configuration: adminapi.ConfigurationState{
				File:    "/home/me/gateway.yaml",
				Problem: "gateway.yaml:3: unknown key \"lisen\"\ngateway.yaml:9: x", Differs: true,
				NeedRestart: []string{"listen"},
			},
			Audit: adminapi.AuditStatus{Lost: 17, File: &adminapi.AuditFileStatus{
				Path: "/var/log/audit.jsonl", Size: 12_300_000, Former: 3, FormerSize: 4_560_000,
				Problem: &adminapi.TimedText{Time: now.Add(-5 * time.Minute),
					Text: "no space left on device"},
			}},
			Backends: []adminapi.BackendStatus{
				{Name: "a-backend-with-a-very-long-name", State: "ready", Healthy: true,
					Since: now.Add(-3 * time.Hour), Lists: adminapi.ListCounts{Tools: 1200},
					Calls: adminapi.CallTotals{Calls: 1234567, Errors: 4321, InFlight: 12,
						P50: &p50, P99: &p99}},
				{Name: "broken", State: "backing off", Since: now.Add(-90 * time.Second),
					Restarts: 5, NextTry: now.Add(30 * time.Second),
					Reason: "exited with code 1: \x1b[31mboom\r\nsecond line " +
						strings.Repeat("x", 60)},
				{Name: "docs", State: "ready", Healthy: true, Since: now.Add(-72 * time.Hour),
					Calls: adminapi.CallTotals{LastError: &adminapi.TimedText{
						Time: now.Add(-time.Minute), Text: "timeout: no answer"}}},
			},
			Sessions: []adminapi.SessionStatus{{ID: "dd15431c2f2844eed64196780f285e48",
				Client: "claude-code/1.0", Principal: "alice", Profiles: []string{"web"},
				Started: now.Add(-time.Minute), InFlight: 12}},
		},
	}, {ID: "other", Error: "does not answer"}}
}

// The tables fit into 80 and 120 columns, and texts of backends cannot control the terminal.
func TestStatusFitsTheScreen(t *testing.T) {
	now := time.Now()
	for _, columns := range []string{"80", "120", ""} {
		t.Setenv("COLUMNS", columns)
		var out strings.Builder
		if err := printReports(&out, reportsForPrinting(now), now); err != nil {
			t.Fatal(err)
		}
		t.Logf("columns %s:\n%s", columns, out.String())
		limit := map[string]int{"80": 80, "120": 120, "": 1000}[columns]
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > limit &&
				!strings.Contains(line, "not in force") {
				t.Errorf("%s columns: %d in %q", columns, n, line)
			}
		}
		for _, want := range []string{
			"gateway k3f9q2x7, process 4711, version 1.2.3, up 3h12m", "stdin and stdout of claude",
			"not in force: gateway.yaml:3", "gateway check shows all problems",
			"changes of listen apply when the gateway is restarted", "gateway reload applies it",
			"backing off", "1m", "1234567", "4321", "12ms", "61.2s", "boom", "claude-code/1.0",
			"alice (profile web)",
			"/var/log/audit.jsonl, 12.3 MB, and 3 former files, 4.6 MB",
			"for 5m: no space left on device", "17 audit records lost", "next try in 30s", "1m ago: timeout", "3d",
			"gateway other: does not answer",
		} {
			if columns != "" && want == "next try in 30s" {
				continue // cut or wrapped
			}
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s columns: %q is missing", columns, want)
			}
		}
		if strings.ContainsAny(out.String(), "\x1b\r") {
			t.Errorf("control characters: %q", out.String())
		}
	}
}

func TestStatusDecidesWhetherAllIsWell(t *testing.T) {
	all := reportsForPrinting(time.Now())
	if allWell(nil) || allWell(all) || allWell(all[1:]) || allWell(all[:1]) {
		t.Error("well")
	}
	all[0].Backends[1].Healthy = true
	if allWell(all[:1]) {
		t.Error("well although the audit file does not work")
	}
	all[0].Audit.File.Problem = nil
	if !allWell(all[:1]) {
		t.Error("not well")
	}
}
