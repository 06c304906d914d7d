package auditlog

import "bytes"

// maxLine bounds the bytes of a line that is read. A record with payloads has at most about 800 KB:
// two payloads of 64 KiB, in which each byte may need six. Longer lines are skipped and counted.
const maxLine = 4 << 20

// looksWhole reports whether a line may be a record: a JSON object, or a line of a log in the
// format text.
func looksWhole(line []byte) bool {
	return line[0] == '{' && line[len(line)-1] == '}' || isTextLine(line)
}

func isTextLine(line []byte) bool { return bytes.HasPrefix(line, []byte("time=")) }

// parse finds the fields of a line. It returns false if the line is not a record, for example
// because a part of it is missing. It does not check the values; those that are not used may be
// invalid.
func (r *RecordLine) parse(line []byte) bool {
	r.Line = line
	clear(r.values[:])
	if r.isText = line[0] != '{'; r.isText {
		return r.parseText()
	}
	return r.parseJSON()
}

// parseJSON finds the members of the object in Line. If a key occurs twice, the first one counts.
func (r *RecordLine) parseJSON() bool {
	line := r.Line
	i := skipSpace(line, 1)
	if i < len(line) && line[i] == '}' {
		return i+1 == len(line)
	}
	for next := 0; ; {
		f, known, ok := Attribute(0), false, false
		if i, f, known, ok = parseKey(line, i, &next); !ok {
			return false
		}
		end := valueEnd(line, i)
		if end < 0 {
			return false
		}
		if known && r.values[f].to == 0 {
			r.values[f] = valueRange{int32(i), int32(end)}
		}
		if i = skipSpace(line, end); i >= len(line) {
			return false
		}
		switch line[i] {
		case ',':
			i = skipSpace(line, i+1)
		case '}':
			return i+1 == len(line)
		default:
			return false
		}
	}
}

// parseKey parses the key that begins at i. It returns the offset of its value. *next is the index
// in knownKeys of the first key that is expected.
func parseKey(line []byte, i int, next *int) (at int, f Attribute, known, ok bool) {
	rest := line[i:]
	for n := *next; n < len(knownKeys); n++ {
		k := &knownKeys[n]
		if len(rest) > len(k.text) && rest[1] == k.text[1] &&
			string(rest[:len(k.text)]) == k.text {
			*next = n + 1
			return skipSpace(line, i+len(k.text)), k.field, true, true
		}
	}
	if len(rest) == 0 || rest[0] != '"' {
		return 0, 0, false, false
	}
	end := stringEnd(line, i)
	if end < 0 {
		return 0, 0, false, false
	}
	f, known = fieldOf(line[i+1 : end-1])
	if i = skipSpace(line, end); i >= len(line) || line[i] != ':' {
		return 0, 0, false, false
	}
	return skipSpace(line, i+1), f, known, true
}

func skipSpace(line []byte, i int) int {
	for i < len(line) && (line[i] == ' ' || line[i] == '\t' || line[i] == '\r') {
		i++
	}
	return i
}

// stringEnd returns the end of the JSON string that begins at i; -1 = it has no end.
func stringEnd(line []byte, i int) int {
	for at := i + 1; ; {
		n := bytes.IndexByte(line[at:], '"')
		if n < 0 {
			return -1
		}
		at += n + 1
		escapes := 0
		for line[at-2-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return at
		}
	}
}

// valueEnd returns the end of the JSON value that begins at i; -1 = it has no end.
func valueEnd(line []byte, i int) int {
	if i >= len(line) {
		return -1
	}
	switch line[i] {
	case '"':
		return stringEnd(line, i)
	case '{', '[':
		return bracketEnd(line, i)
	}
	at := i
	for at < len(line) && line[at] != ',' && line[at] != '}' && line[at] != ']' &&
		line[at] != '"' && line[at] > ' ' {
		at++
	}
	if at == i {
		return -1
	}
	return at
}

// bracketEnd returns the end of the JSON object or array that begins at i; -1 = it has no end.
func bracketEnd(line []byte, i int) int {
	depth := 0
	for at := i; at < len(line); at++ {
		switch line[at] {
		case '"':
			end := stringEnd(line, at)
			if end < 0 {
				return -1
			}
			at = end - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return at + 1
			}
		}
	}
	return -1
}

// parseText finds the attributes of a line in the format text: key=value, separated by spaces, with
// a value in quotes if necessary.
func (r *RecordLine) parseText() bool {
	line := r.Line
	for i := 0; i < len(line); {
		n := bytes.IndexByte(line[i:], '=')
		if n <= 0 {
			return false
		}
		key := line[i : i+n]
		i += n + 1
		end := len(line)
		if i < len(line) && line[i] == '"' {
			if end = stringEnd(line, i); end < 0 {
				return false
			}
		} else if n := bytes.IndexByte(line[i:], ' '); n >= 0 {
			end = i + n
		}
		if f, known := fieldOf(key); known && r.values[f].to == 0 {
			r.values[f] = valueRange{int32(i), int32(end)}
		}
		if i = end; i < len(line) {
			if line[i] != ' ' {
				return false
			}
			i++
		}
	}
	return r.Has(Time)
}

// Parse returns the record in a line. It returns false if the line is not a record.
func Parse(line []byte) (r RecordLine, ok bool) {
	if len(line) == 0 || len(line) > maxLine || !looksWhole(line) {
		return RecordLine{}, false
	}
	ok = r.parse(line)
	return r, ok
}
