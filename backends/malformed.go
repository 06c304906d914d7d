package backends

import (
	"errors"
	"fmt"
	"strings"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/transport/child"
	"mcpgateway/internal/wire"
)

// maxLoggedMessage bounds what is logged of a log message of the backend's own, in bytes.
const maxLoggedMessage = 8 << 10

// truncate returns the first n bytes of a text, or somewhat less.
func truncate(text string, n int) string {
	return strings.ToValidUTF8(text[:min(len(text), n)], "")
}

// onMalformed says, once, that there is something on the backend's stdout that should
// not be there.
func (h *inboundHandler) onMalformed(n *transport.MalformedError) {
	text := truncate(h.conn.b.set.Mask(string(n.Text)), 200)
	say := h.conn.outputLog.Debug
	if h.lastMalformed.Swap(&text) == nil {
		say = h.conn.outputLog.Warn
	}
	say("skipped output that is no message", "text", text, "err", malformedReason(n))
}

// malformedReason returns why a piece of output is no message. Of a line of plain text the position at which
// it stops being JSON says nothing.
func malformedReason(n *transport.MalformedError) error {
	reason, isParse := strings.CutPrefix(n.Err.Message, "Parse error: ")
	begins := strings.TrimLeft(string(n.Text), " \t\r\n")
	switch {
	case n.Err.Code != wire.CodeParseError, errors.Is(n.Err, wire.ErrUTF8):
		return n.Err
	case isParse && begins != "" && (begins[0] == '{' || begins[0] == '['):
		return fmt.Errorf("the line is not JSON: %s", reason)
	}
	return errors.New("the line is not JSON")
}

// warnInvalidParams logs that a message was not handed on because of its params: the first time as a
// warning.
func (h *inboundHandler) warnInvalidParams(m wire.Message, err error) {
	say := h.conn.outputLog.Debug
	if !h.warnedOfParams.Swap(true) {
		say = h.conn.outputLog.Warn
	}
	say("refused a message whose params are not clear", "method", m.Method(), "err", err)
}

// explain adds to why the conversation failed what was heard in it that is no message:
// it may well say why.
func (h *inboundHandler) explain(err error) error {
	noise := h.lastMalformed.Load()
	exit, ended := errors.AsType[*child.ExitError](err)
	switch {
	case noise == nil:
		return err
	case ended && exit.Stderr == "" && !h.conn.reachedReady():
		return rewordedError{err, fmt.Sprintf("it ended (%s) and spoke no MCP; its output: %q", exit.Status, *noise)}
	}
	return fmt.Errorf("%w; it also wrote what is no MCP: %q", err, *noise)
}

// rewordedError is an error in other words.
type rewordedError struct {
	error
	text string
}

func (r rewordedError) Error() string { return r.text }

func (r rewordedError) Unwrap() error { return r.error }
