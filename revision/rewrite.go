package revision

import (
	"bytes"

	"mcpgateway/wire"
)

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

// same reports whether two texts are one and the same slice.
func same(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
