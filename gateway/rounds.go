package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A backend of the stateless era asks nothing: it answers that it needs input, and the
// call is sent again with that. A client that has a session is asked in the meantime,
// with requests of ours, on the stream of its call.

const (
	// maxRounds bounds how often the client is asked for one call.
	maxRounds = 10
	// maxIdle bounds how often in a row it is sent again though nothing was asked.
	maxIdle = 8
	// humanTime is how long a client has for the answers of one round.
	humanTime = 10 * time.Minute
)

var errRounds = errors.New("it goes on asking")

// asksFor has the client asked for what a result says that the backend needs, and what has
// become a task pursued. It reports false if it says nothing of the kind.
func (c *call) asksFor(m wire.Message) bool {
	result := m.Part(wire.PartResult)
	if kind := protocol.ResultType(result); result == nil || kind != protocol.ResultInputRequired && kind != protocol.ResultTask {
		return false
	}
	unbook := func() {
		if c.task {
			c.s.tasks.unbook() // it was not made a task
		}
	}
	// Under the lock, so that a session that has cancelled its calls is not one that is
	// still to be waited for.
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancelled {
		unbook()
		if own := protocol.TaskID(result); protocol.ResultType(result) == protocol.ResultTask && own != "" && len(own) <= maxRef {
			c.drop(&pursuit{ref: ref{c.Route.Backend, own}}) // nobody waits for it any more
		}
		return true
	}
	ctx, cancel := context.WithCancel(c.s.ctx)
	c.giveUp = cancel
	c.s.work.Go(func() {
		defer cancel()
		defer unbook()
		c.rounds(ctx, m)
	})
	return true
}

// rounds asks the client and sends the call again, until there is an answer that is
// one. Nothing is left to do when ctx has ended: the call has, too.
func (c *call) rounds(ctx context.Context, m wire.Message) {
	asked, idle := 0, 0
	for protocol.ResultType(m.Part(wire.PartResult)) == protocol.ResultInputRequired {
		inputs, state, err := protocol.ReadInputRequests(m.Part(wire.PartResult))
		switch {
		case err != nil:
			c.giveIn(&peer.BadResponseError{Err: err})
			return
		case asked == maxRounds || idle == maxIdle:
			c.giveIn(&transport.CallLostError{Err: errRounds, MayHaveRun: true})
			return
		}
		var responses []byte
		if len(inputs) == 0 { // "retry me": it is at work, or has too much of it
			idle++
			if !pause(ctx, 250*time.Millisecond+rand.N(250*time.Millisecond)<<min(idle, 3)) {
				return
			}
		} else {
			asked, idle = asked+1, 0
			var answer *wire.Message
			if responses, answer = c.put(ctx, inputs); ctx.Err() != nil {
				return
			}
			if answer != nil {
				c.forward(*answer)
				return
			}
		}
		a := c.sendAgain(ctx, responses, state)
		if ctx.Err() != nil {
			return
		}
		if e, ok := a.Err.(*wire.Error); ok {
			a.Err = &transport.CallLostError{Err: e, MayHaveRun: true} // it is about what the client knows nothing of
		}
		if a.Err != nil {
			c.giveIn(a.Err)
			return
		}
		m = a.Message
	}
	c.settle(ctx, m)
}

// giveIn ends the call without an answer.
func (c *call) giveIn(err error) {
	kind, failure := c.failure(err)
	if c.r.Fail(failure) {
		c.ended(unanswered(kind, failure))
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// put asks the client all of a round's questions at once, and returns the responses; or
// the answer with which the call ends, since one of them cannot be had. If that is because
// the client has not declared it, or could not read it, none is asked: a backend that was
// told what the client can do would only go on asking.
func (c *call) put(ctx context.Context, inputs []protocol.InputRequest) (responses []byte, answer *wire.Message) {
	questions, failure := c.questions(inputs)
	if failure != nil {
		m := c.sorry(failure)
		return nil, &m
	}
	got := make([]wire.Member, len(inputs))
	asking, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	var all sync.WaitGroup
	for i, in := range inputs {
		all.Go(func() {
			got[i].Key = in.Key
			var failure *wire.Error
			switch got[i].Text, failure = c.putOne(asking, questions[i]); {
			case failure == nil:
			case in.Method == string(mcp.MethodElicitationCreate):
				got[i].Text = []byte(`{"action":"cancel"}`)
			default:
				giveUp(failure) // the call ends with the first of them
			}
		})
	}
	all.Wait()
	if failure, ok := errors.AsType[*wire.Error](context.Cause(asking)); ok {
		m := c.sorry(failure)
		return nil, &m
	}
	return wire.EditObject(nil, nil, got...), nil
}

// questions returns what a backend asks as the client gets it, or why it cannot be asked
// one of them.
func (c *call) questions(inputs []protocol.InputRequest) (questions []wire.Message, failure *wire.Error) {
	s := c.s
	s.mu.Lock()
	can := s.caller.can
	s.mu.Unlock()
	var short shortfall
	for _, in := range inputs {
		short.add(can, wire.NewRequest("0", in.Method, in.Params))
	}
	if !short.none() {
		return nil, wire.Errorf(protocol.CodeMissingCapability, "%s", &short)
	}
	for _, in := range inputs {
		params, err := protocol.AdaptServerRequest(in.Method, in.Params, s.traits(), can)
		if err != nil {
			return nil, wire.Errorf(wire.CodeInvalidParams, "%s: %v", brief(in.Method), err)
		}
		if c.related != "" {
			params = protocol.AddRelatedTask(params, c.related)
		}
		m := tagged(c.Route.Backend, wire.NewRequest("0", in.Method, params))
		if in.Method == string(mcp.MethodElicitationCreate) && elicitationMode(params) == "url" {
			m, _ = m.Set(wire.Quote(newID()), "params", "elicitationId") // 2025-11-25 has one; nothing will be said of it
		}
		questions = append(questions, m)
	}
	return questions, nil
}

// putOne asks the client one question and returns its result.
func (c *call) putOne(ctx context.Context, question wire.Message) ([]byte, *wire.Error) {
	s := c.s
	if err := s.mayBePut(c.Route.Backend); err != nil {
		return nil, err
	}
	defer s.leavePlace(c.Route.Backend)
	return c.hearOf(ctx, question)
}

// hearOf sends the client a question, on the stream of the call, and waits for its result.
func (c *call) hearOf(ctx context.Context, question wire.Message) ([]byte, *wire.Error) {
	w := make(peer.ResponseChan, 1)
	p := &peer.Call{Handler: w, RelatedTo: c.ID, Timeout: humanTime}
	c.s.peer.Send(question, p)
	var a peer.Response
	select {
	case a = <-w:
	case <-ctx.Done():
		p.Cancel(nil)
		a = <-w
	}
	switch failure := a.Part(wire.PartError); {
	case a.Err != nil:
		return nil, wire.Errorf(wire.CodeInternalError, "The client has not answered")
	case failure != nil:
		return nil, wire.ReadError(failure)
	}
	return a.Part(wire.PartResult), nil
}

// sorry is what a call ends with whose backend needs something that the client does not
// give: of a tool the model is told, so that it can do something else.
func (c *call) sorry(why *wire.Error) wire.Message {
	if !c.is(mcp.MethodToolsCall) {
		return wire.NewErrorResponse("0", wire.Errorf(wire.CodeInternalError, "backend %s needs input that the client does not give: %s", c.Route.Backend, why.Message))
	}
	return wire.NewResult("0", wire.Encode(map[string]any{
		"isError": true,
		"content": []any{map[string]string{"type": "text", "text": "The tool needs input that the client does not give: " + why.Message}},
	}))
}

// A resending is the Asker of a call that is sent again: its progress is the call's.
type resending struct {
	peer.ResponseChan
	c *call
}

// Progressed implements peer.ResponseHandler.
func (r resending) OnProgress(m wire.Message) { r.c.OnProgress(m) }

// sendAgain sends the call with the client's answers, and the state that the backend
// gave, and waits for what it says now.
func (c *call) sendAgain(ctx context.Context, responses, state []byte) peer.Response {
	again := resending{make(peer.ResponseChan, 1), c}
	p := &peer.Call{Handler: again, Tag: c, Token: c.pending.Token, Name: c.pending.Name, RemoteName: c.pending.RemoteName, SessionID: c.pending.SessionID, AllowTask: c.pending.AllowTask,
		IsContinuation: true, ServerKey: c.pending.ServerKey}
	c.s.g.Backends.Send(c.Route.Backend, protocol.SetContinuation(c.message(), responses, state), p)
	select {
	case a := <-again.ResponseChan:
		return a
	case <-ctx.Done():
		c.s.g.Backends.Cancel(c.Route.Backend, p, nil)
		return <-again.ResponseChan
	}
}

// classic returns a stateless backend's answer as a client that has a session gets it.
func (c *call) classic(m wire.Message) wire.Message {
	failure := m.Part(wire.PartError)
	if failure == nil {
		return protocol.ToLegacy(m)
	}
	uri := ""
	if c.is(mcp.MethodResourcesRead) {
		uri = c.Name
	}
	switch e := wire.ReadError(failure); e.Code {
	case protocol.CodeMissingCapability:
		return c.sorry(e)
	case protocol.CodeHeaderMismatch, protocol.CodeUnsupportedVersion:
		m, _ = m.Set([]byte("-32603"), "error", "code") // that is between the gateway and the backend
	}
	return protocol.ErrorToLegacy(m, uri)
}

// traits returns those of the revision that was agreed on with the client.
func (s *Session) traits() protocol.Features {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.caller.Revision
}
