package protocol

import (
	"bytes"
	"slices"

	"mcpgateway/internal/wire"
)

// lookupCounted is like [wire.Lookup], but returns the number of occurrences of the member in place
// of its offset: 0 if the member is absent, more than 1 if it has duplicates. If another member of
// path does not occur exactly once, it returns the number for that member.
func lookupCounted(object []byte, path ...string) (value []byte, times int) {
	value, times = object, 1
	for _, name := range path {
		object := value
		value, times = nil, 0
		wire.Members(object, func(key string, v []byte, _ int) {
			if key == name {
				value = v
				times++
			}
		})
		if times != 1 {
			return nil, times
		}
	}
	return value, times
}

// A memberValue is the value of a member, nil if the member is absent or occurs several times, and
// the number of occurrences.
type memberValue struct {
	value []byte
	count int
}

// lookupAll reads several members of an object in one pass.
func lookupAll(object []byte, names ...string) []memberValue {
	all := make([]memberValue, len(names))
	wire.Members(object, func(key string, value []byte, _ int) {
		i := slices.Index(names, key)
		if i < 0 {
			return
		}
		if all[i].count++; all[i].count > 1 {
			value = nil
		}
		all[i].value = value
	})
	return all
}

// mapMembers returns a JSON object in which each value is replaced by the result of change. All
// other bytes stay, and object itself is returned if nothing changes or if it is not an object.
func mapMembers(object []byte, change func(key string, value []byte) []byte) []byte {
	var out []byte
	done := 0
	if !wire.IsObject(object) || !wire.Members(object, func(key string, value []byte, at int) {
		if to := change(key, value); !wire.SameSlice(to, value) {
			out = append(append(out, object[done:at]...), to...)
			done = at + len(value)
		}
	}) || done == 0 {
		return object
	}
	return append(out, object[done:]...)
}

// mapMember replaces the value of one member by the result of change, like mapMembers.
func mapMember(object []byte, name string, change func(value []byte) []byte) []byte {
	return mapMembers(object, func(key string, value []byte) []byte {
		if key == name {
			return change(value)
		}
		return value
	})
}

// mapElements returns a JSON array in which each element is replaced by the elements that change
// returns, which may be none or several. It returns text itself if nothing changes or if text is
// not an array. Otherwise unchanged elements keep their bytes, but white space between elements is
// lost.
func mapElements(text []byte, change func(i int, element []byte) [][]byte) []byte {
	var out [][]byte
	changed := false
	for i, element := range wire.Elements(text) {
		to := change(i, element)
		changed = changed || len(to) != 1 || !wire.SameSlice(to[0], element)
		out = append(out, to...)
	}
	if !changed {
		return text
	}
	return joinArray(out)
}

// joinArray returns the JSON array of these elements.
func joinArray(elements [][]byte) []byte {
	return append(append([]byte{'['}, bytes.Join(elements, []byte(","))...), ']')
}

// dropMember removes a member from an object. It returns object itself if there is no such member
// or if it is not an object.
func dropMember(object []byte, name string) []byte {
	return dropMembers(object, func(key string) bool { return key == name })
}

// dropMembers removes all members for which drop returns true. It returns object itself if there is
// no such member or if it is not an object.
func dropMembers(object []byte, drop func(key string) bool) []byte {
	found := false
	if !wire.IsObject(object) {
		return object
	}
	wire.Members(object, func(key string, _ []byte, _ int) { found = found || drop(key) })
	if !found {
		return object
	}
	return wire.EditObject(object, drop)
}
