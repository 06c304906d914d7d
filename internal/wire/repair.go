package wire

import (
	"slices"
	"strconv"
	"unicode/utf8"
)

// ErrorCode returns the code of an error object; ok is false if object is not an object with
// exactly one code, an integer of at most largestCode in absolute value.
func ErrorCode(object []byte) (code int, ok bool) {
	text, _ := Lookup(object, "code")
	code, err := strconv.Atoi(string(text))
	return code, err == nil && -largestCode <= code && code <= largestCode
}

// largestCode is the largest integer that every client can read.
const largestCode = 1<<53 - 1

// Repair returns a response that strict clients accept, and a description of the repair. The
// description is "" if no repair was necessary or if m is not a response. Repair makes the first of
// these repairs that is necessary:
//
//   - An error that is not an object with an integer code and a message becomes an internal error
//     with its text as the message and the original as data. The response has no data if the data
//     would make it nest too deep.
//   - A result that is not an object becomes an internal error with the result as data, in the same
//     way.
//   - Members that JSON-RPC does not define for a response are removed.
func (m Message) Repair() (repaired Message, repair string) {
	if m.kind != Response {
		return m, ""
	}
	failure, result := m.anyPart(PartError), m.anyPart(PartResult)
	switch {
	case failure != nil && !isError(failure):
		repaired, repair = m.toInternalError(errorText(failure), failure),
			"an error without an integer code and a message"
	case failure == nil && result[0] != '{':
		repaired, repair = m.toInternalError("the result is not an object: "+Excerpt(result),
			result), "a result that is not an object"
	case m.hasUnknownMembers || m.anyPart(PartParams) != nil:
		repaired, repair = mustParse(withoutUnknownMembers(m.Raw())),
			"members that are not part of a response"
	default:
		return m, ""
	}
	repaired.burst = m.burst
	return repaired, repair
}

// Salvage returns the error response that an invalid message was probably meant to be, for example
// a message without "jsonrpc". An invalid error object is replaced as by [Message.Repair]. Salvage
// returns the zero Message if m is valid, has no id or no error, has a method or a result, or nests
// too deep.
func (m Message) Salvage() Message {
	failure, id := m.anyPart(PartError), m.anyPart(PartID)
	if m.kind != Invalid || id == nil || IsNull(failure) || m.anyPart(PartMethod) != nil ||
		!IsNull(m.anyPart(PartResult)) {
		return Message{}
	}
	if !isError(failure) {
		return m.toInternalError(errorText(failure), failure)
	}
	salvaged, err := Parse(encodeResponse(ID(id), "error", failure))
	if err != nil {
		return Message{}
	}
	return salvaged
}

// toInternalError replaces the error or result of a response by an internal error. The original
// becomes the error's data, unless the message would then exceed maxDepth.
func (m *Message) toInternalError(text string, original []byte) Message {
	failure := Encode(Errorf(CodeInternalError, "%s", text))
	withData := slices.Concat(failure[:len(failure)-1], []byte(`,"data":`), original, []byte("}"))
	if response, err := Parse(encodeResponse(m.ID(), "error", withData)); err == nil {
		return response
	}
	return mustParse(encodeResponse(m.ID(), "error", failure))
}

// isError reports whether a value is a valid JSON-RPC error object.
func isError(value []byte) bool {
	_, coded := ErrorCode(value)
	message, _ := Lookup(value, "message")
	return coded && len(message) > 0 && message[0] == '"'
}

// errorText returns the message for the internal error that replaces an invalid error object.
func errorText(failure []byte) string {
	if text := Unquote(failure); text != "" {
		return text
	}
	for _, key := range []string{"message", "error", "detail", "reason", "msg"} {
		value, _ := Lookup(failure, key)
		if text := Unquote(value); text != "" {
			return text
		}
	}
	return "an error without a message: " + Excerpt(failure)
}

// maxExcerpt bounds the part of a value that an error text contains, in bytes.
const maxExcerpt = 100

// Excerpt returns value, truncated for use in an error text. A truncated text ends with "…".
// Packages logging and audit recognize a truncated secret by this character.
func Excerpt[text []byte | string](value text) string {
	if len(value) <= maxExcerpt {
		return string(value)
	}
	cut := maxExcerpt
	for !utf8.RuneStart(value[cut]) {
		cut--
	}
	return string(value[:cut]) + "…"
}

// withoutUnknownMembers removes the members that JSON-RPC does not define for a response, each with
// one comma and the white space around that comma. All other bytes stay.
func withoutUnknownMembers(response []byte) []byte {
	kept := make([]byte, 0, len(response))
	done, end := 0, -1 // end of the copied text; end of the last member, -1 = none kept yet
	s := scan(response)
	i, ok := s.enterObject(0)
	for ok {
		foreign, key := isUnknownMember(string(s.key())), int(s.keyAt.lo)
		if end < 0 && !foreign { // earlier members are removed with the commas that follow
			kept = append(kept, response[done:key]...)
			done = key
		}
		value := s.value(i)
		switch {
		case !foreign:
			end = value
		case end >= 0:
			kept = append(kept, response[done:end]...)
			done, end = value, value
		}
		i, ok = s.nextMember(value)
		if foreign && end < 0 && ok {
			kept, done = append(kept, response[done:key]...), int(s.keyAt.lo)
		}
	}
	return append(kept, response[done:]...)
}

// isUnknownMember reports whether JSON-RPC does not define the member key of a response.
func isUnknownMember(key string) bool {
	switch key {
	case "jsonrpc", "id", "result", "error":
		return false
	}
	return true
}
