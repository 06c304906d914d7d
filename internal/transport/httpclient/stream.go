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

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

const eventStream = "text/event-stream"

const (
	minResumeWait = 100 * time.Millisecond // between two GETs, whatever the server asks for
	maxResumeWait = 30 * time.Second       // without being asked to
	maxResumes    = 5                      // GETs in a row that bring nothing before a request is given up
)

// readEvents reads the stream of events that a response is; see [Reader.each].
func readEvents(events *sse.Reader, resp *http.Response, take func(sse.Event, *transport.OversizedError)) (news bool, err error) {
	defer resp.Body.Close()
	defer events.Close()
	events.Open(resp.Body)
	return events.Each(take)
}

// lingerTimeout is how long a stream may go on after the answer, so that its
// connection can be used again.
const lingerTimeout = time.Second

// readStream reads the stream that answers p. If it breaks before the answer it
// is resumed, provided that its events had ids ("Resumability and Redelivery").
func (c *streamable) readStream(p *outgoingPost, resp *http.Response) {
	events := sse.NewReader(c.limit, c.quota)
	hear, stop := p.eventHandler()
	defer stop()
	_, err := readEvents(events, resp, hear)
	for failures := 0; p.id != "" && !p.settled && events.LastEventID != "" && failures < maxResumes && !isFinalRefusal(err) && !isUnreadable(err); failures++ {
		if !sleep(p.ctx, resumeWait(events, failures)) {
			break
		}
		var again *http.Response
		if again, err = c.get(p.ctx, events.LastEventID); err != nil {
			continue
		}
		var news bool
		if news, err = readEvents(events, again, hear); news {
			failures = -1
		}
	}
	if !p.settled {
		p.streamEnded(resp, err)
	}
}

// eventHandler returns what takes the events of the stream that answers p. It gives the
// stream up some time after the answer, unless it is stopped.
func (p *outgoingPost) eventHandler() (hear func(sse.Event, *transport.OversizedError), stop func() bool) {
	p.isStream = true
	linger := time.AfterFunc(time.Hour, p.cancel)
	linger.Stop()
	hear = func(e sse.Event, large *transport.OversizedError) {
		before := p.settled
		if p.handleEvent(e, large); p.settled != before {
			linger.Reset(lingerTimeout)
		}
	}
	return hear, linger.Stop
}

// streamEnded reports that the stream ended, with err, before the answer to p.
func (p *outgoingPost) streamEnded(resp *http.Response, err error) {
	switch {
	case isUnreadable(err):
		p.failUnreadable(resp, err)
	case resp.StatusCode >= 300:
		p.failStatus(resp, p.target.statusError(resp, p.plainError))
	case p.id == "": // accepted all the same
	case p.plainError != nil:
		p.failUnanswered(fmt.Errorf("the stream ended without the answer, but with an error: %s", p.target.shorten(string(p.plainError))), true)
	case p.malformed != nil:
		p.failUnanswered(fmt.Errorf("the stream ended without the answer, but with what is no message: %w", p.malformed), true)
	default:
		p.failUnanswered(fmt.Errorf("the stream ended without the answer: %w", p.target.redactError(err)), true)
	}
}

// errEndpointEvent is why a request is given up whose stream names the endpoint of an HTTP+SSE server.
var errEndpointEvent = errors.New("the server answered with an event endpoint, as HTTP+SSE servers do: set transport to sse or auto")

// handleEvent takes an event of the stream of p. An event with the name error may be the
// response to p; another error that it tells of is kept for cutOff.
func (p *outgoingPost) handleEvent(e sse.Event, large *transport.OversizedError) {
	switch {
	case large != nil && large.ID == p.id && p.id != "":
		p.failUnanswered(large.LostReason(p.c.limit), true)
	case large != nil:
		p.c.deliver(readResult{err: large.Malformed(p.c.limit)})
	case e.IsMessage():
		p.c.eachMessage(e.Data, p.handleMessage)
	case e.Type == "error" && p.id != "":
		p.c.eachMessage(e.Data, func(m wire.Message, _ *transport.MalformedError) {
			if m.Kind() == wire.Response && m.ID() == p.id || errorWithoutID(m) != nil {
				p.handleMessage(m, nil)
			} else {
				p.plainError = e.Data
			}
		})
	case e.Type == "endpoint":
		if other := p.c.flavour.mismatch(p); other != nil {
			p.failUnanswered(fmt.Errorf("%w: %w", other, errEndpointEvent), false)
			p.cancel() // the stream would go on
		}
	}
}

// startStandaloneStream starts the GET stream, once.
func (c *streamable) startStandaloneStream() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endErr == nil && !c.standalone {
		c.standalone = true
		c.goLocked(c.readStandaloneStream)
	}
}

// readStandaloneStream reads what the server says of itself, for as long as the conversation
// lasts or until the server shows that it has no stream for that.
func (c *streamable) readStandaloneStream() {
	events := sse.NewReader(c.limit, c.quota)
	opened := false
	var first sync.Once
	defer first.Do(func() { close(c.standaloneReady) })
	for failures := 0; ; failures++ {
		began := time.Now()
		resp, err := c.get(c.ctx, events.LastEventID)
		first.Do(func() { close(c.standaloneReady) })
		if err == nil {
			opened = true
			news, why := readEvents(events, resp, c.handleServerEvent)
			if isUnreadable(why) {
				c.log.Warn("the server's stream of messages of its own cannot be read", "err", why)
				return
			}
			if news || time.Since(began) > maxResumeWait {
				failures = 0
			}
		}
		status, refused := errors.AsType[*StatusError](err)
		switch {
		case c.ctx.Err() != nil:
			return
		case !refused:
		case opened && status.Code == http.StatusNotFound && c.hasSession():
			c.endSessionLost(&sessionError{fmt.Errorf("%w: GET: %w", ErrSessionLost, err), true})
			return
		case events.LastEventID != "": // it may be the place to resume that is refused
			events.LastEventID = ""
		case isFinalRefusal(err) && !(opened && status.Code == http.StatusConflict):
			c.log.Debug("the server has no stream for messages of its own", "err", err)
			return
		}
		if !sleep(c.ctx, resumeWait(events, failures)) {
			return
		}
	}
}

// handleServerEvent takes an event of a stream that belongs to no request. Of the events with the
// name error it takes those that are the response to a request.
func (c *httpConn) handleServerEvent(e sse.Event, large *transport.OversizedError) {
	switch {
	case large != nil:
		c.deliver(readResult{err: large.Malformed(c.limit)})
		return
	case !e.IsMessage() && e.Type != "error":
		return
	}
	c.eachMessage(e.Data, func(m wire.Message, noise *transport.MalformedError) {
		switch {
		case e.Type == "error" && (m.Kind() != wire.Response || m.Part(wire.PartError) == nil):
			c.log.Debug("the server sent an event with the name error", "text", c.shorten(string(e.Data)))
		case noise != nil:
			c.deliver(readResult{err: noise})
		default:
			if m.Kind() == wire.Response {
				c.closeAnswered(m.ID())
			}
			c.deliver(readResult{m: m})
		}
	})
}

// closeAnswered gives the request id up, if it is still under way: its answer
// did not come as the response to it.
func (c *httpConn) closeAnswered(id wire.ID) {
	c.mu.Lock()
	p := c.open[id]
	delete(c.open, id)
	c.abortIfIdleLocked()
	c.mu.Unlock()
	if p != nil {
		time.AfterFunc(lingerTimeout, p.cancel)
	}
}

// get opens the stream of events that goes on after the event lastID, or a new
// one if that is "".
func (c *streamable) get(ctx context.Context, lastID string) (*http.Response, error) {
	header := c.header()
	if lastID != "" {
		header.Set(protocol.HeaderLastEventID, lastID)
	}
	return c.openStream(ctx, header, &retryPolicy{})
}

// openStream opens a stream of events. The error is a *[StatusError] if the
// server answers with anything else.
func (s *httpTarget) openStream(ctx context.Context, header http.Header, e *retryPolicy) (*http.Response, error) {
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

// isFinalRefusal reports whether a GET was answered so that asking again is pointless.
func isFinalRefusal(err error) bool {
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
		return max(events.Retry, minResumeWait)
	}
	return max(events.Retry, min(time.Second<<min(failures, 5), maxResumeWait))
}

// sleep waits for d; it reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
