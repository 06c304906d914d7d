package gateway

import (
	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/internal/wire"
)

// A state is where a session stands (MCP lifecycle, revisions up to 2025-11-25):
//
//	fresh ─ initialize answered → greeted ─ notifications/initialized → ready → closing
type state uint8

const (
	fresh   state = iota // nothing but initialize and ping
	greeted              // initialize was answered; initialized has not come yet
	ready
	closing // the client has sent its last, or we are ending
)

// A verdict says what is done with a request.
type verdict uint8

const (
	serve   verdict = iota
	hold            // until initialized comes, for a while
	refuse          // -32002: not initialized
	again           // -32600: a second initialize
	unknown         // -32601, whatever the state
	goodbye         // -32603: the gateway is ending
)

// admit is the lifecycle: a pure function of the state and the method. Ping is
// not asked about; package peer answers it in every state, unless it is of the stateless era.
func admit(s state, method string) verdict {
	switch {
	case method == string(mcp.MethodServerDiscover):
		// A client of a later revision asks this first, to learn whether it has
		// to do with one of today's servers. That is answered at once.
		return unknown
	case s == closing:
		return goodbye
	case method == string(mcp.MethodInitialize) && s == fresh:
		return serve
	case method == string(mcp.MethodInitialize):
		return again
	case s == fresh:
		return refuse
	case s == greeted:
		return hold
	}
	return serve
}

// checkID refuses the id null for a request that reaches a backend or that stays open: MCP forbids
// this id, and two such requests cannot be told apart. A request that the gateway answers itself
// is answered with the id null.
func checkID(m wire.Message) *wire.Error {
	if m.ID() != "null" {
		return nil
	}
	switch method := mcp.MCPMethod(m.Method()); method {
	case mcp.MethodToolsCall, mcp.MethodPromptsGet, mcp.MethodResourcesRead,
		mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe, mcp.MethodCompletionComplete,
		mcp.MethodSetLogLevel, mcp.MethodTasksGet, mcp.MethodTasksResult, mcp.MethodTasksList,
		mcp.MethodTasksCancel, methodUpdate, methodListen:
		return wire.Errorf(wire.CodeInvalidRequest, "Invalid request: %s did not run because its id is null: "+
			"send it with a string or a number as its id", method)
	}
	return nil
}
