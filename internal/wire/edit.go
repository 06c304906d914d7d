package wire

import (
	"bytes"
	"slices"
)

// An Edit replaces a part of a message by JSON text.
type Edit struct {
	Part Part
	Text []byte
}

// minShared is the length, in bytes, from which [Message.Splice] shares an unchanged beginning or
// end of a text instead of copying it.
const minShared = 32 << 10

// Splice returns the message with some parts replaced. All other bytes stay. Edits of absent parts
// are ignored. If edits overlap, only the outer edit applies. Splice does not change m. The new
// message shares memory with m if m is long; its text is then in two pieces. If a new result would
// make a response longer than maxComposedText, Splice returns an internal error instead. Splice
// panics if new params or a new _meta are ambiguous (see [ParseRequest]).
func (m Message) Splice(edits ...Edit) (to Message) {
	m.join()
	// Both are on the stack for up to three edits.
	pieces, ends := make([][]byte, 0, 7), make([]editEnd, 0, 3)
	done, delta := int32(0), int32(0)
	deep := false
	to.multiline = m.multiline
	for e := m.firstEdit(edits, done); e != nil; e = m.firstEdit(edits, done) {
		at := m.parts[e.Part]
		if e.Part == PartMethod {
			m.method = 0
		}
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
	pieces = append(pieces, m.raw[done:])
	if deep {
		length := 0
		for _, piece := range pieces {
			length += len(piece)
		}
		if m.kind == Response && length > maxComposedText {
			return NewErrorResponse(m.ID(), errTooLong)
		}
		return mustParse(bytes.Join(pieces, nil))
	}
	// Unlike make, Join does not zero the memory it allocates.
	switch last := len(pieces) - 1; {
	case len(pieces[last]) >= max(minShared, len(pieces[0])):
		rest := pieces[last]
		to.raw, to.rest = bytes.Join(pieces[:last], nil), &rest
	case len(pieces[0]) >= minShared:
		rest := bytes.Join(pieces[1:], nil)
		to.raw, to.rest = pieces[0], &rest
	default:
		to.raw = bytes.Join(pieces, nil)
	}
	// The fields are set one by one, because copying a Message whose parts were just written stalls
	// the processor.
	to.kind, to.hasUnknownMembers, to.isVersion2 = m.kind, m.hasUnknownMembers, m.isVersion2
	to.hasTask, to.hasStructured = m.hasTask, m.hasStructured
	to.method, to.burst = m.method, m.burst
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

// Set replaces the value at path in the message by text, which must be JSON. A missing member is
// added if its parent object exists. Set parses the whole result again, so it is meant for rare
// changes of parts that Parse does not record. If a member of path occurs twice, the parent object
// is missing, or the result is not a valid message, Set returns m and false.
func (m Message) Set(text []byte, path ...string) (changed Message, ok bool) {
	m.join()
	value, at, times := lookupCounted(m.raw, path)
	end := at + len(value)
	if times == 0 {
		parent, offset, _ := lookupCounted(m.raw, path[:len(path)-1])
		if !IsObject(parent) {
			return m, false
		}
		empty := true
		Members(parent, func(string, []byte, int) { empty = false })
		text = slices.Concat(Quote(path[len(path)-1]), []byte(":"), text)
		if !empty {
			text = append(text, ',')
		}
		at, end = offset+1, offset+1
	}
	if times > 1 {
		return m, false
	}
	if changed.parse(slices.Concat(m.raw[:at], text, m.raw[end:]), composed) != nil {
		return m, false
	}
	return changed, true
}

// EditResult applies EditObject to the result of a response in one pass, without parsing the new
// message. It returns m itself if m has no result.
func (m Message) EditResult(drop func(key string) bool, put ...Member) Message {
	at := m.parts[PartResult]
	if at == (span{}) {
		return m
	}
	m.join()
	to := m
	to.hasStructured = false
	to.raw = append(make([]byte, 0, len(m.raw)+extraCap(put)), m.raw[:at.lo]...)
	isError := span{}
	to.raw = appendEdited(to.raw, m.part(PartResult), drop, put, func(key string, value span) {
		switch key {
		case "isError":
			isError = value
		case "structuredContent":
			to.hasStructured = true
		}
	})
	moveParts(&to.parts, &m.parts, []editEnd{{at.hi, int32(len(to.raw)) - at.hi}})
	to.parts[partIsError] = isError
	to.raw = append(to.raw, m.raw[at.hi:]...)
	for _, p := range put {
		to.multiline = to.multiline || hasLineBreak(p.Text)
	}
	return to
}
