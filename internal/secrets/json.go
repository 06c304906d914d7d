package secrets

import (
	"bytes"
	"encoding/json"
)

// maxNames bounds the names of members around a value that Walk keeps. Values that are nested
// deeper are visited with the names of the outer members only.
const maxNames = 64

// Walk visits the values of a JSON text in order: each string, number and literal, with its
// quotes, and as a whole each object or array under a name for which whole returns true. path
// holds the names of the members around the value, the nearest last; the elements of an array
// have that of the array. path is valid during the call only.
//
// Walk reads what it can of a text that is cut short or is not JSON at all. Its time and memory
// are linear.
func Walk(text []byte, whole func(name string) bool, visit func(path []string, from, to int)) {
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
	named  []bool   // for each open object or array: whether its name is in path
	beyond int      // open objects and arrays beyond maxNames
	member bool     // the last name of path is that of the value to come
}

// token reads the token at i and returns its end.
func (w *walker) token(i int) int {
	end := tokenEnd(w.text, i)
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
		if value, ok := memberValue(w.text, end); ok && w.beyond == 0 {
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
		end = valueEnd(w.text, value)
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

// memberValue returns where the value begins, if the string that ends at i is the name of a
// member.
func memberValue(text []byte, i int) (int, bool) {
	i = skipSpace(text, i)
	if i == len(text) || text[i] != ':' {
		return 0, false
	}
	return skipSpace(text, i+1), true
}

// valueEnd returns where the object or array that begins at i ends.
func valueEnd(text []byte, i int) int {
	for depth := 0; i < len(text); {
		switch text[i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		i = tokenEnd(text, i)
		if depth <= 0 {
			break
		}
	}
	return i
}

// tokenEnd returns where the token at i ends: a string, a punctuation mark, a space, or a run of
// anything else.
func tokenEnd(text []byte, i int) int {
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

func skipSpace(text []byte, i int) int {
	return len(text) - len(bytes.TrimLeft(text[i:], " \t\r\n"))
}

// decodeString returns the text of a JSON string, or what stands between its quotes if it
// cannot be read.
func decodeString(token []byte) string {
	var s string
	if bytes.IndexByte(token, '\\') >= 0 && json.Unmarshal(token, &s) == nil {
		return s
	}
	return string(bytes.Trim(token, `"`))
}
