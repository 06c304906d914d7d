package wire

import (
	"bytes"
	"errors"
	"fmt"
)

// ErrUTF8 is wrapped by the parse error for text that is not valid UTF-8. After
// [ReplaceInvalidUTF8], such text may be valid JSON.
var ErrUTF8 = errors.New("invalid UTF-8")

// ReplaceInvalidUTF8 returns a copy of text in which U+FFFD replaces each run of invalid UTF-8.
func ReplaceInvalidUTF8(text []byte) []byte {
	return bytes.ToValidUTF8(text, []byte("\uFFFD"))
}

// maxBatch bounds the number of messages in a batch, because even an element of two bytes needs
// much more memory than two bytes.
const maxBatch = 4096

// Parse reads text as one JSON-RPC message or as a batch. The returned message shares memory with
// text, which must not be changed afterwards. If a response has both a result and an error, and one
// of them is null, Parse returns a new message with only the version, the id and the member that is
// not null.
//
// An error is always a *[Error] that can be sent: [CodeParseError] if text is not JSON or is longer
// than maxText, [CodeInvalidRequest] if it is JSON but not a message. With CodeInvalidRequest the
// returned message contains the id if there is exactly one valid id. A message that nests deeper
// than maxDepth is an invalid request; in the text beyond that depth, only strings and the number
// of brackets are checked.
//
// Of a batch, Parse checks only that it is valid JSON and has at most maxBatch elements. It does
// not parse the elements as messages.
func Parse(text []byte) (m Message, err error) {
	err = m.parse(text, received)
	return m, err
}

// parse parses text into the zero Message m. It does not return a Message, because copying a
// Message whose parts were just written stalls the processor.
func (m *Message) parse(text []byte, limit bounds) error {
	var s scanner // not copied: copying a struct that was just written stalls the processor
	s.open(text, limit)
	s.allowDeep = true
	m.raw = text
	i, c := s.peek(0)
	switch c {
	case '[':
		m.kind = Batch
		i = s.batch(i)
	case '{':
		i = s.members(i, m, envelopeSpec)
	default:
		i = s.value(i)
		s.problem = "a message is an object"
	}
	s.expectEnd(i)
	switch {
	case s.err != nil:
		*m = Message{}
		return Errorf(CodeParseError, "Parse error: %v", s.err)
	case s.badUTF8:
		*m = Message{}
		return &Error{Code: CodeParseError, Message: "Parse error: " + ErrUTF8.Error(),
			cause: ErrUTF8}
	}
	m.multiline = s.multiline
	version := text[s.version.lo:s.version.hi]
	m.isVersion2 = string(version) == `"2.0"` || Unquote(version) == "2.0"
	problem := s.problem
	if s.foundTooDeep {
		problem = fmt.Sprintf("the message nests deeper than %d levels", limit.depth)
	}
	if id := m.part(PartID); s.manyIDs || id != nil && !isID(id) {
		m.parts[PartID] = span{} // no response may use this id
		if problem == "" {
			problem = "an id is a string, a number or null, of at most 4096 bytes"
		}
	}
	if problem == "" && m.kind != Batch {
		problem = m.classify(s.paramsToken)
	}
	if problem == problemBothParts {
		if repaired, ok := m.withoutNullPart(); ok {
			*m = repaired
			return nil
		}
	}
	if problem != "" {
		m.kind = Invalid
		return Errorf(CodeInvalidRequest, "Invalid request: %s", problem)
	}
	return nil
}

// batch scans an array of messages.
func (s *scanner) batch(i int) (end int) {
	n := 0
	i, ok := s.enterArray(i)
	for ok {
		i, ok = s.nextElement(s.value(i))
		n++
	}
	if n > maxBatch {
		s.problem = "a batch has at most 4096 messages"
	}
	return i
}

// An objectSpec lists the members of an object that Parse reads.
type objectSpec struct {
	context string // names the object in error texts: " in params"
	members []memberSpec
	// lenient allows duplicates and keys in another case, for objects that the gateway only
	// forwards. The last duplicate counts.
	lenient bool
}

type memberSpec struct {
	name   string
	part   Part        // noPart = only duplicates and case are checked
	object *objectSpec // members to read if the value is an object; nil = none
}

var (
	envelopeSpec = &objectSpec{members: []memberSpec{
		{name: "jsonrpc", part: partVersion},
		{name: "id", part: PartID},
		{name: "method", part: PartMethod},
		{name: "params", part: PartParams, object: paramsSpec},
		{name: "result", part: PartResult, object: resultSpec},
		{name: "error", part: PartError},
	}}
	paramsSpec = &objectSpec{context: " in params", members: []memberSpec{
		{name: "name", part: PartName},
		{name: "arguments", part: PartArguments},
		{name: "_meta", part: PartMeta, object: metaSpec},
		{name: "requestId", part: PartRequestID},
		{name: "progressToken", part: partParamsToken},
		{name: "cursor", part: PartCursor},
		{name: "inputResponses", part: PartInputResponses},
		{name: "requestState", part: PartRequestState},
		// The gateway reads the members below, mostly to find the backend or client of a message.
		{name: "uri", part: noPart},
		{name: "ref", part: noPart, object: refSpec},
		{name: "taskId", part: noPart},
		{name: "task", part: partTask},
		{name: "level", part: noPart},
		{name: "elicitationId", part: noPart},
	}}
	refSpec = &objectSpec{context: " in ref", members: []memberSpec{
		{name: "type", part: noPart},
		{name: "name", part: noPart},
		{name: "uri", part: noPart},
	}}
	metaSpec = &objectSpec{context: " in _meta", members: []memberSpec{
		{name: "progressToken", part: PartToken},
		{name: "io.modelcontextprotocol/related-task", part: noPart, object: relatedTaskSpec},
	}}
	relatedTaskSpec = &objectSpec{context: " in related-task", members: []memberSpec{
		{name: "taskId", part: noPart},
	}}
	resultSpec = &objectSpec{lenient: true, members: []memberSpec{
		{name: "isError", part: partIsError},
		{name: "structuredContent", part: partStructured},
	}}
)

// find returns the index in o.members of the member with this key, -1 if there is none. exact is
// false if the key differs in case; encoding/json ignores the case. In a lenient object a key that
// differs in case is not found.
func (o *objectSpec) find(key []byte) (i int, exact bool) {
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

// members scans the object at i. It records the offsets of the members in o, and the first
// problem.
func (s *scanner) members(i int, m *Message, o *objectSpec) (end int) {
	i, ok := s.enterObject(i)
	var seen uint32 // one bit per member of o.members
	for ; ok; i, ok = s.nextMember(i) {
		key := s.key()
		n, exact := o.find(key)
		if !exact {
			if n >= 0 && s.problem == "" {
				s.problem = string(Quote(string(key))) + o.context +
					" differs from a known member only in case"
			}
			m.hasUnknownMembers = m.hasUnknownMembers || o == envelopeSpec
			i = s.value(i)
			continue
		}
		found, lo := &o.members[n], i
		if seen&(1<<n) != 0 && !o.lenient {
			s.manyIDs = s.manyIDs || found.part == PartID
			if s.problem == "" {
				s.problem = `"` + found.name + `" occurs twice` + o.context
			}
		}
		seen |= 1 << n
		if _, c := s.peek(i); c == '{' && found.object != nil {
			i = s.members(i, m, found.object)
		} else {
			i = s.value(i)
		}
		at := span{int32(lo), int32(i)}
		switch {
		case found.part < numParts:
			m.parts[found.part] = at
		case found.part == partVersion:
			s.version = at
		case found.part == partParamsToken:
			s.paramsToken = at
		case found.part == partTask:
			m.hasTask = true
		case found.part == partStructured:
			m.hasStructured = true
		}
	}
	return i
}

const problemBothParts = "a response has a result or an error, not both"

// classify sets the kind of the message and returns the problem with it, "" if there is none.
// paramsToken is params.progressToken.
func (m *Message) classify(paramsToken span) (problem string) {
	id, method := m.part(PartID), m.part(PartMethod)
	result, failure := m.part(PartResult), m.part(PartError)
	if !m.isVersion2 {
		return `"jsonrpc" must be "2.0"`
	}
	switch {
	case method != nil && method[0] != '"':
		return "the method must be a string"
	case method != nil && (result != nil || failure != nil):
		return "a message with a method has no result and no error"
	case method != nil && id != nil:
		m.kind = Request
		m.method = frequentMethod[string(method)]
		return m.checkToken()
	case method != nil:
		m.kind = Notification
		m.method = frequentMethod[string(method)]
		if paramsToken != (span{}) {
			m.parts[PartToken] = paramsToken
		}
		return m.checkToken()
	case id == nil || result == nil && failure == nil:
		return "a message needs a method, or an id with a result or an error"
	case result != nil && failure != nil:
		return problemBothParts
	}
	m.kind = Response
	return ""
}

// checkToken removes a null progress token, which counts as absent. It returns a problem if the
// token is too long.
func (m *Message) checkToken() (problem string) {
	token := m.part(PartToken)
	switch {
	case IsNull(token):
		m.parts[PartToken] = span{}
	case len(token) > maxID:
		return "a progress token has at most 4096 bytes"
	}
	return ""
}

// isID reports whether a JSON value is a valid id.
func isID(value []byte) bool {
	c := value[0]
	return (c == '"' || c == 'n' || c == '-' || '0' <= c && c <= '9') && len(value) <= maxID
}

// withoutNullPart repairs a response in the style of JSON-RPC 1.0, which has both a result and an
// error, one of which is null. Strict clients reject such a response. The repaired response has
// only the version, the id, and the member that is not null; the result if both are null. ok is
// false if neither is null.
func (m Message) withoutNullPart() (repaired Message, ok bool) {
	result, failure := m.part(PartResult), m.part(PartError)
	switch {
	case IsNull(failure):
		return mustParse(encodeResponse(m.ID(), "result", result)), true
	case IsNull(result):
		return mustParse(encodeResponse(m.ID(), "error", failure)), true
	}
	return m, false
}
