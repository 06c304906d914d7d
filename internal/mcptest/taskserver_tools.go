package mcptest

import (
	"encoding/json"
	"fmt"

	"mcpgateway/internal/wire"
)

// callLocked begins a call of a tool, which is answered at once or later.
func (s *TaskServer) callLocked(p *taskParams, reply func(any, *wire.Error)) {
	s.calls++
	computed := text(fmt.Sprintf("computed for %v s", p.Arguments.Seconds), false)
	needs := map[string]bool{"failing_job": false, "protocol_error_job": false, "confirm_delete": true, "multi_input": true, "test_tool_with_task": true}
	asks, isTask := needs[p.Name]
	switch {
	case p.Name == "greet":
		reply(text("Hello, "+p.Arguments.Name+"!", false), nil)
	case p.Name == "slow_compute" && p.Arguments.Seconds == 0:
		reply(computed, nil)
	case p.Name == "slow_compute" && !p.tasks():
		s.after(seconds(p.Arguments.Seconds), func() { reply(computed, nil) })
	case p.Name == "slow_compute":
		j, made := s.createLocked()
		s.after(seconds(p.Arguments.Seconds), func() { s.completeLocked(j, computed) })
		reply(made, nil)
	case !isTask:
		reply(nil, wire.Errorf(wire.CodeInvalidParams, "Unknown tool: %s", p.Name))
	case !p.tasks():
		reply(nil, need(needTasks))
	case asks && p.Meta.Capabilities.Elicitation == nil:
		reply(nil, need(needElicitation))
	case p.Name == "test_tool_with_task":
		s.askFirstLocked(p, reply)
	default:
		j, made := s.createLocked()
		s.after(TaskDelay, func() { s.workLocked(j, p) })
		reply(made, nil)
	}
}

// workLocked does what a task is for.
func (s *TaskServer) workLocked(j *job, p *taskParams) {
	switch p.Name {
	case "failing_job":
		s.completeLocked(j, text("the job has failed", true))
	case "protocol_error_job":
		s.changeLocked(j, "failed", func(j *job) {
			j.Message, j.Error = "the job is broken", wire.Errorf(wire.CodeInternalError, "the job is broken")
		})
	case "confirm_delete":
		inputs := map[string]question{"confirm": elicit("Delete "+p.Arguments.Filename+"?", "confirm")}
		s.askLocked(j, inputs, func(answers map[string]answer) {
			s.completeLocked(j, text(fmt.Sprintf("%s %s: %v", answers["confirm"].Action, p.Arguments.Filename, answers["confirm"].Content["confirm"]), false))
		})
	case "multi_input":
		inputs := map[string]question{"first": elicit("First?", "name"), "second": elicit("Second?", "name")}
		s.askLocked(j, inputs, func(answers map[string]answer) {
			s.completeLocked(j, text(fmt.Sprintf("%v and %v", answers["first"].Content["name"], answers["second"].Content["name"]), false))
		})
	}
}

// askFirstLocked asks for a name, and makes a task once it has it.
func (s *TaskServer) askFirstLocked(p *taskParams, reply func(any, *wire.Error)) {
	const state = "asked for user_name"
	var a answer
	given, ok := p.InputResponses["user_name"]
	switch {
	case p.RequestState != "" && p.RequestState != state:
		reply(nil, wire.Errorf(wire.CodeInvalidParams, "Invalid params: not a requestState of this server"))
	case !ok || json.Unmarshal(given, &a) != nil || a.Action == "":
		reply(map[string]any{"resultType": "input_required", "requestState": state,
			"inputRequests": map[string]question{"user_name": elicit("What is your name?", "name")}}, nil)
	default:
		j, made := s.createLocked()
		s.after(TaskDelay, func() {
			s.completeLocked(j, text(fmt.Sprintf("%s: Hello, %v!", a.Action, a.Content["name"]), a.Action != "accept"))
		})
		reply(made, nil)
	}
}

// completeLocked ends a task with a result.
func (s *TaskServer) completeLocked(j *job, result map[string]any) {
	delete(result, "resultType")
	s.changeLocked(j, "completed", func(j *job) { j.Result = result })
}
