// Package demo is a small MCP server inside the process, used by backends with `embedded: demo`, so
// that new users have tools before they install a server.
package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// Connect starts a demo server with this name and returns the client's end of a connection to the
// server. The server stops when the connection is closed.
func Connect(name string) transport.Conn {
	client, remote := transport.Pipe()
	c := &serverConn{Conn: client, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		server := &demoServer{name: name}
		p := peer.New(remote, server, peer.Options{})
		_ = p.Run(context.Background()) // ends when client is closed
		p.Close()
	}()
	return c
}

type serverConn struct {
	transport.Conn
	done chan struct{} // closed when the server has ended
}

func (e *serverConn) Close() error {
	err := e.Conn.Close()
	<-e.done
	return err
}

type demoServer struct{ name string }

const (
	toolList = `{"tools":[` +
		`{"name":"echo","description":"Returns the text it is given.",` +
		`"inputSchema":{"type":"object","properties":{` +
		`"text":{"type":"string","description":"what to return"}},"required":["text"]},` +
		`"annotations":{"readOnlyHint":true}},` +
		`{"name":"add","description":"Adds two numbers.",` +
		`"inputSchema":{"type":"object","properties":{` +
		`"a":{"type":"number"},"b":{"type":"number"}},"required":["a","b"]},` +
		`"outputSchema":{"type":"object","properties":{` +
		`"sum":{"type":"number"}},"required":["sum"]},` +
		`"annotations":{"readOnlyHint":true}},` +
		`{"name":"now","description":"Tells the time.",` +
		`"inputSchema":{"type":"object","properties":{}},` +
		`"annotations":{"readOnlyHint":true}}]}`
	promptList = `{"prompts":[{"name":"hello",` +
		`"description":"Asks the model to try the demo tools."}]}`
	prompt = `{"messages":[{"role":"user","content":{"type":"text",` +
		`"text":"Call the tools echo, add and now, and tell me what they answer."}}]}`
	resourceList = `{"resources":[{"uri":"demo://readme","name":"readme",` +
		`"mimeType":"text/plain"}]}`
	resource = `{"contents":[{"uri":"demo://readme","mimeType":"text/plain",` +
		`"text":"This is the gateway's embedded demo backend. ` +
		`Configure servers of your own to replace it."}]}`
)

// HandleNotification implements peer.Handler.
func (d *demoServer) HandleNotification(wire.Message, peer.Origin) {}

// HandleRequest implements peer.Handler.
func (d *demoServer) HandleRequest(r *peer.Request) {
	switch r.Method() {
	case protocol.MethodInitialize:
		var params struct {
			ProtocolVersion string `json:"protocolVersion"`
		}
		_ = json.Unmarshal(r.Part(wire.PartParams), &params) // Negotiate accepts anything
		r.Reply(wire.Encode(map[string]any{
			"protocolVersion": protocol.Negotiate(params.ProtocolVersion).Date,
			"capabilities": map[string]any{"tools": struct{}{}, "prompts": struct{}{},
				"resources": struct{}{}},
			"serverInfo": mcp.Implementation{Name: d.name, Version: "1"},
		}))
	case protocol.MethodToolsList:
		r.Reply([]byte(toolList))
	case protocol.MethodToolsCall:
		d.call(r)
	case protocol.MethodPromptsList:
		r.Reply([]byte(promptList))
	case protocol.MethodPromptsGet:
		r.Reply([]byte(prompt))
	case protocol.MethodResourcesList:
		r.Reply([]byte(resourceList))
	case protocol.MethodResourcesRead:
		r.Reply([]byte(resource))
	default:
		r.Fail(wire.Errorf(wire.CodeMethodNotFound, "Method not found: %s", r.Method()))
	}
}

func (d *demoServer) call(r *peer.Request) {
	schema, known := toolSchemas[r.Name()]
	if !known {
		r.Fail(wire.Errorf(wire.CodeInvalidParams, "Unknown tool: %s", r.Name()))
		return
	}
	args, problem := schema.read(r.Part(wire.PartArguments))
	if problem != "" {
		r.Reply(toolResult(r.Name()+": "+problem, true, nil))
		return
	}
	switch r.Name() {
	case "echo":
		r.Reply(toolResult(args["text"].(string), false, nil))
	case "add":
		sum := args["a"].(float64) + args["b"].(float64)
		if math.IsInf(sum, 0) { // JSON has no such number
			r.Reply(toolResult("the sum is too large for a float64", true, nil))
			return
		}
		sumText := strconv.FormatFloat(sum, 'f', -1, 64)
		r.Reply(toolResult(sumText, false, map[string]any{"sum": sum}))
	case "now":
		r.Reply(toolResult(time.Now().Format(time.RFC3339), false, nil))
	}
}

// A toolSchema is the part of a tool's inputSchema that is used to check arguments.
type toolSchema struct {
	Properties map[string]struct{ Type string }
	Required   []string
}

// toolSchemas contains the schema of each tool.
var toolSchemas = func() map[string]toolSchema {
	var list struct {
		Tools []struct {
			Name        string
			InputSchema toolSchema
		}
	}
	if err := json.Unmarshal([]byte(toolList), &list); err != nil {
		panic(err)
	}
	all := make(map[string]toolSchema)
	for _, t := range list.Tools {
		all[t.Name] = t.InputSchema
	}
	return all
}()

// read returns the arguments in raw, or a description of the first invalid argument. Arguments that
// are not in the schema are allowed.
func (s toolSchema) read(raw []byte) (args map[string]any, problem string) {
	if raw != nil && json.Unmarshal(raw, &args) != nil {
		return nil, "the arguments must be a JSON object, with numbers that a float64 can hold"
	}
	for _, name := range s.Required {
		if args[name] == nil {
			return nil, fmt.Sprintf("the argument %s (%s) is missing", name,
				s.Properties[name].Type)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		value, ok := args[name], true
		switch s.Properties[name].Type {
		case "string":
			_, ok = value.(string)
		case "number":
			_, ok = value.(float64)
		}
		if value != nil && !ok {
			return nil, fmt.Sprintf("the argument %s must be a %s", name, s.Properties[name].Type)
		}
	}
	return args, ""
}

// toolResult returns the result of a tool with the text s.
func toolResult(s string, isError bool, structured any) []byte {
	result := map[string]any{"content": []any{map[string]string{"type": "text", "text": s}}}
	if isError {
		result["isError"] = true
	}
	if structured != nil {
		result["structuredContent"] = structured
	}
	return wire.Encode(result)
}
