package wire

import "bytes"

// An Edit replaces a part of a message by JSON text.
type Edit struct {
	Part Part
	Text []byte
}

// Splice returns the message with some parts replaced. All other bytes stay. Edits of absent parts
// are ignored. If edits overlap, only the outer edit applies. Splice does not change m, and the new
// message does not share memory with m. It panics if new params, a new _meta or a new result would
// make the message invalid.
func (m Message) Splice(edits ...Edit) (to Message) {
	// Both are on the stack for up to three edits.
	pieces, ends := make([][]byte, 0, 7), make([]editEnd, 0, 3)
	done, delta := int32(0), int32(0)
	deep := false
	to.multiline = m.multiline
	for e := m.firstEdit(edits, done); e != nil; e = m.firstEdit(edits, done) {
		at := m.parts[e.Part]
		pieces = append(pieces, m.raw[done:at.lo], e.Text)
		delta += int32(len(e.Text)) - (at.hi - at.lo)
		ends = append(ends, editEnd{at.hi, delta})
		if e.Part == PartParams || e.Part == PartMeta || e.Part == PartResult {
			deep = true // the new text contains other parts, so the result is parsed below
		} else {
			to.multiline = to.multiline || hasLineBreak(e.Text)
		}
		done = at.hi
	}
	// Unlike make, Join does not zero the memory it allocates.
	to.raw = bytes.Join(append(pieces, m.raw[done:]), nil)
	if deep {
		return mustParse(to.raw)
	}
	// The fields are set one by one, because copying a Message whose parts were just written stalls
	// the processor.
	to.kind, to.hasUnknownMembers, to.burst = m.kind, m.hasUnknownMembers, m.burst
	moveParts(&to.parts, &m.parts, ends)
	return to
}

// An editEnd is the end of a replaced part, and the number of bytes by which the offsets from this
// end to the end of the next replaced part move.
type editEnd struct{ at, delta int32 }

// moveParts sets to to the offsets from, adapted to replaced parts, whose ends are in ascending
// order.
func moveParts(to, from *[numParts]span, ends []editEnd) {
	for p := range from {
		s := from[p]
		lo, hi := s.lo, s.hi
		for _, e := range ends {
			if s.lo >= e.at {
				lo = s.lo + e.delta
			}
			if s.hi >= e.at {
				hi = s.hi + e.delta
			}
		}
		to[p] = span{lo, hi}
	}
}

// hasLineBreak reports whether JSON text contains a line break.
func hasLineBreak(text []byte) bool {
	return bytes.IndexByte(text, '\n') >= 0 || bytes.IndexByte(text, '\r') >= 0
}

// firstEdit returns the edit of the first part at or after the offset done, nil if there is none.
func (m *Message) firstEdit(edits []Edit, done int32) *Edit {
	var found *Edit
	for i := range edits {
		at := m.parts[edits[i].Part]
		if at.hi > at.lo && at.lo >= done && (found == nil || at.lo < m.parts[found.Part].lo) {
			found = &edits[i]
		}
	}
	return found
}

// NewRequest returns a request; params may be nil.
func NewRequest(id ID, method string, params []byte) Message {
	return newCall(id, method, params)
}

// NewNotification returns a notification; params may be nil.
func NewNotification(method string, params []byte) Message {
	return newCall("", method, params)
}

func newCall(id ID, method string, params []byte) Message {
	b := append(make([]byte, 0, 64+len(method)+len(params)), `{"jsonrpc":"2.0"`...)
	if id != "" {
		b = append(append(b, `,"id":`...), id...)
	}
	b = append(append(b, `,"method":`...), Quote(method)...)
	if params != nil {
		b = append(append(b, `,"params":`...), params...)
	}
	return mustParse(append(b, '}'))
}

// NewResult returns a response with this result, which must be JSON.
func NewResult(id ID, result []byte) Message {
	return mustParse(encodeResponse(id, "result", result))
}

// NewErrorResponse returns a response with this error. The id "" means that the id of the request
// could not be read, and becomes null (JSON-RPC 2.0 §5).
func NewErrorResponse(id ID, err *Error) Message {
	if id == "" {
		id = "null"
	}
	return mustParse(encodeResponse(id, "error", Encode(err)))
}

func encodeResponse(id ID, member string, value []byte) []byte {
	b := append(make([]byte, 0, 48+len(id)+len(value)), `{"jsonrpc":"2.0","id":`...)
	b = append(append(append(b, id...), `,"`...), member...)
	return append(append(append(b, `":`...), value...), '}')
}

// NewBatch returns the batch of these messages.
func NewBatch(all []Message) Message {
	size := 2
	for _, m := range all {
		size += len(m.raw) + 1
	}
	// The batch is not parsed, because its messages are nested one level deeper, which may exceed
	// maxDepth.
	batch := Message{raw: append(make([]byte, 0, size), '['), kind: Batch}
	for i, m := range all {
		if i > 0 {
			batch.raw = append(batch.raw, ',')
		}
		batch.raw = append(batch.raw, m.raw...)
		batch.multiline = batch.multiline || m.multiline
	}
	batch.raw = append(batch.raw, ']')
	return batch
}

// mustParse parses text that the gateway itself has written. It panics if the text is not a
// message.
func mustParse(text []byte) Message {
	m, err := Parse(text)
	if err != nil {
		panic("wire: the gateway wrote what it cannot read: " + err.Error())
	}
	return m
}
