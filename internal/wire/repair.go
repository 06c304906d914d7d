package wire

import (
	"slices"
	"strconv"
	"unicode/utf8"
)

// ErrorCode returns the code of the error of a response; ok is false if the error is
// not an object with one integer as its code.
func ErrorCode(object []byte) (code int, ok bool) {
	text, _ := Lookup(object, "code")
	code, err := strconv.Atoi(string(text))
	return code, err == nil && -largestCode <= code && code <= largestCode
}

// largestCode is the largest integer that every client can read.
const largestCode = 1<<53 - 1

// Repair returns a response that strict clients accept, and a description of the repair,
// "" if m is such a response already or is not a response:
//
//   - An error that is not an object with an integer code and a message becomes an internal
//     error with the text that it has, and with the original as data.
//   - A result that is not an object becomes an internal error in the same way.
//   - Members of the response that JSON-RPC does not have are removed.
func (m Message) Repair() (repaired Message, repair string) {
	if m.kind != Response {
		return m, ""
	}
	failure, result := m.part(PartError), m.part(PartResult)
	switch {
	case failure != nil && !isError(failure):
		repaired, repair = m.internal(errorText(failure), failure), "an error without an integer code and a message"
	case failure == nil && result[0] != '{':
		repaired, repair = m.internal("the result is not an object: "+Excerpt(result), result), "a result that is not an object"
	case m.foreign || m.part(PartParams) != nil:
		repaired, repair = own(withoutForeign(m.raw)), "members that are not part of a response"
	default:
		return m, ""
	}
	repaired.burst = m.burst
	return repaired, repair
}

// Salvage returns the response that an invalid message seems to be meant as: an error
// with an id, in a message that lacks "jsonrpc" or has another flaw. If m is not like
// that Salvage returns a message of no kind.
func (m Message) Salvage() Message {
	failure, id := m.part(PartError), m.part(PartID)
	if m.kind != Invalid || id == nil || IsNull(failure) || m.part(PartMethod) != nil || !IsNull(m.part(PartResult)) {
		return Message{}
	}
	if !isError(failure) {
		return m.internal(errorText(failure), failure)
	}
	salvaged, err := Parse(response(ID(id), "error", failure))
	if err != nil {
		return Message{}
	}
	return salvaged
}

// internal returns the response that has an internal error in the place of an error or a
// result. The original is its data, unless it nests so deep that this would be too deep.
func (m *Message) internal(text string, original []byte) Message {
	failure := Encode(Errorf(CodeInternalError, "%s", text))
	withData := slices.Concat(failure[:len(failure)-1], []byte(`,"data":`), original, []byte("}"))
	if answer, err := Parse(response(m.ID(), "error", withData)); err == nil {
		return answer
	}
	return own(response(m.ID(), "error", failure))
}

// isError reports whether a value is an error as JSON-RPC has it.
func isError(value []byte) bool {
	_, coded := ErrorCode(value)
	message, _ := Lookup(value, "message")
	return coded && len(message) > 0 && message[0] == '"'
}

// errorText returns the text of an error that is not one of JSON-RPC.
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

// maxExcerpt is how much of a value stands in the text of an error, in bytes.
const maxExcerpt = 100

// Excerpt returns value, cut to what the text of an error can bear. A … stands where it was cut: the masks of the log
// and of the audit record know the beginning of a secret there.
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

// withoutForeign returns a response without the members that JSON-RPC does not have, each of
// them with one comma. Everything else keeps its bytes.
func withoutForeign(response []byte) []byte {
	kept := make([]byte, 0, len(response))
	done, end := 0, -1 // of what is copied; of the last member that was kept
	s := scan(response)
	i, ok := s.enter(0)
	for ok {
		foreign, key := isForeign(string(s.key())), int(s.keyAt.lo)
		if end < 0 && !foreign { // those before it are removed with the commas behind them
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
		i, ok = s.next(value)
		if foreign && end < 0 && ok {
			kept, done = append(kept, response[done:key]...), int(s.keyAt.lo)
		}
	}
	return append(kept, response[done:]...)
}

// isForeign reports whether a member of a response is not one of JSON-RPC.
func isForeign(key string) bool {
	switch key {
	case "jsonrpc", "id", "result", "error":
		return false
	}
	return true
}
