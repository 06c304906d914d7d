package backends

import (
	"errors"
	"fmt"
	"strings"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/transport/child"
	"mcpgateway/internal/wire"
)

// maxLoggedMessage bounds the logged part of a backend's log message, in bytes.
const maxLoggedMessage = 8 << 10

// truncate returns the first n bytes of a text, without invalid UTF-8.
func truncate(text string, n int) string {
	return strings.ToValidUTF8(text[:min(len(text), n)], "")
}

// onMalformed logs output that is not a message, the first time as a warning.
func (h *inboundHandler) onMalformed(e *transport.MalformedError) {
	text := truncate(h.link.conn.b.set.Mask(string(e.Text)), 200)
	logAt := h.link.conn.outputLog.Debug
	if h.lastMalformed.Swap(&text) == nil {
		logAt = h.link.conn.outputLog.Warn
	}
	logAt("skipped output that is not a message", "text", text, "err", malformedReason(e))
}

// malformedReason returns the reason why output is not a message. For a line of plain text the
// reason contains no position, because a position in plain text means nothing.
func malformedReason(e *transport.MalformedError) error {
	reason, isParse := strings.CutPrefix(e.Err.Message, "Parse error: ")
	text := strings.TrimLeft(string(e.Text), " \t\r\n")
	switch {
	case e.Err.Code != wire.CodeParseError, errors.Is(e.Err, wire.ErrUTF8):
		return e.Err
	case isParse && text != "" && (text[0] == '{' || text[0] == '['):
		return fmt.Errorf("the line is not JSON: %s", reason)
	}
	return errors.New("the line is not JSON")
}

// warnInvalidParams logs that a message was refused because of its params, the first time as a
// warning.
func (h *inboundHandler) warnInvalidParams(m wire.Message, err error) {
	logAt := h.link.conn.outputLog.Debug
	if !h.warnedOfParams.Swap(true) {
		logAt = h.link.conn.outputLog.Warn
	}
	logAt("refused a message with invalid params", "method", m.Method(), "err", err)
}

// explain adds the last malformed output, if any, to the error of a connection, because the output
// may contain the reason.
func (h *inboundHandler) explain(err error) error {
	output := h.lastMalformed.Load()
	exit, ended := errors.AsType[*child.ExitError](err)
	switch {
	case output == nil:
		return err
	case ended && exit.Stderr == "" && !h.link.conn.reachedReady():
		return rewordedError{err, fmt.Sprintf("it ended (%s) without speaking MCP; its output: %q",
			exit.Status, *output)}
	}
	return fmt.Errorf("%w; it also wrote output that is not MCP: %q", err, *output)
}

// A rewordedError is an error with another text.
type rewordedError struct {
	error
	text string
}

func (r rewordedError) Error() string { return r.text }

func (r rewordedError) Unwrap() error { return r.error }
