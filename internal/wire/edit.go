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
	to.setText(pieces)
	// The fields are set one by one, because copying a Message whose parts were just written stalls
	// the processor.
	to.kind, to.hasUnknownMembers, to.isVersion2 = m.kind, m.hasUnknownMembers, m.isVersion2
	to.hasTask, to.hasStructured = m.hasTask, m.hasStructured
	to.method, to.burst = m.method, m.burst
	moveParts(&to.parts, &m.parts, ends)
	return to
}

// setText sets the text to the concatenation of pieces. It shares a long first or last piece.
func (m *Message) setText(pieces [][]byte) {
	// Unlike make, Join does not zero the memory it allocates.
	switch last := len(pieces) - 1; {
	case len(pieces[last]) >= max(minShared, len(pieces[0])):
		rest := pieces[last]
		m.raw, m.rest = bytes.Join(pieces[:last], nil), &rest
	case len(pieces[0]) >= minShared:
		rest := bytes.Join(pieces[1:], nil)
		m.raw, m.rest = pieces[0], &rest
	default:
		m.raw, m.rest = bytes.Join(pieces, nil), nil
	}
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

// SetMeta returns the request m with members of params._meta. An existing member gets the new value
// at its place, other members come first in _meta, and all other bytes stay; if a key occurs twice,
// the white space between the members of _meta is not preserved. The values must not contain line
// breaks. The keys need no escapes, and are not among those that Parse reads. SetMeta does not
// parse the message again. It returns m itself if params, or a _meta that is not null, is not an
// object.
func (m Message) SetMeta(put ...Member) Message {
	m.join()
	params, meta := m.parts[PartParams], m.parts[PartMeta]
	text := m.raw[meta.lo:meta.hi]
	switch {
	case m.kind != Request || !IsObject(m.raw[params.lo:params.hi]):
		return m
	case meta == (span{}):
		at := params.lo + 1
		const key = `"_meta":`
		piece := append(make([]byte, 0, len(key)+extraCap(put)+1), key...)
		piece = append(appendMembers(append(piece, '{'), put), '}')
		length := int32(len(piece))
		if _, c := m.peekAt(at); c != '}' {
			piece = append(piece, ',')
		}
		to := m.insert(textEdit{at, at, piece})
		to.parts[PartMeta] = span{at + int32(len(key)), at + length}
		return to
	case IsNull(text):
		return m.Splice(Edit{PartMeta, EditObject(nil, nil, put...)})
	case !IsObject(text):
		return m
	}
	// on the stack for up to four edits of text
	all, missing := make([]textEdit, 0, 4), append(make([]Member, 0, 4), put...)
	twice := false
	s := scan(text)
	i, ok := s.enterObject(0)
	for ok {
		key := s.key()
		n := slices.IndexFunc(missing, func(p Member) bool { return p.Key == string(key) })
		lo := int32(i)
		i = s.value(i)
		switch {
		case n >= 0:
			all = append(all, textEdit{meta.lo + lo, meta.lo + int32(i), missing[n].Text})
			missing = slices.Delete(missing, n, n+1)
		case hasKey(put, string(key)):
			twice = true
		}
		i, ok = s.nextMember(i)
	}
	if twice {
		return m.Splice(Edit{PartMeta, EditObject(text, nil, put...)})
	}
	if len(missing) > 0 {
		at := meta.lo + 1
		piece := appendMembers(make([]byte, 0, extraCap(missing)), missing)
		if _, c := m.peekAt(at); c != '}' {
			piece = append(piece, ',')
		}
		all = slices.Insert(all, 0, textEdit{at, at, piece})
	}
	return m.insert(all...)
}

// appendMembers appends the members of an object. Their keys need no escapes.
func appendMembers(b []byte, all []Member) []byte {
	for i, p := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), p.Key...), '"', ':')
		b = append(b, p.Text...)
	}
	return b
}

// peekAt returns the first character at or after the offset i that is no white space.
func (m *Message) peekAt(i int32) (at int, c byte) {
	s := scanner{b: m.raw}
	return s.skipSpace(int(i))
}

// A textEdit replaces the bytes from lo to hi of a message.
type textEdit struct {
	lo, hi int32
	text   []byte
}

// insert returns m, whose text is in one piece, with edits of text, which are in ascending order
// and contain no recorded part. Text without line breaks is replaced by such text.
func (m *Message) insert(all ...textEdit) (to Message) {
	pieces, ends := make([][]byte, 0, 9), make([]editEnd, 0, 4)
	done, delta := int32(0), int32(0)
	for _, r := range all {
		pieces = append(pieces, m.raw[done:r.lo], r.text)
		delta += int32(len(r.text)) - (r.hi - r.lo)
		ends = append(ends, editEnd{r.hi, delta})
		done = r.hi
	}
	to = *m
	to.setText(append(pieces, m.raw[done:]))
	moveParts(&to.parts, &m.parts, ends)
	return to
}
