package mcptest

import (
	"encoding/json"
	"fmt"

	"mcpgateway/internal/wire"
)

// callToolLocked starts a tool call. It passes the response to reply, now or later.
func (s *TaskServer) callToolLocked(p *taskParams, reply func(any, *wire.Error)) {
	s.calls++
	computed := textResult(fmt.Sprintf("computed for %v s", p.Arguments.Seconds), false)
	needs := map[string]bool{
		"failing_job": false, "protocol_error_job": false,
		"confirm_delete": true, "multi_input": true, "test_tool_with_task": true,
	}
	needsInput, isTask := needs[p.Name]
	switch {
	case p.Name == "greet":
		reply(textResult("Hello, "+p.Arguments.Name+"!", false), nil)
	case p.Name == "slow_compute" && p.Arguments.Seconds == 0:
		reply(computed, nil)
	case p.Name == "slow_compute" && !p.declaresTasks():
		s.after(seconds(p.Arguments.Seconds), func() { reply(computed, nil) })
	case p.Name == "slow_compute":
		t, result := s.createTaskLocked()
		s.after(seconds(p.Arguments.Seconds), func() { s.completeLocked(t, computed) })
		reply(result, nil)
	case !isTask:
		reply(nil, wire.Errorf(wire.CodeInvalidParams, "Unknown tool: %s", p.Name))
	case !p.declaresTasks():
		reply(nil, missingCapability(tasksCapability))
	case needsInput && p.Meta.Capabilities.Elicitation == nil:
		reply(nil, missingCapability(elicitationCapability))
	case p.Name == "test_tool_with_task":
		s.inputThenTaskLocked(p, reply)
	default:
		t, result := s.createTaskLocked()
		s.after(TaskDelay, func() { s.runTaskLocked(t, p) })
		reply(result, nil)
	}
}

// runTaskLocked runs a task after its creation.
func (s *TaskServer) runTaskLocked(t *task, p *taskParams) {
	switch p.Name {
	case "failing_job":
		s.completeLocked(t, textResult("the job has failed", true))
	case "protocol_error_job":
		s.setStatusLocked(t, "failed", func(t *task) {
			t.StatusMessage = "the job is broken"
			t.Error = wire.Errorf(wire.CodeInternalError, "the job is broken")
		})
	case "confirm_delete":
		inputs := map[string]inputRequest{
			"confirm": elicitation("Delete "+p.Arguments.Filename+"?", "confirm"),
		}
		s.requestInputLocked(t, inputs, func(responses map[string]inputResponse) {
			confirm := responses["confirm"]
			s.completeLocked(t, textResult(fmt.Sprintf("%s %s: %v",
				confirm.Action, p.Arguments.Filename, confirm.Content["confirm"]), false))
		})
	case "multi_input":
		inputs := map[string]inputRequest{
			"first": elicitation("First?", "name"), "second": elicitation("Second?", "name"),
		}
		s.requestInputLocked(t, inputs, func(responses map[string]inputResponse) {
			s.completeLocked(t, textResult(fmt.Sprintf("%v and %v",
				responses["first"].Content["name"], responses["second"].Content["name"]), false))
		})
	}
}

// inputThenTaskLocked requests a name, and creates a task once it has the name.
func (s *TaskServer) inputThenTaskLocked(p *taskParams, reply func(any, *wire.Error)) {
	const state = "asked for user_name"
	var a inputResponse
	given, ok := p.InputResponses["user_name"]
	switch {
	case p.RequestState != "" && p.RequestState != state:
		reply(nil, wire.Errorf(wire.CodeInvalidParams,
			"Invalid params: not a requestState of this server"))
	case !ok || json.Unmarshal(given, &a) != nil || a.Action == "":
		inputs := map[string]inputRequest{"user_name": elicitation("What is your name?", "name")}
		reply(map[string]any{
			"resultType": "input_required", "requestState": state, "inputRequests": inputs,
		}, nil)
	default:
		t, result := s.createTaskLocked()
		s.after(TaskDelay, func() {
			text := fmt.Sprintf("%s: Hello, %v!", a.Action, a.Content["name"])
			s.completeLocked(t, textResult(text, a.Action != "accept"))
		})
		reply(result, nil)
	}
}

// completeLocked ends a task with a result.
func (s *TaskServer) completeLocked(t *task, result map[string]any) {
	delete(result, "resultType")
	s.setStatusLocked(t, "completed", func(t *task) { t.Result = result })
}
