package protocol

import (
	"bytes"
	"slices"

	"mcpgateway/internal/wire"
)

// lookup is [wire.Lookup] that tells, too, how often a member of the path stands there:
// what could be read in two ways is no value, but not absent.
func lookup(object []byte, path ...string) (value []byte, times int) {
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

// A found is what an object has under one name: how often that stands there, and what if it is once.
type found struct {
	value []byte
	times int
}

// lookups is lookup for several members of an object, in one walk.
func lookups(object []byte, names ...string) []found {
	all := make([]found, len(names))
	wire.Members(object, func(key string, value []byte, _ int) {
		i := slices.Index(names, key)
		if i < 0 {
			return
		}
		if all[i].times++; all[i].times > 1 {
			value = nil
		}
		all[i].value = value
	})
	return all
}

// mapMembers returns a JSON object with other values: change is asked for each and
// returns it as it is where it stays. Every other byte stays, and if nothing changes
// it is the same slice that is returned. So it is with what is no object.
func mapMembers(object []byte, change func(key string, value []byte) []byte) []byte {
	var out []byte
	done := 0
	if !wire.IsObject(object) || !wire.Members(object, func(key string, value []byte, at int) {
		if to := change(key, value); !same(to, value) {
			out = append(append(out, object[done:at]...), to...)
			done = at + len(value)
		}
	}) || done == 0 {
		return object
	}
	return append(out, object[done:]...)
}

// mapMember is mapMembers for one of them.
func mapMember(object []byte, name string, change func(value []byte) []byte) []byte {
	return mapMembers(object, func(key string, value []byte) []byte {
		if key == name {
			return change(value)
		}
		return value
	})
}

// mapElements returns a JSON array with other elements: change is asked for each, by
// its place, and returns what stands there then, which may be none or several. If each
// is as it was, it is the same slice that is returned; if not, each element keeps its
// bytes, but not the white space between them. What is no array stays as it is.
func mapElements(text []byte, change func(i int, element []byte) [][]byte) []byte {
	var out [][]byte
	changed := false
	for i, element := range wire.Elements(text) {
		to := change(i, element)
		changed = changed || len(to) != 1 || !same(to[0], element)
		out = append(out, to...)
	}
	if !changed {
		return text
	}
	return array(out)
}

// array returns the JSON array of some elements.
func array(elements [][]byte) []byte {
	return append(append([]byte{'['}, bytes.Join(elements, []byte(","))...), ']')
}

// without returns an object without one of its members, and the same slice if it has no
// such member or is no object.
func without(object []byte, name string) []byte {
	return strip(object, func(key string) bool { return key == name })
}

// strip does the same with all members of which drop says so.
func strip(object []byte, drop func(key string) bool) []byte {
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

// same reports whether two texts are one and the same slice.
func same(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
