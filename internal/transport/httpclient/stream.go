package httpclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/sse"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

const eventStream = "text/event-stream"

const (
	minResumeWait = 100 * time.Millisecond // minimum between two GETs
	maxResumeWait = 30 * time.Second       // maximum, unless the server asks for more
	maxResumes    = 5                      // consecutive GETs without an event, per request
)

// readEvents reads the stream of events in resp to its end and calls handle with each event; see
// [sse.Reader.Each].
func readEvents(
	events *sse.Reader, resp *http.Response, handle func(sse.Event, *transport.OversizedError),
) (received bool, err error) {
	defer resp.Body.Close()
	defer events.Close()
	events.Open(resp.Body)
	return events.Each(handle)
}

// lingerTimeout is the time that a stream has to end after the response, so that its connection can
// be reused.
const lingerTimeout = time.Second

// readStream reads the stream of the HTTP response to p. If the stream breaks before the response
// to p, readStream resumes the stream, provided that the events have ids ("Resumability and
// Redelivery"). It gives up after maxResumes attempts without an event, or when the server rejects
// the attempt for good.
func (c *streamable) readStream(p *outgoingPost, resp *http.Response) {
	events := c.events()
	handle, stop := p.eventHandler()
	defer stop()
	_, err := readEvents(events, resp, handle)
	canResume := func() bool {
		return p.id != "" && !p.completed && events.LastEventID != "" &&
			!isFinalRefusal(err) && !isUnreadable(err)
	}
	for failures := 0; failures < maxResumes && canResume(); failures++ {
		if !sleep(p.ctx, resumeWait(events, failures)) {
			break
		}
		var again *http.Response
		if again, err = c.get(p.ctx, events.LastEventID); err != nil {
			continue
		}
		p.noteReconnect()
		var received bool
		if received, err = readEvents(events, again, handle); received {
			failures = -1
		}
	}
	if !p.completed {
		p.streamEnded(resp, err)
	}
}

// eventHandler returns a function that handles the events of the stream of p. Once p is completed,
// this function starts a timer of lingerTimeout, which cancels p and so ends the stream. stop stops
// the timer.
func (p *outgoingPost) eventHandler() (
	handle func(sse.Event, *transport.OversizedError), stop func() bool,
) {
	p.response.isStream = true
	closeTimer := time.AfterFunc(time.Hour, p.cancel)
	closeTimer.Stop()
	handle = func(e sse.Event, large *transport.OversizedError) {
		before := p.completed
		if p.handleEvent(e, large); p.completed != before {
			closeTimer.Reset(lingerTimeout)
		}
	}
	return handle, closeTimer.Stop
}

// streamEnded completes p because the stream has ended with err before the response.
func (p *outgoingPost) streamEnded(resp *http.Response, err error) {
	switch {
	case isUnreadable(err):
		p.failUnreadable(resp, err)
	case resp.StatusCode >= 300:
		p.failStatus(resp, p.target.statusError(resp, p.response.plainError))
	case p.id == "": // the message was accepted
	case p.response.plainError != nil:
		p.failUnanswered(fmt.Errorf("the stream ended without the answer, but with an error: %s",
			p.target.shorten(string(p.response.plainError))), true)
	case p.response.malformed != nil:
		p.failUnanswered(fmt.Errorf(
			"the stream ended without the answer, but with input that is not a message: %w",
			p.response.malformed), true)
	default:
		p.failUnanswered(fmt.Errorf("the stream ended without the answer: %w",
			p.target.redactError(err)), true)
	}
}

// errEndpointEvent is the error of a request whose stream contains the endpoint event of an
// HTTP+SSE server.
var errEndpointEvent = errors.New("the server answered with an event endpoint, " +
	"as HTTP+SSE servers do: set transport to sse or auto")

// handleEvent processes an event of the stream of p. An event of type error may be the response to
// p. Any other error in such an event is recorded for streamEnded.
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
				p.response.plainError = e.Data
			}
		})
	case e.Type == "endpoint":
		if other := p.c.flavour.mismatch(p); other != nil {
			p.failUnanswered(fmt.Errorf("%w: %w", other, errEndpointEvent), false)
			p.cancel() // otherwise the stream continues
		}
	}
}

// startStandaloneStream starts to read the standalone stream (GET), once.
func (c *streamable) startStandaloneStream() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == connOpen && !c.standalone {
		c.standalone = true
		c.goroutines.start(c.readStandaloneStream)
	}
}

// readStandaloneStream reads the standalone stream until the connection ends, the server rejects
// the stream for good, or the stream cannot be decoded. It reopens a stream that breaks. If the
// server has lost the session, readStandaloneStream ends the connection.
func (c *streamable) readStandaloneStream() {
	events := c.events()
	opened := false
	var first sync.Once
	defer first.Do(func() { close(c.standaloneReady) })
	for failures := 0; ; failures++ {
		began := time.Now()
		resp, err := c.get(c.ctx, events.LastEventID)
		first.Do(func() { close(c.standaloneReady) })
		if err == nil {
			opened = true
			received, why := readEvents(events, resp, c.handleServerEvent)
			if isUnreadable(why) {
				c.log.Warn("stopped reading the standalone stream", "err", why)
				return
			}
			if received || time.Since(began) > maxResumeWait {
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
		case events.LastEventID != "": // the server may have forgotten this id
			events.LastEventID = ""
		case isFinalRefusal(err) && !(opened && status.Code == http.StatusConflict):
			c.log.Debug("standalone stream rejected by the server", "err", err)
			return
		}
		if !sleep(c.ctx, resumeWait(events, failures)) {
			return
		}
	}
}

// handleServerEvent processes an event of a stream that belongs to no request. In events of type
// error, it processes only error responses.
func (c *httpConn) handleServerEvent(e sse.Event, large *transport.OversizedError) {
	switch {
	case large != nil:
		c.deliver(readResult{err: large.Malformed(c.limit)})
		return
	case !e.IsMessage() && e.Type != "error":
		return
	}
	c.eachMessage(e.Data, func(m wire.Message, malformed *transport.MalformedError) {
		switch {
		case e.Type == "error" && (m.Kind() != wire.Response || m.Part(wire.PartError) == nil):
			c.log.Debug("received an error event", "text", c.shorten(string(e.Data)))
		case malformed != nil:
			c.deliver(readResult{err: malformed})
		default:
			if m.Kind() == wire.Response {
				c.closeAnswered(m.ID())
			}
			c.deliver(readResult{m: m})
		}
	})
}

// closeAnswered completes the request id, if open, because its response arrived on another stream.
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

// get resumes a stream after the event lastID, or opens the standalone stream if lastID is "".
func (c *streamable) get(ctx context.Context, lastID string) (*http.Response, error) {
	header := c.header()
	if lastID != "" {
		header.Set(protocol.HeaderLastEventID, lastID)
	}
	return c.openStream(ctx, header, &retryPolicy{})
}

// openStream opens a stream of events. If the server responds, but not with status 200 and a stream
// of events, the error is a *[StatusError].
func (t *httpTarget) openStream(
	ctx context.Context, header http.Header, retry *retryPolicy,
) (*http.Response, error) {
	header.Set("Accept", eventStream)
	resp, err := t.sendAuthorized(ctx, http.MethodGet, header, wire.Text{}, retry)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || mediaType(resp) != eventStream {
		defer resp.Body.Close()
		head, _ := io.ReadAll(io.LimitReader(resp.Body, maxHead))
		return nil, t.statusError(resp, head)
	}
	return resp, nil
}

// isFinalRefusal reports whether err is a response to a GET after which a further GET would be
// pointless.
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

// resumeWait returns the time to wait before the next GET, after this number of consecutive
// failures.
func resumeWait(events *sse.Reader, failures int) time.Duration {
	if failures == 0 && events.Retry >= 0 {
		return max(events.Retry, minResumeWait)
	}
	return max(events.Retry, min(time.Second<<min(failures, 5), maxResumeWait))
}

// sleep waits for d. It returns false if ctx is done first.
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
