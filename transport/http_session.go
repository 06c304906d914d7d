package transport

import (
	"context"
	"net/http"
	"time"

	"mcpgateway/wire"
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
