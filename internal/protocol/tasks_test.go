package protocol_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

const (
	workingTask = `{"taskId":"t","status":"working","statusMessage":"é \u00e9","createdAt":"2025-11-25T10:30:00Z","lastUpdatedAt":"2025-11-25T10:40:00Z","ttl":60000,"pollInterval":5000,"x-own": {"n":1.10}}`
	rest        = `"statusMessage":"é \u00e9","createdAt":"2025-11-25T10:30:00Z","lastUpdatedAt":"2025-11-25T10:40:00Z","x-own": {"n":1.10}}`
)

// legacyTask returns a legacy task with this status.
func legacyTask(status string) []byte {
	return []byte(strings.Replace(workingTask, `"working"`, `"`+status+`"`, 1))
}

func TestTaskToModern(t *testing.T) {
	result := []byte(`{"content":[ ],"isError":true,"n":1.0}`)
	failure := []byte(`{"code":-32603, "message":"no","data":1.0}`)
	inputs := []protocol.InputRequest{{Key: "a", Method: "elicitation/create",
		Params: []byte(`{"message": "?"}`)}, {Key: "b", Method: "roots/list"}}
	const requests = `{"a":{"method":"elicitation/create","params":{"message": "?"}},"b":{"method":"roots/list","params":{}}}`
	for _, c := range []struct {
		was      string
		o        protocol.TaskOutcome
		is, more string
	}{
		{"working", protocol.TaskOutcome{}, "working", ""},
		{"cancelled", protocol.TaskOutcome{}, "cancelled", ""},
		{"cancelled", protocol.TaskOutcome{Error: failure}, "cancelled", ""},
		{"cancelled", protocol.TaskOutcome{Result: result}, "cancelled", ""},
		{"completed", protocol.TaskOutcome{Result: result}, "completed",
			`"result":` + string(result) + `,`},
		{"failed", protocol.TaskOutcome{Result: result}, "completed", `"result":` + string(result) +
			`,`},
		{"working", protocol.TaskOutcome{Result: result}, "completed",
			`"result":` + string(result) + `,`},
		{"failed", protocol.TaskOutcome{Error: failure}, "failed", `"error":` + string(failure) +
			`,`},
		{"completed", protocol.TaskOutcome{Error: failure}, "failed", `"error":` + string(failure) +
			`,`},
		{"input_required", protocol.TaskOutcome{Inputs: inputs}, "input_required",
			`"inputRequests":` + requests + `,`},
		{"working", protocol.TaskOutcome{Inputs: inputs}, "input_required",
			`"inputRequests":` + requests + `,`},
		// A status without the matching outcome or inputs becomes working.
		{"completed", protocol.TaskOutcome{}, "working", ""},
		{"failed", protocol.TaskOutcome{}, "working", ""},
		{"input_required", protocol.TaskOutcome{}, "working", ""},
		{"unknown", protocol.TaskOutcome{}, "unknown", ""},
	} {
		task := c.more + `"status":"` + c.is +
			`","ttlMs":60000,"pollIntervalMs":5000,"taskId":"t",` + rest
		if got, want := string(protocol.TaskToModern(legacyTask(c.was), c.o)),
			`{"resultType":"complete",`+task; got != want {
			t.Errorf("%s, %+v:\n got %s\nwant %s", c.was, c.o, got, want)
		}
	}
}

func TestTaskToLegacy(t *testing.T) {
	for modern, want := range map[string]string{
		`{"resultType":"complete","taskId":"t","status":"working","ttlMs":60000,"pollIntervalMs":5000,"requestState":"s","x":1.0}`: `{"status":"working","ttl":60000,"pollInterval":5000,"taskId":"t","x":1.0}`,
		`{"taskId":"t","status":"completed","ttlMs":null,"result":{"isError":false}}`:                                              `{"status":"completed","ttl":null,"taskId":"t"}`,
		`{"taskId":"t","status":"completed","result":{"isError":true}}`:                                                            `{"status":"failed","ttl":null,"taskId":"t"}`,
		`{"taskId":"t","status":"failed","error":{"code":1}}`:                                                                      `{"status":"failed","ttl":null,"taskId":"t"}`,
		`{"taskId":"t","status":"input_required","inputRequests":{"a":{}}}`:                                                        `{"status":"input_required","ttl":null,"taskId":"t"}`,
		`{"taskId":"t","status":"cancelled","createdAt":"c"}`:                                                                      `{"status":"cancelled","lastUpdatedAt":"c","ttl":null,"taskId":"t","createdAt":"c"}`,
		`{"taskId":"t","status":"working","_meta":{"io.modelcontextprotocol/serverInfo":{},"own":1.0}}`:                            `{"status":"working","ttl":null,"_meta":{"own":1.0},"taskId":"t"}`,
		`{"taskId":"t","status":"working","_meta":{"io.modelcontextprotocol/subscriptionId":7}}`:                                   `{"status":"working","ttl":null,"taskId":"t"}`,
	} {
		if got := string(protocol.TaskToLegacy([]byte(modern))); got != want {
			t.Errorf("%s\n got %s\nwant %s", modern, got, want)
		}
	}
}

// Durations are converted to whole numbers in both generations.
func TestTaskDurations(t *testing.T) {
	for _, c := range []struct{ ttl, interval, wantTTL, wantInterval string }{
		{"60000", "5000", "60000", "5000"},
		{"1.0", "1.0", "1", "1"},
		{"6e4", "5E+3", "60000", "5000"},
		{"1500.9", "10.1", "1500", "11"},
		{"0", "0", "0", ""},
		{"null", "null", "null", ""},
		{"-1", "-1", "null", ""},
		{"1e300", "1e999", "null", ""},
		{`"60000"`, `{}`, "null", ""},
	} {
		for names, to := range map[[2]string]func([]byte) []byte{
			{"ttl", "pollInterval"}: protocol.TaskToLegacy,
			{"ttlMs", "pollIntervalMs"}: func(task []byte) []byte {
				return protocol.TaskToModern(task, protocol.TaskOutcome{})
			},
		} {
			for _, from := range [][2]string{{"ttl", "pollInterval"}, {"ttlMs", "pollIntervalMs"}} {
				task := to(fmt.Appendf(nil, `{"status":"working","%s":%s,"%s":%s}`, from[0], c.ttl,
					from[1], c.interval))
				ttl, _ := wire.Lookup(task, names[0])
				interval, _ := wire.Lookup(task, names[1])
				if string(ttl) != c.wantTTL || string(interval) != c.wantInterval {
					t.Errorf("%s and %s became %s", c.ttl, c.interval, task)
				}
			}
		}
	}
	task := []byte(`{"ttl":null,"ttlMs":1500.5,"pollIntervalMs":2.5}`)
	life, ok := protocol.TaskTTL(task)
	if pace := protocol.TaskPollInterval(task); pace != 3*time.Millisecond || !ok ||
		life != 1500*time.Millisecond {
		t.Errorf("poll interval %v, ttl %v, %v", pace, life, ok)
	}
	life, ok = protocol.TaskTTL([]byte(`{"ttlMs":null}`))
	if pace := protocol.TaskPollInterval([]byte(`{}`)); pace != 0 || ok || life != 0 {
		t.Errorf("poll interval %v, ttl %v, %v", pace, life, ok)
	}
}

func TestCreateTaskResults(t *testing.T) {
	const (
		made = `{"_meta":{"io.modelcontextprotocol/model-immediate-response":"soon","io.modelcontextprotocol/related-task":{"taskId":"t"}},"task":` + workingTask + `,"beside":1.0,"status":"no","error":"no"}`
		flat = `{"resultType":"task","_meta":{"io.modelcontextprotocol/model-immediate-response":"soon"},"beside":1.0,"status":"working","ttlMs":60000,"pollIntervalMs":5000,"taskId":"t",` + rest
		back = `{"_meta":{"io.modelcontextprotocol/model-immediate-response":"soon"},"task":{"status":"working","ttl":60000,"pollInterval":5000,"beside":1.0,"taskId":"t",` + rest + `}`
	)
	got := protocol.CreateTaskResultToModern([]byte(made))
	if string(got) != flat {
		t.Errorf("got %s\nwant %s", got, flat)
	}
	if got := string(protocol.CreateTaskResultToLegacy(got)); got != back {
		t.Errorf("got %s\nwant %s", got, back)
	}
	// The result that contains a created task does not contain an outcome.
	for was, is := range map[string]string{"completed": "working", "failed": "working",
		"input_required": "working", "cancelled": "cancelled"} {
		got := protocol.CreateTaskResultToModern(fmt.Appendf(nil,
			`{"task":{"taskId":"t","status":%q,"result":{},"requestState":"s"}}`, was))
		if want := `{"resultType":"task","status":"` + is +
			`","ttlMs":null,"taskId":"t"}`; string(got) != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	at := time.Date(2026, 7, 28, 12, 0, 0, 0, time.FixedZone("", 3600))
	const task = `"taskId":"t","createdAt":"2026-07-28T11:00:00Z","lastUpdatedAt":"2026-07-28T11:00:00Z"}`
	got = protocol.CreateTaskResultToLegacy(protocol.NewLegacyTask("t", protocol.TaskCompleted, at))
	if want := `{"task":{"status":"completed","ttl":null,` + task + `}`; string(got) != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got := string(
		protocol.WithStatusCancelled(
			[]byte(
				`{"taskId":"t","status":"working","n":1.0}`))); got != `{"status":"cancelled","taskId":"t","n":1.0}` {
		t.Errorf("got %s", got)
	}
}

// A round trip preserves a task, and its outcome byte for byte.
func TestTasksRoundTrip(t *testing.T) {
	for status, o := range map[string]protocol.TaskOutcome{
		"working":   {},
		"cancelled": {},
		"completed": {Result: []byte(
			`{ "content" : [{"type":"text","text":"\u00e9"}],"n":1.10,"isError":false}`)},
		"failed": {Result: []byte(`{ "content" : [ ],"isError":true}`)},
		"input_required": {Inputs: []protocol.InputRequest{{Key: "k",
			Method: "sampling/createMessage", Params: []byte(`{ "n":1.0}`)}}},
	} {
		modern := protocol.TaskToModern(legacyTask(status), o)
		if got, want := members(protocol.TaskToLegacy(modern)),
			members(legacyTask(status)); !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", status, got, want)
		}
		got, err := protocol.ReadTaskOutcome(modern)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(o) {
			t.Errorf("%s: got %+v, %v\nwant %+v", status, got, err, o)
		}
	}
	failure := []byte(`{"code":1, "message":"no"}`)
	modern := protocol.TaskToModern(legacyTask("failed"), protocol.TaskOutcome{Error: failure})
	if got, err := protocol.ReadTaskOutcome(modern); err != nil ||
		string(got.Error) != string(failure) ||
		protocol.TaskStatus(protocol.TaskToLegacy(modern)) != "failed" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// members returns the sorted members of an object.
func members(object []byte) (all []string) {
	wire.Members(object, func(key string, value []byte, _ int) {
		all = append(all, key+": "+string(value))
	})
	slices.Sort(all)
	return all
}

func TestInvalidTaskOutcomes(t *testing.T) {
	for task, want := range map[string]string{
		`{"status":"completed"}`: "its status is completed, but its result or error is missing",
		`{"status":"completed","result":{"resultType":"input_required","requestState":"s"}}`: "it has completed with a result that is not complete",
		`{"status":"completed","result":[]}`:                                                 "its status is completed, but its result or error is missing",
		`{"status":"failed","result":{}}`:                                                    "its status is failed, but its result or error is missing",
		`{"status":"input_required"}`:                                                        "it has neither inputRequests nor a requestState",
		`{"status":"input_required","requestState":"s"}`:                                     "it has no inputRequests",
		`{"status":"input_required","inputRequests":{"a":1}}`:                                "an entry of its inputRequests has no method",
		`{"status":"gone"}`:                                                                  `its status is "gone"`,
		`{}`:                                                                                 `its status is ""`,
	} {
		if o, err := protocol.ReadTaskOutcome([]byte(task)); err == nil || err.Error() != want {
			t.Errorf("%s: %+v, %v, want %s", task, o, err, want)
		}
	}
	for status, ended := range map[string]bool{"working": false, "input_required": false,
		"completed": true, "failed": true, "cancelled": true, "": false} {
		if protocol.IsTerminalStatus(status) != ended {
			t.Errorf("IsTerminalStatus(%q) = %v", status, !ended)
		}
	}
}

// The notification about a task contains the result of tasks/get without the members that belong
// to results.
func TestNewTaskNotification(t *testing.T) {
	m, err := protocol.NewTaskNotification(
		[]byte(
			`{"resultType":"complete","taskId":"t","status":"working","x":1.0,"_meta":{"io.modelcontextprotocol/serverInfo":{}}}`))
	if got, want := string(m.Raw()),
		`{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"t","status":"working","x":1.0}}`; got != want || err != nil {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
	for _, ambiguous := range []string{`"name":1,"name":2`, `"Level":1`} {
		if m, err := protocol.NewTaskNotification([]byte(`{"taskId":"t","status":"working",` +
			ambiguous + `}`)); err == nil {
			t.Errorf("got %s", m.Raw())
		}
	}
}
