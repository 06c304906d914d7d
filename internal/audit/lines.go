package audit

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"strconv"
	"time"
	"unicode/utf8"
)

// maxBlock bounds the bytes of records that are written together.
const maxBlock = 64 << 10

// A lineSink buffers records as lines of JSON and writes many whole lines with one Write.
type lineSink struct {
	w        io.Writer
	mask     func(string) string
	attrs    []slog.Attr // buffer for the attributes of a record
	buf      []byte
	buffered int64 // records in buf
}

func (l *lineSink) write(e *queuedRecord) (lost int64) {
	before := len(l.buf)
	l.attrs = e.attrs(l.attrs[:0], l.mask)
	l.buf = appendLine(l.buf, e.Time, e.message(), l.attrs, l.mask)
	if before > 0 && len(l.buf) > maxBlock {
		lost = l.writeBlock(before)
	}
	l.buffered++
	return lost
}

func (l *lineSink) flush() (lost int64) {
	if len(l.buf) == 0 {
		return 0
	}
	return l.writeBlock(len(l.buf))
}

// writeBlock writes the first n bytes of buf. If the write fails, the records that were not written
// completely are lost.
func (l *lineSink) writeBlock(n int) (lost int64) {
	if done, err := l.w.Write(l.buf[:n]); err != nil {
		lost = l.buffered - int64(bytes.Count(l.buf[:done], []byte("\n")))
	}
	l.buf, l.buffered = append(l.buf[:0], l.buf[n:]...), 0
	return lost
}

// appendLine appends a record as slog's JSON handler would encode it, byte for byte. It supports
// only the kinds of values that entry.attrs uses.
func appendLine(
	b []byte, at time.Time, msg string, attrs []slog.Attr, mask func(string) string,
) []byte {
	b = append(b, `{"time":"`...)
	b = appendTime(b, at)
	b = append(b, `","level":"INFO","msg":"`...)
	b = append(b, msg...)
	b = append(b, '"')
	for _, a := range attrs {
		b = append(b, ',', '"')
		b = append(b, a.Key...)
		b = append(b, '"', ':')
		switch v := a.Value; v.Kind() {
		case slog.KindString:
			b = appendString(b, v.String())
		case slog.KindTime:
			b = append(appendTime(append(b, '"'), v.Time()), '"')
		case slog.KindInt64:
			b = strconv.AppendInt(b, v.Int64(), 10)
		case slog.KindFloat64: // milliseconds with three decimals: JSON writes no exponent
			b = strconv.AppendFloat(b, v.Float64(), 'f', -1, 64)
		case slog.KindAny:
			b = appendRaw(b, v.Any().(json.RawMessage), mask)
		}
	}
	return append(b, '}', '\n')
}

// appendTime appends a time in UTC with a fixed number of digits, "2006-01-02T15:04:05.000000Z", as
// in the JSON log. It uses RFC3339, because package time has a fast path only for this format.
func appendTime(b []byte, t time.Time) []byte {
	t = t.UTC()
	b = t.AppendFormat(b, time.RFC3339)
	b[len(b)-1] = '.' // instead of Z
	from := len(b)
	b = append(b, "000000Z"...)
	for at, us := from+5, t.Nanosecond()/int(time.Microsecond); at >= from; at, us = at-1, us/10 {
		b[at] = byte('0' + us%10)
	}
	return b
}

// appendRaw appends a payload on one line. If the compact form of the payload contains a secret,
// the payload is appended as a masked string.
func appendRaw(b []byte, raw json.RawMessage, mask func(string) string) []byte {
	var line bytes.Buffer
	_ = json.Compact(&line, raw) // never fails: payload converts invalid JSON to a string
	text := line.String()
	if masked := mask(text); masked != text {
		return appendString(b, masked)
	}
	return append(b, text...)
}

// appendString appends s in quotes, with the escapes of slog.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	copied := 0
	for i := 0; i < len(s); {
		c, size := rune(s[i]), 1
		if c >= utf8.RuneSelf {
			c, size = utf8.DecodeRuneInString(s[i:])
		}
		if c >= ' ' && c != '"' && c != '\\' && c != '\u2028' && c != '\u2029' &&
			(c != utf8.RuneError || size > 1) {
			i += size
			continue
		}
		b = append(append(b, s[copied:i]...), '\\')
		i += size
		copied = i
		switch c {
		case '"', '\\':
			b = append(b, byte(c))
		case '\n':
			b = append(b, 'n')
		case '\r':
			b = append(b, 'r')
		case '\t':
			b = append(b, 't')
		default:
			b = append(b, 'u', hex[c>>12&15], hex[c>>8&15], hex[c>>4&15], hex[c&15])
		}
	}
	return append(append(b, s[copied:]...), '"')
}
