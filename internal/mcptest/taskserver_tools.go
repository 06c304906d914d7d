package mcptest

import (
	"encoding/json"
	"fmt"

	"mcpgateway/internal/wire"
)

// callToolLocked begins a call of a tool, which is answered at once or later.
func (s *TaskServer) callToolLocked(p *taskParams, reply func(any, *wire.Error)) {
	s.calls++
	computed := textResult(fmt.Sprintf("computed for %v s", p.Arguments.Seconds), false)
	needs := map[string]bool{"failing_job": false, "protocol_error_job": false, "confirm_delete": true, "multi_input": true, "test_tool_with_task": true}
	asks, isTask := needs[p.Name]
	switch {
	case p.Name == "greet":
		reply(textResult("Hello, "+p.Arguments.Name+"!", false), nil)
	case p.Name == "slow_compute" && p.Arguments.Seconds == 0:
		reply(computed, nil)
	case p.Name == "slow_compute" && !p.declaresTasks():
		s.after(seconds(p.Arguments.Seconds), func() { reply(computed, nil) })
	case p.Name == "slow_compute":
		t, made := s.createTaskLocked()
		s.after(seconds(p.Arguments.Seconds), func() { s.completeLocked(t, computed) })
		reply(made, nil)
	case !isTask:
		reply(nil, wire.Errorf(wire.CodeInvalidParams, "Unknown tool: %s", p.Name))
	case !p.declaresTasks():
		reply(nil, missingCapability(tasksCapability))
	case asks && p.Meta.Capabilities.Elicitation == nil:
		reply(nil, missingCapability(elicitationCapability))
	case p.Name == "test_tool_with_task":
		s.inputThenTaskLocked(p, reply)
	default:
		t, made := s.createTaskLocked()
		s.after(TaskDelay, func() { s.runTaskLocked(t, p) })
		reply(made, nil)
	}
}

// runTaskLocked does what a task is for.
func (s *TaskServer) runTaskLocked(t *task, p *taskParams) {
	switch p.Name {
	case "failing_job":
		s.completeLocked(t, textResult("the job has failed", true))
	case "protocol_error_job":
		s.setStatusLocked(t, "failed", func(t *task) {
			t.StatusMessage, t.Error = "the job is broken", wire.Errorf(wire.CodeInternalError, "the job is broken")
		})
	case "confirm_delete":
		inputs := map[string]inputRequest{"confirm": elicitation("Delete "+p.Arguments.Filename+"?", "confirm")}
		s.requestInputLocked(t, inputs, func(answers map[string]inputResponse) {
			s.completeLocked(t, textResult(fmt.Sprintf("%s %s: %v", answers["confirm"].Action, p.Arguments.Filename, answers["confirm"].Content["confirm"]), false))
		})
	case "multi_input":
		inputs := map[string]inputRequest{"first": elicitation("First?", "name"), "second": elicitation("Second?", "name")}
		s.requestInputLocked(t, inputs, func(answers map[string]inputResponse) {
			s.completeLocked(t, textResult(fmt.Sprintf("%v and %v", answers["first"].Content["name"], answers["second"].Content["name"]), false))
		})
	}
}

// inputThenTaskLocked asks for a name, and makes a task once it has it.
func (s *TaskServer) inputThenTaskLocked(p *taskParams, reply func(any, *wire.Error)) {
	const state = "asked for user_name"
	var a inputResponse
	given, ok := p.InputResponses["user_name"]
	switch {
	case p.RequestState != "" && p.RequestState != state:
		reply(nil, wire.Errorf(wire.CodeInvalidParams, "Invalid params: not a requestState of this server"))
	case !ok || json.Unmarshal(given, &a) != nil || a.Action == "":
		reply(map[string]any{"resultType": "input_required", "requestState": state,
			"inputRequests": map[string]inputRequest{"user_name": elicitation("What is your name?", "name")}}, nil)
	default:
		t, made := s.createTaskLocked()
		s.after(TaskDelay, func() {
			s.completeLocked(t, textResult(fmt.Sprintf("%s: Hello, %v!", a.Action, a.Content["name"]), a.Action != "accept"))
		})
		reply(made, nil)
	}
}

// completeLocked ends a task with a result.
func (s *TaskServer) completeLocked(t *task, result map[string]any) {
	delete(result, "resultType")
	s.setStatusLocked(t, "completed", func(t *task) { t.Result = result })
}
