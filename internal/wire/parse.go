package wire

import (
	"bytes"
	"errors"
	"fmt"
)

// ErrUTF8 is what a parse error wraps when the text is no UTF-8, as JSON must
// be. It may still be JSON once mended: see [ReplaceInvalidUTF8].
var ErrUTF8 = errors.New("invalid UTF-8")

// ReplaceInvalidUTF8 returns text with each run of bytes that is not UTF-8 replaced by U+FFFD.
func ReplaceInvalidUTF8(text []byte) []byte {
	return bytes.ToValidUTF8(text, []byte("\uFFFD"))
}

// maxBatch bounds the messages of a batch: each costs much more memory than the
// two bytes that it may be long.
const maxBatch = 4096

// Parse reads text as one JSON-RPC message, or as a batch. The message keeps
// text, which must not be changed afterwards.
//
// An error is always a *[Error], ready to be sent: [CodeParseError] if text is
// no JSON, [CodeInvalidRequest] if it is JSON but no message. In the second case
// the message that comes with the error has its id, if one could be read. A message that nests
// deeper than maxDepth is an invalid request; the text beyond that depth is not checked.
//
// A batch is checked to be JSON; its elements are not looked at.
func Parse(text []byte) (Message, error) {
	s := scan(text)
	s.passDeep = true
	m := Message{raw: text}
	i, c := s.peek(0)
	switch c {
	case '[':
		m.kind = Batch
		i = s.batch(i)
	case '{':
		i = s.members(i, &m, inEnvelope)
	default:
		i = s.value(i)
		s.problem = "a message is an object"
	}
	s.end(i)
	switch {
	case s.err != nil:
		return Message{}, Errorf(CodeParseError, "Parse error: %v", s.err)
	case s.badUTF8:
		return Message{}, &Error{Code: CodeParseError, Message: "Parse error: " + ErrUTF8.Error(), cause: ErrUTF8}
	}
	m.multiline = s.multiline
	problem := s.problem
	if s.deep {
		problem = tooDeep
	}
	if id := m.part(PartID); s.manyIDs || id != nil && !isID(id) {
		m.parts[PartID] = span{} // whatever else is wrong: no answer has it as its id
		if problem == "" {
			problem = "an id is a string, a number or null, of at most 4096 bytes"
		}
	}
	if problem == "" && m.kind != Batch {
		problem = m.classify()
	}
	if problem == bothParts {
		if mended, ok := m.withoutNulls(); ok {
			return mended, nil
		}
	}
	if problem != "" {
		m.kind = Invalid
		return m, Errorf(CodeInvalidRequest, "Invalid request: %s", problem)
	}
	return m, nil
}

// batch walks over an array of messages.
func (s *scanner) batch(i int) (end int) {
	n := 0
	i, ok := s.open(i)
	for ok {
		i, ok = s.more(s.value(i))
		n++
	}
	if n > maxBatch {
		s.problem = "a batch has at most 4096 messages"
	}
	return i
}

// An object tells which members of one of a message's objects are looked at.
type object struct {
	within  string // which object it is, for messages: " in params"
	members []member
	// Of a lenient object a member may stand twice, the last one counts, and
	// in any case: the gateway only watches it pass by.
	lenient bool
}

type member struct {
	name   string
	part   Part    // numParts = its place is not kept: it may only not be read in two ways
	inside *object // what is looked at in it, if it is an object; may be nil
}

var (
	inEnvelope = &object{members: []member{
		{name: "jsonrpc", part: partVersion},
		{name: "id", part: PartID},
		{name: "method", part: PartMethod},
		{name: "params", part: PartParams, inside: inParams},
		{name: "result", part: PartResult, inside: inResult},
		{name: "error", part: PartError},
	}}
	inParams = &object{within: " in params", members: []member{
		{name: "name", part: PartName},
		{name: "arguments", part: PartArguments},
		{name: "_meta", part: PartMeta, inside: inMeta},
		{name: "requestId", part: PartRequestID},
		{name: "progressToken", part: partProgress},
		{name: "cursor", part: PartCursor},
		{name: "inputResponses", part: PartInputResponses},
		{name: "requestState", part: PartRequestState},
		// A request goes by these to a backend, or a notification to a client.
		{name: "uri", part: numParts},
		{name: "ref", part: numParts, inside: inRef},
		{name: "taskId", part: numParts},
		{name: "task", part: numParts},
		{name: "level", part: numParts},
		{name: "elicitationId", part: numParts},
	}}
	inRef = &object{within: " in ref", members: []member{
		{name: "type", part: numParts},
		{name: "name", part: numParts},
		{name: "uri", part: numParts},
	}}
	inMeta = &object{within: " in _meta", members: []member{
		{name: "progressToken", part: PartToken},
		{name: "io.modelcontextprotocol/related-task", part: numParts, inside: inRelated},
	}}
	inRelated = &object{within: " in related-task", members: []member{
		{name: "taskId", part: numParts},
	}}
	inResult = &object{lenient: true, members: []member{
		{name: "isError", part: partIsError},
	}}
)

// find returns which member key names, as an index of o.members; -1 if it is none of o's. A key that
// encoding/json would take for it, because only its case is another, is not
// exact; a lenient object has none of these.
func (o *object) find(key []byte) (i int, exact bool) {
	for i := range o.members {
		if string(key) == o.members[i].name {
			return i, true
		}
	}
	if o.lenient {
		return -1, false
	}
	for i := range o.members {
		if bytes.EqualFold(key, []byte(o.members[i].name)) {
			return i, false
		}
	}
	return -1, false
}

// members walks over the object that stands at i and notes where the members lie
// that o tells of, and what is wrong with them.
func (s *scanner) members(i int, m *Message, o *object) (end int) {
	i, ok := s.enter(i)
	var seen uint32 // a bit for each of o.members
	for ; ok; i, ok = s.next(i) {
		key := s.key()
		n, exact := o.find(key)
		if !exact {
			if n >= 0 && s.problem == "" {
				s.problem = string(Quote(string(key))) + o.within + " differs from a known member only in case"
			}
			m.foreign = m.foreign || o == inEnvelope
			i = s.value(i)
			continue
		}
		found, lo := &o.members[n], i
		if seen&(1<<n) != 0 && !o.lenient {
			s.manyIDs = s.manyIDs || found.part == PartID
			if s.problem == "" {
				s.problem = `"` + found.name + `" stands twice` + o.within
			}
		}
		seen |= 1 << n
		if _, c := s.peek(i); c == '{' && found.inside != nil {
			i = s.members(i, m, found.inside)
		} else {
			i = s.value(i)
		}
		if found.part < numParts {
			m.parts[found.part] = span{int32(lo), int32(i)}
		}
	}
	return i
}

var tooDeep = fmt.Sprintf("the message nests deeper than %d levels", maxDepth)

const bothParts = "a response has a result or an error, not both"

// classify decides what the message is for, and what is wrong with it.
func (m *Message) classify() (problem string) {
	id, method := m.part(PartID), m.part(PartMethod)
	result, failure := m.part(PartResult), m.part(PartError)
	if v := m.part(partVersion); string(v) != `"2.0"` && Unquote(v) != "2.0" {
		return `"jsonrpc" must be "2.0"`
	}
	switch {
	case method != nil && method[0] != '"':
		return "the method must be a string"
	case method != nil && (result != nil || failure != nil):
		return "a message with a method has no result and no error"
	case method != nil && id != nil:
		m.kind = Request
		return m.placeToken()
	case method != nil:
		m.kind = Notification
		return m.placeToken()
	case id == nil || result == nil && failure == nil:
		return "a message needs a method, or an id with a result or an error"
	case result != nil && failure != nil:
		return bothParts
	}
	m.kind = Response
	return ""
}

// placeToken settles which of two places the progress token stands in. One that
// is null asks for nothing.
func (m *Message) placeToken() (problem string) {
	if own := m.parts[partProgress]; m.kind == Notification && own != (span{}) {
		m.parts[PartToken] = own
	}
	m.parts[partProgress] = span{}
	token := m.part(PartToken)
	switch {
	case IsNull(token):
		m.parts[PartToken] = span{}
	case len(token) > maxID:
		return "a progress token has at most 4096 bytes"
	}
	return ""
}

// isID reports whether a JSON value may be an id.
func isID(value []byte) bool {
	c := value[0]
	return (c == '"' || c == 'n' || c == '-' || '0' <= c && c <= '9') && len(value) <= maxID
}

// withoutNulls mends a response in the manner of JSON-RPC 1.0, which has both
// a result and an error, one of them null. What it means is plain, but a strict
// client refuses it, so the gateway says it anew.
func (m Message) withoutNulls() (mended Message, ok bool) {
	result, failure := m.part(PartResult), m.part(PartError)
	switch {
	case IsNull(failure):
		return own(response(m.ID(), "result", result)), true
	case IsNull(result):
		return own(response(m.ID(), "error", failure)), true
	}
	return m, false
}
