//go:build unix

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.yaml.in/yaml/v3"
)

// An authScenario is a client scenario of a suite about OAuth.
type authScenario struct {
	name   string
	scored bool // false = an extension, which is optional
}

// supportedExtension is the only extension that the gateway supports.
const supportedExtension = "auth/client-credentials-basic"

// authScenarios returns the client scenarios about OAuth that belong to the suite's revision.
func (s suite) authScenarios(t testing.TB) (all []authScenario) {
	t.Helper()
	text, err := os.ReadFile(module(t, s.module, "requirements", s.revision+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var requirements struct {
		Client    []string
		NotScored []struct{ Scenario string } `yaml:"not_scored"`
	}
	if err := yaml.Unmarshal(text, &requirements); err != nil {
		t.Fatal(err)
	}
	for _, name := range requirements.Client {
		if strings.HasPrefix(name, "auth/") {
			all = append(all, authScenario{name, true})
		}
	}
	for _, one := range requirements.NotScored {
		if strings.HasPrefix(one.Scenario, "auth/") {
			all = append(all, authScenario{one.Scenario, false})
		}
	}
	return all
}

// TestConformanceAuth tests the gateway as an OAuth client: for each scenario the suite is an MCP
// server that requires a login, and its authorization servers. runConformanceLogin logs in with
// `gateway login`, and calls the server's tool through the gateway. The scored scenarios and
// supportedExtension must pass; the results of the other extensions are only reported.
func TestConformanceAuth(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		if s.module != "conformance-0.2" {
			continue
		}
		scenarios := s.authScenarios(t)
		if len(scenarios) < 20 {
			t.Errorf("conformance %s has only %d scenarios about OAuth", s.name, len(scenarios))
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			results := make([]authResult, len(scenarios))
			t.Run("all", func(t *testing.T) {
				for i, one := range scenarios {
					t.Run(one.name, func(t *testing.T) {
						t.Parallel()
						results[i] = s.runAuthScenario(t, one.name)
						if err := results[i].err; err != nil &&
							(one.scored || one.name == supportedExtension) {
							t.Errorf("%v\n%s", err, results[i].output)
						}
					})
				}
			})
			var lines bytes.Buffer
			passed, scored := 0, 0
			for i, one := range scenarios {
				kind, result := "extension", "pass"
				if one.scored {
					kind = "scored"
					scored++
				}
				switch r := results[i]; {
				case r.err != nil || r.passed == 0:
					result = "FAIL"
				case one.scored:
					passed++
				}
				fmt.Fprintf(&lines, "%s  %s (%s, %d checks passed)\n", result, one.name, kind,
					results[i].passed)
			}
			fmt.Fprintf(&lines, "conformance %s, OAuth client: %d/%d scored scenarios\n", s.name,
				passed, scored)
			report(t, lines.Bytes())
		})
	}
}

// An authResult is the result of one scenario.
type authResult struct {
	passed int   // checks
	err    error // nil = passed
	output []byte
}

// runAuthScenario runs one scenario with this binary as the client.
func (s suite) runAuthScenario(t testing.TB, name string) authResult {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	setup := newSetup(t, nil)
	dir := t.TempDir()
	hasSecrets(dir)
	// --force: without it, extensions are skipped and count as passed.
	out, err := s.run(t, setup.env(helperEnv+"=helper-conformance-login",
		suiteRevisionEnv+"="+s.revision, gatewayEnv+"="+gateway(t)),
		"client", "--command", "'"+exe+"'", "--scenario", name, "--spec-version", s.revision,
		"--force", "-o", dir)
	passed := compare("", readScenarios(t, filepath.Join(dir, "auth")), nil, nil).want
	if err == nil && passed == 0 {
		err = errors.New("no check passed")
	}
	return authResult{passed, err, out}
}

// runConformanceLogin is the command that the suite runs in a scenario about OAuth. It does what a
// user does: log in, use the tool, and log in again if the gateway says that this is necessary.
func runConformanceLogin() int {
	if err := conformanceLogin(os.Getenv("MCP_CONFORMANCE_SCENARIO"), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func conformanceLogin(scenario, url string) error {
	// In a directory of the test, which is searched for secrets at its end.
	dir, err := os.MkdirTemp("", "login-")
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		return err
	}
	defer log.Close()
	oauth := map[string]any{"allow_private": true}
	switch scenario {
	case "auth/pre-registration", supportedExtension:
		var suiteContext struct {
			ID     string `json:"client_id"`
			Secret string `json:"client_secret"`
		}
		if err := json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")),
			&suiteContext); err != nil {
			return fmt.Errorf("the suite's context: %w", err)
		}
		oauth["client_id"] = suiteContext.ID
		oauth["client_secret"] = suiteContext.Secret
		if scenario == supportedExtension {
			oauth["grant"] = "client_credentials"
		}
	case "auth/basic-cimd":
		oauth["client_metadata_url"] = "https://conformance-test.local/client-metadata.json"
	}
	text, err := yaml.Marshal(map[string]any{"state": filepath.Join(dir, "state"),
		"catalog": map[string]any{"wait": "20s"}, "log": map[string]any{"level": "debug"},
		"audit":    map[string]any{"file": filepath.Join(dir, "audit.jsonl"), "payloads": "all"},
		"backends": []map[string]any{{"name": "suite", "url": url, "oauth": oauth}}})
	if err != nil {
		return err
	}
	config := filepath.Join(dir, "gateway.yaml")
	if err := os.WriteFile(config, text, 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	if oauth["grant"] == nil {
		if err := logIn(ctx, config, log); err != nil {
			fmt.Fprintln(os.Stderr, err) // the scenario may require a second login
		}
	}
	if err := usesTool(ctx, config, log); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		return nil
	}
	if err := logIn(ctx, config, log); err != nil {
		return err
	}
	return usesTool(ctx, config, log)
}

// logIn runs gateway login, with this binary as the browser, and adds its output to log.
func logIn(ctx context.Context, config string, log io.Writer) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	login := exec.CommandContext(ctx, os.Getenv(gatewayEnv), "-c", config, "login", "suite",
		"--timeout", "5s")
	login.Env = append(os.Environ(), "BROWSER="+exe, helperEnv+"=helper-browser")
	out, err := login.CombinedOutput()
	_, _ = log.Write(out)
	if err != nil {
		return fmt.Errorf("login: %w\n%s", err, out)
	}
	return nil
}

// usesTool lists the tools, and calls the one of the scenario's server, through the gateway.
func usesTool(ctx context.Context, config string, log io.Writer) error {
	gw := exec.Command(os.Getenv(gatewayEnv), "-c", config)
	gw.Stderr = io.MultiWriter(os.Stderr, log)
	client := gosdk.NewClient(&gosdk.Implementation{Name: "gosdk", Version: "1.8"}, nil)
	session, err := client.Connect(ctx, &gosdk.CommandTransport{Command: gw,
		TerminateDuration: waitTimeout}, nil)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer session.Close()
	return calls("test-tool", `{}`)(ctx, session)
}

// runBrowser opens the URL that is its argument, and follows redirects like a browser.
func runBrowser() int {
	client := &http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get(os.Args[len(os.Args)-1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 1
	}
	return 0
}
