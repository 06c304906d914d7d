package wire

import "slices"

// Lookup returns the value to which a path of member names leads in a JSON
// object, and the offset at which it stands; nil if there is none. A member that
// stands twice is none, for it could be read in two ways.
func Lookup(object []byte, path ...string) (value []byte, at int) {
	value, at, _ = lookup(object, path)
	return value, at
}

// lookup is Lookup that tells, too, how often the last member stands there.
func lookup(object []byte, path []string) (value []byte, at, times int) {
	if len(path) == 0 {
		return object, 0, 1
	}
	s := scan(object)
	i, ok := s.enter(0)
	for ok { // as in Members, but no key costs memory
		found, lo := string(s.key()) == path[0], i
		if i = s.value(i); found && s.err == nil {
			value, at = object[lo:i:i], lo
			times++
		}
		i, ok = s.next(i)
	}
	if times != 1 {
		return nil, 0, times
	}
	value, inner, times := lookup(value, path[1:])
	return value, at + inner, times
}

// Set returns the message with text, which must be JSON, in the place of the value
// to which path leads from the message's own members. A member that is missing
// is put in, if the object that it belongs to is there. It is for the rare
// message of which a part is exchanged that Parse does not look at: the result is
// parsed anew. Not ok means that m is as it was.
func (m Message) Set(text []byte, path ...string) (changed Message, ok bool) {
	value, at, times := lookup(m.raw, path)
	end := at + len(value)
	if times == 0 {
		parent, offset, _ := lookup(m.raw, path[:len(path)-1])
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
