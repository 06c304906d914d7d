package wire

import (
	"bytes"
	"encoding/json"
)

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
	PartName      // params.name
	PartArguments // params.arguments
	PartMeta      // params._meta
	PartToken     // params._meta.progressToken, or params.progressToken of a notification
	PartRequestID // params.requestId of a cancellation
	PartCursor    // params.cursor
	PartResult
	PartError
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
	isError   bool
	multiline bool
}

// Raw returns the message's text. It must not be changed.
func (m Message) Raw() []byte { return m.raw }

// Kind says what the message is for.
func (m Message) Kind() Kind { return m.kind }

// Part returns the text of one part as it stands in the message, nil if it is
// absent. A string has its quotes.
func (m Message) Part(p Part) []byte {
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

// Method returns the method's name, "" for a response.
func (m Message) Method() string { return Unquote(m.Part(PartMethod)) }

// Name returns params.name, "" if it is absent.
func (m Message) Name() string { return Unquote(m.Part(PartName)) }

// IsToolError reports whether the message is a result with "isError": true.
func (m Message) IsToolError() bool { return m.isError }

// OneLine returns the message with no line break in it, for a transport that
// ends a message at one. Only a message that holds any is copied.
func (m Message) OneLine() Message {
	if !m.multiline {
		return m
	}
	var buf bytes.Buffer
	if json.Compact(&buf, m.raw) != nil {
		return m // cannot be: Parse has validated it
	}
	flat, _ := Parse(buf.Bytes())
	return flat
}

// Elements returns the texts of a batch's elements.
func (m Message) Elements() [][]byte {
	return Elements(m.raw)
}

// Elements returns the texts of a JSON array's elements, nil if array is none.
func Elements(array []byte) [][]byte {
	var all [][]byte
	s := scanner{b: array}
	for ok := s.open(); ok; ok = s.more() {
		at := s.value()
		all = append(all, array[at.lo:at.hi:at.hi])
	}
	if s.err != nil {
		return nil
	}
	return all
}

// Members calls visit with each member of a JSON object, in order: its key, its
// value and the offset at which the value stands. It reports whether object is a
// JSON object.
func Members(object []byte, visit func(key string, value []byte, at int)) bool {
	s := scanner{b: object}
	for key, ok := s.enter(); ok; key, ok = s.next() {
		at := s.value()
		if s.err == nil {
			visit(string(key), object[at.lo:at.hi:at.hi], int(at.lo))
		}
	}
	return s.err == nil
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

// foldedTo reports whether key is one of names but for its case, as
// encoding/json would match it.
func foldedTo(key []byte, names ...string) bool {
	for _, name := range names {
		if bytes.EqualFold(key, []byte(name)) {
			return true
		}
	}
	return false
}
