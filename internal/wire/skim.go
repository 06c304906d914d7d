package wire

// A Skimmer finds the id of a message that is too large to keep: its text is
// written to it piece by piece, and it remembers nothing but the id. It does
// not check that the text is JSON, but what it returns as the id always is.
type Skimmer struct {
	depth  int
	string bool // in a string
	escape bool // behind a backslash in a string
	space  bool // white space stands before what comes next
	behind bool // the colon of a member
	done   bool // nothing that follows matters
	key    []byte
	value  []byte
	ids    int
	id     ID
}

// Write takes the next piece of the text.
func (s *Skimmer) Write(piece []byte) {
	for len(piece) > 0 && !s.done {
		n := 1
		if s.string && !s.escape {
			n, _ = plain(piece, 0)
			n = max(n, 1)
		}
		if n > 1 {
			s.keep(piece[:n]...)
		} else {
			s.step(piece[0])
		}
		piece = piece[n:]
	}
}

// ID returns the id, "" if there is none, or none that could be told from others.
func (s *Skimmer) ID() ID {
	if s.ids != 1 {
		return ""
	}
	return s.id
}

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
		s.space = true
	case '"':
		s.string = true
		s.keep(c)
	case '{', '[':
		s.done = s.depth == 0 && c == '[' // a batch has no id
		s.keep(c)
		s.depth++
	case '}', ']':
		if s.depth <= 1 {
			s.member()
			s.done = true
		}
		s.depth--
	case ':':
		if s.depth == 1 && !s.behind {
			s.behind, s.space = true, false
			return
		}
		s.keep(c)
	case ',':
		if s.depth == 1 {
			s.member()
		}
	default:
		s.keep(c)
	}
}

// keep adds to the key or the value at hand, unless that is longer than an id
// may be or lies deeper than the message's own members.
func (s *Skimmer) keep(text ...byte) {
	if s.depth != 1 {
		return
	}
	at := &s.key
	if s.behind {
		at = &s.value
	}
	if s.space && len(*at) > 0 && len(*at) <= maxID {
		*at = append(*at, ' ')
	}
	s.space = false
	room := max(maxID+1-len(*at), 0)
	*at = append(*at, text[:min(len(text), room)]...)
}

// member ends the member at hand.
func (s *Skimmer) member() {
	if Unquote(s.key) == "id" {
		s.ids++
		s.id = ""
		v := scan(s.value)
		v.end(v.value(0))
		if v.err == nil && !v.badUTF8 && isID(s.value) {
			s.id = ID(s.value)
		}
	}
	s.key, s.value, s.space, s.behind = s.key[:0], s.value[:0], false, false
}
