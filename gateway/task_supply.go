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

// supply puts to the client what a task asks, as far as that has not been done, and tells
// the task the answers. It reports false if the call has ended, or is to end with answer,
// if that is a message.
func (c *call) supply(ctx context.Context, p *pursuit, inputs []protocol.InputRequest) (answer wire.Message, ok bool) {
	fresh, full := p.take(inputs)
	switch {
	case full:
		c.giveIn(&transport.CallLostError{Err: errRounds, MayHaveRun: true})
		return wire.Message{}, false
	case len(fresh) == 0:
		return wire.Message{}, true
	}
	responses, sorry := c.put(ctx, fresh)
	switch {
	case ctx.Err() != nil:
		p.giveBack(fresh) // who asks next is asked
		return wire.Message{}, false
	case sorry != nil:
		c.drop(p)
		return *sorry, false
	}
	params := wire.EditObject(aboutTask(p.id), nil, wire.Member{Key: "inputResponses", Text: responses})
	a := c.inquire(ctx, p, methodUpdate, params)
	switch {
	case ctx.Err() != nil:
		return wire.Message{}, false
	case a.Err != nil:
		if lost, ok := errors.AsType[*transport.CallLostError](a.Err); ok && !lost.MayHaveRun {
			p.giveBack(fresh)
		}
		c.giveIn(a.Err) // it may have been told: an answer is given once
		return wire.Message{}, false
	case a.Part(wire.PartError) != nil:
		return c.classic(a.Message), false
	}
	return wire.Message{}, true
}

// take returns the questions that are to be put to the client, which nobody else does
// then; full says that there have been too many.
func (p *pursuit) take(inputs []protocol.InputRequest) (fresh []protocol.InputRequest, full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, in := range inputs {
		if p.asked[in.Key] {
			continue
		}
		if len(p.asked) >= maxAsked {
			return nil, true
		}
		if p.asked == nil {
			p.asked = make(map[string]bool)
		}
		in.Key = strings.Clone(in.Key)
		p.asked[in.Key] = true
		fresh = append(fresh, in)
	}
	return fresh, false
}

func (p *pursuit) giveBack(inputs []protocol.InputRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, in := range inputs {
		delete(p.asked, in.Key)
	}
}

// A ticker tells a client that wants progress of its call what the task says of itself, or
// that it goes on; unless the backend has told it of progress itself, which would not
// agree.
type ticker struct {
	c    *call
	n    int
	last time.Time
	said string
}

func (t *ticker) tick(task []byte) {
	token := t.c.r.Token()
	literal, _ := wire.Lookup(task, "statusMessage")
	message := string(literal)
	if token == "" || t.c.progressed.Load() || message == t.said && time.Since(t.last) < ticking {
		return
	}
	t.n++
	t.last, t.said = time.Now(), message
	put := []wire.Member{{Key: "progressToken", Text: []byte(token)}, {Key: "progress", Text: strconv.AppendInt(nil, int64(t.n), 10)}}
	if wire.Unquote(literal) != "" {
		put = append(put, wire.Member{Key: "message", Text: literal})
	}
	t.c.r.Notify(wire.NewNotification("notifications/progress", wire.EditObject(nil, nil, put...)))
}
