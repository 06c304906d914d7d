package wire

import "slices"

// Lookup returns the value at a path of member names in a JSON object, and its offset; nil if
// there is none. A member that occurs twice is ambiguous and counts as absent.
func Lookup(object []byte, path ...string) (value []byte, at int) {
	value, at, _ = lookupCounted(object, path)
	return value, at
}

// lookupCounted is Lookup that also returns how often the last member occurs.
func lookupCounted(object []byte, path []string) (value []byte, at, times int) {
	if len(path) == 0 {
		return object, 0, 1
	}
	s := scan(object)
	i, ok := s.enterObject(0)
	for ok { // like Members, without an allocation per key
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

// Set replaces the value at path in the message by text, which must be JSON. A missing member is
// added if its parent object exists. The result is parsed again, so Set is meant for parts that
// Parse does not record and that rarely change. If ok is false, the result is m.
func (m Message) Set(text []byte, path ...string) (changed Message, ok bool) {
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
	changed, err := Parse(slices.Concat(m.raw[:at], text, m.raw[end:]))
	if err != nil {
		return m, false
	}
	return changed, true
}
