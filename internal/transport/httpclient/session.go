package httpclient

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"mcpgateway/internal/wire"
)

// begin notes the session that the server has opened, "" for none.
func (c *streamable) begin(session string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = session
}

// negotiated notes the revision that the server has chosen.
func (c *streamable) negotiated(initialized wire.Message) {
	revision := ""
	wire.Members(initialized.Part(wire.PartResult), func(key string, value []byte, _ int) {
		if key == "protocolVersion" {
			revision = wire.Unquote(value)
		}
	})
	if isToken(revision) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.revision = revision
	}
}

// isToken reports whether s may stand in a header: visible ASCII.
func isToken(s string) bool {
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
	return c.session != ""
}

// header returns what every request carries.
func (c *streamable) header() http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.headerLocked()
}

func (c *streamable) headerLocked() http.Header {
	h := c.always.Clone()
	if c.session != "" {
		h.Set("Mcp-Session-Id", c.session)
	}
	if c.revision != "" {
		h.Set("Mcp-Protocol-Version", c.revision)
	}
	return h
}

const (
	// checkTime is how long a server may take to say whether it knows a session.
	checkTime = 5 * time.Second
	// denialTime is for how long a server may answer with nothing but 404, though it answers pings in the same session:
	// then the session is taken for lost.
	denialTime = 30 * time.Second
	// maxPong bounds how much of the answer to a ping is read, in bytes.
	maxPong = 64 << 10
)

// knows sends a ping within the session.
func (c *streamable) knows(p *post) bool {
	if p.id == "" || p.m.Method() == "ping" {
		return false
	}
	c.mu.Lock()
	c.checks++
	if c.denied.IsZero() {
		c.denied = time.Now()
	}
	id, header, late := fmt.Sprintf("session-check-%d", c.checks), c.headerLocked(), time.Since(c.denied) > denialTime
	c.mu.Unlock()
	if late {
		return false
	}
	ctx, cancel := context.WithTimeout(p.ctx, checkTime)
	defer cancel()
	header.Set("Accept", "application/json, text/event-stream")
	header.Set("Content-Type", "application/json")
	ping := wire.NewRequest(wire.ID(wire.Quote(id)), "ping", nil)
	resp, err := c.send(ctx, http.MethodPost, header, ping.Raw(), &errand{method: "ping", log: c.log})
	if err != nil {
		return p.ctx.Err() != nil // p was cancelled, which says nothing of the session
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return false
	}
	var text []byte
	for part := make([]byte, 4<<10); len(text) < maxPong && !bytes.Contains(text, []byte(`"result"`)); {
		n, err := resp.Body.Read(part)
		if text = append(text, part[:n]...); err != nil {
			break
		}
	}
	return bytes.Contains(text, []byte(`"result"`)) || p.ctx.Err() != nil
}

// answersAgain notes that the server has answered p in the session.
func (c *streamable) answersAgain(p *post) {
	if p.id == "" || p.m.Method() == "ping" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.denied = time.Time{}
}

// deleteTime is how long a server may take to end a session.
const deleteTime = time.Second

// deleteSession ends the session ("Session Management" 5). A server need not
// support it, and nothing depends on the outcome.
func (c *streamable) deleteSession() {
	ctx, cancel := context.WithTimeout(context.Background(), deleteTime)
	defer cancel()
	if resp, err := c.send(ctx, http.MethodDelete, c.header(), nil, &errand{}); err == nil {
		resp.Body.Close()
	}
}
