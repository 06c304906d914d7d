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

// A suite is one release of @modelcontextprotocol/conformance. Run as `server` it is a client that puts a server
// through its scenarios; run as `client` it is a server that a client is sent to, a new one for each scenario.
type suite struct {
	name   string
	module string   // in node_modules
	server []string // which server scenarios
	passes int      // checks of those that the everything-server of their era passes
	era    string   // the revision whose wire it speaks
}

var suites = []suite{
	// The last release. Its default suite is 40 checks; all adds json-schema-2020-12 and server-sse-polling.
	{"0.1.16", "conformance-0.1", []string{"--suite", "all"}, 44, sessionEra},
	// What revision 2025-11-25 requires, and the three scenarios that it runs without scoring them. Here each
	// message from the server is also checked against the schema of the revision.
	{"0.2.0-alpha.12 " + sessionEra, "conformance-0.2", []string{"--requirements", sessionEra}, 82, sessionEra},
	// What revision 2026-07-28 requires, and thirteen without a score: three about schemas and headers, and ten about
	// tasks, which the everything-server does not have; what it passes of those is how it refuses.
	{"0.2.0-alpha.12 " + statelessEra, "conformance-0.2", []string{"--requirements", statelessEra}, 165, statelessEra},
}

// The newest revision of either era, by which the tests call it.
const (
	sessionEra   = "2025-11-25"
	statelessEra = "2026-07-28"
)

// A check is one verdict of a scenario. SUCCESS and FAILURE are what the suite counts as passed and failed; it lets
// WARNING, INFO and SKIPPED be.
type check struct {
	ID      string
	Status  string
	Message string `json:"errorMessage"`
}

// A scenario is what became of one of the suite's scenarios.
type scenario struct {
	name   string
	checks []check
}

// A place is that of one check among all of a suite. A scenario may have several of one id.
type place struct {
	scenario, id string
	nth          int
}

// verdicts are all checks by their place.
func verdicts(scenarios []scenario) map[place]check {
	all := make(map[place]check)
	for _, s := range scenarios {
		for at, c := range s.places() {
			all[at] = c
		}
	}
	return all
}

// places are the scenario's checks, in order, each with its place.
func (s scenario) places() iter.Seq2[place, check] {
	return func(yield func(place, check) bool) {
		seen := make(map[string]int)
		for _, c := range s.checks {
			at := place{s.name, c.ID, seen[c.ID]}
			seen[c.ID]++
			if !yield(at, c) {
				return
			}
		}
	}
}

// A comparison says what became of the checks that pass without the gateway.
type comparison struct {
	passed, of int
	failed     int // checks that are not counted in of, but must not fail either
	excepted   int // checks that the exceptions have
	lines      bytes.Buffer
}

func (c *comparison) ok() bool { return c.passed == c.of && c.failed == 0 }

// compare writes one line for each scenario, what went wrong below it, and the sum. What is SUCCESS directly has to be
// SUCCESS, not WARNING and not absent; what is not may be anything but FAILURE, unless it is that directly. The checks
// that except names are left out, and it remembers which of those went wrong.
func compare(what string, direct, got []scenario, except exceptions) *comparison {
	c := new(comparison)
	want, have := verdicts(direct), verdicts(got)
	for _, s := range direct {
		passed, of := 0, 0
		var wrong []string
		for at, d := range s.places() {
			if d.Status != "SUCCESS" {
				continue
			}
			g := have[at]
			switch {
			case g.Status == "SUCCESS":
				of++
				passed++
			case except.cover(at):
				c.excepted++
			default:
				of++
				wrong = append(wrong, fmt.Sprintf("%s: %s %s", at.id, cmp.Or(g.Status, "ABSENT"), g.Message))
			}
		}
		verdict := "pass"
		if passed < of {
			verdict = "FAIL"
		}
		fmt.Fprintf(&c.lines, "%s  %s %d/%d\n", verdict, s.name, passed, of)
		for _, w := range wrong {
			fmt.Fprintf(&c.lines, "      %s\n", w)
		}
		c.passed, c.of = c.passed+passed, c.of+of
	}
	for _, s := range got {
		for at, g := range s.places() {
			if known := want[at].Status; g.Status == "FAILURE" && known != "SUCCESS" && known != "FAILURE" && !except.cover(at) {
				c.failed++
				fmt.Fprintf(&c.lines, "FAIL  %s: %s: %s\n", s.name, at.id, g.Message)
			}
		}
	}
	fmt.Fprintf(&c.lines, "conformance %s: %d/%d", what, c.passed, c.of)
	if c.excepted > 0 {
		fmt.Fprintf(&c.lines, ", and %d that no gateway can pass", c.excepted)
	}
	c.lines.WriteByte('\n')
	return c
}

// serve puts the server at url through the suite's server scenarios.
func (s suite) serve(t testing.TB, url string) []scenario {
	t.Helper()
	dir := t.TempDir()
	out, err := s.run(t, nil, append([]string{"server", "--url", url, "-o", dir}, s.server...)...)
	found := readScenarios(t, dir)
	if len(found) == 0 {
		t.Fatalf("conformance %s: %v\n%s", s.name, err, out)
	}
	return found // whether a check failed, which is what err says, they say better
}

// run runs the suite's command line and returns all it printed. env comes on top of the little it is given.
func (s suite) run(t testing.TB, env []string, args ...string) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node(t), append([]string{module(t, s.module, "dist", "index.js")}, args...)...)
	cmd.Dir = t.TempDir()
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd.CombinedOutput()
}

// resultDir is how the suite names a scenario's directory: [server-]NAME-2026-11-28T01-59-33-065Z.
var resultDir = regexp.MustCompile(`^(?:server-)?(.+)-(\d{4}-\d\d-\d\dT[\d-]+Z)$`)

// readScenarios reads what the suite wrote into dir, in the order in which it ran. A scenario that broke off has no
// checks.
func readScenarios(t testing.TB, dir string) []scenario {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(entries, func(a, b os.DirEntry) int { return cmp.Compare(began(a), began(b)) })
	var found []scenario
	for _, e := range entries {
		name := resultDir.FindStringSubmatch(e.Name())
		if name == nil {
			t.Fatalf("conformance: a result is called %s", e.Name())
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

func began(result os.DirEntry) string {
	if m := resultDir.FindStringSubmatch(result.Name()); m != nil {
		return m[2]
	}
	return ""
}

// clientScenarios are the names of those for the client of a server of the suite's era, without OAuth: a backend's
// token is configured, the gateway does not fetch one.
func (s suite) clientScenarios(t testing.TB) []string {
	t.Helper()
	out, err := s.run(t, nil, "list", "--client", "--spec-version", s.era)
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

// reportEnv names a file that the conformance tests append their results to. go test shows nothing of a package that
// passes, and these should be seen; .ci/run prints the file.
const reportEnv = "INTEGRATION_REPORT"

// report writes lines into the log and the report.
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
