package wire

import "bytes"

// An ID is the JSON text of a request id, as it was sent: `7`, `"7"`, `null`.
// It is never read as a number, so none is ever rounded. "" is no id at all.
// Two ids are the same if their text is.
type ID string

// maxID bounds the id and the progress token of a message, in bytes: a row in
// a table keeps them for as long as the call takes.
const maxID = 4096

// A Kind says what a message is for.
type Kind uint8

const (
	Invalid      Kind = iota
	Request           // has a method and an id, be it null
	Notification      // has a method and no id
	Response          // has a result or an error
	Batch             // an array; see [Message.Elements]
)

// A Part is one of the places in a message that the gateway looks at.
type Part uint8

const (
	PartID Part = iota
	PartMethod
	PartParams
	PartName           // params.name
	PartArguments      // params.arguments
	PartMeta           // params._meta
	PartToken          // params._meta.progressToken, or params.progressToken of a notification; never null
	PartRequestID      // params.requestId of a cancellation
	PartCursor         // params.cursor
	PartInputResponses // params.inputResponses of a request that goes on
	PartRequestState   // params.requestState of one
	PartResult
	PartError

	partVersion  // "jsonrpc"
	partProgress // params.progressToken, until Parse knows what the message is
	partIsError  // result.isError
	numParts
)

// A span is a stretch of a message's text; the empty one stands for absent.
type span struct{ lo, hi int32 }

// A Message is one JSON-RPC message (or a batch of them) with the places of its
// parts. Its text is immutable: whoever holds a Message may keep it and share
// it, and nobody writes to it.
type Message struct {
	raw       []byte
	parts     [numParts]span
	kind      Kind
	multiline bool // a line break stands between tokens
	foreign   bool // the message itself has members that JSON-RPC does not have
	burst     *Burst
}

// Raw returns the message's text. It must not be changed.
func (m Message) Raw() []byte { return m.raw[:len(m.raw):len(m.raw)] }

// Kind says what the message is for.
func (m Message) Kind() Kind { return m.kind }

// Part returns the text of one part as it stands in the message, nil if it is
// absent. A string has its quotes.
func (m Message) Part(p Part) []byte { return m.part(p) }

// part is Part for who has the message at hand: it copies none.
func (m *Message) part(p Part) []byte {
	if s := m.parts[p]; s.hi > s.lo {
		return m.raw[s.lo:s.hi:s.hi]
	}
	return nil
}

// ID returns the message's id, "" if it has none.
func (m Message) ID() ID { return ID(m.Part(PartID)) }

// Token returns the progress token, "" if there is none.
func (m Message) Token() ID { return ID(m.Part(PartToken)) }

// RequestID returns params.requestId, "" if there is none.
func (m Message) RequestID() ID { return ID(m.Part(PartRequestID)) }

// Name returns params.name, "" if it is absent.
func (m Message) Name() string { return Unquote(m.Part(PartName)) }

// IsToolError reports whether the message is a result with "isError": true.
func (m Message) IsToolError() bool { return string(m.Part(partIsError)) == "true" }

// OneLine returns the message with no line break in it, for a transport that
// ends a message at one. Only a message that holds any is copied. Line breaks
// stand between tokens alone, so that a space in the place of each is enough, and
// everything else stays where it is; but at the end they are cut off, with what white
// space there is: some clients bear nothing between a message and the end of its line.
func (m Message) OneLine() Message {
	if !m.multiline {
		return m
	}
	m.raw, m.multiline = bytes.Clone(m.raw), false
	for i, c := range m.raw {
		if c == '\n' || c == '\r' {
			m.raw[i] = ' '
		}
	}
	m.raw = bytes.TrimRight(m.raw, " \t")
	return m
}

// WantsResponse reports whether a message of which [Parse] said that it is invalid is a request of
// JSON-RPC 2.0 all the same: it has a method and an id, and its sender waits for an answer.
func (m Message) WantsResponse() bool {
	method := m.Part(PartMethod)
	return m.kind == Invalid && Unquote(m.Part(partVersion)) == "2.0" && len(method) > 0 && method[0] == '"' &&
		m.Part(PartID) != nil && !IsNull(m.Part(PartID))
}

// Elements returns the texts of a batch's elements.
func (m Message) Elements() [][]byte {
	return Elements(m.raw)
}

// Elements returns the texts of a JSON array's elements, nil if array is none.
func Elements(array []byte) [][]byte {
	var all [][]byte
	if !EachElement(array, func(element []byte) bool {
		all = append(all, element)
		return true
	}) {
		return nil
	}
	return all
}

// EachElement calls visit with the text of each element of a JSON array, in
// order, until it answers false. EachElement answers whether array is a JSON
// array, as far as it was read.
func EachElement(array []byte, visit func(element []byte) bool) bool {
	s := scan(array)
	i, ok := s.open(0)
	for ok {
		lo := i
		i = s.value(i)
		if s.err == nil && !visit(array[lo:i:i]) {
			return !s.badUTF8
		}
		i, ok = s.more(i)
	}
	s.end(i)
	return s.err == nil && !s.badUTF8
}

// Members calls visit with each member of a JSON object, in order: its key, its
// value and the offset at which the value stands. It reports whether object is a
// JSON object; visit may have been called when it turns out to be none.
func Members(object []byte, visit func(key string, value []byte, at int)) bool {
	s := scan(object)
	i, ok := s.enter(0)
	for ok {
		key, lo := string(s.key()), i
		i = s.value(i)
		if s.err == nil {
			visit(key, object[lo:i:i], lo)
		}
		i, ok = s.next(i)
	}
	s.end(i)
	return s.err == nil && !s.badUTF8
}

// IsObject reports whether a value's text is an object's.
func IsObject(value []byte) bool {
	value = bytes.TrimLeft(value, " \t\r\n")
	return len(value) > 0 && value[0] == '{'
}

// IsNull reports whether a value is absent or null.
func IsNull(value []byte) bool {
	return len(value) == 0 || string(value) == "null"
}
