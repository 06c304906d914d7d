package wire

// A Skimmer finds the id of a message that is too large to be kept in memory. Write receives the
// text in pieces, and the Skimmer keeps only the id. It does not check that the text is JSON, but
// ID returns only valid ids.
type Skimmer struct {
	depth          int
	inString       bool // inside a string
	afterBackslash bool // after a backslash in a string
	pendingSpace   bool // white space precedes the next token
	afterColon     bool // after the colon of a member
	done           bool // the rest of the text is irrelevant
	key            []byte
	value          []byte
	ids            int
	id             ID
}

// Write processes the next piece of the text.
func (s *Skimmer) Write(piece []byte) {
	for len(piece) > 0 && !s.done {
		n := 1
		if s.inString && !s.afterBackslash {
			n, _ = skipPlain(piece, 0)
			n = max(n, 1)
		}
		if n > 1 {
			s.appendText(piece[:n]...)
		} else {
			s.step(piece[0])
		}
		piece = piece[n:]
	}
}

// ID returns the id, "" if it is absent, invalid or ambiguous.
func (s *Skimmer) ID() ID {
	if s.ids != 1 {
		return ""
	}
	return s.id
}

func (s *Skimmer) step(c byte) {
	if s.inString {
		s.appendText(c)
		switch {
		case s.afterBackslash:
			s.afterBackslash = false
		case c == '\\':
			s.afterBackslash = true
		case c == '"':
			s.inString = false
		}
		return
	}
	switch c {
	case ' ', '\t', '\r', '\n':
		s.pendingSpace = true
	case '"':
		s.inString = true
		s.appendText(c)
	case '{', '[':
		s.done = s.depth == 0 && c == '[' // a batch has no id
		s.appendText(c)
		s.depth++
	case '}', ']':
		if s.depth <= 1 {
			s.endMember()
			s.done = true
		}
		s.depth--
	case ':':
		if s.depth == 1 && !s.afterColon {
			s.afterColon, s.pendingSpace = true, false
			return
		}
		s.appendText(c)
	case ',':
		if s.depth == 1 {
			s.endMember()
		}
	default:
		s.appendText(c)
	}
}

// appendText appends text to the current key or value of the message object. It keeps at most one
// byte more than an id may have, and ignores text at any other level of nesting.
func (s *Skimmer) appendText(text ...byte) {
	if s.depth != 1 {
		return
	}
	at := &s.key
	if s.afterColon {
		at = &s.value
	}
	if s.pendingSpace && len(*at) > 0 && len(*at) <= maxID {
		*at = append(*at, ' ')
	}
	s.pendingSpace = false
	room := max(maxID+1-len(*at), 0)
	*at = append(*at, text[:min(len(text), room)]...)
}

// endMember processes the end of a member of the message object.
func (s *Skimmer) endMember() {
	if Unquote(s.key) == "id" {
		s.ids++
		s.id = ""
		v := scan(s.value)
		v.expectEnd(v.value(0))
		if v.err == nil && !v.badUTF8 && isID(s.value) {
			s.id = ID(s.value)
		}
	}
	s.key, s.value, s.pendingSpace, s.afterColon = s.key[:0], s.value[:0], false, false
}
