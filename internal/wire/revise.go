package wire

import "bytes"

// A Member is a member of a JSON object: its key, and its value as JSON text.
type Member struct {
	Key  string
	Text []byte
}

// EditObject returns a JSON object without the members of which drop says so (nil =
// none), and with those of put in front, in whose place it has no others. What is
// kept keeps its bytes and its order, but not the white space between members.
// What is no object is taken for an empty one.
func EditObject(object []byte, drop func(key string) bool, put ...Member) []byte {
	return revise(make([]byte, 0, len(object)+room(put)), object, drop, put, func(string, span) {})
}

// EditResult returns a response with its result as EditObject leaves it, in one walk over that: the
// new message is not parsed. What has no result is returned as it is.
func (m Message) EditResult(drop func(key string) bool, put ...Member) Message {
	at := m.parts[PartResult]
	if at == (span{}) {
		return m
	}
	to := m
	to.raw = append(make([]byte, 0, len(m.raw)+room(put)), m.raw[:at.lo]...)
	isError := span{}
	to.raw = revise(to.raw, m.part(PartResult), drop, put, func(key string, value span) {
		if _, known := inResult.find([]byte(key)); known {
			isError = value
		}
	})
	to.shift(at, int32(len(to.raw))-at.hi, &m)
	to.parts[partIsError] = isError
	to.raw = append(to.raw, m.raw[at.hi:]...)
	for _, p := range put {
		to.multiline = to.multiline || breaks(p.Text)
	}
	return to
}

// room is what an object may need beside what it has.
func room(put []Member) int {
	size := len("{}")
	for _, m := range put {
		size += len(m.Key) + len(m.Text) + 8
	}
	return size
}

// revise appends what EditObject returns to b, and calls lies with each member: where its value is there.
func revise(b, object []byte, drop func(key string) bool, put []Member, lies func(key string, value span)) []byte {
	b = append(b, '{')
	empty := len(b)
	for _, m := range put {
		b = append(append(separate(b, empty), Quote(m.Key)...), ':')
		b = append(b, m.Text...)
		lies(m.Key, span{int32(len(b) - len(m.Text)), int32(len(b))})
	}
	s := scan(object)
	i, ok := s.enter(0)
	for ok {
		key, lo, value := string(s.key()), int(s.keyAt.lo), i
		i = s.value(i)
		if s.err == nil && (drop == nil || !drop(key)) && !has(put, key) {
			b = append(separate(b, empty), object[lo:i]...)
			lies(key, span{int32(len(b) - (i - value)), int32(len(b))})
		}
		i, ok = s.next(i)
	}
	return append(b, '}')
}

// WithoutNulls returns a JSON object without the members whose value is null, in it and in the objects
// that are its members. The other members keep their bytes and their order. Arrays are not changed. It
// returns object itself if nothing in it can be null.
func WithoutNulls(object []byte) []byte {
	if !bytes.Contains(object, []byte("null")) {
		return object
	}
	return appendWithoutNulls(make([]byte, 0, len(object)), object)
}

func appendWithoutNulls(b, object []byte) []byte {
	b = append(b, '{')
	empty := len(b)
	s := scan(object)
	i, ok := s.enter(0)
	for ok {
		lo, value := int(s.keyAt.lo), i
		i = s.value(i)
		switch text := object[value:i]; {
		case s.err != nil || IsNull(text):
		case text[0] == '{':
			b = append(separate(b, empty), object[lo:value]...)
			b = appendWithoutNulls(b, text)
		default:
			b = append(separate(b, empty), object[lo:i]...)
		}
		i, ok = s.next(i)
	}
	return append(b, '}')
}

// separate appends what stands between two members, unless b ends where the first one begins.
func separate(b []byte, first int) []byte {
	if len(b) > first {
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
