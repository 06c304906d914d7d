package wire

import (
	"bytes"
	"errors"
)

// ErrUTF8 is what a parse error wraps when the text is no UTF-8, as JSON must
// be. It may still be JSON once mended: see [Mend].
var ErrUTF8 = errors.New("invalid UTF-8")

// Mend returns text with each run of bytes that is not UTF-8 replaced by U+FFFD.
func Mend(text []byte) []byte {
	return bytes.ToValidUTF8(text, []byte("\uFFFD"))
}

// Parse reads text as one JSON-RPC message, or as a batch. The message keeps
// text, which must not be changed afterwards.
//
// An error is always a *[Error], ready to be sent: [CodeParseError] if text is
// no JSON, [CodeInvalidRequest] if it is JSON but no message. In the second case
// the message that comes with the error has its id, if one could be read.
//
// A batch is checked to be JSON; its elements are not looked at.
func Parse(text []byte) (Message, error) {
	s := scanner{b: text}
	m := Message{raw: text}
	version := ""
	problem := ""
	switch s.peek() {
	case '[':
		s.value()
		m.kind = Batch
	case '{':
		version, problem = s.envelope(&m)
	default:
		if s.value(); s.err == nil {
			problem = "a message is an object"
		}
	}
	s.end()
	switch {
	case s.err != nil:
		return Message{}, Errorf(CodeParseError, "Parse error: %v", s.err)
	case s.badUTF8:
		return Message{}, &Error{Code: CodeParseError, Message: "Parse error: " + ErrUTF8.Error(), cause: ErrUTF8}
	}
	m.multiline = s.multiline
	if m.kind == Batch {
		return m, nil
	}
	if problem == "" {
		problem = m.classify(version)
	}
	if problem == bothParts {
		if mended := m.withoutNulls(); mended.kind == Response {
			return mended, nil
		}
	}
	if problem != "" {
		m.kind = Invalid
		return m, Errorf(CodeInvalidRequest, "Invalid request: %s", problem)
	}
	return m, nil
}

// withoutNulls mends a response in the manner of JSON-RPC 1.0, which has both
// a result and an error, one of them null. What it means is plain, but a strict
// client refuses it, so the gateway says it anew.
func (m Message) withoutNulls() Message {
	id, result, failure := m.ID(), m.Part(PartResult), m.Part(PartError)
	switch {
	case m.parts[PartMethod] != (span{}) || result == nil || failure == nil:
		return m
	case IsNull(failure):
		return own(response(id, "result", result))
	case IsNull(result):
		return own(response(id, "error", failure))
	}
	return m
}

const bothParts = "a response has a result or an error, not both"

// classify decides what the message is for, and what is wrong with it.
func (m *Message) classify(version string) (problem string) {
	id, method := m.Part(PartID), m.Part(PartMethod)
	result, failure := m.Part(PartResult), m.Part(PartError)
	if len(id) > 0 && (!isScalarID(id) || len(id) > maxID) {
		m.parts[PartID] = span{}
		return "an id is a string, a number or null, of at most 4096 bytes"
	}
	if version != `"2.0"` {
		return `"jsonrpc" must be "2.0"`
	}
	if method != nil {
		switch {
		case method[0] != '"':
			return "the method must be a string"
		case result != nil || failure != nil:
			return "a message with a method has no result and no error"
		case len(m.Part(PartToken)) > maxID:
			return "a progress token has at most 4096 bytes"
		case id != nil:
			m.kind = Request
		default:
			m.kind = Notification
		}
		return ""
	}
	switch {
	case id == nil || result == nil && failure == nil:
		return "a message needs a method, or an id with a result or an error"
	case result != nil && failure != nil:
		return bothParts
	}
	m.kind = Response
	return ""
}

func isScalarID(id []byte) bool {
	c := id[0]
	return c == '"' || c == 'n' || c == '-' || '0' <= c && c <= '9'
}

// envelope walks over the message's own object.
func (s *scanner) envelope(m *Message) (version, problem string) {
	for key, ok := s.enter(); ok; key, ok = s.next() {
		part := numParts
		switch string(key) {
		case "jsonrpc":
			at := s.value()
			if version != "" {
				problem = `"jsonrpc" stands twice`
			}
			version = string(s.b[at.lo:at.hi])
			continue
		case "id":
			part = PartID
		case "method":
			part = PartMethod
		case "params":
			part = PartParams
		case "result":
			part = PartResult
		case "error":
			part = PartError
		default:
			if foldedTo(key, "jsonrpc", "id", "method", "params", "result", "error") {
				problem = "the member " + string(Quote(string(key))) + " differs from a known one only in case"
			}
			s.value()
			continue
		}
		if m.parts[part] != (span{}) {
			problem = string(Quote(string(key))) + " stands twice"
		}
		lo := s.i
		c := s.peek()
		switch {
		case part == PartParams && c == '{':
			lo = s.i
			if p := s.params(m); p != "" {
				problem = p
			}
			m.parts[part] = span{int32(lo), int32(s.i)}
		case part == PartResult && c == '{':
			lo = s.i
			s.result(m)
			m.parts[part] = span{int32(lo), int32(s.i)}
		default:
			m.parts[part] = s.value()
		}
	}
	return version, problem
}

// params walks over the params and, in them, over _meta.
func (s *scanner) params(m *Message) (problem string) {
	for key, ok := s.enter(); ok; key, ok = s.next() {
		part := numParts
		switch string(key) {
		case "name":
			part = PartName
		case "arguments":
			part = PartArguments
		case "_meta":
			part = PartMeta
		case "requestId":
			part = PartRequestID
		case "progressToken":
			part = PartToken
		case "cursor":
			part = PartCursor
		default:
			if foldedTo(key, "name", "arguments", "_meta", "requestId", "progressToken", "cursor") {
				problem = "params has " + string(Quote(string(key))) + ", which differs from a known member only in case"
			}
			s.value()
			continue
		}
		if m.parts[part] != (span{}) {
			problem = "params has " + string(Quote(string(key))) + " twice"
		}
		if part == PartMeta && s.peek() == '{' {
			lo := s.i
			if p := s.meta(m); p != "" {
				problem = p
			}
			m.parts[part] = span{int32(lo), int32(s.i)}
			continue
		}
		m.parts[part] = s.value()
	}
	return problem
}

func (s *scanner) meta(m *Message) (problem string) {
	for key, ok := s.enter(); ok; key, ok = s.next() {
		at := s.value()
		switch {
		case string(key) == "progressToken":
			if m.parts[PartToken] != (span{}) {
				problem = `a message has two of "progressToken"`
			}
			m.parts[PartToken] = at
		case foldedTo(key, "progressToken"):
			problem = "_meta has " + string(Quote(string(key))) + `, which differs from "progressToken" only in case`
		}
	}
	return problem
}

// result walks over a result that is an object and notes whether a tool says
// that it failed.
func (s *scanner) result(m *Message) {
	for key, ok := s.enter(); ok; key, ok = s.next() {
		at := s.value()
		if string(key) == "isError" {
			m.isError = bytes.Equal(s.b[at.lo:at.hi], []byte("true"))
		}
	}
}
