package oidctest

import (
	"context"
	"encoding/json"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// callArguments are the arguments of the tools of a ProtectedServer.
type callArguments struct {
	ID   string `json:"id,omitempty"`
	Text string `json:"text,omitempty"`
}

// newMCPServer returns an MCP server with these tools, for requests with a valid token.
func (s *ProtectedServer) newMCPServer(tools []string) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "protected", Version: "1"}, nil)
	for _, name := range tools {
		tool := &mcp.Tool{Name: name, Description: "Returns its arguments and the user."}
		mcp.AddTool(server, tool, func(_ context.Context, r *mcp.CallToolRequest,
			in callArguments) (*mcp.CallToolResult, any, error) {
			token := ""
			if r.Extra != nil { // absent over HTTP+SSE
				token = bearer(r.Extra.Header)
			}
			c := s.execute(name, in.ID, token)
			if s.options.Delay > 0 {
				<-time.After(s.options.Delay)
			}
			result := map[string]string{
				"tool": c.Tool, "id": c.ID, "text": in.Text, "user": c.User,
			}
			if s.options.EchoToken {
				result["token"] = token
			}
			text, err := json.Marshal(result)
			return &mcp.CallToolResult{
				Content: []mcp.Content{&mcp.TextContent{Text: string(text)}},
			}, nil, err
		})
	}
	return server
}

// execute records a call.
func (s *ProtectedServer) execute(tool, id, token string) Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := Call{Tool: tool, ID: id, Token: token, User: s.users[token]}
	s.calls = append(s.calls, c)
	return c
}
