//go:build unix

package integration

import (
	"bytes"
	"fmt"
	"os"
	"testing"
)

// The official suites, once straight at the go-sdk's everything-server in the form of their era, and once for each
// form of that server with the gateway in front of it: one process, at one URL, that answers all of them. What passes
// directly passes through the gateway, check by check, and nothing else fails. Where the server speaks the suite's era
// there is no list of exceptions; else there is crossCells.
//
// Not parallel to other tests, for some scenarios wait no longer than 200 ms.
func TestConformance(t *testing.T) {
	legacy, modern := serveEverything(t, "-stateless=false"), serveEverything(t, "-stateless=true")
	direct := make(map[string][]scenario)
	for _, s := range suites {
		server := legacy
		if s.era == statelessEra {
			server = modern
		}
		direct[s.name] = s.serve(t, server)
		c := compare(s.name+" direct", direct[s.name], direct[s.name], nil)
		report(t, c.lines.Bytes())
		if !c.ok() || c.of != s.passes {
			t.Errorf("conformance %s: %d checks pass without the gateway, want %d", s.name, c.of, s.passes)
		}
	}
	stdio := everythingServer(t)
	cross := map[string]exceptions{sessionEra: readExceptions(t, sessionEra), statelessEra: readExceptions(t, statelessEra)}
	for _, cell := range []struct {
		name, era string
		backend   backend
	}{
		{"legacy-http-backend", sessionEra, backend{Name: "everything", URL: legacy}},
		{"legacy-stdio-backend", sessionEra, backend{Name: "everything", Command: stdio, Sharing: "session", Era: "legacy"}},
		{"modern-http-backend", statelessEra, backend{Name: "everything", URL: modern}},
		{"modern-stdio-backend", statelessEra, backend{Name: "everything", Command: stdio}},
		{"stdio-backend-of-both-eras", "", backend{Name: "everything", Command: stdio, Sharing: "session"}},
	} {
		t.Run(cell.name, func(t *testing.T) {
			url := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}}, cell.backend).listen()
			for _, s := range suites {
				t.Run(s.name, func(t *testing.T) {
					var except exceptions
					if cell.era != "" && s.era != cell.era {
						except = cross[s.era]
					}
					c := compare(s.name+" "+cell.name, direct[s.name], s.serve(t, url), except)
					report(t, c.lines.Bytes())
					if !c.ok() {
						t.Errorf("%d of %d checks pass as they do without the gateway; %d others fail", c.passed, c.of, c.failed)
					}
				})
			}
		})
	}
	for era, except := range cross {
		for _, e := range except.stale() {
			t.Errorf("%s: %s %s:%s passes in every cell: take it out", crossCells, era, e.scenario, e.id)
		}
	}
}

// The gateway as a client: the suite plays a server for each scenario, and that is the gateway's only backend. What
// the scenario wants a client to do is done by playConformanceClient, in front of the gateway: as a client of the
// scenario's era, and as one of the other.
func TestConformanceClient(t *testing.T) {
	setup := newSetup(t, map[string]any{"state": "none", "catalog": map[string]any{"wait": "20s"}},
		backend{Name: "suite", URL: "${" + suiteURL + "}"})
	for _, s := range suites {
		names := s.clientScenarios(t)
		if len(names) < 4 {
			t.Errorf("conformance %s lists only the scenarios %q", s.name, names)
		}
		for _, era := range []string{sessionEra, statelessEra} {
			env := setup.env(partEnv+"=play-conformance-client", suiteConfig+"="+setup.config, suiteEra+"="+era, gatewayEnv+"="+gateway(t))
			var lines bytes.Buffer
			passed := 0
			for _, name := range names {
				verdict := "FAIL"
				t.Run(s.name+"/"+name+"/client "+era, func(t *testing.T) {
					s.playServer(t, name, env)
					verdict = "pass"
					passed++
				})
				fmt.Fprintf(&lines, "%s  %s\n", verdict, name)
			}
			fmt.Fprintf(&lines, "conformance %s, client of %s: %d/%d scenarios\n", s.name, era, passed, len(names))
			report(t, lines.Bytes())
		}
	}
}

// The same client passes the scenarios without a gateway, so that what fails above is the gateway's.
func TestHarnessConformanceClientDirect(t *testing.T) {
	for _, s := range suites {
		env := newSetup(t, nil).env(partEnv+"=play-conformance-client", suiteEra+"="+s.era)
		for _, name := range s.clientScenarios(t) {
			t.Run(s.name+"/"+name, func(t *testing.T) { s.playServer(t, name, env) })
		}
	}
}

// playServer runs one client scenario with this binary as the client. Some checks must pass and none fail or warn.
func (s suite) playServer(t testing.TB, name string, env []string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// The suite splits the command at spaces and gives it to a shell.
	out, err := s.run(t, env, "client", "--command", "'"+exe+"'", "--scenario", name, "--spec-version", s.era, "-o", dir)
	if err != nil { // a check that failed or warned, or the client did
		t.Fatalf("%v\n%s", err, out)
	}
	if compare("", readScenarios(t, dir), nil, nil).of == 0 {
		t.Fatalf("no check passed\n%s", out)
	}
}
