package protocol_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// maxAddedLevels is the number of levels by which a conversion may increase the nesting of a
// message. See maxComposedDepth in package wire.
const maxAddedLevels = 3

// FuzzConvert applies every conversion to the parts of received messages: to params, a result and
// an error. No conversion panics, whatever the parts contain, and each returns a message in which
// no part nests more than maxAddedLevels deeper than it did.
func FuzzConvert(f *testing.F) {
	for i, object := range convertible {
		f.Add([]byte(object), []byte(convertible[(i+5)%len(convertible)]))
	}
	f.Fuzz(func(t *testing.T, params, other []byte) {
		convert(t, 20, params, other) // deeper nesting would take too long
	})
}

// A message that nests as deep as Parse allows can be converted.
func TestConvertDeepParts(t *testing.T) {
	for _, object := range convertible {
		convert(t, 1000, []byte(object), []byte(object))
	}
}

// convert applies every conversion to a request with the params, and to a response with the other
// object as its result or its error. Each message nests up to depth levels deep.
func convert(t *testing.T, depth int, params, other []byte) {
	t.Helper()
	m, err := wire.Parse(deepest(depth,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`, params))
	if err == nil && wire.IsObject(m.Part(wire.PartParams)) {
		convertRequest(t, m)
	}
	m, err = wire.Parse(deepest(depth, `{"jsonrpc":"2.0","id":1,"result":`, other))
	if err == nil && wire.IsObject(m.Part(wire.PartResult)) {
		convertResponse(t, m)
	}
	m, err = wire.Parse(deepest(depth, `{"jsonrpc":"2.0","id":1,"error":`, other))
	if err == nil && wire.IsObject(m.Part(wire.PartError)) {
		convertError(t, m)
	}
}

// convertible are objects with the members that conversions read.
var convertible = []string{
	`{"content":[],"structuredContent":"DEEP"}`,
	`{"content":[{"type":"audio","mimeType":"a/b","data":"DEEP"}]}`,
	`{"content":[{"type":"resource_link","uri":"a:b","annotations":"DEEP"}],"isError":true}`,
	`{"messages":[{"role":"user","content":{"type":"audio","data":"DEEP"}}]}`,
	`{"tools":[{"name":"a","outputSchema":{"type":"array","x":"DEEP"}}]}`,
	`{"tools":[{"name":"a","outputSchema":{"anyOf":[{"$ref":"#/a"}],"a":"DEEP"}}]}`,
	`{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"},"x":"DEEP"},"Name":1}`,
	`{"resultType":"input_required","requestState":"s","inputRequests":{"a":{"method":"sampling/createMessage","params":{"messages":[{"content":["DEEP"]}],"name":1,"name":2}}}}`,
	`{"inputRequests":{"a":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"properties":{"a":{"oneOf":[{"const":"DEEP"}]}}}}}}}`,
	`{"inputRequests":{"a":{"method":"roots/list","params":{"_meta":{"x":"DEEP"},"Cursor":1}}}}`,
	`{"taskId":"t","status":"completed","result":{"content":"DEEP"},"Level":1}`,
	`{"taskId":"t","status":"failed","error":{"code":-32002,"data":"DEEP"},"name":1,"name":2}`,
	`{"taskId":"t","status":"input_required","inputRequests":{"a":{"method":"roots/list","params":{"x":"DEEP"}}}}`,
	`{"task":{"taskId":"t","status":"working","createdAt":"DEEP"},"ttlMs":1,"ttlms":2}`,
	`{"taskId":"t","status":"working","statusMessage":"DEEP","progressToken":"LONG"}`,
	`{"code":-32042,"message":"m","data":{"elicitations":[{"message":"m","url":"a:b","x":"DEEP"}]}}`,
	`{"name":"a","arguments":"DEEP","task":{},"_meta":{"progressToken":"p"}}`,
	`{"capabilities":{"elicitation":{},"experimental":{"x":"DEEP"},"tasks":{},"roots":{"listChanged":true}},"_meta":null}`,
	`{"action":"accept","content":{},"_meta":{"x":"DEEP"}}`,
	`{"message":"m","requestedSchema":{"type":"object","properties":{}},"_meta":{"x":"DEEP"}}`,
}

// deepest returns the message that begins with head and continues with object. It replaces the
// first text "DEEP" by arrays, so that the message nests depth levels deep, and "LONG" by a string
// that is too long for a progress token.
func deepest(depth int, head string, object []byte) []byte {
	text := head + strings.ReplaceAll(string(object), `"LONG"`,
		`"`+strings.Repeat("x", 5000)+`"`) + "}"
	i := strings.Index(text, `"DEEP"`)
	if i < 0 {
		return []byte(text)
	}
	n := max(0, depth-levels([]byte(text[:i]), false))
	return []byte(text[:i] + strings.Repeat("[", n) + strings.Repeat("]", n) + text[i+6:])
}

// levels returns the nesting of JSON text: the deepest, or the nesting at the end of the text.
func levels(text []byte, deepest bool) (n int) {
	most, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case !inString && (c == '[' || c == '{'):
			n++
			most = max(most, n)
		case !inString && (c == ']' || c == '}'):
			n--
		}
	}
	if deepest {
		return most
	}
	return n
}

// checkConverted checks a message that was converted from another one. A conversion may add a few
// members of its own.
func checkConverted(t *testing.T, what string, from, to wire.Message) {
	t.Helper()
	if text := to.Raw(); !json.Valid(text) || !utf8.Valid(text) {
		t.Fatalf("%s: %.300s is not JSON", what, text)
	} else if most := max(levels(from.Raw(), true), 8) + maxAddedLevels; levels(text, true) > most {
		t.Fatalf("%s: %.300s nests %d levels deep, want at most %d", what, text,
			levels(text, true), most)
	}
}

func convertRequest(t *testing.T, m wire.Message) {
	params := m.Part(wire.PartParams)
	check := func(what string, to wire.Message) { t.Helper(); checkConverted(t, what, m, to) }
	caps, _ := wire.Lookup(params, "capabilities")
	modern := protocol.ClientCapabilitiesToModern(caps)
	client := protocol.ClientMeta{Revision: "2026-07-28", Capabilities: modern, LogLevel: "debug"}
	full := client.AddTo(m)
	check("AddTo", full)
	check("AddTo without params", client.AddTo(wire.NewRequest("1", "m", nil)))
	if normalized, err := protocol.NormalizeServerRequest(m); err == nil {
		check("NormalizeServerRequest", normalized)
	}
	for what, to := range map[string]wire.Message{
		"StripMeta": protocol.StripMeta(full), "AddTaskParam": protocol.AddTaskParam(full),
		"StripTaskParam":    protocol.StripTaskParam(full),
		"SetMessageTaskID":  protocol.SetMessageTaskID(full, "u"),
		"SetSubscriptionID": protocol.SetSubscriptionID(full, `"s"`),
		"SetContinuation":   protocol.SetContinuation(full, params, []byte(`"s"`)),
	} {
		check(what, to)
	}
	input := protocol.InputRequest{Key: "k", Method: "elicitation/create", Params: params}
	asking := wire.NewResult("1",
		protocol.InputRequiredResult([]protocol.InputRequest{input}, "state"))
	check("InputRequiredResult", asking)
	check("ToModern", protocol.ToModern(asking, "tools/call", []byte("{}"), true))
	if _, _, err := protocol.ReadInputRequests(asking.Part(wire.PartResult)); err != nil &&
		protocol.CheckElicitationParams(params) == nil {
		t.Fatalf("%s: %v", asking.Raw(), err)
	}
	task := []byte(`{"taskId":"t","status":"working"}`)
	outcome := protocol.TaskOutcome{Inputs: []protocol.InputRequest{input}}
	check("TaskToModern", wire.NewResult("1", protocol.TaskToModern(task, outcome)))
}

func convertResponse(t *testing.T, m wire.Message) {
	result := m.Part(wire.PartResult)
	check := func(what string, to wire.Message) { t.Helper(); checkConverted(t, what, m, to) }
	checkResult := func(what string, object []byte) wire.Message {
		t.Helper()
		to := wire.NewResult("1", object)
		check(what, to)
		return to
	}
	call := wire.NewRequest("1", "tools/call", []byte(`{"name":"n"}`))
	answers := wire.EditObject(nil, nil, wire.Member{Key: "k", Text: result})
	check("SetContinuation", protocol.SetContinuation(call, answers, nil))
	tasks := []wire.Message{
		checkResult("TaskToModern", protocol.TaskToModern(result, protocol.TaskOutcome{})),
		checkResult("TaskToModern with the result", protocol.TaskToModern(
			[]byte(`{"taskId":"t","status":"completed"}`), protocol.TaskOutcome{Result: result})),
		checkResult("SanitizeTask", protocol.SanitizeTask(result, "u")),
		checkResult("SanitizeCreateTaskResult", protocol.SanitizeCreateTaskResult(result, "u")),
		checkResult("CreateTaskResultToModern", protocol.CreateTaskResultToModern(result)),
		checkResult("CreateTaskResultToLegacy", protocol.CreateTaskResultToLegacy(result)),
		checkResult("a task in tasks/list", wire.EditObject(nil, nil, wire.Member{Key: "tasks",
			Text: append(append([]byte("["), protocol.TaskToLegacy(result)...), ']')})),
		checkResult("AddRelatedTask", protocol.AddRelatedTask(result, "u")),
	}
	for _, task := range append(tasks, m) {
		if n, err := protocol.NewTaskNotification(task.Part(wire.PartResult)); err == nil {
			check("NewTaskNotification", protocol.SetSubscriptionID(n, "7"))
		}
		for _, fromModern := range []bool{false, true} {
			check("ToModern", protocol.ToModern(task, "tools/list", []byte("{}"), fromModern))
		}
		for _, one := range []wire.Message{protocol.ToLegacy(task),
			protocol.StripNullInputs(task), protocol.StripInputRequired(task),
			protocol.SetRequestState(task, "s"), protocol.SetRequestState(task, ""),
			protocol.SetMessageTaskID(task, "u"), protocol.SetResultSubscriptionID(task, "7")} {
			check("of a result", one)
		}
		for _, date := range protocol.RevisionDates() {
			to, _ := protocol.FindRevision(date)
			for _, method := range []string{"tools/call", "tasks/result", "prompts/get",
				"tools/list"} {
				check("AdaptResponse "+date, protocol.AdaptResponse(task, method, to))
			}
		}
	}
	inputs, _, err := protocol.ReadInputRequests(result)
	if err != nil {
		return
	}
	caps := []byte(`{"sampling":{"tools":{}},"roots":{},"elicitation":{"form":{},"url":{}}}`)
	for _, in := range inputs {
		check("an input request", wire.NewRequest("1", in.Method, in.Params))
		for _, date := range protocol.RevisionDates() {
			to, _ := protocol.FindRevision(date)
			params, err := protocol.AdaptServerRequest(in.Method, in.Params, to, caps)
			if err == nil {
				check("AdaptServerRequest "+date, wire.NewRequest("1", in.Method,
					protocol.AddRelatedTask(params, "u")))
			}
		}
	}
}

func convertError(t *testing.T, m wire.Message) {
	failure := m.Part(wire.PartError)
	check := func(what string, to wire.Message) { t.Helper(); checkConverted(t, what, m, to) }
	check("ErrorToLegacy", protocol.ErrorToLegacy(m, "a:b"))
	check("ToModern", protocol.ToModern(m, "resources/read", []byte("{}"), false))
	modern := protocol.ErrorToModern(failure, "resources/read")
	check("TaskToModern", wire.NewResult("1", protocol.TaskToModern(
		[]byte(`{"taskId":"t","status":"failed"}`), protocol.TaskOutcome{Error: modern})))
	if labelled, err := protocol.LabelElicitations(failure, "[gh] "); err == nil {
		check("LabelElicitations", m.Splice(wire.Edit{Part: wire.PartError, Text: labelled}))
	}
}
