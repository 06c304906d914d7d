package wire

import "bytes"

// Lookup returns the value at a path of member names in a JSON object, and its offset; nil if
// there is none. A member that occurs twice is ambiguous and counts as absent.
func Lookup(object []byte, path ...string) (value []byte, at int) {
	value, at, _ = lookupCounted(object, path)
	return value, at
}

// lookupCounted is like Lookup and also returns the number of occurrences of the last member. If
// another member of path does not occur exactly once, it returns the number for that member.
func lookupCounted(object []byte, path []string) (value []byte, at, times int) {
	if len(path) == 0 {
		return object, 0, 1
	}
	s := scan(object)
	i, ok := s.enterObject(0)
	for ok { // this loop is like Members, without an allocation per key
		found, lo := string(s.key()) == path[0], i
		if i = s.value(i); found && s.err == nil {
			value, at = object[lo:i:i], lo
			times++
		}
		i, ok = s.nextMember(i)
	}
	if times != 1 {
		return nil, 0, times
	}
	value, inner, times := lookupCounted(value, path[1:])
	return value, at + inner, times
}

// SameSlice reports whether a and b are the same slice: an edit that changes nothing returns its
// argument.
func SameSlice(a, b []byte) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// A Member is a member of a JSON object: its key, and its value as JSON text.
type Member struct {
	Key  string
	Text []byte
}

// EditObject returns object without the members for which drop returns true (nil = none), and with
// the members in put prepended. Existing members with the keys of put are also removed. Other
// members keep their bytes and order; white space between members is not preserved. A value that is
// not an object is treated as {}.
func EditObject(object []byte, drop func(key string) bool, put ...Member) []byte {
	return appendEdited(make([]byte, 0, len(object)+extraCap(put)), object, drop, put,
		func(string, span) {})
}

// extraCap returns the capacity that an object needs for additional members.
func extraCap(put []Member) int {
	size := len("{}")
	for _, m := range put {
		size += len(m.Key) + len(m.Text) + 8
	}
	return size
}

// appendEdited appends the result of EditObject to b. It calls record with the key of each member
// and the span of its value.
func appendEdited(b, object []byte, drop func(key string) bool, put []Member,
	record func(key string, value span)) []byte {
	b = append(b, '{')
	empty := len(b)
	for _, m := range put {
		b = append(append(appendComma(b, empty), Quote(m.Key)...), ':')
		b = append(b, m.Text...)
		record(m.Key, span{int32(len(b) - len(m.Text)), int32(len(b))})
	}
	s := scan(object)
	i, ok := s.enterObject(0)
	for ok {
		key, lo, value := string(s.key()), int(s.keyAt.lo), i
		i = s.value(i)
		if s.err == nil && (drop == nil || !drop(key)) && !hasKey(put, key) {
			b = append(appendComma(b, empty), object[lo:i]...)
			record(key, span{int32(len(b) - (i - value)), int32(len(b))})
		}
		i, ok = s.nextMember(i)
	}
	return append(b, '}')
}

// WithoutNulls removes the members with the value null from a JSON object and its nested objects,
// except for objects in arrays. Other members keep their bytes and order; white space between
// members is not preserved. It returns object itself if object does not contain the text "null".
func WithoutNulls(object []byte) []byte {
	if !bytes.Contains(object, []byte("null")) {
		return object
	}
	s := scan(object)
	b, _ := s.appendWithoutNulls(make([]byte, 0, len(object)), 0)
	return b
}

// appendWithoutNulls appends the object at i to b, without the members with the value null. It
// returns b and the end of the object. Each byte is scanned once, whatever the nesting is.
func (s *scanner) appendWithoutNulls(b []byte, i int) (to []byte, end int) {
	b = append(b, '{')
	empty := len(b)
	i, ok := s.enterObject(i)
	for ok {
		lo, value, before := int(s.keyAt.lo), i, len(b)
		b = append(appendComma(b, empty), s.b[lo:value]...)
		if value < len(s.b) && s.b[value] == '{' {
			b, i = s.appendWithoutNulls(b, value)
		} else {
			i = s.value(value)
			b = append(b, s.b[value:i]...)
		}
		if s.err != nil || IsNull(s.b[value:i]) {
			b = b[:before]
		}
		i, ok = s.nextMember(i)
	}
	return append(b, '}'), i
}

// appendComma appends a comma, unless b ends at the offset first, where the first member begins.
func appendComma(b []byte, first int) []byte {
	if len(b) > first {
		return append(b, ',')
	}
	return b
}

func hasKey(put []Member, key string) bool {
	for _, m := range put {
		if m.Key == key {
			return true
		}
	}
	return false
}
