package wire

// A Member is a member of a JSON object: its key, and its value as JSON text.
type Member struct {
	Key  string
	Text []byte
}

// Revise returns a JSON object without the members of which drop says so (nil =
// none), and with those of put in front, in whose place it has no others. What is
// kept keeps its bytes and its order, but not the white space between members.
// What is no object is taken for an empty one.
func Revise(object []byte, drop func(key string) bool, put ...Member) []byte {
	size := len(object) + 2
	for _, m := range put {
		size += len(m.Key) + len(m.Text) + 8
	}
	b := append(make([]byte, 0, size), '{')
	for _, m := range put {
		b = append(append(append(separate(b), Quote(m.Key)...), ':'), m.Text...)
	}
	s := scan(object)
	i, ok := s.enter(0)
	for ok {
		key := string(s.key())
		lo := s.keyAt.lo
		i = s.value(i)
		if s.err == nil && (drop == nil || !drop(key)) && !has(put, key) {
			b = append(separate(b), object[lo:i]...)
		}
		i, ok = s.next(i)
	}
	return append(b, '}')
}

func separate(b []byte) []byte {
	if len(b) > 1 {
		return append(b, ',')
	}
	return b
}

func has(put []Member, key string) bool {
	for _, m := range put {
		if m.Key == key {
			return true
		}
	}
	return false
}
