package wire

// An Edit puts JSON text in the place of one part of a message.
type Edit struct {
	Part Part
	Text []byte
}

// Splice returns the message with some parts exchanged, and everything else
// byte for byte as it was. A part that the message does not have is left out.
// The receiver stays as it is; the new message has a text of its own.
func (m Message) Splice(edits ...Edit) Message {
	size := len(m.raw)
	for _, e := range edits {
		size += len(e.Text)
	}
	// In the order in which they stand; there are three at most.
	for i := 1; i < len(edits); i++ {
		for j := i; j > 0 && m.parts[edits[j].Part].lo < m.parts[edits[j-1].Part].lo; j-- {
			edits[j], edits[j-1] = edits[j-1], edits[j]
		}
	}
	to := m
	to.raw = make([]byte, 0, size)
	done := int32(0)
	for _, e := range edits {
		at := m.parts[e.Part]
		if at.hi == at.lo {
			continue
		}
		to.raw = append(append(to.raw, m.raw[done:at.lo]...), e.Text...)
		done = at.hi
		to.shift(at, int32(len(e.Text))-(at.hi-at.lo), m.parts)
	}
	to.raw = append(to.raw, m.raw[done:]...)
	return to
}

// shift moves the parts that stand behind the span at, or hold it, by delta.
// was holds the places before any edit: edits do not overlap, so that these
// tell which parts an edit moves.
func (m *Message) shift(at span, delta int32, was [numParts]span) {
	for p := range m.parts {
		switch {
		case was[p].hi == was[p].lo:
		case was[p].lo >= at.hi:
			m.parts[p].lo += delta
			m.parts[p].hi += delta
		case was[p].hi >= at.hi:
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

// NewFailure returns the response that carries err. An id that could not be
// read, "", is answered as null (JSON-RPC 2.0 §5).
func NewFailure(id ID, err *Error) Message {
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
	b := []byte{'['}
	for i, m := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, m.raw...)
	}
	return own(append(b, ']'))
}

// own parses what the gateway itself has written.
func own(text []byte) Message {
	m, err := Parse(text)
	if err != nil {
		panic("wire: the gateway wrote what it cannot read: " + err.Error())
	}
	return m
}
