package protocol_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// Wherever the task is in a message, only its id is replaced.
func TestTaskID(t *testing.T) {
	for _, object := range []string{
		`{ "taskId" : "t","n": 1.0, "task":{"ttl":1}}`,
		`{"task": { "n":1.0, "taskId":"t" } , "_meta":{"taskId":"no"}}`,
		`{"resultType":"task","taskId":"t","task":{"taskId":"no"}}`,
	} {
		want := strings.Replace(object, `"t"`, `"other \" é"`, 1)
		if got := protocol.TaskID([]byte(object)); got != "t" {
			t.Errorf("task id of %s: %q", object, got)
		}
		if got := string(protocol.SetTaskID([]byte(object), `other " é`)); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
		for _, around := range []string{`{"id":1,"jsonrpc":"2.0", "result":%s}`,
			`{"id":1,"jsonrpc":"2.0","method":"m", "params":%s}`,
			`{"jsonrpc":"2.0","method":"m", "params":%s}`} {
			m := protocol.SetMessageTaskID(parse(t, fmt.Sprintf(around, object)), `other " é`)
			if got, want := string(m.Raw()), fmt.Sprintf(around, want); got != want {
				t.Errorf("got %s\nwant %s", got, want)
			}
		}
	}
	for _, object := range []string{`{}`, `{"task":{"ttl":1}}`, `{"taskId":7}`, `[]`} {
		m := parse(t, `{"jsonrpc":"2.0","id":1,"result":`+object+`}`)
		if protocol.TaskID([]byte(object)) != "" ||
			string(protocol.SetMessageTaskID(m, "t").Raw()) != string(m.Raw()) {
			t.Errorf("%s has a task id", object)
		}
	}
}

func TestRelatedTasks(t *testing.T) {
	for without, with := range map[string]string{
		`{"n":1.0}`:                      `{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}},"n":1.0}`,
		`{"_meta":{"own":1.0},"n": 1.0}`: `{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"},"own":1.0},"n": 1.0}`,
	} {
		if got := string(protocol.AddRelatedTask([]byte(without), "t")); got != with {
			t.Errorf("got %s\nwant %s", got, with)
		}
		if got := string(protocol.AddRelatedTask([]byte(with), "t")); got != with {
			t.Errorf("got %s\nwant %s", got, with)
		}
		if got := string(protocol.StripRelatedTask([]byte(with))); got != without {
			t.Errorf("got %s\nwant %s", got, without)
		}
	}
	for _, object := range []string{`{ "n":1.0 }`, `{"text": "related-task"}`,
		`{ "_meta":{"related-task":1} }`, `{ "_meta" : { } }`} {
		if got := string(protocol.StripRelatedTask([]byte(object))); got != object {
			t.Errorf("got %s\nwant %s", got, object)
		}
	}
	// A result that is part of a task has no related task either.
	result := []byte(
		`{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"},"own":1},"content":[ ]}`)
	got, _ := wire.Lookup(protocol.TaskToModern(legacyTask("completed"),
		protocol.TaskOutcome{Result: result}), "result")
	if want := `{"_meta":{"own":1},"content":[ ]}`; string(got) != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestHasTasksExtension(t *testing.T) {
	const ext = `"io.modelcontextprotocol/tasks"`
	for capabilities, want := range map[string]string{
		``:   `{"extensions":{` + ext + `:{}}}`,
		`{}`: `{"extensions":{` + ext + `:{}}}`,
		`{"roots":{ },"extensions":{"o":{ }}}`: `{"extensions":{` + ext +
			`:{},"o":{ }},"roots":{ }}`,
		`{"extensions":{` + ext + `:null}}`: `{"extensions":{` + ext + `:{}}}`,
		`{"tasks":{}}`:                      `{"extensions":{` + ext + `:{}},"tasks":{}}`,
	} {
		if protocol.HasTasksExtension([]byte(capabilities)) {
			t.Errorf("%s declares tasks", capabilities)
		}
		got := protocol.AddTasksExtension([]byte(capabilities))
		if string(got) != want || !protocol.HasTasksExtension(got) {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	const declared = `{ "extensions" : {` + ext + `: {"n":1.0}} }`
	if got := string(protocol.AddTasksExtension([]byte(declared))); got != declared {
		t.Errorf("got %s\nwant %s", got, declared)
	}
	got := string(wire.NewErrorResponse("1", protocol.MissingTasksError()).Raw())
	if want := `{"jsonrpc":"2.0","id":1,"error":{"code":-32021,"message":"Missing required client capability: the extension io.modelcontextprotocol/tasks","data":{"requiredCapabilities":{"extensions":{` + ext + `:{}}}}}}`; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestTaskSupport(t *testing.T) {
	for tool, want := range map[string]string{
		`{ "name":"a" }`: "forbidden",
		`{ "name":"execution","execution2":{"taskSupport":"required"} }`: "forbidden",
		`{"name":"a","execution":{"taskSupport":"optional"}}`:            "optional",
		`{"execution":{"taskSupport":"required"},"name":"a"}`:            "required",
		`{"name":"a","execution":{"taskSupport":"forbidden"}}`:           "forbidden",
		`{"name":"a","execution":{"taskSupport":7}}`:                     "forbidden",
		`{"name":"a","execution":null}`:                                  "forbidden",
	} {
		if got := protocol.TaskSupport([]byte(tool)); got != want {
			t.Errorf("%s: %s, want %s", tool, got, want)
		}
		bare := `{"name":"a"}`
		if !strings.Contains(tool, `"execution":`) {
			bare = tool
		}
		if got := string(protocol.StripExecution([]byte(tool))); got != bare {
			t.Errorf("got %s\nwant %s", got, bare)
		}
	}
	call := parse(t,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments": {"task":1.0},"task":{"ttl":1}}}`)
	const asks, silent = `{"task":{},"name":"a","arguments": {"task":1.0}}`,
		`{"name":"a","arguments": {"task":1.0}}`
	if got := string(protocol.AddTaskParam(call).Part(wire.PartParams)); got != asks {
		t.Errorf("got %s\nwant %s", got, asks)
	}
	call = protocol.StripTaskParam(call)
	if got := string(call.Part(wire.PartParams)); got != silent {
		t.Errorf("got %s\nwant %s", got, silent)
	}
	if got := protocol.StripTaskParam(call).Raw(); string(got) != string(call.Raw()) {
		t.Errorf("got %s\nwant %s", got, call.Raw())
	}
	if got := protocol.AddTaskParam(call); got.Name() != "a" ||
		string(got.Part(wire.PartParams)) != asks {
		t.Errorf("got %s\nwant the params %s", got.Raw(), asks)
	}
}

func TestParseTaskUpdate(t *testing.T) {
	responses := []protocol.InputResponse{{Key: "b", Result: []byte(`{ "n":1.0}`)},
		{Key: "a", Result: []byte(`{"action":"cancel"}`)}}
	params := []byte(`{"taskId":"t","inputResponses":{"b":{ "n":1.0},"a":{"action":"cancel"}}}`)
	id, got, err := protocol.ParseTaskUpdate(wire.NewRequest("1", "tasks/update", params))
	if err != nil || id != "t" || fmt.Sprint(got) != fmt.Sprint(responses) {
		t.Errorf("got %q %v, %v", id, got, err)
	}
	if id, got, err := protocol.ParseTaskUpdate(wire.NewRequest("1", "tasks/update",
		[]byte(`{"taskId":"t","inputResponses":{}}`))); err != nil || id != "t" || got != nil {
		t.Errorf("got %q %v, %v", id, got, err)
	}
	for _, params := range []string{
		`{}`, `{"taskId":7,"inputResponses":{}}`, `{"taskId":"","inputResponses":{}}`,
		`{"taskId":"t"}`, `{"taskId":"t","inputResponses":null}`,
		`{"taskId":"t","inputResponses":[]}`, `{"taskId":"t","inputResponses":{"a":1}}`,
		`{"taskId":"t","inputResponses":{` + many(257, `"%d":{}`) + `}}`,
	} {
		id, got, err := protocol.ParseTaskUpdate(wire.NewRequest("1", "tasks/update",
			[]byte(params)))
		if err == nil || err.Code != wire.CodeInvalidParams || id != "" || got != nil {
			t.Errorf("%.60s: got %q %v, %v", params, id, got, err)
		}
	}
}

func TestListenTaskIDs(t *testing.T) {
	listen := func(filter string) ([]string, *wire.Error) {
		return protocol.ListenTaskIDs(wire.NewRequest("1", "subscriptions/listen",
			[]byte(`{"notifications":`+filter+`}`)))
	}
	for filter, want := range map[string][]string{
		`{}`: nil, `null`: nil, `{"taskIds":null}`: nil, `{"taskIds":[]}`: nil,
		`{"taskIds":["b","a","b"]}`: {"b", "a", "b"},
	} {
		if got, err := listen(filter); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, %v", filter, got, err)
		}
	}
	if got, err := listen(`{"taskIds":[` + many(4096, `"%d"`) + `]}`); err != nil ||
		len(got) != 4096 {
		t.Errorf("got %d, %v", len(got), err)
	}
	for _, filter := range []string{`{"taskIds":"a"}`, `{"taskIds":[1]}`, `{"taskIds":["a",""]}`,
		`{"taskIds":[` + many(4097, `"%d"`) + `]}`} {
		if got, err := listen(filter); err == nil || err.Code != wire.CodeInvalidParams ||
			got != nil {
			t.Errorf("%.60s: got %q, %v", filter, got, err)
		}
	}
}

// many returns n numbered texts, as elements or members.
func many(n int, format string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(all, ",")
}
