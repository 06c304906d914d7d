package wire

import (
	"bytes"
	"slices"
	"sync"
)

// An ID is the JSON text of a request id, exactly as it was sent: `7`, `"7"`, `null`. An ID is
// never converted to a number, so it is never rounded. "" means no id. Two ids are equal if their
// texts are equal.
type ID string

// maxID bounds the id and the progress token of a message, in bytes, because a table contains them
// for the duration of the call.
const maxID = 4096

// A MessageKind is the type of a message.
type MessageKind uint8

const (
	Invalid      MessageKind = iota
	Request                  // has a method and an id, which may be null
	Notification             // has a method but no id
	Response                 // has a result or an error
	Batch                    // an array; see [Message.Elements]
)

// A Part is a member of a message that the gateway reads.
type Part uint8

const (
	PartID Part = iota
	PartMethod
	PartParams
	PartName           // params.name
	PartArguments      // params.arguments
	PartMeta           // params._meta
	PartToken          // params._meta.progressToken; params.progressToken of a notification
	PartRequestID      // params.requestId of a cancellation
	PartCursor         // params.cursor
	PartInputResponses // params.inputResponses of a continuation
	PartRequestState   // params.requestState of a continuation
	PartResult
	PartError

	partIsError // result.isError
	numParts

	// Recorded only by the scanner:
	partVersion     // "jsonrpc"
	partParamsToken // params.progressToken
	partTask        // params.task
	partStructured  // result.structuredContent

	noPart // not recorded
)

// A span is a range of bytes in a message. The zero span means that a part is absent.
type span struct{ lo, hi int32 }

// A Message is a JSON-RPC message or a batch of messages, with the offsets of its parts. Its text
// is immutable, so a Message may be stored and shared.
//
// Its size is a multiple of 16 bytes. The processor copies 16 bytes at a time; for a rest of 8
// bytes, the last two copies would overlap, and each copy of the copy would stall.
type Message struct {
	raw               []byte         // text, or the first of its two pieces
	rest              *[]byte        // second piece of the text; nil = none
	parts             [numParts]span // offsets in the whole text
	kind              MessageKind
	multiline         bool  // there is a line break between tokens
	hasUnknownMembers bool  // the message object has members that JSON-RPC does not define
	isVersion2        bool  // "jsonrpc" is "2.0"
	hasTask           bool  // params has a member "task"
	hasStructured     bool  // result has a member "structuredContent"
	method            uint8 // index in frequentMethods
	burst             *Burst
}

// A Text is the text of a message, in two pieces. The second piece is empty unless
// [Message.Splice] has replaced a part of a long message. The bytes must not be changed.
type Text [2][]byte

// Len returns the number of bytes.
func (t Text) Len() int { return len(t[0]) + len(t[1]) }

// Clone returns a copy of the text, in one piece.
func (t Text) Clone() Text { return Text{slices.Concat(t[0], t[1])} }

// Bytes returns the text in one piece. It copies a text in two pieces.
func (t Text) Bytes() []byte {
	if len(t[1]) == 0 {
		return t[0]
	}
	return bytes.Join(t[:], nil)
}

// Text returns the text of the message, without a copy.
func (m Message) Text() Text {
	t := Text{m.raw[:len(m.raw):len(m.raw)]}
	if m.rest != nil {
		t[1] = *m.rest
	}
	return t
}

// Raw returns the text of the message in one piece. It must not be changed. Raw copies a text in
// two pieces; see [Message.Text].
func (m Message) Raw() []byte { return m.Text().Bytes() }

// join joins the two pieces of the text.
func (m *Message) join() {
	if m.rest != nil {
		m.raw, m.rest = m.Raw(), nil
	}
}

// Kind returns the kind of the message.
func (m Message) Kind() MessageKind { return m.kind }

// Part returns the JSON text of a part, nil if the part is absent. Strings include their quotation
// marks. Part copies a part that extends over both pieces of the text.
func (m Message) Part(p Part) []byte { return m.anyPart(p) }

// anyPart is like Part, but does not copy m.
func (m *Message) anyPart(p Part) []byte {
	s, n := m.parts[p], int32(len(m.raw))
	switch {
	case s.hi <= n:
		return m.part(p)
	case s.lo < n:
		return slices.Concat(m.raw[s.lo:], (*m.rest)[:s.hi-n])
	default:
		return (*m.rest)[s.lo-n : s.hi-n : s.hi-n]
	}
}

// part is like anyPart, for a part that is completely in the first piece of the text.
func (m *Message) part(p Part) []byte {
	if s := m.parts[p]; s.hi > s.lo {
		return m.raw[s.lo:s.hi:s.hi]
	}
	return nil
}

// Clone returns the message with a copy of its text. It keeps no other text in memory, and belongs
// to no burst.
func (m Message) Clone() Message {
	m.raw, m.rest, m.burst = m.Text().Clone()[0], nil, nil
	return m
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

// HasTask reports whether the params have a member "task".
func (m Message) HasTask() bool { return m.hasTask }

// HasStructuredContent reports whether the result has a member "structuredContent".
func (m Message) HasStructuredContent() bool { return m.hasStructured }

// frequentMethods are the methods that [Parse] recognizes, so that [Message.Method] neither
// allocates nor searches for them. Element 0 stands for all other methods.
var frequentMethods = [...]string{
	0: "", "ping", "tools/call", "tools/list", "resources/read", "prompts/get",
	"completion/complete", "notifications/progress", "notifications/cancelled",
	"notifications/message", "notifications/initialized",
}

// frequentMethod contains the index in frequentMethods of each method as a JSON string.
var frequentMethod = func() map[string]uint8 {
	index := make(map[string]uint8)
	for i, method := range frequentMethods[1:] {
		index[`"`+method+`"`] = uint8(i + 1)
	}
	return index
}()

// Method returns the message's method, "" if it has none.
func (m Message) Method() string {
	if m.method != 0 {
		return frequentMethods[m.method]
	}
	return Unquote(m.Part(PartMethod))
}

// OneLine returns the message without line breaks, for transports in which a line break ends a
// message. If there is no line break, it returns m. Otherwise it copies the text. Line breaks occur
// only between tokens, so replacing each by a space does not change the offsets of parts. The copy
// has no trailing white space, because some clients reject white space at the end of a line.
func (m Message) OneLine() Message {
	if !m.multiline {
		return m
	}
	text := m.Text()
	m.raw, m.rest, m.multiline = bytes.Join(text[:], nil), nil, false
	for i, c := range m.raw {
		if c == '\n' || c == '\r' {
			m.raw[i] = ' '
		}
	}
	m.raw = bytes.TrimRight(m.raw, " \t")
	return m
}

// Line returns the text of [Message.OneLine].
func (m Message) Line() Text {
	if m.multiline {
		m = m.OneLine()
	}
	return m.Text()
}

// WantsResponse reports whether a message that [Parse] rejected as invalid has the version, a
// method and an id other than null, like a JSON-RPC 2.0 request, so that the sender waits for a
// response.
func (m Message) WantsResponse() bool {
	method := m.Part(PartMethod)
	return m.kind == Invalid && m.isVersion2 && len(method) > 0 && method[0] == '"' &&
		m.Part(PartID) != nil && !IsNull(m.Part(PartID))
}

// Elements returns the texts of a batch's elements.
func (m Message) Elements() [][]byte {
	return Elements(m.Raw())
}

// Elements returns the texts of the elements of a JSON array, nil if array is not one.
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

// EachElement calls visit with the text of each element of a JSON array, in order, until visit
// returns false. It reports whether array is a JSON array, as far as EachElement has read it.
func EachElement(array []byte, visit func(element []byte) bool) bool {
	s := scan(array)
	i, ok := s.enterArray(0)
	for ok {
		lo := i
		i = s.value(i)
		if s.err == nil && !visit(array[lo:i:i]) {
			return !s.badUTF8
		}
		i, ok = s.nextElement(i)
	}
	s.expectEnd(i)
	return s.err == nil && !s.badUTF8
}

// Members calls visit with each member of a JSON object, in order: the key, the value, and the
// offset of the value. It reports whether object is a JSON object. It may call visit even if object
// turns out to be invalid.
func Members(object []byte, visit func(key string, value []byte, at int)) bool {
	s := scan(object)
	i, ok := s.enterObject(0)
	for ok {
		key, lo := string(s.key()), i
		i = s.value(i)
		if s.err == nil {
			visit(key, object[lo:i:i], lo)
		}
		i, ok = s.nextMember(i)
	}
	s.expectEnd(i)
	return s.err == nil && !s.badUTF8
}

// IsObject reports whether a JSON value is an object. It reads only the first character, so the
// value must be valid JSON.
func IsObject(value []byte) bool {
	value = bytes.TrimLeft(value, " \t\r\n")
	return len(value) > 0 && value[0] == '{'
}

// IsNull reports whether a value is absent or null.
func IsNull(value []byte) bool {
	return len(value) == 0 || string(value) == "null"
}

// A Burst is a group of messages that were available to a reader at the same time. Messages that
// result from a burst are sent together when the reader has processed the last message of the
// burst; see [Message.Burst]. All methods may be called concurrently. A nil Burst counts as ended.
type Burst struct {
	mu        sync.Mutex
	ended     bool
	callbacks []func()
}

// OnEnd registers f, which will be called when the burst ends, and returns true. If the burst has
// already ended, OnEnd returns false and does not register f.
func (b *Burst) OnEnd(f func()) bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.callbacks = append(b.callbacks, f)
	}
	return !b.ended
}

// End ends the burst and calls the registered functions.
func (b *Burst) End() {
	if b == nil {
		return
	}
	b.mu.Lock()
	then := b.callbacks
	b.ended, b.callbacks = true, nil
	b.mu.Unlock()
	for _, f := range then {
		f()
	}
}

// WithBurst returns m as part of a burst.
func (m Message) WithBurst(b *Burst) Message {
	m.burst = b
	return m
}

// Burst returns the burst that m belongs to, nil if there is none. [Message.Splice] preserves the
// burst, unless it replaces params, _meta or a result. The sender of m may delay m until the burst
// has ended.
func (m Message) Burst() *Burst { return m.burst }
