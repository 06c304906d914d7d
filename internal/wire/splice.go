package wire

import "bytes"

// An Edit puts JSON text in the place of one part of a message.
type Edit struct {
	Part Part
	Text []byte
}

// Splice returns the message with some parts exchanged, and everything else
// byte for byte as it was. A part that the message does not have is left out; of
// edits that overlap the outer one counts. The receiver stays as it is; the new
// message has a text of its own.
func (m Message) Splice(edits ...Edit) Message {
	to := m
	deep := false
	pieces := make([][]byte, 0, 7) // on the stack, for as many as three edits
	done := int32(0)
	for e := m.first(edits, done); e != nil; e = m.first(edits, done) {
		at := m.parts[e.Part]
		pieces = append(pieces, m.raw[done:at.lo], e.Text)
		to.shift(at, int32(len(e.Text))-(at.hi-at.lo), &m)
		if e.Part == PartParams || e.Part == PartMeta || e.Part == PartResult {
			deep = true // the new text has parts of its own, and is read for them below
		} else {
			to.multiline = to.multiline || breaks(e.Text)
		}
		done = at.hi
	}
	// Join does not clear its memory before it fills it; make would.
	to.raw = bytes.Join(append(pieces, m.raw[done:]), nil)
	if deep {
		return own(to.raw)
	}
	return to
}

// breaks reports whether a line break stands in JSON text.
func breaks(text []byte) bool {
	return bytes.IndexByte(text, '\n') >= 0 || bytes.IndexByte(text, '\r') >= 0
}

// first returns the edit whose part stands first at or behind the offset done,
// nil if there is none.
func (m *Message) first(edits []Edit, done int32) *Edit {
	var found *Edit
	for i := range edits {
		at := m.parts[edits[i].Part]
		if at.hi > at.lo && at.lo >= done && (found == nil || at.lo < m.parts[found.Part].lo) {
			found = &edits[i]
		}
	}
	return found
}

// shift moves the parts that stand behind the span at, or hold it, by delta. was
// is the message before any edit: edits do not overlap, so that its places tell
// which parts an edit moves.
func (m *Message) shift(at span, delta int32, was *Message) {
	for p, place := range was.parts {
		switch {
		case place.hi == place.lo:
		case place.lo >= at.hi:
			m.parts[p].lo += delta
			m.parts[p].hi += delta
		case place.hi >= at.hi:
			m.parts[p].hi += delta
		}
	}
}

// NewRequest returns a request; params may be nil.
func NewRequest(id ID, method string, params []byte) Message {
	return call(id, method, params)
}

// NewNotification returns a notification; params may be nil.
func NewNotification(method string, params []byte) Message {
	return call("", method, params)
}

func call(id ID, method string, params []byte) Message {
	b := append(make([]byte, 0, 64+len(method)+len(params)), `{"jsonrpc":"2.0"`...)
	if id != "" {
		b = append(append(b, `,"id":`...), id...)
	}
	b = append(append(b, `,"method":`...), Quote(method)...)
	if params != nil {
		b = append(append(b, `,"params":`...), params...)
	}
	return own(append(b, '}'))
}

// NewResult returns the response that carries result, which must be JSON.
func NewResult(id ID, result []byte) Message {
	return own(response(id, "result", result))
}

// NewErrorResponse returns the response that carries err. An id that could not be
// read, "", is answered as null (JSON-RPC 2.0 §5).
func NewErrorResponse(id ID, err *Error) Message {
	if id == "" {
		id = "null"
	}
	return own(response(id, "error", Encode(err)))
}

func response(id ID, member string, value []byte) []byte {
	b := append(make([]byte, 0, 48+len(id)+len(value)), `{"jsonrpc":"2.0","id":`...)
	b = append(append(append(b, id...), `,"`...), member...)
	return append(append(append(b, `":`...), value...), '}')
}

// NewBatch returns the array of the messages given.
func NewBatch(all []Message) Message {
	size := 2
	for _, m := range all {
		size += len(m.raw) + 1
	}
	// Not read again: one level deeper, a message may be deeper than Parse allows.
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

// own parses what the gateway itself has written.
func own(text []byte) Message {
	m, err := Parse(text)
	if err != nil {
		panic("wire: the gateway wrote what it cannot read: " + err.Error())
	}
	return m
}
