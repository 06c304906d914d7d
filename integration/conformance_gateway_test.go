//go:build unix

package integration

import (
	"bytes"
	"fmt"
	"os"
	"testing"
)

// The official suites, once straight at the go-sdk's everything-server and twice with the gateway in front of it, the
// server being reached over HTTP or being its child. What passes directly passes through the gateway, check by check,
// and nothing fails. There is no list of exceptions.
//
// Not parallel to other tests, for some scenarios wait no longer than 200 ms.
func TestConformance(t *testing.T) {
	server := serveEverything(t)
	direct := make(map[string][]scenario)
	for _, s := range suites {
		direct[s.name] = s.serve(t, server)
		c := compare(s.name+" direct", direct[s.name], direct[s.name])
		report(t, c.lines.Bytes())
		if !c.ok() || c.of != s.passes {
			t.Errorf("conformance %s: %d checks pass without the gateway, want %d", s.name, c.of, s.passes)
		}
	}
	for _, cell := range []struct {
		name    string
		backend backend
	}{
		{"http-backend", backend{Name: "everything", URL: server}},
		{"stdio-backend", backend{Name: "everything", Command: everythingServer(t), Sharing: "session"}},
	} {
		t.Run(cell.name, func(t *testing.T) {
			url := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}}, cell.backend).listen()
			for _, s := range suites {
				t.Run(s.name, func(t *testing.T) {
					c := compare(s.name+" "+cell.name, direct[s.name], s.serve(t, url))
					report(t, c.lines.Bytes())
					if !c.ok() {
						t.Errorf("%d of %d checks pass as they do without the gateway; %d others fail", c.passed, c.of, c.failed)
					}
				})
			}
		})
	}
}

// The gateway as a client: the suite plays a server for each scenario, and that is the gateway's only backend. What
// the scenario wants a client to do is done by playConformanceClient, in front of the gateway.
func TestConformanceClient(t *testing.T) {
	setup := newSetup(t, map[string]any{"state": "none", "catalog": map[string]any{"wait": "20s"}},
		backend{Name: "suite", URL: "${" + suiteURL + "}"})
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	env := setup.env(partEnv+"=play-conformance-client", suiteConfig+"="+setup.config, gatewayEnv+"="+gateway(t))
	for _, s := range suites {
		var lines bytes.Buffer
		names := s.clientScenarios(t)
		if len(names) < 4 {
			t.Errorf("conformance %s lists only the scenarios %q", s.name, names)
		}
		passed := 0
		for _, name := range names {
			verdict := "FAIL"
			t.Run(s.name+"/"+name, func(t *testing.T) {
				// The suite splits the command at spaces and gives it to a shell.
				dir := t.TempDir()
				out, err := s.run(t, env, "client", "--command", "'"+exe+"'", "--scenario", name, "--spec-version", "2025-11-25", "-o", dir)
				if err != nil { // a check that failed or warned, or the client did
					t.Fatalf("%v\n%s", err, out)
				}
				if compare("", readScenarios(t, dir), nil).of == 0 {
					t.Fatalf("no check passed\n%s", out)
				}
				verdict = "pass"
				passed++
			})
			fmt.Fprintf(&lines, "%s  %s\n", verdict, name)
		}
		fmt.Fprintf(&lines, "conformance %s client: %d/%d scenarios\n", s.name, passed, len(names))
		report(t, lines.Bytes())
	}
}
