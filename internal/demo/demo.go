// Package demo is a small MCP server inside the process. A backend with `embedded: demo` is one,
// so that a newcomer sees tools before any server is installed.
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

// Connect starts a demo server called name, and returns the client's end of a connection to it. The
// server ends when that is closed.
func Connect(name string) transport.Conn {
	ours, theirs := transport.Pipe()
	c := &embedded{Conn: ours, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		server := &embeddedServer{name: name}
		p := peer.New(theirs, server, peer.Options{})
		_ = p.Run(context.Background()) // ends when ours is closed
		p.Close()
	}()
	return c
}

type embedded struct {
	transport.Conn
	done chan struct{} // closed when the server has ended
}

func (e *embedded) Close() error {
	err := e.Conn.Close()
	<-e.done
	return err
}

type embeddedServer struct{ name string }

const (
	demoTools = `{"tools":[` +
		`{"name":"echo","description":"Returns the text it is given.","inputSchema":{"type":"object","properties":{"text":{"type":"string","description":"what to return"}},"required":["text"]},"annotations":{"readOnlyHint":true}},` +
		`{"name":"add","description":"Adds two numbers.","inputSchema":{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"}},"required":["a","b"]},"outputSchema":{"type":"object","properties":{"sum":{"type":"number"}},"required":["sum"]},"annotations":{"readOnlyHint":true}},` +
		`{"name":"now","description":"Tells the time.","inputSchema":{"type":"object","properties":{}},"annotations":{"readOnlyHint":true}}]}`
	demoPrompts   = `{"prompts":[{"name":"hello","description":"Asks the model to try the demo tools."}]}`
	demoPrompt    = `{"messages":[{"role":"user","content":{"type":"text","text":"Call the tools echo, add and now, and tell me what they answer."}}]}`
	demoResources = `{"resources":[{"uri":"demo://readme","name":"readme","mimeType":"text/plain"}]}`
	demoResource  = `{"contents":[{"uri":"demo://readme","mimeType":"text/plain","text":"This is the gateway's embedded demo backend. Configure servers of your own to replace it."}]}`
)

// Told implements peer.Handler.
func (d *embeddedServer) HandleNotification(wire.Message, peer.Origin) {}

// Asked implements peer.Handler.
func (d *embeddedServer) HandleRequest(r *peer.Request) {
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
		r.Reply([]byte(demoTools))
	case protocol.MethodToolsCall:
		d.call(r)
	case protocol.MethodPromptsList:
		r.Reply([]byte(demoPrompts))
	case protocol.MethodPromptsGet:
		r.Reply([]byte(demoPrompt))
	case protocol.MethodResourcesList:
		r.Reply([]byte(demoResources))
	case protocol.MethodResourcesRead:
		r.Reply([]byte(demoResource))
	default:
		r.Fail(wire.Errorf(wire.CodeMethodNotFound, "Method not found: %s", r.Method()))
	}
}

func (d *embeddedServer) call(r *peer.Request) {
	schema, known := demoSchemas[r.Name()]
	if !known {
		r.Fail(wire.Errorf(wire.CodeInvalidParams, "Unknown tool: %s", r.Name()))
		return
	}
	args, problem := schema.read(r.Part(wire.PartArguments))
	if problem != "" {
		r.Reply(text(r.Name()+": "+problem, true, nil))
		return
	}
	switch r.Name() {
	case "echo":
		r.Reply(text(args["text"].(string), false, nil))
	case "add":
		sum := args["a"].(float64) + args["b"].(float64)
		if math.IsInf(sum, 0) { // JSON has no such number
			r.Reply(text("the sum is beyond what a number can hold", true, nil))
			return
		}
		r.Reply(text(strconv.FormatFloat(sum, 'f', -1, 64), false, map[string]any{"sum": sum}))
	case "now":
		r.Reply(text(time.Now().Format(time.RFC3339), false, nil))
	}
}

// A demoSchema is the part of a tool's inputSchema that its arguments are checked against.
type demoSchema struct {
	Properties map[string]struct{ Type string }
	Required   []string
}

// demoSchemas holds the schema of each tool.
var demoSchemas = func() map[string]demoSchema {
	var list struct {
		Tools []struct {
			Name        string
			InputSchema demoSchema
		}
	}
	if err := json.Unmarshal([]byte(demoTools), &list); err != nil {
		panic(err)
	}
	all := make(map[string]demoSchema)
	for _, t := range list.Tools {
		all[t.Name] = t.InputSchema
	}
	return all
}()

// read returns the arguments in raw, or the first problem with them. Other arguments than those of
// the schema are allowed, as in any schema that does not forbid them.
func (s demoSchema) read(raw []byte) (args map[string]any, problem string) {
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

// text makes a tool's result.
func text(s string, isError bool, structured any) []byte {
	result := map[string]any{"content": []any{map[string]string{"type": "text", "text": s}}}
	if isError {
		result["isError"] = true
	}
	if structured != nil {
		result["structuredContent"] = structured
	}
	return wire.Encode(result)
}
