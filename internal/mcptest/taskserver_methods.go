package mcptest

import (
	"encoding/json"
	"time"

	"mcpgateway/internal/wire"
)

const (
	modernRevision = "2026-07-28"
	tasksExt       = "io.modelcontextprotocol/tasks"
)

// taskParams are the params of all requests to a TaskServer.
type taskParams struct {
	Name      string
	Arguments struct {
		Name     string
		Filename string
		Seconds  float64
	}
	TaskID         string
	InputResponses map[string]json.RawMessage
	RequestState   string
	Notifications  struct{ TaskIDs []string }
	Meta           struct {
		Version      string `json:"io.modelcontextprotocol/protocolVersion"`
		Capabilities *struct {
			Elicitation map[string]any
			Extensions  map[string]json.RawMessage
		} `json:"io.modelcontextprotocol/clientCapabilities"`
	} `json:"_meta"`
}

func (p *taskParams) declaresTasks() bool { return p.Meta.Capabilities.Extensions[tasksExt] != nil }

// missingCapability returns the error for a missing client capability.
func missingCapability(capabilities string) *wire.Error {
	e := wire.Errorf(-32021, "Missing required client capability")
	e.Data = json.RawMessage(`{"requiredCapabilities":` + capabilities + `}`)
	return e
}

const (
	tasksCapability       = `{"extensions":{"` + tasksExt + `":{}}}`
	elicitationCapability = `{"elicitation":{}}`
)

// parseParams parses the params and checks the client metadata of the modern generation.
func parseParams(m wire.Message) (*taskParams, *wire.Error) {
	p := &taskParams{}
	if params := m.Part(wire.PartParams); params != nil {
		if err := json.Unmarshal(params, p); err != nil {
			return nil, wire.Errorf(wire.CodeInvalidParams, "Invalid params: %v", err)
		}
	}
	switch {
	case p.Meta.Version == "" || p.Meta.Capabilities == nil:
		return nil, wire.Errorf(wire.CodeInvalidParams,
			"Invalid params: _meta needs protocolVersion and clientCapabilities")
	case p.Meta.Version != modernRevision:
		e := wire.Errorf(-32022, "Unsupported protocol version")
		e.Data = wire.Encode(map[string]any{
			"supported": []string{modernRevision}, "requested": p.Meta.Version,
		})
		return nil, e
	}
	return p, nil
}

// nameParams contains the supported methods. Each value is the param that HTTP clients repeat in
// the header Mcp-Name; "" = none.
var nameParams = map[string]string{
	"server/discover": "", "tools/list": "", "subscriptions/listen": "",
	"tools/call": "name", "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId",
}

// handle handles a request. It calls send with each message for the client, now or later, from any
// goroutine, but not concurrently. If the request is a subscriptions/listen, handle returns the
// listener. reject may be nil; if it returns an error, the error is sent instead of a result.
func (s *TaskServer) handle(
	m wire.Message, reject func(*taskParams) *wire.Error, send func(wire.Message) bool,
) *listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := parseParams(m)
	if _, ok := nameParams[m.Method()]; err == nil && !ok {
		err = wire.Errorf(wire.CodeMethodNotFound, "Method not found: %s", m.Method())
	}
	if err == nil && reject != nil {
		err = reject(p)
	}
	if err != nil {
		send(wire.NewErrorResponse(m.ID(), err))
		return nil
	}
	if m.Method() == "subscriptions/listen" {
		return s.listenLocked(m, p, send)
	}
	reply := func(result any, err *wire.Error) {
		if err != nil {
			send(wire.NewErrorResponse(m.ID(), err))
		} else {
			send(wire.NewResult(m.ID(), wire.Encode(result)))
		}
	}
	if m.Method() == "tools/call" {
		s.callToolLocked(p, reply)
		return nil
	}
	reply(s.resultLocked(m.Method(), p))
	return nil
}

func (s *TaskServer) resultLocked(method string, p *taskParams) (any, *wire.Error) {
	switch method {
	case "server/discover":
		return json.RawMessage(`{"resultType":"complete",` +
			`"supportedVersions":["` + modernRevision + `"],` +
			`"capabilities":{"tools":{},"extensions":{"` + tasksExt + `":{}}},` +
			`"ttlMs":60000,"cacheScope":"public",` +
			`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"tasks","version":"1"}}}`), nil
	case "tools/list":
		return json.RawMessage(`{"resultType":"complete","tools":[` + taskTools + `],` +
			`"ttlMs":60000,"cacheScope":"public"}`), nil
	}
	t := s.tasks[p.TaskID]
	switch {
	case !p.declaresTasks():
		return nil, missingCapability(tasksCapability)
	case t == nil:
		return nil, wire.Errorf(wire.CodeInvalidParams, "Invalid params: unknown task")
	case method == "tasks/get":
		now := *t
		now.Type = "complete"
		return now, nil
	case method == "tasks/update" && p.InputResponses == nil:
		return nil, wire.Errorf(wire.CodeInvalidParams, "Invalid params: inputResponses is missing")
	case method == "tasks/update":
		s.addResponsesLocked(t, p.InputResponses)
	case method == "tasks/cancel":
		s.setStatusLocked(t, "cancelled", func(*task) {})
	}
	return json.RawMessage(`{"resultType":"complete"}`), nil
}

// listenLocked creates a listener for those of the requested tasks that exist. If the client
// requests tasks and does not declare the extension, listenLocked sends an error and returns nil.
func (s *TaskServer) listenLocked(
	m wire.Message, p *taskParams, send func(wire.Message) bool,
) *listener {
	l := &listener{id: m.ID(), tasks: make(map[string]bool), send: send}
	var honoured []string
	for _, id := range p.Notifications.TaskIDs {
		if s.tasks[id] != nil {
			l.tasks[id] = true
			honoured = append(honoured, id)
		}
	}
	if p.Notifications.TaskIDs != nil && !p.declaresTasks() {
		send(wire.NewErrorResponse(m.ID(), missingCapability(tasksCapability)))
		return nil
	}
	s.listeners[l] = true
	filter := make(map[string]any)
	if honoured != nil {
		filter["taskIds"] = honoured
	}
	s.notifyLocked(l, "notifications/subscriptions/acknowledged",
		map[string]any{"notifications": filter})
	if s.closed {
		s.endListenLocked(l)
	}
	return l
}

const taskTools = `{"name":"greet","inputSchema":{"type":"object",` +
	`"properties":{"name":{"type":"string"}}}},` +
	`{"name":"slow_compute","inputSchema":{"type":"object",` +
	`"properties":{"seconds":{"type":"number"},"label":{"type":"string"}}}},` +
	`{"name":"failing_job","inputSchema":{"type":"object"}},` +
	`{"name":"protocol_error_job","inputSchema":{"type":"object"}},` +
	`{"name":"confirm_delete","inputSchema":{"type":"object",` +
	`"properties":{"filename":{"type":"string"}}}},` +
	`{"name":"multi_input","inputSchema":{"type":"object"}},` +
	`{"name":"test_tool_with_task","inputSchema":{"type":"object"}}`

// textResult returns a tools/call result with a text.
func textResult(text string, isError bool) map[string]any {
	content := []any{map[string]any{"type": "text", "text": text}}
	return map[string]any{"resultType": "complete", "content": content, "isError": isError}
}

// elicitation returns an input request for a string property.
func elicitation(message, property string) inputRequest {
	properties := map[string]any{property: map[string]any{"type": "string"}}
	return inputRequest{"elicitation/create", map[string]any{
		"mode": "form", "message": message,
		"requestedSchema": map[string]any{"type": "object", "properties": properties},
	}}
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
