//go:build unix

package integration

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// metricNames are the names of our metrics in a text, without the suffixes of a histogram.
func metricNames(text []byte) (names []string) {
	for _, name := range regexp.MustCompile(`mcp_gateway_[a-z_]+`).FindAllString(string(text), -1) {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			name = strings.TrimSuffix(name, suffix)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// The alerts, the dashboard and the documentation name exactly the metrics that a gateway has.
func TestMetrics_AreThoseInUse(t *testing.T) {
	t.Parallel()
	s := newSetup(t, map[string]any{
		"admin": map[string]any{"listen": "127.0.0.1:0"},
		"audit": map[string]any{"file": "audit.jsonl"},
	}, backend{Name: "demo", Embedded: "demo"})
	gw := s.start()
	gw.initialize("2025-11-25")
	callTool(gw, "echo", `{"text":"x"}`)
	all := s.awaitStatus("the admin address", func(all []statusReport) bool {
		return len(all) == 1 && all[0].Gateway.Admin != ""
	})
	token, err := os.ReadFile(filepath.Join(s.dir, "state", "admin-token"))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", all[0].Gateway.Admin+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s %v %s", resp.Status, err, text)
	}
	searchText(t, "the metrics", text)
	served := metricNames(text)
	for _, file := range []string{"deploy/prometheus/alerts.yaml", "deploy/grafana/mcp-gateway.json",
		"docs/operations.md"} {
		used, err := os.ReadFile(filepath.Join("..", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range metricNames(used) {
			if !slices.Contains(served, name) {
				t.Errorf("%s uses %s, which a gateway does not have", file, name)
			}
		}
		if file == "docs/operations.md" {
			for _, name := range served {
				if !slices.Contains(metricNames(used), name) {
					t.Errorf("%s does not describe %s", file, name)
				}
			}
		}
	}
	promtool(t, text, "check", "metrics")
}

// promtool accepts the rules and the example of a configuration, and the tests of the rules pass.
func TestMetrics_PromtoolAcceptsTheFiles(t *testing.T) {
	t.Parallel()
	promtool(t, nil, "check", "rules", "alerts.yaml")
	promtool(t, nil, "test", "rules", "alerts_test.yaml")
	promtool(t, nil, "check", "config", "--syntax-only", "prometheus.yaml")
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	text, err := os.ReadFile("../deploy/grafana/mcp-gateway.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	queries := 0
	for _, p := range dashboard.Panels {
		for _, q := range p.Targets {
			queries++
			expr, err := json.Marshal(strings.ReplaceAll(q.Expr, "$__rate_interval", "5m"))
			if err != nil {
				t.Fatal(err)
			}
			rules.WriteString("  - { record: x, expr: " + string(expr) + " }\n")
		}
	}
	if queries < 20 {
		t.Errorf("%d queries", queries)
	}
	file := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, nil, "check", "rules", "--lint=none", file)
}

// promtool runs promtool in the folder of the rules. It skips the test if promtool is not
// installed, except in CI.
func promtool(t *testing.T, stdin []byte, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("TEST_PROMTOOL") != "" {
			t.Fatal(err)
		}
		t.Skip("promtool is not installed (Debian: prometheus)")
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir = "../deploy/prometheus"
	cmd.Stdin = bytes.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
