package gateway

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// answerInputs sends a task's new input requests to the client and the client's responses to the
// backend. If ok is false, the call has ended or, if response is a valid message, must end with
// response.
func (c *clientCall) answerInputs(ctx context.Context, p *polledTask,
	inputs []protocol.InputRequest) (response wire.Message, ok bool) {
	newInputs, full := p.claimInputs(inputs)
	switch {
	case full:
		c.failWith(&transport.CallLostError{Err: errTooManyRounds, MayHaveRun: true})
		return wire.Message{}, false
	case len(newInputs) == 0:
		return wire.Message{}, true
	}
	responses, declined := c.askAll(ctx, newInputs)
	switch {
	case ctx.Err() != nil:
		p.unclaimInputs(newInputs) // the next request about the task asks again
		return wire.Message{}, false
	case declined != nil:
		c.cancelAtBackend(p)
		return *declined, false
	}
	params := wire.EditObject(taskParams(p.id), nil,
		wire.Member{Key: "inputResponses", Text: responses})
	resp := c.callTask(ctx, p, protocol.MethodTasksUpdate, params)
	switch {
	case ctx.Err() != nil:
		return wire.Message{}, false
	case resp.Err != nil:
		if lost, ok := errors.AsType[*transport.CallLostError](resp.Err); ok && !lost.MayHaveRun {
			p.unclaimInputs(newInputs)
		}
		c.failWith(startedError(resp.Err)) // no retry: the backend may have received the responses
		return wire.Message{}, false
	case resp.Message.Part(wire.PartError) != nil:
		return c.toLegacy(resp.Message), false
	}
	return wire.Message{}, true
}

// claimInputs returns the input requests that were not yet sent to the client, and marks them as
// sent. Full is true if the task exceeds maxTaskInputs.
func (p *polledTask) claimInputs(
	inputs []protocol.InputRequest) (newInputs []protocol.InputRequest, full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, input := range inputs {
		if p.askedKeys[input.Key] {
			continue
		}
		if len(p.askedKeys) >= maxTaskInputs {
			return nil, true
		}
		if p.askedKeys == nil {
			p.askedKeys = make(map[string]bool)
		}
		input.Key = strings.Clone(input.Key)
		p.askedKeys[input.Key] = true
		newInputs = append(newInputs, input)
	}
	return newInputs, false
}

func (p *polledTask) unclaimInputs(inputs []protocol.InputRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, input := range inputs {
		delete(p.askedKeys, input.Key)
	}
}

// A progressSynthesizer creates progress notifications for a call that has become a task, if the
// client's request has a progress token: one for each new status message, and one per
// progressInterval. When the backend itself reports progress, the progressSynthesizer stops,
// because the values of the two would contradict each other.
type progressSynthesizer struct {
	c           *clientCall
	count       int
	last        time.Time
	lastMessage string
}

func (t *progressSynthesizer) maybeReport(task []byte) {
	token := t.c.r.Token()
	literal, _ := wire.Lookup(task, "statusMessage")
	message := string(literal)
	if token == "" || t.c.sawProgress.Load() ||
		message == t.lastMessage && time.Since(t.last) < progressInterval {
		return
	}
	t.count++
	t.last, t.lastMessage = time.Now(), message
	members := []wire.Member{{Key: "progressToken", Text: []byte(token)},
		{Key: "progress", Text: strconv.AppendInt(nil, int64(t.count), 10)}}
	if wire.Unquote(literal) != "" {
		members = append(members, wire.Member{Key: "message", Text: literal})
	}
	t.c.r.Notify(wire.NewNotification(protocol.NotificationProgress,
		wire.EditObject(nil, nil, members...)))
}
