package protocol_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// mcp-go implements the tasks of 2025-11-25. It can read converted modern tasks, and its tasks can
// be converted to modern tasks.
func TestMCPGoTasks(t *testing.T) {
	const fields = `"taskId":"t","status":"working","createdAt":"2025-11-25T10:30:00Z","lastUpdatedAt":"2025-11-25T10:40:00Z","ttlMs":6e4,"pollIntervalMs":5.5`
	ttl, pace := int64(60000), int64(6)
	want := mcp.Task{TaskId: "t", Status: mcp.TaskStatusWorking, CreatedAt: "2025-11-25T10:30:00Z",
		LastUpdatedAt: "2025-11-25T10:40:00Z", TTL: &ttl, PollInterval: &pace}
	same := func(got mcp.Task) bool { return string(wire.Encode(got)) == string(wire.Encode(want)) }

	var made mcp.CreateTaskResult
	if err := json.Unmarshal(protocol.CreateTaskResultToLegacy([]byte(`{"resultType":"task",`+
		fields+`}`)), &made); err != nil || !same(made.Task) {
		t.Errorf("made %+v, %v", made.Task, err)
	}
	var got mcp.GetTaskResult
	if err := json.Unmarshal(protocol.TaskToLegacy([]byte(`{"resultType":"complete",`+fields+`}`)),
		&got); err != nil || !same(got.Task) {
		t.Errorf("got %+v, %v", got.Task, err)
	}

	const flat = `"taskId":"t","createdAt":"2025-11-25T10:30:00Z","lastUpdatedAt":"2025-11-25T10:40:00Z"}`
	if got, want := string(protocol.CreateTaskResultToModern(wire.Encode(made))),
		`{"resultType":"task","status":"working","ttlMs":60000,"pollIntervalMs":6,`+
			flat; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	got.Status, got.PollInterval = mcp.TaskStatusFailed, nil
	result := wire.Encode(mcp.TaskResultResult{IsError: true,
		Result: mcp.Result{Meta: &mcp.Meta{AdditionalFields: map[string]any{"io.modelcontextprotocol/related-task": map[string]any{"taskId": "t"}}}}})
	if got, want := string(protocol.TaskToModern(wire.Encode(got),
		protocol.TaskOutcome{Result: result})),
		fmt.Sprintf(
			`{"resultType":"complete","result":{"isError":true},"status":"completed","ttlMs":60000,%s`, flat); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}
