//go:build unix

package integration

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A suite is one release of @modelcontextprotocol/conformance. Run as `server` it is a client
// that puts a server through its scenarios. Run as `client` it is a server, a new one for each
// scenario, and runs a client command with its URL.
type suite struct {
	name     string
	module   string   // in node_modules
	server   []string // arguments that select the server scenarios
	passes   int      // checks that the everything-server of the suite's generation passes
	revision string   // the suite's protocol revision
}

var suites = []suite{
	// The last release. Its default suite is 40 checks; all adds json-schema-2020-12 and
	// server-sse-polling.
	{"0.1.16", "conformance-0.1", []string{"--suite", "all"}, 44, legacyRevision},
	// The requirements of revision 2025-11-25, and three scenarios without a score. Each message
	// from the server is also checked against the schema of the revision.
	{"0.2.0-alpha.12 " + legacyRevision, "conformance-0.2",
		[]string{"--requirements", legacyRevision}, 82, legacyRevision},
	// The requirements of revision 2026-07-28, and thirteen scenarios without a score: three
	// about schemas and headers, and ten about tasks, which the everything-server does not have;
	// it passes those of their checks that test rejections.
	{"0.2.0-alpha.12 " + modernRevision, "conformance-0.2",
		[]string{"--requirements", modernRevision}, 165, modernRevision},
}

// The newest revision of each generation.
const (
	legacyRevision = "2025-11-25"
	modernRevision = "2026-07-28"
)

// A check is one result within a scenario. The suite counts SUCCESS as passed and FAILURE as
// failed; it ignores WARNING, INFO and SKIPPED.
type check struct {
	ID      string
	Status  string
	Message string `json:"errorMessage"`
}

// A scenario is the result of one of the suite's scenarios.
type scenario struct {
	name   string
	checks []check
}

// A checkKey identifies one check of a suite. A scenario may have several checks with one id.
type checkKey struct {
	scenario, id string
	nth          int
}

// checksByKey returns all checks by key.
func checksByKey(scenarios []scenario) map[checkKey]check {
	all := make(map[checkKey]check)
	for _, s := range scenarios {
		for at, c := range s.keyedChecks() {
			all[at] = c
		}
	}
	return all
}

// keyedChecks returns the checks of the scenario with their keys, in order.
func (s scenario) keyedChecks() iter.Seq2[checkKey, check] {
	return func(yield func(checkKey, check) bool) {
		seen := make(map[string]int)
		for _, c := range s.checks {
			at := checkKey{s.name, c.ID, seen[c.ID]}
			seen[c.ID]++
			if !yield(at, c) {
				return
			}
		}
	}
}

// A comparison counts the results of the checks that pass without the gateway.
type comparison struct {
	passed, want int
	failed       int // failures of checks that are not in want
	excepted     int // checks that have an exception
	lines        bytes.Buffer
}

func (c *comparison) ok() bool { return c.passed == c.want && c.failed == 0 }

// compare writes one line for each scenario, the failed checks below it, and the totals. A check
// that is SUCCESS directly has to be SUCCESS, not WARNING and not absent; any other check may be
// anything but FAILURE, unless it is FAILURE directly. Checks in except are left out, and marked
// as needed if they failed.
func compare(what string, direct, got []scenario, except exceptions) *comparison {
	c := new(comparison)
	want, have := checksByKey(direct), checksByKey(got)
	for _, s := range direct {
		passed, total := 0, 0
		var wrong []string
		for at, d := range s.keyedChecks() {
			if d.Status != "SUCCESS" {
				continue
			}
			g := have[at]
			switch {
			case g.Status == "SUCCESS":
				total++
				passed++
			case except.excepts(at):
				c.excepted++
			default:
				total++
				wrong = append(wrong, fmt.Sprintf("%s: %s %s", at.id, cmp.Or(g.Status, "ABSENT"),
					g.Message))
			}
		}
		result := "pass"
		if passed < total {
			result = "FAIL"
		}
		fmt.Fprintf(&c.lines, "%s  %s %d/%d\n", result, s.name, passed, total)
		for _, w := range wrong {
			fmt.Fprintf(&c.lines, "      %s\n", w)
		}
		c.passed, c.want = c.passed+passed, c.want+total
	}
	for _, s := range got {
		for at, g := range s.keyedChecks() {
			if known := want[at].Status; g.Status == "FAILURE" && known != "SUCCESS" &&
				known != "FAILURE" && !except.excepts(at) {
				c.failed++
				fmt.Fprintf(&c.lines, "FAIL  %s: %s: %s\n", s.name, at.id, g.Message)
			}
		}
	}
	fmt.Fprintf(&c.lines, "conformance %s: %d/%d", what, c.passed, c.want)
	if c.excepted > 0 {
		fmt.Fprintf(&c.lines, ", and %d exceptions", c.excepted)
	}
	c.lines.WriteByte('\n')
	return c
}

// runServerScenarios runs the suite's server scenarios against the server at url.
func (s suite) runServerScenarios(t testing.TB, url string) []scenario {
	t.Helper()
	dir := t.TempDir()
	out, err := s.run(t, nil, append([]string{"server", "--url", url, "-o", dir}, s.server...)...)
	found := readScenarios(t, dir)
	if len(found) == 0 {
		t.Fatalf("conformance %s: %v\n%s", s.name, err, out)
	}
	return found // err only reports that a check failed, which the scenarios contain in detail
}

// run runs the suite's command line and returns its output. env is added to a minimal
// environment.
func (s suite) run(t testing.TB, env []string, args ...string) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node(t),
		append([]string{module(t, s.module, "dist", "index.js")}, args...)...)
	cmd.Dir = t.TempDir()
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd.CombinedOutput()
}

// resultDir matches the suite's name for a scenario's directory:
// [server-]NAME-2026-11-28T01-59-33-065Z.
var resultDir = regexp.MustCompile(`^(?:server-)?(.+)-(\d{4}-\d\d-\d\dT[\d-]+Z)$`)

// readScenarios reads the results that the suite wrote to dir, in the order of the run. A
// scenario that was aborted has no checks.
func readScenarios(t testing.TB, dir string) []scenario {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(entries, func(a, b os.DirEntry) int {
		return cmp.Compare(startTimeOf(a), startTimeOf(b))
	})
	var found []scenario
	for _, e := range entries {
		name := resultDir.FindStringSubmatch(e.Name())
		if name == nil {
			t.Fatalf("conformance: unexpected name of a result: %s", e.Name())
		}
		s := scenario{name: name[1]}
		text, err := os.ReadFile(filepath.Join(dir, e.Name(), "checks.json"))
		if err == nil {
			err = json.Unmarshal(text, &s.checks)
		}
		if err != nil {
			s.checks = []check{{"scenario", "FAILURE", err.Error()}}
		}
		found = append(found, s)
	}
	return found
}

func startTimeOf(result os.DirEntry) string {
	if m := resultDir.FindStringSubmatch(result.Name()); m != nil {
		return m[2]
	}
	return ""
}

// clientScenarios returns the names of the suite's client scenarios, without those of OAuth, which
// authScenarios returns.
func (s suite) clientScenarios(t testing.TB) []string {
	t.Helper()
	out, err := s.run(t, nil, "list", "--client", "--spec-version", s.revision)
	if err != nil {
		t.Fatalf("conformance %s: %v\n%s", s.name, err, out)
	}
	var found []string
	for _, m := range regexp.MustCompile(`(?m)^  - (\S+)`).FindAllSubmatch(out, -1) {
		if name := string(m[1]); !strings.HasPrefix(name, "auth/") {
			found = append(found, name)
		}
	}
	return found
}

// reportEnv names a file that the conformance tests append their results to, because go test
// prints nothing about a package that passes; .ci/run prints the file.
const reportEnv = "INTEGRATION_REPORT"

// report writes lines to the log and to the report.
func report(t testing.TB, lines []byte) {
	t.Helper()
	t.Logf("\n%s", lines)
	path := os.Getenv(reportEnv)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(lines); err != nil {
		t.Error(err)
	}
}
