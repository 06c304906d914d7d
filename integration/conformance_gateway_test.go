//go:build unix

package integration

import (
	"bytes"
	"fmt"
	"os"
	"testing"
)

// TestConformance runs the official suites, first directly at the go-sdk's everything-server in
// the form of their generation, and then through the gateway for each form of that server: one
// process, at one URL, that serves all of them. Each check that passes directly must pass
// through the gateway, and no other check may fail. There are exceptions (exceptionsFile) only
// where the server is of another generation than the suite.
//
// Not parallel to other tests, because some scenarios wait no longer than 200 ms.
func TestConformance(t *testing.T) {
	legacy, modern := serveEverything(t, "-stateless=false"), serveEverything(t, "-stateless=true")
	direct := make(map[string][]scenario)
	for _, s := range suites {
		server := legacy
		if s.revision == modernRevision {
			server = modern
		}
		direct[s.name] = s.runServerScenarios(t, server)
		c := compare(s.name+" direct", direct[s.name], direct[s.name], nil)
		report(t, c.lines.Bytes())
		if !c.ok() || c.want != s.passes {
			t.Errorf("conformance %s: %d checks pass without the gateway, want %d", s.name, c.want,
				s.passes)
		}
	}
	stdio := everythingServer(t)
	cross := map[string]exceptions{legacyRevision: readExceptions(t, legacyRevision),
		modernRevision: readExceptions(t, modernRevision)}
	variants := []struct {
		name, revision string
		backend        backend
	}{
		{"legacy-http-backend", legacyRevision, backend{Name: "everything", URL: legacy}},
		{"legacy-stdio-backend", legacyRevision,
			backend{Name: "everything", Command: stdio, Sharing: "session", Generation: "legacy"}},
		{"modern-http-backend", modernRevision, backend{Name: "everything", URL: modern}},
		{"modern-stdio-backend", modernRevision, backend{Name: "everything", Command: stdio}},
		{"stdio-backend-of-both-generations", "",
			backend{Name: "everything", Command: stdio, Sharing: "session"}},
	}
	t.Run("gateway", func(t *testing.T) { // ends when its parallel subtests have ended
		for _, variant := range variants {
			t.Run(variant.name, func(t *testing.T) {
				t.Parallel()
				url := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}},
					variant.backend).serveURL()
				for _, s := range suites {
					t.Run(s.name, func(t *testing.T) {
						var except exceptions
						if variant.revision != "" && s.revision != variant.revision {
							except = cross[s.revision]
						}
						c := compare(s.name+" "+variant.name, direct[s.name],
							s.runServerScenarios(t, url), except)
						report(t, c.lines.Bytes())
						if !c.ok() {
							t.Errorf("%d of %d checks pass as without the gateway; %d others fail",
								c.passed, c.want, c.failed)
						}
					})
				}
			})
		}
	})
	for revision, except := range cross {
		for _, e := range except.stale() {
			t.Errorf("%s: %s %s:%s passes everywhere: remove it", exceptionsFile, revision,
				e.scenario, e.id)
		}
	}
}

// TestConformanceClient tests the gateway as a client: for each scenario the suite is a server,
// and the gateway's only backend. runConformanceClient, in front of the gateway, does what the
// scenario expects of a client: once as a client of the scenario's generation, once as a client
// of the other.
func TestConformanceClient(t *testing.T) {
	t.Parallel()
	setup := newSetup(t, map[string]any{"state": "none", "catalog": map[string]any{"wait": "20s"}},
		backend{Name: "suite", URL: "${" + suiteURLEnv + "}"})
	for _, s := range suites {
		names := s.clientScenarios(t)
		if len(names) < 4 {
			t.Errorf("conformance %s lists only the scenarios %q", s.name, names)
		}
		for _, revision := range []string{legacyRevision, modernRevision} {
			env := setup.env(helperEnv+"=helper-conformance-client",
				suiteConfigEnv+"="+setup.config, suiteRevisionEnv+"="+revision,
				gatewayEnv+"="+gateway(t))
			passes := make([]bool, len(names))
			t.Run(s.name+"/client "+revision, func(t *testing.T) {
				for i, name := range names {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						s.runClientScenario(t, name, env)
						passes[i] = true
					})
				}
			})
			var lines bytes.Buffer
			passed := 0
			for i, name := range names {
				result := "FAIL"
				if passes[i] {
					result = "pass"
					passed++
				}
				fmt.Fprintf(&lines, "%s  %s\n", result, name)
			}
			fmt.Fprintf(&lines, "conformance %s, client of %s: %d/%d scenarios\n", s.name, revision,
				passed, len(names))
			report(t, lines.Bytes())
		}
	}
}

// The same client passes the scenarios without a gateway, so that failures above are the
// gateway's.
func TestHarnessConformanceClientDirect(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		env := newSetup(t, nil).env(helperEnv+"=helper-conformance-client",
			suiteRevisionEnv+"="+s.revision)
		for _, name := range s.clientScenarios(t) {
			t.Run(s.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				s.runClientScenario(t, name, env)
			})
		}
	}
}

// runClientScenario runs one client scenario with this binary as the client. At least one check
// must pass, and none may fail or warn.
func (s suite) runClientScenario(t testing.TB, name string, env []string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// The suite splits the command at spaces and passes it to a shell.
	out, err := s.run(t, env, "client", "--command", "'"+exe+"'", "--scenario", name,
		"--spec-version", s.revision, "-o", dir)
	if err != nil { // a check failed or warned, or the client failed
		t.Fatalf("%v\n%s", err, out)
	}
	if compare("", readScenarios(t, dir), nil, nil).want == 0 {
		t.Fatalf("no check passed\n%s", out)
	}
}
