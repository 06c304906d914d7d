//go:build unix

package integration

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"testing"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/transport"
)

// No Go SDK implements the tasks of 2026-07-28. Tests of these tasks therefore use
// mcptest.TaskServer as the server: over HTTP in this process, or over stdio as a role of the test
// binary.

// serveTasks runs a TaskServer over HTTP until the test ends, and returns the URL of the server.
func serveTasks(t testing.TB) string {
	t.Helper()
	tasks := mcptest.NewTaskServer()
	server := httptest.NewServer(tasks)
	t.Cleanup(func() {
		tasks.Close() // ends subscriptions/listen requests, for which server.Close would wait
		server.Close()
	})
	return server.URL + "/mcp"
}

// runTaskServer runs a TaskServer over stdio until its stdin ends.
func runTaskServer() int {
	tasks := mcptest.NewTaskServer()
	defer tasks.Close()
	tasks.Serve(transport.Stdio(os.Stdin, os.Stdout, 1<<20))
	return 0
}

func TestHarnessTasksDirect(t *testing.T) {
	t.Parallel()
	c := startDirect(t, helperBackend("tasks", "tasks", ""))
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`
	var made struct{ ResultType, TaskID string }
	if m := c.call("tools/call", `{"name":"failing_job",`+meta+`}`); json.Unmarshal(m.Result,
		&made) != nil || made.ResultType != "task" {
		t.Fatalf("failing_job: %s", m.Raw)
	}
	c.sendRequest(`"l"`, "subscriptions/listen",
		`{"notifications":{"taskIds":["`+made.TaskID+`"]},`+meta+`}`)
	c.await("acknowledgement", waitTimeout,
		func(m message) bool { return m.Method == "notifications/subscriptions/acknowledged" })
	ended := func() bool {
		m := c.call("tasks/get", `{"taskId":"`+made.TaskID+`",`+meta+`}`)
		return bytes.Contains(m.Result, []byte(`"status":"completed"`)) &&
			bytes.Contains(m.Result, []byte(`"isError":true`))
	}
	if !poll(waitTimeout, ended) {
		t.Error("failing_job does not complete")
	}
	if code := c.finish(waitTimeout); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// taskScenarios are the suite's scenarios for the extension, which are not in a set of
// requirements. The suite states that it does not test tasks-status-notifications yet: its one
// check is SKIPPED.
// number of checks, one of which is that all messages match the schema
var taskScenarios = map[string]int{
	"tasks-lifecycle": 9, "tasks-capability-negotiation": 5, "tasks-wire-fields": 4,
	"tasks-request-state-removal": 3,
	"tasks-mrtr-input":            4, "tasks-request-headers": 5, "tasks-dispatch-and-envelope": 9,
	"tasks-status-notifications": 0,
	"tasks-required-task-error":  3, "tasks-mrtr-composition": 2,
}

// The suite tests the TaskServer itself, before it is used to test the gateway: every check is
// SUCCESS.
func TestConformanceTasksFixture(t *testing.T) { runTaskScenarios(t, serveTasks(t)) }

// Each check that passes directly passes through the gateway.
func TestConformanceTasks(t *testing.T) {
	runTaskScenarios(t, newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}},
		backend{Name: "jobs", URL: serveTasks(t)}).serveURL())
}

// runTaskScenarios runs the suite's scenarios against a server.
func runTaskScenarios(t *testing.T, url string) {
	for name, checks := range taskScenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := suite{name: "0.2.0-alpha.12", module: "conformance-0.2",
				server: []string{"--scenario", name}}
			passed := 0
			for _, got := range s.runServerScenarios(t, url) {
				for at, c := range got.keyedChecks() {
					switch c.Status {
					case "SUCCESS":
						passed++
					case "SKIPPED":
					default:
						t.Errorf("%s: %s %s", at.id, c.Status, c.Message)
					}
				}
			}
			if passed != checks {
				t.Errorf("%d checks passed, want %d", passed, checks)
			}
		})
	}
}
