package secrets

import (
	"bytes"
	"encoding/json"
)

// maxNames is the number of names of members around a value that walkJSON keeps. Values that are
// nested deeper are visited with the names of the outer members only.
const maxNames = 64

// walkJSON calls visit for the values of a JSON text in order: for each string (with its quotes),
// number and literal. If whole returns true for the name of an object or array, it is visited as a
// whole instead. path contains the names of the members around the value, the nearest last; the
// elements of an array have the name of the array. path is valid only during the call of visit.
//
// walkJSON reads truncated and invalid JSON as far as possible. Its time and memory are linear.
func walkJSON(text []byte, whole func(name string) bool, visit func(path []string, from, to int)) {
	w := walker{text: text, whole: whole, visit: visit}
	for i := 0; i < len(text); {
		i = w.token(i)
	}
}

type walker struct {
	text  []byte
	whole func(string) bool
	visit func(path []string, from, to int)

	path   []string // names of open members
	named  []bool   // for each open object or array: whether path contains its name
	beyond int      // open objects and arrays beyond maxNames
	member bool     // the last name of path belongs to the next value
}

// token reads the token at i and returns its end.
func (w *walker) token(i int) int {
	end := TokenEnd(w.text, i)
	switch c := w.text[i]; c {
	case ' ', '\t', '\r', '\n', ',', ':':
	case '{', '[':
		if w.beyond > 0 || len(w.named) == maxNames {
			w.beyond++
			break
		}
		w.named = append(w.named, w.member)
		w.member = false
	case '}', ']':
		w.close()
	case '"':
		if value, ok := MemberValue(w.text, end); ok && w.beyond == 0 {
			return w.name(i, end, value)
		} else if ok {
			return value
		}
		w.value(i, end)
	default:
		w.value(i, end)
	}
	return end
}

// name reads the name text[i:end] of a member whose value begins at value.
func (w *walker) name(i, end, value int) int {
	name := decodeString(w.text[i:end])
	w.pop()
	w.path = append(w.path, name)
	w.member = true
	if value < len(w.text) && (w.text[value] == '{' || w.text[value] == '[') && w.whole(name) {
		end = ValueEnd(w.text, value)
		w.value(value, end)
		return end
	}
	return value
}

func (w *walker) value(from, to int) {
	w.visit(w.path, from, to)
	w.pop()
}

// pop removes the name of a member that has been read.
func (w *walker) pop() {
	if w.member {
		w.path = w.path[:len(w.path)-1]
		w.member = false
	}
}

func (w *walker) close() {
	w.pop()
	switch n := len(w.named); {
	case w.beyond > 0:
		w.beyond--
	case n > 0:
		w.member = w.named[n-1]
		w.named = w.named[:n-1]
		w.pop()
	}
}

// MemberValue returns the offset of the value if the string that ends at i is the name of a member.
func MemberValue(text []byte, i int) (int, bool) {
	i = SkipSpace(text, i)
	if i == len(text) || text[i] != ':' {
		return 0, false
	}
	return SkipSpace(text, i+1), true
}

// ValueEnd returns the end of the value that begins at i. If a closing bracket begins at i, it
// returns i.
func ValueEnd(text []byte, i int) int {
	for depth := 0; i < len(text); {
		switch text[i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if depth < 0 {
			return i
		}
		i = TokenEnd(text, i)
		if depth == 0 {
			return i
		}
	}
	return i
}

// TokenEnd returns the end of the token at i: a string, a punctuation mark, a space, or a run of
// other characters.
func TokenEnd(text []byte, i int) int {
	if text[i] == '"' {
		for i++; i < len(text); i++ {
			switch text[i] {
			case '\\':
				i++
			case '"':
				return i + 1
			}
		}
		return len(text)
	}
	switch n := bytes.IndexAny(text[i:], "{}[]:,\" \t\r\n"); n {
	case -1:
		return len(text)
	case 0:
		return i + 1
	default:
		return i + n
	}
}

// SkipSpace returns the offset of the first byte at or after i that is not JSON white space.
func SkipSpace(text []byte, i int) int {
	return len(text) - len(bytes.TrimLeft(text[i:], " \t\r\n"))
}

// decodeString returns the text of a JSON string, or the bytes between its quotes if it is invalid.
func decodeString(token []byte) string {
	var s string
	if bytes.IndexByte(token, '\\') >= 0 && json.Unmarshal(token, &s) == nil {
		return s
	}
	return string(bytes.Trim(token, `"`))
}
