package httpclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"mcpgateway/internal/transport"

	"mcpgateway/internal/sse"

	"mcpgateway/internal/wire"
)

const eventStream = "text/event-stream"

const (
	minWait   = 100 * time.Millisecond // between two GETs, whatever the server asks for
	maxWait   = 30 * time.Second       // without being asked to
	maxResume = 5                      // GETs in a row that bring nothing before a request is given up
)

// follow reads the stream of events that a response is; see [Reader.each].
func follow(events *sse.Reader, resp *http.Response, take func(sse.Event, *transport.OversizedError)) (news bool, err error) {
	defer resp.Body.Close()
	defer events.Close()
	events.Open(resp.Body)
	return events.Each(take)
}

// lingerTime is how long a stream may go on after the answer, so that its
// connection can be used again.
const lingerTime = time.Second

// readStream reads the stream that answers p. If it breaks before the answer it
// is resumed, provided that its events had ids ("Resumability and Redelivery").
func (c *streamable) readStream(p *post, resp *http.Response) {
	events := sse.NewReader(c.limit, c.intake)
	hear, stop := p.listen()
	defer stop()
	_, err := follow(events, resp, hear)
	for failures := 0; p.id != "" && !p.done && events.LastEventID != "" && failures < maxResume && !isFinal(err) && !isUnreadable(err); failures++ {
		if !pause(p.ctx, resumeWait(events, failures)) {
			break
		}
		var again *http.Response
		if again, err = c.get(p.ctx, events.LastEventID); err != nil {
			continue
		}
		var news bool
		if news, err = follow(events, again, hear); news {
			failures = -1
		}
	}
	if !p.done {
		p.cutOff(resp, err)
	}
}

// listen returns what takes the events of the stream that answers p. It gives the
// stream up some time after the answer, unless it is stopped.
func (p *post) listen() (hear func(sse.Event, *transport.OversizedError), stop func() bool) {
	p.streams = true
	linger := time.AfterFunc(time.Hour, p.cancel)
	linger.Stop()
	hear = func(e sse.Event, large *transport.OversizedError) {
		before := p.done
		if p.hear(e, large); p.done != before {
			linger.Reset(lingerTime)
		}
	}
	return hear, linger.Stop
}

// cutOff reports that the stream ended, with err, before the answer to p.
func (p *post) cutOff(resp *http.Response, err error) {
	switch {
	case isUnreadable(err):
		p.unreadable(resp, err)
	case resp.StatusCode >= 300:
		p.rejected(resp, p.to.statusError(resp, p.flaw))
	case p.id == "": // accepted all the same
	case p.flaw != nil:
		p.unanswered(fmt.Errorf("the stream ended without the answer, but with an error: %s", p.to.brief(string(p.flaw))), true)
	case p.noise != nil:
		p.unanswered(fmt.Errorf("the stream ended without the answer, but with what is no message: %w", p.noise), true)
	default:
		p.unanswered(fmt.Errorf("the stream ended without the answer: %w", p.to.clean(err)), true)
	}
}

// errEndpoint is why a request is given up whose stream names the endpoint of an HTTP+SSE server.
var errEndpoint = errors.New("the server answered with an event endpoint, as HTTP+SSE servers do: set transport to sse or auto")

// hear takes an event of the stream of p. An event with the name error may be the
// response to p; another error that it tells of is kept for cutOff.
func (p *post) hear(e sse.Event, large *transport.OversizedError) {
	switch {
	case large != nil && large.ID == p.id && p.id != "":
		p.unanswered(large.LostReason(p.c.limit), true)
	case large != nil:
		p.c.push(item{err: large.Malformed(p.c.limit)})
	case e.IsMessage():
		p.c.messages(e.Data, p.handle)
	case e.Type == "error" && p.id != "":
		p.c.messages(e.Data, func(m wire.Message, _ *transport.MalformedError) {
			if m.Kind() == wire.Response && m.ID() == p.id || nameless(m) != nil {
				p.handle(m, nil)
			} else {
				p.flaw = e.Data
			}
		})
	case e.Type == "endpoint":
		if other := p.c.kind.misfit(p); other != nil {
			p.unanswered(fmt.Errorf("%w: %w", other, errEndpoint), false)
			p.cancel() // the stream would go on
		}
	}
}

// startListening starts the GET stream, once.
func (c *streamable) startListening() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil && !c.listens {
		c.listens = true
		c.goLocked(c.listen)
	}
}

// listen reads what the server says of itself, for as long as the conversation
// lasts or until the server shows that it has no stream for that.
func (c *streamable) listen() {
	events := sse.NewReader(c.limit, c.intake)
	opened := false
	var first sync.Once
	defer first.Do(func() { close(c.hears) })
	for failures := 0; ; failures++ {
		began := time.Now()
		resp, err := c.get(c.ctx, events.LastEventID)
		first.Do(func() { close(c.hears) })
		if err == nil {
			opened = true
			news, why := follow(events, resp, c.hear)
			if isUnreadable(why) {
				c.log.Warn("the server's stream of messages of its own cannot be read", "err", why)
				return
			}
			if news || time.Since(began) > maxWait {
				failures = 0
			}
		}
		status, refused := errors.AsType[*StatusError](err)
		switch {
		case c.ctx.Err() != nil:
			return
		case !refused:
		case opened && status.Code == http.StatusNotFound && c.hasSession():
			c.forget(&sessionError{fmt.Errorf("%w: GET: %w", ErrSessionLost, err), true})
			return
		case events.LastEventID != "": // it may be the place to resume that is refused
			events.LastEventID = ""
		case isFinal(err) && !(opened && status.Code == http.StatusConflict):
			c.log.Debug("the server has no stream for messages of its own", "err", err)
			return
		}
		if !pause(c.ctx, resumeWait(events, failures)) {
			return
		}
	}
}

// hear takes an event of a stream that belongs to no request. Of the events with the
// name error it takes those that are the response to a request.
func (c *httpConn) hear(e sse.Event, large *transport.OversizedError) {
	switch {
	case large != nil:
		c.push(item{err: large.Malformed(c.limit)})
		return
	case !e.IsMessage() && e.Type != "error":
		return
	}
	c.messages(e.Data, func(m wire.Message, noise *transport.MalformedError) {
		switch {
		case e.Type == "error" && (m.Kind() != wire.Response || m.Part(wire.PartError) == nil):
			c.log.Debug("the server sent an event with the name error", "text", c.brief(string(e.Data)))
		case noise != nil:
			c.push(item{err: noise})
		default:
			if m.Kind() == wire.Response {
				c.answeredElsewhere(m.ID())
			}
			c.push(item{m: m})
		}
	})
}

// answeredElsewhere gives the request id up, if it is still under way: its answer
// did not come as the response to it.
func (c *httpConn) answeredElsewhere(id wire.ID) {
	c.mu.Lock()
	p := c.open[id]
	delete(c.open, id)
	c.fadedLocked()
	c.mu.Unlock()
	if p != nil {
		time.AfterFunc(lingerTime, p.cancel)
	}
}

// get opens the stream of events that goes on after the event lastID, or a new
// one if that is "".
func (c *streamable) get(ctx context.Context, lastID string) (*http.Response, error) {
	header := c.header()
	if lastID != "" {
		header.Set("Last-Event-ID", lastID)
	}
	return c.openStream(ctx, header, &errand{})
}

// openStream opens a stream of events. The error is a *[StatusError] if the
// server answers with anything else.
func (s *site) openStream(ctx context.Context, header http.Header, e *errand) (*http.Response, error) {
	header.Set("Accept", eventStream)
	resp, err := s.send(ctx, http.MethodGet, header, nil, e)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || mediaType(resp) != eventStream {
		defer resp.Body.Close()
		head, _ := io.ReadAll(io.LimitReader(resp.Body, maxHead))
		return nil, s.statusError(resp, head)
	}
	return resp, nil
}

// isFinal reports whether a GET was answered so that asking again is pointless.
func isFinal(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	if !ok {
		return false
	}
	switch code := status.Code; code {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	default:
		return code < 500 || code == http.StatusNotImplemented
	}
}

// resumeWait returns how long to wait before the stream of events is asked for again,
// after so many failures in a row.
func resumeWait(events *sse.Reader, failures int) time.Duration {
	if failures == 0 && events.Retry >= 0 {
		return max(events.Retry, minWait)
	}
	return max(events.Retry, min(time.Second<<min(failures, 5), maxWait))
}

// pause waits for d; it reports false if ctx ended first.
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
