package httpclient

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// setSession records the session that the server has opened; "" = none.
func (c *streamable) setSession(session string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessionID = session
}

// setRevision records the revision that the server has negotiated.
func (c *streamable) setRevision(initialized wire.Message) {
	revision := ""
	wire.Members(initialized.Part(wire.PartResult), func(key string, value []byte, _ int) {
		if key == "protocolVersion" {
			revision = wire.Unquote(value)
		}
	})
	if isVisibleASCII(revision) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.revision = revision
	}
}

// isVisibleASCII reports whether s consists of visible ASCII characters, as a header value must.
func isVisibleASCII(s string) bool {
	for _, r := range s {
		if r <= ' ' || r > '~' {
			return false
		}
	}
	return true
}

func (c *streamable) hasSession() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sessionID != ""
}

// header returns the headers of every request.
func (c *streamable) header() http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.headerLocked()
}

func (c *streamable) headerLocked() http.Header {
	h := c.baseHeader.Clone()
	if c.sessionID != "" {
		h.Set(protocol.HeaderSessionID, c.sessionID)
	}
	if c.revision != "" {
		h.Set(protocol.HeaderProtocolVersion, c.revision)
	}
	return h
}

const (
	// sessionCheckTimeout is how long a server may take to respond to the ping of knowsSession.
	sessionCheckTimeout = 5 * time.Second
	// max404Duration is how long a server may respond to all requests with 404, though it
	// responds to pings in the same session; then the session counts as lost.
	max404Duration = 30 * time.Second
	// maxPingResponse bounds the bytes that are read of the response to a ping.
	maxPingResponse = 64 << 10
)

// knowsSession sends a ping in the session.
func (c *streamable) knowsSession(p *outgoingPost) bool {
	if p.id == "" || p.m.Method() == protocol.MethodPing {
		return false
	}
	c.mu.Lock()
	c.sessionChecks++
	if c.first404.IsZero() {
		c.first404 = time.Now()
	}
	id, header := fmt.Sprintf("session-check-%d", c.sessionChecks), c.headerLocked()
	expired := time.Since(c.first404) > max404Duration
	c.mu.Unlock()
	if expired {
		return false
	}
	ctx, cancel := context.WithTimeout(p.ctx, sessionCheckTimeout)
	defer cancel()
	header.Set("Accept", "application/json, text/event-stream")
	header.Set("Content-Type", "application/json")
	ping := wire.NewRequest(wire.ID(wire.Quote(id)), protocol.MethodPing, nil)
	retry := &retryPolicy{method: protocol.MethodPing, log: c.log}
	resp, err := c.send(ctx, http.MethodPost, header, ping.Raw(), retry)
	if err != nil {
		return p.ctx.Err() != nil // p was cancelled, which has no meaning for the session
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return false
	}
	var text []byte
	hasResult := func() bool { return bytes.Contains(text, []byte(`"result"`)) }
	for part := make([]byte, 4<<10); len(text) < maxPingResponse && !hasResult(); {
		n, err := resp.Body.Read(part)
		if text = append(text, part[:n]...); err != nil {
			break
		}
	}
	return hasResult() || p.ctx.Err() != nil
}

// clear404 records that the server has responded to p in the session.
func (c *streamable) clear404(p *outgoingPost) {
	if p.id == "" || p.m.Method() == protocol.MethodPing {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.first404 = time.Time{}
}

// deleteTimeout is how long a server may take to end a session.
const deleteTimeout = time.Second

// deleteSession ends the session ("Session Management" 5). A server need not support it, so
// errors are ignored.
func (c *streamable) deleteSession() {
	ctx, cancel := context.WithTimeout(context.Background(), deleteTimeout)
	defer cancel()
	if resp, err := c.send(ctx, http.MethodDelete, c.header(), nil, &retryPolicy{}); err == nil {
		resp.Body.Close()
	}
}
