package wire

// A Skimmer finds the id of a message that is too large to keep: its text is
// written to it piece by piece, and it remembers nothing but the id. It does
// not check that the text is JSON.
type Skimmer struct {
	depth  int
	string bool // in a string
	escape bool // behind a backslash in a string
	key    []byte
	value  []byte
	place  place
	id     ID
}

// place says where in the outermost object the Skimmer is.
type place uint8

const (
	inKey   place = iota // before or in a member's key
	inValue              // behind its colon
)

// Write takes the next piece of the text.
func (s *Skimmer) Write(piece []byte) {
	for _, c := range piece {
		s.step(c)
	}
}

// ID returns the id, "" if none was found.
func (s *Skimmer) ID() ID { return s.id }

func (s *Skimmer) step(c byte) {
	if s.string {
		s.keep(c)
		switch {
		case s.escape:
			s.escape = false
		case c == '\\':
			s.escape = true
		case c == '"':
			s.string = false
		}
		return
	}
	switch c {
	case ' ', '\t', '\r', '\n':
	case '"':
		s.string = true
		s.keep(c)
	case '{', '[':
		s.depth++
		if s.depth > 1 {
			s.value = append(s.value[:0], c) // no id begins like this
		}
	case '}', ']':
		if s.depth == 1 {
			s.member()
		}
		s.depth--
	case ':':
		if s.depth == 1 {
			s.place = inValue
		}
	case ',':
		if s.depth == 1 {
			s.member()
		}
	default:
		s.keep(c)
	}
}

// keep adds c to the key or the value at hand, unless that is longer than an id
// may be or lies deeper than the message's own members.
func (s *Skimmer) keep(c byte) {
	if s.depth != 1 {
		return
	}
	at := &s.key
	if s.place == inValue {
		at = &s.value
	}
	if len(*at) <= maxID {
		*at = append(*at, c)
	}
}

// member ends the member at hand.
func (s *Skimmer) member() {
	if string(s.key) == `"id"` && len(s.value) > 0 && len(s.value) <= maxID && isScalarID(s.value) {
		s.id = ID(s.value)
	}
	s.key, s.value, s.place = s.key[:0], s.value[:0], inKey
}
