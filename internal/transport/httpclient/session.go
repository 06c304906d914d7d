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

// setSession notes the session that the server has opened, "" for none.
func (c *streamable) setSession(session string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessionID = session
}

// setRevision notes the revision that the server has chosen.
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

// isVisibleASCII reports whether s may stand in a header: visible ASCII.
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

// header returns what every request carries.
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
	// sessionCheckTimeout is how long a server may take to say whether it knows a session.
	sessionCheckTimeout = 5 * time.Second
	// max404Duration is for how long a server may answer with nothing but 404, though it answers pings in the same session:
	// then the session is taken for lost.
	max404Duration = 30 * time.Second
	// maxPingResponse bounds how much of the answer to a ping is read, in bytes.
	maxPingResponse = 64 << 10
)

// knowsSession sends a ping within the session.
func (c *streamable) knowsSession(p *outgoingPost) bool {
	if p.id == "" || p.m.Method() == protocol.MethodPing {
		return false
	}
	c.mu.Lock()
	c.sessionChecks++
	if c.first404.IsZero() {
		c.first404 = time.Now()
	}
	id, header, late := fmt.Sprintf("session-check-%d", c.sessionChecks), c.headerLocked(), time.Since(c.first404) > max404Duration
	c.mu.Unlock()
	if late {
		return false
	}
	ctx, cancel := context.WithTimeout(p.ctx, sessionCheckTimeout)
	defer cancel()
	header.Set("Accept", "application/json, text/event-stream")
	header.Set("Content-Type", "application/json")
	ping := wire.NewRequest(wire.ID(wire.Quote(id)), protocol.MethodPing, nil)
	resp, err := c.send(ctx, http.MethodPost, header, ping.Raw(), &retryPolicy{method: protocol.MethodPing, log: c.log})
	if err != nil {
		return p.ctx.Err() != nil // p was cancelled, which says nothing of the session
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return false
	}
	var text []byte
	for part := make([]byte, 4<<10); len(text) < maxPingResponse && !bytes.Contains(text, []byte(`"result"`)); {
		n, err := resp.Body.Read(part)
		if text = append(text, part[:n]...); err != nil {
			break
		}
	}
	return bytes.Contains(text, []byte(`"result"`)) || p.ctx.Err() != nil
}

// clear404 notes that the server has answered p in the session.
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

// deleteSession ends the session ("Session Management" 5). A server need not
// support it, and nothing depends on the outcome.
func (c *streamable) deleteSession() {
	ctx, cancel := context.WithTimeout(context.Background(), deleteTimeout)
	defer cancel()
	if resp, err := c.send(ctx, http.MethodDelete, c.header(), nil, &retryPolicy{}); err == nil {
		resp.Body.Close()
	}
}
