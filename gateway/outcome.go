package gateway

import (
	"time"

	"mcpgateway/internal/audit"
	"mcpgateway/internal/callid"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// An Observer is notified of the beginning and the end of every tools/call, prompts/get and
// resources/read, once each. Calls wait for its methods, which must be fast.
type Observer interface {
	Begin(*CallInfo)
	// Routed is called between Begin and End when the Route is known, again each time a call that
	// led to a question is sent. It is not called for calls that are not routed.
	Routed(*CallInfo)
	End(*CallInfo, Outcome)
}

// An OutcomeKind is a kind of Outcome, as in the audit log.
type OutcomeKind = audit.Outcome

const (
	OK          = audit.OK
	ToolError   = audit.ToolError
	RPCError    = audit.RPCError
	Cancelled   = audit.Cancelled
	Timeout     = audit.Timeout
	BackendLost = audit.BackendLost
	NotRun      = audit.NotRun
	Rejected    = audit.Rejected

	InputRequired = audit.InputRequired
)

// An Outcome describes the end of a call.
type Outcome struct {
	Kind   OutcomeKind
	Code   int    // code of the error; 0 = no error
	Reason string // text of the gateway, if the backend did not respond
	// state of the question whether the call may run (tools.confirm); "" = not needed
	Confirmation string
	audit.Counts
	// result or error object of the backend, or a result of the gateway; nil = none
	Result []byte
	Queued time.Duration // time until the call was sent; until its end if it was not sent
	Dur    time.Duration // time since the call was sent; 0 if it was not sent
}

// outcomeOf classifies a backend's response.
func outcomeOf(m wire.Message) Outcome {
	if failure := m.Part(wire.PartError); failure != nil {
		return Outcome{Kind: RPCError, Code: wire.ReadError(failure).Code, Result: failure}
	}
	o := Outcome{Kind: OK, Result: m.Part(wire.PartResult)}
	if m.IsToolError() {
		o.Kind = ToolError
	}
	return o
}

// Observers are notified in their order.
type Observers []Observer

func (all Observers) begin(c *CallInfo) {
	if !observed(c.Method) {
		return
	}
	c.Seq = callid.Next()
	for _, o := range all {
		o.Begin(c)
	}
}

func (all Observers) routed(c *CallInfo) {
	if !observed(c.Method) {
		return
	}
	for _, o := range all {
		o.Routed(c)
	}
}

func (all Observers) end(c *CallInfo, out Outcome) {
	if !observed(c.Method) {
		return
	}
	now := time.Now()
	out.Queued = now.Sub(c.Started)
	if !c.Sent.IsZero() {
		// a resumed call may have been sent before this request arrived
		out.Queued = max(c.Sent.Sub(c.Started), 0)
		out.Dur = now.Sub(c.Started) - out.Queued
	}
	for _, o := range all {
		o.End(c, out)
	}
}

// rejection responds to a request with an error and returns the outcome: cancelled if the client
// cancelled the request first.
func rejection(r *peer.Request, err *wire.Error) Outcome {
	if r.Fail(err) {
		return errorOutcome(Rejected, err)
	}
	return Outcome{Kind: Cancelled}
}

func observed(method string) bool {
	switch method {
	case protocol.MethodToolsCall, protocol.MethodPromptsGet, protocol.MethodResourcesRead:
		return true
	}
	return false
}

// AuditObserver returns the observer that writes the audit log.
func AuditObserver(j *audit.Journal) Observer { return journalObserver{j} }

type journalObserver struct{ *audit.Journal }

func (journalObserver) Begin(*CallInfo) {}

func (journalObserver) Routed(*CallInfo) {}

func (j journalObserver) End(c *CallInfo, o Outcome) {
	r := audit.Record{
		Time: c.Started.Add(o.Queued + o.Dur),
		Seq:  c.Seq, Session: c.Session, Client: c.Client, Principal: c.Principal.Name(),
		ID: string(c.ID), BackendID: string(c.BackendID), TraceID: c.traceID(),
		Tool: truncate(c.Name), Backend: c.Route.Backend, BackendTool: c.Route.Original,
		Outcome: o.Kind, Code: o.Code, Reason: o.Reason, Confirmation: o.Confirmation,
		Counts:  o.Counts,
		Started: c.Started, Queued: o.Queued, Dur: o.Dur,
		BytesIn: len(c.Arguments), BytesOut: len(o.Result),
		Arguments: c.Arguments, Result: o.Result,
	}
	if c.Method != protocol.MethodToolsCall {
		r.Method = c.Method
	}
	j.Write(r)
}
