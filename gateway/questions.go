package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mcpgateway/gateway/internal/mrtr"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/text"
	"mcpgateway/internal/wire"
)

// A question is a question of the gateway itself to the user of the client, about a call that was
// not sent. Package backends decides that there is a question when it is about to send the call,
// and ends the BackendCall with a [contract.QuestionError]. When the user has consented, the call
// is sent again, as a new BackendCall with the consent. From then on it is like any other call.
//
//	OnResponse ─ clientKind.ask
//	   sessionCall:   an elicitation on the stream of the call ─ question.send
//	   statelessCall: input_required and a ticket (stateless_consent.go). A retry with the
//	                  ticket is sent with the consent
//
// Meanwhile nothing of the call is at the backend: it has no timeout, no slot and no task there. It
// ends like a call that waits for the catalog: when the client cancels it or disconnects, when its
// session ends, or when the gateway stops. A ticket needs no state.
type question struct {
	*contract.QuestionError
	c *clientCall
}

// params returns the params of the elicitation.
func (q question) params() []byte {
	c := q.c
	if q.URL == "" {
		return confirmationForm{c.Route.Backend, c.Route.Original, c.Arguments, c.g.Mask}.params()
	}
	return wire.EditObject(nil, nil, wire.Member{Key: "mode", Text: []byte(`"url"`)},
		wire.Member{Key: "message", Text: wire.Quote(text.Escape(c.g.Mask(q.Text)))},
		wire.Member{Key: "url", Text: wire.Quote(q.URL)})
}

// note sets the state of the confirmation, if this is what the question asks for.
func (q question) note(state confirmation) {
	if q.Asks == contract.Confirmed {
		q.c.history.confirmation.Store(uint32(state))
	}
}

// accept notes that the user has consented.
func (q question) accept() {
	q.c.consents.given |= q.Asks
	if q.URL != "" {
		q.c.consents.page = q.URL
	}
	q.note(confirmationAccepted)
}

// isAccepted reports whether the user has consented.
func (q question) isAccepted() bool { return q.c.consents.given&q.Asks != 0 }

// awaitAgain continues with a call whose user has consented before, and which is asked about again:
// it waits until the user has finished on the page. It ends the call if the user was asked to open
// another page: this page has expired, or the login at it did not suffice.
func (q question) awaitAgain() {
	c := q.c
	switch {
	case q.Done == nil:
		c.failWith(q.QuestionError)
	case q.URL != c.consents.page:
		q.refuse(confirmationUnanswered, "the page that the user agreed to open has expired, "+
			"or the server has refused the login")
	default:
		c.goLater(q.send)
	}
}

// requires describes for what the user's consent is required.
func (q question) requires() string {
	if q.Asks == contract.Confirmed {
		return fmt.Sprintf("the user has to confirm calls of %s at backend %s (tools.confirm)",
			truncate(q.c.Route.Original), q.c.Route.Backend)
	}
	if q.Err != nil {
		return fmt.Sprintf("backend %s: %v", q.c.Route.Backend, q.Err)
	}
	return fmt.Sprintf("backend %s requires that the user opens a page", q.c.Route.Backend)
}

// explain returns what happened, and the reason. If there is a page, its link comes first, so that
// a user who reads only the beginning finds it.
func (q question) explain(what, reason string) string {
	if link := q.Link(); link != "" {
		return what + ". " + link + " Reason: " + reason
	}
	return what + ": " + reason
}

// advice returns advice for a client that cannot be asked, which follows the reason. For a page,
// explain gives the advice.
func (q question) advice() string {
	if q.URL != "" {
		return ""
	}
	return ". Use a client that supports elicitation, or ask the operator of the gateway to change " +
		"the configuration"
}

// refuse ends the call, which did not run, because the user has not consented. Detail explains the
// state further; "" = no explanation. A model that has called a tool gets a result with isError, so
// that it can react. A client that expects a task gets an error, because a result is no task.
func (q question) refuse(state confirmation, detail string) {
	q.note(state)
	reason := q.requires() + ", and " + map[confirmation]string{
		confirmationDeclined:   "the user has declined",
		confirmationCancelled:  "the user has dismissed the question",
		confirmationUnanswered: "there is no answer",
		confirmationImpossible: "this client cannot be asked",
	}[state]
	if detail != "" {
		reason += ": " + detail
	}
	explained := q.explain("The call did not run", reason)
	if state == confirmationImpossible {
		explained += q.advice()
	}
	m := wire.NewErrorResponse("0", wire.Errorf(wire.CodeInternalError, "%s", explained))
	if q.c.Method == protocol.MethodToolsCall && !asksForTask(q.c.r.Message) {
		content := []any{map[string]string{"type": "text", "text": explained}}
		m = wire.NewResult("0", wire.Encode(map[string]any{"isError": true, "content": content}))
	}
	q.c.kind.respond(m, Outcome{Kind: Rejected, Reason: reason, Result: m.Part(wire.PartResult)})
}

// send sends the call with the consent, unless the call is cancelled. If the question has a page,
// it waits until the user has finished there.
func (q question) send(ctx context.Context) {
	if q.Done != nil {
		timeout := time.NewTimer(inputTimeout)
		defer timeout.Stop()
		select {
		case <-q.Done:
		case <-ctx.Done():
			return
		case <-timeout.C:
			q.refuse(confirmationUnanswered, fmt.Sprintf("not done within %v", inputTimeout))
			return
		}
	}
	q.c.mu.Lock()
	defer q.c.mu.Unlock()
	if !q.c.cancelled && q.c.kind.prepare() {
		q.c.backendCall.Send() // mu stays locked as in clientCall.send
	}
}

// ask implements clientKind. The user is asked at most once for each consent. The call is not
// registered while it is not at the backend, so that no message of the backend belongs to it.
func (c *sessionCall) ask(q question) {
	c.unreserveTask()
	c.s.calls.remove(c)
	switch {
	case !q.isAccepted():
		c.goLater(func(ctx context.Context) {
			if c.askUser(ctx, q) {
				q.send(ctx)
			}
		})
	default:
		q.awaitAgain()
	}
}

// askUser sends the question to the client and waits for the answer. It returns false if the user
// has not consented: then the call has ended.
func (c *sessionCall) askUser(ctx context.Context, q question) bool {
	m, err := c.elicitation(q)
	if err != nil {
		q.refuse(confirmationImpossible, err.Error())
		return false
	}
	q.note(confirmationAsked)
	result, failure := clientInputs{c, ""}.askOne(ctx, m)
	switch {
	case ctx.Err() != nil: // the call has ended
		return false
	case failure == errNotAnswered:
		q.refuse(confirmationUnanswered, "")
		return false
	case failure != nil:
		q.refuse(confirmationUnanswered, truncate(failure.Message))
		return false
	}
	answer := readAnswer(m.Part(wire.PartParams), result)
	if answer != confirmationAccepted {
		q.refuse(answer, "")
		return false
	}
	q.accept()
	return true
}

// elicitation returns the request for a question, or an error if the client cannot be asked.
func (c *sessionCall) elicitation(q question) (m wire.Message, err error) {
	client := c.s.lifecycle.handshake()
	if !client.Revision.Elicitation {
		return m, fmt.Errorf("it uses MCP %s, which has no elicitation", client.Revision.Date)
	}
	params := q.params()
	var missing mrtr.MissingCapabilities
	missing.Add(client.clientCaps, protocol.MethodElicitationCreate, params)
	if !missing.IsEmpty() {
		return m, errors.New(missing.String())
	}
	params, err = protocol.AdaptServerRequest(protocol.MethodElicitationCreate, params,
		client.Revision, client.clientCaps)
	if err != nil {
		return m, err
	}
	m = wire.NewRequest("0", protocol.MethodElicitationCreate, params)
	if q.URL != "" {
		m, _ = m.Set(wire.Quote(newID()), "params", "elicitationId") // required in 2025-11-25
	}
	return m, nil
}

func (c *sessionCall) respond(m wire.Message, o Outcome) {
	if c.r.Forward(m) {
		c.end(o)
	}
}
